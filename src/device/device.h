/* What the files of libgradscale_device share: a device is a row of functions over memory and
 * kernels
 * (host.c, cuda.c, opencl.c); a plan is what they run (plan.c, step.c). */
#ifndef GSI_DEVICE_H
#define GSI_DEVICE_H

#include "base/base.h"
#include "gradscale/device.h"
#include "device/kernels/report.h"

/* In the order of a step. */
#define GSD_KERNELS(X) \
    X(scan)            \
    X(fold)            \
    X(decide)          \
    X(sgd)             \
    X(adam)            \
    X(lamb)            \
    X(lamb_step)       \
    X(cast)

typedef enum gsi_device_kernel {
#define X(name) GSD_##name,
    GSD_KERNELS(X)
#undef X
        GSD_KERNEL_COUNT
} gsi_device_kernel;
extern const char *const gsi_device_kernels[GSD_KERNEL_COUNT]; /* "gsd_scan" */

/* The arguments of every kernel that are memory, in their order: ARGUMENTS in kernels/types.h. */
#define GSD_ARGUMENTS(X) \
    X(GRAD)              \
    X(OUT)               \
    X(WEIGHT)            \
    X(COPY)              \
    X(M)                 \
    X(V)                 \
    X(TENSORS)           \
    X(CHUNKS)            \
    X(SETTINGS)          \
    X(ROWS)              \
    X(STATE)             \
    X(SUMS)              \
    X(FOUND)             \
    X(NORMS)             \
    X(GATHERED)          \
    X(REPORTS)

typedef enum gsi_device_argument {
#define X(name) GSD_ARG_##name,
    GSD_ARGUMENTS(X)
#undef X
        GSD_ARG_COUNT
} gsi_device_argument;

typedef struct gsi_launch {
    gsi_device_kernel kernel;
    uint32_t blocks;
    const gs_device_ptr *arguments; /* [GSD_ARG_COUNT]; those of the caller's arrays are bases */
    uint64_t seed;
    uint32_t option;
} gsi_launch;

/* Every entry that can fail changes nothing when it does. */
typedef struct gsi_device_backend {
    gs_status (*list)(gs_device_info *list, size_t room, size_t *n, const gs_device_config *config,
                      gs_error *error);
    gs_status (*open)(gs_device *d, const gs_device_config *config, gs_error *error);
    void (*close)(gs_device *d);
    gs_status (*alloc)(gs_device *d, gs_device_ptr *out, size_t bytes, gs_error *error);
    void (*release)(gs_device *d, gs_device_ptr memory);
    gs_status (*pin)(gs_device *d, void **out, size_t bytes, gs_error *error); /* host memory */
    void (*unpin)(gs_device *d, void *memory);
    gs_status (*write)(gs_device *d, gs_device_ptr to, const void *from, size_t bytes, void *queue,
                       gs_error *error);
    gs_status (*read)(gs_device *d, void *to, gs_device_ptr from, size_t bytes, bool wait,
                      void *queue, gs_error *error);
    gs_status (*copy)(gs_device *d, gs_device_ptr to, gs_device_ptr from, size_t bytes, void *queue,
                      gs_error *error);
    gs_status (*wait)(gs_device *d, void *queue, gs_error *error);
    /* That [memory, + bytes) can be used, as far as the API can tell. */
    gs_status (*check)(gs_device *d, gs_device_ptr memory, size_t bytes, const char *what,
                       gs_error *error);
    gs_status (*launch)(gs_device *d, const gsi_launch *launch, void *queue, gs_error *error);
} gsi_device_backend;

extern const gsi_device_backend gsi_device_host, gsi_device_cuda, gsi_device_opencl;

struct gs_device {
    const gsi_device_backend *backend;
    gs_device_info info;
    gsi_heap heap; /* memory of the host */
    void *own;     /* the backend's */
    bool offsets;  /* tables hold offsets from a base; else addresses */
};

struct gs_device_plan {
    gs_device *device;
    gs_optim_config optim;
    double lr; /* the base of the schedule */
    bool lr_set;
    size_t n;
    uint32_t chunks, ranks;
    gs_device_ptr arguments[GSD_ARG_COUNT];
    gs_device_ptr *slots; /* [n][2] */
    gsd_settings settings;
    gsd_report *arrived; /* [GSD_REPORTS], pinned */
    uint64_t polled;     /* reports */
    void *queue;         /* the last that was used */
};

/* Memory of the host, cleared; NULL: there is none. gsi_free(&d->heap, ...) */
void *gsi_device_new(gs_device *d, size_t bytes);

/* ---- embedded by the build ---- */

extern const char gsi_device_source[]; /* the kernels as one text */
extern const char gsi_device_ptx[];    /* "": there was no nvcc */

/* ---- library.c: functions of a library that is opened when needed ---- */

typedef struct gsi_symbol {
    const char *name;
    void *to; /* the address of a pointer to a function */
} gsi_symbol;

/* It stays open: drivers do not survive being closed. NULL: error says what is missing. */
void *gsi_library_open(const char *name, const gsi_symbol *symbols, size_t n, gs_error *error);

/* ---- cache.c ---- */

/* FNV-1a. */
uint64_t gsi_cache_hash(const void *data, size_t bytes);
/* Compiled kernels by key: the caller's folder, a file each. A file that is damaged or of another
 * key is none. load: of d's heap, with a 0 behind; NULL: there is none. store fails silently. */
char *gsi_cache_load(gs_device *d, const char *folder, const char *key, size_t *bytes);
void gsi_cache_store(const char *folder, const char *key, const void *data, size_t bytes);

#endif
