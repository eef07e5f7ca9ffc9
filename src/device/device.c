/* Devices, their memory, and what is the same for all kinds of them. */
#include "device/device.h"

#include <string.h>

const char *const gsi_device_kernels[] = {
#define X(name) "gsd_" #name,
    GSD_KERNELS(X)
#undef X
};

static const struct {
    const char *name;
    const gsi_device_backend *backend;
} kinds[] = {
    [GS_DEVICE_HOST] = {"host", &gsi_device_host},
    [GS_DEVICE_CUDA] = {"cuda", &gsi_device_cuda},
    [GS_DEVICE_OPENCL] = {"opencl", &gsi_device_opencl},
};

const char *gs_device_kind_name(gs_device_kind kind)
{
    return (unsigned)kind < GS_DEVICE_KIND_COUNT ? kinds[kind].name : "unknown";
}

static gs_status read_config(gs_device_config *today, const gs_device_config *config,
                             gs_error *error)
{
    if (!config)
        return gsi_fail(error, GS_ENULL, "the config of a device is NULL");
    const gs_status status = gsi_config(today, sizeof *today, config, "gs_device_config", error);
    if (status == GS_OK && (unsigned)today->kind >= GS_DEVICE_KIND_COUNT)
        return gsi_fail(error, GS_ERANGE, "there is no kind %d of devices", (int)today->kind);
    return status;
}

gs_status gs_device_list(gs_device_info *list, size_t room, size_t *n,
                         const gs_device_config *config, gs_error *error)
{
    gs_device_config today;
    if (!n || (room > 0 && !list))
        return gsi_fail(error, GS_ENULL, "there is nowhere to list devices");
    *n = 0;
    const gs_status status = read_config(&today, config, error);
    return status == GS_OK ? kinds[today.kind].backend->list(list, room, n, &today, error) : status;
}

/* Its heap is inside of it. */
static void drop(gs_device *d)
{
    gsi_heap heap = d->heap;
    gsi_free(&heap, d);
}

void *gsi_device_new(gs_device *d, size_t bytes)
{
    void *block = gsi_new(&d->heap, bytes);
    return block ? memset(block, 0, bytes) : NULL;
}

gs_status gs_device_create(gs_device **out, const gs_device_config *config, gs_error *error)
{
    gs_device_config today;
    if (!out)
        return gsi_fail(error, GS_ENULL, "there is nowhere to put a device");
    *out = NULL;
    gs_status status = read_config(&today, config, error);
    if (status != GS_OK)
        return status;
    gsi_heap heap;
    gsi_heap_init(&heap, &today.alloc);
    gs_device *d = gsi_new(&heap, sizeof *d);
    if (!d)
        return gsi_fail(error, GS_ENOMEM, "no memory for a device");
    *d = (gs_device){.heap = heap};
    d->backend = kinds[today.kind].backend;
    status = d->backend->open(d, &today, error);
    if (status != GS_OK) {
        drop(d);
        return status;
    }
    *out = d;
    return GS_OK;
}

void gs_device_free(gs_device *d)
{
    if (!d)
        return;
    d->backend->close(d);
    drop(d);
}

gs_device_info gs_device_get_info(const gs_device *d) { return d->info; }

/* ---- memory ---- */

gs_status gs_device_alloc(gs_device_ptr *out, gs_device *d, size_t bytes, gs_error *error)
{
    *out = (gs_device_ptr){0};
    return d->backend->alloc(d, out, bytes > 0 ? bytes : 1, error);
}

void gs_device_release(gs_device *d, gs_device_ptr memory)
{
    if (memory.base || memory.offset)
        d->backend->release(d, memory);
}

static gs_status check_copy(gs_device *d, gs_device_ptr device, const void *host, size_t bytes,
                            gs_error *error)
{
    if (!host)
        return gsi_fail(error, GS_ENULL, "a copy of %zu bytes: the pointer is NULL", bytes);
    return d->backend->check(d, device, bytes, "a copy", error);
}

gs_status gs_device_write(gs_device *d, gs_device_ptr to, const void *from, size_t bytes,
                          void *queue, gs_error *error)
{
    if (bytes == 0)
        return GS_OK;
    gs_status status = check_copy(d, to, from, bytes, error);
    if (status == GS_OK)
        status = d->backend->write(d, to, from, bytes, queue, error);
    return status == GS_OK ? d->backend->wait(d, queue, error) : status;
}

gs_status gs_device_read(void *to, gs_device *d, gs_device_ptr from, size_t bytes, void *queue,
                         gs_error *error)
{
    if (bytes == 0)
        return GS_OK;
    const gs_status status = check_copy(d, from, to, bytes, error);
    return status == GS_OK ? d->backend->read(d, to, from, bytes, true, queue, error) : status;
}

gs_status gs_device_copy(gs_device *d, gs_device_ptr to, gs_device_ptr from, size_t bytes,
                         void *queue, gs_error *error)
{
    if (bytes == 0)
        return GS_OK;
    gs_status status = d->backend->check(d, to, bytes, "the destination of a copy", error);
    if (status == GS_OK)
        status = d->backend->check(d, from, bytes, "the source of a copy", error);
    return status == GS_OK ? d->backend->copy(d, to, from, bytes, queue, error) : status;
}

gs_status gs_device_wait(gs_device *d, void *queue, gs_error *error)
{
    return d->backend->wait(d, queue, error);
}
