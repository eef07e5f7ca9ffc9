/* device.h: the parts of `gradscale device`. */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include "cli/core/cli.h"

#include "gradscale/device.h"

/* Which device, as options say it. */
typedef struct device_choice {
    int kind; /* gs_device_kind, in the order of "host|cuda|opencl" */
    uint64_t index;
    const char *library;
} device_choice;

#define DEVICE_ROWS(choice)                                                            \
    {"kind", "host|cuda|opencl", "which kind of device", CLI_CHOICE(&(choice)->kind)}, \
        {"index", "N", "which of them", CLI_UNSIGNED(&(choice)->index), .max = 1000},  \
    {                                                                                  \
        "library", "FILE", "the driver, in place of libcuda.so.1 or libOpenCL.so.1",   \
            CLI_STRING(&(choice)->library)                                             \
    }

/* Compiled kernels are kept in XDG_CACHE_HOME/gradscale or ~/.cache/gradscale. CLI_GO, or an error
 * was printed. */
int device_open(gs_device **out, const device_choice *choice);

/* Equal bits with libgradscale, over all optimizers and types; prints a line for each. The exit
 * code. */
int device_test(gs_device *device);

#endif
