#!/bin/sh
# tools/layers.sh lets the tree pass, and no include that points the wrong way.
. tests/shell.sh

check "the tree" tools/layers.sh .

# A small tree in order.
for layer in base num kernel scaler io; do
    mkdir -p "$tmp/good/include/gradscale" "$tmp/good/src/$layer"
    echo '#include <stddef.h>' >"$tmp/good/include/gradscale/$layer.h"
    echo "#include \"gradscale/$layer.h\"" >"$tmp/good/src/$layer/$layer.h"
    printf '#include "%s/%s.h"\n  # include "base/base.h"\n' $layer $layer >"$tmp/good/src/$layer/$layer.c"
done
mkdir "$tmp/good/tools" "$tmp/good/mpi" "$tmp/good/examples"
echo '#include "gradscale/base.h"' >>"$tmp/good/include/gradscale/kernel.h"
echo '#include <zlib.h>' >>"$tmp/good/src/io/io.c"
printf '#include <jansson.h>\n#include "gradscale/io.h"\n#include "own.h"\n' >"$tmp/good/tools/main.c"
printf '#include <mpi.h>\n#include "gradscale/scaler.h"\n' >"$tmp/good/mpi/mpi.c"
echo '#include <gradscale/kernel.h>' >"$tmp/good/examples/one.c"
check "a small tree" tools/layers.sh "$tmp/good"

# With one line added to one file it is refused, and the file named.
refused()
{
    rm -rf "$tmp/bad"
    cp -r "$tmp/good" "$tmp/bad"
    mkdir -p "$tmp/bad/$(dirname "$1")"
    printf '%s\n' "$2" >>"$tmp/bad/$1"
    ! tools/layers.sh "$tmp/bad" >"$tmp/said" && grep "^$1:[0-9]*: " "$tmp/said"
}

while read -r file line; do
    check "$file: $line" refused "$file" "$line"
done <<END
src/base/base.c #include "kernel/kernel.h"
src/base/base.h #include "gradscale/num.h"
src/num/num.c #  include "kernel/kernel.h"
src/num/num.c #include <gradscale/kernel.h>
src/kernel/kernel.c #include "scaler/scaler.h"
src/kernel/kernel.c #include "kernel.h"
src/kernel/kernel.c #include "../base/base.h"
src/kernel/kernel.c #include "tools/own.h"
src/kernel/kernel.c #include <zlib.h>
src/scaler/scaler.c #include <jansson.h>
src/scaler/scaler.c #include <mpi.h>
tools/main.c #include <mpi.h>
examples/one.c #include <jansson.h>
src/scaler/scaler.c #include "gradscale/nothing.h"
src/extra/extra.c #include "base/base.h"
include/gradscale/base.h #include "gradscale/kernel.h"
include/gradscale/kernel.h #include "kernel/kernel.h"
include/gradscale/num.h #include "base/base.h"
tools/main.c #include "base/base.h"
tools/main.c #include "kernel/kernel.h"
tools/other.h #include "../src/base/base.h"
mpi/mpi.c #include "base/base.h"
mpi/mpi.c #include "tools/own.h"
examples/one.c #include "num/convert.h"
examples/two.cpp #include "scaler/scaler.h"
END
finish
