/* A stand-in for libOpenCL.so.1 with one device, which has no fp64. Whatever else is called
 * aborts: a device that is refused gets no queue, no program and no memory. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* their header is Khronos' */
#define API __attribute__((visibility("default")))

static int platform, device, context, contexts;

API int fake_opencl_contexts(void) { return contexts; }

API int32_t clGetPlatformIDs(uint32_t room, void **list, uint32_t *n)
{
    *n = 1;
    if (room > 0)
        list[0] = &platform;
    return 0;
}
API int32_t clGetDeviceIDs(void *p, uint64_t type, uint32_t room, void **list, uint32_t *n)
{
    (void)p, (void)type;
    *n = 1;
    if (room > 0)
        list[0] = &device;
    return 0;
}
API int32_t clGetDeviceInfo(void *d, uint32_t what, size_t room, void *to, size_t *bytes)
{
    static const char name[] = "Small GPU";
    (void)d, (void)bytes;
    memset(to, 0, room); /* no memory, no fp64 */
    if (what == 0x102B)
        memcpy(to, name, sizeof name < room ? sizeof name : room);
    return 0;
}
API void *clCreateContext(const intptr_t *p, uint32_t n, void *const *d, void *call, void *user,
                          int32_t *code)
{
    (void)p, (void)n, (void)d, (void)call, (void)user;
    *code = 0;
    contexts++;
    return &context;
}
API int32_t clReleaseContext(void *c)
{
    (void)c;
    contexts--;
    return 0;
}

#define NEVER(name) \
    API void name(void) { abort(); }
NEVER(clRetainContext)
NEVER(clCreateCommandQueue)
NEVER(clReleaseCommandQueue)
NEVER(clGetCommandQueueInfo)
NEVER(clCreateBuffer)
NEVER(clReleaseMemObject)
NEVER(clGetMemObjectInfo)
NEVER(clCreateProgramWithSource)
NEVER(clCreateProgramWithBinary)
NEVER(clBuildProgram)
NEVER(clGetProgramInfo)
NEVER(clGetProgramBuildInfo)
NEVER(clReleaseProgram)
NEVER(clCreateKernel)
NEVER(clReleaseKernel)
NEVER(clSetKernelArg)
NEVER(clEnqueueNDRangeKernel)
NEVER(clEnqueueWriteBuffer)
NEVER(clEnqueueReadBuffer)
NEVER(clEnqueueCopyBuffer)
NEVER(clFlush)
NEVER(clFinish)
