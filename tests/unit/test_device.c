/* The kernels as loops against libgradscale: equal bits, and every preset. */
#include "device_rig.h"

static gs_device *open_host(void)
{
    gs_device *device = NULL;
    const gs_device_config config = {.size = sizeof config, .kind = GS_DEVICE_HOST};
    CHECK(gs_device_create(&device, &config, NULL) == GS_OK);
    return device;
}

static void test_equal_bits(void)
{
    gs_device *device = open_host();
    for (int k = 0; k < DEVICE_CASES; k++) {
        device_case c = device_cases[k];
        c.steps = 60;
        c.every = 7;
        c.most = 70000;
        device_compare(device, &c);
    }
    gs_device_free(device);
}

/* 1,000 steps with storms of Inf and NaN, for every preset. */
static void test_presets(void)
{
    gs_device *device = open_host();
    const char *name;
    for (size_t i = 0; (name = gs_preset_name(i)); i++) {
        device_case c = device_cases[i % DEVICE_CASES];
        c.scaler = name;
        c.rules = NULL;
        c.steps = 1000;
        c.every = 250;
        c.most = 40;
        c.seed = 100 + i;
        device_compare(device, &c);
    }
    gs_device_free(device);
}

/* A list of ten thousand: more chunks than a group has. */
static void test_many_small(void)
{
    gs_device *device = open_host();
    for (int k = 0; k < DEVICE_CASES; k += 5) {
        device_case c = device_cases[k];
        c.steps = 12;
        c.every = 4;
        c.most = 600;
        c.small = 10000;
        device_compare(device, &c);
    }
    gs_device_free(device);
}

TESTS({"equal_bits", test_equal_bits}, {"presets", test_presets}, {"many_small", test_many_small})
