/* ptx.h: an interpreter of PTX, for what nvcc makes of the kernels of libgradscale_device:
 * operation by operation as the PTX ISA defines it, on a CPU: one rounding to each, fma included.
 * What it does not know exactly (.approx, .ftz, .sat, warp instructions) it refuses.
 *
 * Threads of a block run one after the other from barrier to barrier, so a launch has one result.
 * What a device would leave to chance is found by other means and is an error:
 *
 *   an access outside of what the caller allows, or misaligned
 *   a barrier that some threads of a block reach and others do not
 *   two threads that touch the same bytes between barriers, or in different blocks, one of them
 *   writing and not both by atomics
 *   registers and shared memory start with garbage */
#ifndef PTX_H
#define PTX_H

#include <stddef.h>
#include <stdint.h>

/* Global memory that a launch may use, and what it used. */
typedef struct ptx_memory {
    unsigned char *base;
    size_t bytes;
    uint64_t read, written;    /* bytes, by all threads */
    struct ptx_shadow *shadow; /* who touched what; ptx_memory_free */
} ptx_memory;
void ptx_memory_free(ptx_memory *memory); /* the shadow; the memory is the caller's */

typedef struct ptx_module ptx_module;
typedef char ptx_error[256];

ptx_module *ptx_load(const char *text, ptx_error error); /* NULL: error says why */
void ptx_free(ptx_module *module);

typedef struct ptx_kernel ptx_kernel;
const ptx_kernel *ptx_find(const ptx_module *module, const char *name); /* NULL: there is none */
size_t ptx_parameters(const ptx_kernel *kernel);
size_t ptx_parameter_bytes(const ptx_kernel *kernel, size_t i);

/* arguments: the bits of each parameter. False: error says why. */
int ptx_launch(const ptx_kernel *kernel, unsigned grid, unsigned block, const uint64_t *arguments,
               ptx_memory *memory, size_t n, ptx_error error);

/* ---- shared by ptx_read.c and ptx_run.c ---- */

typedef enum ptx_type {
    PTX_NONE,
    PTX_PRED,
    PTX_B8,
    PTX_U8,
    PTX_S8,
    PTX_B16,
    PTX_U16,
    PTX_S16,
    PTX_F16,
    PTX_BF16,
    PTX_B32,
    PTX_U32,
    PTX_S32,
    PTX_F32,
    PTX_F16X2,
    PTX_BF16X2,
    PTX_B64,
    PTX_U64,
    PTX_S64,
    PTX_F64
} ptx_type;
extern const unsigned char ptx_sizes[];

#define PTX_OPS(X) \
    X(add)         \
    X(sub)         \
    X(mul)         \
    X(mad)         \
    X(div)         \
    X(rem)         \
    X(rcp)         \
    X(sqrt)        \
    X(neg)         \
    X(abs)         \
    X(min)         \
    X(max)         \
    X(and)         \
    X(or)          \
    X(xor)         \
    X(not )        \
    X(shl)         \
    X(shr)         \
    X(bfi)         \
    X(bfe)         \
    X(setp)        \
    X(selp)        \
    X(mov)         \
    X(cvt)         \
    X(cvta)        \
    X(ld)          \
    X(st)          \
    X(atom)        \
    X(bar)         \
    X(bra)         \
    X(ret)         \
    X(copysign)    \
    X(fma)

typedef enum ptx_op {
    PTX_no_op,
#define X(name) PTX_##name,
    PTX_OPS(X)
#undef X
} ptx_op;

#define PTX_COMPARES(X) \
    X(eq)               \
    X(ne)               \
    X(lt)               \
    X(le)               \
    X(gt)               \
    X(ge)               \
    X(equ)              \
    X(neu)              \
    X(ltu)              \
    X(leu)              \
    X(gtu)              \
    X(geu)              \
    X(num)              \
    X(nan)

typedef enum ptx_compare {
#define X(name) PTX_is_##name,
    PTX_COMPARES(X)
#undef X
        PTX_COMPARE_COUNT
} ptx_compare;

typedef enum ptx_space { PTX_GENERIC, PTX_PARAM, PTX_GLOBAL, PTX_SHARED, PTX_LOCAL } ptx_space;
typedef enum ptx_part { PTX_WHOLE, PTX_LO, PTX_HI, PTX_WIDE } ptx_part;
typedef enum ptx_atomic {
    PTX_NO_ATOMIC,
    PTX_ATOMIC_ADD,
    PTX_ATOMIC_MIN,
    PTX_ATOMIC_MAX
} ptx_atomic;
typedef enum ptx_round { PTX_NO_ROUND, PTX_RN, PTX_RZI } ptx_round;

/* A register, or a number: an immediate, an address of shared or local memory, a parameter. */
enum { PTX_IMMEDIATE = -1, PTX_TID = -2, PTX_CTAID = -3, PTX_NTID = -4, PTX_NCTAID = -5 };
typedef struct ptx_operand {
    int reg;         /* or one of the above */
    uint64_t number; /* added to a register in an address */
} ptx_operand;

typedef struct ptx_instruction {
    ptx_op op;
    ptx_type type, from;
    ptx_compare compare;
    ptx_space space;
    ptx_part part;
    ptx_atomic atomic;
    ptx_round round;
    int width;         /* elements of a vector */
    int guard, unless; /* the register of a predicate, -1: none */
    int target;        /* of a jump */
    int n, split;      /* operands; mov: where a list begins, 0: none */
    ptx_operand x[6];
    int line;
} ptx_instruction;

struct ptx_kernel {
    char name[64];
    struct {
        char name[80];
        ptx_type type;
    } parameters[32];
    size_t n_parameters;
    ptx_instruction *code;
    int n, room;
    int registers;
    uint32_t shared, local; /* bytes */
    struct ptx_kernel *next;
};

struct ptx_module {
    ptx_kernel *kernels;
    int fma; /* the line of one; 0: there is none */
};

#endif
