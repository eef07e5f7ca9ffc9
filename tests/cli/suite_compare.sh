#!/bin/sh
# gradscale compare: its table, JSON and report on small runs; a child that is killed, one that
# fails, an interruption; bad options. With GS_LONG=1 the dense experiment of the README.
. tests/support/shell.sh
gs=$1
unset NO_COLOR

# compares CODE ARGS... : leaves $tmp/out and $tmp/err
compares()
{
    want=$1
    shift
    "$gs" compare "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    echo "gradscale compare $*: exit code $code, wanted $want"
    cat "$tmp/err" "$tmp/out"
    [ "$code" -eq "$want" ]
}

# refuses MESSAGE ARGS... : exit code 2, this one line, and nothing is written
refuses()
{
    message="gradscale: $1"
    shift
    compares 2 --output "$tmp/refused" "$@" || return 1
    echo "wanted: $message"
    [ ! -s "$tmp/out" ] && [ "$(cat "$tmp/err")" = "$message" ] && [ ! -e "$tmp/refused" ]
}

has() { grep -qE -- "$1" "$tmp/out"; }
row() { awk -v name="$1" 'index($0, name "  ") == 1' "$tmp/out"; }
member() { sed -n "s/^ *\"$1\": \(.*[^,]\),*\$/\1/p" "$2"; }
is_json() { awk -f tests/support/json.awk "$@"; }

# ---- a small comparison ----

cat >"$tmp/small.conf" <<'END'
model = fcn
data = shapes
layers = 1
filters = 2
batch = 2
steps = 8
valid-items = 4
END

# Numbers become N, so that the shape is left.
shape() { sed -E 's/[+-]?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?( [kMG]?B?)?x?%?/N/g; s/  +/ /g' "$tmp/out"; }
cat >"$tmp/shape" <<'END'
run train valid vs fp32 accuracy skipped retried underflow items/s memory
END

check "the default set" compares 0 --config "$tmp/small.conf" --output "$tmp/a"
check "its titles" sh -c "head -n 1 '$tmp/out' | tr -s ' ' | cmp - '$tmp/shape'"
check "one row per run, in order" test "$(sed -n '2,7s/  .*//p' "$tmp/out" | tr '\n' ',')" = \
    "fp32,fp16 none,fp16 static:1024,fp16 pytorch,fp16 headroom,bf16 guard,"
check "every cell is a number" sh -c "! sed -n 3,7p '$tmp/out' | grep -E '  -( |\$)|nan|inf'"
check "words" has '^Use '
check "the command that uses it" has "^    gradscale train --config $tmp/a/job.conf --precision (fp32|fp16|bf16) --scaler [a-z]+\$"
train_again() { sh -c "$(sed -n "s|^    gradscale train|'$gs' train|p" "$tmp/out") --quiet --steps 1 --no-save"; }
check "which works" train_again
narrow() { "$gs" compare --config "$tmp/small.conf" --output "$tmp/a" --resume >"$tmp/narrow" && ! grep -v '^    gradscale\|^The report' "$tmp/narrow" | grep '.\{81\}'; }
COLUMNS=80
export COLUMNS
check "80 columns" narrow
unset COLUMNS
check "in two parts" test "$(grep -c '^run ' "$tmp/narrow")" -eq 2
check "where the report lies" has "^The report is $tmp/a/report.html"
check "the report" grep -q '</html>' "$tmp/a/report.html"
check "one log per run" test "$(ls "$tmp/a" | grep -c 'seed-1.jsonl$')" -eq 6

# A run of it is what train does with the same options.
"$gs" train --no-save --config "$tmp/a/job.conf" --precision fp16 --scaler headroom --quiet \
    --log "$tmp/alone.jsonl" >/dev/null
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1"; }
losses "$tmp/alone.jsonl" >"$tmp/alone"
losses "$tmp/a/fp16-headroom-seed-1.jsonl" >"$tmp/among"
check "a run is a train" cmp "$tmp/alone" "$tmp/among"
check "with all its steps" test "$(wc -l <"$tmp/alone")" -eq 8

check "--json, --seeds" compares 0 --config "$tmp/small.conf" --output "$tmp/b" --seeds 2 --seed 7 \
    --json --quiet --runs fp32,bf16,fp16:pytorch:O1:retry:2
cp "$tmp/out" "$tmp/json"
check "--quiet: but --json was asked for" test ! -s "$tmp/err"
check "it is JSON" is_json "$tmp/json"
check "its runs" test "$(member name "$tmp/json" | grep -v conv | tr '\n' ' ')" = \
    '"fp32" "bf16" "fp16 pytorch O1 retry:2" '
check "its seeds" test "$(member seed "$tmp/json" | tr '\n' ' ')" = "7 8 7 8 7 8 "
check "all done" test "$(member ending "$tmp/json" | sort | uniq -c | tr -s ' ')" = ' 6 "done"'
check "its reference" grep -q '"reference": "fp32"' "$tmp/json"
check "a reference is itself" test "$(member ratio_most "$tmp/json" | head -n 1)" = 1
for key in config report runs words headline lost cost use version mean trials bytes layers flushed; do
    check "doc/json-compare.md has $key" grep -q "\`$key\`" doc/json-compare.md
done
check "a table of seeds" compares 0 --config "$tmp/small.conf" --output "$tmp/b" --seeds 2 \
    --runs fp32,bf16
check "has the spread" has '^run  *train  *valid  *least-most'

check "a scale that always overflows" compares 0 --config "$tmp/small.conf" --output "$tmp/b" \
    --runs fp32,fp16:static:1e15 --json
check "skips every step" test "$(member skipped "$tmp/out" | tr '\n' ' ')" = "0 8 "
check "is stuck" test "$(member fate "$tmp/out" | tr '\n' ' ')" = '"fine" "stuck" '
check "and says so" grep -q '"headline": "fp16 static:1e15 failed: all of its 8 steps were skipped' "$tmp/out"
check "--resume does not repeat it" compares 0 --config "$tmp/small.conf" --output "$tmp/b" --resume \
    --runs fp32,fp16:static:1e15
check "nothing was run" test ! -s "$tmp/err"

check "--quiet" compares 0 --config "$tmp/small.conf" --output "$tmp/b" --runs fp32,bf16 --quiet
check "says nothing" test ! -s "$tmp/out" -a ! -s "$tmp/err"
check "and leaves its report" grep -q '</html>' "$tmp/b/report.html"

# The time left, on a terminal: of what is not done, at the pace of what this process has done. The runs
# take about as long as one another, so it falls; a bar that forgets how it began says 0:00 from the second on.
left()
{
    TERM=xterm script -qec "'$gs' compare --config '$tmp/small.conf' --steps 3000 --output '$tmp/g' --runs fp32,fp16:none,bf16" \
        "$tmp/typescript" >/dev/null </dev/null
    tr '\r' '\n' <"$tmp/typescript" | sed -n 's/.*] *\([0-9]*\)%.* \([0-9]*\):\([0-9]*\) left.*/\1 \2 \3/p' >"$tmp/lefts"
    cat "$tmp/lefts"
    # between 34% and 60%: two thirds of the time are left or a little less, of what the whole takes
    awk '$1 > 5 && $1 < 30 && $3 > most { most = $3 } $1 > 36 && $1 < 60 { n++; sum += $3 }
         END { exit !(n > 0 && (most < 3 || sum / n > most / 6)) }' "$tmp/lefts"
}
if command -v script >/dev/null; then
    check "the time left" left
else
    skip "the time left" "there is no script(1)"
fi

# ---- what goes wrong ----

check "one that fails" compares 1 --config "$tmp/small.conf" --output "$tmp/c" --set fail_after=3 \
    --runs fp32,fp16:static:1e15,bf16
check "is named, with the reason" has '^fp16 static:1e15: step 3: '
check "the others are there" test "$(row fp32 | wc -l)$(row bf16 | wc -l)" = 11

# refused_here MESSAGE ARGS... : while another one has $tmp/out and $tmp/err
refused_here()
{
    message="gradscale: $1"
    shift
    said=$("$gs" compare --config "$tmp/small.conf" "$@" 2>&1 </dev/null)
    code=$?
    echo "exit code $code: $said"
    [ $code -eq 2 ] && [ "$said" = "$message" ]
}

# A comparison that takes long enough to be disturbed; its process is $compare.
begin()
{
    "$gs" compare --config "$tmp/small.conf" --output "$1" --steps "$2" --runs fp32,fp16:none,bf16 \
        >"$tmp/out" 2>"$tmp/err" </dev/null &
    compare=$!
}
# A process that ends while the list is read ends cat's file, not the list (awk would stop there).
child() { cat /proc/[0-9]*/stat 2>/dev/null | awk -v parent="$compare" '$4 == parent { print $1 }'; }
has_step() { grep -qs '^{"step":' "$1"; }

begin "$tmp/d" 3000
check "a run begins" until_true has_step "$tmp/d/fp16-none-seed-1.jsonl"
kill -9 $(child)
wait $compare
check "a killed child: exit code 1" test $? -eq 1
check "its run is named" has '^fp16 none: killed by signal 9 \(Killed\) after step [0-9]+'
check "its row is empty" sh -c "grep -q '^fp16 none  *-  *-  *-' '$tmp/out'"
check "the others are there" test "$(row fp32 | grep -c %)$(row bf16 | grep -c %)" = 11

begin "$tmp/e" 100000
check "a run begins" until_true has_step "$tmp/e/fp32-seed-1.jsonl"
check "a second one" refused_here "--output $tmp/e: another comparison is writing there" --output "$tmp/e"
kill -TERM $compare
wait $compare
check "interrupted: exit code 1" test $? -eq 1
check "it says where" has '^fp32: interrupted after step [0-9]+'
check "and what was not begun" has '^2 runs were not begun'
check "no child is left" test -z "$(child)"

check "--resume does the rest" compares 0 --config "$tmp/small.conf" --output "$tmp/d" --steps 3000 \
    --runs fp32,fp16:none,bf16 --resume
check "and nothing else" test "$(cut -d: -f1 "$tmp/err")" = "fp16 none"
check "--resume of nothing" refuses "--resume: $tmp/refused holds no job.conf of a comparison: begin it without --resume" \
    --config "$tmp/small.conf" --runs fp32 --resume
mkdir "$tmp/bare"
check "--resume of a folder that is not a comparison's" compares 2 --config "$tmp/small.conf" --runs fp32 --output "$tmp/bare" --resume
check "leaves it alone" test -z "$(ls "$tmp/bare")"
check "--resume of another job" compares 2 --config "$tmp/small.conf" --output "$tmp/d" --steps 3001 \
    --runs fp32,fp16:none,bf16 --resume
check "is refused" grep -qx "gradscale: --resume: $tmp/d/job.conf is of a job with other options" \
    "$tmp/err"

begin "$tmp/f" 100000
check "a run begins" until_true has_step "$tmp/f/fp32-seed-1.jsonl"
orphan=$(child)
kill -9 $compare
wait $compare 2>/dev/null
# Whoever adopts it may not have buried it yet.
is_dead() { ! grep -qs '^[0-9]* ([^)]*) [^ZX]' "/proc/$1/stat"; }
sleep 0.3
check "a child dies with its parent" is_dead "$orphan"

# ---- bad options ----

check "--runs: precision" refuses \
    "--runs: a run begins with fp32, fp16 or bf16, not with 'fp8'" --runs fp32,fp8
check "--runs: scaler" compares 2 --runs fp16:pytroch
check "--runs: which" grep -q "^gradscale: --runs: unknown scaler 'pytroch'" "$tmp/err"
check "--runs: two scalers" refuses "--runs: 'pytorch' is a second scaler beside 'none'" \
    --runs fp16:none:pytorch
check "--runs: twice" refuses "--runs: 'fp16 none' is there twice" --runs fp16:none,fp16:none
check "--runs: empty" refuses "--runs: an item of the list is empty or too long" --runs fp32,,bf16
check "--runs: an empty word" refuses "--runs: 'fp16::none' has a word that is empty or too long" \
    --runs fp16::none
tiny="--config $tmp/small.conf" # one that is not refused ends soon
check "--runs: a mode of others" refuses \
    "run fp32 O2: --mode O2 is mixed precision: it does not go with --precision fp32" $tiny --runs bf16,fp32:O2
check "--runs: a mode of fp32" refuses \
    "run fp16 O0: --mode O0 is all fp32: it does not go with --precision fp16" $tiny --runs fp32,fp16:O0
check "--runs: how often" refuses "run fp16 retry:0: --on-overflow is \
skip, retry:N with N from 1 to 100, or attribute, not 'retry:0'" $tiny --runs fp32,fp16:retry:0
check "--set of another policy" refuses "run fp16 headroom: --set: interval is not a key of the policy headroom" \
    $tiny --runs fp16:pytorch,fp16:headroom --set interval=50
check "a static scale that f32 does not hold" refuses \
    "run fp16 static:1e300: --scaler static:1e300: gradients are scaled in f32, which holds scales from 2^-126 to 2^127" \
    $tiny --runs fp32,fp16:static:1e300
check "--optimizer" refuses \
    "run fp32: --optimizer: there is no optimizer adamx: sgd, adam, adamw, lamb and adafactor exist" $tiny --optimizer adamx
check "no such data" refuses "--data: $tmp/none: No such file or directory" --data "$tmp/none"
check "data of another model" refuses "--model gpt learns tokens, and shapes is images with a class a pixel" \
    --model gpt --data shapes
check "a model that cannot be" refuses "--heads 3 cannot share --width 16" --model gpt --width 16 --heads 3 \
    --data README.md
check "--seeds" refuses "--seeds must be from 1 to 1000, not 0" --seeds 0
check "an option of train alone" refuses \
    "unknown option --checkpoint: gradscale compare --help lists them" --checkpoint x
check "a config that is not there" refuses "--config: $tmp/none.conf: cannot be opened: No such file or directory" \
    --config "$tmp/none.conf"
echo "lr = banana" >"$tmp/bad.conf"
check "a config that is wrong" refuses "$tmp/bad.conf:1: lr needs a finite number, not 'banana'" \
    --config "$tmp/bad.conf"
echo keep >"$tmp/file"
check "--output is a file" compares 2 --config "$tmp/small.conf" --output "$tmp/file"
check "which stays" grep -qx keep "$tmp/file"
if [ -d /sys/kernel ]; then # nobody may make a file there, though root is told that it may
    check "--output where nobody may" compares 2 --config "$tmp/small.conf" --output /sys/kernel
    check "is told why" grep -Eq '/sys/kernel.*(denied|not permitted)' "$tmp/err"
else
    skip "where nobody may write" "there is no /sys/kernel"
fi

# ---- the dense experiment ----

# Three seeds: without scaling at least 5 times the loss of fp32; with it within 1% of it, the mean
# within 0.3%; bf16 within 2%.
ratios() { member ratio$1 "$tmp/out" | sed -n "$2p"; }
within() { awk -v x="$1" -v least="$2" -v most="$3" 'BEGIN { print x; exit !(x >= least && x <= most) }'; }
if is_long; then
    check "dense" compares 0 --config examples/dense.conf --seeds 3 --output "$tmp/dense" --json \
        --runs fp32,fp16:none,fp16:pytorch,fp16:headroom,fp16:pytorch:attribute,bf16:guard
    check "dense: none fails" within "$(ratios _least 2)" 5 1e30
    for run in 3 4 5; do
        check "dense: run $run, each seed" within "$(ratios _least $run)" 0.99 1.01
        check "dense: run $run, each seed" within "$(ratios _most $run)" 0.99 1.01
        check "dense: run $run, the mean" within "$(ratios '' $run)" 0.997 1.003
    done
    # of each run the mean, then the seeds
    valid() { member valid_loss "$tmp/out" | sed -n "$((4 * $1 - 2))p" | xargs printf '%.4f'; }
    shown() { sed -n "s/^    $1  *[0-9.]*  *\([0-9.]*\) .*/\1/p" README.md; }
    check "README: fp32" test "$(shown fp32)" = "$(valid 1)"
    check "README: none" test "$(shown 'fp16 none')" = "$(valid 2)"
    check "README: pytorch" test "$(shown 'fp16 pytorch')" = "$(valid 3)"
    check "README: headroom" test "$(shown 'fp16 headroom')" = "$(valid 4)"
    check "README: bf16" test "$(shown 'bf16 guard')" = "$(valid 6)"
    check "dense: bf16" within "$(ratios _least 6)" 0.98 1.02
    check "dense: bf16" within "$(ratios _most 6)" 0.98 1.02
else
    skip "the dense experiment" "it is for GS_LONG=1"
fi
finish
