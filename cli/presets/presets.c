/* gradscale presets: the presets and their parameters. Schema: doc/json-presets.md. */
#include "cli/core/cli.h"
#include "cli/core/commands.h"
#include "cli/core/json.h"

#include "gradscale/scaler.h"

#include <math.h>
#include <string.h>

enum { VALUE = 64 };

static void print_json(const char *const *names, size_t n)
{
    json_writer j;
    char value[VALUE];
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    for (size_t i = 0; i < n; i++) {
        gs_params p;
        gs_params_preset(&p, names[i], NULL);
        put_object(&j, names[i]);
        for (size_t k = 0; gs_param_key(k); k++) {
            gs_params_get(value, sizeof value, &p, gs_param_key(k), NULL);
            put_string(&j, gs_param_key(k), value);
        }
        put_end(&j);
    }
    put_end(&j);
}

/* ---- in sentences ---- */

static const struct {
    const char *name, *about;
} abouts[] = {
    {"apex", "Apex, amp"},
    {"apex-contrib", "Apex, contrib's optimizers"},
    {"apex-fp16-utils", "Apex, FP16_Optimizer"},
    {"apex-hysteresis", "Apex, amp_C.update_scale_hysteresis"},
    {"chainer", "Chainer"},
    {"colossalai", "Colossal-AI"},
    {"composer", "MosaicML Composer"},
    {"deepspeed", "DeepSpeed"},
    {"deepspeed-0.17.0", "DeepSpeed 0.17.0"},
    {"deepspeed-fused", "DeepSpeed, FP16_Optimizer"},
    {"deepspeed-unfused", "DeepSpeed, FP16_UnfusedOptimizer"},
    {"fairscale", "FairScale"},
    {"fairseq", "fairseq"},
    {"flax", "Flax"},
    {"jmp", "JMP"},
    {"keras", "Keras 3"},
    {"megatron", "Megatron-LM"},
    {"metaseq", "metaseq"},
    {"mindspore", "MindSpore, DynamicLossScaler"},
    {"mindspore-cell", "MindSpore, DynamicLossScaleUpdateCell"},
    {"mindspore-manager", "MindSpore, DynamicLossScaleManager"},
    {"mxnet", "MXNet"},
    {"nnabla", "NNabla"},
    {"oneflow", "OneFlow"},
    {"openseq2seq", "OpenSeq2Seq"},
    {"openseq2seq-late", "OpenSeq2Seq, with its update one step late"},
    {"paddle", "PaddlePaddle, dynamic graphs"},
    {"paddle-static", "PaddlePaddle, static graphs"},
    {"pytorch", "PyTorch, GradScaler"},
    {"pytorch-fsdp-cpu", "PyTorch, ShardedGradScaler on a CPU"},
    {"pytorch-mps", "PyTorch on MPS"},
    {"tensorflow", "TensorFlow 1.15 and later"},
    {"tensorflow-1.15-cap", "TensorFlow 1.15, with its cap of 2^32"},
    {"tf-keras", "Keras in TensorFlow 2"},
    {"tf1-exponential", "TensorFlow 1, ExponentialUpdateLossScaleManager"},
};

static const char *about_of(const char *name)
{
    for (size_t i = 0; i < sizeof abouts / sizeof abouts[0]; i++)
        if (strcmp(abouts[i].name, name) == 0)
            return abouts[i].about;
    return name;
}

/* 65536 -> "2^16", 0.8 -> "0.8" */
static const char *number(char text[32], double x)
{
    int e;
    if (frexp(x, &e) == 0.5 && fabs((double)e - 1) > 4)
        snprintf(text, 32, "2^%d", e - 1);
    else
        snprintf(text, 32, "%.6g", x);
    return text;
}

/* What the parameters come to; those that only matter to the last bit are left to --parameters. */
static void sentence(char *line, size_t size, const char *name)
{
    gs_params p;
    char a[32], b[32], c[32];
    size_t used;
#define ADD(...) (used = strlen(line), (void)snprintf(line + used, size - used, __VA_ARGS__))
    gs_params_preset(&p, name, NULL);
    /* some divide by what others multiply with */
    const double down = p.backoff > 1 ? 1 / p.backoff : p.backoff;
    snprintf(line, size, "%s: starts at %s; times %s after ", about_of(name), number(a, p.init),
             number(b, down));
    if (p.hyst > 1)
        ADD("%lld overflows", (long long)p.hyst);
    else
        ADD("an overflow");
    ADD(", times %s after %lld clean step%s", number(c, p.growth), (long long)p.interval,
        cli_s((uint64_t)p.interval));
    if (p.tolerance > 0)
        ADD("; tolerates a share of %g", p.tolerance);
    if (!isnan(p.floor))
        ADD("; at least %s", number(a, p.floor));
    if (!isnan(p.max))
        ADD("; at most %s", number(a, p.max));
    if (!isnan(p.err_min))
        ADD("; fails at %s", number(a, p.err_min));
    ADD(".");
#undef ADD
}

static int width_of(const char *const *names, size_t n, int least)
{
    for (size_t i = 0; i < n; i++)
        least = (int)strlen(names[i]) > least ? (int)strlen(names[i]) : least;
    return least;
}

static void print_name(const char *name, int width)
{
    printf("%s%-*s%s  ", cli_style_of(stdout, CLI_BOLD), width, name,
           cli_style_of(stdout, CLI_PLAIN));
}

static void print_text(const char *const *names, size_t n)
{
    char line[512];
    const int width = width_of(names, n, 0);
    for (size_t i = 0; i < n; i++) {
        sentence(line, sizeof line, names[i]);
        print_name(names[i], width);
        cli_wrap(line, width + 2, width + 2);
    }
}

/* ---- the parameters ---- */

/* "init=0x1p+16 state=f32 ..": of a preset what differs from the defaults, of the defaults all. */
static void settings(char *line, size_t size, const char *preset)
{
    gs_params defaults, p;
    char usual[VALUE], value[VALUE];
    gs_params_default(&defaults);
    p = defaults;
    if (preset)
        gs_params_preset(&p, preset, NULL);
    line[0] = 0;
    for (size_t k = 0; gs_param_key(k); k++) {
        gs_params_get(usual, sizeof usual, &defaults, gs_param_key(k), NULL);
        gs_params_get(value, sizeof value, &p, gs_param_key(k), NULL);
        const size_t used = strlen(line);
        if (!preset || strcmp(usual, value) != 0)
            snprintf(line + used, size - used, "%s%s=%s", used ? " " : "", gs_param_key(k), value);
    }
}

/* In the words of --set. */
static void print_parameters(const char *const *names, size_t n)
{
    static const char title[] = "defaults";
    char line[2048];
    const int width = width_of(names, n, (int)strlen(title));
    print_name(title, width);
    settings(line, sizeof line, NULL);
    cli_wrap(line, width + 2, width + 2);
    for (size_t i = 0; i < n; i++) {
        settings(line, sizeof line, names[i]);
        print_name(names[i], width);
        cli_wrap(line, width + 2, width + 2);
    }
}

static int fail_preset(const char *name, const gs_error *error)
{
    const char *names[256];
    size_t n = 0;
    for (; n < 255 && gs_preset_name(n); n++)
        names[n] = gs_preset_name(n);
    gs_scaler scaler;
    if (strncmp(name, "static:", 7) == 0 || gs_scaler_init(&scaler, name, NULL) == GS_OK)
        return cli_fail("'%.60s' is a policy and no preset: doc/scaler.md has its parameters",
                        name);
    const char *nearest = cli_nearest(name, names, n);
    if (nearest)
        return cli_fail("%s, did you mean '%s'?", error->text, nearest);
    return cli_fail("%s: gradscale presets lists them", error->text);
}

int cmd_presets(int argc, char **argv)
{
    bool json = false, parameters = false;
    const char *names[256];
    size_t n = 0;
    const cli_option options[] = {
        {"parameters", NULL, "print what differs from the defaults, in the words of --set",
         CLI_FLAG(&parameters)},
        {"json", NULL, "print JSON; its schema is in doc/json-presets.md", CLI_FLAG(&json)},
        {0}};
    const cli_spec spec = {.name = "gradscale presets",
                           .operands = "[PRESET...]",
                           .about =
                               "Shows the presets of the scaler: the parameters with which one "
                               "machine steps as the scaler of a framework does.",
                           .options = options,
                           .max_operands = 255};
    const int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    for (int i = 0; i < argc; i++) {
        gs_params p;
        gs_error error;
        if (gs_params_preset(&p, argv[i], &error) != GS_OK)
            return fail_preset(argv[i], &error);
        names[n++] = argv[i];
    }
    while (argc == 0 && n < 255 && gs_preset_name(n)) {
        names[n] = gs_preset_name(n);
        n++;
    }
    (json ? print_json : parameters ? print_parameters : print_text)(names, n);
    return CLI_DONE;
}
