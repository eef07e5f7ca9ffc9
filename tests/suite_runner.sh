#!/bin/sh
# tests/run.sh believes no suite that does not deserve it.
. tests/shell.sh

# A suite with this body, and what the runner says of it: its counts and its exit status.
says()
{
    printf '%s\n' "$1" >"$tmp/suite_it.sh"
    BUILD=$tmp GS_LONG= LIMIT=2 tests/run.sh program "$tmp/suite_it.sh" >"$tmp/run"
    status=$?
    cat "$tmp/run"
    [ "$(tail -n 1 "$tmp/run")" = "$2" ] && [ $status = "$3" ]
}
check "all passed" says 'echo "7 passed, 0 failed"' "7 passed, 0 failed" 0
check "some failed" says 'echo "7 passed, 2 failed"; exit 1' "7 passed, 2 failed" 1
check "some failed, status forgotten" says 'echo "7 passed, 2 failed"' "7 passed, 2 failed" 1
check "none failed, but the status" says 'echo "7 passed, 0 failed"; exit 3' "7 passed, 1 failed" 1
check "no count" says 'echo fine' "0 passed, 1 failed" 1
check "silence" says ':' "0 passed, 1 failed" 1
check "a count, then more" says 'echo "7 passed, 0 failed"; echo oops' "0 passed, 1 failed" 1
check "a crash" says 'echo "7 passed, 0 failed"; kill -SEGV $$' "0 passed, 1 failed" 1
check "no end" says 'sleep 60' "0 passed, 1 failed" 1
check "nothing at all is no success" says 'echo "0 passed, 0 failed"' "0 passed, 0 failed" 1
check "the program's path is given" says '[ "$1" = program ] && echo "1 passed, 0 failed"' "1 passed, 0 failed" 0

# Several are summed.
for i in 1 2 3; do
    echo "echo '$i passed, 0 failed'" >"$tmp/suite_$i.sh"
done
sum() { BUILD=$tmp tests/run.sh x "$tmp"/suite_[123].sh | tail -n 1 | grep -x "6 passed, 0 failed"; }
check "the sum" sum
finish
