/* base.h: status codes, error messages, the two hooks (memory, threads) and random numbers.
 *
 * The library never prints, exits, reads the environment or keeps a global.
 *
 * Errors. Every call that can fail returns a gs_status. A call that is given a context, or works on
 * an object made from one (a store, an optimizer, a tape, a reducer, a trainer), leaves its error
 * message in the context: gs_context_error. Every other call takes a gs_error as its last argument,
 * which may be NULL. Files are no part of a context: checkpoints and logs take a gs_error.
 *
 * Arguments. What a call makes or fills in comes first, then the object it works on, then what it
 * only reads; a context comes before the arrays it works on. Reports that may be NULL come last.
 *
 * Names. gs_NOUN_WHAT(const gs_NOUN *) tells something of an object; where gs_NOUN_WHAT is a type
 * it is gs_NOUN_get_WHAT. gs_NOUN_set_WHAT changes it. Constants are enums, so that bindings see
 * them; those that no enum can hold are `static const` and, for constant expressions in C, macros
 * of the same name.
 *
 * Configs. A struct gs_*_config begins with its size: {.size = sizeof config, ...}. A program that
 * was compiled against an older header goes on with a newer library: members it did not know count
 * as zero. A size that is not set or unknown is GS_EVERSION.
 *
 * Threads and fork. Different objects may be used by different threads at the same time, except
 * that what is made from one context counts as one object with it.
 *
 *   calls                                    from which threads          in a forked child
 *   functions of numbers: num.h, gs_stats_*  any, at the same time       all
 *   gs_exponents_*, names, keys, gs_version  any, at the same time       all
 *   gs_scaler, gs_step, gs_window            one at a time per object;   all: plain data, copied
 *                                            no context is needed        by fork
 *   gs_context and what is made from it      one at a time per context;  all, in the calling thread
 *                                            any thread, not only its    alone: those of its pool
 *                                            maker                       stay in the parent
 *   gs_source                                one at a time, but          all; a mapping is shared
 *                                            gs_source_read: see there
 *   gs_data_read                             any, at the same time       as gs_source
 *   gs_loader, gs_saver                      one at a time: each has a   none: their threads are
 *                                            thread of its own           gone
 *   gs_logger, gs_log_file, gs_trace_file    one at a time               one process at a time
 *   gs_mpi                                   the thread of               none
 *                                            MPI_Init_thread
 *   your gs_parallel and gs_alloc            run: the caller's; bodies:  free calls the parent's
 *                                            any; resize: one at a time  gs_alloc
 */
#ifndef GRADSCALE_BASE_H
#define GRADSCALE_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Define it before the first include to declare the functions another way. */
#ifndef GS_API
#if defined(__GNUC__) && !defined(_WIN32)
#define GS_API __attribute__((visibility("default")))
#else
#define GS_API
#endif
#endif

#if defined(__MINGW32__) && !defined(__clang__)
#define GS_PRINTF(text, args) __attribute__((format(gnu_printf, text, args)))
#elif defined(__GNUC__)
#define GS_PRINTF(text, args) __attribute__((format(printf, text, args)))
#else
#define GS_PRINTF(text, args)
#endif

#define GS_VERSION_MAJOR 0
#define GS_VERSION_MINOR 1
#define GS_VERSION_PATCH 0

/* Of these headers: 0.1.0 is 100. In #if use the three above. */
enum { GS_VERSION_NUMBER = GS_VERSION_MAJOR * 10000 + GS_VERSION_MINOR * 100 + GS_VERSION_PATCH };

/* Of the library that is linked: "major.minor.patch", and the same as a number. */
GS_API const char *gs_version(void);
GS_API int gs_version_number(void);

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
    X(VERSION, "the input or a struct is of an unknown version")     \
    X(CHECKSUM, "the input is damaged: its checksum does not match") \
    X(IO, "reading or writing failed")                               \
    X(THREAD, "a thread could not be started")                       \
    X(RANK, "another rank failed, does not answer or differs")

typedef enum gs_status {
#define X(name, meaning) GS_E##name,
    GS_STATUSES(X)
#undef X
        GS_STATUS_COUNT,
    GS_OK = GS_EOK
} gs_status;

GS_API const char *gs_status_name(gs_status status);    /* "NOMEM" */
GS_API const char *gs_status_meaning(gs_status status); /* "out of memory" */

/* What went wrong, as one error message without a full stop that names the offender. */
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

/* How many threads of this process can run at once: the CPUs that are online, less what the
 * process is bound away from (taskset, numactl, a job's cpuset), less what a cgroup's quota
 * leaves of them (a container's), rounded down, at least 1. *limit, if limit is not NULL, names
 * which of them it is: "online", "affinity" or "quota". It asks anew each time. */
GS_API unsigned gs_cpus_usable(const char **limit);

/* Counter-based random bits: a pure function of seed and index (Philox4x32-10). */
GS_API uint32_t gs_random_u32(uint64_t seed, uint64_t index);

/* Seconds of a monotonic clock: for differences, not for the time of day. */
GS_API double gs_clock(void);

#ifdef __cplusplus
}
#endif

#endif
