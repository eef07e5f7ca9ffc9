#!/bin/sh
# What is done with a trained model: eval, predict, generate, export, train --init. Other programs agree:
# onnxruntime and transformers, where they are installed.
. tests/support/program.sh
small="--threads 1 --batch 16 --valid-items 40 --quiet"

small_images small 400 other 30
{ printf '\0\0\010\003\0\0\0\001\0\0\0\011\0\0\0\010'; head -c 72 /dev/zero; } >"$tmp/tall-images-idx3-ubyte"
{ printf '\0\0\010\003\0\0\0\024\0\0\0\012\0\0\0\012'; head -c 2000 src/train/step.c; } >"$tmp/ten-images-idx3-ubyte"
{ printf '\0\0\010\001\0\0\0\024'; head -c 20 /dev/zero | tr '\0' '\1'; } >"$tmp/ten-labels-idx1-ubyte"
images=$tmp/small-images-idx3-ubyte other=$tmp/other-images-idx3-ubyte

# ---- models ----

for model in mlp cnn resnet; do
    case $model in mlp) size="--hidden 32 --steps 400" ;; *) size="--filters 4 --steps 60" ;; esac
    check "train $model" "$gs" train --model $model $size --data "$images" --lr 0.01 $small \
        --checkpoint "$tmp/$model" --log "$tmp/$model.jsonl"
done
check "train resnet18" "$gs" train --model resnet18 --data "$images" --steps 4 --lr 0.001 --precision bf16 $small \
    --checkpoint "$tmp/resnet18" --log "$tmp/resnet18.jsonl"
vit="--model vit --patch 2 --layers 2 --width 32 --heads 4 --mlp-width 48"
check "train vit" "$gs" train $vit --data "$images" --steps 60 --lr 0.003 --precision bf16 --recompute $small \
    --checkpoint "$tmp/vit" --log "$tmp/vit.jsonl"
check "train fcn" "$gs" train --model fcn --filters 4 --steps 4 $small --checkpoint "$tmp/fcn"
cat src/base/*.c >"$tmp/text"
check "train gpt" "$gs" train --model gpt --layers 2 --width 32 --heads 2 --context 64 --data "$tmp/text" \
    --steps 60 --precision bf16 $small --checkpoint "$tmp/gpt" --log "$tmp/gpt.jsonl"
llama="--model gpt --layers 2 --width 32 --heads 4 --kv-heads 2 --positions rotary --norm rms --mlp swiglu --head untied"
check "train llama" "$gs" train $llama --context 64 --data "$tmp/text" --steps 60 --precision bf16 $small \
    --checkpoint "$tmp/llama" --log "$tmp/llama.jsonl"
check "train a mixture of gpt and llama" "$gs" train --model gpt --layers 1 --width 32 --heads 2 --norm rms --context 64 \
    --data "$tmp/text" --steps 2 $small --checkpoint "$tmp/mixture"

# ---- eval: the numbers of the validation that the run itself made ----

equals_validation()
{
    run eval "$tmp/$1" --json --batch 16 --items 40 --threads 1 || return 1
    best=$(grep '"event":"valid"' "$tmp/$1.jsonl" | grep '"best":true' | tail -1)
    cat "$tmp/out"
    echo "$best"
    python3 -c '
import json, sys
ours, theirs = json.load(open(sys.argv[1])), json.loads(sys.argv[2])
assert ours["loss"] == theirs["loss"], (ours["loss"], theirs["loss"])
if "classes" in ours:
    assert ours["accuracy"] == theirs["accuracy"]
    assert sum(sum(c["answers"]) for c in ours["classes"]) == ours["items"] == 40
    assert sum(c["answers"][i] for i, c in enumerate(ours["classes"])) == round(40 * ours["accuracy"])
' "$tmp/out" "$best"
}
for model in mlp cnn resnet resnet18 vit gpt llama; do
    check "eval $model equals its validation" equals_validation $model
done
check "eval fcn" run eval "$tmp/fcn" --items 64
check "its mean IoU" grep -q '^mean IoU' "$tmp/out"
check "eval on other data takes all" run eval "$tmp/cnn" --data "$other" --json
check "30 of them" test "$(value items "$tmp/out")" = 30
check "eval on other data, with the normalisation of training" sh -c "'$gs' eval '$tmp/mlp' --data '$other' |
    awk '/^accuracy/ { print; good = \$2 + 0 > 80 } END { exit !good }'"
check "eval of a file" run eval "$tmp/mlp/best.safetensors" --precision fp32
check "its matrix" grep -q '^confusion: ' "$tmp/out"
check "eval of images of another size" says 2 \
    "--data: tall-images-idx3-ubyte: its labels are not beside it, under a name with labels for images" \
    eval "$tmp/cnn" --data "$tmp/tall-images-idx3-ubyte"
check "eval of tokens by a model of images" says 2 \
    "--data: text: has tokens, and the model was trained on classes" eval "$tmp/cnn" --data "$tmp/text"
check "eval, labels of no data" says 2 "--labels is of --data" eval "$tmp/cnn" --labels "$tmp/text"
check "eval of no checkpoint" says 2 "text: is not a .npy, .npz or .safetensors file" eval "$tmp/text"
mkfifo "$tmp/pipe"
check "eval of a pipe" says 2 "pipe: is neither a file nor a folder" eval "$tmp/pipe"

# ---- predict ----

check "predict" run predict "$tmp/cnn" "$other"
check "a row per image" test "$(wc -l <"$tmp/out")" = 31
check "its title" sh -c "head -1 '$tmp/out' | grep -qx 'item,rank,class,label,probability'"
check "in their order" sh -c "'$gs' predict '$tmp/mlp' '$other' | tail -n +2 |
    awk -F, '\$1 != NR - 1 { exit 1 } { right += \$3 == (NR - 1) % 10 } END { exit !(right > 24) }'"
check "predict, all classes" run predict "$tmp/cnn" "$other" --top 10 --json
check "whose probabilities add up" python3 -c '
import json, sys
for item in json.load(open(sys.argv[1])):
    p = [c["probability"] for c in item["classes"]]
    assert len(p) == 10 and abs(sum(p) - 1) < 1e-9 and p == sorted(p, reverse=True), item' "$tmp/out"
check "predict of text" run predict "$tmp/gpt" "$tmp/text"
check "its tokens" grep -q "text,$(wc -c <"$tmp/text")," "$tmp/out"
check "predict, images of another size" says 2 \
    "tall-images-idx3-ubyte: its images are 9 x 8 x 1, and the model was trained on 8 x 8 x 1" \
    predict "$tmp/cnn" "$tmp/tall-images-idx3-ubyte"

# ---- generate ----

check "generate" run generate "$tmp/gpt" --prompt 'int ' --tokens 200 --seed 3 --threads 1
cp "$tmp/out" "$tmp/first"
check "200 tokens after the prompt" test "$(wc -c <"$tmp/first")" = 205
check "the same again, whatever the threads" sh -c "
    '$gs' generate '$tmp/gpt' --prompt 'int ' --tokens 200 --seed 3 --threads 2 | cmp - '$tmp/first'"
check "the same with other kernels" sh -c "
    '$gs' generate '$tmp/gpt' --prompt 'int ' --tokens 200 --seed 3 --cpu ref | cmp - '$tmp/first'"
check "generate of llama" run generate "$tmp/llama" --prompt 'int ' --tokens 100 --seed 3 --threads 1
cp "$tmp/out" "$tmp/second"
check "whatever threads and kernels" sh -c "
    '$gs' generate '$tmp/llama' --prompt 'int ' --tokens 100 --seed 3 --threads 2 --cpu ref | cmp - '$tmp/second'"
check "another seed" sh -c "! '$gs' generate '$tmp/gpt' --prompt 'int ' --tokens 200 --seed 4 | cmp -s - '$tmp/first'"
# three letters of the text itself, which a short training run does not always make valid UTF-8
stop=$(LC_ALL=C tail -c +5 "$tmp/first" | LC_ALL=C grep -aoE '[a-z ]{3}' | sed -n 5p)
stops()
{
    "$gs" generate "$tmp/gpt" --prompt 'int ' --tokens 200 --seed 3 --stop "$stop" --threads 1 >"$tmp/out" || return 1
    python3 - "$tmp/first" "$tmp/out" "$stop" <<'END'
import sys
whole, cut, stop = open(sys.argv[1], "rb").read(), open(sys.argv[2], "rb").read(), sys.argv[3].encode()
assert cut == whole[:4 + whole[4:].index(stop)] + b"\n", (whole, cut)
END
}
check "a stop" stops
check "greedy" sh -c "'$gs' generate '$tmp/gpt' --temperature 0 --tokens 20 --no-prompt --stats 2>'$tmp/err' |
    cmp - /dev/null; grep -q 'tokens/s' '$tmp/err' && ! grep '.\\{81\\}' '$tmp/err'"
check "a prompt of a file" sh -c "printf 'int ' | '$gs' generate '$tmp/gpt' --prompt-file - --tokens 200 --seed 3 | cmp - '$tmp/first'"
check "no model of text" says 2 "cnn/best.safetensors: cnn is no model of text" generate "$tmp/cnn"
check "a prompt that is not there" says 2 "--prompt-file: none cannot be opened: No such file or directory" \
    generate "$tmp/gpt" --prompt-file "$tmp/none"
check "a prompt without an end" says 2 "/dev/zero is longer than 67108864 bytes, the most that is read as one text" \
    generate "$tmp/gpt" --prompt-file /dev/zero
check "an empty stop" says 2 "--stop needs a value (TEXT), not an empty one" generate "$tmp/gpt" --stop ''

# ---- export, and back in ----
told() { "$gs" export "$@" >"$tmp/out" 2>"$tmp/err" && cat "$tmp/out" && [ ! -s "$tmp/err" ]; }
check "export tells" told "$tmp/mlp" "$tmp/told.onnx"
check "what it wrote, and how large" grep -qxE "saved      $tmp/told.onnx, [0-9.]+ kB" "$tmp/out"
check "of a folder, too" told "$tmp/mlp" "$tmp/told"
check "each file" test "$(sed 's/, [0-9.]* kB$//; s/.*\///' "$tmp/out" | tr '\n' ' ')" = "model.safetensors config.json "
check "nothing with -q" sh -c "'$gs' export -q '$tmp/mlp' '$tmp/told.safetensors' 2>&1 | cmp - /dev/null"
no_pickle() { ! "$gs" export "$tmp/mlp" "$tmp/out.pt" 2>"$tmp/err" && grep -q 'out.pt: pickles of PyTorch are not written' "$tmp/err" && [ ! -e "$tmp/out.pt" ]; }
check "a name of PyTorch's is no folder" no_pickle

for model in mlp cnn resnet resnet18 vit fcn gpt; do
    check "export $model" run export "$tmp/$model" "$tmp/$model.onnx"
    check "once more" run export "$tmp/$model" "$tmp/$model.onnx"
    check "export $model to a folder" run export "$tmp/$model" "$tmp/$model-out"
done
for model in llama mixture; do
    check "export $model to a folder" run export "$tmp/$model" "$tmp/$model-out"
    check "no graph of $model" says 2 \
        "$model.onnx: there is an ONNX form of GPT-2 alone: leave .onnx out for weights and config.json" \
        export "$tmp/$model" "$tmp/$model.onnx"
done
check "what is exported can be gone on with, llama" "$gs" train $llama --context 64 --data "$tmp/text" --steps 1 --lr 0 \
    $small --init "$tmp/llama-out/model.safetensors" --checkpoint "$tmp/llama-again"
check "with its weights" sh -c "'$gs' predict '$tmp/llama' '$tmp/text' --precision fp32 >'$tmp/a' &&
    '$gs' predict '$tmp/llama-again' '$tmp/text' --precision fp32 | cmp - '$tmp/a'"
check "what is exported can be gone on with, vit" "$gs" train $vit --data "$images" --steps 1 --lr 0 $small \
    --init "$tmp/vit-out/model.safetensors" --checkpoint "$tmp/vit-again"
check "with its weights, vit" sh -c "'$gs' predict '$tmp/vit' '$other' --precision fp32 >'$tmp/a' &&
    '$gs' predict '$tmp/vit-again' '$other' --precision fp32 | cmp - '$tmp/a'"
check "predict of vit, whatever threads and kernels" sh -c "'$gs' predict '$tmp/vit' '$other' --threads 1 >'$tmp/a' &&
    '$gs' predict '$tmp/vit' '$other' --threads 3 --cpu ref | cmp - '$tmp/a'"
check "--init of vit, of another size" says 2 \
    "vit-out/model.safetensors: its tensor conv_proj.weight is [32 1 2 2], and the model's [32 1 8 8]" \
    train $vit --patch 8 --data "$images" $small --init "$tmp/vit-out/model.safetensors"
check "--init of vit, for images of another size" says 2 \
    "vit-out/model.safetensors: its tensor encoder.pos_embedding is [1 17 32], and the model's [1 26 32]" \
    train $vit --data "$tmp/ten-images-idx3-ubyte" $small --init "$tmp/vit-out/model.safetensors"
check "patches that do not fit" says 2 "images of 8 by 8 cannot be cut into patches of 3 by 3" \
    train $vit --patch 3 --data "$images" $small
check "patches of a cnn" says 2 "--patch is not an option of --model cnn" train --model cnn --patch 2 --data "$images" $small
check "a vit of text" says 2 "--model vit learns images with a class each, and text is tokens" \
    train --model vit --data "$tmp/text" $small
check "resume with other patches" says 2 \
    "--patch 4 does not go with vit/step-00000060.safetensors, which has 2: begin a new run for that" \
    train --resume --checkpoint "$tmp/vit" --log "$tmp/vit.jsonl" --patch 4 --steps 70
check "what is exported can be gone on with" "$gs" train --model mlp --hidden 32 --data "$images" --steps 1 --lr 0 \
    $small --init "$tmp/mlp-out/model.safetensors" --checkpoint "$tmp/again"
check "with the same weights" sh -c "
    '$gs' predict '$tmp/mlp' '$other' --precision fp32 >'$tmp/a' && '$gs' predict '$tmp/again' '$other' --precision fp32 |
    cmp - '$tmp/a'"
check "--init of another size" says 2 \
    "gpt-out/model.safetensors: its tensor transformer.wte.weight is [256 32], and the model's [256 64]" \
    train --model gpt --layers 2 --width 64 --heads 2 --context 64 --data "$tmp/text" $small \
    --init "$tmp/gpt-out/model.safetensors"
check "--init of llama, of another size" says 2 \
    "llama-out/model.safetensors: its tensor model.layers.0.self_attn.k_proj.weight is [16 32], and the model's [8 32]" \
    train $llama --kv-heads 1 --context 64 --data "$tmp/text" $small --init "$tmp/llama-out/model.safetensors"
check "--init of more layers" says 2 \
    "gpt-out/model.safetensors: has a tensor transformer.h.1.ln_1.weight, which the model does not have" \
    train --model gpt --layers 1 --width 32 --heads 2 --context 64 --data "$tmp/text" $small \
    --init "$tmp/gpt-out/model.safetensors"
check "the same of a checkpoint" says 2 \
    "gpt/best.safetensors: has a tensor transformer.h.1.ln_1.weight, which the model does not have" \
    train --model gpt --layers 1 --width 32 --heads 2 --context 64 --data "$tmp/text" $small --init "$tmp/gpt"
check "--init of biases" says 2 \
    "gpt-out/model.safetensors: has a tensor transformer.h.0.ln_1.bias, which the model does not have" \
    train --model gpt --layers 2 --width 32 --heads 2 --norm rms --context 64 --data "$tmp/text" $small \
    --init "$tmp/gpt-out/model.safetensors"
check "--init of a head of its own" says 2 \
    "llama-out/model.safetensors: its tensor lm_head.weight is not model.embed_tokens.weight, and the model's head \
is tied to that" train $llama --head tied --context 64 --data "$tmp/text" $small --init "$tmp/llama-out"
# parts that a gpt may be without: what is in the file and not in the model is not left out in silence
parts="--model gpt --layers 1 --width 16 --heads 2 --context 16 --mlp-width 64 --data $tmp/text $small"
for part in --mlp=swiglu --positions=learned; do
    check "train a gpt with $part" "$gs" train $parts --steps 1 ${part%=*} ${part#*=} --checkpoint "$tmp/with-${part#*=}"
    run export "$tmp/with-${part#*=}" "$tmp/with-${part#*=}-out"
done
for from in with-swiglu/step-00000001 with-swiglu-out/model; do
    check "--init of a gate, $from" says 2 \
        "$from.safetensors: has a tensor transformer.h.0.mlp.c_gate.weight, which the model does not have" \
        train $parts --init "$tmp/$from.safetensors"
done
for from in with-learned/step-00000001 with-learned-out/model; do
    check "--init of positions, $from" says 2 \
        "$from.safetensors: has a tensor transformer.wpe.weight, which the model does not have" \
        train $parts --positions rotary --init "$tmp/$from.safetensors"
done
# what no shape tells, a checkpoint and a config.json do; a file of weights alone does not
gpt="--model gpt --layers 2 --width 32 --context 64 --data $tmp/text --steps 1 --no-save $small"
check "--init of other heads" says 2 "--init: gpt/best.safetensors: its model has 2 heads, and --heads is 4" \
    train $gpt --heads 4 --init "$tmp/gpt"
check "of a vit" says 2 "--init: vit/best.safetensors: its model has 4 heads, and --heads is 2" \
    train $vit --heads 2 --data "$images" $small --init "$tmp/vit"
check "of a folder" says 2 "--init: gpt-out/config.json: its model has 2 heads, and --heads is 4" \
    train $gpt --heads 4 --init "$tmp/gpt-out"
check "of a vit's folder" says 2 "--init: vit-out/config.json: its model has 4 heads, and --heads is 2" \
    train $vit --heads 2 --data "$images" $small --init "$tmp/vit-out"
check "of a file" "$gs" train $gpt --heads 4 --init "$tmp/gpt-out/model.safetensors"
says_config() # FOLDER FROM TO WHAT [OPTION VALUE]: with FROM in its config.json become TO
{
    cp -r "$tmp/$1-out" "$tmp/altered"
    sed -i "s/$2/$3/" "$tmp/altered/config.json"
    case $1 in gpt) options="$gpt --heads 2" ;; *) options="$llama ${gpt#*--width 32}" ;; esac
    says 2 "--init: altered/config.json: $4" train $options --init "$tmp/altered" &&
        { [ $# -eq 4 ] || "$gs" train $options --init "$tmp/altered" "$5" "$6"; }
    code=$?
    rm -r "$tmp/altered"
    return $code
}
check "another base of rotary positions" says_config llama 10000 500000 \
    "its rotary positions have the base 500000: give --rope-theta 500000" --rope-theta 500000
check "as transformers 5 says it" says_config llama '"rope_theta": 10000' '"rope_parameters": {"rope_theta": 5e5}' \
    "its rotary positions have the base 500000: give --rope-theta 500000"
check "scaled ones" says_config llama '"rope_theta": 10000' '"rope_scaling": {"rope_type": "llama3"}' \
    "its rotary positions are scaled (llama3), which is not computed"
check "another epsilon" says_config gpt '1e-0*5' '1e-6' "its norms add 1e-06 before the root, and 1e-05 is computed"
check "another activation" says_config gpt gelu_new gelu "its activation is gelu, which is not computed"
check "that of another gpt" says_config gpt gelu_new silu "its activation is silu, which is not computed"
check "scores by layers" says_config gpt '"n_head"' '"scale_attn_by_inverse_layer_idx": true, "n_head"' \
    "its scores are scaled by layers, which is not computed"
check "scores that are not scaled" says_config gpt '"n_head"' '"scale_attn_weights": false, "n_head"' \
    "its scores are not scaled, which is not computed"
check "another model with Llama's names" says_config llama '"llama"' '"gemma"' \
    "its model is gemma, which is not computed"
check "no JSON" says_config gpt '"n_head"' 'n_head' "is no JSON: string or '}' expected near 'n'"
cp -r "$tmp/gpt-out" "$tmp/large"
truncate -s 1100000 "$tmp/large/config.json"
check "too large a one" says 2 "--init: large/config.json: is larger than 1048576 bytes" \
    train $gpt --heads 2 --init "$tmp/large"
# the same embedding twice, as a state_dict of PyTorch's has it
python3 - "$tmp/gpt-out/model.safetensors" "$tmp/twice.safetensors" <<'END'
import json, sys
data = open(sys.argv[1], "rb").read()
n = int.from_bytes(data[:8], "little")
head, data = json.loads(data[8:8 + n]), data[8 + n:]
wte = dict(head["transformer.wte.weight"])
begin, end = wte["data_offsets"]
wte["data_offsets"] = [len(data), len(data) + end - begin]
head["lm_head.weight"] = wte
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(len(text).to_bytes(8, "little") + text + data + data[begin:end])
END
check "--init of a head that is the embedding" "$gs" train --model gpt --layers 2 --width 32 --heads 2 --context 64 \
    --data "$tmp/text" --steps 1 $small --no-save --init "$tmp/twice.safetensors"
check "heads that do not share" says 2 "--heads 4 cannot share --kv-heads 3" \
    train $llama --kv-heads 3 --context 64 --data "$tmp/text" $small
check "heads that do not turn" says 2 "rotary positions need heads of an even number of columns, not 5" \
    train $llama --width 20 --context 64 --data "$tmp/text" $small
check "no such positions" says 2 "--positions is learned or rotary, not 'sine'" \
    train --model gpt --positions sine --data "$tmp/text" $small
check "a base without rotation" says 2 "--rope-theta is for --positions rotary" \
    train --model gpt --rope-theta 100 --data "$tmp/text" $small
check "parts of a gpt for a cnn" says 2 "--mlp is not an option of --model cnn" \
    train --model cnn --mlp swiglu --data "$images" $small
check "resume with other parts" says 2 \
    "--positions learned does not go with llama/step-00000060.safetensors, which has rotary: begin a new run for that" \
    train --resume --checkpoint "$tmp/llama" --log "$tmp/llama.jsonl" --positions learned --steps 70
check "--init of the folder of a run" "$gs" train --model mlp --hidden 32 --data "$images" --steps 1 --lr 0 $small \
    --init "$tmp/mlp" --checkpoint "$tmp/of-run"
check "takes its best" sh -c "'$gs' predict '$tmp/mlp' '$other' --precision fp32 >'$tmp/a' &&
    '$gs' predict '$tmp/of-run' '$other' --precision fp32 | cmp - '$tmp/a'"
mkdir "$tmp/bare"
check "--init of a folder without a model" says 2 "--init: bare: holds neither a model.safetensors nor a checkpoint" \
    train --model mlp --data "$images" $small --init "$tmp/bare"
# as torch.save writes them: a zip with a data.pkl, or a pickle alone
mkdir "$tmp/parts" "$tmp/pickled"
printf 'PK\003\004\0\0\010\010\0\0archive/data.pklFB' >"$tmp/new.pt"
printf '\200\002\212\nl\374\234F\371 j\250P\031.' >"$tmp/old.pth"
cp "$tmp/new.pt" "$tmp/pickled/pytorch_model.bin"
printf '{}' >"$tmp/parts/model.safetensors.index.json"
for name in new.pt old.pth pickled; do
    case $name in pickled) file=pickled/pytorch_model.bin ;; *) file=$name ;; esac
    check "--init of torch.save, $name" says 2 "$file: is a file of torch.save, which only Python can read: save its \
state_dict with safetensors.torch.save_file" train --model mlp --data "$images" $small --init "$tmp/$name"
done
check "eval of torch.save" says 2 "new.pt: is a file of torch.save, which only Python can read: give a checkpoint \
of gradscale train instead" eval "$tmp/new.pt"
check "--init of weights in parts" says 2 "--init: parts: its weights are in several files, and one is read: save it with \
a larger max_shard_size" train --model mlp --data "$images" $small --init "$tmp/parts"
check "--init of nothing" says 2 "--init: none: cannot be opened: No such file or directory" \
    train --model cnn --data "$images" $small --init "$tmp/none"
check "export to no name" says 2 "the name of what to write (OUT) is empty" export "$tmp/cnn" ""
check "export to where nothing can be" says 2 "none/x cannot be made: No such file or directory" \
    export "$tmp/cnn" "$tmp/none/x"
check "a graph where nothing can be" says 2 "none/x.onnx cannot be written: No such file or directory" \
    export "$tmp/cnn" "$tmp/none/x.onnx"
check "weights where nothing can be" says 2 "none/x.safetensors cannot be written: No such file or directory" \
    export "$tmp/cnn" "$tmp/none/x.safetensors"
# what a full disk does, by a limit: the program's own failure, and no part of a file
full()
{
    (
        trap '' 25 # SIGXFSZ
        ulimit -f 4
        exec "$gs" export "$tmp/cnn" "$tmp/full.$1"
    )
    [ $? -eq 1 ] && [ ! -e "$tmp/full.$1" ]
}
check "no room for a graph" full onnx
check "nor for weights" full safetensors
cp "$tmp/cnn/best.safetensors" "$tmp/source.safetensors"
check "export over a checkpoint" says 2 \
    "source.safetensors is a checkpoint, which an export would replace: name another file" \
    export "$tmp/cnn" "$tmp/source.safetensors"
check "which stays" cmp "$tmp/cnn/best.safetensors" "$tmp/source.safetensors"
check "export into a run" says 2 \
    "cnn is the folder of a run, whose --init would take the export: name another" export "$tmp/cnn" "$tmp/cnn"
check "which has none" test ! -e "$tmp/cnn/model.safetensors"
head -c 2000 "$tmp/cnn/best.safetensors" >"$tmp/cut.safetensors"
check "a file that is cut" not run eval "$tmp/cut.safetensors"
printf x | dd of="$tmp/cnn/best.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
check "a damaged checkpoint" says 2 "cnn/best.safetensors: is damaged: its checksum does not match" eval "$tmp/cnn"

# ---- other programs ----

oracle=python3
[ -x build/oracle/bin/python ] && oracle=build/oracle/bin/python
if $oracle -c 'import onnxruntime' 2>/dev/null; then
    check "train cnn again" "$gs" train --model cnn --filters 4 --data "$images" --steps 60 --lr 0.01 $small --checkpoint "$tmp/cnn2"
    for model in mlp cnn2 resnet resnet18 vit; do
        "$gs" export "$tmp/$model" "$tmp/$model.onnx"
        "$gs" predict "$tmp/$model" "$other" --precision fp32 --top 10 --json >"$tmp/$model.json"
        check "onnxruntime, $model" $oracle tests/oracle/models.py onnx "$tmp/$model.onnx" "$tmp/$model.json" "$other"
    done
    # images of three channels that are no squares, with a class each and with one per pixel
    python3 - "$tmp" <<'END'
import random, sys
random.seed(2)
n, h, w = 40, 8, 16
head = lambda *sizes: bytes([0, 0, 8, len(sizes)]) + b"".join(s.to_bytes(4, "big") for s in sizes)
pixels, classes, masks = b"", b"", b""
for i in range(n):
    for y in range(h):
        for x in range(w):
            on = x >= 8 and y < 4
            masks += bytes([i % 3 if on else 0])
            pixels += bytes([150 * (on and c == i % 3) + 30 * c + random.randrange(20) for c in range(3)])
    classes += bytes([i % 3])
for name, labels in ("colour", head(n) + classes), ("masks", head(n, h, w) + masks):
    open(f"{sys.argv[1]}/{name}-images-idx4-ubyte", "wb").write(head(n, h, w, 3) + pixels)
    open(f"{sys.argv[1]}/{name}-labels-idx4-ubyte", "wb").write(labels)
END
    for model in mlp cnn vit fcn; do
        case $model in
        mlp) size="--hidden 16 --data $tmp/colour-images-idx4-ubyte" ;;
        cnn) size="--filters 4 --data $tmp/colour-images-idx4-ubyte" ;;
        vit) size="--patch 4 --layers 1 --width 16 --heads 2 --data $tmp/colour-images-idx4-ubyte" ;;
        fcn) size="--filters 4 --data $tmp/masks-images-idx4-ubyte" ;;
        esac
        check "train $model in colour" "$gs" train --model $model $size --steps 20 --lr 0.01 --threads 1 --batch 8 --quiet \
            --checkpoint "$tmp/$model-colour"
        "$gs" export "$tmp/$model-colour" "$tmp/$model-colour.onnx" >/dev/null
        "$gs" predict "$tmp/$model-colour" "$tmp/colour-images-idx4-ubyte" --precision fp32 --top 3 --json >"$tmp/colour.json"
        check "onnxruntime, $model in colour" $oracle tests/oracle/models.py onnx "$tmp/$model-colour.onnx" \
            "$tmp/colour.json" "$tmp/colour-images-idx4-ubyte"
    done
    # quantised: the graph has N products, of the library's integers; in `skipped` nothing was seen, and ranges are 0
    head -c 60 "$tmp/text" >"$tmp/short"
    for job in mlp:2 cnn:4 resnet:16 resnet18:21 vit:10 fcn:4 gpt:9 skipped:2; do
        name=${job%:*} n=${job#*:} at=$tmp/${job%:*}-int8 data=$images shown=$other code=0
        model=$name size="--filters 4" how="--steps 30 --lr 0.01 --precision bf16"
        case $name in
        mlp) size="--hidden 32" ;;
        resnet18) size="" how="--steps 4 --lr 0.001 --precision bf16" ;;
        vit) size="--patch 2 --layers 2 --width 32 --heads 2" ;;
        fcn) data=$tmp/masks-images-idx4-ubyte shown=$tmp/colour-images-idx4-ubyte ;;
        gpt) size="--layers 2 --width 32 --heads 2 --context 64 --head untied" data=$tmp/text shown=$tmp/short ;;
        skipped) model=mlp size="--hidden 32" how="--steps 1 --precision fp16 --scaler static:1099511627776" code=1 ;;
        esac
        "$gs" train --model $model $size $how --data "$data" --threads 1 --batch 8 --quiet --quantize int8 --checkpoint "$at" \
            2>"$tmp/err"
        check "train $name in INT8" test $? -eq $code
        "$gs" export -q "$at" "$at.onnx"
        "$gs" export -q "$at" "$at.safetensors"
        "$gs" predict "$at" "$shown" --precision fp32 --json $([ $name = gpt ] || echo --top 10) >"$at.json"
        check "products of integers, $name" $oracle tests/oracle/qdq.py graph "$at.onnx" $n
        check "the library's, $name" $oracle tests/oracle/qdq.py weights "$at.onnx" "$at.safetensors"
        if [ $name = gpt ]; then
            check "onnxruntime, gpt in INT8" $oracle tests/oracle/qdq.py text "$at.onnx" "$shown" "$(value loss "$at.json")"
        else
            check "onnxruntime, $name in INT8" $oracle tests/oracle/qdq.py images "$at.onnx" "$at.json" "$shown"
        fi
    done
else
    skip onnxruntime "it is not installed (make oracle)"
fi
if $oracle -c 'import transformers, torch, onnxruntime' 2>/dev/null; then
    head -c 60 "$tmp/text" >"$tmp/short"
    "$gs" predict "$tmp/gpt" "$tmp/short" --precision fp32 --json >"$tmp/short.json"
    check "transformers and onnxruntime, gpt" $oracle tests/oracle/models.py gpt "$tmp/gpt-out" "$tmp/gpt.onnx" \
        "$tmp/short" "$(value loss "$tmp/short.json")"
    "$gs" predict "$tmp/llama" "$tmp/short" --precision fp32 --json >"$tmp/short.json"
    check "transformers, llama" $oracle tests/oracle/models.py llama "$tmp/llama-out" "$tmp/short" \
        "$(value loss "$tmp/short.json")"
    theirs=$($oracle tests/oracle/models.py make-llama "$tmp/hf-llama" "$tmp/short" 2>/dev/null | tail -1)
    check "--init of transformers' llama" "$gs" train $llama --mlp-width 88 --rope-theta 500000 --context 64 \
        --data "$tmp/text" --precision fp32 --steps 1 --lr 0 $small --init "$tmp/hf-llama/model.safetensors" \
        --checkpoint "$tmp/tuned-llama"
    "$gs" predict "$tmp/tuned-llama" "$tmp/short" --json >"$tmp/short.json"
    check "its loss, llama" python3 -c 'import sys; assert abs(float(sys.argv[1]) - float(sys.argv[2])) < 1e-5, sys.argv' \
        "$theirs" "$(value loss "$tmp/short.json")"
    theirs=$($oracle tests/oracle/models.py make-gpt "$tmp/hf" "$tmp/short" 2>/dev/null | tail -1)
    check "--init of transformers' gpt" "$gs" train --model gpt --layers 2 --width 32 --heads 2 --context 64 \
        --data "$tmp/text" --precision fp32 --steps 1 --lr 0 $small --init "$tmp/hf/model.safetensors" --checkpoint "$tmp/tuned"
    "$gs" predict "$tmp/tuned" "$tmp/short" --json >"$tmp/short.json"
    check "its loss" python3 -c 'import sys; assert abs(float(sys.argv[1]) - float(sys.argv[2])) < 1e-5, sys.argv' \
        "$theirs" "$(value loss "$tmp/short.json")"
else
    skip transformers "it is not installed (make oracle)"
fi
if $oracle -c 'import torchvision, torch, safetensors' 2>/dev/null; then
    # ten steps of the models that torchvision does not have
    check "models of PyTorch" $oracle tests/oracle/models.py make-steps "$tmp/steps"
    for model in mlp cnn resnet fcn; do
        case $model in mlp) size="--hidden 16,8" ;; fcn) size="--filters 6 --layers 2" ;; *) size="--filters 4" ;; esac
        for precision in fp32 bf16 fp16; do
            case $precision in fp32) mode=O0 ;; *) mode=O1 ;; esac
            at=$tmp/steps/$model-$precision
            check "ten steps of $model in $precision" "$gs" train --model $model $size --data "$tmp/steps/$model" --normalize no \
                --init "$tmp/steps/$model" --precision $precision --mode $mode --scaler static:1024 --optimizer sgd \
                --lr 0.003 --schedule constant --warmup 0 --clip 0 --batch 32 --steps 10 --threads 1 --valid-every 0 --quiet \
                --log "$at.jsonl" --checkpoint "$at"
            run export "$at/step-00000010.safetensors" "$at.safetensors"
        done
        check "PyTorch, ten steps of $model" $oracle tests/oracle/models.py steps "$tmp/steps" $model
    done
    for model in resnet18 vit; do
        "$gs" predict "$tmp/$model" "$other" --precision fp32 --top 10 --json >"$tmp/$model.json"
        mean=$(sed -n '/"mean"/,/]/p' "$tmp/$model-out/config.json" | tr -d ' \n' | sed 's/.*\[\(.*\)].*/\1/')
        std=$(sed -n '/"inverse_std"/,/]/p' "$tmp/$model-out/config.json" | tr -d ' \n' | sed 's/.*\[\(.*\)].*/\1/')
        check "torchvision, $model" $oracle tests/oracle/models.py torchvision $model \
            "$tmp/$model-out/model.safetensors" "$tmp/$model.json" "$other" "$mean" "$std"
    done
    for model in resnet18 resnet50 vit; do
        case $model in vit) options=$vit ;; *) options="--model $model" ;; esac
        $oracle tests/oracle/models.py make-torchvision $model "$tmp/$model-pt.safetensors"
        check "--init of torchvision's $model" "$gs" train $options --data "$images" --precision fp32 --steps 1 \
            --lr 0 --threads 1 --batch 2 --valid-items 4 --quiet --init "$tmp/$model-pt.safetensors" --checkpoint "$tmp/$model-tuned"
        run export "$tmp/$model-tuned" "$tmp/$model-back.safetensors"
        check "its weights, $model" $oracle tests/oracle/models.py same-weights "$tmp/$model-pt.safetensors" \
            "$tmp/$model-back.safetensors"
    done
else
    skip torchvision "it is not installed (make oracle)"
fi
finish
