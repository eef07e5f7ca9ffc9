#!/bin/sh
# The library as one pair of files: it compiles without a warning, and gives the same bits whatever
# it is compiled with.
. tests/support/shell.sh

if [ -n "${SAN:-}" ]; then
    skip amalgamation "the same sources are sanitized as a library"
    finish
    exit
fi
check "make amalgamation" scripts/amalgamate.sh "$tmp"
mkdir "$tmp/gradscale"
for header in base num context tensor exponents scaler optim; do # for programs written for the installed headers
    echo '#include "../gradscale.h"' >"$tmp/gradscale/$header.h"
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
        check "$name: $source links" $cc -O1 -D_POSIX_C_SOURCE=200809L -I"$tmp" -Itests/support \
            -o "$tmp/program" "$source" "$tmp/gradscale.o" -lm -pthread
        "$tmp/program" >"$tmp/output" 2>&1
        check "$name: $source runs" test $? = 0
        [ -e "$tmp/$(basename "$source").output" ] || cp "$tmp/output" "$tmp/$(basename "$source").output"
        check "$name: $source says the same" cmp "$tmp/output" "$tmp/$(basename "$source").output"
    done
}

warn=${strict% -O2}
as_cxx="-x c++ -Wall -Wextra -Wpedantic -Werror"
few="tests/unit/test_parity.c examples/02_own_loop.c"
try "gcc, C11" gcc "$few" $strict
# The library as C++, with tests in C.
try_cxx() # NAME CXX CC FLAGS...
{
    name=$1 cxx=$2 cc=$3
    shift 3
    check "$name compiles" $cxx $as_cxx "$@" -c -o "$tmp/gradscale.o" "$tmp/gradscale.c"
    check "$name links" $cc -O1 -D_POSIX_C_SOURCE=200809L -I"$tmp" -Itests/support -o "$tmp/program" \
        tests/unit/test_parity.c "$tmp/gradscale.o" -lm -pthread
    check "$name runs" sh -c "'$tmp/program' >'$tmp/output' 2>&1"
    check "$name says the same" cmp "$tmp/output" "$tmp/test_parity.c.output"
}
try_cxx "g++, C++17" g++ gcc -std=c++17 -O1
try "gcc, as fast as it can" gcc "tests/unit/test_optim.c $few" -Ofast $native
[ "$(uname -m)" != x86_64 ] || check "x87 is refused" sh -c \
    "! gcc -mfpmath=387 -fsyntax-only '$tmp/gradscale.c' 2>'$tmp/output' && grep -q -e '-mfpmath=sse' '$tmp/output'"
if command -v clang >/dev/null; then
    try "clang, C11" clang "$few" $strict
    try_cxx "clang++, C++20" clang++ clang -std=c++20 -O1
    check "clang, -ffast-math is refused" sh -c \
        "! clang -Ofast -fsyntax-only '$tmp/gradscale.c' 2>'$tmp/output' && grep -q 'fno-fast-math' '$tmp/output'"
else
    skip clang "it is not installed (scripts/deps.sh ci)"
fi

# Some warnings come from one level of optimization only.
if is_long; then
    for level in 0 1 2 3; do
        for compiler in gcc clang; do
            command -v $compiler >/dev/null || continue
            check "$compiler -O$level, C11" $compiler $warn -O$level -c -o "$tmp/gradscale.o" "$tmp/gradscale.c"
            check "$compiler -O$level, C++17" $compiler $as_cxx -std=c++17 -O$level -c -o "$tmp/gradscale.o" \
                "$tmp/gradscale.c"
        done
    done
else
    check "gcc -O0, C11" gcc $warn -O0 -c -o "$tmp/gradscale.o" "$tmp/gradscale.c"
    skip "all levels of optimization" "it is for GS_LONG=1"
fi
finish
