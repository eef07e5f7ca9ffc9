# For scripts of checks: `. tests/support/shell.sh`, then check WHAT COMMAND..., at the end `finish`.
# $tmp is a folder that goes with the script. A check that fails shows the command's output. What cannot be
# checked here is named: skip WHAT WHY.
. tests/support/counts.sh
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0 skipped=0

check()
{
    what=$1
    shift
    if "$@" >"$tmp/.check" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $what"
        sed 's/^/  /' "$tmp/.check"
    fi
}

skip()
{
    skipped=$((skipped + 1))
    echo "SKIPPED $1: $2"
}

not() { ! "$@"; }
# until_true COMMAND... : what another process is about to do; a slow machine has 100 s
until_true()
{
    for i in $(seq 2000); do
        "$@" && return 0
        sleep 0.05
    done
    return 1
}
# unsaved ARGS... : --no-save for a call of `gradscale train` that names no folder, which would make one here
unsaved()
{
    case " $* " in
    *' --checkpoint '* | *' --resume '* | *' --no-save '*) ;;
    *) echo --no-save ;;
    esac
}
is_long() { [ "${GS_LONG:-0}" != 0 ]; }

finish()
{
    closing $passed $failed $skipped
    [ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
}
