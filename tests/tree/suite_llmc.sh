#!/bin/sh
# The code of examples/08_llmc.md: compiled as C and C++ and run, with stand-ins of our own for the functions of
# llm.c that it calls.
. tests/support/shell.sh

# Each block becomes a file: 1 the header, 2 the step on the CPU, 3 the step on a GPU, 4 the header's end.
awk -v folder="$tmp" '
/^```c$/ { on = 1; file = folder "/block" ++n; printf "" >file; next }
/^```$/ { on = 0 }
on { print >file }' examples/08_llmc.md
check "four blocks" test "$(ls "$tmp" | grep -c '^block')" -eq 4
cat "$tmp/block1" "$tmp/block4" >"$tmp/llmc_scaling.h"

# A model of two weights: the loss is the mean square distance to a target, divided by 1e6. Gradients overflow f16
# at the first scales, or on batch 30.
cat >"$tmp/model.h" <<'END'
typedef struct {
    float *params_memory, *grads_memory;
    size_t num_parameters;
    float mean_loss;
} GPT2;
typedef struct {
    int zero_stage;
} MultiGpuConfig;
static float params[2], grads[2];
static const float target[2] = {3, -2};
static int updates, last_t, batch;

static void gpt2_backward(GPT2 *model)
{
    model->mean_loss = 0;
    for (int i = 0; i < 2; i++) {
        const float d = params[i] - target[i];
        model->mean_loss += d * d;
        grads[i] = d * 1e-6f * scaling_factor();
    }
    if (batch == 30)
        grads[1] = (float)HUGE_VAL;
}
static void update(float rate, float factor, int t)
{
    for (int i = 0; i < 2; i++)
        params[i] -= rate * factor * grads[i];
    updates++;
    last_t = t;
}
END
cat >"$tmp/cpu.c" <<'END'
#include "llmc_scaling.h"
#include "model.h"
static void gpt2_update(GPT2 *m, float lr, float b1, float b2, float eps, float decay, int t)
{
    (void)m, (void)b1, (void)b2, (void)eps, (void)decay;
    update(lr * 1e9f, 1, t);
}
int main(void)
{
    GPT2 model = {params, grads, 2, 0};
    scaling_init("pytorch");
    scaling_check(gs_scaler_set(&scaling.scaler, "init=0x1p+36", NULL), NULL);
    for (batch = 0; batch < 300; batch++) {
#include "block2"
        if (batch == 100) {
            scaling_save("state");
            scaling.scaler.machine.scale = 3;
            scaling_load("state");
        }
    }
    const int skipped = (int)(scaling.scaler.counters.attempted - scaling.scaler.counters.applied);
    printf("%g %g, %d skipped, t %d\n", (double)params[0], (double)params[1], skipped, last_t);
    return !(fabsf(params[0] - 3) < 0.01f && fabsf(params[1] + 2) < 0.01f && skipped > 1 &&
             updates == 300 - skipped && last_t == updates);
}
END
cat >"$tmp/gpu.c" <<'END'
#include "llmc_scaling.h"
#include "model.h"
static float gpt2_calculate_grad_norm(GPT2 *m, MultiGpuConfig *config)
{
    (void)config;
    return sqrtf(m->grads_memory[0] * m->grads_memory[0] + m->grads_memory[1] * m->grads_memory[1]);
}
static void gpt2_update(GPT2 *m, float lr, float b1, float b2, float eps, float decay, float grad_scale,
                        int t, MultiGpuConfig *config)
{
    (void)m, (void)b1, (void)b2, (void)eps, (void)decay, (void)config;
    update(lr, grad_scale, t);
}
int main(void)
{
    GPT2 model = {params, grads, 2, 0};
    MultiGpuConfig multi_gpu_config = {0};
    const float step_learning_rate = 1e5f, weight_decay = 0;
    scaling_init("pytorch");
    for (batch = 0; batch < 300; batch++) {
        scaling_begin();
        gpt2_backward(&model);
        scaling_round(model.grads_memory, 2);
#include "block3"
        if (batch < 29 && !(grad_norm > 1e-7f && grad_norm < 4e-6f)) /* true units */
            return 2;
    }
    printf("%g %g, t %d, scale %g\n", (double)params[0], (double)params[1], last_t,
           gs_scaler_scale(&scaling.scaler));
    scaling_save("state");
    scaling_load("state");
    return !(fabsf(params[0] - 3) < 0.01f && fabsf(params[1] + 2) < 0.01f && updates == 299 &&
             last_t == 299 && gs_scaler_scale(&scaling.scaler) == 32768);
}
END
warn="-Wall -Wextra -Wpedantic -Wshadow -Werror -Iinclude -I$tmp"
san=${SAN:+-fsanitize=$SAN}
for part in cpu gpu; do
    check "$part, C" ${CC:-gcc} -std=c11 $warn $san -o "$tmp/$part" "$tmp/$part.c" "$BUILD/libgradscale.a" -lm -pthread
    check "learns" sh -c "cd '$tmp' && './$part'"
    # -Ofast, as their Makefile has it: nothing of the blocks depends on isfinite.
    check "$part, -Ofast" ${CC:-gcc} -std=c11 -Ofast $warn $san -o "$tmp/$part" "$tmp/$part.c" \
        "$BUILD/libgradscale.a" -lm -pthread
    check "learns" sh -c "cd '$tmp' && './$part'"
    check "$part, C++" ${CXX:-g++} -std=c++17 $warn $san -o "$tmp/$part" -x c++ "$tmp/$part.c" -x none \
        "$BUILD/libgradscale.a" -lm -pthread
    check "learns" sh -c "cd '$tmp' && './$part'"
done
finish
