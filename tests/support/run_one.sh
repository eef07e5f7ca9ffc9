#!/bin/sh
# For run.sh, which sets what is used here: runs one suite, prints its line with what it skipped and the end
# of its log if it failed, and leaves its counts in LOGS/NAME.counts.

. tests/support/counts.sh
suite=$1
name=$(basename "$suite" .sh)
log=$LOGS/$name.log
start=$(date +%s%N)
case $suite in
*.sh) timeout -k 10 "$LIMIT" sh "$suite" "$PROGRAM" >"$log" 2>&1 </dev/null ;;
*) timeout -k 10 "$LIMIT" ${RUN:-} "$suite" >"$log" 2>&1 </dev/null ;;
esac
status=$?
seconds=$(( ($(date +%s%N) - start) / 10000000 ))
counts=$(tail -n 1 "$log" | counts)
named=$(skips <"$log" | wc -l)
why=
case $status:$counts in
124:* | 137:*) why="no end after $LIMIT s" ;;
*:) why="no count, exit status $status" ;;
*:'0 0 0') why="no test" ;;
0:*' 0 '*) [ "${counts##* }" -eq "$named" ] || why="${counts##* } skipped, $named named" ;;
*:*' 0 '*) why="exit status $status" ;;
esac
set_counts $counts
[ -n "$why" ] && f=$((f + 1))
# In one piece: another suite may end at the same time.
report=$(
    printf '%-20s %5d %s  (%d.%02d s)%s\n' "$name" "$p" "$(closing "$p" "$f" "$s" | cut -d' ' -f2-)" \
        $((seconds / 100)) $((seconds % 100)) "${why:+  $why}"
    skips <"$log" | sed "s/^/    SKIPPED $name: /"
    [ "$f" -gt 0 ] && tail -n 40 "$log" | grep -v '^ *SKIPPED ' | sed 's/^/    /'
)
printf '%s\n' "$report"
echo "$p $f $s" >"$LOGS/$name.counts"
