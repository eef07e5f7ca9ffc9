/* OpenCL 1.2 and later, by its C API and nothing else: no headers and no library at build time.
 *
 * Kernels are compiled from the source at run time, which some drivers take minutes for: the cache
 * keeps their binaries. Arguments of a kernel are set before every launch, because plans share
 * them. */
#include "device/device.h"

#include <stdio.h>
#include <string.h>

/* ---- the part of the OpenCL headers that is used ---- */

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_bitfield;
typedef struct cl_object
    *cl_handle; /* platforms, devices, contexts, queues, buffers, programs, kernels */

enum {
    DEVICE_TYPE_ALL = -1, /* all bits */
    DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    DEVICE_NAME = 0x102B,
    DRIVER_VERSION = 0x102D,
    DEVICE_VERSION = 0x102F,
    DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    QUEUE_CONTEXT = 0x1090,
    QUEUE_PROPERTIES = 0x1093,
    OUT_OF_ORDER = 1,
    MEM_READ_WRITE = 1,
    MEM_SIZE = 0x1102,
    MEM_CONTEXT = 0x1106,
    PROGRAM_BINARY_SIZES = 0x1165,
    PROGRAM_BINARIES = 0x1166,
    PROGRAM_BUILD_LOG = 0x1183,
    DEVICE_NOT_FOUND = -1,
    PLATFORM_NOT_FOUND = -1001,
};

#define CL_CALLS(X)                                                                                \
    X(cl_int, GetPlatformIDs, (cl_uint, cl_handle *, cl_uint *))                                   \
    X(cl_int, GetDeviceIDs, (cl_handle, cl_bitfield, cl_uint, cl_handle *, cl_uint *))             \
    X(cl_int, GetDeviceInfo, (cl_handle, cl_uint, size_t, void *, size_t *))                       \
    X(cl_handle, CreateContext,                                                                    \
      (const intptr_t *, cl_uint, const cl_handle *, void *, void *, cl_int *))                    \
    X(cl_int, RetainContext, (cl_handle))                                                          \
    X(cl_int, ReleaseContext, (cl_handle))                                                         \
    X(cl_handle, CreateCommandQueue, (cl_handle, cl_handle, cl_bitfield, cl_int *))                \
    X(cl_int, ReleaseCommandQueue, (cl_handle))                                                    \
    X(cl_int, GetCommandQueueInfo, (cl_handle, cl_uint, size_t, void *, size_t *))                 \
    X(cl_handle, CreateBuffer, (cl_handle, cl_bitfield, size_t, void *, cl_int *))                 \
    X(cl_int, ReleaseMemObject, (cl_handle))                                                       \
    X(cl_int, GetMemObjectInfo, (cl_handle, cl_uint, size_t, void *, size_t *))                    \
    X(cl_handle, CreateProgramWithSource,                                                          \
      (cl_handle, cl_uint, const char **, const size_t *, cl_int *))                               \
    X(cl_handle, CreateProgramWithBinary,                                                          \
      (cl_handle, cl_uint, const cl_handle *, const size_t *, const unsigned char **, cl_int *,    \
       cl_int *))                                                                                  \
    X(cl_int, BuildProgram, (cl_handle, cl_uint, const cl_handle *, const char *, void *, void *)) \
    X(cl_int, GetProgramInfo, (cl_handle, cl_uint, size_t, void *, size_t *))                      \
    X(cl_int, GetProgramBuildInfo, (cl_handle, cl_handle, cl_uint, size_t, void *, size_t *))      \
    X(cl_int, ReleaseProgram, (cl_handle))                                                         \
    X(cl_handle, CreateKernel, (cl_handle, const char *, cl_int *))                                \
    X(cl_int, ReleaseKernel, (cl_handle))                                                          \
    X(cl_int, SetKernelArg, (cl_handle, cl_uint, size_t, const void *))                            \
    X(cl_int, EnqueueNDRangeKernel,                                                                \
      (cl_handle, cl_handle, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,     \
       const cl_handle *, cl_handle *))                                                            \
    X(cl_int, EnqueueWriteBuffer,                                                                  \
      (cl_handle, cl_handle, cl_uint, size_t, size_t, const void *, cl_uint, const cl_handle *,    \
       cl_handle *))                                                                               \
    X(cl_int, EnqueueReadBuffer,                                                                   \
      (cl_handle, cl_handle, cl_uint, size_t, size_t, void *, cl_uint, const cl_handle *,          \
       cl_handle *))                                                                               \
    X(cl_int, EnqueueCopyBuffer,                                                                   \
      (cl_handle, cl_handle, cl_handle, size_t, size_t, size_t, cl_uint, const cl_handle *,        \
       cl_handle *))                                                                               \
    X(cl_int, Flush, (cl_handle))                                                                  \
    X(cl_int, Finish, (cl_handle))

typedef struct cl_calls {
#define X(result, name, arguments) result(*name) arguments;
    CL_CALLS(X)
#undef X
} cl_calls;

typedef struct opencl {
    void *library;
    cl_calls cl;
    cl_handle device, context, queue, program, kernels[GSD_KERNEL_COUNT];
} opencl;

static const char options[] = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

static gs_status failed(const char *what, cl_int code, gs_error *error)
{
    const gs_status status = code == -4 || code == -5 || code == -6 ? GS_ENOMEM : GS_EIO;
    return gsi_fail(error, status, "OpenCL failed in cl%s with code %d%s", what, code,
                    status == GS_ENOMEM ? ": out of memory" : "");
}

/* ---- devices ---- */

static gs_status open_library(opencl *o, const char *name, gs_error *error)
{
    const gsi_symbol symbols[] = {
#define X(result, name, arguments) {"cl" #name, &o->cl.name},
        CL_CALLS(X)
#undef X
    };
    o->library =
        gsi_library_open(name ? name : "libOpenCL.so.1", symbols, GSI_COUNT(symbols), error);
    return o->library ? GS_OK : error ? error->status : GS_EIO;
}

static void describe(const opencl *o, cl_handle device, gs_device_info *info)
{
    cl_bitfield f64 = 0;
    char driver[256] = "", version[256] = "";
    *info = (gs_device_info){.kind = GS_DEVICE_OPENCL};
    o->cl.GetDeviceInfo(device, DEVICE_NAME, sizeof info->name - 1, info->name, NULL);
    o->cl.GetDeviceInfo(device, DRIVER_VERSION, sizeof driver - 1, driver, NULL);
    o->cl.GetDeviceInfo(device, DEVICE_VERSION, sizeof version - 1, version, NULL);
    snprintf(info->driver, sizeof info->driver, "%.30s, %.30s", driver, version);
    o->cl.GetDeviceInfo(device, DEVICE_GLOBAL_MEM_SIZE, sizeof info->memory, &info->memory, NULL);
    o->cl.GetDeviceInfo(device, DEVICE_DOUBLE_FP_CONFIG, sizeof f64, &f64, NULL);
    info->has_f64 = f64 != 0;
}

/* All devices of all platforms, in their order. */
static size_t find_devices(const opencl *o, cl_handle *list, size_t room)
{
    enum { MOST = 64 };
    cl_handle platforms[MOST];
    cl_uint count = 0;
    size_t n = 0;
    if (o->cl.GetPlatformIDs(MOST, platforms, &count) != 0)
        return 0;
    for (cl_uint p = 0; p < count && p < MOST; p++) {
        cl_handle devices[MOST];
        cl_uint found = 0;
        if (o->cl.GetDeviceIDs(platforms[p], 0xFFFFFFFF, MOST, devices, &found) != 0)
            continue;
        for (cl_uint i = 0; i < found && i < MOST; i++, n++)
            if (n < room)
                list[n] = devices[i];
    }
    return n;
}

static gs_status opencl_list(gs_device_info *list, size_t room, size_t *n,
                             const gs_device_config *config, gs_error *error)
{
    enum { MOST = 256 };
    cl_handle devices[MOST];
    opencl o = {0};
    const gs_status status = open_library(&o, config->library, error);
    if (status != GS_OK)
        return status;
    *n = find_devices(&o, devices, MOST);
    for (size_t i = 0; i < *n && i < room && i < MOST; i++)
        describe(&o, devices[i], &list[i]);
    return GS_OK; /* drivers do not like to be closed: the library stays */
}

/* ---- kernels ---- */

/* NULL unless it builds. */
static cl_handle build(gs_device *d, cl_handle program, gs_error *error)
{
    const opencl *o = d->own;
    if (!program)
        return NULL;
    const cl_int code = o->cl.BuildProgram(program, 1, &o->device, options, NULL, NULL);
    if (code == 0)
        return program;
    enum { MOST = 1 << 20 };
    size_t used = 0;
    char *log = gsi_device_new(d, MOST);
    if (log)
        o->cl.GetProgramBuildInfo(program, o->device, PROGRAM_BUILD_LOG, MOST - 1, log, &used);
    const char *line = log ? strstr(log, "error") : NULL;
    gsi_fail(error, GS_EIO, "OpenCL cannot compile the kernels, code %d: %.150s", code,
             line  ? line
             : log ? log
                   : "");
    gsi_free(&d->heap, log);
    o->cl.ReleaseProgram(program);
    return NULL;
}

static void keep_binary(gs_device *d, const char *folder, const char *key)
{
    const opencl *o = d->own;
    size_t bytes = 0;
    if (!folder ||
        o->cl.GetProgramInfo(o->program, PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) != 0 ||
        bytes == 0 || bytes > 64 << 20)
        return;
    unsigned char *binary = gsi_device_new(d, bytes);
    if (binary &&
        o->cl.GetProgramInfo(o->program, PROGRAM_BINARIES, sizeof binary, &binary, NULL) == 0)
        gsi_cache_store(folder, key, binary, bytes);
    gsi_free(&d->heap, binary);
}

static gs_status make_program(gs_device *d, const gs_device_config *config, gs_error *error)
{
    opencl *o = d->own;
    gs_device_info *info = &d->info;
    const char *source = config->code ? config->code : gsi_device_source;
    char key[512];
    size_t bytes = 0;
    cl_int code, loaded = 0;
    snprintf(key, sizeof key, "opencl %s %s %s %016llx", info->name, info->driver, options,
             (unsigned long long)gsi_cache_hash(source, strlen(source)));
    unsigned char *binary = (unsigned char *)gsi_cache_load(d, config->cache, key, &bytes);
    if (binary) {
        const unsigned char *const_binary = binary;
        cl_handle program = o->cl.CreateProgramWithBinary(o->context, 1, &o->device, &bytes,
                                                          &const_binary, &loaded, &code);
        o->program = code == 0 ? build(d, program, NULL) : NULL;
        gsi_free(&d->heap, binary);
        snprintf(info->kernels, sizeof info->kernels, "cache");
    }
    if (o->program)
        return GS_OK;
    cl_handle program = o->cl.CreateProgramWithSource(o->context, 1, &source, NULL, &code);
    if (code != 0)
        return failed("CreateProgramWithSource", code, error);
    o->program = build(d, program, error);
    if (!o->program)
        return GS_EIO;
    snprintf(info->kernels, sizeof info->kernels, "clBuildProgram");
    keep_binary(d, config->cache, key);
    return GS_OK;
}

static gs_status make_kernels(opencl *o, gs_error *error)
{
    for (int k = 0; k < GSD_KERNEL_COUNT; k++) {
        cl_int code;
        o->kernels[k] = o->cl.CreateKernel(o->program, gsi_device_kernels[k], &code);
        if (code != 0)
            return failed("CreateKernel", code, error);
    }
    return GS_OK;
}

/* ---- opening ---- */

static gs_status pick_device(opencl *o, const gs_device_config *config, gs_error *error)
{
    enum { MOST = 256 };
    cl_handle devices[MOST];
    cl_int code = 0;
    if (config->context && !config->device)
        return gsi_fail(error, GS_ENULL, "a cl_context needs the cl_device_id to use of it");
    if (config->context) {
        o->device = config->device;
        code = o->cl.RetainContext(config->context);
        if (code != 0)
            return gsi_fail(error, GS_ESTATE, "the cl_context is not valid, code %d", code);
        o->context = config->context;
        return GS_OK;
    }
    const size_t n = find_devices(o, devices, MOST);
    if (config->index >= n || config->index >= MOST)
        return gsi_fail(error, GS_ERANGE, "there is no OpenCL device %u: there %s %zu",
                        config->index, n == 1 ? "is" : "are", n);
    o->device = devices[config->index];
    o->context = o->cl.CreateContext(NULL, 1, &o->device, NULL, NULL, &code);
    return code == 0 ? GS_OK : failed("CreateContext", code, error);
}

static void opencl_close(gs_device *d)
{
    opencl *o = d->own;
    for (int k = 0; k < GSD_KERNEL_COUNT; k++)
        if (o->kernels[k])
            o->cl.ReleaseKernel(o->kernels[k]);
    if (o->program)
        o->cl.ReleaseProgram(o->program);
    if (o->queue)
        o->cl.ReleaseCommandQueue(o->queue);
    if (o->context)
        o->cl.ReleaseContext(o->context);
    gsi_free(&d->heap, o);
}

static gs_status opencl_open(gs_device *d, const gs_device_config *config, gs_error *error)
{
    cl_int code = 0;
    opencl *o = gsi_device_new(d, sizeof *o);
    gs_error unread;
    if (!o)
        return gsi_fail(error, GS_ENOMEM, "no memory for a device");
    d->own = o;
    d->offsets = true;
    error = error ? error : &unread;
    gs_status status = open_library(o, config->library, error);
    if (status == GS_OK)
        status = pick_device(o, config, error);
    if (status == GS_OK) {
        describe(o, o->device, &d->info);
        if (!d->info.has_f64)
            status = gsi_fail(error, GS_EVERSION,
                              "%.100s has no fp64, which sums and the scale need", d->info.name);
    }
    if (status == GS_OK) {
        o->queue = o->cl.CreateCommandQueue(o->context, o->device, 0, &code);
        status = code == 0 ? GS_OK : failed("CreateCommandQueue", code, error);
    }
    if (status == GS_OK)
        status = make_program(d, config, error);
    if (status == GS_OK)
        status = make_kernels(o, error);
    if (status != GS_OK)
        opencl_close(d);
    return status;
}

/* ---- memory ---- */

static cl_handle queue_of(const opencl *o, void *queue) { return queue ? queue : o->queue; }

static gs_status opencl_alloc(gs_device *d, gs_device_ptr *out, size_t bytes, gs_error *error)
{
    const opencl *o = d->own;
    cl_int code;
    if (bytes > d->info.memory)
        return gsi_fail(error, GS_ENOMEM, "%zu bytes do not fit into the %llu of the device", bytes,
                        (unsigned long long)d->info.memory);
    cl_handle memory = o->cl.CreateBuffer(o->context, MEM_READ_WRITE, bytes, NULL, &code);
    if (code != 0)
        return gsi_fail(error, GS_ENOMEM, "no device memory for %zu bytes: OpenCL's code is %d",
                        bytes, code);
    *out = (gs_device_ptr){memory, 0};
    return GS_OK;
}

static void opencl_release(gs_device *d, gs_device_ptr memory)
{
    const opencl *o = d->own;
    o->cl.ReleaseMemObject(memory.base);
}

static gs_status opencl_pin(gs_device *d, void **out, size_t bytes, gs_error *error)
{
    *out = gsi_device_new(d, bytes);
    return *out ? GS_OK : gsi_fail(error, GS_ENOMEM, "no memory for %zu bytes", bytes);
}

static void opencl_unpin(gs_device *d, void *memory) { gsi_free(&d->heap, memory); }

static gs_status opencl_write(gs_device *d, gs_device_ptr to, const void *from, size_t bytes,
                              void *queue, gs_error *error)
{
    const opencl *o = d->own;
    const cl_int code = o->cl.EnqueueWriteBuffer(queue_of(o, queue), to.base, 1, (size_t)to.offset,
                                                 bytes, from, 0, NULL, NULL);
    return code == 0 ? GS_OK : failed("EnqueueWriteBuffer", code, error);
}

static gs_status opencl_read(gs_device *d, void *to, gs_device_ptr from, size_t bytes, bool wait,
                             void *queue, gs_error *error)
{
    const opencl *o = d->own;
    const cl_handle q = queue_of(o, queue);
    cl_int code =
        o->cl.EnqueueReadBuffer(q, from.base, wait, (size_t)from.offset, bytes, to, 0, NULL, NULL);
    if (code == 0 && !wait)
        code = o->cl.Flush(q); /* or a driver may wait for more */
    return code == 0 ? GS_OK : failed("EnqueueReadBuffer", code, error);
}

static gs_status opencl_copy(gs_device *d, gs_device_ptr to, gs_device_ptr from, size_t bytes,
                             void *queue, gs_error *error)
{
    const opencl *o = d->own;
    const cl_int code =
        o->cl.EnqueueCopyBuffer(queue_of(o, queue), from.base, to.base, (size_t)from.offset,
                                (size_t)to.offset, bytes, 0, NULL, NULL);
    return code == 0 ? GS_OK : failed("EnqueueCopyBuffer", code, error);
}

static gs_status opencl_wait(gs_device *d, void *queue, gs_error *error)
{
    const opencl *o = d->own;
    const cl_int code = o->cl.Finish(queue_of(o, queue));
    return code == 0 ? GS_OK : failed("Finish", code, error);
}

static gs_status opencl_check(gs_device *d, gs_device_ptr memory, size_t bytes, const char *what,
                              gs_error *error)
{
    const opencl *o = d->own;
    size_t held = 0;
    cl_handle context = NULL;
    if (!memory.base)
        return gsi_fail(error, GS_ENULL, "%s has no cl_mem", what);
    if (o->cl.GetMemObjectInfo(memory.base, MEM_SIZE, sizeof held, &held, NULL) != 0 ||
        o->cl.GetMemObjectInfo(memory.base, MEM_CONTEXT, sizeof context, &context, NULL) != 0)
        return gsi_fail(error, GS_ENULL, "%s is no cl_mem", what);
    if (context != o->context)
        return gsi_fail(error, GS_ESTATE, "%s is a cl_mem of another context", what);
    if (memory.offset > held || bytes > held - memory.offset)
        return gsi_fail(error, GS_ESIZE, "%s is %zu bytes from %llu on, and its cl_mem has %zu",
                        what, bytes, (unsigned long long)memory.offset, held);
    return GS_OK;
}

/* Launches depend on each other, without events. */
static gs_status check_queue(const opencl *o, cl_handle queue, gs_error *error)
{
    cl_handle context = NULL;
    cl_bitfield properties = 0;
    cl_int code = o->cl.GetCommandQueueInfo(queue, QUEUE_CONTEXT, sizeof context, &context, NULL);
    if (code == 0)
        code = o->cl.GetCommandQueueInfo(queue, QUEUE_PROPERTIES, sizeof properties, &properties,
                                         NULL);
    if (code != 0)
        return gsi_fail(error, GS_ESTATE, "the queue is no cl_command_queue, code %d", code);
    if (context != o->context)
        return gsi_fail(error, GS_ESTATE, "the queue is one of another context");
    if (properties & OUT_OF_ORDER)
        return gsi_fail(error, GS_ESTATE,
                        "the queue may execute out of order: kernels of a step need one in order");
    return GS_OK;
}

static gs_status opencl_launch(gs_device *d, const gsi_launch *l, void *queue, gs_error *error)
{
    const opencl *o = d->own;
    const cl_handle kernel = o->kernels[l->kernel];
    const size_t threads = GSD_THREADS, all = (size_t)l->blocks * threads;
    const gs_status status = queue ? check_queue(o, queue, error) : GS_OK;
    if (status != GS_OK)
        return status;
    cl_int code = 0;
    for (cl_uint i = 0; i < GSD_ARG_COUNT && code == 0; i++)
        code = o->cl.SetKernelArg(kernel, i, sizeof(cl_handle), &l->arguments[i].base);
    if (code == 0)
        code = o->cl.SetKernelArg(kernel, GSD_ARG_COUNT, sizeof l->seed, &l->seed);
    if (code == 0)
        code = o->cl.SetKernelArg(kernel, GSD_ARG_COUNT + 1, sizeof l->option, &l->option);
    if (code != 0)
        return failed("SetKernelArg", code, error);
    code = o->cl.EnqueueNDRangeKernel(queue_of(o, queue), kernel, 1, NULL, &all, &threads, 0, NULL,
                                      NULL);
    return code == 0 ? GS_OK : failed("EnqueueNDRangeKernel", code, error);
}

const gsi_device_backend gsi_device_opencl = {
    opencl_list, opencl_open,  opencl_close,  opencl_alloc, opencl_release,
    opencl_pin,  opencl_unpin, opencl_write,  opencl_read,  opencl_copy,
    opencl_wait, opencl_check, opencl_launch,
};
