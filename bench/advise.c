/* How fast `gradscale advise` is against reading the same file, both from the page cache.
 *
 *     advise PROGRAM FOLDER [MB]
 *
 * Makes a file of f16, of bf16 and of f32 in FOLDER (/dev/shm, or a disk whose cache holds it),
 * reads it with as many threads as there are CPUs, each with pread in blocks of its own, and runs
 * the program on it: best of 7, in turns, so that a busy neighbour disturbs both. */
#define _DEFAULT_SOURCE

#include "gradscale/num.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 512 * 1024, TILE = 1 << 20, ROUNDS = 7, MAX_THREADS = 64 };

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* Gradients: normal, of a width that differs from row to row by factors up to 2^8. */
static void make_file(const char *path, gs_dtype type, size_t megabytes)
{
    static const char *const names[] = {[GS_F32] = "F32", [GS_F16] = "F16", [GS_BF16] = "BF16"};
    const size_t item = gs_dtype_format(type)->bytes, bytes = megabytes * 1000000 / 8 * 8;
    char header[128], *tile = malloc(TILE * item);
    FILE *f = fopen(path, "wb");
    if (!f || !tile)
        fail(path);
    for (size_t i = 0; i < TILE; i++) {
        const double u = (gs_random_u32(1, 2 * i) + 1.0) / 4294967297.0;
        const double v = gs_random_u32(1, 2 * i + 1) / 4294967296.0;
        const double normal = sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
        const float x = (float)ldexp(normal, -20 + (int)(i / 4096 % 9));
        const uint16_t h = type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
        memcpy(tile + i * item, type == GS_F32 ? (const void *)&x : (const void *)&h, item);
    }
    uint64_t n =
        (uint64_t)snprintf(header, sizeof header,
                           "{\"g\":{\"dtype\":\"%s\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
                           names[type], bytes / item, bytes);
    while (n % 8 != 0) /* as writers do, so that the data is aligned */
        header[n++] = ' ';
    fwrite(&n, 8, 1, f);
    fwrite(header, 1, (size_t)n, f);
    for (size_t left = bytes; left > 0;) {
        const size_t part = left < TILE * item ? left : TILE * item;
        if (fwrite(tile, 1, part, f) != part)
            fail(path);
        left -= part;
    }
    if (fclose(f) != 0)
        fail(path);
    free(tile);
}

typedef struct reader {
    int fd;
    off_t from, to;
} reader;

static void *read_part(void *arg)
{
    const reader *r = arg;
    char *buffer = malloc(BLOCK);
    for (off_t at = r->from; buffer && at < r->to; at += BLOCK)
        if (pread(r->fd, buffer, BLOCK, at) <= 0)
            fail("pread");
    free(buffer);
    return NULL;
}

static double time_read(const char *path, size_t threads)
{
    pthread_t ids[MAX_THREADS];
    reader parts[MAX_THREADS];
    const int fd = open(path, O_RDONLY);
    const off_t size = lseek(fd, 0, SEEK_END);
    const double start = gs_clock();
    for (size_t i = 0; i < threads; i++) {
        parts[i] = (reader){fd, size / (off_t)threads * (off_t)i,
                            i + 1 == threads ? size : size / (off_t)threads * (off_t)(i + 1)};
        if (pthread_create(&ids[i], NULL, read_part, &parts[i]) != 0)
            fail("pthread_create");
    }
    for (size_t i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    const double took = gs_clock() - start;
    close(fd);
    return took;
}

static double time_advise(const char *program, const char *path)
{
    fflush(stdout);
    const double start = gs_clock();
    const pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout))
            execl(program, program, "advise", "--top", "0", path, (char *)NULL);
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
        fail(program);
    return gs_clock() - start;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: advise PROGRAM FOLDER [MB]\n");
        return 2;
    }
    const size_t megabytes = argc > 3 ? strtoul(argv[3], NULL, 10) : 1000;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t threads = online < 1 ? 1 : online < MAX_THREADS ? (size_t)online : MAX_THREADS;
    static const gs_dtype types[] = {GS_F16, GS_BF16, GS_F32};
    for (size_t t = 0; t < 3; t++) {
        char path[4096];
        double reading = 1e9, advising = 1e9;
        snprintf(path, sizeof path, "%s/gradscale-bench.safetensors", argv[2]);
        make_file(path, types[t], megabytes);
        for (int round = 0; round < ROUNDS; round++) {
            reading = fmin(reading, time_read(path, threads));
            advising = fmin(advising, time_advise(argv[1], path));
        }
        const double gb = (double)megabytes * 1e-3;
        printf("%-5s read %5.1f GB/s  advise %5.1f GB/s  ratio %.2f\n",
               gs_dtype_format(types[t])->name, gb / reading, gb / advising, reading / advising);
        unlink(path);
    }
    return 0;
}
