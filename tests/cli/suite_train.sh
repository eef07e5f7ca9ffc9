#!/bin/sh
# gradscale train: its words, its files, what it refuses; runs that are stopped, killed and resumed end
# with the bits of a run that was not.
. tests/support/program.sh
unset NO_COLOR
small="--threads 1 --batch 16 --valid-items 32"

# 400 images of 8 x 8 with labels 0..9, made of what is at hand.
cat src/*/*.c | head -c 25600 >"$tmp/pixels"
{ printf '\0\0\010\003\0\0\001\220\0\0\0\010\0\0\0\010'; cat "$tmp/pixels"; } >"$tmp/small-images-idx3-ubyte"
{
    printf '\0\0\010\001\0\0\001\220'
    i=0
    while [ $i -lt 40 ]; do
        printf '\0\001\002\003\004\005\006\007\010\011'
        i=$((i + 1))
    done
} >"$tmp/small-labels-idx1-ubyte"
{ printf '\0\0\010\003\0\0\001\220\0\0\0\001\0\0\0\001'; head -c 400 "$tmp/pixels"; } >"$tmp/dot-images-idx3-ubyte"
images=$tmp/small-images-idx3-ubyte
mlp="--model mlp --hidden 16 --data $images $small"

# refuses MESSAGE ARGS... : exit code 2, this one line on stderr, nothing on stdout
refuses()
{
    message="gradscale: $1"
    shift
    "$gs" train "$@" $(unsaved "$@") >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    sed "s|$tmp/||g" "$tmp/err" >"$tmp/said"
    echo "gradscale train $*: exit code $code"
    echo "wanted: $message"
    cat "$tmp/said"
    [ $code -eq 2 ] && [ ! -s "$tmp/out" ] && [ "$(cat "$tmp/said")" = "$message" ]
}

# exits CODE ARGS... : leaves $tmp/out and $tmp/err
exits()
{
    want=$1
    shift
    "$gs" train "$@" $(unsaved "$@") >"$tmp/out" 2>"$tmp/err" </dev/null
    code=$?
    echo "gradscale train $*: exit code $code, wanted $want"
    cat "$tmp/out" "$tmp/err"
    [ $code -eq "$want" ]
}

# The losses of a log as they stand, without what a resumed run did again.
losses()
{
    awk '
        { match($0, /"step":[0-9]+/); n = substr($0, RSTART + 7, RLENGTH - 7) + 0 }
        /^{"event":"resume"/ { last = n }
        /^{"step":/ { match($0, /"loss":[^,]*,"scale":[^,]*/); loss[last = n] = substr($0, RSTART, RLENGTH) }
        END { for (n = 1; n <= last; n++) print n, loss[n] }' "$1"
}

# ---- words ----

check "--help" sh -c "'$gs' train --help | diff tests/data/train-help.txt -"
check "--print-config" sh -c "cd '$tmp' && '$gs' train $mlp --name 'a # b' --set eps=1e-6 --set interval=50 --print-config |
    sed 's|$tmp/||' | diff '$PWD/tests/data/train-config.txt' -"
dry()
{
    "$gs" train $mlp --dry-run >"$tmp/dry" && sed "s|$tmp/||; s|^\(time  *about\).*|\1|; s|^\(folder.*\)-20[-0-9]*$|\1|" "$tmp/dry" |
        diff tests/data/train-dry.txt -
}
check "--dry-run" dry
# sum_of LOG: bytes of memory, as its first line has them
sum_of() { sed -n '1s/.*"memory":{\([^}]*\)}.*/\1/p' "$1" | tr ',' '\n' | awk -F: '{ sum += $2 } END { printf "%.1f kB\n", sum / 1e3 }'; }
# 360 images in batches of 80: the fifth step, the last that a dry run takes, has 40.
same_memory()
{
    "$gs" train $mlp --batch 80 --steps 2 --dry-run >"$tmp/dry" && "$gs" train $mlp --batch 80 --steps 2 --no-save --quiet --log "$tmp/memory.jsonl" || return 1
    cat "$tmp/dry"
    sum_of "$tmp/memory.jsonl"
    grep -q "^memory     $(sum_of "$tmp/memory.jsonl"): weights" "$tmp/dry"
}
check "--dry-run: the memory is what the run then has" same_memory
long_step() # a whole one would take a minute or two
{
    "$gs" train --model gpt --data self --layers 2 --width 64 --heads 2 --context 64 --batch 4 --accumulate 8192 --dry-run >"$tmp/dry" || return 1
    tr -s '\n ' '  ' <"$tmp/dry" >"$tmp/line"
    grep -Eq 'worked out from a step of [1-4] items? *$' "$tmp/line" && grep -q 'memory about' "$tmp/line"
}
check "--dry-run of long steps takes a part of one" long_step
check "--dry-run leaves nothing" exits 0 $mlp --dry-run --log "$tmp/dry.jsonl" --checkpoint "$tmp/dry-run"
check "and nothing it left" test ! -e "$tmp/dry.jsonl" -a ! -e "$tmp/dry-run"

# ---- a short run ----

check "a run" exits 0 $mlp --steps 40 --valid-every 15 --log "$tmp/a.jsonl" --csv "$tmp/a.csv" \
    --tensorboard "$tmp/board" --checkpoint "$tmp/a"
cp "$tmp/out" "$tmp/summary"
check "its heading" grep -qx 'model      mlp 8x8x1 hidden=16 classes=10, 1210 weights' "$tmp/summary"
check "its end" grep -Eqx 'done       at step 40 of 40, loss [0-9.]+, [0-9.]+% right.*' "$tmp/summary"
check "its steps" grep -Eqx 'steps      [0-9]+ applied, [0-9]+ skipped, 0 retries; the scale is 2\^1[0-9]' "$tmp/summary"
check "where it lies" grep -qx "saved      $tmp/a/step-00000040.safetensors" "$tmp/summary"
check "validations on stderr" test "$(grep -c '^step [0-9]*: validation loss' "$tmp/err")" -eq 3
check "best and last" test -f "$tmp/a/best.safetensors" -a -f "$tmp/a/step-00000040.safetensors"
check "40 steps in the log" test "$(grep -c '^{"step"' "$tmp/a.jsonl")" -eq 40
check "41 lines of CSV" test "$(wc -l <"$tmp/a.csv")" -eq 41
check "every line is JSON" sh -c "while read -r line; do echo \"\$line\" | awk -f tests/support/json.awk || exit 1; done <'$tmp/a.jsonl'"
check "the first tells of the run" sh -c "head -n 1 '$tmp/a.jsonl' | grep -q '^{\"event\":\"run\",.*\"parameters\":1210,'"
check "the last of the end" sh -c "tail -n 1 '$tmp/a.jsonl' | grep -q '\"status\":\"done\",.*\"data\":.*\"log\":'"
check "replay reads it" sh -c "'$gs' replay --policy pytorch,headroom '$tmp/a.jsonl' | grep -q '^headroom  *40 '"
check "--quiet" exits 0 $mlp --steps 2 --quiet
check "says nothing" test ! -s "$tmp/out" -a ! -s "$tmp/err"

"$gs" train $mlp --steps 40 --print-config >"$tmp/printed"
check "from its printed config" exits 0 --config "$tmp/printed" --log "$tmp/b.jsonl" --valid-every 15
losses "$tmp/a.jsonl" >"$tmp/a.losses"
losses "$tmp/b.jsonl" >"$tmp/b.losses"
check "the same losses" cmp "$tmp/a.losses" "$tmp/b.losses"
check "two threads" exits 0 $mlp --threads 2 --steps 40 --log "$tmp/c.jsonl" --valid-every 15
losses "$tmp/c.jsonl" >"$tmp/c.losses"
check "the same losses on two threads" cmp "$tmp/a.losses" "$tmp/c.losses"
check "a seed makes another run" exits 0 $mlp --seed 2 --steps 40 --overwrite --log "$tmp/c.jsonl" --valid-every 15
losses "$tmp/c.jsonl" >"$tmp/c.losses"
check "with other losses" not cmp -s "$tmp/a.losses" "$tmp/c.losses"

for how in "--precision fp32" "--precision bf16" "--mode O1" "--mode O3 --scaler none" \
    "--scaler headroom" "--scaler static:1024" "--scaler none" "--on-overflow attribute" \
    "--on-overflow retry:3" "--wgrad f32 --loss-weight 0.5" "--optimizer sgd --set momentum=0.9" \
    "--accumulate 3 --clip 1 --schedule onecycle --warmup 3" "--telemetry-every 0"; do
    check "train $how" exits 0 $mlp --steps 4 $how
done
check "epochs" exits 0 $mlp --epochs 0.5 --report "$tmp/r.html"
check "a report" grep -qi '</html>' "$tmp/r.html"
check "is told of" grep -qx "report     $tmp/r.html" "$tmp/out"
check "with its log beside it" grep -q '"event":"end"' "$tmp/r.jsonl"
check "in steps" grep -q '^done       at step 12 of 12,' "$tmp/out"
for model in "cnn --filters 2" "resnet --filters 2"; do
    check "train $model" exits 0 --model $model --data "$images" $small --steps 3
done
check "train fcn" exits 0 --model fcn --filters 2 --batch 2 --valid-items 4 --steps 3 --threads 1
check "train gpt" exits 0 --model gpt --layers 1 --width 16 --heads 2 --context 16 --data README.md \
    --batch 2 --valid-items 4 --steps 3 --threads 1
check "the model that fits the data" sh -c "'$gs' train --data README.md --print-config | grep -qx 'model = gpt'"
check "weights of O3 without scaler are told" sh -c "'$gs' train $mlp --no-save --steps 2 --mode O3 --scaler none 2>&1 >'$tmp/out' | grep -q '^gradscale: --mode O3 with --scaler none: '"
check "and the run goes on" grep -q '^done ' "$tmp/out"
check "early stop" exits 0 $mlp --lr 0 --steps 500 --valid-every 2 --patience 3 --log "$tmp/early.jsonl"
check "says so" grep -q '^early stop at step 8 of 500' "$tmp/out"
check "a batch that fails the run: exit 1" exits 1 $mlp --steps 200 --lr 100000 --optimizer sgd --schedule constant --set fail_after=5
check "is explained" grep -q '^gradscale: step [0-9]*: ' "$tmp/err"
check "a scale that is never right" exits 1 $mlp --steps 9 --scaler static:1e12 --set fail_after=5
check "is explained with the weight's name" grep -q \
    '^gradscale: step 5: layers.0.weight\[[0-9]*\] is infinite at a scale of 1e+12: ' "$tmp/err"

# ---- what is refused ----

check "no such data" refuses "--data: none: No such file or directory" --model mlp --data "$tmp/none"
check "int8" refuses "--precision is one of fp16|bf16|fp32, not 'int8'" --precision int8
check "O0 in fp16" refuses "--mode O0 is all fp32: it does not go with --precision fp16" $mlp --mode O0
check "O2 in fp32" refuses "--mode O2 is mixed precision: it does not go with --precision fp32" $mlp \
    --precision fp32 --mode O2
check "steps and epochs" refuses "--steps and --epochs exclude one another" $mlp --steps 3 --epochs 1
check "epochs without end" refuses "--epochs: shapes is endless, give --steps" --model fcn --epochs 1
check "an option of another model" refuses "--heads is not an option of --model mlp" $mlp --heads 2
check "a task of another model" refuses \
    "--model gpt learns tokens, and small-images-idx3-ubyte is images with a class each" --model gpt --data "$images"
check "hidden" refuses "--hidden needs widths such as 256,128, not '16,x'" $mlp --hidden 16,x
check "a scaler" refuses \
    "--scaler: unknown scaler 'pytroch', did you mean 'pytorch'?" \
    $mlp --scaler pytroch
check "an optimizer" refuses \
    "--optimizer: there is no optimizer adamx: sgd, adam, adamw, lamb and adafactor exist" $mlp --optimizer adamx
check "a setting" refuses "--set: unknown key 'x'; doc/scaler.md and doc/optim.md list them" $mlp --set x=1
check "a setting that is nearly one" refuses "--set: unknown key 'intervall', did you mean 'interval'?" $mlp --set intervall=50
check "of the optimizer" refuses "--set: unknown key 'weight_deacy', did you mean 'weight_decay'?" $mlp --set weight_deacy=0.1
check "of the policy" refuses "--set: unknown key 'marginn', did you mean 'margin'?" $mlp --scaler headroom --set marginn=2
check "a setting's value" refuses "--set: lr=fast: lr must be a number" $mlp --set lr=fast
check "a setting without one" refuses "--set: 'lr' is not key=value" $mlp --set lr
for scale in 1e300 1e39 1e-300; do
    check "static:$scale" refuses "--scaler static:$scale: gradients are scaled in f32, which holds scales from 2^-126 to 2^127" \
        $mlp --scaler static:$scale
done
check "a static scale beyond its bounds" refuses "--scaler static:4096: the bounds that --set gives it, 0.5 to 1024, do not hold it" \
    $mlp --scaler static:4096 --set highest=1024 --set lowest=0.5
check "a static scale within them" exits 0 $mlp --steps 1 --scaler static:512 --set highest=1024
check "a large one in bf16" exits 0 $mlp --steps 1 --precision bf16 --scaler static:1e12
check "images of 1 pixel" refuses \
    "a cnn takes images of 8 by 8 to 65536 by 65536 with 1 to 65536 channels, not 1 by 1 with 1" \
    --model cnn --data "$tmp/dot-images-idx3-ubyte" --labels "$tmp/small-labels-idx1-ubyte" $small
check "one filter" refuses "a cnn has 2 to 65536 filters and 2 to 2^24 classes, not 1 and 10" --data "$images" \
    --filters 1 $small
check "a schedule" refuses "--schedule: schedule=sine: constant, linear, cosine, step and onecycle exist" $mlp --schedule sine
check "a learning rate" refuses "--lr: lr times weight_decay is 10000: weights would change sign" $mlp --lr 1e6
check "what to do" refuses \
    "--on-overflow is skip, retry:N with N from 1 to 100, or attribute, not 'panic'" \
    $mlp --on-overflow panic
check "one file for two" refuses "--log and --csv are the same file" $mlp --log "$tmp/x" --csv "$tmp/x"
check "one file, two names" refuses "--log and --csv are the same file" $mlp --log "$tmp/./x" --csv "$tmp/x"
check "a report over a table" refuses "--report and --csv are the same file" $mlp --csv "$tmp/x" --report "$tmp//x"
check "a report over the run's options" refuses "--report run/job.conf is a file of the run itself: name another one" $mlp --checkpoint "$tmp/run" --report "$tmp/run/job.conf"
check "a table among the checkpoints" refuses "--csv run//best.safetensors is a file of the run itself: name another one" $mlp --checkpoint "$tmp/run" --csv "$tmp/run//best.safetensors"
check "event files in the place of a checkpoint" refuses \
    "--tensorboard run/step-00000003.safetensors is a file of the run itself: name another one" \
    $mlp --checkpoint "$tmp/run" --tensorboard "$tmp/run/step-00000003.safetensors"
check "a log over the data" refuses "--log and --data are the same file" $mlp --log "$images"
check "which stay" test "$(wc -c <"$images")" -eq 25616
check "a checkpoint without UTF-8" refuses \
    "--checkpoint: an option is not valid UTF-8 and cannot be saved: name = a?" \
    $mlp --name "$(printf 'a\377')" --steps 3 --checkpoint "$tmp/latin"
check "makes no folder" test ! -e "$tmp/latin"
check "labels of nothing" refuses "--data: shapes: has no use for labels: it is not a file of IDX or NumPy images" \
    --data shapes --labels "$tmp/small-labels-idx1-ubyte"
check "patience alone" refuses "--patience needs validations: --valid-every is 0" $mlp --patience 2 --valid-every 0
check "resume from nowhere" refuses "--resume needs the folder of the run: --resume DIR" $mlp --resume
check "a folder that is taken" refuses \
    "--checkpoint: a holds checkpoints of a run: add --resume to go on with it, or name another folder" \
    $mlp --checkpoint "$tmp/a" --log "$tmp/untouched.jsonl"
check "before the log is touched" test ! -e "$tmp/untouched.jsonl"
for option in log csv report; do
    check "--$option in no folder" refuses "--$option none/x cannot be written: No such file or directory" \
        $mlp --$option "$tmp/none/x"
    check "--$option is a folder" refuses "--$option a cannot be written: Is a directory" $mlp --$option "$tmp/a"
done
for option in tensorboard checkpoint; do
    check "--$option is a file" refuses "--$option summary cannot be written: Not a directory" \
        $mlp --$option "$tmp/summary"
    check "--$option below a file" refuses "--$option summary/x cannot be written: Not a directory" \
        $mlp --$option "$tmp/summary/x"
done
check "none of it has made a file" refuses "--csv none/x cannot be written: No such file or directory" \
    $mlp --log "$tmp/untouched.jsonl" --checkpoint "$tmp/untouched" --csv "$tmp/none/x"
check "nor a folder" test ! -e "$tmp/untouched.jsonl" -a ! -e "$tmp/untouched"
if [ -d /sys/kernel ]; then # nobody may make a file there, though root is told that it may
    for option in log tensorboard checkpoint; do
        check "--$option where nobody may" exits 2 $mlp --steps 1 --$option /sys/kernel/none
        check "is told why" grep -Eq '/sys/kernel/none.*(denied|not permitted)' "$tmp/err"
    done
else
    skip "where nobody may write" "there is no /sys/kernel"
fi
{
    printf '\210\330\064\001\001\000\000\000\062\000\000\000' # 50 tokens, all beyond the vocabulary
    head -c 1012 /dev/zero
    head -c 100 /dev/zero | tr '\0' '\377'
} >"$tmp/wide.bin"
check "tokens of another vocabulary" exits 2 --data "$tmp/wide.bin" --context 4 --layers 1 --width 16 --heads 2 \
    --batch 2 --steps 3 --threads 1
check "are told of" grep -Eq 'wide.bin: token [0-9]+ is 65535: the vocabulary has 50257$' "$tmp/err"
dashed() { cd "$tmp" && refuses "--$1 - is no name of a file or folder here: write ./- if it is meant" $mlp --steps 1 --$1 -; }
for option in log csv report tensorboard checkpoint; do
    check "--$option -" eval "(dashed $option)"
done
check "leaves nothing" test ! -e "$tmp/-"
check "no steps" refuses "--steps must be from 1 to 1000000000000, not 0" $mlp --steps 0
if [ -w /dev/full ]; then
    check "a full disk: the run goes on, exit 1" exits 1 $mlp --steps 5 --log /dev/full --csv "$tmp/full.csv"
    check "and is told of once" test "$(grep -c '^gradscale: /dev/full: writing failed' "$tmp/err")" -eq 1
    check "with the other log whole" test "$(wc -l <"$tmp/full.csv")" -eq 6
    check "which is listed" grep -qx "csv        $tmp/full.csv" "$tmp/out"
    check "and the first is not" not grep -q '^log ' "$tmp/out"
else
    skip "a full device" "there is no /dev/full"
fi

# Files of at most a few blocks: the log is given up at one line, no checkpoint gets in, all of it is told.
full_disk()
{
    mkdir -p "$tmp/tight"
    (ulimit -f 8 && cd "$tmp/tight" && exec "$gs" train $mlp --steps 60 --valid-every 10 --checkpoint run \
        --log log --csv csv) >"$tmp/out" 2>"$tmp/err"
    code=$?
    cat "$tmp/out" "$tmp/err"
    [ $code -eq 1 ] && grep -q '^gradscale: log: writing failed: File too large: the run goes on' "$tmp/err" &&
        grep -q '^gradscale: csv: writing failed: File too large: the run goes on' "$tmp/err" &&
        ! grep -q '^log \|^csv ' "$tmp/out" &&
        grep -q '^gradscale: a checkpoint could not be written: .*: the run goes on, and it is tried again$' "$tmp/err" &&
        grep -q '^gradscale: the last checkpoint could not be written: ' "$tmp/err" &&
        [ "$(tail -c 2 "$tmp/tight/log")" = '}' ] && [ "$(ls "$tmp/tight/run")" = job.conf ]
}
check "a full disk" full_disk

# ---- config files ----

# bad TEXT MESSAGE: what printf makes of the text is refused
bad() { printf "$1" >"$tmp/conf" && refuses "$2" --config "$tmp/conf"; }

check "unknown key" bad 'steps = 3\n\nstpes = 4\n' "conf:3: unknown key 'stpes', did you mean 'steps'?"
check "a value out of range" bad 'batch = 0\n' "conf:1: batch must be from 1 to 1048576, not 0"
check "no number" bad '# x\nsteps = many' "conf:2: steps needs a whole number from 1 to 1000000000000, not 'many'"
check "no equals" bad 'steps 3\n' "conf:1: 'steps 3' is not of the form key = value"
check "no key" bad ' = 3\n' "conf:1: '= 3' is not of the form key = value"
check "no value" bad 'steps =   # none\n' "conf:1: steps needs a value (N), not an empty one"
check "twice" bad 'seed = 1\nset = lr=1\nset = eps=0\nseed = 1\n' "conf:4: 'seed' was already set on line 1"
check "of the command line" bad 'resume = yes\n' "conf:1: resume is for the command line alone"
check "a choice" bad 'precision = int8\n' "conf:1: precision is one of fp16|bf16|fp32, not 'int8'"
check "quotes" bad 'name = "a\nseed = 1\n' "conf:1: the quotes of name do not end its line"
check "behind quotes" bad 'name = "a" b\n' "conf:1: the quotes of name do not end its line"
check "binary" bad 'seed = 1\n\001\n' "conf:2: byte 0x01 in it: this is not a text file"
check "a NUL" bad 'seed = 1\000\n' "conf:1: byte 0x00 in it: this is not a text file"
long=$(awk 'BEGIN { for (i = 0; i < 5000; i++) printf "a" }')
check "a long value" bad "name = $long\n" "conf:1: the value of name is longer than 4095 bytes"
head -c 1100000 /dev/zero | tr '\0' '#' >"$tmp/conf"
check "a large file" refuses "--config: conf: larger than 1048576 bytes: this is no config file" --config "$tmp/conf"
check "no file" refuses "--config: none: cannot be opened: No such file or directory" --config "$tmp/none"
check "a folder" refuses "--config: a: Is a directory" --config "$tmp/a"
printf '\357\273\277steps = 7\r\n\tseed=3 # x\nname = "q\\"\\\\n#"\n\nset = eps=1e-5\ndata = %s' "$images" >"$tmp/conf"
"$gs" train --config "$tmp/conf" --seed 4 --set eps=1e-4 --print-config >"$tmp/printed"
check "the command line wins" grep -qx 'seed = 4' "$tmp/printed"
check "in lists too" test "$(grep '^set' "$tmp/printed")" = 'set = eps=0.0001' -o "$(grep '^set' "$tmp/printed")" = 'set = eps=1e-4'
check "quotes survive" grep -qxF 'name = q"\n#' "$tmp/printed"
# kept NAME: what printf makes of it is read as it was written
kept()
{
    "$gs" train $mlp --name "$(printf "$1.")" --print-config >"$tmp/kept" &&
        "$gs" train --config "$tmp/kept" --print-config | diff "$tmp/kept" -
}
for name in 'a\001b' '\033[31mred' 'a\177b' 'a\nb' 'a\rb' '\rb' 'a\tb' '"' '\\"' 'a\\' 'a\\x41' '# a' 'a # b' ' a' '='; do
    check "a name as $name" kept "$name"
done
check "epochs win over steps" sh -c "'$gs' train --config '$tmp/conf' --epochs 2 --print-config | grep -qx 'steps = 6'"

# ---- stopped and resumed ----

# In folders of their own, so that they name the same files and can be compared byte by byte.
job="$mlp --steps 120 --valid-every 25 --checkpoint-every 10 --quiet"
files="--checkpoint run --log run/log --csv run/csv"
train_in() { (mkdir -p "$tmp/$1" && cd "$tmp/$1" && shift && exec "$gs" train "$@"); }

train_in whole $job $files
losses "$tmp/whole/run/log" >"$tmp/whole/losses"
last=run/step-00000120.safetensors

# same FOLDER: ended as the run that was not stopped
same()
{
    losses "$tmp/$1/run/log" | diff "$tmp/whole/losses" - && cmp "$tmp/whole/$last" "$tmp/$1/$last" &&
        cmp "$tmp/whole/run/best.safetensors" "$tmp/$1/run/best.safetensors" || return 1
    cut -d, -f1-11 "$tmp/whole/run/csv" >"$tmp/columns"
    cut -d, -f1-11 "$tmp/$1/run/csv" | cmp "$tmp/columns" -
}

# stop SIGNAL CODE: after some steps
stop()
{
    rm -rf "$tmp/stop"
    mkdir "$tmp/stop"
    (cd "$tmp/stop" && exec "$gs" train $job $files) &
    pid=$!
    while ! grep -qs '^{"step":5,' "$tmp/stop/run/log"; do sleep 0.002; done
    kill -"$1" $pid
    wait $pid
    code=$?
    echo "exit code $code"
    [ $code -eq "$2" ] || [ $code -eq 0 ] # 0: it was faster than the signal
}
for signal in "INT 130" "TERM 143" "HUP 129"; do
    check "SIG$signal" stop $signal
    check "resume" train_in stop --resume --checkpoint run --quiet
    check "the same bits" same stop
done
# A step of minutes: the first signal waits for its end, the second does not.
stop_twice()
{
    "$gs" train --model gpt --layers 8 --width 256 --heads 4 --batch 64 --data README.md --threads 1 \
        --telemetry-every 0 --checkpoint "$tmp/twice" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    while ! grep -qs '^training ' "$tmp/out"; do sleep 0.02; done
    sleep 0.2
    kill -TERM $pid
    sleep 0.1
    kill -0 $pid || return 1
    kill -TERM $pid
    wait $pid
    code=$?
    cat "$tmp/out" "$tmp/err"
    [ $code -eq 143 ] && ! grep -q '^interrupted' "$tmp/out"
}
check "a second signal" stop_twice
check "37 steps" train_in cut $job $files --steps 37 --warmup 6 --set total=120
check "83 on two threads" train_in cut --resume --checkpoint run --steps 120 --threads 2 --quiet
losses "$tmp/cut/run/log" >"$tmp/cut/losses"
check "the same losses" cmp "$tmp/whole/losses" "$tmp/cut/losses"
mkdir -p "$tmp/fresh/run"
train_in fresh $job $files --print-config >"$tmp/fresh/run/job.conf"
check "options, and no checkpoint yet: from the beginning" train_in fresh --resume --checkpoint run --quiet
check "the same bits" same fresh
cp -r "$tmp/whole" "$tmp/finished"
check "a finished run has nothing to do" train_in finished --resume --checkpoint run --quiet
check "and leaves it so" cmp "$tmp/whole/$last" "$tmp/finished/$last"

# Damaged checkpoints are still a run's: it is neither begun again over them, nor are they removed.
damaged()
{
    (cd "$tmp/damaged" && refuses "$1" $mlp --steps 3 --checkpoint run $2 && [ ! -s run/step-00000120.safetensors ])
}
mkdir -p "$tmp/damaged/run"
: >"$tmp/damaged/run/step-00000120.safetensors"
check "all damaged: resume" damaged "run: none of its 1 checkpoints is intact: run/step-00000120.safetensors: is empty" --resume
check "all damaged: begin" damaged \
    "--checkpoint: run holds checkpoints of a run: add --resume to go on with it, or name another folder"
check "a run to stop early" train_in early $mlp --lr 0 --steps 50 --valid-every 2 --patience 3 --checkpoint run --quiet
check "stays stopped" train_in early --resume --checkpoint run --quiet
check "at its step" test "$(ls "$tmp/early/run" | grep step | tail -n 1)" = step-00000008.safetensors

# A log that nobody reads holds the run where it opens it: its options are there already.
early_options()
{
    mkfifo "$tmp/pipe"
    "$gs" train $mlp --steps 2 --quiet --log "$tmp/pipe" --checkpoint "$tmp/held" </dev/null &
    until_true test -s "$tmp/held/job.conf"
    kill -9 $! && ! wait $! && [ -s "$tmp/held/job.conf" ]
}
check "options before the log" early_options

# kill -9 at random moments: there is always a checkpoint once there was one, and the end is the same.
# Leaks are looked for in the last run alone: a search whose process is killed complains.
kills=200
is_long && kills=2000
[ -n "${SAN:-}" ] && kills=20
go_on() { [ ! -e "$tmp/killed/run/job.conf" ] || echo --resume; }
kill_often()
{
    awk -v n=$kills 'BEGIN { srand(7); for (i = 0; i < n; i++) printf "0.%03d\n", 3 + int(rand() * 60) }' >"$tmp/delays"
    rm -rf "$tmp/killed"
    mkdir "$tmp/killed"
    : >"$tmp/killed.err"
    seen=no rounds=0
    while read -r delay; do
        (cd "$tmp/killed" && ASAN_OPTIONS=detect_leaks=0 exec "$gs" train $job $files $(go_on) 2>>"$tmp/killed.err") &
        pid=$!
        sleep "$delay"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        code=$?
        ls "$tmp"/killed/run/step-*.safetensors >"$tmp/there" 2>/dev/null && seen=yes
        if [ $seen = yes ] && [ ! -s "$tmp/there" ]; then
            echo "no checkpoint is left"
            return 1
        fi
        if [ $code -eq 0 ]; then # it ended: judge it, and begin another
            rounds=$((rounds + 1))
            same killed || return 1
            rm -rf "$tmp/killed"
            mkdir "$tmp/killed"
            seen=no
        elif [ $code -ne 137 ]; then
            echo "exit code $code"
            cat "$tmp/killed.err"
            return 1
        fi
    done <"$tmp/delays"
    cat "$tmp/killed.err"
    [ ! -s "$tmp/killed.err" ] || return 1
    train_in killed $job $files $(go_on) || return 1
    [ -n "${SHOW:-}" ] && echo "$rounds rounds before the last" >&3
    same killed
}
check "killed $kills times" kill_often

# ---- TensorBoard's own reader, where it is installed ----

cat >"$tmp/read.py" <<'END'
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
loss, valid = events.Scalars("loss"), events.Scalars("valid/accuracy")
assert [e.step for e in loss] == list(range(1, 41)), loss
assert [e.step for e in valid] == [15, 30, 40], valid
rows = [line.split(",") for line in open(sys.argv[2])][1:]
for row, event in zip(rows, loss):
    assert abs(float(row[1]) - event.value) <= 1e-6 * abs(event.value), (row, event)
END
if python3 -c 'import tensorboard' 2>/dev/null; then
    check "TensorBoard reads it" python3 "$tmp/read.py" "$tmp/board" "$tmp/a.csv"
else
    skip "TensorBoard's own reader" "Python has no module tensorboard"
fi
# ---- logs of earlier runs ----

check "a log" exits 0 $mlp --steps 3 --quiet --log "$tmp/kept.jsonl" --csv "$tmp/kept.csv"
cp "$tmp/kept.jsonl" "$tmp/kept.copy"
check "is not overwritten" refuses \
    "--log: kept.jsonl is there already: name another file, or add --overwrite to begin it anew" \
    $mlp --steps 3 --log "$tmp/kept.jsonl"
check "a report, with its log" exits 0 $mlp --steps 3 --quiet --report "$tmp/page.html"
check "is called by what was given" refuses \
    "--report: its log page.jsonl is there already: name another file, or add --overwrite to begin it anew" \
    $mlp --steps 3 --report "$tmp/page.html"
check "nor a table" refuses \
    "--csv: kept.csv is there already: name another file, or add --overwrite to begin it anew" \
    $mlp --steps 3 --csv "$tmp/kept.csv"
check "they stay" cmp "$tmp/kept.copy" "$tmp/kept.jsonl"
check "a dry run writes none" exits 0 $mlp --steps 3 --dry-run --log "$tmp/kept.jsonl"
check "--overwrite" exits 0 $mlp --steps 2 --quiet --overwrite --log "$tmp/kept.jsonl" --csv "$tmp/kept.csv"
check "begins it anew" test "$(grep -c '^{"step":' "$tmp/kept.jsonl")" -eq 2
check "--log to a device" exits 0 $mlp --steps 2 --quiet --log /dev/null

# ---- the folder of a run that names none ----

mkdir "$tmp/home"
at_home() { (cd "$tmp/home" && exec "$gs" train $mlp --steps 20 "$@" >"$tmp/out" 2>"$tmp/err"); }
only() { [ "$(ls -d "$tmp/home/runs/$1"*)" = "$(ls -d "$tmp/home/runs/$1"* | head -n 1)" ] && ls -d "$tmp/home/runs/$1"*; }
check "runs/NAME-DATE" at_home
folder=$(only mlp-fp16-pytorch-20)
name=runs/$(basename "$folder")
check "is named" grep -qx "folder     $name" "$tmp/out"
check "has options, log, report, the newest three and the best" test "$(ls "$folder" | tr '\n' ' ')" = \
    "best.safetensors job.conf log.jsonl report.html step-00000016.safetensors step-00000018.safetensors \
step-00000020.safetensors "
check "which are told of" test "$(grep -cE "^(log|report|saved|disk) .*$name" "$tmp/out")" -eq 4
check "its options name it" grep -qx "checkpoint = $name" "$folder/job.conf"
check "and its log" grep -qx "log = $name/log.jsonl" "$folder/job.conf"
# what the heading says of the disk is no less than what is there
at_most()
{
    said=$(sed -n 's/^disk  *up to \([0-9.]*\) kB: 4 checkpoints of .*/\1/p' "$tmp/out")
    is=$(du -cb "$folder"/*.safetensors | awk 'END { print $1 / 1000 }')
    echo "$said kB, and it is $is kB" && awk "BEGIN { exit !($said >= $is && $said < 2 * $is) }"
}
check "the disk that it takes" at_most
check "--resume DIR" sh -c "cd '$tmp/home' && '$gs' train --resume '$name' --steps 30 >'$tmp/out' 2>'$tmp/err'"
check "goes on" grep -q '^done       at step 30 of 30' "$tmp/out"
check "with its log" test "$(grep -c '^{"step"' "$folder/log.jsonl")" -eq 30
check "and its report" grep -qx "report     $name/report.html" "$tmp/out"
check "a folder that has moved" sh -c "mv '$folder' '$tmp/moved' && '$gs' train --resume '$tmp/moved' --steps 31 --quiet &&
    grep -q '\"step\":31' '$tmp/moved/log.jsonl'"
check "a name of one's own" at_home --name 'My ../Run: 2' --quiet
check "becomes a name of a folder" only My-Run-2-20
check "--checkpoint: no other folder" sh -c "cd '$tmp/home' && rm -rf runs && exec '$gs' train $mlp --steps 2 --checkpoint own --quiet"
check "there is none" test ! -e "$tmp/home/runs" -a ! -e "$tmp/home/own/log.jsonl"
check "--no-save" at_home --no-save
check "nor one" test ! -e "$tmp/home/runs"
check "which is told nothing of" not grep -qE '^(folder|disk|saved|log|report) ' "$tmp/out"
check "--dry-run, --print-config, and what is refused" sh -c "cd '$tmp/home' && '$gs' train $mlp --dry-run >'$tmp/out' &&
    '$gs' train $mlp --print-config >'$tmp/printed' && ! '$gs' train $mlp --init none 2>/dev/null"
check "make none" test ! -e "$tmp/home/runs"
check "a dry run says what it would take" grep -q '^disk       up to ' "$tmp/out"
check "a printed config names none" not grep -qE '^(checkpoint|log|report) =' "$tmp/printed"
check "two at once" sh -c "cd '$tmp/home' && for i in 1 2 3; do '$gs' train $mlp --steps 2 --name same --quiet & done; wait"
check "have a folder each" test "$(ls -d "$tmp/home/runs/same-"*/report.html | wc -l)" -eq 3
check "a log of one's own: no report beside it" at_home --quiet --log own.jsonl --name logged
check "it is the log" sh -c "test -s '$tmp/home/own.jsonl' && ! ls '$tmp'/home/runs/logged-*/log.jsonl 2>/dev/null"
check "contradictions" refuses "--no-save and --checkpoint exclude one another" $mlp --no-save --checkpoint "$tmp/none"
check "a folder without --resume" refuses "'none' is one argument too many: gradscale train --help shows the usage" $mlp none
rm -rf "$tmp/home/runs" && echo >"$tmp/home/runs"
check "runs is a file" not at_home
check "is told, with what to do" grep -qxE "gradscale: runs/mlp-fp16-pytorch-[-0-9]* cannot be made for this run: Not a directory: \
name a folder with --checkpoint, or add --no-save" "$tmp/err"
interrupt_home()
{
    rm -f "$tmp/home/runs"
    (cd "$tmp/home" && exec "$gs" train $mlp --steps 1000000 >"$tmp/out" 2>"$tmp/err") &
    pid=$!
    until_true grep -qs '^folder ' "$tmp/out"
    kill -INT $pid
    wait $pid
    [ $? -eq 130 ] && grep -q "^go on      gradscale train --resume runs/mlp-fp16-pytorch-" "$tmp/out"
}
check "a run that is interrupted says how to go on" interrupt_home

# ---- a dry run of a large model ----

large()
{
    "$gs" train --model gpt --layers 12 --width 768 --heads 12 --context 1024 --batch 1 --data README.md --dry-run \
        >"$tmp/large" 2>"$tmp/err" &
    pid=$!
    until_true grep -qs '^training ' "$tmp/large"
    grep -q '^memory ' "$tmp/large" && echo "the weights came first"
    kill -KILL $pid
    wait $pid 2>/dev/null
    cat "$tmp/large" "$tmp/err"
    ! grep -q '^memory ' "$tmp/large" && ! grep -q '^disk ' "$tmp/large"
}
check "says what it is before it makes the weights" large

check "a dry run" exits 0 $mlp --steps 20 --dry-run
check "keeps to 79 columns" not grep -qE '.{80}' "$tmp/out"
check "a run of many steps, whose best was early" exits 0 $mlp --steps 2000 --batch 1 --lr 0.05 --valid-every 500
check "names it" grep -qE '^best       [0-9.]+% right at step [0-9]+$' "$tmp/out"
check "in 79 columns, too" not grep -qE '^(model|done|best|steps|bad loss|speed) .{74}' "$tmp/out"
# of equal validations the earliest is the best, and it stays so when the run goes on
best_is() # STEP
{
    python3 -c '
import json, struct, sys
raw = open(sys.argv[1] + "/best.safetensors", "rb").read()
texts = json.loads(raw[8:8 + struct.unpack("<Q", raw[:8])[0]])["__metadata__"]
assert texts["step"] == texts["best_step"] == sys.argv[3], texts
best = [l["step"] for l in map(json.loads, open(sys.argv[2])) if l.get("event") == "valid" and l["best"]]
assert best == [int(sys.argv[3])], best' "$tmp/ties" "$tmp/ties.jsonl" "$1"
}
check "validations that are equal" exits 0 $mlp --lr 0 --steps 6 --valid-every 2 --checkpoint "$tmp/ties" --log "$tmp/ties.jsonl"
check "of which the first is the best" best_is 2
check "and which go on" exits 0 --resume "$tmp/ties" --log "$tmp/ties.jsonl" --steps 10
check "keep it" best_is 2
printf 'east,north,arm\n' >"$tmp/rows.csv"
awk -v OFS=, 'BEGIN { for (i = 0; i < 40; i++) print i / 40, i % 7, i % 2 }' >>"$tmp/rows.csv"
check "rows for a model of text" exits 2 --model gpt --data "$tmp/rows.csv"
check "are called rows" grep -q 'learns tokens, and .*rows.csv is rows of numbers with a class each$' "$tmp/err"
check "--resume FILE" exits 2 --resume "$tmp/rows.csv"
check "asks for the folder" grep -q 'rows.csv is a file$' "$tmp/err"

# ---- runs that come to nothing ----

check "every step is skipped" exits 1 $mlp --steps 20 --scaler static:1e15 --log "$tmp/stuck.jsonl"
check "it says so" grep -qx 'gradscale: the run came to nothing: 0 of 20 steps were applied, and step 1 was the first to be skipped' "$tmp/err"
check "in its summary" grep -q '^stuck      at step 20 of 20' "$tmp/out"
check "in its log" grep -q '"status":"stuck"' "$tmp/stuck.jsonl"
check "with a checkpoint" exits 1 $mlp --steps 20 --scaler static:1e15 --quiet --checkpoint "$tmp/stuck"
check "--resume, at its end" exits 1 --resume --checkpoint "$tmp/stuck"
check "says so again" grep -qx 'gradscale: the run came to nothing: 0 of 20 steps were applied' "$tmp/err"
check "20 good steps" exits 0 $mlp --steps 20 --set interval=20 --set growth=1e20 --quiet --checkpoint "$tmp/last"
check "--resume: one is left, and skipped" exits 0 --resume --checkpoint "$tmp/last" --steps 21
check "it is" grep -q '^steps      20 applied, 1 skipped' "$tmp/out"
check "a loss that is not finite" exits 1 $mlp --steps 20 --precision fp32 --scaler none --optimizer sgd --lr 1e6 --clip 0 \
    --log "$tmp/nan.jsonl" --valid-every 5
check "it says so" grep -qE '^gradscale: the run came to nothing: the loss is not finite, first at step [0-9]+$' "$tmp/err"
check "and where: the log agrees" test "$(sed -n 's/.*first at step //p' "$tmp/err")" = \
    "$(sed -n 's/^{"step":\([0-9]*\),"loss":null.*/\1/p' "$tmp/nan.jsonl" | head -n 1)"
check "in its log" grep -q '"status":"diverged"' "$tmp/nan.jsonl"
check "with checkpoints" exits 1 $mlp --steps 20 --precision fp32 --scaler none --optimizer sgd --lr 1e6 --clip 0 \
    --checkpoint "$tmp/nan" --quiet
check "--resume, at its end" exits 1 --resume --checkpoint "$tmp/nan" --log "$tmp/nan/log"
check "is diverged, not done" grep -q '^diverged   at step 20 of 20' "$tmp/out"
check "and says so" grep -qx 'gradscale: the run came to nothing: the loss is not finite' "$tmp/err"
check "--resume, with a step left" exits 1 --resume --checkpoint "$tmp/nan" --steps 21
check "does not say that it began there" grep -qx 'gradscale: the run came to nothing: the loss is not finite' "$tmp/err"
check "a good run, at its end" exits 0 --resume --checkpoint "$tmp/last"
check "is done, with its loss" grep -qE '^done       at step 21 of 21, loss [0-9.]+, [0-9.]+% right' "$tmp/out"
check "NaN has no sign, and is no number" not grep -q 'loss -*nan' "$tmp/err"
check "NaN is never the best" not grep -q '"loss":null,.*"best":true' "$tmp/nan.jsonl"

# ---- what is not text ----

printf '\211PNG\r\n\032\n\000\000\000\rIHDR' >"$tmp/x.png"
check "one picture is no data set" refuses "--data: x.png: is one image, without a class" --data "$tmp/x.png"
printf '\177ELF\002\001\001\000\000\000' >"$tmp/x.txt"
check "a program is no text" refuses "--data: x.txt: is binary, and of no format that is read: IDX or CIFAR images, \
.npy, .npz, tokens of llm.c or nanoGPT (.bin), CSV, text, or a folder of PNG, JPEG or text" --data "$tmp/x.txt"

finish
