/* Loss scaling on an OpenCL device: the program's own context, queue, buffers and kernel; the
 * scaler and AdamW of libgradscale_device on the same queue. Nothing is read back between steps
 * but reports.
 *
 *     cc 06_opencl.c $(pkg-config --cflags --libs gradscale_device) -lOpenCL && ./a.out
 *
 * The model is y = w x, n independent weights in f16 with f32 masters. The kernel writes scaled f16
 * gradients of the mean squared error to the targets 0.5: a million of them, each divided by a
 * million, which f16 cannot hold without a scale. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <gradscale/device.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 20, STEPS = 60 };

static const char source[] = "kernel void backward(global const ushort *w, global ushort *grad, "
                             "global const float *words)\n"
                             "{\n"
                             "    const size_t i = get_global_id(0);\n"
                             "    const float error = vload_half(i, (global const half *)w) - "
                             "0.5f;\n"
                             "    vstore_half_rte(words[0] * 2 * error / 1048576.0f, i, (global "
                             "half *)grad);\n" /* words[0]: scale */
                             "}\n";

static _Noreturn void stop(const char *what) { exit((fprintf(stderr, "%s\n", what), 1)); }

int main(void)
{
    cl_platform_id platform;
    cl_device_id id;
    cl_int code;
    if (clGetPlatformIDs(1, &platform, NULL) ||
        clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &id, NULL))
        stop("there is no OpenCL device");
    cl_context context = clCreateContext(NULL, 1, &id, NULL, NULL, &code);
    cl_command_queue queue = clCreateCommandQueue(context, id, 0, &code);
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
    if (clBuildProgram(program, 1, &id, NULL, NULL, NULL))
        stop("the kernel does not compile");
    cl_kernel backward = clCreateKernel(program, "backward", &code);
    cl_mem master = clCreateBuffer(context, CL_MEM_READ_WRITE, N * 4, NULL, &code);
    cl_mem half = clCreateBuffer(context, CL_MEM_READ_WRITE, N * 2, NULL, &code);
    cl_mem grad = clCreateBuffer(context, CL_MEM_READ_WRITE, N * 2, NULL, &code);
    const cl_uint zero = 0;
    if (clEnqueueFillBuffer(queue, master, &zero, 4, 0, N * 4, 0, NULL, NULL) ||
        clEnqueueFillBuffer(queue, half, &zero, 2, 0, N * 2, 0, NULL, NULL))
        stop("the buffers cannot be filled");

    gs_device *device;
    gs_device_plan *plan;
    gs_scaler scaler;
    gs_error error;
    gs_optim_config optim = {.size = sizeof optim};
    const gs_device_config config = {
        .size = sizeof config, .kind = GS_DEVICE_OPENCL, .context = context, .device = id};
    const gs_device_plan_config settings = {
        .size = sizeof settings, .optim = &optim, .scaler = &scaler, .steps = STEPS};
    const gs_device_weight weight = {.name = "w",
                                     .count = N,
                                     .data = {master, 0},
                                     .copy = {half, 0},
                                     .copy_dtype = GS_F16,
                                     .grad = {grad, 0},
                                     .grad_dtype = GS_F16};
    if (gs_scaler_init(&scaler, "pytorch", &error) ||
        gs_scaler_set(&scaler, "init=0x1p40 interval=10", &error) ||
        gs_optim_config_init(&optim, "adamw", &error) ||
        gs_optim_config_set(&optim, "lr=0.02", &error) ||
        gs_device_create(&device, &config, &error) ||
        gs_device_plan_create(&plan, device, &weight, 1, &settings, &error))
        stop(error.text);

    const cl_mem words = gs_device_plan_words(plan).base;
    clSetKernelArg(backward, 0, sizeof half, &half);
    clSetKernelArg(backward, 1, sizeof grad, &grad);
    clSetKernelArg(backward, 2, sizeof words, &words);
    int applied = 0, skipped = 0;
    gs_device_report report = {0};
    for (int i = 0; i < STEPS; i++) {
        const size_t all = N;
        if (clEnqueueNDRangeKernel(queue, backward, 1, NULL, &all, NULL, 0, NULL, NULL) ||
            gs_device_step(plan, queue, &error))
            stop("a step cannot be enqueued");
    }
    clFinish(
        queue); /* the reports of the last 64 steps are here now; a long run polls as it goes */
    while (gs_device_poll(&report, plan)) {
        applied += report.optim.verdict.action == GS_APPLY;
        skipped += report.optim.verdict.action != GS_APPLY;
    }
    printf("%d steps applied, %d skipped, the scale is %g, the largest weight %.3f\n", applied,
           skipped, report.optim.verdict.scale, report.optim.weight_amax);
    gs_device_plan_free(plan);
    gs_device_free(device);
    return applied < 30 || skipped < 1 || report.optim.weight_amax < 0.4;
}
