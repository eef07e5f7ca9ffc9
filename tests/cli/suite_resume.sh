#!/bin/sh
# gradscale train --resume: what a run that goes on may change and what it refuses; one folder, two runs.
. tests/support/program.sh
unset NO_COLOR
cp README.md "$tmp/text"
cd "$tmp" || exit 1
gpt="--model gpt --layers 1 --width 16 --heads 2 --context 16 --data text --batch 2 --valid-items 4 --threads 1"

# exits CODE ARGS... : leaves out and err
exits()
{
    want=$1
    shift
    "$gs" train "$@" >out 2>err </dev/null
    code=$?
    echo "gradscale train $*: exit code $code, wanted $want"
    cat out err
    [ $code -eq "$want" ]
}

state() { cat run/* | cksum; }

# refuses MESSAGE ARGS... : of a run that goes on; exit code 2, one line, and nothing has changed
refuses()
{
    message="gradscale: $1"
    shift
    before=$(state)
    exits 2 --resume --checkpoint run "$@" || return 1
    echo "wanted: $message"
    [ ! -s out ] && [ "$(cat err)" = "$message" ] && [ "$(state)" = "$before" ]
}

check "a run" exits 0 $gpt --steps 15 --valid-every 5 --checkpoint run --log run/log
last=run/step-00000015.safetensors

# ---- what is refused ----

# kept OPTION GIVEN HAS
kept()
{
    refuses "--$1 $2 does not go with $last, which has $3: begin a new run for that" --steps 20 --$1 $2
}
check "another model" kept model cnn gpt
check "another precision" kept precision fp32 fp16
check "another mode" kept mode O1 O2
check "another scaler" kept scaler headroom pytorch
check "another optimizer" kept optimizer sgd adamw
check "another rounding of gradients" kept wgrad f32 half
check "another seed" kept seed 7 1
check "another batch" kept batch 4 2
check "another accumulation" kept accumulate 2 1
for size in "layers 2 1" "width 32 16" "heads 1 2" "context 8 16"; do
    check "another $size" kept $size
done
echo "seed = 7" >conf
check "in a config file" refuses "--seed 7 does not go with $last, which has 1: begin a new run for that" --config conf
check "of another model" refuses "--filters is not an option of --model gpt" --filters 2
check "a setting of the scaler" refuses \
    "interval=50 of the scaler does not go with $last, which has 2000: begin a new run for that" --set interval=50
check "what to do on overflow" refuses \
    "on_overflow=retry:3 of the scaler does not go with $last, which has skip: begin a new run for that" \
    --on-overflow retry:3
check "fewer steps than were taken" refuses \
    "$last is at step 15 already: it cannot end at step 10 (--steps or --epochs)" --steps 10
check "in a dry run, too" refuses \
    "$last is at step 15 already: it cannot end at step 10 (--steps or --epochs)" --steps 10 --dry-run

# ---- what may change ----

check "the same options again" exits 0 $gpt --resume --checkpoint run --log run/log --steps 15 --model auto \
    --mode auto --on-overflow skip
check "nothing is told of them" grep -qx 'resumed    after step 15' out
check "others" exits 0 --resume --checkpoint run --steps 18 --lr 0.001 --set eps=1e-6 --dropout 0.1 --threads 2
check "are told of in one line" grep -qxF \
    'resumed    after step 15, with dropout 0.1 (was 0), lr 0.001 (was 0.002), steps 18 (was 15), eps 1e-6 (new)' out
printf 'epochs = 0.01\ncheckpoint = passes\n' >conf
check "epochs of a config file" exits 0 $gpt --config conf
check "once more, over the checkpoint's steps" exits 0 $gpt --config conf --resume
check "and more of them" exits 0 $gpt --config conf --resume --epochs 0.02
check "as the command line has it" grep -q 'steps [0-9]* (was [0-9]*)$' out
cat text >>more
check "of some data" exits 0 $gpt --data more --steps 2 --checkpoint grown
cat text >>more
check "that has grown" exits 0 --resume --checkpoint grown --steps 3
check "is told of" grep -Eqx 'resumed    after step 2, with steps 3 \(was 2\), [0-9]+ items of data \(was [0-9]+\)' out
here=$(awk 'BEGIN { for (i = 0; i < 2000; i++) printf "./" }')
check "options that a checkpoint has no room for" exits 2 $gpt --steps 2 --checkpoint long --name "$here" \
    --log "${here}l" --csv "${here}c" --report "${here}r" --tensorboard "${here}t"
check "are told of" grep -qx 'gradscale: --checkpoint: the options are longer than the 16383 bytes .*' err
check "make no folder for it" test ! -e long -a ! -e t
check "nothing to resume" exits 2 $gpt --resume --checkpoint new --steps 2
check "is told of" grep -q '^gradscale: --resume: new holds neither a checkpoint nor the job.conf of a run' err

# ---- one folder, two runs ----

busy="gradscale: run: another run is writing its checkpoints there"
# second ARGS... : while the first runs
second()
{
    echo old >second.log
    exits 2 --overwrite --log second.log --checkpoint run "$@" || return 1
    [ ! -s out ] && [ "$(cat err)" = "$busy" ] && [ "$(cat second.log)" = old ]
}
# begin ARGS... : in the background; until it has taken a step
begin()
{
    "$gs" train --checkpoint run --log run/log --quiet --steps 1000000 --valid-every 0 --checkpoint-every 0 "$@" &
    first=$!
    until_true grep -qs '^{"step":' run/log
}
rm -rf run
begin $gpt
check "before there is a checkpoint" second $gpt --steps 3
check "with --resume, too" second $gpt --steps 3 --warmup 0 --resume
check "the first goes on" kill -0 $first
kill -INT $first
wait $first
check "a run that has ended holds nothing" exits 0 --resume --checkpoint run --dry-run
: >run/log
begin --resume
check "where there are checkpoints" second $gpt --steps 3
check "with --resume" second --resume
check "a dry run looks on" exits 0 --resume --checkpoint run --dry-run
check "so does report" "$gs" report run/log --output r.html
kill -9 $first
wait $first 2>/dev/null
newest=$(ls run | grep step | sed -n '$s/step-0*\([0-9]*\)\..*/\1/p')
check "kill -9 frees it" exits 0 --resume --checkpoint run --log run/log --schedule constant --steps $((newest + 1))

# A checkpoint that was the newest is soon removed by the run that writes them.
rm -rf run
begin $gpt --schedule constant --checkpoint-every 1 --keep 1
seconds() # N: that come while checkpoints come and go
{
    for i in $(seq "$1"); do
        second --resume || return 1
    done
}
dry_runs() # N: they ask for no lock, and look again
{
    for i in $(seq "$1"); do
        exits 0 --resume --checkpoint run --dry-run || return 1
    done
}
check "while checkpoints come and go" seconds 60
check "a dry run looks on" dry_runs 60
kill -9 $first
wait $first 2>/dev/null

# ---- a reader that goes ----

mkfifo pipe
head -n 1 <pipe >/dev/null &
reader=$!
exec 3>pipe
echo >&3
wait $reader
"$gs" train $gpt --steps 3 >&3 2>err
echo $? >code
exec 3>&-
check "a closed pipe is no crash" test "$(cat code)" -eq 1
check "and needs no word: who closed it has read enough" not grep -q '^gradscale:' err
finish
