#!/bin/sh
# The kernels of libgradscale_device as one text: what clBuildProgram, NVRTC, nvcc and clang compile. What the
# library has defined already is taken from there, function by function: number formats, random bits, the
# scaler's structs and its machine. Run it in the root.
set -e

# The definitions named, each from its first line at the margin to the brace that ends it.
take()
{
    file=$1
    shift
    for name; do
        awk -v name="$name" '
            !on && /^[a-z]/ && index($0, name) && ($0 ~ "[ *]" name "[(]" || $0 ~ " " name " [{]") { on = 1 }
            on {
                if (!lines++ && /[(]/) {
                    sub(/^static inline /, "")
                    sub(/^static /, "")
                    $0 = "DEVICE " $0
                }
                print
                if (/^}/ || /[{].*}$/) exit
            }
            END { if (!lines) { print "device_source.sh: no " name " in " FILENAME >"/dev/stderr"; exit 1 } }' "$file"
    done
}

# A kernel file without its includes: all are here.
text() { grep -v '^#include "' "src/device/kernels/$1"; }

text lang.h
echo '#define GS_NONE UINT64_C(0xFFFFFFFFFFFFFFFF)'
sed -n '/^#define GS_FORMATS/,/^} gs_dtype;/p' include/gradscale/num.h
take include/gradscale/tensor.h gs_stats
# the scaler's parameters, state and enums, without its functions
sed -n '/^enum { GS_STATE_F16/,/^} gs_scaler;/p' include/gradscale/scaler.h |
    awk '/^GS_API/ { skip = 1 } !skip && !/^static const/ { print } skip && /;/ { skip = 0 }'
sed -n '/^#define GS_OPTIMS/,/^} gs_optim_kind;/p' include/gradscale/optim.h
echo '#define GSI_F32_INF 0x7F800000u'
echo '#define GSI_NEAREST (-1)'
take src/num/convert.h gsi_magnitude gsi_row gsi_narrow gsi_widen
take src/base/rng.c gsi_philox
cat <<'C'
/* scaler/machine.c in terms of these */
DEVICE double round_f16(double x)
{
    float y = (float)x;
    if (isfinite(y) && (double)y != x) {
        uint32_t u = gsd_bits(y);
        u = ((double)y > x ? u - 1 : u) | 1;
        y = gsd_float(u);
    }
    {
        gsi_row f16;
        f16.ebits = 5, f16.mbits = 10, f16.max_code = 0x7BFF;
        return (double)gsd_float(gsi_widen(gsi_narrow(gsd_bits(y), f16, GSI_NEAREST, false), f16));
    }
}
C
grep '^#define GSI_COUNT_MOST' src/scaler/scaler.h
take src/scaler/scaler.h gsi_one_more
# the scaler is in shared memory
take src/scaler/machine.c gsi_round_state move growth_is_due grow back_off step_clean step_found gsi_machine_step |
    sed -E 's/(const gs_params|gs_machine) \\*/SHARED_PTR &/g; s/const SHARED_PTR/SHARED_PTR const/g'
for file in types.h number.h report.h scan.h decide.h act.h; do
    text $file
done
