#!/bin/sh
# Our readers of tensors and JSON against those of numpy, safetensors and Python; then every reader against any bytes,
# a minute each: make fuzz. .ci/run has a shorter step of its own for that.
. tests/support/shell.sh
count=2000
is_long && count=200000
if python3 -c 'import numpy, safetensors' 2>/dev/null; then
    check "readers of others" python3 tests/fuzz/against.py "$BUILD/tests/accepts" $count
    grep inputs "$tmp/.check"
else
    skip "readers of others" "Python has no modules numpy and safetensors"
fi
if ! is_long; then
    skip "fuzzing" "it is for GS_LONG=1"
elif [ -n "${SAN:-}" ] || [ "${CC:-gcc}" != gcc ]; then
    skip "fuzzing" "it has a compiler and sanitizers of its own"
elif ! command -v clang >/dev/null; then
    skip "fuzzing" "there is no clang"
else
    check "a minute for every reader" "$MAKE" --no-print-directory fuzz SECONDS=60
    sed -n '/inputs/p' "$tmp/.check"
fi
finish
