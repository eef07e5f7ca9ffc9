#!/bin/sh
# The library as one pair of files: it compiles without a warning, and gives the same bits whatever
# it is compiled with.
. tests/shell.sh

if [ -n "${SAN:-}" ]; then # the same sources are sanitized as a library
    echo "0 passed, 0 failed"
    exit 0
fi
check "make amalgamation" tools/amalgamate.sh "$tmp"
mkdir "$tmp/gradscale"
for layer in base num kernel scaler optim; do # for programs written for the installed headers
    echo '#include "../gradscale.h"' >"$tmp/gradscale/$layer.h"
done
echo '#include "gradscale.h"' >"$tmp/header.cpp"
check "gradscale.h is C++, too" ${CXX:-g++} -std=c++17 -Wall -Wextra -Wpedantic -Werror \
    -fsyntax-only "$tmp/header.cpp"

strict="-std=c11 -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wdouble-promotion
    -Wstrict-prototypes -Wmissing-prototypes -Werror -O2"
native=
[ "$(uname -m)" = x86_64 ] && native=-march=native

# try NAME COMPILER TESTS FLAGS...: the library with these flags, the tests with their own.
try()
{
    name=$1 cc=$2 sources=$3
    shift 3
    check "$name compiles" $cc "$@" -c -o "$tmp/gradscale.o" "$tmp/gradscale.c"
    for source in $sources; do
        check "$name: $source links" $cc -O1 -D_POSIX_C_SOURCE=200809L -I"$tmp" -Itests \
            -o "$tmp/program" "$source" "$tmp/gradscale.o" -lm -pthread
        "$tmp/program" >"$tmp/output" 2>&1
        check "$name: $source runs" test $? = 0
        [ -e "$tmp/$(basename "$source").output" ] || cp "$tmp/output" "$tmp/$(basename "$source").output"
        check "$name: $source says the same" cmp "$tmp/output" "$tmp/$(basename "$source").output"
    done
}

few="tests/test_parity.c examples/02_own_loop.c"
try "gcc, C11" gcc "$few" $strict
try "gcc, as fast as it can" gcc "tests/test_optim.c $few" -Ofast $native
if command -v clang >/dev/null; then
    try "clang, C11" clang "$few" $strict
    check "clang, -ffast-math is refused" sh -c \
        "! clang -Ofast -fsyntax-only '$tmp/gradscale.c' 2>'$tmp/output' && grep -q 'fno-fast-math' '$tmp/output'"
fi
finish
