#!/bin/sh
# What counts tests believes no suite that does not deserve it: tests/support/run.sh, test.h and shell.sh,
# the programs of tests/check, and .ci/step.sh.
. tests/support/shell.sh

# ---- run.sh ----

# says BODY SUM STATUS: the closing line and the exit status of run.sh for a suite with this body
says()
{
    printf '%s\n' "$1" >"$tmp/suite_it.sh"
    BUILD=$tmp LIMIT=2 tests/support/run.sh program "$tmp/suite_it.sh" >"$tmp/run"
    status=$?
    cat "$tmp/run"
    [ "$(tail -n 1 "$tmp/run")" = "$2" ] && [ $status = "$3" ]
}
shows() { grep -xF -- "$1" "$tmp/run"; }
check "all passed" says 'echo "7 passed, 0 failed"' "7 passed, 0 failed" 0
check "some failed" says 'echo "7 passed, 2 failed"; exit 1' "7 passed, 2 failed" 1
check "some failed, status forgotten" says 'echo "7 passed, 2 failed"' "7 passed, 2 failed" 1
check "none failed, but the status" says 'echo "7 passed, 0 failed"; exit 3' "7 passed, 1 failed" 1
check "no count" says 'echo fine' "0 passed, 1 failed" 1
check "half a count" says 'echo " passed, 0 failed"' "0 passed, 1 failed" 1
check "silence" says ':' "0 passed, 1 failed" 1
check "a count, then more" says 'echo "7 passed, 0 failed"; echo oops' "0 passed, 1 failed" 1
check "a crash" says 'echo "7 passed, 0 failed"; kill -SEGV $$' "0 passed, 1 failed" 1
check "no end" says 'sleep 60' "0 passed, 1 failed" 1
check "nothing at all has failed" says 'echo "0 passed, 0 failed"' "0 passed, 1 failed" 1
check "nor are no skips some" says 'echo "0 passed, 0 failed, 0 skipped"' "0 passed, 1 failed" 1
check "the program's path is given" says '[ "$1" = program ] && echo "1 passed, 0 failed"' "1 passed, 0 failed" 0

skip_one='echo "SKIPPED a part: no tool"'
check "a skip" says "$skip_one; echo '7 passed, 0 failed, 1 skipped'" "7 passed, 0 failed, 1 skipped" 0
check "is named, with the reason" shows "    SKIPPED suite_it: a part: no tool"
check "only skips" says "$skip_one; echo '0 passed, 0 failed, 1 skipped'" "0 passed, 0 failed, 1 skipped" 0
check "a skip and a failure" says "$skip_one; echo '1 passed, 2 failed, 1 skipped'; exit 1" \
    "1 passed, 2 failed, 1 skipped" 1
check "a skip is named once" test "$(grep -c SKIPPED "$tmp/run")" = 1
check "a skip without a name" says 'echo "7 passed, 0 failed, 1 skipped"' "7 passed, 1 failed, 1 skipped" 1
check "a name without a count" says "$skip_one; echo '7 passed, 0 failed'" "7 passed, 1 failed" 1
check "a suite of suites" says "echo '    SKIPPED inner: a part: no tool'; echo '7 passed, 0 failed, 1 skipped'" \
    "7 passed, 0 failed, 1 skipped" 0
check "names the inner one" shows "    SKIPPED suite_it: inner: a part: no tool"

# Several are summed; a program that only skips does not hide that nothing ran.
for i in 1 2 3; do
    echo "echo 'SKIPPED $i: why'; echo '$i passed, 0 failed, 1 skipped'" >"$tmp/suite_$i.sh"
done
sum() { BUILD=$tmp tests/support/run.sh x "$tmp"/suite_[123].sh | tail -n 1 | grep -x "6 passed, 0 failed, 3 skipped"; }
check "the sum" sum
none() { BUILD=$tmp tests/support/run.sh x >"$tmp/run"; [ $? = 1 ] && shows "0 passed, 0 failed"; }
check "no suite is no success" none

# GS_LONG=0 and an empty one are not long: a suite of a long run has more time.
mkdir "$tmp/bin"
printf '#!/bin/sh\necho "$3" >"%s"\n' "$tmp/limit" >"$tmp/bin/timeout"
chmod +x "$tmp/bin/timeout"
limit()
{
    (unset LIMIT; PATH=$tmp/bin:$PATH BUILD=$tmp GS_LONG=$1 tests/support/run.sh x "$tmp/suite_1.sh") >"$tmp/run"
    cat "$tmp/run" "$tmp/limit"
    [ "$(cat "$tmp/limit")" = "$2" ]
}
check "GS_LONG=1 is long" limit 1 3600
check "GS_LONG=0 is not" limit 0 600
check "nor is an empty one" limit "" 600

# ---- shell.sh ----

# script BODY SUM STATUS: the same of a script that uses shell.sh
script() { says ". tests/support/shell.sh; $1; finish" "$2" "$3"; }
check "a script" script 'check a true' "1 passed, 0 failed" 0
check "a script that fails" script 'check a false' "0 passed, 1 failed" 1
check "a script that skips" script 'check a true; skip "a part" "no tool"' "1 passed, 0 failed, 1 skipped" 0
check "says what and why" shows "    SKIPPED suite_it: a part: no tool"
check "a script of skips" script 'skip "a part" "no tool"' "0 passed, 0 failed, 1 skipped" 0
check "an empty script" script ':' "0 passed, 1 failed" 1
check "GS_LONG=1 in a script" script 'GS_LONG=1; check a is_long' "1 passed, 0 failed" 0
check "GS_LONG=0 in a script" script 'GS_LONG=0; check a is_long' "0 passed, 1 failed" 1
check "an empty one" script 'GS_LONG=; check a is_long' "0 passed, 1 failed" 1

# ---- test.h ----

cat >"$tmp/it.c" <<'END'
#include "test.h"
static void test_good(void) { CHECK(1); }
static void test_bad(void) { CHECK(0); }
static void test_gone(void) { SKIP("no tool"); CHECK(0); }
static void test_part(void) { CHECK(1); test_skip_part("a part", "no tool"); }
static void test_bad_and_gone(void) { CHECK(0); SKIP("no tool"); }
static void test_is_long(void) { CHECK(test_long()); }
TESTS({"good", test_good}, {"bad", test_bad}, {"gone", test_gone}, {"part", test_part},
      {"bad-and-gone", test_bad_and_gone}, {"long", test_is_long})
END
check "a program of test.h compiles" ${CC:-gcc} -std=c11 -Wall -Wextra -Wpedantic -Werror -Itests/support \
    -o "$tmp/it" "$tmp/it.c"
program() { sum=$1 code=$2; shift 2; says "'$tmp/it' $*" "$sum" "$code"; }
check "a test" program "1 passed, 0 failed" 0 good
check "two" program "1 passed, 1 failed" 1 good bad
check "a skipped one has not passed" program "0 passed, 0 failed, 1 skipped" 0 gone
check "and is named" shows "    SKIPPED suite_it: gone: no tool"
check "a skipped part" program "1 passed, 0 failed, 1 skipped" 0 part
check "is named" shows "    SKIPPED suite_it: a part: no tool"
check "a skip does not hide a failure" program "0 passed, 1 failed, 1 skipped" 1 bad-and-gone
check "no such test" program "0 passed, 1 failed" 1 goood
check "nor beside one that is there" program "1 passed, 1 failed" 1 good goood
check "GS_LONG=1 in a program" says "GS_LONG=1 '$tmp/it' long" "1 passed, 0 failed" 0
check "GS_LONG=0 in a program" says "GS_LONG=0 '$tmp/it' long" "0 passed, 1 failed" 1

# ---- tests/check ----

for name in checkkern checkoptim checkrows; do
    if [ -x "$BUILD/tests/$name" ]; then
        check "$name, a name that is not there" not "$BUILD/tests/$name" nonsense
        check "$name says so" says "'$BUILD/tests/$name' nonsense" "0 passed, 1 failed" 1
    else
        skip "$name" "it is not built with SAN=${SAN:-}"
    fi
done

# ---- .ci/step.sh ----

# steps EXPECTED COMMANDS: the table of skips, then steps as .ci/run has them
steps()
{
    (expected=$1 && . .ci/step.sh && eval "$2" && finish_steps) >"$tmp/run" 2>&1
    status=$?
    cat "$tmp/run"
    [ "$(tail -n 1 "$tmp/run")" = "$3" ] && [ $status = "$4" ]
}
is() { echo "$1"; return "${2:-0}"; }
gone() { echo "    SKIPPED suite_a: $1: no tool"; echo "7 passed, 0 failed, 1 skipped"; }
check "a step that counts" steps "" 'step is "7 passed, 0 failed"' "7 passed, 0 failed" 0
check "steps are summed" steps "" 'step is "7 passed, 0 failed"; step is "1 passed, 2 failed"' "8 passed, 2 failed" 1
check "a step that does not count" steps "" 'step is fine' "1 passed, 0 failed" 0
check "and fails" steps "" 'step is fine 2' "0 passed, 1 failed" 1
check "none failed, but the status" steps "" 'step is "7 passed, 0 failed" 3' "7 passed, 1 failed" 1
check "a step of nothing" steps "" 'step is "0 passed, 0 failed"' "0 passed, 1 failed" 1
check "no step is no success" steps "" : "0 passed, 0 failed" 1
check "an unexpected skip" steps "" 'step gone part' "7 passed, 1 failed, 1 skipped" 1
check "is named" shows "not expected: suite_a: part: no tool"
check "an expected one" steps "gone * | suite_a: part: * | true" 'step gone part' "7 passed, 0 failed, 1 skipped" 0
check "another's" steps "gone * | suite_a: part: * | true" 'step gone rest' "7 passed, 1 failed, 1 skipped" 1
check "in another step" steps "make * | suite_a: part: * | true" 'step gone part' "7 passed, 1 failed, 1 skipped" 1
check "on another machine" steps "gone * | suite_a: * | false" 'step gone part' "7 passed, 1 failed, 1 skipped" 1
check "the second row" steps "gone * | suite_b: * | true
    # a comment
    gone * | suite_a: * | true || false" 'step gone part' "7 passed, 0 failed, 1 skipped" 0
check "one of two" steps "* | *: a: * | true" 'step gone a; step gone b' "14 passed, 1 failed, 2 skipped" 1
check "a skip without a name" steps "* | * | true" 'step is "7 passed, 0 failed, 1 skipped"' \
    "7 passed, 1 failed, 1 skipped" 1

# The table of .ci/run: rows of three columns, for suites that exist.
suites_exist()
{
    grep -v '^#' .ci/skips | cut -d'|' -f2 | sed 's/^ *//; s/:.*//' | grep -v '^\*$' | sort -u >"$tmp/suites"
    while read -r suite; do
        ls tests/*/$suite.* >/dev/null || return 1
    done <"$tmp/suites"
    [ -s "$tmp/suites" ]
}
check "the table's rows" awk -F '|' '!/^#/ { n++; if (NF < 3 || $3 !~ /[^ ]/) exit bad = 1 } END { exit bad || !n }' .ci/skips
check "the table's suites" suites_exist
make() { echo "    SKIPPED suite_install: make install: why"; echo "7 passed, 0 failed, 1 skipped"; }
check "no install, without a sanitizer" steps "$(cat .ci/skips)" 'step make test' "7 passed, 1 failed, 1 skipped" 1
check "no install, with one" steps "$(cat .ci/skips)" 'step make test SAN=thread' "7 passed, 0 failed, 1 skipped" 0
finish
