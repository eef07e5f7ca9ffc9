/* Loss scaling in a CUDA training loop of one's own: fp16 weights and gradients, f32 masters, AdamW, and
 * one captured graph that is every step. The host neither waits nor decides.
 *
 *     nvcc 05_cuda_loop.cu $(pkg-config --cflags --libs gradscale_device) && ./a.out
 *
 * The model is that of 06_opencl.c: a million weights, a mean squared error whose gradients f16 cannot
 * hold without a scale. */
#include <cuda_fp16.h>
#include <gradscale/device.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 20, STEPS = 60 };

/* words: gs_device_plan_words, whose first is the scale of this step. */
__global__ void backward(const __half *w, __half *grad, const float *words)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < N)
        grad[i] = __float2half(words[0] * 2 * (__half2float(w[i]) - 0.5f) / N);
}

static void check(cudaError_t code)
{
    if (code != cudaSuccess)
        exit((fprintf(stderr, "%s\n", cudaGetErrorString(code)), 1));
}

static gs_device_ptr at(void *memory) { return {nullptr, (uint64_t)(uintptr_t)memory}; }

int main()
{
    float *master;
    __half *half, *grad;
    check(cudaMalloc(&master, N * 4));
    check(cudaMalloc(&half, N * 2));
    check(cudaMalloc(&grad, N * 2));
    check(cudaMemset(master, 0, N * 4));
    check(cudaMemset(half, 0, N * 2));

    gs_device *device;
    gs_device_plan *plan;
    gs_scaler scaler;
    gs_error error;
    gs_optim_config optim = {};
    optim.size = sizeof optim;
    gs_device_config config = {}; /* the primary context, which is the runtime's */
    config.size = sizeof config;
    config.kind = GS_DEVICE_CUDA;
    gs_device_plan_config settings = {};
    settings.size = sizeof settings;
    settings.optim = &optim;
    settings.scaler = &scaler;
    settings.steps = STEPS;
    gs_device_weight weight = {};
    weight.name = "w";
    weight.count = N;
    weight.data = at(master);
    weight.copy = at(half);
    weight.copy_dtype = GS_F16;
    weight.grad = at(grad);
    weight.grad_dtype = GS_F16;
    if (gs_scaler_init(&scaler, "pytorch", &error) || gs_scaler_set(&scaler, "init=0x1p40 interval=10", &error) ||
        gs_optim_config_init(&optim, "adamw", &error) || gs_optim_config_set(&optim, "lr=0.02", &error) ||
        gs_device_create(&device, &config, &error) ||
        gs_device_plan_create(&plan, device, &weight, 1, &settings, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    const float *words = (const float *)(uintptr_t)gs_device_plan_words(plan).offset;

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t step;
    check(cudaStreamCreate(&stream));
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    backward<<<(N + 255) / 256, 256, 0, stream>>>(half, grad, words);
    if (gs_device_step(plan, stream, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&step, graph, 0));

    for (int i = 0; i < STEPS; i++)
        check(cudaGraphLaunch(step, stream));
    check(cudaStreamSynchronize(stream)); /* the reports of the last 64 steps are here now */
    int applied = 0, skipped = 0;
    gs_device_report report = {};
    while (gs_device_poll(&report, plan)) {
        applied += report.optim.verdict.action == GS_APPLY;
        skipped += report.optim.verdict.action != GS_APPLY;
    }
    printf("%d steps applied, %d skipped, the scale is %g, the largest weight %.3f\n", applied, skipped,
           report.optim.verdict.scale, report.optim.weight_amax);
    gs_device_plan_free(plan);
    gs_device_free(device);
    return applied < 30 || skipped < 1 || report.optim.weight_amax < 0.4;
}
