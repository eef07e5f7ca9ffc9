#!/bin/sh
# What README.md claims is so: its loop is part of an example, its counts are those of the library, its
# commands exist. The links of every document lead somewhere, and the files that documents and comments name
# are there.
. tests/support/shell.sh
gs=$1

# ---- the loop: lines of an example, whatever their indentation ----

awk '/^```c$/ { on = 1; next } /^```$/ { exit } on' README.md >"$tmp/loop.c"
part_of()
{
    awk '{ sub(/^ */, "") } NR == FNR { part = part "\n" $0; next } { all = all "\n" $0 }
         END { exit !index(all "\n", part "\n") }' "$1" "$2"
}
check "the loop is that of scaled.c" part_of "$tmp/loop.c" examples/tutorial/scaled.c
check "which is named" grep -q '^The scaler in a training loop, from \[scaled.c\]' README.md
check "twelve lines" test "$(wc -l <"$tmp/loop.c")" -eq 12
check "of 80 columns" not grep -q '.\{81\}' "$tmp/loop.c"

# ---- the counts ----

says() { tr -s '\n ' '  ' <README.md | grep -F -- "$1"; }
cat >"$tmp/size.c" <<'END'
#include <gradscale/scaler.h>
#include <stdio.h>
int main(void)
{
    int presets = 0;
    while (gs_preset_name((size_t)presets))
        presets++;
    printf("A scaler is %d bytes\n%d presets,\n", (int)sizeof(gs_scaler), presets);
    return 0;
}
END
check "a program compiles" ${CC:-gcc} -std=c11 ${SAN:+-fsanitize=$SAN} -Iinclude -o "$tmp/size" "$tmp/size.c" \
    "$BUILD/libgradscale.a" -lm -pthread
"$tmp/size" >"$tmp/sizes"
while read -r line; do
    check "$line" says "$line"
done <"$tmp/sizes"
check "two sizes" test "$(wc -l <"$tmp/sizes")" -eq 2
recorded()
{
    "$gs" replay tests/traces/*.trace | tail -n 1 | sed 's/.* \([0-9]*\)\([0-9]\{3\}\) steps.*/\1,\2 recorded steps/'
}
check "$(recorded)" says "$(recorded)"
for loss in 0.1308 2.3131; do
    check "the loss $loss" grep -q "| $loss |" doc/experiments.md
done

for loss in 0.0435 0.6931; do # which suite_tutorial.sh sees printed
    check "the example's loss $loss" grep -q "^loss $loss: " doc/tutorial.md
    check "is told" says "$loss"
done

# ---- the models: what --model takes is in models.md, and README's row of train names the known ones ----

models=$("$gs" train --help | sed -n 's/^ *--model auto|//p' | tr '|' ' ')
check "there are models" test "$(echo "$models" | wc -w)" -ge 8
for model in $models; do
    check "models.md has $model" grep -qE "^\\|.*\`$model[\` ]" doc/models.md
done
for model in MLP CNN ResNet-18/50 ViT GPT Llama pixels; do
    check "README's train has $model" sh -c "grep '^| .train. | trains' README.md | grep -q '$model'"
done

# ---- the demo, cut short ----

demo() { BUILD=$tmp sh scripts/demo.sh "$gs" --steps 2 --batch 2 --valid-items 2 --quiet; }
check "the demo" demo
[ -e "$tmp/demo/fashion.html" ] ||
    skip "the demo's first part" "Fashion-MNIST is not installed (scripts/deps.sh demo)"
# what the second part is to show, at its full length: it takes less than a second
sed -n '/^awk /,/spiral.csv"$/p; /^ *train --model mlp/,/--no-save/p' scripts/demo.sh | sed 's/^ *train /"$program" train /' >"$tmp/spiral.sh"
check "the machine at work" env program="$gs" out="$tmp" sh "$tmp/spiral.sh"
steps() { grep -c "$1" "$tmp/spiral.jsonl"; } # lines of the log
check "overflows: the batch is retried and applied" test "$(steps '"found_inf":true,.*"verdict":"apply"')" -ge 3
check "the bad batch is skipped, once per epoch" test "$(steps '"verdict":"skip","reason":"forward"')" -eq 14
check "and no other" test "$(steps '"verdict":"skip"')" -eq 14
scales() { sed -n 's/^{"step":[0-9]*,"loss":[^,]*,"scale":\([0-9]*\),.*"reason":"\([a-z]*\)".*/\1 \2/p' "$tmp/spiral.jsonl"; }
moves() { scales | awk 'NR > 1 { up += $1 > last; down += $1 < last } { last = $1 } END { print up, down; exit !(up >= 5 && down >= 1) }'; }
check "the scale grows and backs off" moves
alone() { scales | awk 'bad && $1 < last { print NR; low = 1 } { bad = $2 == "forward"; last = $1 } END { exit low || NR != 600 }'; }
check "a bad batch leaves it alone" alone
check "its picture" grep -q 'title>step 36, scale 2^15: skipped' "$tmp/spiral.html"
check "and its words" grep -q 'skipped 14 of 600 steps (2.3%), all because the loss of their batches was not finite itself, first at step 36' "$tmp/spiral.html"
check "its report" grep -q '</html>' "$tmp/demo/dense/report.html"

# ---- commands ----

documents="README.md CONTRIBUTING.md CHANGELOG.md doc/*.md"
targets() { cat $documents | sed -n 's/^    make \([a-z][a-z_.-]*\).*/\1/p; s/.*`make \([a-z][a-z_.-]*\).*/\1/p' | sort -u; }
for target in $(targets); do
    check "make $target" grep -qE "^([a-z-]+ )*$target( [a-z-]+)*:" Makefile
done
commands() { sed -n 's/^    gradscale \([a-z]*\).*/\1/p; s/.*`gradscale \([a-z][a-z]*\).*/\1/p' README.md | sort -u; }
for command in $(commands); do
    check "gradscale $command" "$gs" "$command" --help
done
options() { grep -oE '^    gradscale [a-z]+ .*|`gradscale [a-z]+ [^`]*' README.md | grep -oE '(gradscale [a-z]+|--[a-z-]+)'; }
option_exists() { "$gs" "$1" --help | grep -qE "^  $2( |\$)"; }
for word in $(options | tr ' ' '/'); do
    case $word in
    gradscale/*) command=${word#*/} ;;
    *) check "$command $word" option_exists "$command" "$word" ;;
    esac
done

# ---- links ----

# Every heading of a document as GitHub spells its anchor.
anchors()
{
    sed -n 's/^##* //p' "$1" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}
leads_somewhere() # DOCUMENT TARGET
{
    path=${2%%#*}
    file=$(dirname "$1")/$path
    [ -z "$path" ] && file=$1
    [ -e "$file" ] || return 1
    case $2 in
    *'#'*) anchors "$file" | grep -qxF -- "${2#*#}" ;;
    esac
}
links=0
for document in $documents; do
    for link in $(grep -oE '\]\([^) ]+\)' "$document" | sed 's/^](//; s/)$//' | grep -v '^[a-z]*:' | sort -u); do
        links=$((links + 1))
        check "$document: $link" leads_somewhere "$document" "$link"
    done
done
check "there are links" test $links -gt 40

# ---- files that are named: in documents, and in the comments of sources ----

# Words in capitals stand for others; dist/ is what make amalgamation makes.
real() { grep -vE 'NAME|LAYER|PREFIX|DIR|^dist/' | sort -u; }
find include examples doc src cli mpi python tests scripts bench .ci -type f | sed 's|^|/|' >"$tmp/tree"
is_there() { grep -q -- "/$(echo "$1" | sed 's/[.]/[.]/g')\$" "$tmp/tree"; } # the end of a path will do
paths() { grep -oE '[A-Za-z0-9_][A-Za-z0-9_/.-]*/[A-Za-z0-9_.-]*\.(c|h|sh|py|awk|conf)\b' | real; }
in_code()
{
    grep -ohE '`(include|examples|doc|src|cli|mpi|python|tests|scripts|bench)/[A-Za-z0-9/._-]*`' "$@" | tr -d '`' | real
}
sources() { find src include cli mpi tests examples bench -name '*.[ch]'; }
comments() { sed '/^ *# *include/d; s/"[^"]*"//g' $(sources); } # what is neither included nor quoted
for file in $(in_code README.md CONTRIBUTING.md doc/*.md); do
    check "$file" test -e "$file"
done
for file in $(cat README.md CONTRIBUTING.md doc/*.md | paths); do
    check "a document names $file" is_there "$file"
done
for file in $(comments | paths); do
    check "a comment names $file" is_there "$file"
done
check "comments name files" test "$(comments | paths | wc -l)" -gt 20
check "a file that is not there" not is_there kernel/optim.h
finish
