/* The default floating-point environment (nearest even, subnormals kept) around a kernel, so that a
 * caller's rounding mode or flush-to-zero, perhaps set by a library built with -ffast-math, changes
 * no bit. Costs some 20 cycles per chunk. */
#ifndef GSI_KERNEL_FPENV_H
#define GSI_KERNEL_FPENV_H

#include <stdint.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
static inline uint64_t gsi_fpenv_read(void) { return _mm_getcsr(); }
static inline void gsi_fpenv_write(uint64_t env) { _mm_setcsr((unsigned)env); }
enum { GSI_FPENV_DEFAULT = 0x1F80 }; /* all exceptions masked */
enum { GSI_FPENV_FLUSH = 0x1F80 | 0x8040 };
enum { GSI_FPENV_FLAGS = 0x3F }; /* exceptions seen, no modes */
#elif defined(__aarch64__)
static inline uint64_t gsi_fpenv_read(void)
{
    uint64_t env;
    __asm__ volatile("mrs %0, fpcr" : "=r"(env));
    return env;
}
/* "memory": no load or store, and so no conversion between them, crosses the change of mode. */
static inline void gsi_fpenv_write(uint64_t env)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(env) : "memory");
}
enum { GSI_FPENV_DEFAULT = 0, GSI_FPENV_FLUSH = 1 << 24, GSI_FPENV_FLAGS = 0 };
#else
static inline uint64_t gsi_fpenv_read(void) { return 0; }
static inline void gsi_fpenv_write(uint64_t env) { (void)env; }
enum { GSI_FPENV_DEFAULT = 0, GSI_FPENV_FLUSH = 0, GSI_FPENV_FLAGS = 0 };
#endif

/* Whether the mode is the default one already. */
static inline int gsi_fpenv_usual(void)
{
    return (gsi_fpenv_read() & ~(uint64_t)GSI_FPENV_FLAGS) == GSI_FPENV_DEFAULT;
}

/* A compiler does not know that arithmetic depends on the mode, but it keeps what is loaded after
 * enter and stored before leave between the two. */
static inline uint64_t gsi_fpenv_enter(void)
{
    const uint64_t saved = gsi_fpenv_read();
    gsi_fpenv_write(GSI_FPENV_DEFAULT);
    __asm__ volatile("" : : : "memory");
    return saved;
}

/* Nearest even, subnormals flushed: for kernels whose results do not depend on it, only their speed
 * (kernel/optim/optim.h). */
static inline uint64_t gsi_fpenv_enter_flush(void)
{
    const uint64_t saved = gsi_fpenv_read();
    gsi_fpenv_write(GSI_FPENV_FLUSH);
    return saved;
}

static inline void gsi_fpenv_leave(uint64_t saved)
{
    __asm__ volatile("" : : : "memory");
    gsi_fpenv_write(saved);
}

#endif
