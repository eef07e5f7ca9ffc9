/* gradscale bench device: bytes per second of scan and act on a device, as a share of what its own
 * copy of device memory reaches in the same run. The best of several rounds counts. */
#include "cli/bench/bench.h"
#include "cli/core/json.h"
#include "cli/device/device.h"

#include <stdlib.h>
#include <string.h>

typedef struct device_bench {
    gs_device *device;
    gs_device_plan *plan;
    gs_device_ptr data, copy, grad;
    size_t count;
} device_bench;

typedef gs_status timed_fn(device_bench *b, gs_error *error);

static gs_status run_copy(device_bench *b, gs_error *error)
{
    const gs_device_ptr half = {b->data.base, b->data.offset + b->count / 2 * 4};
    return gs_device_copy(b->device, half, b->data, b->count / 2 * 4, NULL, error);
}
static gs_status run_scan(device_bench *b, gs_error *error)
{
    return gs_device_scan(b->plan, NULL, error);
}
static gs_status run_decide(device_bench *b, gs_error *error)
{
    return gs_device_decide(b->plan, NULL, error);
}
static gs_status run_act(device_bench *b, gs_error *error)
{
    return gs_device_act(b->plan, NULL, error);
}

/* The device may have more memory than the host: a piece at a time. */
static gs_status fill(device_bench *b, gs_device_ptr to, size_t bytes, gs_error *error)
{
    static uint16_t piece[1 << 17];
    gs_status status = GS_OK;
    for (size_t i = 0; i < sizeof piece / sizeof piece[0]; i++)
        piece[i] = (uint16_t)(0x3800 + i % 512);
    for (size_t at = 0; at < bytes && status == GS_OK; at += sizeof piece) {
        const size_t n = bytes - at < sizeof piece ? bytes - at : sizeof piece;
        status = gs_device_write(b->device, (gs_device_ptr){to.base, to.offset + at}, piece, n,
                                 NULL, error);
    }
    return status;
}

static gs_status make(device_bench *b, uint64_t steps, gs_error *error)
{
    gs_optim_config optim = {.size = sizeof optim};
    gs_scaler scaler;
    gs_status status = gs_device_alloc(&b->data, b->device, b->count * 4, error);
    if (status == GS_OK)
        status = gs_device_alloc(&b->copy, b->device, b->count * 2, error);
    if (status == GS_OK)
        status = gs_device_alloc(&b->grad, b->device, b->count * 2, error);
    if (status == GS_OK)
        status = fill(b, b->data, b->count * 4, error);
    if (status == GS_OK)
        status = fill(b, b->grad, b->count * 2, error);
    if (status == GS_OK)
        status = gs_scaler_init(&scaler, "static:1024", error);
    if (status == GS_OK)
        status = gs_optim_config_init(&optim, "adamw", error);
    const gs_device_weight w = {.count = b->count,
                                .data = b->data,
                                .copy = b->copy,
                                .copy_dtype = GS_F16,
                                .grad = b->grad,
                                .grad_dtype = GS_F16};
    const gs_device_plan_config config = {
        .size = sizeof config, .optim = &optim, .scaler = &scaler, .steps = steps};
    return status == GS_OK ? gs_device_plan_create(&b->plan, b->device, &w, 1, &config, error)
                           : status;
}

/* Seconds of one run, the best of `rounds`. */
static gs_status measure(device_bench *b, timed_fn *run, uint64_t rounds, double *best,
                         gs_error *error)
{
    gs_status status = GS_OK;
    *best = 0;
    for (uint64_t i = 0; i <= rounds && status == GS_OK; i++) { /* the first is not counted */
        const double start = gs_clock();
        status = run(b, error);
        if (status == GS_OK)
            status = gs_device_wait(b->device, NULL, error);
        const double took = gs_clock() - start;
        if (i > 0 && (*best == 0 || took < *best))
            *best = took;
    }
    return status;
}

/* In their order; the first is what the others are compared with. */
static const struct {
    const char *name;
    timed_fn *run;
    double bytes; /* per weight, read and written; 0: what it touches does not grow with them */
} passes[] = {
    {"copy", run_copy, 4}, {"scan", run_scan, 2}, {"decide", run_decide, 0}, {"act", run_act, 28}};
enum { PASSES = sizeof passes / sizeof passes[0] };

static double speed_of(const device_bench *b, int i, const double *seconds) /* GB/s */
{
    return passes[i].bytes * (double)b->count / seconds[i] / 1e9;
}

static void print_table(const device_bench *b, const double *seconds)
{
    const gs_device_info info = gs_device_get_info(b->device);
    cli_table *t = cli_table_new((const char *const[]){"<pass", ">ms", ">GB/s", ">of copy", NULL});
    printf("%s: %s, %zu weights\n", gs_device_kind_name(info.kind), info.name, b->count);
    for (int i = 0; i < PASSES; i++) {
        const double speed = speed_of(b, i, seconds);
        cli_table_cell(t, "%s", passes[i].name);
        cli_table_cell(t, "%.3f", seconds[i] * 1e3);
        cli_table_cell(t, passes[i].bytes > 0 ? "%.2f" : "-", speed);
        cli_table_cell(t, passes[i].bytes > 0 ? "%.0f%%" : "-",
                       100 * speed / speed_of(b, 0, seconds));
    }
    cli_table_print(t, stdout);
}

static void print_json(const device_bench *b, const double *seconds, uint64_t rounds)
{
    const gs_device_info info = gs_device_get_info(b->device);
    json_writer j;
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    put_string(&j, "bench", "device");
    put_string(&j, "version", gs_version());
    put_string(&j, "kind", gs_device_kind_name(info.kind));
    put_string(&j, "device", info.name);
    put_string(&j, "driver", info.driver);
    put_string(&j, "kernels", info.kernels);
    put_double(&j, "load", cli_load());
    put_u64(&j, "weights", b->count);
    put_u64(&j, "rounds", rounds);
    put_array(&j, "passes");
    for (int i = 0; i < PASSES; i++) {
        put_object(&j, NULL);
        put_string(&j, "name", passes[i].name);
        put_u64(&j, "bytes", (uint64_t)passes[i].bytes * b->count);
        put_double(&j, "seconds", seconds[i]);
        put_double(&j, "gb_per_s", speed_of(b, i, seconds));
        put_double(&j, "of_copy", speed_of(b, i, seconds) / speed_of(b, 0, seconds));
        put_end(&j);
    }
    put_end(&j);
    put_end(&j);
}

int bench_device(int argc, char **argv)
{
    device_choice choice = {.kind = DEVICE_AUTO};
    uint64_t rounds = 10;
    size_t size = 64 << 20;
    bool json = false;
    const cli_option options[] = {
        DEVICE_ROWS(&choice),
        {"size", "BYTES", "of the f32 weights", CLI_SIZE(&size), .min = 1 << 16, .max = 0x1p+40},
        {"rounds", "N", "runs of each, of which the best counts", CLI_UNSIGNED(&rounds), .min = 1,
         .max = 1e6},
        {"json", NULL, "print JSON; its schema is in doc/json-bench.md", CLI_FLAG(&json)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale bench device",
        .about = "Measures scan and act (AdamW, f16 gradients, f16 copy) on a device, "
                 "as a share of the device's own copy.",
        .options = options};
    const int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    device_bench b = {.count = size / 4};
    gs_error error = {0};
    const int opened = device_open(&b.device, &choice);
    if (opened != CLI_GO)
        return opened;
    double seconds[PASSES];
    gs_status status = make(&b, rounds + 1, &error); /* a plan that is used up does nothing */
    for (int i = 0; i < PASSES && status == GS_OK; i++)
        status = measure(&b, passes[i].run, rounds, &seconds[i], &error);
    if (status == GS_OK && json)
        print_json(&b, seconds, rounds);
    else if (status == GS_OK)
        print_table(&b, seconds);
    gs_device_plan_free(b.plan);
    gs_device_release(b.device, b.data);
    gs_device_release(b.device, b.copy);
    gs_device_release(b.device, b.grad);
    gs_device_free(b.device);
    return status == GS_OK ? CLI_DONE : cli_fail_status(status, &error);
}
