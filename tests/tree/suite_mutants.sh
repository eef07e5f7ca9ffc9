#!/bin/sh
# The lists of tests/mutants fit the tree: a mutant whose line has changed would test nothing.
. tests/support/shell.sh
mutants=tests/mutants/mutants.sh

check "every entry applies" $mutants --check

# A file, and what is said of a list of these lines: applies LINE..., rotten WHY LINE...
it=$tmp/it.c
printf '%s\n' 'int a = 1;' 'int b = 2;' 'int c = 2;' >"$it"
applies() { printf '%s\n' "$@" >"$tmp/list" && $mutants --check "$tmp/list"; }
rotten() { why=$1; shift; ! applies "$@" >"$tmp/said" && cat "$tmp/said" && grep -qF "$why" "$tmp/said"; }

check "a good list" applies "# why" "$it" "- a = 1" "+ a = 3"
check "a text that is gone" rotten "on 0 lines: a = 7" "$it" "- a = 7" "+ a = 3"
check "a text that is there twice" rotten "on 2 lines: = 2" "$it" "- = 2" "+ = 3"
check "a file that is gone" rotten "none.c is not there" "$tmp/none.c" "- a = 1" "+ a = 3"
check "a text without its replacement" rotten "has no end" "$it" "- a = 1"
check "and before the next entry" rotten "not an entry" "$it" "- a = 1" "" "$it" "- b = 2" "+ b = 3"
check "a replacement without its text" rotten "not an entry" "$it" "+ a = 3"
check "no file" rotten "not an entry" "- a = 1" "+ a = 3"
check "a change that is none" rotten "changes nothing" "$it" "- a = 1" "+ a = 1"
check "one bad of two" rotten "2 entries, 1 rotten" "$it" "- a = 1" "+ a = 3" "" "$it" "- a = 7" "+ a = 3"
finish
