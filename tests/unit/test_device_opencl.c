/* The kernels on every OpenCL device there is (PoCL, on a machine without a GPU) against
 * libgradscale. */
#include "device_rig.h"

static gs_device *device; /* compiled once: that is slow */

static gs_status open_device(gs_device **out, const char *cache, gs_error *error)
{
    const gs_device_config config = {
        .size = sizeof config, .kind = GS_DEVICE_OPENCL, .cache = cache};
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
    CHECK_MSG(open_device(&device, NULL, &error) == GS_OK, "%s", error.text);
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
    const char *name;
    if (!device)
        SKIP("there is no OpenCL device");
    for (size_t i = 0; (name = gs_preset_name(i)); i++) {
        device_case c = device_cases[i % DEVICE_CASES];
        c.scaler = name;
        c.rules = NULL;
        c.steps = test_long() ? 1000 : 100;
        c.every = 50;
        c.most = 40;
        c.seed = 200 + i;
        device_compare(device, &c);
    }
}

TESTS({"equal_bits", test_equal_bits}, {"presets", test_presets})
