/* base.h: status codes, error sentences, the two hooks (memory, threads) and random numbers.
 *
 * Every call that can fail returns a gs_status. Where a sentence can say more, the call takes a
 * gs_error or a context that holds one. The library never prints, exits, reads the environment or
 * keeps a global.
 */
#ifndef GRADSCALE_BASE_H
#define GRADSCALE_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GS_API                    __attribute__((visibility("default")))
#define GS_PRINTF(sentence, args) __attribute__((format(printf, sentence, args)))
#else
#define GS_API
#define GS_PRINTF(sentence, args)
#endif

#define GS_VERSION_MAJOR 0
#define GS_VERSION_MINOR 1
#define GS_VERSION_PATCH 0

/* The version of the library that is linked, "major.minor.patch". */
GS_API const char *gs_version(void);

/*   name       meaning */
#define GS_STATUSES(X)                                               \
    X(OK, "done")                                                    \
    X(NOMEM, "out of memory")                                        \
    X(NULL, "a pointer is missing")                                  \
    X(ALIGN, "a pointer is not aligned to its element size")         \
    X(DTYPE, "a data type is unknown or not supported here")         \
    X(SIZE, "a size does not fit or overflows")                      \
    X(RANGE, "a value is outside its range")                         \
    X(NAME, "a name is unknown")                                     \
    X(STATE, "the call is not legal in this state")                  \
    X(FORMAT, "the input is malformed")                              \
    X(VERSION, "the input is of an unknown version")                 \
    X(CHECKSUM, "the input is damaged: its checksum does not match") \
    X(IO, "reading or writing failed")                               \
    X(THREAD, "a thread could not be started")                       \
    X(RANK, "another rank failed, does not answer or differs")

typedef enum gs_status {
#define X(name, meaning) GS_E##name,
    GS_STATUSES(X)
#undef X
        GS_STATUS_COUNT
} gs_status;

#define GS_OK GS_EOK

GS_API const char *gs_status_name(gs_status status);    /* "NOMEM" */
GS_API const char *gs_status_meaning(gs_status status); /* "out of memory" */

/* What went wrong, as one sentence without a full stop that names the offender. */
typedef struct gs_error {
    gs_status status;
    char text[240];
} gs_error;

/* The one way memory is asked for. size 0 frees; block NULL allocates; otherwise it resizes.
 * old_size is what the block was asked with. Returns NULL when there is no memory, and then the
 * old block is untouched. Any alignment will do: the library aligns for itself. */
typedef struct gs_alloc {
    void *(*resize)(void *user, void *block, size_t old_size, size_t size);
    void *user;
} gs_alloc;

/* The one way threads are used: call body(arg, i) once for every i < count, in any order and on
 * any threads, and return when all have ended. No result depends on the order or the threads. */
typedef void gs_body(void *arg, size_t i);
typedef struct gs_parallel {
    void (*run)(void *user, size_t count, gs_body *body, void *arg);
    void *user;
} gs_parallel;

/* Counter-based random bits: a pure function of seed and index (Philox4x32-10). */
GS_API uint32_t gs_random_u32(uint64_t seed, uint64_t index);

#ifdef __cplusplus
}
#endif

#endif
