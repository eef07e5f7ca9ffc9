#include "cli/bench/bench.h"
#include "cli/core/commands.h"

static const cli_command benches[] = {
    {"kernels", "every pass over gradients, as a fraction of memory bandwidth", bench_kernels},
    {"optim", "the optimizers and whole steps, as a fraction of memory bandwidth", bench_optim},
    {"gemm", "matrix products (GEMM), against peak fma and oneDNN", bench_gemm},
    {"step", "whole training steps, as a fraction of peak arithmetic", bench_step},
    {"ranks", "messages between ranks, and what of them training hides", bench_ranks},
    {"checkpoint", "saving GPT-2 with its optimizer, against the disk", bench_checkpoint},
    {"generate", "tokens of a GPT, as a fraction of memory bandwidth", bench_generate},
    {"device", "scan and act on a device, as a share of its own copy", bench_device},
    {0}};

int cmd_bench(int argc, char **argv)
{
    const cli_spec spec = {.name = "gradscale bench",
                           .operands = "BENCH ...",
                           .about = "Measures, and compares with limits measured in the same run.",
                           .commands = benches};
    const int code = cli_parse(&spec, &argc, argv);
    return code == CLI_GO ? cli_run(&spec, argc, argv) : code;
}
