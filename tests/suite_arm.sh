#!/bin/sh
# The suites that speak of numbers on AArch64, in an emulator. In the long run only: they take a
# minute, and .ci/run has them as a step of its own.
if [ -z "${GS_LONG:-}" ] || [ -n "${SAN:-}" ] || [ "${CC:-gcc}" != gcc ]; then
    echo "0 passed, 0 failed"
    exit 0
fi
GS_LONG= ${MAKE:-make} --no-print-directory test-arm
