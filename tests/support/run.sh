#!/bin/sh
# Runs suites and sums their counts: run.sh PROGRAM SUITE...
#
# A suite is a program, or a script that gets the path of PROGRAM; its last line is as counts.sh says. One
# that crashes, runs out of time, counts nothing, or counts skips that it does not name has failed. RUN is
# put before a program (an emulator); GS_LONG=1 asks the suites for everything, and gives them the time;
# LIMIT is the time in seconds; LANES suites run at a time, two where there are two CPUs.

. tests/support/counts.sh
export LIMIT PROGRAM RUN BUILD LOGS
PROGRAM=$1
shift
lanes=${LANES:-$(($(nproc 2>/dev/null || echo 1) > 1 ? 2 : 1))}
if [ "${GS_LONG:-0}" != 0 ]; then
    LIMIT=${LIMIT:-3600}
elif [ -n "${RUN:-}" ]; then
    LIMIT=${LIMIT:-900}
else
    LIMIT=${LIMIT:-600}
fi
LOGS=${BUILD:?}/tests
mkdir -p "$LOGS"

for suite; do
    rm -f "$LOGS/$(basename "$suite" .sh).counts"
done
[ $# = 0 ] || printf '%s\0' "$@" | xargs -0 -n 1 -P "$lanes" tests/support/run_one.sh

passed=0 failed=0 skipped=0
for suite; do
    set_counts $(cat "$LOGS/$(basename "$suite" .sh).counts" 2>/dev/null || echo 0 1 0)
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
closing $passed $failed $skipped
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
