/* bench.h: the benches of `gradscale bench`, and the limits they are measured against.
 *
 * A working set is the distinct bytes that a pass reads or writes: its size is what --sizes names.
 * A pass's traffic counts each byte once for being read and once for being written; GB/s is
 * traffic, in 1e9 bytes, per second, for limits and passes alike. Of stochastic rounding it is the
 * random bits that count, 2 bytes per element: making them takes longer than memory does.
 */
#ifndef BENCH_H
#define BENCH_H

#include "cli/core/cli.h"

#include "gradscale/data.h"

int bench_kernels(int argc, char **argv);
int bench_optim(int argc, char **argv);
int bench_step(int argc, char **argv);
int bench_ranks(int argc, char **argv);
int bench_gemm(int argc, char **argv);
int bench_checkpoint(int argc, char **argv);
int bench_generate(int argc, char **argv);
int bench_device(int argc, char **argv);

/* ---- memory ---- */

/* src[size] for what is read or changed in place; dst for what is written elsewhere, large enough
 * for two thirds of the size. Every 16 bits are a number of size 0.5..2 as an f16, so that every 16
 * or 32 bits are one of 2^-15..2 as a bf16 or f32: no pass meets an Inf, a NaN or a subnormal. */
typedef struct bench_memory {
    size_t size;
    unsigned char *src, *dst;
    void *blocks[2];
} bench_memory;

/* Fills all of it, so that every page is there. False: there is not enough; an error message is
 * printed and nothing is held. */
bool bench_memory_new(bench_memory *memory, size_t size);
void bench_memory_free(bench_memory *memory);

/* ---- limits ---- */

/* Columns: name; source and destination bytes for one unit of both (a source that is changed in
 * place has no destination); their traffic; what it is. */
#define BENCH_LIMITS(X)                                                  \
    X(READ, "read", 1, 0, 1, "the source is read")                       \
    X(IN_PLACE, "in place", 1, 0, 2, "the source is read and rewritten") \
    X(MEMCPY, "memcpy", 1, 1, 2, "libc's memcpy")                        \
    X(COPY, "copy", 1, 1, 2, "a loop of vector loads and stores")        \
    X(STREAM, "copy nt", 1, 1, 2, "the same with non-temporal stores")   \
    X(ADD, "add", 1, 1, 3, "dst += src")                                 \
    X(PHILOX, "philox", 1, 0, 1, "random bits are made, 16 per element; no memory is touched")

typedef enum bench_limit {
#define X(id, name, src, dst, traffic, what) BENCH_##id,
    BENCH_LIMITS(X)
#undef X
        BENCH_LIMIT_COUNT
} bench_limit;

const char *bench_limit_name(bench_limit limit);

/* One way to reach a limit. The limit is the best of its loops. n is a multiple of 4096. */
typedef struct bench_loop {
    bench_limit limit;
    const char *name;
    unsigned needs, unless; /* gs_cpu flags: the loop runs on a CPU with and without these */
    void (*run)(unsigned char *dst, unsigned char *src, size_t n);
} bench_loop;

extern const bench_loop bench_loops[]; /* ends with a row without a name */

/* Threads that run a loop, each over its own part of the memory. */
typedef struct bench_team bench_team;
bench_team *bench_team_new(unsigned threads); /* NULL: a thread could not be started */
void bench_team_free(bench_team *team);

/* Seconds for `passes` passes; *traffic is that of one. */
double bench_team_run(bench_team *team, const bench_loop *loop, const bench_memory *memory,
                      unsigned passes, double *traffic);

/* ---- arithmetic ---- */

/* A loop of multiply-adds with operands of this type, of the fastest of these instruction sets;
 * NULL: there is none. */
typedef struct bench_peak bench_peak;
const bench_peak *bench_peak_of(unsigned cpu, gs_dtype type);
/* Seconds that `work` flops take on the team's threads, measured over about as long, half a
 * millisecond to some fifth of a second. */
double bench_peak_run(const bench_peak *peak, bench_team *team, unsigned threads, double work);

/* ---- items ---- */

typedef struct bench_items {
    gs_batch batch; /* of the next step */
    double waited;  /* seconds that the last batch was waited for */
    size_t n;
    void *arrays[3];
    gs_data *data; /* NULL: the numbers are drawn, and every batch is the same */
    gs_loader *loader;
} bench_items;

/* What an item is: `time` tokens of `classes` words; time 0: an image. */
typedef struct bench_item {
    size_t time, height, width, channels, classes;
    bool any_classes; /* the model takes as many as the data have; words are so always */
} bench_item;

/* n items. data NULL: drawn; else a name that gs_data_open knows, and the classes become its own
 * where they may. CLI_GO, or an error was printed. */
int bench_items_open(bench_items *x, const char *data, size_t n, bench_item *item);
gs_status bench_items_next(bench_items *x, gs_error *error);
void bench_items_free(bench_items *x);

#endif
