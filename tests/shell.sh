# For scripts of checks: `. tests/shell.sh`, then check WHAT COMMAND..., at the end `finish`.
# $tmp is a folder that goes with the script. A check that fails shows the command's output.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0

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

not() { ! "$@"; }

finish()
{
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
