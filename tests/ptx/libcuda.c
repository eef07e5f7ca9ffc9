/* libcuda.c: a stand-in for libcuda.so.1 over the interpreter, for tests of the driver-API path
 * where there is no GPU. Streams run at once. A capture records launches and copies and refuses
 * what a real one refuses: allocation, synchronization, another capture.
 *
 * For tests besides: fake_cuda_fail(n) makes the n-th call from then on fail, once; fake_cuda_why
 * tells what went wrong in a launch; fake_cuda_traffic what was read and written at an address;
 * fake_cuda_counts how many launches and waits there were since it was asked. */
#include "ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* its header is NVIDIA's */
#define API __attribute__((visibility("default")))

typedef int result;
typedef unsigned long long address;
enum {
    OK = 0,
    INVALID = 1,
    NO_MEMORY = 2,
    NO_DEVICE = 100,
    BAD_DEVICE = 101,
    BAD_CONTEXT = 201,
    BAD_PTX = 218,
    NOT_FOUND = 500,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900,
    INJECTED = 999
};
enum { ALLOCATIONS = 256, NODES = 64, STACK = 16, MEMORY = 1 << 30 };

typedef struct function {
    const ptx_kernel *kernel;
    struct function *next;
} function;

typedef struct module {
    ptx_module *ptx;
    function *functions;
    struct module *next;
} module;

typedef struct node {
    const function *f; /* NULL: a copy */
    unsigned grid, block;
    uint64_t arguments[32];
    void *to;
    const void *from;
    size_t bytes;
} node;

typedef struct graph {
    node nodes[NODES];
    int n;
} graph;

static ptx_memory memory[ALLOCATIONS];
static size_t n_memory;
static void *pinned[ALLOCATIONS];
static module *modules;
static graph *capture;
static int context, stream, stack, driver = 12040, gave;
static long countdown, n_launched, n_waited, n_pending;
static ptx_error why;

/* ---- for tests ---- */

API void fake_cuda_fail(long n)
{
    countdown = n;
    gave = 0;
}
API long fake_cuda_left(void) { return countdown; }
API int fake_cuda_gave(void) { return gave; } /* that call gave something back */
API void fake_cuda_driver(int version) { driver = version; }
API const char *fake_cuda_why(void) { return why; }
API size_t fake_cuda_allocations(void) { return n_memory; }
API int fake_cuda_stack(void) { return stack; }

API void fake_cuda_counts(long *launches, long *waits)
{
    *launches = n_launched;
    *waits = n_waited;
    n_launched = n_waited = 0;
}

API void fake_cuda_traffic(address at, uint64_t *read, uint64_t *written)
{
    for (size_t i = 0; i < n_memory; i++)
        if ((address)(uintptr_t)memory[i].base == at) {
            *read = memory[i].read;
            *written = memory[i].written;
            memory[i].read = memory[i].written = 0;
        }
}

/* Launches and copies that nothing has waited for. */
API long fake_cuda_pending(void) { return n_pending; }

/* Every call begins with it. */
static int injected(void) { return countdown > 0 && --countdown == 0; }
#define BEGIN       \
    if (injected()) \
    return INJECTED
/* What gives back does it, and says that it failed: nothing leaks by an injection. */
#define GIVEN_BACK (injected() ? gave = 1, INJECTED : OK)
#define NOT_CAPTURED \
    BEGIN;           \
    if (capture)     \
    return CAPTURE_UNSUPPORTED

/* ---- devices and contexts ---- */

API result cuInit(unsigned flags)
{
    BEGIN;
    return flags ? INVALID : OK;
}
API result cuDriverGetVersion(int *version)
{
    BEGIN;
    *version = driver;
    return OK;
}
API result cuGetErrorName(result code, const char **name)
{
    *name = code == INJECTED                           ? "CUDA_ERROR_UNKNOWN"
            : code == LAUNCH_FAILED || code == BAD_PTX ? why
                                                       : "CUDA_ERROR";
    return OK;
}
API result cuDeviceGetCount(int *n)
{
    BEGIN;
    *n = 1;
    return OK;
}
API result cuDeviceGet(int *device, int i)
{
    BEGIN;
    *device = 0;
    return i ? BAD_DEVICE : OK;
}
API result cuDeviceGetName(char *name, int size, int device)
{
    BEGIN;
    snprintf(name, (size_t)size, "PTX interpreter");
    return device ? BAD_DEVICE : OK;
}
API result cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    BEGIN;
    *bytes = MEMORY;
    return device ? BAD_DEVICE : OK;
}
API result cuDeviceGetAttribute(int *value, int attribute, int device)
{
    BEGIN;
    *value = attribute == 75 ? 7 : 5;
    return device ? BAD_DEVICE : OK;
}
API result cuDevicePrimaryCtxRetain(void **out, int device)
{
    NOT_CAPTURED;
    *out = &context;
    return device ? BAD_DEVICE : OK;
}
API result cuDevicePrimaryCtxRelease_v2(int device) { return device ? BAD_DEVICE : GIVEN_BACK; }
API result cuCtxPushCurrent_v2(void *c)
{
    BEGIN;
    if (c != &context || stack == STACK)
        return BAD_CONTEXT;
    stack++;
    return OK;
}
API result cuCtxPopCurrent_v2(void **c)
{
    if (stack == 0)
        return BAD_CONTEXT;
    stack--;
    *c = &context;
    return GIVEN_BACK;
}
API result cuCtxGetDevice(int *device)
{
    BEGIN;
    *device = 0;
    return stack ? OK : BAD_CONTEXT;
}

/* ---- modules ---- */

/* To the file that STAND_IN_IMAGE names: what the driver's compiler gets to see. */
static void keep_image(const char *image)
{
    const char *path = getenv("STAND_IN_IMAGE");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        fputs(image, f);
        fclose(f);
    }
}

API result cuModuleLoadData(void **out, const void *image)
{
    NOT_CAPTURED;
    if (!stack)
        return BAD_CONTEXT;
    keep_image(image);
    ptx_module *ptx = ptx_load(image, why);
    if (ptx && ptx->fma) { /* it would be executed, but the kernels have none */
        snprintf(why, sizeof why, "line %d: an fma that the source does not have", ptx->fma);
        ptx_free(ptx);
        return BAD_PTX;
    }
    if (!ptx)
        return BAD_PTX;
    module *m = calloc(1, sizeof *m);
    m->ptx = ptx;
    m->next = modules;
    modules = m;
    *out = m;
    return OK;
}
API result cuModuleUnload(void *image)
{
    module *m = image, **from = &modules;
    while (*from != m)
        from = &(*from)->next;
    *from = m->next;
    while (m->functions) {
        function *f = m->functions;
        m->functions = f->next;
        free(f);
    }
    ptx_free(m->ptx);
    free(m);
    return GIVEN_BACK;
}
API result cuModuleGetFunction(void **out, void *image, const char *name)
{
    BEGIN;
    module *m = image;
    const ptx_kernel *k = ptx_find(m->ptx, name);
    if (!k)
        return NOT_FOUND;
    function *f = calloc(1, sizeof *f);
    f->kernel = k;
    f->next = m->functions;
    m->functions = f;
    *out = f;
    return OK;
}

/* ---- memory ---- */

API result cuMemAlloc_v2(address *out, size_t bytes)
{
    size_t all = 0;
    NOT_CAPTURED;
    for (size_t i = 0; i < n_memory; i++)
        all += memory[i].bytes;
    if (!stack)
        return BAD_CONTEXT;
    if (n_memory == ALLOCATIONS || bytes == 0 || bytes > MEMORY - all)
        return NO_MEMORY;
    unsigned char *p = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(p, 0xCD, bytes);
    memory[n_memory++] = (ptx_memory){.base = p, .bytes = bytes};
    *out = (address)(uintptr_t)p;
    return OK;
}
API result cuMemFree_v2(address at)
{
    if (capture)
        return CAPTURE_UNSUPPORTED;
    for (size_t i = 0; i < n_memory; i++)
        if ((address)(uintptr_t)memory[i].base == at) {
            ptx_memory_free(&memory[i]);
            free(memory[i].base);
            memory[i] = memory[--n_memory];
            return GIVEN_BACK;
        }
    return INVALID;
}
API result cuMemAllocHost_v2(void **out, size_t bytes)
{
    NOT_CAPTURED;
    for (size_t i = 0; i < ALLOCATIONS; i++)
        if (!pinned[i]) {
            *out = pinned[i] = malloc(bytes);
            return OK;
        }
    return NO_MEMORY;
}
API result cuMemFreeHost(void *p)
{
    for (size_t i = 0; i < ALLOCATIONS; i++)
        if (pinned[i] == p)
            pinned[i] = NULL;
    free(p);
    return GIVEN_BACK;
}
static int is_device(address at, size_t bytes)
{
    for (size_t i = 0; i < n_memory; i++) {
        const address base = (address)(uintptr_t)memory[i].base;
        if (at >= base && at + bytes <= base + memory[i].bytes)
            return 1;
    }
    return 0;
}
API result cuMemGetAddressRange_v2(address *base, size_t *bytes, address at)
{
    BEGIN;
    for (size_t i = 0; i < n_memory; i++) {
        const address b = (address)(uintptr_t)memory[i].base;
        if (at >= b && at < b + memory[i].bytes) {
            *base = b;
            *bytes = memory[i].bytes;
            return OK;
        }
    }
    return NOT_FOUND;
}

/* The end of the context, with all that is left in it. */
API void fake_cuda_end(void)
{
    while (n_memory > 0)
        cuMemFree_v2((address)(uintptr_t)memory[0].base);
    for (size_t i = 0; i < ALLOCATIONS; i++)
        if (pinned[i])
            cuMemFreeHost(pinned[i]);
    while (modules)
        cuModuleUnload(modules);
}

/* ---- streams ---- */

static result perform(const node *k)
{
    if (!k->f) {
        memcpy(k->to, k->from, k->bytes);
        return OK;
    }
    if (ptx_launch(k->f->kernel, k->grid, k->block, k->arguments, memory, n_memory, why))
        return OK;
    return LAUNCH_FAILED;
}

static result enqueue(const node *k)
{
    n_pending++;
    if (!capture)
        return perform(k);
    if (capture->n == NODES)
        return NO_MEMORY;
    capture->nodes[capture->n++] = *k;
    return OK;
}

static result copy(void *to, const void *from, size_t bytes)
{
    const node k = {.to = to, .from = from, .bytes = bytes};
    return enqueue(&k);
}

API result cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *s)
{
    BEGIN;
    (void)s;
    return is_device(to, bytes) ? copy((void *)(uintptr_t)to, from, bytes) : INVALID;
}
API result cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *s)
{
    BEGIN;
    (void)s;
    return is_device(from, bytes) ? copy(to, (const void *)(uintptr_t)from, bytes) : INVALID;
}
API result cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void *s)
{
    BEGIN;
    (void)s;
    return is_device(from, bytes) && is_device(to, bytes)
               ? copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes)
               : INVALID;
}
API result cuStreamSynchronize(void *s)
{
    NOT_CAPTURED;
    (void)s;
    n_waited++;
    n_pending = 0;
    return stack ? OK : BAD_CONTEXT;
}
API result cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void *s, void **parameters,
                          void **extra)
{
    const function *f = kernel;
    BEGIN;
    (void)s;
    if (!stack)
        return BAD_CONTEXT;
    if (gx == 0 || gy * gz * by * bz != 1 || bx == 0 || bx > 1024 || shared || extra)
        return INVALID;
    node k = {.f = f, .grid = gx, .block = bx};
    for (size_t i = 0; i < ptx_parameters(f->kernel); i++)
        memcpy(&k.arguments[i], parameters[i], ptx_parameter_bytes(f->kernel, i));
    n_launched++;
    return enqueue(&k);
}
API result cuStreamCreate(void **out, unsigned flags)
{
    NOT_CAPTURED;
    (void)flags;
    *out = &stream;
    return OK;
}
API result cuStreamBeginCapture_v2(void *s, int mode)
{
    NOT_CAPTURED;
    (void)s, (void)mode;
    capture = calloc(1, sizeof *capture);
    return OK;
}
API result cuStreamEndCapture(void *s, void **out)
{
    (void)s;
    *out = capture;
    capture = NULL;
    return *out ? OK : INVALID;
}
API result cuGraphInstantiateWithFlags(void **out, void *from, unsigned long long flags)
{
    (void)flags;
    *out = from;
    return OK;
}
API result cuGraphLaunch(void *launched, void *s)
{
    const graph *g = launched;
    result r = OK;
    (void)s;
    for (int i = 0; i < g->n && r == OK; i++)
        r = perform(&g->nodes[i]);
    return r;
}
API result cuGraphDestroy(void *g)
{
    free(g);
    return OK;
}
