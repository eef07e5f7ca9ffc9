/* device.h: the parts of `gradscale device`. */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include "cli/core/cli.h"

#include "gradscale/device.h"

/* Which device, as options say it. */
typedef struct device_choice {
    int kind; /* DEVICE_AUTO, or 1 + gs_device_kind: in the order of the option's words */
    uint64_t index;
    const char *library;
} device_choice;

enum { DEVICE_AUTO = 0 };

#define DEVICE_ROWS(choice)                                                                      \
    {"kind", "auto|host|cuda|opencl",                                                            \
     "which kind of device; auto: the first of cuda, opencl and host that there is",             \
     CLI_CHOICE(&(choice)->kind)},                                                               \
        {"index", "N", "which of them", CLI_UNSIGNED(&(choice)->index), .max = 1000},            \
    {                                                                                            \
        "library", "FILE", "with --kind, the driver in place of libcuda.so.1 or libOpenCL.so.1", \
            CLI_STRING(&(choice)->library)                                                       \
    }

/* Compiled kernels are kept in XDG_CACHE_HOME/gradscale or ~/.cache/gradscale. CLI_GO, or an error
 * was printed. */
int device_open(gs_device **out, const device_choice *choice);

/* Equal bits with libgradscale, over all optimizers and types; prints a line for each. The exit
 * code. */
int device_test(gs_device *device);

#endif
