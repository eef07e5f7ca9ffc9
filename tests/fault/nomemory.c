/* nomemory.so, preloaded: allocation N of a program fails, as NOMEMORY says. At its end the file
 * NOMEMORY_COUNT gets how many there were. glibc; memory by mmap alone is not counted. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *block, size_t size);

static atomic_long count;

static int fails(void)
{
    const char *which = getenv("NOMEMORY");
    const long n = atomic_fetch_add(&count, 1) + 1;
    if (!which || n != strtol(which, NULL, 10))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return fails() ? NULL : __libc_calloc(n, size); }
void *realloc(void *block, size_t size) { return fails() ? NULL : __libc_realloc(block, size); }

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("NOMEMORY_COUNT");
    const long n = atomic_load(&count); /* fopen asks for memory, too */
    FILE *to = path ? fopen(path, "w") : NULL;
    if (to) {
        fprintf(to, "%ld\n", n);
        fclose(to);
    }
}
