# For .ci/run: `step COMMAND...` runs a step and adds to the counts, `finish_steps` prints their sum.
# A skip must be expected. $expected is a table, one kind of skip per line:
#     steps it happens in | "SUITE: WHAT: WHY" of it | a command that is true where it may happen
# The first two are patterns of the shell. Lines that begin with # are comments.
. tests/support/counts.sh
log=$(mktemp)
trap 'rm -f "$log" "$log.skips"' EXIT
passed=0 failed=0 skipped=0

lacks() { for flag; do grep -qw "$flag" /proc/cpuinfo || return 0; done; return 1; } # this CPU, one of them

is_expected() # STEP SKIP
{
    printf '%s\n' "$expected" | sed 's/^ *//; /^#/d; s/ *| */|/; s/ *| */|/2' |
        {
            while IFS='|' read -r steps what holds; do
                case $1 in $steps) ;; *) continue ;; esac
                case $2 in $what) (eval "$holds") </dev/null >/dev/null 2>&1 && exit 0 ;; esac
            done
            exit 1
        }
}

# A step that ends with counts adds them, another one its exit status.
step()
{
    echo "== $*"
    start=$(date +%s)
    { "$@" 2>&1; echo "status $?"; } | tee "$log" | grep -v '^status [0-9]*$'
    counts=$(counts <"$log" | tail -n 1)
    status=$(sed -n 's/^status //p' "$log" | tail -n 1)
    set_counts $counts
    [ -z "$counts" ] && [ "$status" = 0 ] && p=1
    [ "$f" = 0 ] && [ "$status" != 0 ] && f=1
    [ $((p + f + s)) = 0 ] && f=1 # nothing ran
    skips <"$log" >"$log.skips"
    [ "$s" -eq "$(wc -l <"$log.skips")" ] || f=$((f + 1))
    while IFS= read -r skip; do
        is_expected "$*" "$skip" || { f=$((f + 1)) && echo "not expected: $skip"; }
    done <"$log.skips"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    echo "-- $(($(date +%s) - start)) s"
}

finish_steps()
{
    closing $passed $failed $skipped
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
