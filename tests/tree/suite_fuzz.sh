#!/bin/sh
# Every reader against any bytes, a minute each: make fuzz. .ci/run has a shorter step of its own.
. tests/support/shell.sh
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
