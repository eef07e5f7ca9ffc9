#!/bin/sh
# The tree holds sources only; scripts/layers.sh lets it pass, and no include that points the wrong way.
. tests/support/shell.sh

check "the tree" scripts/layers.sh .

# What git holds is what somebody wrote: no downloads, caches, finds of fuzzers, and nothing large.
written()
{
    ! git ls-files | grep -E '\.(whl|gz|zip|so|o|a|pyc|db)$|(^|/)(\.[a-z_]*cache|__pycache__|crash-|leak-|oom-)' |
        grep -v '^tests/fuzz/corpus/' || return 1
    [ -z "$(git ls-files -z | xargs -0 -I{} find {} -maxdepth 0 -size +300k)" ]
}
if git ls-files --error-unmatch Makefile >"$tmp/out" 2>&1; then
    check "only what was written is in git" written
else
    skip "what git holds" "the tree is not git's"
fi

# A small tree in order.
for layer in base num kernel scaler optim io device; do
    mkdir -p "$tmp/good/include/gradscale" "$tmp/good/src/$layer"
    echo '#include <stddef.h>' >"$tmp/good/include/gradscale/$layer.h"
    echo "#include \"gradscale/$layer.h\"" >"$tmp/good/src/$layer/$layer.h"
    printf '#include "%s/%s.h"\n  # include "base/base.h"\n' $layer $layer >"$tmp/good/src/$layer/$layer.c"
done
mkdir -p "$tmp/good/cli/core" "$tmp/good/src/kernel/gemm" "$tmp/good/mpi" "$tmp/good/examples"
echo '#include "gradscale/base.h"' >>"$tmp/good/include/gradscale/kernel.h"
echo '#include <zlib.h>' >>"$tmp/good/src/io/io.c"
printf '#include <jansson.h>\n#include "gradscale/io.h"\n#include "cli/core/own.h"\n' >"$tmp/good/cli/core/main.c"
printf '#include "kernel/gemm/gemm.h"\n#include "base/base.h"\n' >"$tmp/good/src/kernel/gemm/gemm.c"
printf '#include <mpi.h>\n#include "gradscale/scaler.h"\n' >"$tmp/good/mpi/mpi.c"
echo '#include <gradscale/kernel.h>' >"$tmp/good/examples/one.c"
check "a small tree" scripts/layers.sh "$tmp/good"

# With one line added to one file it is refused, and the file named.
refused()
{
    rm -rf "$tmp/bad"
    cp -r "$tmp/good" "$tmp/bad"
    mkdir -p "$tmp/bad/$(dirname "$1")"
    printf '%s\n' "$2" >>"$tmp/bad/$1"
    ! scripts/layers.sh "$tmp/bad" >"$tmp/said" && grep "^$1:[0-9]*: " "$tmp/said"
}

while read -r file line; do
    check "$file: $line" refused "$file" "$line"
done <<END
src/base/base.c #include "kernel/kernel.h"
src/base/base.h #include "gradscale/num.h"
src/num/num.c #  include "kernel/kernel.h"
src/num/num.c #include <gradscale/kernel.h>
src/num/num.c #include <gradscale/gemm.h>
src/scaler/scaler.c #include <gradscale/gradscale.h>
src/kernel/kernel.c #include "scaler/scaler.h"
src/kernel/kernel.c #include "kernel.h"
src/kernel/kernel.c #include "../base/base.h"
src/kernel/kernel.c #include "cli/core/own.h"
src/kernel/kernel.c #include <zlib.h>
src/kernel/gemm/gemm.c #include "scaler/scaler.h"
src/kernel/gemm/gemm.c #include "../kernel.h"
src/kernel/gemm/gemm.c #include "kernel/../base/base.h"
src/kernel/gemm/gemm.c #include "gemm.h"
src/io/io.c #include <jansson.h>
src/scaler/scaler.c #include <mpi.h>
cli/core/main.c #include <mpi.h>
examples/one.c #include <jansson.h>
src/scaler/scaler.c #include "gradscale/nothing.h"
src/extra/extra.c #include "base/base.h"
include/gradscale/base.h #include "gradscale/kernel.h"
include/gradscale/kernel.h #include "kernel/kernel.h"
include/gradscale/num.h #include "base/base.h"
include/gradscale/base.hpp #include "gradscale/kernel.hpp"
include/gradscale/kernel.hpp #include <torch/torch.h>
src/kernel/kernel.c #include "gradscale/base.hpp"
cli/core/main.c #include "base/base.h"
cli/core/main.c #include "kernel/kernel.h"
cli/other.h #include "../src/base/base.h"
src/device/device.c #include "gradscale/io.h"
src/device/device.c #include "io/io.h"
src/io/io.c #include "device/device.h"
src/scaler/scaler.c #include <gradscale/device.h>
mpi/mpi.c #include "base/base.h"
mpi/mpi.c #include "cli/core/own.h"
mpi/mpi.c #include "../src/base/base.h"
examples/one.c #include "num/convert.h"
examples/two.cpp #include "scaler/scaler.h"
END
finish
