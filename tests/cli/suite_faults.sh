#!/bin/sh
# Every system call on files fails once; the power fails at every point. A part of it, or with GS_LONG=1 all.
. tests/support/shell.sh
. tests/fault/fault.sh
share=40
is_long && share=1
if ! command -v python3 >/dev/null; then
    skip "failing system calls" "there is no python3"
elif [ -n "${SAN:-}" ]; then
    skip "failing system calls" "they are for builds without sanitizers"
elif ! can_fault; then
    skip "failing system calls" "this machine cannot trace"
else
    check "faults" python3 tests/fault/faults.py "$1" "$iofault" $share
    tail -n 1 "$tmp/.check"
    check "power losses" python3 tests/fault/power.py "$1" "$iofault" $share
    tail -n 1 "$tmp/.check"
fi
finish
