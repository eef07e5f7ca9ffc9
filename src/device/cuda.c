/* CUDA by its driver API: libcuda.so.1, the caller's context or the primary one, no headers at
 * build time. Kernels are the embedded PTX or, where there was no nvcc, what NVRTC makes of the
 * source. */
#include "device/device.h"

#include <stdio.h>
#include <string.h>

/* ---- the part of cuda.h and nvrtc.h that is used ---- */

typedef int cu_result;
typedef unsigned long long cu_address;

#define CU_CALLS(X)                                                                          \
    X(Init, "cuInit", (unsigned))                                                            \
    X(DriverGetVersion, "cuDriverGetVersion", (int *))                                       \
    X(GetErrorName, "cuGetErrorName", (cu_result, const char **))                            \
    X(DeviceGetCount, "cuDeviceGetCount", (int *))                                           \
    X(DeviceGet, "cuDeviceGet", (int *, int))                                                \
    X(DeviceGetName, "cuDeviceGetName", (char *, int, int))                                  \
    X(DeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *, int))                                \
    X(DeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, int))                         \
    X(PrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (void **, int))                          \
    X(PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (int))                              \
    X(CtxPushCurrent, "cuCtxPushCurrent_v2", (void *))                                       \
    X(CtxPopCurrent, "cuCtxPopCurrent_v2", (void **))                                        \
    X(CtxGetDevice, "cuCtxGetDevice", (int *))                                               \
    X(ModuleLoadData, "cuModuleLoadData", (void **, const void *))                           \
    X(ModuleUnload, "cuModuleUnload", (void *))                                              \
    X(ModuleGetFunction, "cuModuleGetFunction", (void **, void *, const char *))             \
    X(MemAlloc, "cuMemAlloc_v2", (cu_address *, size_t))                                     \
    X(MemFree, "cuMemFree_v2", (cu_address))                                                 \
    X(MemAllocHost, "cuMemAllocHost_v2", (void **, size_t))                                  \
    X(MemFreeHost, "cuMemFreeHost", (void *))                                                \
    X(MemcpyHtoD, "cuMemcpyHtoDAsync_v2", (cu_address, const void *, size_t, void *))        \
    X(MemcpyDtoH, "cuMemcpyDtoHAsync_v2", (void *, cu_address, size_t, void *))              \
    X(MemcpyDtoD, "cuMemcpyDtoDAsync_v2", (cu_address, cu_address, size_t, void *))          \
    X(MemGetAddressRange, "cuMemGetAddressRange_v2", (cu_address *, size_t *, cu_address))   \
    X(StreamSynchronize, "cuStreamSynchronize", (void *))                                    \
    X(LaunchKernel, "cuLaunchKernel",                                                        \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, \
       void **, void **))

typedef struct cu_calls {
#define X(name, symbol, arguments) cu_result(*name) arguments;
    CU_CALLS(X)
#undef X
} cu_calls;

#define RTC_CALLS(X)                                                                        \
    X(Version, (int *, int *))                                                              \
    X(CreateProgram,                                                                        \
      (void **, const char *, const char *, int, const char *const *, const char *const *)) \
    X(CompileProgram, (void *, int, const char *const *))                                   \
    X(GetPTXSize, (void *, size_t *))                                                       \
    X(GetPTX, (void *, char *))                                                             \
    X(GetProgramLogSize, (void *, size_t *))                                                \
    X(GetProgramLog, (void *, char *))                                                      \
    X(DestroyProgram, (void **))

typedef struct rtc_calls {
#define X(name, arguments) int(*name) arguments;
    RTC_CALLS(X)
#undef X
} rtc_calls;

enum { OLDEST_DRIVER = 10020, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 };

typedef struct cuda {
    void *library;
    cu_calls cu;
    int device;
    bool primary; /* the context is the device's, retained here */
    void *context, *module, *kernels[GSD_KERNEL_COUNT];
} cuda;

static gs_status failed(const cuda *c, const char *what, cu_result code, gs_error *error)
{
    const char *name = "unknown";
    if (c->cu.GetErrorName(code, &name) != 0)
        name = "unknown";
    return gsi_fail(error, code == 2 ? GS_ENOMEM : GS_EIO, "CUDA failed in %s: %.80s (%d)", what,
                    name, code);
}

/* Every call below works in the device's context, and leaves the caller's as it was. */
static gs_status enter(const cuda *c, gs_error *error)
{
    const cu_result code = c->cu.CtxPushCurrent(c->context);
    return code == 0 ? GS_OK : failed(c, "cuCtxPushCurrent: the context is not valid", code, error);
}

/* What it could report is of work before: the next call reports it, too. */
static gs_status leave(const cuda *c, gs_status status)
{
    void *popped;
    c->cu.CtxPopCurrent(&popped);
    return status;
}

/* ---- devices ---- */

static gs_status open_library(cuda *c, const char *name, gs_error *error)
{
    const gsi_symbol symbols[] = {
#define X(name, symbol, arguments) {symbol, &c->cu.name},
        CU_CALLS(X)
#undef X
    };
    int version = 0;
    c->library = gsi_library_open(name ? name : "libcuda.so.1", symbols, GSI_COUNT(symbols), error);
    if (!c->library)
        return error->status;
    cu_result code = c->cu.Init(0);
    if (code == 0)
        code = c->cu.DriverGetVersion(&version);
    if (code != 0)
        return failed(c, "cuInit", code, error);
    if (version < OLDEST_DRIVER)
        return gsi_fail(error, GS_EVERSION,
                        "the driver is of CUDA %d.%d, and the kernels need one of %d.%d or later",
                        version / 1000, version % 1000 / 10, OLDEST_DRIVER / 1000,
                        OLDEST_DRIVER % 1000 / 10);
    return GS_OK;
}

static gs_status describe(const cuda *c, int device, gs_device_info *info, gs_error *error)
{
    int version = 0, major = 0, minor = 0;
    size_t memory = 0;
    *info = (gs_device_info){.kind = GS_DEVICE_CUDA, .has_f64 = 1};
    cu_result code = c->cu.DeviceGetName(info->name, sizeof info->name, device);
    if (code == 0)
        code = c->cu.DeviceTotalMem(&memory, device);
    if (code == 0)
        code = c->cu.DriverGetVersion(&version);
    if (code == 0)
        code = c->cu.DeviceGetAttribute(&major, CAPABILITY_MAJOR, device);
    if (code == 0)
        code = c->cu.DeviceGetAttribute(&minor, CAPABILITY_MINOR, device);
    if (code != 0)
        return failed(c, "cuDeviceGetName", code, error);
    info->memory = memory;
    snprintf(info->driver, sizeof info->driver, "CUDA %d.%d, sm_%d%d", version / 1000,
             version % 1000 / 10, major, minor);
    return GS_OK;
}

static gs_status cuda_list(gs_device_info *list, size_t room, size_t *n,
                           const gs_device_config *config, gs_error *error)
{
    cuda c = {0};
    gs_error unread;
    int count = 0;
    error = error ? error : &unread;
    gs_status status = open_library(&c, config->library, error);
    if (status == GS_OK) {
        const cu_result code = c.cu.DeviceGetCount(&count);
        status = code == 0 ? GS_OK : failed(&c, "cuDeviceGetCount", code, error);
    }
    for (int i = 0; status == GS_OK && i < count; i++) {
        int device;
        const cu_result code = c.cu.DeviceGet(&device, i);
        if (code != 0)
            status = failed(&c, "cuDeviceGet", code, error);
        else if ((size_t)i < room)
            status = describe(&c, device, &list[i], error);
    }
    *n = status == GS_OK ? (size_t)count : 0;
    return status;
}

/* ---- kernels ---- */

static void *open_rtc(rtc_calls *rtc, const char *name, gs_error *error)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                                        "libnvrtc.so"};
    const gsi_symbol symbols[] = {
#define X(name, arguments) {"nvrtc" #name, &rtc->name},
        RTC_CALLS(X)
#undef X
    };
    if (name)
        return gsi_library_open(name, symbols, GSI_COUNT(symbols), error);
    void *library = NULL;
    for (size_t i = 0; i < GSI_COUNT(names) && !library; i++)
        library = gsi_library_open(names[i], symbols, GSI_COUNT(symbols), NULL);
    if (!library)
        gsi_fail(error, GS_EIO,
                 "this build has no PTX inside, and there is no NVRTC (libnvrtc.so) to make it");
    return library;
}

/* PTX, of d's heap; NULL: error says why. */
static char *compile(gs_device *d, const rtc_calls *rtc, gs_error *error)
{
    static const char *const options[] = {"-fmad=false", "-arch=compute_75", "-default-device"};
    void *program = NULL;
    size_t bytes = 0;
    char *ptx = NULL;
    int code = rtc->CreateProgram(&program, gsi_device_source, "gradscale.cu", 0, NULL, NULL);
    if (code == 0)
        code = rtc->CompileProgram(program, GSI_COUNT(options), options);
    if (code == 0)
        code = rtc->GetPTXSize(program, &bytes);
    if (code == 0) {
        ptx = gsi_device_new(d, bytes + 1);
        code = ptx ? rtc->GetPTX(program, ptx) : 1;
    }
    if (code != 0) {
        char *log = NULL;
        if (program && rtc->GetProgramLogSize(program, &bytes) == 0 &&
            (log = gsi_device_new(d, bytes + 1)))
            rtc->GetProgramLog(program, log);
        const char *line = log ? strstr(log, "error") : NULL;
        gsi_fail(error, GS_EIO, "NVRTC cannot compile the kernels, code %d: %.150s", code,
                 line ? line : "");
        gsi_free(&d->heap, log);
        gsi_free(&d->heap, ptx);
        ptx = NULL;
    }
    if (program)
        rtc->DestroyProgram(&program);
    return ptx;
}

/* PTX of today's compilers names a version that older drivers do not know; what the kernels use is
 * all in 6.3, the first for sm_75, but for hints of 8.3 about bytes of a load that are not used. */
static void lower_version(char *ptx)
{
    static const char hint[] = ".pragma \"used_bytes_mask";
    char *line = strstr(ptx, ".version ");
    if (!line || strlen(line) <= 12 || line[9] < '6' || line[9] > '9' || line[10] != '.')
        return;
    memcpy(line + 9, "6.3", 3);
    while ((line = strstr(line, hint)))
        memcpy(line, "//", 2); /* to the end of its line */
}

static char *duplicate(gs_device *d, const char *text, gs_error *error)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = gsi_device_new(d, bytes);
    if (!copy)
        gsi_fail(error, GS_ENOMEM, "no memory for %zu bytes of kernels", bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static char *find_ptx(gs_device *d, const gs_device_config *config, gs_error *error)
{
    gs_device_info *info = &d->info;
    rtc_calls rtc;
    int major = 0, minor = 0;
    char key[128];
    size_t bytes;
    snprintf(info->kernels, sizeof info->kernels, config->code ? "given PTX" : "embedded PTX");
    if (config->code || (gsi_device_ptx[0] && !config->rtc))
        return duplicate(d, config->code ? config->code : gsi_device_ptx, error);
    if (!open_rtc(&rtc, config->rtc, error))
        return NULL;
    rtc.Version(&major, &minor);
    snprintf(key, sizeof key, "nvrtc %d.%d %016llx", major, minor,
             (unsigned long long)gsi_cache_hash(gsi_device_source, strlen(gsi_device_source)));
    char *ptx = gsi_cache_load(d, config->cache, key, &bytes);
    snprintf(info->kernels, sizeof info->kernels, ptx ? "cache" : "NVRTC");
    if (!ptx && (ptx = compile(d, &rtc, error)))
        gsi_cache_store(config->cache, key, ptx, strlen(ptx));
    return ptx; /* NVRTC does not survive being closed and opened again: it stays */
}

static gs_status load_module(gs_device *d, const gs_device_config *config, gs_error *error)
{
    cuda *c = d->own;
    char *ptx = find_ptx(d, config, error);
    if (!ptx)
        return error->status;
    if (!config->code) /* the caller's may be for any architecture */
        lower_version(ptx);
    cu_result code = c->cu.ModuleLoadData(&c->module, ptx);
    gsi_free(&d->heap, ptx);
    if (code != 0)
        return failed(c, "cuModuleLoadData", code, error);
    for (int k = 0; k < GSD_KERNEL_COUNT && code == 0; k++)
        code = c->cu.ModuleGetFunction(&c->kernels[k], c->module, gsi_device_kernels[k]);
    return code == 0 ? GS_OK : failed(c, "cuModuleGetFunction", code, error);
}

/* ---- opening ---- */

static void cuda_close(gs_device *d)
{
    cuda *c = d->own;
    if (c->module && enter(c, NULL) == GS_OK) {
        c->cu.ModuleUnload(c->module);
        leave(c, GS_OK);
    }
    if (c->primary)
        c->cu.PrimaryCtxRelease(c->device);
    gsi_free(&d->heap, c);
}

static gs_status pick_context(cuda *c, const gs_device_config *config, gs_error *error)
{
    int count = 0;
    cu_result code;
    if (config->context) {
        c->context = config->context;
        gs_status status = enter(c, error);
        if (status != GS_OK)
            return status;
        code = c->cu.CtxGetDevice(&c->device);
        return leave(c, code == 0 ? GS_OK : failed(c, "cuCtxGetDevice", code, error));
    }
    code = c->cu.DeviceGetCount(&count);
    if (code != 0)
        return failed(c, "cuDeviceGetCount", code, error);
    if (config->index >= (unsigned)count)
        return gsi_fail(error, GS_ERANGE, "there is no CUDA device %u: there %s %d", config->index,
                        count == 1 ? "is" : "are", count);
    code = c->cu.DeviceGet(&c->device, (int)config->index);
    if (code != 0)
        return failed(c, "cuDeviceGet", code, error);
    code = c->cu.PrimaryCtxRetain(&c->context, c->device);
    if (code != 0)
        return failed(c, "cuDevicePrimaryCtxRetain", code, error);
    c->primary = true;
    return GS_OK;
}

static gs_status cuda_open(gs_device *d, const gs_device_config *config, gs_error *error)
{
    cuda *c = gsi_device_new(d, sizeof *c);
    gs_error unread;
    if (!c)
        return gsi_fail(error, GS_ENOMEM, "no memory for a device");
    error = error ? error : &unread;
    d->own = c;
    gs_status status = open_library(c, config->library, error);
    if (status == GS_OK)
        status = pick_context(c, config, error);
    if (status == GS_OK)
        status = describe(c, c->device, &d->info, error);
    if (status == GS_OK)
        status = enter(c, error);
    if (status == GS_OK)
        status = leave(c, load_module(d, config, error));
    if (status != GS_OK)
        cuda_close(d);
    return status;
}

/* ---- memory ---- */

static gs_status cuda_alloc(gs_device *d, gs_device_ptr *out, size_t bytes, gs_error *error)
{
    const cuda *c = d->own;
    cu_address at = 0;
    const gs_status status = enter(c, error);
    if (status != GS_OK)
        return status;
    const cu_result code = c->cu.MemAlloc(&at, bytes);
    if (code == 0)
        *out = (gs_device_ptr){NULL, at};
    return leave(c, code == 0 ? GS_OK
                    : code == 2
                        ? gsi_fail(error, GS_ENOMEM, "no device memory for %zu bytes", bytes)
                        : failed(c, "cuMemAlloc", code, error));
}

static void cuda_release(gs_device *d, gs_device_ptr memory)
{
    const cuda *c = d->own;
    if (enter(c, NULL) != GS_OK)
        return;
    c->cu.MemFree(memory.offset);
    leave(c, GS_OK);
}

static gs_status cuda_pin(gs_device *d, void **out, size_t bytes, gs_error *error)
{
    const cuda *c = d->own;
    const gs_status status = enter(c, error);
    if (status != GS_OK)
        return status;
    const cu_result code = c->cu.MemAllocHost(out, bytes);
    return leave(c, code == 0 ? GS_OK : failed(c, "cuMemAllocHost", code, error));
}

static void cuda_unpin(gs_device *d, void *memory)
{
    const cuda *c = d->own;
    if (enter(c, NULL) != GS_OK)
        return;
    c->cu.MemFreeHost(memory);
    leave(c, GS_OK);
}

static gs_status cuda_wait(gs_device *d, void *queue, gs_error *error)
{
    const cuda *c = d->own;
    const gs_status status = enter(c, error);
    if (status != GS_OK)
        return status;
    const cu_result code = c->cu.StreamSynchronize(queue);
    return leave(c, code == 0 ? GS_OK : failed(c, "cuStreamSynchronize", code, error));
}

static gs_status cuda_write(gs_device *d, gs_device_ptr to, const void *from, size_t bytes,
                            void *queue, gs_error *error)
{
    const cuda *c = d->own;
    const gs_status status = enter(c, error);
    if (status != GS_OK)
        return status;
    const cu_result code = c->cu.MemcpyHtoD(to.offset, from, bytes, queue);
    return leave(c, code == 0 ? GS_OK : failed(c, "cuMemcpyHtoDAsync", code, error));
}

static gs_status cuda_read(gs_device *d, void *to, gs_device_ptr from, size_t bytes, bool wait,
                           void *queue, gs_error *error)
{
    const cuda *c = d->own;
    const gs_status status = enter(c, error);
    if (status != GS_OK)
        return status;
    cu_result code = c->cu.MemcpyDtoH(to, from.offset, bytes, queue);
    if (code == 0 && wait)
        code = c->cu.StreamSynchronize(queue);
    return leave(c, code == 0 ? GS_OK : failed(c, "cuMemcpyDtoHAsync", code, error));
}

static gs_status cuda_copy(gs_device *d, gs_device_ptr to, gs_device_ptr from, size_t bytes,
                           void *queue, gs_error *error)
{
    const cuda *c = d->own;
    const gs_status status = enter(c, error);
    if (status != GS_OK)
        return status;
    const cu_result code = c->cu.MemcpyDtoD(to.offset, from.offset, bytes, queue);
    return leave(c, code == 0 ? GS_OK : failed(c, "cuMemcpyDtoDAsync", code, error));
}

static gs_status cuda_check(gs_device *d, gs_device_ptr memory, size_t bytes, const char *what,
                            gs_error *error)
{
    const cuda *c = d->own;
    cu_address base = 0;
    size_t held = 0;
    if (memory.base)
        return gsi_fail(error, GS_ENULL, "%s: a CUDA pointer has no base", what);
    const gs_status status = enter(c, error);
    if (status != GS_OK)
        return status;
    const cu_result code = c->cu.MemGetAddressRange(&base, &held, memory.offset);
    leave(c, GS_OK);
    if (code != 0)
        return gsi_fail(error, GS_ENULL, "%s is not device memory", what);
    if (bytes > held - (memory.offset - base))
        return gsi_fail(error, GS_ESIZE, "%s is %zu bytes, and its memory ends before", what,
                        bytes);
    return GS_OK;
}

static gs_status cuda_launch(gs_device *d, const gsi_launch *l, void *queue, gs_error *error)
{
    const cuda *c = d->own;
    cu_address memory[GSD_ARG_COUNT];
    void *arguments[GSD_ARG_COUNT + 2];
    uint64_t seed = l->seed;
    uint32_t option = l->option;
    const gs_status status = enter(c, error);
    if (status != GS_OK)
        return status;
    for (int i = 0; i < GSD_ARG_COUNT; i++) {
        memory[i] = l->arguments[i].offset;
        arguments[i] = &memory[i];
    }
    arguments[GSD_ARG_COUNT] = &seed;
    arguments[GSD_ARG_COUNT + 1] = &option;
    const cu_result code = c->cu.LaunchKernel(c->kernels[l->kernel], l->blocks, 1, 1, GSD_THREADS,
                                              1, 1, 0, queue, arguments, NULL);
    return leave(c, code == 0 ? GS_OK : failed(c, "cuLaunchKernel", code, error));
}

const gsi_device_backend gsi_device_cuda = {
    cuda_list,  cuda_open, cuda_close, cuda_alloc, cuda_release, cuda_pin,    cuda_unpin,
    cuda_write, cuda_read, cuda_copy,  cuda_wait,  cuda_check,   cuda_launch,
};
