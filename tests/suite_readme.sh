#!/bin/sh
# What README.md shows is what there is: its program is an example, its output is that program's,
# its commands and files exist.
. tests/shell.sh

# The first program shown, and the indented block after it.
awk '/^```c$/ { on = 1; next } /^```$/ { exit } on' README.md >"$tmp/program.c"
awk '/^```$/ { on = 1; next } on && /^    / { print substr($0, 5); some = 1; next } some { exit }' \
    README.md >"$tmp/output"
same_as_an_example()
{
    for example in examples/*.c; do
        cmp -s "$tmp/program.c" "$example" && return 0
    done
    return 1
}
check "the program is an example" same_as_an_example
check "it is short" test "$(wc -l <"$tmp/program.c")" -le 40
san=${SAN:+-fsanitize=$SAN}
check "it compiles" ${CC:-gcc} -std=c11 -Wall -Wextra -Werror $san -Iinclude -o "$tmp/program" \
    "$tmp/program.c" "$BUILD/libgradscale.a" -lm -pthread
"$tmp/program" | sed 's/ *$//' >"$tmp/printed"
check "it prints what is shown" diff "$tmp/output" "$tmp/printed"

# The demo, cut short.
demo() { BUILD=$tmp sh tools/demo.sh "$1" --steps 2 --batch 2 --valid-items 2 --quiet; }
check "the demo" demo "$1"
check "its report" grep -q '</html>' "$tmp/demo/dense/report.html"

# Commands shown in blocks are targets; files named exist.
targets() { sed -n 's/^    make \([a-z-]*\).*/\1/p; s/.*`make \([a-z-]*\).*/\1/p' README.md | sort -u; }
for target in $(targets); do
    check "make $target" grep -qE "^([a-z-]+ )*$target( [a-z-]+)*:" Makefile
done
for file in $(grep -oE '`(include|examples|doc)/[a-z/._-]*`|`[A-Z]+(\.md)?`' README.md | tr -d '`'); do
    [ "$file" = CC ] || check "$file" test -e "$file"
done
finish
