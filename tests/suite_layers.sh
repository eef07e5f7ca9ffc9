#!/bin/sh
# tools/layers.sh lets the tree pass, and no include that points the wrong way.
. tests/shell.sh

check "the tree" tools/layers.sh .

# One line added to one file of a small tree that is in order.
refused()
{
    rm -rf "$tmp/tree"
    for dir in include/gradscale src/base src/num src/kernel src/scaler src/io tools mpi examples; do
        mkdir -p "$tmp/tree/$dir"
    done
    (
        cd "$tmp/tree" || exit
        for layer in base num kernel scaler io; do
            echo '#include <stddef.h>' >include/gradscale/$layer.h
            echo "#include \"gradscale/$layer.h\"" >src/$layer/$layer.h
            printf '#include "%s/%s.h"\n  # include "base/base.h"\n' $layer $layer >src/$layer/$layer.c
        done
        echo '#include "gradscale/base.h"' >>include/gradscale/kernel.h
        echo '#include <zlib.h>' >>src/io/io.c
        printf '#include "gradscale/io.h"\n#include "own.h"\n' >tools/main.c
        printf '#include <mpi.h>\n#include "gradscale/scaler.h"\n' >mpi/mpi.c
        echo '#include <gradscale/kernel.h>' >examples/one.c
    )
    tools/layers.sh "$tmp/tree" || { echo "the small tree is refused already"; return 1; }
    [ -d "$tmp/tree/$(dirname "$1")" ] || mkdir -p "$tmp/tree/$(dirname "$1")"
    printf '%s\n' "$2" >>"$tmp/tree/$1"
    if tools/layers.sh "$tmp/tree" >"$tmp/said"; then
        echo "passes: $2 in $1"
        return 1
    fi
    grep "^$1:[0-9]*: " "$tmp/said"
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
