#!/bin/sh
# Runs suites and sums their counts: run.sh PROGRAM SUITE...
#
# A suite is a program, or a script that gets the path of PROGRAM; its last line is "N passed, N
# failed". One that crashes, runs out of time or does not count has failed. RUN is put before a
# program (an emulator); GS_LONG=1 asks the suites for everything, and gives them the time; LIMIT is
# the time in seconds.

program=$1
shift
limit=${LIMIT:-300}
[ -n "${GS_LONG:-}" ] && limit=${LIMIT:-3600}
logs=${BUILD:?}/tests
mkdir -p "$logs"
passed=0 failed=0

for suite; do
    name=$(basename "$suite" .sh)
    log=$logs/$name.log
    start=$(date +%s%N)
    case $suite in
    *.sh) timeout -k 10 $limit sh "$suite" "$program" >"$log" 2>&1 ;;
    *) timeout -k 10 $limit ${RUN:-} "$suite" >"$log" 2>&1 ;;
    esac
    status=$?
    seconds=$(( ($(date +%s%N) - start) / 10000000 ))
    counts=$(tail -n 1 "$log" | sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p')
    why=
    case $status:$counts in
    124:* | 137:*) why="no end after $limit s" ;;
    *:) why="no count, exit status $status" ;;
    0:*' 0') ;;
    *:*' 0') why="exit status $status" ;;
    esac
    p=${counts% *} f=${counts#* }
    p=${p:-0} f=${f:-0}
    [ -n "$why" ] && f=$((f + 1))
    passed=$((passed + p)) failed=$((failed + f))
    printf '%-20s %5d passed, %d failed  (%d.%02d s)%s\n' "$name" "$p" "$f" \
        $((seconds / 100)) $((seconds % 100)) "${why:+  $why}"
    [ "$f" -gt 0 ] && tail -n 40 "$log" | sed 's/^/    /'
done

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
