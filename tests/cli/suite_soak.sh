#!/bin/sh
# Train, kill, resume, report for a while: memory and descriptors do not grow (scripts/soak.sh runs for longer).
. tests/support/shell.sh
if ! is_long; then
    skip "the soak" "it is for GS_LONG=1"
elif [ -n "${SAN:-}" ]; then
    skip "the soak" "it measures memory, which sanitizers take"
else
    check "2 minutes of it" scripts/soak.sh "$1" 2 "$tmp/soak"
    cat "$tmp/.check"
fi
finish
