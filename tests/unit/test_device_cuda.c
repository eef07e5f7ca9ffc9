/* CUDA without a GPU: nvcc's PTX, executed by the interpreter of tests/ptx behind a stand-in for
 * libcuda.so.1, against libgradscale. */
#include "device_rig.h"

#include <dlfcn.h>

static struct {
    void *library;
    char path[512];
    void (*fail)(long n);
    long (*left)(void);
    void (*driver)(int version);
    const char *(*why)(void);
    size_t (*allocations)(void);
    int (*stack)(void);
    void (*traffic)(unsigned long long at, uint64_t *read, uint64_t *written);
    int (*stream_create)(void **out, unsigned flags);
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*instantiate)(void **out, void *graph, unsigned long long flags);
    int (*launch)(void *graph, void *stream);
    int (*destroy)(void *graph);
} fake;

static const char *const architectures[] = {"75", "121"};

static const char *build_folder(void) { return getenv("BUILD") ? getenv("BUILD") : "build"; }

static char *read_ptx(const char *architecture)
{
    char path[512];
    snprintf(path, sizeof path, "%s/device/sm_%s.ptx", build_folder(), architecture);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char *text = calloc(1, 4 << 20);
    const size_t n = fread(text, 1, (4 << 20) - 1, f);
    fclose(f);
    CHECK(n > 0);
    return text;
}

/* False: there was no nvcc. */
static int set_up(void)
{
    const struct {
        const char *name;
        void *to;
    } calls[] = {{"fake_cuda_fail", &fake.fail},
                 {"fake_cuda_left", &fake.left},
                 {"fake_cuda_driver", &fake.driver},
                 {"fake_cuda_why", &fake.why},
                 {"fake_cuda_allocations", &fake.allocations},
                 {"fake_cuda_stack", &fake.stack},
                 {"fake_cuda_traffic", &fake.traffic},
                 {"cuStreamCreate", &fake.stream_create},
                 {"cuStreamBeginCapture_v2", &fake.begin_capture},
                 {"cuStreamEndCapture", &fake.end_capture},
                 {"cuGraphInstantiateWithFlags", &fake.instantiate},
                 {"cuGraphLaunch", &fake.launch},
                 {"cuGraphDestroy", &fake.destroy}};
    snprintf(fake.path, sizeof fake.path, "%s/tests/ptx/libcuda.so.1", build_folder());
    char *ptx = read_ptx("75");
    if (!ptx)
        return 0;
    free(ptx);
    if (fake.library)
        return 1;
    fake.library = dlopen(fake.path, RTLD_NOW | RTLD_LOCAL);
    CHECK_MSG(fake.library, "%s", dlerror());
    for (size_t i = 0; fake.library && i < sizeof calls / sizeof calls[0]; i++) {
        void *call = dlsym(fake.library, calls[i].name);
        CHECK_MSG(call, "%s", calls[i].name);
        memcpy(calls[i].to, &call, sizeof call);
    }
    return fake.library != NULL;
}
#define SET_UP     \
    if (!set_up()) \
    SKIP("there is no nvcc")

static gs_device *open_device(const char *ptx, gs_error *error)
{
    gs_device *device = NULL;
    const gs_device_config config = {
        .size = sizeof config, .kind = GS_DEVICE_CUDA, .library = fake.path, .code = ptx};
    (void)gs_device_create(&device, &config, error);
    return device;
}

/* 50 steps of every case on the oldest and the newest architecture; one of them of 20,000 elements. */
static void test_equal_bits(void)
{
    SET_UP;
    for (size_t a = 0; a < sizeof architectures / sizeof architectures[0]; a++) {
        gs_error error = {0};
        char *ptx = read_ptx(architectures[a]);
        CHECK(ptx);
        gs_device *device = open_device(ptx, &error);
        CHECK_MSG(device, "sm_%s: %s", architectures[a], error.text);
        for (int k = 0; device && k < DEVICE_CASES && !test_failures; k++) {
            device_case c = device_cases[k];
            c.steps = k == 0 && !test_long() ? 12 : 50;
            c.every = 10;
            c.most = k == 0 || test_long() ? 4000 : 300;
            device_compare(device, &c);
        }
        gs_device_free(device);
        free(ptx);
    }
    CHECK(fake.allocations() == 0 && fake.stack() == 0);
}

TESTS({"equal_bits", test_equal_bits})
