#!/bin/sh
# train --quantize and eval --int8, as a user runs them: INT8 arithmetic has the bits of the validation, on
# every instruction set and after a resume.
. tests/support/program.sh
small="--batch 16 --valid-items 40 --quiet"

small_images small 400
images=$tmp/small-images-idx3-ubyte
cat src/base/*.c >"$tmp/text"

equal() { echo "$1, not $2" && [ "$1" = "$2" ]; }
steps() { grep -o '^{"step":[^,]*,.*"loss":[^,]*' "$1"; }

levels=ref
for level in avx2 avx512 avx512vnni neon; do
    "$gs" info | grep -qE "^detected.* $level( |\$)" && levels="$levels $level"
done

# loss_of MODEL OPTION...: of eval on what was held out, all digits
loss_of() { model=$1; shift; run eval "$tmp/$model" --json --batch 16 --items 40 "$@" && value loss "$tmp/out"; }

# same MODEL: eval, and eval --int8 on every level, have the loss of the run's own validation
same()
{
    valid=$(grep '"event":"valid"' "$tmp/$1.jsonl" | grep '"best":true' | tail -1 | sed 's/.*"loss":\([^,}]*\).*/\1/')
    floats=$(loss_of "$1")
    python3 -c 'import sys; a, b = map(float, sys.argv[1:]); print(a, b); sys.exit(abs(a - b) > 2e-7 * a)' \
        "$valid" "$floats" || return 1
    for level in $levels; do
        for threads in 1 3; do
            equal "$(loss_of "$1" --int8 --cpu "$level" --threads $threads)" "$floats" || return 1
        done
    done
    equal "$(value quantized "$tmp/out")" '"int8"' && equal "$(value calibrated "$tmp/out")" 0
}

for job in mlp:fp16:ema cnn:bf16:max resnet:fp32:percentile:99.9 fcn:fp16:max gpt:bf16:ema vit:fp16:max; do
    model=${job%%:*} rest=${job#*:}
    precision=${rest%%:*} ranges=${rest#*:}
    case $model in
    mlp) n=2 size="--hidden 32 --steps 60 --data $images" ;;
    fcn) n=4 size="--filters 4 --steps 4" ;;
    vit) n=10 size="--patch 2 --layers 2 --width 32 --heads 2 --steps 30 --data $images" ;;
    gpt) n=9 size="--layers 2 --width 32 --heads 2 --context 64 --steps 30 --data $tmp/text" ;;
    cnn) n=4 size="--filters 4 --steps 30 --data $images" ;;
    resnet) n=16 size="--filters 4 --steps 30 --data $images" ;;
    esac
    check "train $model in $precision, ranges by $ranges" "$gs" train --model $model $size --lr 0.01 $small \
        --precision $precision --quantize int8 --ranges $ranges --threads 2 --checkpoint "$tmp/$model" \
        --log "$tmp/$model.jsonl"
    check "$model: INT8 arithmetic has the bits of the validation" same $model
    check "$model: export to ONNX" "$gs" export -q "$tmp/$model" "$tmp/$model.onnx"
    check "$model: its $n products are of integers" python3 tests/oracle/qdq.py graph "$tmp/$model.onnx" $n
done
learns() { python3 -c 'import sys; a = float(sys.argv[1]); print(a); sys.exit(not a > 0.3)' "$(value accuracy "$tmp/out")"; }
loss_of cnn --int8 >/dev/null
check "and the model has learned" learns

# ---- other levels and threads, and a run in two halves ----

again() { "$gs" train --model cnn --filters 4 --steps 30 --data "$images" --lr 0.01 $small --precision bf16 \
    --quantize int8 --ranges max "$@" $(unsaved "$@"); }
steps "$tmp/cnn.jsonl" >"$tmp/want"
for level in $levels; do
    again --cpu "$level" --threads 1 --log "$tmp/level.jsonl" --overwrite
    steps "$tmp/level.jsonl" >"$tmp/got"
    check "the same losses with --cpu $level" cmp "$tmp/want" "$tmp/got"
done
again --checkpoint "$tmp/whole" --checkpoint-every 15 --threads 2
mkdir "$tmp/half"
cp "$tmp/whole/step-00000015.safetensors" "$tmp/half/"
check "resumes" "$gs" train --resume --checkpoint "$tmp/half" --quiet --threads 1
tensors() { python3 - "$1" <<'END'
import hashlib, json, sys
data = open(sys.argv[1], "rb").read()
n = int.from_bytes(data[:8], "little")
head = json.loads(data[8:8 + n])
assert "quantize=int8 ranges=max" in head["__metadata__"]["precision"]
assert head["conv2.input_amax"]["shape"] == [1]
print(hashlib.sha256(data[8 + n:-8]).hexdigest())
END
}
check "to the same tensors" equal "$(tensors "$tmp/half/step-00000030.safetensors")" \
    "$(tensors "$tmp/whole/step-00000030.safetensors")"

# ---- post-training quantisation ----

check "train without" "$gs" train --model cnn --filters 4 --steps 30 --data "$images" --lr 0.01 $small \
    --precision bf16 --checkpoint "$tmp/plain" --log "$tmp/plain.jsonl"
check "train --quantize ptq" again --quantize ptq --log "$tmp/ptq.jsonl" --checkpoint "$tmp/ptq"
check "export of it to ONNX" "$gs" export -q "$tmp/ptq" "$tmp/ptq.onnx"
check "its 4 products are of integers" python3 tests/oracle/qdq.py graph "$tmp/ptq.onnx" 4
steps "$tmp/plain.jsonl" >"$tmp/want"
steps "$tmp/ptq.jsonl" >"$tmp/got"
check "trains to the same losses" cmp "$tmp/want" "$tmp/got"
floats=$(loss_of plain)
int8=$(loss_of plain --int8 --calibrate 8)
check "calibrates" equal "$(value calibrated "$tmp/out")" 8
close() { python3 -c 'import sys; a, b = map(float, sys.argv[1:]); print(a, b); sys.exit(not 0 < abs(a - b) < 0.2 * a)' "$@"; }
check "to about the same loss" close "$floats" "$int8"
check "on every level" equal "$(loss_of plain --int8 --calibrate 8 --cpu ref --threads 1)" "$int8"
run eval "$tmp/plain" --int8
check "eval says so" grep -q '^quantised  products of INT8 in INT8 arithmetic, ranges of 5 batches$' "$tmp/out"
run eval "$tmp/plain" --int8 --calibrate 1
check "of one" grep -q ' ranges of 1 batch$' "$tmp/out"
check "fine-tunes with it" again --init "$tmp/plain/step-00000030.safetensors" --checkpoint "$tmp/tuned"
check "predict" "$gs" predict "$tmp/cnn" "$images"
check "generate" "$gs" generate "$tmp/gpt" --prompt "static " --tokens 8

check "compare" "$gs" compare --model cnn --filters 4 --steps 20 --data "$images" --lr 0.01 --batch 16 \
    --valid-items 40 --runs fp32,fp16,fp16:ptq,fp16:int8 --output "$tmp/compared"
run compare --model cnn --filters 4 --steps 20 --data "$images" --lr 0.01 --batch 16 --valid-items 40 \
    --runs fp32,fp16,fp16:ptq,fp16:int8 --output "$tmp/compared" --resume --json
check "compare: its runs" equal "$(grep -c '"quantize": "\(ptq\|int8\)"' "$tmp/out")" 2
check "compare: names" grep -q '"name": "fp16 int8"' "$tmp/out"

# ---- what is refused ----

rule="is ema, max or percentile:P with P above 0 and at most 100, not"
for bad in median percentile percentile:0 percentile:101 percentile:nan percentile:x; do
    check "train --ranges $bad" says 2 "--ranges $rule '$bad'" train --quantize int8 --ranges $bad
done
check "train --quantize int4" says 2 "--quantize is one of none|int8|ptq, not 'int4': did you mean int8?" train --quantize int4
check "eval --ranges alone" says 2 "--ranges is of --int8" eval "$tmp/plain" --ranges max
check "eval --calibrate alone" says 2 "--calibrate is of --int8" eval "$tmp/plain" --calibrate 3
check "eval --ranges median" says 2 "--ranges $rule 'median'" eval "$tmp/plain" --int8 --ranges median
check "eval --calibrate of QAT" says 2 \
    "cnn/best.safetensors: its ranges are those of training: --calibrate and --ranges are for others" \
    eval "$tmp/cnn" --int8 --calibrate 3
check "resume with other ranges" says 2 \
    "--ranges ema does not go with half/step-00000030.safetensors, which has max: begin a new run for that" \
    train --resume --checkpoint "$tmp/half" --ranges ema --steps 40
check "export to safetensors" "$gs" export "$tmp/mlp" "$tmp/mlp.safetensors"
python3 - "$tmp/mlp.safetensors" <<'END'
import json, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = int.from_bytes(data[:8], "little")
at = 8 + n + json.loads(data[8:8 + n])["layers.1.weight"]["data_offsets"][0]
data[at:at + 4] = b"\0\0\x80\x7f"
open(sys.argv[1], "wb").write(data)
END
check "a weight of Inf" says 1 "the run came to nothing: 0 of 1 step was applied, and step 1 was the first to be skipped" \
    train --model mlp --hidden 32 --data "$images" --steps 1 $small --valid-every 0 --quantize int8 \
    --init "$tmp/mlp.safetensors" --checkpoint "$tmp/infinite"
check "export of it to ONNX" says 2 "infinite/step-00000001.safetensors: its weight layers.1.weight holds an Inf or \
NaN, which integers cannot" export "$tmp/infinite" "$tmp/infinite.onnx"
finish
