#!/bin/sh
# Train, kill, resume, report for a while: memory and descriptors do not grow (scripts/soak.sh runs for longer).
. tests/support/shell.sh

# What is said of rounds that were made up: 120 of them, as awk's COLUMN = VALUE of round n has them.
judge()
{
    rm -rf "$tmp/made" && mkdir "$tmp/made"
    awk "BEGIN { for (n = 1; n <= 120; n++) {
        ms = 0.8 + n % 4 / 100; early = late = 7000; fds = fds_late = 8; bytes = 1000 * n; took = n
        $1
        print n, ms, early, fds, late, fds_late, bytes, took } }" >"$tmp/made/rounds"
    scripts/soak.sh /bin/true 0 "$tmp/made"
}
grows() { ! judge "$2" >"$tmp/said" && cat "$tmp/said" && grep -qx "$1" "$tmp/said"; }
check "rounds that do not grow" judge ""
check "some that were disturbed" judge "if (n > 90 && n % 3) ms *= 5"
check "a checkpoint under way" judge "if (n % 5 == 0) fds_late++"
check "memory" grows "it grows: memory" "early = late = 7000 + 40 * n"
check "memory of a long round" grows "it grows: memory, within round 104" "if (n == 104) late = 9701"
check "descriptors" grows "it grows: descriptors" "if (n > 60) fds = fds_late = 10"
check "descriptors of a long round" grows "it grows: descriptors, within round 104" "if (n == 104) fds_late = 10"
check "step time" grows "it grows: step time" "ms *= 1 + n / 150"
check "a log that stands still" grows "the log has not grown" "bytes = 1000"
check "a round without numbers" grows "round 7 is not whole" "if (n == 7) early = fds = \"\""
judge "" >"$tmp/said"
check "a log that lacks a step" sh -c '
    mkdir "$1/made/run" && printf "{\"step\":%d,\"loss\":1}\n" 1 2 3 2 3 4 >"$1/made/run/log" &&
    scripts/soak.sh /bin/true 0 "$1/made" && printf "{\"step\":6,\"loss\":1}\n" >>"$1/made/run/log" &&
    ! scripts/soak.sh /bin/true 0 "$1/made" >"$1/said" && grep -x "step 6 follows 4" "$1/said"' sh "$tmp"

if ! is_long; then
    skip "the soak" "it is for GS_LONG=1"
elif [ -n "${SAN:-}" ]; then
    skip "the soak" "it measures memory, which sanitizers take"
else
    check "2 minutes of it" scripts/soak.sh "$1" 2 "$tmp/soak"
    cat "$tmp/.check"
fi
finish
