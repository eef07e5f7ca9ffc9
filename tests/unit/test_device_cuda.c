/* CUDA without a GPU: nvcc's PTX, executed by the interpreter of tests/ptx behind a stand-in for
 * libcuda.so.1, against libgradscale. */
#include "device_corners.h"
#include "device_norms.h"
#include "device_rig.h"
#include "memory.h"

#include <dlfcn.h>
#include <unistd.h>

static struct {
    void *library;
    char path[512];
    void (*fail)(long n);
    long (*left)(void);
    int (*gave)(void);
    void (*end)(void);
    void (*driver)(int version);
    const char *(*why)(void);
    size_t (*allocations)(void);
    int (*stack)(void);
    void (*counts)(long *launches, long *waits);
    long (*pending)(void);
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
                 {"fake_cuda_gave", &fake.gave},
                 {"fake_cuda_end", &fake.end},
                 {"fake_cuda_driver", &fake.driver},
                 {"fake_cuda_why", &fake.why},
                 {"fake_cuda_allocations", &fake.allocations},
                 {"fake_cuda_stack", &fake.stack},
                 {"fake_cuda_counts", &fake.counts},
                 {"fake_cuda_pending", &fake.pending},
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

static int sanitized(void) { return getenv("SAN") && *getenv("SAN"); } /* five times as slow */

/* 50 steps of every case on the oldest and the newest architecture. Interpretation is slow: one
 * case has about 10,000 elements, GS_LONG=1 gives 20,000 to all. */
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
            c.steps = sanitized() ? 20 : 50;
            c.every = 10;
            c.most = test_long() ? 6000 : k == 0 ? 3000 : 600;
            device_compare(device, &c);
        }
        gs_device_free(device);
        free(ptx);
    }
    CHECK(fake.allocations() == 0 && fake.stack() == 0);
}

static void test_norms(void)
{
    SET_UP;
    gs_error error = {0};
    gs_device *device = open_device(NULL, &error);
    CHECK_MSG(device, "%s", error.text);
    if (device)
        device_norms(device);
    gs_device_free(device);
}

static void test_corners(void)
{
    SET_UP;
    gs_error error = {0};
    gs_device *device = open_device(NULL, &error);
    CHECK_MSG(device, "%s", error.text);
    if (device)
        device_corners(device);
    gs_device_free(device);
}

/* ---- graphs ---- */

static gs_status launch_graph(device_rig *r, gs_error *error)
{
    (void)error;
    return fake.launch(r->user, NULL) == 0 ? GS_OK : GS_EIO;
}

/* A step captured once is every step. */
static void test_graph(void)
{
    SET_UP;
    static const int which[] = {0, 5}; /* three launches; four */
    gs_error error = {0};
    gs_device *device = open_device(NULL, &error);
    CHECK_MSG(device, "%s", error.text);
    for (int k = 0; device && k < 2; k++) {
        device_case c = device_cases[which[k]];
        device_rig r;
        void *stream = NULL;
        c.most = 100;
        CHECK(device_rig_open(&r, device, &c));
        CHECK(fake.stream_create(&stream, 1) == 0 && fake.begin_capture(stream, 0) == 0);
        CHECK_MSG(gs_device_step(r.plan, stream, &error) == GS_OK, "%s", error.text);
        CHECK(gs_device_wait(device, stream, &error) != GS_OK); /* would wait for ever: refused */
        CHECK(fake.end_capture(stream, &r.user) == 0 && fake.instantiate(&r.user, r.user, 0) == 0);
        r.run = launch_graph;
        for (int i = 0; i < 20 && !test_failures; i++)
            rig_step_both(&r, &c, i);
        rig_compare_all(&r, 19, &c);
        fake.destroy(r.user);
        device_rig_close(&r);
    }
    gs_device_free(device);
}

/* ---- launches ---- */

/* Three launches a step and no wait, whatever the number of tensors; LAMB has four. */
static void test_launches(void)
{
    SET_UP;
    gs_error error = {0};
    gs_device *device = open_device(NULL, &error);
    CHECK_MSG(device, "%s", error.text);
    for (int k = 0; device && k < DEVICE_CASES; k++)
        for (size_t small = 0; small <= 200; small += 200) {
            device_case c = device_cases[k];
            device_rig r;
            long launches = 0, waits = 0;
            c.most = 40;
            c.small = small;
            CHECK(device_rig_open(&r, device, &c));
            rig_gradients(&r, 1024, 0);
            rig_write(&r, RIG_GRAD);
            fake.counts(&launches, &waits);
            CHECK_MSG(gs_device_step(r.plan, NULL, &error) == GS_OK, "%s", error.text);
            fake.counts(&launches, &waits);
            CHECK_MSG(launches == (strcmp(c.optim, "lamb") == 0 ? 4 : 3) && waits == 0,
                      "%s with %zu tensors: %ld launches, %ld waits", c.optim, r.n, launches,
                      waits);
            device_rig_close(&r);
        }
    gs_device_free(device);
}

/* What waits has waited: another stream may go on, and the caller's memory may go. */
static void test_waits(void)
{
    SET_UP;
    gs_error error = {0};
    gs_device *device = open_device(NULL, &error);
    CHECK_MSG(device, "%s", error.text);
    device_case c = device_cases[0];
    device_rig r;
    gs_scaler scaler;
    gs_optim_state state;
    c.most = 40;
    CHECK(device && device_rig_open(&r, device, &c));
    CHECK(fake.pending() == 0);
    rig_write(&r, RIG_GRAD);
    CHECK(fake.pending() == 0);
    CHECK(gs_device_step(r.plan, NULL, NULL) == GS_OK && fake.pending() > 0);
    CHECK(gs_device_save(&scaler, &state, r.plan, NULL, NULL) == GS_OK && fake.pending() == 0);
    CHECK(gs_device_load(r.plan, &scaler, &state, NULL, NULL) == GS_OK && fake.pending() == 0);
    device_rig_close(&r);
    gs_device_free(device);
}

/* The host need not have the memory that a plan takes on its device. */
static void test_host_memory(void)
{
    SET_UP;
    enum { COUNT = 4 << 20 }; /* 16 MB each: data, gradient, m, v */
    books b = {0};
    gs_error error = {0};
    gs_device *device = NULL;
    gs_device_plan *plan = NULL;
    gs_device_ptr data = {0}, grad = {0};
    gs_scaler scaler;
    static float m[COUNT];
    const gs_device_config config = {.size = sizeof config,
                                     .kind = GS_DEVICE_CUDA,
                                     .library = fake.path,
                                     .alloc = books_hook(&b)};
    const gs_optim_config optim = rig_optim(&device_cases[0]);
    CHECK(gs_scaler_init(&scaler, NULL, NULL) == GS_OK);
    CHECK_MSG(gs_device_create(&device, &config, &error) == GS_OK, "%s", error.text);
    CHECK(gs_device_alloc(&data, device, COUNT * 4, NULL) == GS_OK &&
          gs_device_alloc(&grad, device, COUNT * 4, NULL) == GS_OK);
    const gs_device_weight w = {.count = COUNT, .data = data, .grad = grad};
    const gs_device_plan_config settings = {
        .size = sizeof settings, .optim = &optim, .scaler = &scaler, .steps = 10};
    b.most = 0;
    CHECK_MSG(gs_device_plan_create(&plan, device, &w, 1, &settings, &error) == GS_OK, "%s",
              error.text);
    CHECK_MSG(b.most < 1 << 20, "%zu bytes of the host", b.most);
    for (int s = GS_SLOT_M; s <= GS_SLOT_V; s++) {
        CHECK(gs_device_read(m, device, gs_device_plan_slot(plan, 0, (gs_slot)s), sizeof m, NULL,
                             NULL) == GS_OK);
        size_t zeros = 0;
        for (size_t i = 0; i < COUNT; i++)
            zeros += m[i] == 0;
        CHECK_MSG(zeros == COUNT, "%zu of %d are 0", zeros, (int)COUNT);
    }
    gs_device_plan_free(plan);
    gs_device_release(device, data);
    gs_device_release(device, grad);
    gs_device_free(device);
}

/* ---- traffic ---- */

static void add_traffic(uint64_t *read, uint64_t *written, gs_device_ptr p)
{
    uint64_t r = 0, w = 0;
    fake.traffic(p.offset, &r, &w);
    *read = r;
    *written = w;
}

static uint64_t bytes_of(const device_rig *r, int k)
{
    uint64_t sum = 0;
    for (size_t t = 0; t < r->n; t++) {
        const gs_weight *w = &r->weights[t];
        const gs_dtype type = k == RIG_DATA   ? w->dtype
                              : k == RIG_COPY ? w->copy_dtype
                                              : r->grads[t].dtype;
        if (k != RIG_COPY || w->copy)
            sum += w->cols * rig_size(type);
    }
    return sum;
}

/* The scan reads each gradient once; act reads and writes each array once. */
static void test_traffic(void)
{
    SET_UP;
    gs_error error = {0};
    gs_device *device = open_device(NULL, &error);
    CHECK_MSG(device, "%s", error.text);
    for (int k = 0; device && k < 2; k++) {
        device_case c = device_cases[0];
        device_rig r;
        uint64_t read, written;
        c.most = 5000;
        c.unscale = k ? GS_UNSCALE_IN_PLACE : GS_UNSCALE_FUSED;
        CHECK(device_rig_open(&r, device, &c));
        rig_gradients(&r, 65536, 0);
        rig_write(&r, RIG_GRAD);
        const uint64_t grads = bytes_of(&r, RIG_GRAD), data = bytes_of(&r, RIG_DATA);
        CHECK(gs_device_scan(r.plan, NULL, NULL) == GS_OK);
        add_traffic(&read, &written, r.arrays[RIG_GRAD].device);
        CHECK_MSG((double)read <= 1.02 * (double)grads, "scan reads %.3f of the gradients",
                  (double)read / (double)grads);
        CHECK(written == (k ? grads : 0));
        CHECK(gs_device_decide(r.plan, NULL, NULL) == GS_OK &&
              gs_device_act(r.plan, NULL, NULL) == GS_OK);
        add_traffic(&read, &written, r.arrays[RIG_GRAD].device);
        CHECK(read == grads && written == 0);
        add_traffic(&read, &written, r.arrays[RIG_DATA].device);
        CHECK(read == data && written == data);
        add_traffic(&read, &written, r.arrays[RIG_COPY].device);
        CHECK(read == 0 && written == bytes_of(&r, RIG_COPY));
        for (int s = GS_SLOT_M; s <= GS_SLOT_V; s++) {
            add_traffic(&read, &written, gs_device_plan_slot(r.plan, 0, (gs_slot)s));
            CHECK(read == data && written == data); /* all are f32 */
        }
        device_rig_close(&r);
    }
    gs_device_free(device);
}

/* LAMB's second launch reads weights and moments again, and no gradient. */
static void test_traffic_lamb(void)
{
    SET_UP;
    gs_error error = {0};
    gs_device *device = open_device(NULL, &error);
    CHECK_MSG(device, "%s", error.text);
    device_case c = device_cases[5];
    device_rig r;
    uint64_t read, written;
    c.most = 5000;
    CHECK(device && device_rig_open(&r, device, &c));
    rig_gradients(&r, 65536, 0);
    rig_write(&r, RIG_GRAD);
    CHECK(gs_device_step(r.plan, NULL, NULL) == GS_OK);
    const uint64_t grads = bytes_of(&r, RIG_GRAD), data = bytes_of(&r, RIG_DATA);
    add_traffic(&read, &written, r.arrays[RIG_GRAD].device);
    CHECK(read == 2 * grads && written == 0); /* scan, moments */
    add_traffic(&read, &written, r.arrays[RIG_DATA].device);
    CHECK(read == 2 * data && written == data);
    for (int s = GS_SLOT_M; s <= GS_SLOT_V; s++) {
        add_traffic(&read, &written, gs_device_plan_slot(r.plan, 0, (gs_slot)s));
        CHECK(read <= 2 * data && written == data); /* m is not needed where v is 0 */
    }
    device_rig_close(&r);
    gs_device_free(device);
}

/* ---- what must not pass ---- */

static void expect_refused(const char *ptx, const char *from, const char *to, const char *said)
{
    gs_error error = {0};
    const char *at = strstr(ptx, from);
    CHECK_MSG(at, "there is no %s", from);
    if (!at)
        return;
    char *changed = calloc(1, strlen(ptx) + strlen(to) + 1);
    memcpy(changed, ptx, (size_t)(at - ptx));
    strcat(changed, to);
    strcat(changed, at + strlen(from));
    gs_device *device = open_device(changed, &error);
    CHECK_MSG(!device && strstr(fake.why(), said), "%s for %s: %s", to, from, fake.why());
    gs_device_free(device);
    free(changed);
}

/* What a compiler would do with other flags. */
static void test_inexact(void)
{
    SET_UP;
    char *ptx = read_ptx("75");
    expect_refused(ptx, "mul.rn.f32", "mul.f32", "contracted");
    expect_refused(ptx, "mul.rn.f32", "mul.rn.ftz.f32", "exactly");
    expect_refused(ptx, "div.rn.f32", "div.approx.f32", "exactly");
    expect_refused(ptx, "sqrt.rn.f32", "sqrt.approx.ftz.f32", "exactly");
    expect_refused(ptx, "add.rn.f64", "fma.rn.f64", "fma");
    free(ptx);
}

/* Without any one of its barriers the scan has a race, and the interpreter sees it; but for the
 * last, before and after which one thread has the sum. */
static void test_barriers(void)
{
    SET_UP;
    char *ptx = read_ptx("75"), *end = ptx ? strstr(ptx, ".entry gsd_fold") : NULL;
    int removed = 0, caught = 0;
    CHECK(end);
    for (char *at = ptx ? strstr(ptx, "bar.sync") : NULL; at && at < end;
         at = strstr(at + 1, "bar.sync")) {
        gs_error error = {0};
        char kept[9];
        memcpy(kept, at, 8);
        memcpy(at, "//      ", 8);
        gs_device *device = open_device(ptx, &error);
        device_case c = device_cases[0];
        device_rig r;
        c.most = 5000; /* two slices */
        CHECK(device && device_rig_open(&r, device, &c));
        rig_gradients(&r, 65536, 3);
        rig_write(&r, RIG_GRAD);
        const gs_status status = gs_device_scan(r.plan, NULL, &error);
        caught += status == GS_EIO && strstr(fake.why(), "race");
        device_rig_close(&r);
        gs_device_free(device);
        memcpy(at, kept, 8);
        removed++;
    }
    CHECK_MSG(removed >= 6 && caught == removed - 1, "%d of %d barriers", caught, removed);
    free(ptx);
}

/* ---- errors ---- */

/* Everything once, with the n-th call of the driver failing. at_end: when all is freed. */
static int reached, at_end;
static gs_alloc hook;
static void note_end(void) { at_end = fake.left() > 0; }

static gs_status all_calls(gs_error *error)
{
    const gs_device_config config = {
        .size = sizeof config, .kind = GS_DEVICE_CUDA, .library = fake.path, .alloc = hook};
    const gs_status status = rig_every_call(&config, &device_cases[0], note_end, error);
    reached = fake.left() == 0;
    return status;
}

static void test_driver_fails(void)
{
    SET_UP;
    gs_error error = {0};
    CHECK_MSG(all_calls(&error) == GS_OK, "%s", error.text);
    long n = 1, gave = 0;
    for (;; n++) {
        error = (gs_error){0};
        fake.fail(n);
        const gs_status status = all_calls(&error);
        if (!reached)
            break;
        /* what cannot be given back goes with its context; everything else goes on */
        gave += fake.gave();
        CHECK_MSG(fake.gave() || at_end ? status == GS_OK : status != GS_OK && error.text[0],
                  "call %ld failed without a message", n);
        CHECK_MSG(at_end || fake.allocations() == 0, "call %ld: memory is lost", n);
        fake.end();
        CHECK_MSG(fake.stack() == 0, "call %ld: the caller's context is not what it was", n);
        CHECK_MSG(status == GS_OK || status == error.status, "call %ld", n);
    }
    CHECK_MSG(n > 100 && gave > 40, "only %ld calls, %ld of which give back", n, gave);
    fake.fail(0);
}

/* Every allocation of the host fails once. */
static void test_out_of_memory(void)
{
    SET_UP;
    books b = {0};
    gs_error error = {0};
    hook = books_hook(&b);
    CHECK_MSG(all_calls(&error) == GS_OK && b.blocks == 0 && !b.wrong, "%s", error.text);
    const size_t calls = b.calls;
    for (size_t n = 1; n <= calls; n++) {
        b = (books){.fail_at = n};
        error = (gs_error){0};
        CHECK_MSG(all_calls(&error) == GS_ENOMEM && error.status == GS_ENOMEM, "allocation %zu: %s",
                  n, error.text);
        CHECK_MSG(b.blocks == 0 && !b.wrong && fake.allocations() == 0, "allocation %zu", n);
    }
    CHECK_MSG(calls > 10, "only %zu allocations", calls);
    hook = (gs_alloc){0};
}

static void test_bad_input(void)
{
    SET_UP;
    static float host[64];
    gs_error error = {0};
    gs_device *device = NULL;
    gs_device_plan *plan = NULL;
    gs_device_config config = {.size = sizeof config, .kind = GS_DEVICE_CUDA, .library = fake.path};
    fake.driver(9020);
    CHECK(gs_device_create(&device, &config, &error) == GS_EVERSION &&
          strstr(error.text, "CUDA 9.2"));
    fake.driver(12040);
    config.index = 7;
    CHECK(gs_device_create(&device, &config, &error) == GS_ERANGE &&
          strstr(error.text, "no CUDA device 7"));
    config.index = 0;
    config.context = host;
    CHECK(gs_device_create(&device, &config, &error) == GS_EIO && strstr(error.text, "not valid"));
    config.context = NULL;
    config.library = "libno_such_thing.so.1";
    CHECK(gs_device_create(&device, &config, &error) == GS_EIO &&
          strstr(error.text, "libno_such_thing"));
    config.library = "libm.so.6";
    CHECK(gs_device_create(&device, &config, &error) == GS_EVERSION &&
          strstr(error.text, "too old"));
    CHECK(device == NULL);
    config.library = fake.path;
    CHECK(gs_device_create(&device, &config, &error) == GS_OK);
    gs_scaler scaler;
    gs_scaler_init(&scaler, NULL, NULL);
    const gs_optim_config optim = rig_optim(&device_cases[0]);
    const gs_device_plan_config settings = {
        .size = sizeof settings, .optim = &optim, .scaler = &scaler, .steps = 10};
    gs_device_ptr memory;
    const size_t before = fake.allocations();
    CHECK(gs_device_alloc(&memory, device, 64, NULL) == GS_OK);
    gs_device_weight w = {
        .name = "fc", .count = 8, .data = {NULL, (uintptr_t)host}, .grad = memory};
    CHECK(gs_device_plan_create(&plan, device, &w, 1, &settings, &error) == GS_ENULL &&
          strstr(error.text, "the data of weight fc is not device memory"));
    w.data = memory;
    w.grad.offset += 32;
    w.count = 9; /* overlaps, and ends behind the memory */
    CHECK(gs_device_plan_create(&plan, device, &w, 1, &settings, &error) == GS_ESIZE);
    w.count = 8;
    CHECK(gs_device_plan_create(&plan, device, &w, 1, &settings, &error) == GS_OK);
    gs_device_plan_free(plan);
    gs_device_plan_config large = settings;
    large.steps = 100000000; /* 2.4 GB of 1 */
    CHECK(gs_device_plan_create(&plan, device, &w, 1, &large, &error) == GS_ENOMEM && !plan);
    CHECK(fake.allocations() == before + 1);
    gs_device_release(device, memory);
    gs_device_free(device);
}

/* ---- NVRTC and the cache ---- */

static void test_nvrtc(void)
{
    SET_UP;
    char folder[] = "/tmp/gradscale-test-XXXXXX", path[512];
    gs_error error = {0};
    gs_device *device = NULL;
    gs_device_config config = {.size = sizeof config,
                               .kind = GS_DEVICE_CUDA,
                               .library = fake.path,
                               .rtc = "libnvrtc.so.13",
                               .cache = mkdtemp(folder)};
    void *rtc = dlopen(config.rtc, RTLD_NOW);
    if (!rtc)
        config.rtc = "/usr/local/cuda/lib64/libnvrtc.so.13";
    if (!rtc && !(rtc = dlopen(config.rtc, RTLD_NOW))) {
        rmdir(folder);
        SKIP("there is no NVRTC");
    }
    if (sanitized()) {
        rmdir(folder);
        SKIP("NVRTC is not for sanitizers");
    }
    static const char *const from[] = {"NVRTC", "cache", "NVRTC", "cache"};
    for (int i = 0; i < 4; i++) { /* made; kept; damaged and made again; kept */
        CHECK_MSG(gs_device_create(&device, &config, &error) == GS_OK, "%s", error.text);
        if (!device)
            break;
        CHECK_MSG(strcmp(gs_device_get_info(device).kernels, from[i]) == 0, "%d: %s", i,
                  gs_device_get_info(device).kernels);
        device_case c = device_cases[0];
        c.most = 100;
        c.steps = 10;
        c.every = 5;
        if (i < 2)
            device_compare(device, &c);
        gs_device_free(device);
        device = NULL;
        rig_cached(path, sizeof path, folder);
        FILE *f = i == 1 ? fopen(path, "r+b") : NULL;
        if (f) {
            fseek(f, 5000, SEEK_SET);
            fputc('#', f);
            fclose(f);
        }
    }
    remove(path);
    CHECK(rmdir(folder) == 0); /* nothing else was left there */
}

TESTS({"equal_bits", test_equal_bits}, {"norms", test_norms}, {"corners", test_corners},
      {"graph", test_graph}, {"launches", test_launches}, {"waits", test_waits},
      {"host_memory", test_host_memory}, {"traffic", test_traffic},
      {"traffic_lamb", test_traffic_lamb}, {"barriers", test_barriers},
      {"driver_fails", test_driver_fails}, {"out_of_memory", test_out_of_memory},
      {"bad_input", test_bad_input}, {"nvrtc", test_nvrtc}, {"inexact", test_inexact})
