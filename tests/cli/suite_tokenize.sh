#!/bin/sh
# Text as tokens: tokenize train, encode, decode, and a GPT that is trained on tokens. Hugging Face's tokenizers agree,
# where they are installed.
. tests/support/program.sh
small="--threads 1 --batch 8 --valid-items 16 --quiet"
gpt="--model gpt --layers 1 --width 32 --heads 2 --context 32"

# ---- train, encode, decode ----

cat src/base/*.c src/io/*.c >"$tmp/text"
check "tokenize train" run tokenize train "$tmp/text" --size 700 --out "$tmp/tok"
check "700 tokens" grep -q '^700 tokens from ' "$tmp/out"
for file in tokenizer.json vocab.json merges.txt; do
    check "$file" test -s "$tmp/tok/$file"
done
check "the same again" sh -c "'$gs' tokenize train '$tmp/text' --size 700 --out '$tmp/tok2' >/dev/null &&
    cmp '$tmp/tok/tokenizer.json' '$tmp/tok2/tokenizer.json'"
check "encode" run tokenize encode "$tmp/tok" "$tmp/text" --out "$tmp/text.bin" --stats
check "its speed" grep -q 'MB/s' "$tmp/err"
check "decode" run tokenize decode "$tmp/tok" "$tmp/text.bin" --out "$tmp/back"
check "the same text" cmp "$tmp/text" "$tmp/back"
check "by vocab.json and merges.txt the same tokens" sh -c "
    '$gs' tokenize encode '$tmp/tok/vocab.json' '$tmp/text' --out '$tmp/two.bin' && cmp '$tmp/text.bin' '$tmp/two.bin'"
printf 'static \377\303 \303\244<|endoftext|>\000x\n' >"$tmp/bytes"
check "any bytes, as numbers, and back" sh -c "
    '$gs' tokenize encode '$tmp/tok' '$tmp/bytes' | '$gs' tokenize decode '$tmp/tok' - | cmp - '$tmp/bytes'"
check "<|endoftext|> is one token" sh -c "printf '<|endoftext|>' | '$gs' tokenize encode '$tmp/tok' - | grep -qx 699"
check "it follows each of several files" sh -c "printf a >'$tmp/a'; printf b >'$tmp/b'
    '$gs' tokenize encode '$tmp/tok' '$tmp/a' '$tmp/b' | grep -qx '64 699 65 699'"
printf '' >"$tmp/empty"
check "an empty text" run tokenize encode "$tmp/tok" "$tmp/empty"
check "few pairs" sh -c "printf 'aaaa aaaa' >'$tmp/few'; '$gs' tokenize train '$tmp/few' --size 300 --out '$tmp/fewtok' |
    grep -q '^300 were asked for'"

# ---- what is refused ----

check "no tokenizer" says 2 "none: cannot be opened: No such file or directory" tokenize encode "$tmp/none" "$tmp/text"
head -c 900 "$tmp/tok/tokenizer.json" >"$tmp/cut.json"
check "a tokenizer that is cut" sh -c "'$gs' tokenize encode '$tmp/cut.json' '$tmp/a' 2>&1 | grep -q 'cut.json: is no JSON at byte 900'"
mkdir -p "$tmp/alone"
cp "$tmp/tok/vocab.json" "$tmp/alone"
check "merges are missing" says 2 "alone/merges.txt: cannot be opened: No such file or directory" \
    tokenize encode "$tmp/alone" "$tmp/a"
printf '#version: 0.2\nx y z\n' >"$tmp/alone/merges.txt"
check "merges that are none" says 2 "alone/merges.txt: merge 1 is not two tokens with a blank between them" \
    tokenize encode "$tmp/alone" "$tmp/a"
cp "$tmp/tok/vocab.json" "$tmp/alone"
sed 2d "$tmp/tok/merges.txt" >"$tmp/alone/merges.txt" # the first merge, of which others are made
check "a line of merges.txt is missing" says 2 "alone/merges.txt: merge 1 is of ĠĠ, which no merge makes" \
    tokenize encode "$tmp/alone" "$tmp/a"
echo "1 2 700" >"$tmp/ids"
check "an id beyond the vocabulary" says 2 "ids: token 2 is 700, and the tokenizer has 700" tokenize decode "$tmp/tok" "$tmp/ids"
echo "1 x" >"$tmp/ids"
check "no id" says 2 "ids: token 1 is not a number" tokenize decode "$tmp/tok" "$tmp/ids"
head -c 1500 "$tmp/text.bin" >"$tmp/cut.bin"
check "a token file that is cut" says 2 "cut.bin: is no whole token file of version 1: 1500 bytes" \
    tokenize decode "$tmp/tok" "$tmp/cut.bin"
check "nowhere to write" says 2 "none/x.bin cannot be written: No such file or directory" \
    tokenize encode "$tmp/tok" "$tmp/a" --out "$tmp/none/x.bin"
check "train without --out" says 2 "--out DIR is needed: where the tokenizer goes" tokenize train "$tmp/text"
check "a tokenizer for images" says 2 "--data: shapes: has no use for a tokenizer: it is not text" \
    train --data shapes --tokenizer "$tmp/tok" $small

# ---- a GPT of tokens ----

check "a report over the tokenizer" says 2 "--report and --tokenizer are the same file" \
    train $gpt --data "$tmp/text" --tokenizer "$tmp/tok/tokenizer.json" --report "$tmp/tok/tokenizer.json" --no-save $small
check "train --tokenizer" "$gs" train $gpt --data "$tmp/text" --tokenizer "$tmp/tok" --steps 30 --precision bf16 $small \
    --checkpoint "$tmp/run" --log "$tmp/run.jsonl"
mv "$tmp/tok" "$tmp/moved" # the checkpoint has it inside
check "eval" run eval "$tmp/run" --batch 8 --items 16 --threads 1 --json
check "its bits per byte are below those of its tokens" sh -c "
    awk -v bits=$(value bits_per_byte "$tmp/out") -v loss=$(value loss "$tmp/out") 'BEGIN { exit !(bits > 1 && bits < loss / log(2) / 1.5) }'"
check "generate" run generate "$tmp/run" --prompt 'static int ' --tokens 40 --seed 3 --threads 1
check "the prompt as it was" sh -c "head -c 11 '$tmp/out' | grep -q 'static int '"
cat >"$tmp/stops.py" <<'END'
import subprocess, sys
def said(*more):
    return subprocess.run([*sys.argv[1:], "--no-prompt", "--threads", "1", *more], stdout=subprocess.PIPE, check=True).stdout
whole = said()
for n in 1, 2, 3:  # wherever in a token, or in two, a stop begins and ends
    for at in range(5, 20, 4):
        stop = whole[at:at + n]
        cut = said("--stop", stop)
        assert cut == whole[:whole.index(stop)] + b"\n", (stop, whole, cut)
END
check "a stop inside of a token" python3 "$tmp/stops.py" "$gs" generate "$tmp/run" --prompt 'static int ' --tokens 40 \
    --seed 3
check "predict" run predict "$tmp/run" "$tmp/text" --threads 1
check "a prompt of any bytes" sh -c "'$gs' generate '$tmp/run' --prompt-file '$tmp/bytes' --tokens 1 --no-prompt >/dev/null"
check "export" run export "$tmp/run" "$tmp/hf"
for file in tokenizer.json vocab.json merges.txt; do
    check "with its $file" cmp "$tmp/hf/$file" "$tmp/moved/$file"
done
check "config.json has the end of text" grep -q '"eos_token_id": 699' "$tmp/hf/config.json"
check "a Llama of tokens" "$gs" train $gpt --positions rotary --norm rms --mlp swiglu --data "$tmp/text" --tokenizer \
    "$tmp/moved" --steps 1 $small --checkpoint "$tmp/llama"
check "export of it" run export "$tmp/llama" "$tmp/hf-llama"
check "its config.json has the end of text, too" grep -q '"eos_token_id": 699' "$tmp/hf-llama/config.json"
check "--init of the folder" "$gs" train $gpt --data "$tmp/text" --precision bf16 --steps 1 --lr 0 $small --init "$tmp/hf" \
    --checkpoint "$tmp/again"
check "--init of the checkpoint" "$gs" train $gpt --data "$tmp/text" --precision bf16 --steps 1 --lr 0 $small \
    --init "$tmp/run/best.safetensors" --checkpoint "$tmp/third"
check "--init of its folder" "$gs" train $gpt --data "$tmp/text" --precision bf16 --steps 1 --lr 0 $small \
    --init "$tmp/run" --checkpoint "$tmp/fourth"
check "which has its tokenizer" sh -c "'$gs' predict '$tmp/third' '$tmp/text' >'$tmp/p1' &&
    '$gs' predict '$tmp/fourth' '$tmp/text' | cmp - '$tmp/p1'"
check "the same weights by both" sh -c "'$gs' predict '$tmp/again' '$tmp/text' >'$tmp/p1' &&
    '$gs' predict '$tmp/third' '$tmp/text' | cmp - '$tmp/p1'"
check "going on" "$gs" train --resume --checkpoint "$tmp/run" --steps 32 --quiet
check "with another tokenizer" not "$gs" train --resume --checkpoint "$tmp/run" --steps 34 --tokenizer "$tmp/moved" --quiet
check "tokens of a file, with the tokenizer" "$gs" train $gpt --data "$tmp/text.bin" --tokenizer "$tmp/moved" --steps 2 $small \
    --checkpoint "$tmp/bin"
check "so that it can be asked" run generate "$tmp/bin" --tokens 3
check "tokens of a file, without" "$gs" train $gpt --data "$tmp/text.bin" --steps 1 $small --checkpoint "$tmp/dumb"
check "it cannot be asked" says 2 \
    "dumb/best.safetensors: does not say how text becomes tokens: it was trained on files of tokens" generate "$tmp/dumb"
check "nor measured on text" says 2 \
    "--data: text: the model does not say how text becomes tokens: it was trained on files of tokens" \
    eval "$tmp/dumb" --data "$tmp/text"
mkdir "$tmp/folder"
cp "$tmp/text" "$tmp/folder/a.c"
cp "$tmp/text" "$tmp/folder/b.c"
check "a folder of text" "$gs" train $gpt --data "$tmp/folder" --tokenizer "$tmp/moved" --steps 1 $small --no-save

# ---- characters arrive whole ----

# a tokenizer of bytes alone, and a text of characters of four bytes: what is printed is UTF-8 up to its end
python3 -c "import sys; open(sys.argv[1], 'wb').write('\U0001F600\U0001F601\U0001F602'.encode() * 400)" "$tmp/emoji"
check "train on emoji" "$gs" train $gpt --data "$tmp/emoji" --steps 300 --lr 0.01 $small --checkpoint "$tmp/emojis"
cat >"$tmp/pieces.py" <<'END'
import os, subprocess, sys
reader, writer = os.pipe()
child = subprocess.Popen(sys.argv[1:], stdout=writer)
os.close(writer)
pieces = []
while not pieces or pieces[-1]:
    pieces.append(os.read(reader, 4096))  # one flush or several
text = b"".join(pieces).decode(errors="strict")
assert len(text) == 9, text
for piece in pieces:
    piece.decode()
END
check "whole characters" python3 "$tmp/pieces.py" "$gs" generate "$tmp/emojis" --prompt "$(printf '\360\237\230\200')" \
    --temperature 0 --tokens 28 --threads 1

# ---- Hugging Face's tokenizers ----

oracle=python3
[ -x build/oracle/bin/python ] && oracle=build/oracle/bin/python
theirs() { $oracle tests/oracle/tokenizers_check.py "$@"; }
if $oracle -c 'import tokenizers' 2>/dev/null; then
    check "a hostile text" theirs text "$tmp/hostile" 1
    mkdir "$tmp/made"
    check "their tokenizer" theirs make "$tmp/made" "$tmp/text" 2000
    check "with added tokens" theirs added "$tmp/added.json"
    for name in moved made added.json; do
        for text in hostile text; do
            check "encode $text by $name" run tokenize encode "$tmp/$name" "$tmp/$text" --out "$tmp/ids.bin"
            json=$tmp/$name
            [ -f "$json" ] || json=$tmp/$name/tokenizer.json
            check "the same ids" theirs ids "$json" "$tmp/$text" "$tmp/ids.bin"
        done
    done
    check "the merges of their trainer" theirs merges "$tmp/moved/tokenizer.json" "$tmp/text"
    check "they decode ours" theirs decode "$tmp/moved/tokenizer.json" "$tmp/hostile"
else
    skip tokenizers "it is not installed (make oracle)"
fi
finish
