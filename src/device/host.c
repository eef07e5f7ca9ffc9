/* The kernels as loops over blocks and threads: for tests, and for machines without a device. */
#include "device/device.h"

#include "kernel/fpenv.h"

#if defined(__GNUC__) /* every kernel has all arguments */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif

static _Thread_local uint32_t gsd_block;

#include "device/kernels/scan.h"
#include "device/kernels/decide.h"
#include "device/kernels/act.h"

static gs_status host_list(gs_device_info *list, size_t room, size_t *n,
                           const gs_device_config *config, gs_error *error)
{
    (void)config, (void)error;
    *n = 1;
    if (room > 0)
        list[0] = (gs_device_info){
            .kind = GS_DEVICE_HOST, .name = "host loops", .driver = "none", .has_f64 = 1};
    return GS_OK;
}

static gs_status host_open(gs_device *d, const gs_device_config *config, gs_error *error)
{
    size_t n;
    if (config->index > 0)
        return gsi_fail(error, GS_ERANGE, "there is no host device %u: there is 1", config->index);
    (void)host_list(&d->info, 1, &n, config, error);
    memcpy(d->info.kernels, "loops", 6);
    return GS_OK;
}

static void host_close(gs_device *d) { (void)d; }

static void *address(gs_device_ptr p) { return (void *)(uintptr_t)p.offset; }

static gs_status host_alloc(gs_device *d, gs_device_ptr *out, size_t bytes, gs_error *error)
{
    void *block = gsi_new(&d->heap, bytes);
    if (!block)
        return gsi_fail(error, GS_ENOMEM, "no memory for %zu bytes", bytes);
    *out = (gs_device_ptr){NULL, (uint64_t)(uintptr_t)block};
    return GS_OK;
}

static void host_release(gs_device *d, gs_device_ptr memory)
{
    gsi_free(&d->heap, address(memory));
}

static gs_status host_pin(gs_device *d, void **out, size_t bytes, gs_error *error)
{
    gs_device_ptr p = {0};
    const gs_status status = host_alloc(d, &p, bytes, error);
    if (status == GS_OK)
        *out = address(p);
    return status;
}

static void host_unpin(gs_device *d, void *memory) { gsi_free(&d->heap, memory); }

static gs_status host_write(gs_device *d, gs_device_ptr to, const void *from, size_t bytes,
                            void *queue, gs_error *error)
{
    (void)d, (void)queue, (void)error;
    if (bytes > 0)
        memcpy(address(to), from, bytes);
    return GS_OK;
}

static gs_status host_read(gs_device *d, void *to, gs_device_ptr from, size_t bytes, bool wait,
                           void *queue, gs_error *error)
{
    (void)d, (void)queue, (void)wait, (void)error;
    if (bytes > 0)
        memcpy(to, address(from), bytes);
    return GS_OK;
}

static gs_status host_copy(gs_device *d, gs_device_ptr to, gs_device_ptr from, size_t bytes,
                           void *queue, gs_error *error)
{
    return host_write(d, to, address(from), bytes, queue, error);
}

static gs_status host_wait(gs_device *d, void *queue, gs_error *error)
{
    (void)d, (void)queue, (void)error;
    return GS_OK;
}

static gs_status host_check(gs_device *d, gs_device_ptr memory, size_t bytes, const char *what,
                            gs_error *error)
{
    (void)d, (void)bytes;
    if (memory.base)
        return gsi_fail(error, GS_ENULL, "%s: a host pointer has no base", what);
    return memory.offset ? GS_OK : gsi_fail(error, GS_ENULL, "%s: the pointer is NULL", what);
}

typedef void kernel_fn(ARGUMENTS);

static gs_status host_launch(gs_device *d, const gsi_launch *l, void *queue, gs_error *error)
{
    static kernel_fn *const kernels[] = {
#define X(name) gsd_##name,
        GSD_KERNELS(X)
#undef X
    };
    void *a[GSD_ARG_COUNT];
    (void)d, (void)queue, (void)error;
    for (int i = 0; i < GSD_ARG_COUNT; i++)
        a[i] = address(l->arguments[i]);
    const uint64_t env = gsi_fpenv_enter();
    for (gsd_block = 0; gsd_block < l->blocks; gsd_block++)
        kernels[l->kernel](a[GSD_ARG_GRAD], a[GSD_ARG_OUT], a[GSD_ARG_WEIGHT], a[GSD_ARG_COPY],
                           a[GSD_ARG_M], a[GSD_ARG_V], a[GSD_ARG_TENSORS], a[GSD_ARG_CHUNKS],
                           a[GSD_ARG_SETTINGS], a[GSD_ARG_ROWS], a[GSD_ARG_STATE], a[GSD_ARG_SUMS],
                           a[GSD_ARG_FOUND], a[GSD_ARG_NORMS], a[GSD_ARG_GATHERED],
                           a[GSD_ARG_REPORTS], l->seed, l->option);
    gsi_fpenv_leave(env);
    return GS_OK;
}

const gsi_device_backend gsi_device_host = {
    host_list,  host_open, host_close, host_alloc, host_release, host_pin,    host_unpin,
    host_write, host_read, host_copy,  host_wait,  host_check,   host_launch,
};
