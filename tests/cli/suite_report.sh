#!/bin/sh
# gradscale report: the page of good logs, and that bad ones cost a note or an error message.
. tests/support/shell.sh
program=$1
page=$tmp/page.html

log() { set -- "$@" && out=$1 && shift && awk "$@" -f tests/support/log.awk /dev/null >"$tmp/$out.jsonl"; }

# page NAME...: the logs make a page in order.
page()
{
    for name; do
        shift
        set -- "$@" "$tmp/$name.jsonl"
    done
    rm -f "$page"
    "$program" report --output "$page" "$@" && awk -f tests/support/html.awk "$page"
}

# refuses WORDS COMMAND...: exit code 2, nothing on stdout, one line on stderr with these words.
refuses()
{
    words=$1
    shift
    "$program" report "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
    cat "$tmp/err"
    [ $code -eq 2 ] && [ ! -s "$tmp/out" ] && [ "$(wc -l <"$tmp/err")" -eq 1 ] &&
        grep -qF -- "$words" "$tmp/err"
}

has() { grep -qF -- "$1" "$page"; }
says() # WORDS: the verdict, without its tags
{
    sed -n '/<section class="verdict"/,/<\/section>/p' "$page" | sed 's/<[^>]*>/ /g; s/  */ /g' >"$tmp/words"
    cat "$tmp/words"
    grep -qF -- "$1" "$tmp/words"
}

# ---- one run ----
log one -v name="one run" -v precision=fp16 -v scaler=pytorch -v scale=16 -v underflow=0.02 -v skip=20 -v again=15
check "one run" page one
for part in '<title>one run</title>' 'lang="en"' 'name="viewport"' 'prefers-color-scheme:dark' '@media print' \
    'class="skip"' '>Training loss<' '>Validation loss<' '>Validation accuracy<' '>Scale of the loss<' \
    '>Largest gradient times scale<' '>FP16: 65504<' '>Norm of the gradients<' '>Learning rate<' '>Gradients that underflowed to zero<' '>By layer<' '>Where the gradients lie<' '>Items per second<' \
    '>Where the time went<' '>Bytes by use<' '>Settings<' '<details class="numbers">' \
    'step 20, scale 2^16: skipped' 'step 15, scale 2^16: retried' 'fc1.weight' '>FP16<' '>BF16<' \
    'class="band s0"' '>pytorch</td>' 'cpu test'; do
    check "it has $part" has "$part"
done
check "what underflowed" says "one run 2% of the non-zero gradients underflowed to zero"
check "and where" says "fc1.weight (2%) and"
check "what it cost" says "skipped 2 of 40 steps (5%) and retried 2 batches"
check "nothing to compare with" says "no other run to compare it with"
check "its tables have the steps" has '<th scope="row">40</th>'
rows_of() { awk -v id="$1-t" 'index($0, "aria-labelledby=\"" id) { on = 1 } on && /<th scope="row">/ { print $0 } on && /<\/table>/ { exit }' "$page" | sed 's/.*"row">\([0-9]*\)<.*/\1/'; }
check "a scale that stands has as many rows as others" test "$(rows_of scale | sort -u | wc -l)" -eq 12
check "a pointer is told the step of the validation it is near" test -z "$(awk '/aria-labelledby="valid-t/ { on = 1 } on && /<title>step/ && !/step [1-4]0:/ { print } on && /<\/table>/ { exit }' "$page")"

# ---- several ----
log fp32 -v name=fp32 -v precision=fp32
log none -v name="fp16 none" -v precision=fp16 -v underflow=0.7 -v loss=1
log dynamic -v name="fp16 pytorch" -v precision=fp16 -v scaler=pytorch -v loss=0.1002 -v scale=12 -v rate=1500
check "three runs" page fp32 none dynamic
check "the worst is the headline" says "fp16 none had 70% of its non-zero gradients underflow to zero and ended at 10 times the loss of fp32"
check "the cost" says "fp16 pytorch ended within 0.2% of fp32"
check "the choice" says "fp16 pytorch ended at a loss 0.2% above that of fp32, in 83.3% of its memory, at 1.5 times its speed"
check "one seed" says "With one seed each"
check "settings that differ are marked" grep -q '<tr class="differs"><th scope="row">scaler' "$page"
check "others are not" not grep -q '<tr class="differs"><th scope="row">seed' "$page"
check "a run without underflow has no map" has "No gradient underflowed in any layer of fp32, fp16 pytorch"
check "dashes tell the runs apart" has '.d1.line{stroke-dasharray'
log same -v name="fp16 none" -v precision=fp16 -v underflow=0.0002 -v loss=0.1001
check "two that are alike" page fp32 same
check "it says so" says "It made no difference: all came within 0.1% of fp32"
awk '/"step":21,/ { exit } 1' "$tmp/fp32.jsonl" >"$tmp/half.jsonl"
check "one alone, half way" page half
check "stands, and has not ended" says "fp32 stands at a validation loss of"
log near -v name="bf16 guard" -v precision=bf16 -v scaler=guard -v loss=0.098
check "two percent, with one seed" page fp32 near
check "are no equality" says "All came within 2% of fp32"
check "for they decide" says "Ruled out by loss: fp32"
log better -v name="bf16 guard" -v precision=bf16 -v scaler=guard -v loss=0.05
check "half of the loss of fp32" page fp32 better same
check "is a difference" says "bf16 guard ended at a loss 50% below that of fp32"
check "and no equality" not says "It made no difference"
awk '/"step":21,/ { exit } 1' "$tmp/same.jsonl" >"$tmp/half.jsonl"
check "one that is half way" page fp32 half
check "is compared at the same step" says "It made no difference: all came within 0.1% of fp32"
check "and said to go on" says "1 of the runs has not ended"
awk '/"step":21,/ { exit } 1' "$tmp/none.jsonl" >"$tmp/half.jsonl"
check "a bad one" page fp32 half
check "stands where it does" says "10 times the loss of fp32 after as many steps"
check "without fp32" page none dynamic
check "the best is the measure" says "ended best of these; there is no fp32 run to compare them with"
for seed in 1 2 3; do
    log a$seed -v name="fp32 seed $seed" -v seed=$seed -v loss=0.$seed
    log b$seed -v name="fp16 seed $seed" -v precision=fp16 -v seed=$seed -v loss=0.${seed}03
done
check "several seeds" page a1 a2 a3 b1 b2 b3
check "one line a job, with a band" test "$(grep -c 'class="band s[03]"' "$page")" -ge 4
lines_of() { awk -v id="$1-t" 'index($0, "aria-labelledby=\"" id) { on = 1 } on && /<path class="line/ { n++ } on && /<details/ { exit } END { print n }' "$page"; }
check "two jobs, two lines" test "$(lines_of train)$(lines_of valid)" = 22
check "it says so, in each chart" test "$(grep -c 'over seeds, which the bands span' "$page")" -ge 3
check "of steps that are shown one by one" has "Means over seeds, which the bands span."
check "are judged seed by seed" says "fp16 ended within 1.8% of fp32"
check "and more than one" not says "With one seed each"
for seed in 1 2 3; do
    log e$seed -v name="fp16 seed $seed" -v precision=fp16 -v seed=$seed -v underflow=0.0$seed
done
check "underflow of several seeds" page a1 e1 e2 e3
check "is their mean, in all and by layer" says "fp16 2% of the non-zero gradients underflowed to zero when stored, most of all in fc1.weight (2%) and fc2.weight (1%)"
for seed in 1 2 3; do # 0.1, 0.2 and 0.3, and four times as much
    log c$seed -v name=dynamic -v precision=fp16 -v scaler=pytorch -v seed=$seed -v loss=0.$seed
    log d$seed -v name=plain -v precision=fp16 -v seed=$seed -v loss=$(awk "BEGIN { print 0.4 * $seed }")
done
check "seeds without fp32" page c1 c2 c3 d1 d2 d3
check "are measured by the best job, seed by seed" says "plain ended at a validation loss of 0.8003, 4 times the loss of dynamic (0.2001), seed by seed."
check "and are not called one" not says "With one seed each"
check "its runs are told apart" has "plain seed 3</th>"
check "its underflow, norm and speed have one line a job" test "$(lines_of underflow)$(lines_of norm)$(lines_of rate)" = 222
check "runs of one name and seed" page fp32 fp32
check "are told apart by their files" has "fp32, fp32.jsonl"
awk '/"event":"valid"/ { next } { gsub(/"loss":[0-9.e-]*/, "\"loss\":null") } 1' "$tmp/none.jsonl" >"$tmp/nan.jsonl"
check "a loss that is not finite" page fp32 nan
check "is the headline" says "fp16 none failed: its loss is not finite at the end, first at step 1"
awk '/"event":"valid"/ { next } /"step":(3[1-9]|40),/ { sub(/"loss":[0-9.e-]*/, "\"loss\":null") } 1' "$tmp/none.jsonl" >"$tmp/late.jsonl"
check "from some step on" page late
check "names it" says "fp16 none failed: its loss is not finite at the end, first at step 31"
# dots_of ID: dots and marks of skipped steps in a chart.
dots_of() { awk -v id="$1-t" 'index($0, "aria-labelledby=\"" id) { on = 1 } on && /class="dot s/ { n++ } on && /<\/table>/ { exit } END { print n + 0 }' "$page"; }
log early -v name=early -v precision=fp16 -v scaler=none -v steps=100
awk '/"event":"valid"/ { next } /"step":([2-9]|[1-9][0-9]|100),/ { sub(/"loss":[0-9.e-]*/, "\"loss\":null") } 1' "$tmp/early.jsonl" >"$tmp/second.jsonl"
check "from the second step on" page second
check "its chart ends before" not has "step 2: early"
check "a point that stands alone is seen" test "$(dots_of train)" -eq 1
log tiny -v name=tiny -v precision=fp16 -v scaler=pytorch -v scale=16 -v underflow=0.0000005
check "a share below 0.0001% is no tag" page tiny
log stuck -v name="fp16 static:1e15" -v precision=fp16 -v scaler=static:1e15 -v skip=1
sed '/"step":[2-4][0-9]*,/s/"found_inf":false/"found_inf":true/; /"layers","step":[2-4]0/s/"flushed":[0-9.]*/"flushed":0/g' "$tmp/none.jsonl" >"$tmp/bad.jsonl"
check "gradients that are not finite, and applied" page bad
check "tell nothing of the underflow of a layer" says "most of all in fc1.weight (70%) and fc2.weight (35%)"
sed '/"exponents","step":40/s/"counts":\[[0-9,]*\]/"counts":[]/' "$tmp/none.jsonl" >"$tmp/bad.jsonl"
check "a last histogram without a finite value" page bad
check "leaves the one before it" has "step 30, scale"
check "nothing was applied" page fp32 stuck
check "is the headline" says "fp16 static:1e15 failed: all of its 40 steps were skipped, from step 1 on"
check "and no choice" says "Ruled out by failure: fp16 static:1e15"
check "not one of them" says "fp16 static:1e15 applied no step."
sed 's/"underflow":[0-9.e-]*/"underflow":null/' "$tmp/stuck.jsonl" >"$tmp/blind.jsonl"
check "its underflow" page fp32 none blind
check "is not known, telemetry or not" says "fp16 static:1e15 not known: no step that it applied has telemetry"
check "alone" page stuck
check "a scale that moves" says "A scale that moves"
check "alone, without a share of underflow" page blind
check "layers that were seen at skipped steps only" not has "No gradient underflowed in any layer"
check "are told from no telemetry" says "Not known: no step that was applied has telemetry of gradients"
sed 's/"underflow":[0-9.e-]*/"underflow":null/' "$tmp/fp32.jsonl" >"$tmp/plain.jsonl"
check "a run in fp32" page plain
check "fp32 alone" says "Underflow None: in fp32 no gradient is stored in half."
check "has half before it" says "gradscale compare would tell what fp16 and bf16 make of it"
check "and no headroom in FP16" has "No run here stores gradients in FP16."

# ---- batches whose loss is not finite are skipped, and no scale is to blame ----
bad_batches() { sed '/"verdict":"skip"/{s/"loss":[0-9.e-]*/"loss":null/;s/"reason":"none"/"reason":"forward"/}' "$tmp/$1.jsonl" >"$tmp/forward.jsonl"; }
log bad -v name="fp16 pytorch" -v precision=fp16 -v scaler=pytorch -v scale=16 -v skip=8
bad_batches bad
check "bad batches" page forward
check "are the headline" says "fp16 pytorch skipped 5 batches whose loss was not finite, first at step 8"
check "without underflow" says "None of the non-zero gradients underflowed to zero when stored"
sed -i '/"event":"valid"/d' "$tmp/forward.jsonl"
check "the last batch is one, and there is no validation" page forward
check "is no failure" not says "failed"
log lost -v name="fp32 guard" -v precision=fp32 -v scaler=guard -v skip=1
bad_batches lost
check "none but bad batches" page forward
check "at a fixed scale" not says "A scale that moves"
check "ask for another rate" says "No other scale: none mends a loss that is not finite before it is scaled, as it first was at step 1"
sed '/"event":"valid"/s/"loss":[0-9.e-]*/"loss":null/' "$tmp/fp32.jsonl" >"$tmp/never.jsonl"
check "a validation loss that never was finite" page never
check "is in the logs" has "It was never finite."
{ cat tests/logs/megatron.log; grep 'iteration        1/' tests/logs/megatron.log | sed 's|iteration        1/|iteration       13/|'; } |
    grep -v validation >"$tmp/megatron.jsonl"
check "Megatron-LM logs no loss of a skipped step" page megatron
check "the last one is no failure" says "ended at a training loss of 9.000"
check "its advice is no option of ours" says "the policy headroom keeps its distance"
log longer -v name="bf16 guard" -v precision=bf16 -v scaler=guard -v steps=80
check "jobs that are not the same" page fp32 longer
check "are told of" says "The runs differ in more than precision and scaler: steps. Their losses may differ for that."
check "jobs that are" page fp32 near
check "are not" not says "The runs differ in more"

# ---- which to use: what matters more comes first ----
log big32 -v name=fp32 -v precision=fp32 -v bytes=2000
log cheap -v name="fp16 none" -v precision=fp16 -v underflow=0.07 -v loss=0.1005 -v rate=1300
log fixed -v name="fp16 static:1024" -v precision=fp16 -v scaler=static:1024 -v underflow=0.001 -v loss=0.1 -v rate=1400
log torch -v name="fp16 pytorch" -v precision=fp16 -v scaler=pytorch -v underflow=0.002 -v loss=0.1003
log brain -v name="bf16 guard" -v precision=bf16 -v scaler=guard -v loss=0.1002 -v rate=1010
check "speed is no excuse for underflow" page fp32 cheap torch
check "use the robust one" says "What to use fp16 pytorch ended at a loss 0.3% above"
check "why not the fast one" says "by underflow: fp16 none"
check "a dynamic scale before a fixed one" page fp32 fixed torch
check "use the dynamic one" says "What to use fp16 pytorch"
check "why" says "by a scale that is fixed or not checked: fp16 static:1024"
check "memory before speed" page fp32 brain
check "use half" says "What to use bf16 guard ended at a loss 0.2% above that of fp32, in 83.3% of its memory, as fast"
check "the command" says "gradscale train ... --precision bf16 --scaler guard"
log fast -v name="fp16 headroom" -v precision=fp16 -v scaler=headroom -v underflow=0.002 -v loss=0.1004 -v rate=2000
check "speed, where all else is equal" page torch fast
check "decides" says "Ruled out by speed: fp16 pytorch"
for run in torch fast fp32; do
    sed '/"event":"end"/s/"seconds":1.5/"seconds":0.02/' "$tmp/$run.jsonl" >"$tmp/short-$run.jsonl"
done
check "speed over a moment" page short-torch short-fast
check "does not" says "Ruled out by a loss that is higher within the noise: fp16 headroom"
check "beside fp32" page short-fp32 short-torch
check "it is not told" says "after too short a time to tell its speed"
check "no gain" page big32 brain
check "is no reason" says "What to use fp32 none of the others gains enough"
log slim -v name=fp32 -v precision=fp32 -v bytes=500
check "fp32 that is smaller" page slim cheap brain torch
check "is the one" says "What to use fp32 none of the others gains enough to give it up"
check "with its command" says "gradscale train ... --precision fp32 --scaler none"
check "one seed is told" says "With one seed each, a difference of a percent may be chance, and counts as equal."
for seed in 1 2 3; do
    log n$seed -v name="fp32 seed $seed" -v seed=$seed -v loss=0.1$seed
    log o$seed -v name="bf16 seed $seed" -v precision=bf16 -v scaler=guard -v seed=$seed -v loss=0.1${seed}03
    log p$seed -v name="fp16 seed $seed" -v precision=fp16 -v scaler=pytorch -v seed=$seed -v loss=0.1${seed}031 -v rate=2000
done
check "a loss beyond the noise" page n1 n2 n3 o1 o2 o3 p1 p2 p3
check "of the seeds" says "Between the 3 seeds the losses vary: what differs by less than 0.05% counts as equal"
check "rules out" says "Ruled out by loss: bf16 and fp16"
sed 's/"loss":[0-9.e-]*/"loss":-1/' "$tmp/fp32.jsonl" >"$tmp/negative.jsonl"
sed 's/"loss":[0-9.e-]*/"loss":-2/; s/fp32/fp16/g' "$tmp/fp32.jsonl" >"$tmp/below.jsonl"
check "losses below zero" page negative below
check "are not measured by ratios" says "a loss that cannot be compared with that of fp32"
many=$(for i in $(seq 40); do echo one; done)
check "forty runs" page $many
check "its title" "$program" report --output "$page" --title "A <b> & 'c'" "$tmp/one.jsonl"
check "is escaped" has '<h1>A &lt;b&gt; &amp; &#39;c&#39;</h1>'

# ---- what is drawn ----
labels() # ID: those of the y axis
{
    awk -v id="$1-t" 'index($0, "aria-labelledby=\"" id) { on = 1 } on && /text-anchor="end"/ { sub(/.*text-anchor="end">/, ""); sub(/<.*/, ""); print } on && /^<svg width/ { exit }' "$page"
}
log narrow -v name=narrow -v precision=fp16 -v flat=1 -v underflow=0.01234 -v rate=1234567
check "a loss that hardly moves" page narrow
for id in train rate underflow; do
    check "$id: labels differ" test "$(labels $id | sort | uniq -d | wc -l)" -eq 0
    check "$id: and are there" test "$(labels $id | wc -l)" -ge 2
done
y_of() { labels "$1" | grep '[.e]'; }
awk '{ sub(/"lr":0.1/, "\"lr\":" 0.0000028 * NR) } 1' "$tmp/one.jsonl" >"$tmp/slow.jsonl"
check "a small learning rate" page slow
check "labels are written alike: $(y_of lr | tr '\n' ' ')" test "$(y_of lr | grep -c e-)" -eq 0 -a "$(y_of lr | awk '{ print length }' | sort -u | wc -l)" -eq 1
log two -v name=two -v steps=2
check "two steps" page two
grep 'y="260"' "$page" >"$tmp/x"
check "have an axis" test -s "$tmp/x"
check "are whole ones" not grep -qE 'text-anchor="(middle|end)">[0-9]+\.[0-9]+</text>' "$tmp/x"
check "x axes say step" has '>step</text>'
many=$(for i in $(seq 12); do echo one; done)
check "twelve runs" page $many
styles() { grep -oE '<path class="line s[0-9]+ d[0-9]+"' "$page" | sort -u | wc -l; }
check "differ in colour or dash" test "$(styles)" -eq 12
log spike -v name=spike -v steps=2000 -v spike=1500 -v bare=1
check "a spike" page spike
check "is in the band" test "$(labels train | awk '$1 >= 4' | wc -l)" -ge 1

# A pointer shows the values of all runs at a step, without a script.
check "several runs" page fp32 dynamic
check "values under the pointer" grep -qE '<rect class="hit".*<title>step [0-9]+: fp32 [0-9.]+: fp16 pytorch [0-9.]+</title>' "$page"

# ---- a page that follows ----
awk '/"step":21,/ { exit } 1' "$tmp/one.jsonl" >"$tmp/live.jsonl"
"$program" report --live 0.2 --output "$tmp/live.html" "$tmp/live.jsonl" >"$tmp/out" &
live=$!
until_true test -s "$tmp/live.html"
check "a run that goes on" grep -q '<meta http-equiv="refresh" content="1"/>' "$tmp/live.html"
check "is written again" kill -0 $live
cp "$tmp/one.jsonl" "$tmp/live.jsonl"
wait $live
check "until it has ended" test $? -eq 0
check "with all of it" grep -q '<th scope="row">40</th>' "$tmp/live.html"
check "and is left alone" not grep -q 'http-equiv' "$tmp/live.html"
check "its path is told once" test "$(wc -l <"$tmp/out")" -eq 1

# ---- what is missing is said to be ----
log blind -v name=blind -v blind=1 -v bare=1 -v skip=20
check "no loss in the log" page blind
check "is not a loss that is not finite" not says "finite"
check "but said" says "The loss is not in the logs"
check "with what there is" says "blind.jsonl skipped 2 of 40 steps (5%)"
log bare -v bare=1
check "steps only" page bare
check "its name is the file's" has '<h1>bare.jsonl</h1>'
check "no telemetry" says "Not known"
check "no validation" says "goes by the training loss"
check "whether it has ended is not told" not says "ended: this is how things stand"
head -n 1 "$tmp/one.jsonl" >"$tmp/begun.jsonl"
check "no step yet" page begun
check "it says so" says "No step has been logged yet"
check "with one that has steps" page begun one
echo '{"step":1}' >"$tmp/least.jsonl"
check "a step and nothing else" page least
echo '{"event":"end"}' >"$tmp/end.jsonl"
check "an end and nothing else" page end
echo '{"event":"of another version","x":[{}]}' >"$tmp/newer.jsonl"
check "an event that is not known" page newer

# ---- logs of other frameworks ----
foreign() { "$program" report --output "$page" "tests/logs/$1" && awk -f tests/support/html.awk "$page"; }
check "Megatron-LM" foreign megatron.log
check "its validation" says "megatron.log ended at a validation loss of 8.500"
check "its skips" says "skipped 3 of 12 steps (25%)"
check "what it was read as" has "6 lines, read as Megatron-LM"
sed "s/ lm loss:/ lm_loss:/; /validation/d" tests/logs/megatron.log >"$tmp/neox.log"
check "GPT-NeoX" "$program" report --output "$page" "$tmp/neox.log"
check "its loss" says "neox.log ended at a training loss of 9.000"
check "DeepSpeed" foreign deepspeed.log
check "its skips" says "deepspeed.log skipped 2 of 20 steps (10%)"
check "no loss is no loss that is not finite" not says "finite"
check "nor in the table" not has "<td>not finite</td>"
check "DeepSpeed without ZeRO" foreign deepspeed-fused.log
check "an overflow is one, whoever tells it" says "deepspeed-fused.log skipped 2 of 20 steps (10%)"
check "at its iteration" has "step 6, scale 2^15: skipped"
check "the scale it grew to" has '<td>2<sup>15</sup></td>'
check "DeepSpeed's pipeline" foreign deepspeed-pipeline.log
check "its loss" says "ended at a training loss of 3.250"
check "of the steps that it is of" has "step 10: deepspeed-pipeline.log 4.5"
check "its skips" says "skipped 1 of 20 steps (5%)"
at='[2026-01-01 00:00:01,000] [INFO]'
printf '%s\n' "$at [loss_scaler.py:153:update_scale] [Rank 0] [deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated." \
    "$at [loss_scaler.py:263:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step." "$at [x] [Rank 0] step=10, skipped=2, lr=[0.1], mom=[0.9]" >"$tmp/static.log"
check "DeepSpeed with a static scale" "$program" report --output "$page" "$tmp/static.log"
check "its skips" says "static.log skipped 2 of 10 steps (20%)"
printf '%s\n' "$at [fused_optimizer.py:426:_update_scale] Grad overflow on iteration: 3" \
    "$at [fused_optimizer.py:427:_update_scale] Using static loss scale of: 128.0" "$at [x] [Rank 0] step=10, skipped=1, lr=[0.1], mom=[0.9]" >"$tmp/static.log"
check "without ZeRO" "$program" report --output "$page" "$tmp/static.log"
check "its skips" says "static.log skipped 1 of 10 steps (10%)"
check "and its scale" has "step 4, scale 2^7: skipped"
for i in $(seq 20); do
    echo "[Rank 0] step=$((i * 900000)), skipped=0, lr=[0.1], mom=[0.9]"
done >"$tmp/leaps.log"
check "a few lines that claim millions of steps" "$program" report --output "$page" "$tmp/leaps.log"
check "get no memory for them" test "$(sed -n 's/.*leaps.log<\/th><td>\([0-9]*\)<.*/\1/p' "$page")" -le 3000000
check "Apex" foreign apex.log
check "its skips" says "apex.log skipped 3 steps; how many it applied is not in the log"
check "is not stuck" not says "failed"
check "where its skips lie is not in the log" has "it tells of steps that were skipped, not how many were applied between and after them"
sed 's/loss scaler 0 //' tests/logs/apex.log >"$tmp/apex.log"
check "Apex's FP16_Optimizer" "$program" report --output "$page" "$tmp/apex.log"
check "its skips" says "apex.log skipped 3 steps; how many it applied is not in the log"
check "steps are no fewer than it tells" has "<td>2003 or more</td>"
check "fairseq" foreign fairseq.log
check "its numbers" says "ended at a validation loss of 13.25"
check "its skips" says "skipped 2 of 9 steps"
sed '/NOTE/d' tests/logs/fairseq.log >"$tmp/fairseq.log"
check "fairseq without its notes" "$program" report --output "$page" "$tmp/fairseq.log"
check "a scale that fell tells of a skip" says "skipped 1 of 8 steps"
check "at the scale that overflowed" has "step 3, scale 2^6: skipped"
check "Lightning" foreign lightning.csv
check "its numbers" says "ended at a validation loss of 1.500"
check "its steps" has '<td>149</td>'
check "its accuracy" has '<td>62.5%</td>'
check "skips that it does not tell are not 0" grep -q '<td>62.5%</td><td>–</td><td>–</td><td>–</td><td>–</td>' "$page"
check "the learning rate of any optimizer" sh -c "sed 's/lr-AdamW/lr-Lion-momentum,lr-Lion/; 2,\$s/^\([0-9]*\),/\1,0.9,/' tests/logs/lightning.csv >'$tmp/lion.csv' &&
    '$program' report --output '$page' '$tmp/lion.csv'"
check "is not its momentum" has "step 49: lion.csv 0.001"
check "Hugging Face" foreign trainer_state.json
check "its numbers" says "ended at a validation loss of 2.125"
check "one logged step in ten is no share of all steps" says "skipped 1 of the 3 steps in the log (33.3%)"
check "and asks for no other scale" not says "overflows less often"
check "the scale alone" foreign scale.jsonl
check "tells of skips" says "skipped 2 of 5 steps"
check "and not whether it has ended" not says "has not ended"
check "nor in the table" not has " so far</td>"
check "several, one without a loss" "$program" report --output "$page" tests/logs/megatron.log tests/logs/lightning.csv tests/logs/deepspeed.log
check "which is said of that one" says "deepspeed.log tells nothing of its loss."
check "whether they are of one job is not known" says "losses compare only between runs of one job"
check "colours of a map that is not there are not explained" not has '<i class="heat h1">'
check "is not called a loss that is not finite" not says "not finite"
check "nor a failure" says "by a loss that is not in the log: deepspeed.log"
check "the others' losses are in the logs" not says "The loss is not in the logs"
check "with one that tells of its underflow" "$program" report --output "$page" "$tmp/one.jsonl" tests/logs/megatron.log tests/logs/deepspeed.log tests/logs/lightning.csv
check "what is known is said of that one" says "one run 2% of the non-zero gradients underflowed"
check "what is not, of the others" says "megatron.log and deepspeed.log not known: no step that they applied has telemetry."
check "and why" says "lightning.csv not known: its log has no telemetry."
check "a run without a line has no marks" test "$(dots_of stored)" -eq 2
check "a skip before the first gradient that is finite" sh -c "sed 's/\"amax\":0.5/\"amax\":0/; /\"step\":3[0-9]/s/\"amax\":0/\"amax\":0.5/' '$tmp/one.jsonl' >'$tmp/later.jsonl'"
check "is in the chart" page later
check "at its step" grep -q 'Steps 20 to 40, 1 line' "$page"
set --
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do
    cp tests/logs/megatron.log "$tmp/m$i.log"
    set -- "$@" "$tmp/m$i.log"
done
check "more than a dozen with skips" "$program" report --output "$page" "$@"
check "are all named" says "m13.log and m14.log skipped or retried steps as well."
log faint -v name=faint -v precision=fp16 -v scaler=pytorch -v scale=16 -v underflow=0.00002
check "next to no underflow, and one that does not tell" "$program" report --output "$page" "$tmp/faint.jsonl" tests/logs/megatron.log
check "names whose it is" says "faint next to none: 0.002% of the non-zero gradients"
grep -v '"eval_loss"' tests/logs/trainer_state.json >"$tmp/unvalidated.json"
check "one that was validated, one that was not" "$program" report --output "$page" "$tmp/unvalidated.json" tests/logs/lightning.csv
check "are compared by the loss that both have" says "Not every run was validated: this goes by the training loss."
"$program" train --no-save --model fcn --data shapes --layers 1 --filters 2 --batch 2 --steps 8 --valid-items 4 --quiet \
    --csv "$tmp/own.csv" --log "$tmp/own.jsonl"
skips() { sed -n 's/.*<th scope="row">8<\/th>//p' "$page" | head -n 1; }
check "our log" "$program" report --output "$page" "$tmp/own.jsonl"
want=$(skips)
check "our table" "$program" report --output "$page" "$tmp/own.csv"
check "has the same losses" test "$(skips)" = "$want" -a -n "$want"
printf 'PK\003\004\024\000archive/data.pkl\200\002' >"$tmp/x.pt"
check "a file of torch.save" refuses "is a file of torch.save, which only Python can read: log with loss" \
    --output "$tmp/old.html" "$tmp/x.pt"
damage() # every line of the logs with one character that is another
{
    for log in tests/logs/*; do
        awk -v seed=$1 'BEGIN { srand(seed); odd = "{}[]\",:-+.eE019 <&|=" }
            { p = int(rand() * length($0)); c = substr(odd, 1 + int(rand() * length(odd)), 1)
                print substr($0, 1, p) c substr($0, p + 2) }' "$log" >"$tmp/damaged.log"
        "$program" report --output "$page" "$tmp/damaged.log" >/dev/null 2>&1
        [ $? -le 2 ] || return 1
    done
}
for seed in 1 2 3 4 5; do
    check "damaged with seed $seed" damage $seed
done

# ---- a job that runs, was killed, was resumed ----
head -c -20 "$tmp/one.jsonl" >"$tmp/cut.jsonl"
check "an unfinished last line" page cut
check "is told" has "the last line is not finished"
{ cat "$tmp/bare.jsonl"; echo '{"event":"resume","step":30,"from":"x"}'; sed -n '31,$p' "$tmp/bare.jsonl"; echo '{"event":"end","phases":{"forward":1}}'; } >"$tmp/resumed.jsonl"
check "a resumed run" page resumed
check "its phases are those of its last part" not has "over the whole run"
check "its later steps count" has "resumed 1 time; 10 steps were repeated"
check "once" grep -q '<td>40</td>' "$page"
awk 'NR > 30 { sub(/"loss":[^,]*/, "\"loss\":777") } 1' "$tmp/bare.jsonl" >"$tmp/first.jsonl"
{ cat "$tmp/first.jsonl"; echo '{"event":"resume","step":30}'; sed -n '31,$p' "$tmp/bare.jsonl"; echo '{"event":"end","phases":{"forward":1}}'; } >"$tmp/void.jsonl"
check "what is void" page void
check "is not drawn" not has ">777<"
sed 's/<li>.*//' "$page" >"$tmp/void.html"
page resumed >/dev/null
sed 's/<li>.*//; s/resumed.jsonl/void.jsonl/g' "$page" >"$tmp/resumed.html"
check "nor counted" cmp "$tmp/void.html" "$tmp/resumed.html"

# ---- damaged logs ----
{
    cat "$tmp/one.jsonl"
    printf '%s\n' 'not json' '{"step":' '[1,2]' '"step"' '7' '{"step":-1}' '{"step":1.5}' '{"step":"9"}' \
        '{"step":1e300}' '{"step":null}' '{"loss":1}' '{"event":7}' '{"event":"valid"}' '{"event":"layers","step":50}' \
        '{"event":"layers","step":1,"layers":[]}' '{"event":"exponents","step":50,"layers":{}}' '{"event":"resume"}' '{"event":"resume","step":-3}' \
        '{"step":99,"loss":1e999}'
    printf '\000\001\377\376\n\033[31m\n'
} >"$tmp/damaged.jsonl"
check "a damaged log" page damaged
check "its lines are counted" has "21 could not be read and are left out"
check "and nothing else changes" has '<th scope="row">40</th>'
printf '%s\n' '{"step":41,"loss":NaN,"scale":Infinity,"amax":-Infinity,"verdict":"NaN"}' >>"$tmp/one.jsonl"
check "NaN and Infinity as others write them" page one
check "are no damage" not has "could not be read"
check "but no number either" has "1 step has no finite loss"
{
    sed '$d' "$tmp/one.jsonl"
    printf '%s\n' '{"step":50,"loss":1e308,"scale":1e-320,"underflow":7,"items_per_s":1e308,"reruns":1e30,"verdict":7}' \
        '{"step":51,"loss":-1e308,"scale":-4,"underflow":-1,"items_per_s":-5,"reruns":-3,"verdict":{}}' \
        '{"step":9007199254740992,"loss":[1],"scale":"x","underflow":{},"items_per_s":true}' \
        '{"event":"valid","step":60,"loss":-1e308,"accuracy":1e308}' '{"event":"valid","step":61,"loss":1e308}' \
        '{"event":"layers","step":60,"layers":[7,{},{"name":7,"flushed":1},{"name":"x"},{"name":"x","flushed":2},{"name":"","flushed":1}]}' \
        '{"event":"exponents","step":60,"scale":-1,"half":7,"layers":[7,{"name":"y","first":1e9,"counts":[1]},{"name":"z","first":-5,"counts":["x",-1,1e308,null,3]},{"name":"w","first":0,"counts":7}]}' \
        '{"event":"run","name":7,"config":7,"memory":{"weights":-1e308,"x":"y","z":[]},"machine":[],"parameters":"many"}' \
        '{"event":"end","status":7,"seconds":"long","phases":{"forward":-1,"backward":1e308,"scan":null}}'
} >"$tmp/odd.jsonl"
check "wrong types and huge numbers" page odd
check "are no numbers" has "not finite"
check "leave no NaN in the drawing" not grep -qE '="[^"]*(nan|inf)' "$page"
evil='</title><script>alert(1)</script><!--]]>&quot;\"\u0000' # the NUL makes a line no JSON
log script -v name='<script>alert(1)</script>\\u001b[31m\\u202e\\u009b' -v precision='\\"><img src=x onerror=1>'
sed 's/fc1.weight/<svg onload=x>\&amp;/g' "$tmp/script.jsonl" >"$tmp/evil.jsonl"
printf '{"event":"run","name":"%s"}\n' "$evil" >>"$tmp/evil.jsonl"
printf '{"event":"layers","step":41,"layers":[{"name":"a\\nb\\tc","flushed":1}]}\n' >>"$tmp/evil.jsonl"
check "names that are code" page evil
check "of one line" has "a?b?c"
check "are text" has '&lt;script&gt;alert(1)&lt;/script&gt;?[31m??'
check "of layers too" has '&lt;svg onload=x&gt;&amp;amp;'
{ cat "$tmp/bare.jsonl"; printf '{"step":41,"loss":1,"x":"'; head -c 17000000 /dev/zero | tr '\0' x; printf '"}\n'; } >"$tmp/long.jsonl"
check "a line of 17 MB" page long
check "is no line" has "1 could not be read"
awk 'BEGIN { printf "{\"event\":\"layers\",\"step\":1,\"layers\":["; for (i = 0; i < 5000; i++) printf "%s{\"name\":\"layer.%d\",\"flushed\":0.%04d}", i ? "," : "", i, i; print "]}" }' >"$tmp/layers.jsonl"
check "5000 layers" page layers
awk 'BEGIN { for (i = 0; i < 3000; i++) printf "["; print "" }' >>"$tmp/layers.jsonl"
check "nested deeply" page layers

awk 'BEGIN { for (i = 0; i < 100000; i++) x = x "long"; printf "{\"event\":\"layers\",\"step\":1,\"layers\":["
    for (i = 0; i < 9; i++) printf "%s{\"name\":\"%s%d\",\"flushed\":0.5}", i ? "," : "", x, i; print "]}" }' >"$tmp/names.jsonl"
check "names of 400 kB" page names
check "are none" test "$(wc -c <"$page")" -lt 50000

# One character in every fifth line is another one.
spoil()
{
    awk -v seed=$1 'BEGIN { srand(seed); odd = "{}[]\",:-+.eE019 <&\\n\033\377" }
        rand() < 0.2 { p = int(rand() * length($0)); c = substr(odd, 1 + int(rand() * length(odd)), 1)
            $0 = substr($0, 1, p) c substr($0, p + 2) } 1' "$tmp/fp32.jsonl" >"$tmp/spoiled.jsonl"
    page spoiled
}
n=15
is_long && n=500
for seed in $(seq $n); do
    check "spoiled with seed $seed" spoil $seed
done

# ---- many steps ----
n=50000
is_long && n=1000000
log many -v name=many -v bare=1 -v steps=$n -v skip=7
check "$n steps" page many
check "make a small page" test "$(wc -c <"$page")" -lt 150000
check "that counts them all" says "skipped $((n / 7)) of $n steps"

# ---- files ----
printf '' >"$tmp/empty.jsonl"
head -c 5000 "$program" >"$tmp/binary.jsonl"
echo old >"$tmp/old.html"
check "no log" refuses "LOG" --output "$tmp/old.html"
check "missing" refuses "no.jsonl: cannot be opened" --output "$tmp/old.html" "$tmp/no.jsonl"
mkdir -p "$tmp/bare" "$tmp/runs/a" "$tmp/runs/b/"
cp "$tmp/one.jsonl" "$tmp/runs/a/log.jsonl"
cp "$tmp/one.jsonl" "$tmp/runs/b/log.jsonl"
check "a folder" refuses "bare: is a folder without a log.jsonl: name the log" --output "$tmp/old.html" "$tmp/bare"
check "the folder of a run" "$program" report --output "$page" "$tmp/runs/a"
check "is its log" has '<title>one run</title>'
check "two of them" "$program" report --output "$page" "$tmp/runs/a/" "$tmp/runs/b"
check "are told apart" sh -c "grep -qF 'one run, a<' '$page' && grep -qF 'one run, b<' '$page'"
check "onto the log of a folder" refuses "would overwrite" --output "$tmp/runs/a/log.jsonl" "$tmp/runs/a"
check "empty" refuses "is empty" --output "$tmp/old.html" "$tmp/empty.jsonl"
check "binary" refuses "binary.jsonl: is not a log" --output "$tmp/old.html" "$tmp/binary.jsonl"
check "a good and a bad one" refuses "is not a log" --output "$tmp/old.html" "$tmp/one.jsonl" "$tmp/binary.jsonl"
check "no end of it" refuses "/dev/zero: is not a log" --output "$tmp/old.html" /dev/zero
check "onto the log" refuses "would overwrite" --output "$tmp/./one.jsonl" "$tmp/one.jsonl"
check "nowhere" refuses "--output" --output "$tmp/no/r.html" "$tmp/one.jsonl"
check "onto a folder" refuses "--output" --output "$tmp" "$tmp/one.jsonl"
full() { # the disk is full: exit code 1, an error message, no file left beside
    ( ulimit -f 8 2>/dev/null; trap '' XFSZ; "$program" report --output "$tmp/old.html" "$tmp/one.jsonl" 2>"$tmp/err" )
    [ $? -eq 1 ] && cat "$tmp/err" && grep -q 'cannot be written: File too large' "$tmp/err" &&
        [ "$(ls "$tmp" | grep -c 'old.html')" -eq 1 ]
}
check "a full disk" full
check "the old report is there still" grep -qx old "$tmp/old.html"
ln -s old.html "$tmp/link.html"
check "through a link" "$program" report --output "$tmp/link.html" "$tmp/one.jsonl"
check "which stays one" test -L "$tmp/link.html"
check "to the new page" grep -q '</html>' "$tmp/old.html"
check "to a device" "$program" report --output /dev/null "$tmp/one.jsonl"
check "which stays one, too" test -c /dev/null
check "no file left behind" not ls "$tmp"/*.part
# A file that must not grow is an error like a full disk, and leaves nothing.
no_room()
{
    log room && mkdir "$tmp/tight" && (ulimit -f 1 && exec "$program" report --output "$tmp/tight/page.html" "$tmp/room.jsonl") 2>"$tmp/err"
    code=$?
    [ $code -eq 1 ] && grep -q 'page.html cannot be written: File too large$' "$tmp/err" && [ -z "$(ls "$tmp/tight")" ]
}
check "a file too large" no_room
# Memory that ends while a log of another framework is read is told as such, wherever it ends.
awk 'BEGIN { print "{\"log_history\": ["
             for (i = 1; i <= 30000; i++) printf("%s{\"step\": %d, \"loss\": 0.5, \"grad_norm\": 1}\n", (i > 1 ? "," : ""), i)
             print "]}" }' >"$tmp/trainer_state.json"
no_memory()
{
    for size in 20000 25000 30000 35000 40000 45000; do
        (ulimit -v $size && exec "$program" report --output "$tmp/state.html" "$tmp/trainer_state.json") >/dev/null 2>"$tmp/err"
        [ $? = 0 ] || grep -qi memory "$tmp/err" || return 1
    done
}
[ -n "${SAN:-}" ] || check "memory that ends" no_memory # a sanitizer asks for terabytes

# ---- what nothing else looks at ----
log rates -v name=rates -v precision=fp16 -v scaler=pytorch -v scale=16
awk '{ if (match($0, /^{"step":[0-9]+/)) sub(/"lr":0.1/, "\"lr\":" substr($0, 9, RLENGTH - 8) / 1000); print }' "$tmp/rates.jsonl" >"$tmp/rate.jsonl"
check "a learning rate that grows" page rate
check "is drawn step by step" has "step 40: rates 0.04</title>"
check "on an axis of its own" test "$(awk '/aria-labelledby="lr-t/ { on = 1 } on && /<details/ { exit } on' "$page" | grep -c '>0.0[0-4]</text>')" -ge 2
sed '/"step":[0-9]*[1-9],/s/"lr":[0-9.]*/"lr":null/' "$tmp/rate.jsonl" >"$tmp/sparse.jsonl"
check "one that is logged now and then" page sparse
check "is seen all the same" test "$(dots_of lr)" -eq 4
log kilo -v name=kilo -v bytes=4000
check "bytes below a million" page kilo
check "are kB" has "weights 4 kB. activations 8 kB."
check "summed" has "<td>12 kB</td>"
log stuck2 -v name="fp16 pytorch" -v precision=fp16 -v scaler=pytorch -v scale=-7 -v skip=1
check "stuck at a scale that moves" page stuck2
check "names the lowest" says "the scale fell to 2^-7, and that was not low enough for these gradients"
log single -v name=single -v precision=fp16 -v scaler=pytorch -v scale=4 -v skip=1 -v steps=1
check "one step, skipped" page single
check "was" says "single failed: its 1 step was skipped, from step 1 on"
awk '/"step":20,/ { gsub(/"verdict":"skip"/, "\"verdict\":\"apply\"") } 1' "$tmp/stuck2.jsonl" >"$tmp/one_of.jsonl"
check "one of 40 applied" page one_of
check "was, too" says "fp16 pytorch failed: 1 of its 40 steps was applied, and step 1 was the first to be skipped"
awk '/"step":[23]0,/ { gsub(/"verdict":"skip"/, "\"verdict\":\"apply\"") } 1' "$tmp/stuck2.jsonl" >"$tmp/one_of.jsonl"
check "two of 40 applied" page one_of
check "were" says "fp16 pytorch failed: 2 of its 40 steps were applied"
finish
