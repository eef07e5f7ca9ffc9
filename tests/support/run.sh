#!/bin/sh
# Runs suites and sums their counts: run.sh PROGRAM SUITE...
#
# A suite is a program, or a script that gets the path of PROGRAM; its last line is as counts.sh says. One
# that crashes, runs out of time, counts nothing, or counts skips that it does not name has failed. RUN is
# put before a program (an emulator); GS_LONG=1 asks the suites for everything, and gives them the time;
# LIMIT is the time in seconds.

. tests/support/counts.sh
program=$1
shift
limit=${LIMIT:-300}
[ "${GS_LONG:-0}" = 0 ] || limit=${LIMIT:-3600}
logs=${BUILD:?}/tests
mkdir -p "$logs"
passed=0 failed=0 skipped=0

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
    counts=$(tail -n 1 "$log" | counts)
    named=$(skips <"$log" | wc -l)
    why=
    case $status:$counts in
    124:* | 137:*) why="no end after $limit s" ;;
    *:) why="no count, exit status $status" ;;
    *:'0 0 0') why="no test" ;;
    0:*' 0 '*) [ "${counts##* }" -eq "$named" ] || why="${counts##* } skipped, $named named" ;;
    *:*' 0 '*) why="exit status $status" ;;
    esac
    set_counts $counts
    [ -n "$why" ] && f=$((f + 1))
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    printf '%-20s %5d %s  (%d.%02d s)%s\n' "$name" "$p" "$(closing "$p" "$f" "$s" | cut -d' ' -f2-)" \
        $((seconds / 100)) $((seconds % 100)) "${why:+  $why}"
    skips <"$log" | sed "s/^/    SKIPPED $name: /"
    [ "$f" -gt 0 ] && tail -n 40 "$log" | grep -v '^ *SKIPPED ' | sed 's/^/    /'
done

closing $passed $failed $skipped
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
