/* gradscale device: which devices there are, and whether they compute what libgradscale does. */
#include "cli/device/device.h"

#include "cli/core/commands.h"

#include <stdlib.h>
#include <sys/stat.h>

static const char *cache_folder(char path[4096])
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (base && base[0] == '/')
        n = snprintf(path, 4096, "%s/gradscale", base);
    else if (home && home[0] == '/')
        n = snprintf(path, 4096, "%s/.cache/gradscale", home);
    if (n < 0 || n >= 4096)
        return NULL;
    mkdir(path, 0700); /* if it cannot be made, nothing is kept */
    return path;
}

enum { MOST = 64 }; /* devices of a kind */

/* A driver is one kind's. */
static int check_choice(const device_choice *choice)
{
    return choice->library && choice->kind == DEVICE_AUTO
               ? cli_fail("--library needs --kind: cuda or opencl")
               : CLI_GO;
}

/* The first kind that has a device which can be used, the host after all others. */
static gs_device_kind kind_of(const device_choice *choice)
{
    if (choice->kind != DEVICE_AUTO)
        return (gs_device_kind)(choice->kind - 1);
    static const gs_device_kind order[] = {GS_DEVICE_CUDA, GS_DEVICE_OPENCL};
    static gs_device_info list[MOST];
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        const gs_device_config config = {.size = sizeof config, .kind = order[k]};
        size_t n = 0;
        if (gs_device_list(list, MOST, &n, &config, NULL) == GS_OK && n > 0 && list[0].has_f64)
            return order[k];
    }
    return GS_DEVICE_HOST;
}

int device_open(gs_device **out, const device_choice *choice)
{
    char path[4096];
    gs_error error = {0};
    if (check_choice(choice) != CLI_GO)
        return CLI_BAD;
    const gs_device_config config = {.size = sizeof config,
                                     .kind = kind_of(choice),
                                     .index = (unsigned)choice->index,
                                     .library = choice->library,
                                     .cache = cache_folder(path)};
    const gs_status status = gs_device_create(out, &config, &error);
    return status == GS_OK ? CLI_GO : cli_fail_input("", status, &error);
}

/* How many there are; none is said, with the reason. */
static size_t list_kind(cli_table **table, gs_device_kind kind, const char *library)
{
    static gs_device_info list[MOST];
    gs_error error = {0};
    size_t n = 0;
    const gs_device_config config = {.size = sizeof config, .kind = kind, .library = library};
    if (gs_device_list(list, MOST, &n, &config, &error) != GS_OK || n == 0) {
        const int used = printf("%s: ", gs_device_kind_name(kind));
        cli_wrap(error.text[0] ? error.text : "no device", used, used);
        return 0;
    }
    static const char *const heads[] = {"<kind",   ">index", "<name", "<driver",
                                        ">memory", "<fp64",  NULL};
    if (!*table)
        cli_table_keys(*table = cli_table_new(heads), 2);
    cli_table *const t = *table;
    for (size_t i = 0; i < n && i < MOST; i++) {
        cli_table_cell(t, "%s", gs_device_kind_name(kind));
        cli_table_cell(t, "%zu", i);
        cli_table_cell(t, "%s", list[i].name);
        cli_table_cell(t, "%s", list[i].driver);
        if (list[i].memory)
            cli_table_cell(t, "%.1f GB", (double)list[i].memory / 1e9);
        else
            cli_table_cell(t, "-");
        cli_table_cell(t, "%s", list[i].has_f64 ? "yes" : "no: cannot be used");
    }
    return n;
}

/* Of the kind, or of all. */
static int list_devices(const device_choice *choice)
{
    cli_table *t = NULL;
    size_t n = 0;
    if (check_choice(choice) != CLI_GO)
        return CLI_BAD;
    for (int k = 0; k < GS_DEVICE_KIND_COUNT; k++)
        if (choice->kind == DEVICE_AUTO || k == choice->kind - 1)
            n += list_kind(&t, (gs_device_kind)k, choice->library);
    if (t)
        cli_table_print_narrow(t, stdout);
    return n > 0 ? CLI_DONE : CLI_FAILED;
}

int cmd_device(int argc, char **argv)
{
    bool test = false;
    device_choice choice = {.kind = DEVICE_AUTO};
    const cli_option options[] = {
        {"test", NULL, "compare the device with the CPU, bit for bit", CLI_FLAG(&test)},
        DEVICE_ROWS(&choice),
        {0}};
    const cli_spec spec = {
        .name = "gradscale device",
        .about =
            "Lists the devices that libgradscale_device can use, with --kind those of that kind; "
            "the exit code is 1 if there is none. With --test it runs the kernels on one of them "
            "and on the CPU, and compares weights, moments, copies, statistics and the "
            "scaler bit for bit: run this first on a machine with a GPU, and put its output into a "
            "bug report.",
        .options = options};
    const int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    if (!test)
        return list_devices(&choice);
    gs_device *device = NULL;
    const int opened = device_open(&device, &choice);
    if (opened != CLI_GO)
        return opened;
    const int result = device_test(device);
    gs_device_free(device);
    return result;
}
