/* The kernels on every OpenCL device there is (PoCL, on a machine without a GPU) against
 * libgradscale. */
#include "device_corners.h"
#include "device_norms.h"
#include "device_rig.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

static gs_device *device; /* compiled once: that is slow */

static gs_status open_device(gs_device **out, const char *cache, const char *code, gs_error *error)
{
    const gs_device_config config = {
        .size = sizeof config, .kind = GS_DEVICE_OPENCL, .cache = cache, .code = code};
    return gs_device_create(out, &config, error);
}

static int is_there(void)
{
    if (getenv("SAN") && *getenv("SAN")) /* PoCL's compiler is not for sanitizers */
        return 0;
    gs_device_info info;
    size_t n = 0;
    const gs_device_config config = {.size = sizeof config, .kind = GS_DEVICE_OPENCL};
    return gs_device_list(&info, 1, &n, &config, NULL) == GS_OK && n > 0;
}

static void test_equal_bits(void)
{
    gs_error error = {0};
    if (!is_there())
        SKIP("there is no OpenCL device");
    CHECK_MSG(open_device(&device, NULL, NULL, &error) == GS_OK, "%s", error.text);
    for (int k = 0; device && k < DEVICE_CASES; k++) {
        device_case c = device_cases[k];
        c.steps = test_long() ? 1000 : 24;
        c.every = test_long() ? 20 : 4;
        c.most = 70000;
        if (!test_long())
            c.most = k % 3 == 0 ? 70000 : 5000;
        device_compare(device, &c);
    }
}

static void test_presets(void)
{
    if (!device)
        SKIP("there is no OpenCL device");
    device_presets(device, test_long() ? 40 : 8, 200);
}

static void test_norms(void)
{
    if (!device)
        SKIP("there is no OpenCL device");
    device_norms(device);
}

static void test_corners(void)
{
    if (!device)
        SKIP("there is no OpenCL device");
    device_corners(device);
}

static void rewrite(const char *path, long at, size_t kept)
{
    static char data[64 << 20];
    FILE *f = fopen(path, "rb");
    CHECK(f);
    size_t n = f ? fread(data, 1, sizeof data, f) : 0;
    if (f)
        fclose(f);
    CHECK((size_t)at < n && kept <= n);
    data[at] ^= 0x40;
    f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, kept ? kept : n, f) > 0);
    if (f)
        fclose(f);
}

/* That kernels from the disk compute. */
static void check_cast(gs_device *own)
{
    device_case c = device_cases[0];
    device_rig r;
    c.most = 100;
    CHECK(device_rig_open(&r, own, &c));
    for (size_t t = 0; t < r.n; t++)
        for (size_t i = 0; r.weights[t].copy && i < r.weights[t].cols; i++)
            rig_put(r.weights[t].copy, r.weights[t].copy_dtype, i, ((float *)r.weights[t].data)[i]);
    CHECK(gs_device_cast(r.plan, NULL, NULL) == GS_OK);
    rig_compare_arrays(&r, 0, &c);
    device_rig_close(&r);
}

/* Kernels that do nothing are compiled at once. */
#define X(name) "__kernel void gsd_" #name "(void) {}\n"
static const char empty_kernels[] = GSD_KERNELS(X);
#undef X

static struct {
    int32_t (*platforms)(uint32_t, void **, uint32_t *);
    int32_t (*devices)(void *, uint64_t, uint32_t, void **, uint32_t *);
    void *(*context)(const intptr_t *, uint32_t, void **, void *, void *, int32_t *);
    void *(*queue)(void *, void *, uint64_t, int32_t *);
    int32_t (*release_context)(void *), (*release_queue)(void *);
} cl;

static int open_cl(void)
{
    const struct {
        const char *name;
        void *to;
    } calls[] = {
        {"clGetPlatformIDs", &cl.platforms},       {"clGetDeviceIDs", &cl.devices},
        {"clCreateContext", &cl.context},          {"clCreateCommandQueue", &cl.queue},
        {"clReleaseContext", &cl.release_context}, {"clReleaseCommandQueue", &cl.release_queue}};
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    for (size_t i = 0; library && i < sizeof calls / sizeof calls[0]; i++) {
        void *call = dlsym(library, calls[i].name);
        memcpy(calls[i].to, &call, sizeof call);
    }
    return library != NULL;
}

/* Launches of a step depend on each other: a queue that may reorder them is refused, and one of
 * another context. */
static void test_queues(void)
{
    void *platform = NULL, *id = NULL, *contexts[2] = {0}, *queues[3];
    int32_t code = 0;
    gs_error error = {0};
    if (!device)
        SKIP("there is no OpenCL device");
    CHECK(open_cl() && cl.platforms(1, &platform, NULL) == 0 &&
          cl.devices(platform, 0xFFFFFFFF, 1, &id, NULL) == 0);
    for (int i = 0; i < 2; i++)
        CHECK((contexts[i] = cl.context(NULL, 1, &id, NULL, NULL, &code)) && code == 0);
    queues[0] = cl.queue(contexts[0], id, 0, &code);
    queues[1] = cl.queue(contexts[0], id, 1, &code); /* out of order */
    if (code != 0)
        SKIP("the device has no queues that are out of order");
    queues[2] = cl.queue(contexts[1], id, 0, &code);
    const gs_device_config config = {.size = sizeof config,
                                     .kind = GS_DEVICE_OPENCL,
                                     .context = contexts[0],
                                     .device = id,
                                     .code = empty_kernels};
    gs_device *own = NULL;
    gs_device_ptr memory = {0};
    gs_device_plan *plan = NULL;
    gs_scaler scaler;
    const gs_optim_config optim = rig_optim(&device_cases[0]);
    CHECK_MSG(gs_device_create(&own, &config, &error) == GS_OK, "%s", error.text);
    CHECK(own && gs_device_alloc(&memory, own, 64, NULL) == GS_OK);
    CHECK(gs_scaler_init(&scaler, NULL, NULL) == GS_OK);
    const gs_device_weight w = {.count = 8, .data = memory, .grad = {memory.base, 32}};
    const gs_device_plan_config settings = {
        .size = sizeof settings, .optim = &optim, .scaler = &scaler, .steps = 10};
    CHECK_MSG(gs_device_plan_create(&plan, own, &w, 1, &settings, &error) == GS_OK, "%s",
              error.text);
    CHECK(gs_device_step(plan, queues[0], &error) == GS_EIO); /* they take no arguments */
    CHECK_MSG(gs_device_step(plan, queues[1], &error) == GS_ESTATE &&
                  strstr(error.text, "out of order"),
              "%s", error.text);
    CHECK_MSG(gs_device_step(plan, queues[2], &error) == GS_ESTATE &&
                  strstr(error.text, "another context"),
              "%s", error.text);
    CHECK(gs_device_cast(plan, queues[1], &error) == GS_ESTATE);
    gs_device_plan_free(plan);
    gs_device_release(own, memory);
    gs_device_free(own);
    for (int i = 0; i < 3; i++)
        cl.release_queue(queues[i]);
    cl.release_context(contexts[0]);
    cl.release_context(contexts[1]);
}

/* Made; kept; and made again when the file is damaged, in its header, in its data, or cut, or when
 * others may write it. PoCL
 * needs 20 s to give a binary of our kernels away: without GS_LONG=1 they are empty. */
static void test_cache(void)
{
    const char *code = test_long() ? NULL : empty_kernels;
    char folder[] = "/tmp/gradscale-test-XXXXXX", path[512] = "";
    static const char *const from[] = {"clBuildProgram", "cache",          "clBuildProgram",
                                       "clBuildProgram", "clBuildProgram", "clBuildProgram",
                                       "cache"};
    gs_error error = {0};
    if (!device)
        SKIP("there is no OpenCL device");
    CHECK(mkdtemp(folder));
    for (int i = 0; i < 7; i++) {
        gs_device *own = NULL;
        CHECK_MSG(open_device(&own, folder, code, &error) == GS_OK, "%s", error.text);
        if (!own)
            break;
        CHECK_MSG(strcmp(gs_device_get_info(own).kernels, from[i]) == 0, "%d: %s", i,
                  gs_device_get_info(own).kernels);
        if (i == 1 && !code)
            check_cast(own);
        gs_device_free(own);
        rig_cached(path, sizeof path, folder);
        if (i >= 1 && i <= 3)
            rewrite(path, i == 1 ? 20 : i == 2 ? 500 : 0, i == 3 ? 1000 : 0);
        if (i == 4)
            CHECK(chmod(path, 0622) == 0);
    }
    remove(path);
    CHECK(rmdir(folder) == 0); /* nothing else was left there */
}

static void test_many_small(void)
{
    if (!device)
        SKIP("there is no OpenCL device");
    device_many_small(device, 6, 6);
}

TESTS({"equal_bits", test_equal_bits}, {"presets", test_presets}, {"many_small", test_many_small},
      {"norms", test_norms}, {"corners", test_corners}, {"queues", test_queues},
      {"cache", test_cache})
