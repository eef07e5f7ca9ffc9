#!/bin/sh
# The ABI is the one that is stored in abi/: what a program that was linked before would meet.
. tests/support/shell.sh

if ! command -v abidw >/dev/null; then
    skip "the ABI" "abidw is not installed (scripts/deps.sh abi)"
elif [ -n "${SAN:-}" ] || [ "$(uname -m)" != x86_64 ]; then
    skip "the ABI" "the description is of a plain build on x86-64"
else
    check "make check-abi" ${MAKE:-make} -s check-abi CC="${CC:-gcc}"
    sed "s/'gs_version_number'/'gs_version_numbers'/g" abi/libgradscale.abi >"$tmp/other.abi"
    check "a function that is gone is noticed" sh -c "! abidiff '$tmp/other.abi' abi/libgradscale.abi"
    check "no path of a machine in it" sh -c "! grep -n \"$PWD\\|/home/\\|/tmp/\\|/usr/\" abi/*.abi"
fi
finish
