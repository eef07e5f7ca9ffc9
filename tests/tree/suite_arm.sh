#!/bin/sh
# The suites that speak of numbers on AArch64, in an emulator. In the long run only: they take a
# minute, and .ci/run has them as a step of its own.
. tests/support/shell.sh
if ! is_long || [ -n "${SAN:-}" ] || [ "${CC:-gcc}" != gcc ]; then
    skip AArch64 "it is for GS_LONG=1, gcc and no sanitizer; make test-arm runs it alone"
    finish
    exit
fi
GS_LONG=0 ${MAKE:-make} --no-print-directory test-arm
