/* no_threads.h: a process in which no further thread starts: the stack that each would have is
 * larger than memory can be.
 *
 *     if (no_threads(1)) { ... a call that needs a thread ... }
 *     no_threads(0); */
#ifndef NO_THREADS_H
#define NO_THREADS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

int pthread_getattr_default_np(pthread_attr_t *attr); /* not in POSIX */
int pthread_setattr_default_np(const pthread_attr_t *attr);

static inline void *no_threads_body(void *arg) { return arg; }

/* Returns whether it is so: a C library may know no such stacks. */
static inline int no_threads(int none)
{
    static size_t usual;
    pthread_attr_t attr;
    pthread_t thread;
    if (pthread_getattr_default_np(&attr) != 0)
        return 0;
    if (none)
        pthread_attr_getstacksize(&attr, &usual);
    pthread_attr_setstacksize(&attr, none ? SIZE_MAX / 4 : usual);
    const int set = pthread_setattr_default_np(&attr) == 0;
    pthread_attr_destroy(&attr);
    if (!set || !none)
        return set;
    if (pthread_create(&thread, NULL, no_threads_body, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    no_threads(0);
    return 0;
}

#endif
