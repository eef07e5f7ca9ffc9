#!/bin/sh
# Data that people have, from the command line: folders of images, masks, arrays, CSV; images that are varied, in
# runs that are stopped and resumed; what is refused.
. tests/support/program.sh
small="--threads 1 --batch 8 --valid-items 8 --quiet"

# PNG files by hand: discs and stripes, a mask for each; the same as CSV and as a .npy of bytes.
python3 - "$tmp" <<'END'
import os, random, struct, sys, zlib
random.seed(3)
root = sys.argv[1]

def png(path, width, height, color, rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    raw = b"".join(b"\0" + bytes(row) for row in rows)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))

n, side = 24, 16
csv = open(root + "/rows.csv", "w")
csv.write("a,b,kind\n".replace("kind", "label"))
for i in range(n):
    for kind in "disc", "stripe":
        cx, cy = random.randrange(4, 12), random.randrange(4, 12)
        def inside(x, y):
            return (x - cx) ** 2 + (y - cy) ** 2 <= 9 if kind == "disc" else x % 4 < 2
        rows = [[v for x in range(side) for v in [200 if inside(x, y) else random.randrange(60)] * 3] for y in range(side)]
        png(f"{root}/kinds/{kind}/{i:02d}.png", side, side, 2, rows)
        if kind == "disc":
            png(f"{root}/seg/images/{i:02d}.png", side, side, 2, rows)
            png(f"{root}/seg/masks/{i:02d}.png", side, side, 0, [[int(inside(x, y)) for x in range(side)] for y in range(side)])
        csv.write(f"{cx},{cy + (20 if kind == 'disc' else 0)},{kind}\n")
header = "{'descr': '|u1', 'fortran_order': False, 'shape': (40, 6), }"
for name, shape, data in ("x", "(40, 6)", bytes(i * 37 % 256 for i in range(240))), ("y", "(40,)", bytes(i % 2 for i in range(40))):
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }" % shape
    os.makedirs(root + "/arrays", exist_ok=True)
    open(f"{root}/arrays/{name}.npy", "wb").write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + data)
END

losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([^,]*\),.*/\1 \2/p' "$1" | sort -n; }

# ---- a folder per class ----

cnn="--model cnn --filters 4 --data $tmp/kinds --augment crop:2,flip,cutout:3,color:0.2 $small"
check "a folder of images" "$gs" train $cnn --steps 24 --log "$tmp/a.jsonl" --checkpoint "$tmp/a"
check "the first half of it" "$gs" train $cnn --steps 24 --checkpoint-every 5 --valid-every 100 --keep 0 --log "$tmp/b.jsonl" \
    --checkpoint "$tmp/b"
rm -f "$tmp"/b/best.safetensors "$tmp"/b/step-0000001[5-9]* "$tmp"/b/step-0000002*
check "resumed at step 10" "$gs" train --resume --checkpoint "$tmp/b" --log "$tmp/c.jsonl" --quiet
resumed() { losses "$tmp/a.jsonl" | tail -14 >"$tmp/whole" && losses "$tmp/c.jsonl" | tail -14 | diff "$tmp/whole" -; }
check "the same losses as the run that was not stopped" resumed
check "14 of them" test "$(losses "$tmp/c.jsonl" | wc -l)" = 14
cp -r "$tmp/kinds" "$tmp/named"
check "a run on a folder" "$gs" train --model cnn --filters 4 --data "$tmp/named" $small --steps 2 --checkpoint "$tmp/named-run"
mv "$tmp/named/disc" "$tmp/named/dot"
check "resumed on classes of other names" says 2 \
    "named-run/step-00000002.safetensors: its class 0 is disc, and that of named is dot: begin a new run for that" \
    train --resume --checkpoint "$tmp/named-run" --steps 3 --quiet
varied()
{
    "$gs" train --model cnn --filters 4 --data "$tmp/kinds" $small --steps 24 --no-save --log "$tmp/d.jsonl" &&
        ! losses "$tmp/d.jsonl" | tail -14 | diff -q "$tmp/whole" -
}
check "others without --augment" varied
check "names of classes, in eval" sh -c "'$gs' eval '$tmp/a' | grep -q '^stripe '"
check "and in predict, with files" sh -c "'$gs' predict '$tmp/a' '$tmp/kinds/disc/03.png' |
    grep -Eq '^$tmp/kinds/disc/03.png,1,[01],(disc|stripe),0\.[0-9]+$'"
check "another size" sh -c "'$gs' train --model cnn --filters 4 --data '$tmp/kinds' --resize 12x8 --dry-run | grep -q 'cnn 8x12x3'"

# ---- masks, arrays, tables ----

check "images and masks" "$gs" train --data "$tmp/seg" --filters 4 --steps 30 --augment flip $small --checkpoint "$tmp/seg-run"
check "classes of pixels" sh -c "'$gs' eval '$tmp/seg-run' --split all | grep -q '^mean IoU'"
check "a CSV" "$gs" train --model mlp --hidden 8 --data "$tmp/rows.csv" --steps 200 --lr 0.02 $small --checkpoint "$tmp/csv-run"
check "is learnt" sh -c "'$gs' eval '$tmp/csv-run' --split all | awk '/^accuracy/ { good = \$2 + 0 > 95 } END { exit !good }'"
check "predict of its rows" sh -c "'$gs' predict '$tmp/csv-run' '$tmp/rows.csv' >'$tmp/labelled'"
check "one for each" test "$(wc -l <"$tmp/labelled")" = "$(wc -l <"$tmp/rows.csv")"
cut -d, -f1,2 "$tmp/rows.csv" >"$tmp/bare.csv"
check "the same without labels" sh -c "'$gs' predict '$tmp/csv-run' '$tmp/bare.csv' | cmp - '$tmp/labelled'"
sed 1d "$tmp/bare.csv" >"$tmp/numbers.csv"
check "and without titles" sh -c "'$gs' predict '$tmp/csv-run' '$tmp/numbers.csv' | cmp - '$tmp/labelled'"
check "rows are called so" sh -c "'$gs' train --data '$tmp/rows.csv' --dry-run | grep -q '^data .* rows to train on'"
check "one is a row" sh -c "printf 'a,b,c\\n1,2,1\\n' >'$tmp/single.csv' && '$gs' train --data '$tmp/single.csv' --dry-run | grep -q '^data .* 1 row to train on'"
check "a CSV without --model: an mlp" sh -c "'$gs' train --data '$tmp/rows.csv' --dry-run | grep -q '^model *mlp 1x2x1'"
printf 'a,b,kind\n' >"$tmp/raw.csv"
awk 'BEGIN { for (i = 0; i < 60; i++) printf "%d,%s,%d\n", i % 2, i == 7 ? "1e9" : 3 - i % 2, i % 2 }' >>"$tmp/raw.csv"
raw() { "$gs" train --hidden 8 --data "$tmp/raw.csv" --steps 20 $small --no-save --overwrite --log "$tmp/raw.jsonl" "$@" && ! grep -q '"verdict":"skip"' "$tmp/raw.jsonl"; }
check "a record that is far off, normalised" raw
check "--normalize no: it is too large for fp16" not raw --normalize no
check "which is the reason" grep -q '"verdict":"skip","reason":"forward"' "$tmp/raw.jsonl"
check "not for bf16" raw --normalize no --precision bf16
check "a model without normalisation" "$gs" train --hidden 8 --data "$tmp/rows.csv" --normalize no --steps 100 --lr 0.02 $small --checkpoint "$tmp/raw-run"
check "says so" not grep -aq inverse_std "$tmp/raw-run/best.safetensors"
check "eval reads data as it did" sh -c "'$gs' eval '$tmp/raw-run' --data '$tmp/rows.csv' | grep -q '^accuracy\|right'"
check "--resume keeps it" says 2 "--normalize yes does not go with raw-run/step-00000100.safetensors, which has no: begin a new run for that" \
    train --resume --checkpoint "$tmp/raw-run" --normalize yes
check "arrays" "$gs" train --model mlp --hidden 8 --data "$tmp/arrays" --steps 2 --no-save $small

# ---- what is refused ----

check "--resize of what has no files of images" says 2 \
    "--data: arrays: keeps its size: only images of a folder are scaled" train --data "$tmp/arrays" --resize 8x8
check "--augment of text" says 2 "--augment is for images, and self is tokens" train --model gpt --data self --augment flip
check "--augment of rows" says 2 "--augment is for images, and rows.csv is rows of numbers" \
    train --data "$tmp/rows.csv" --augment flip
cut -d, -f1 "$tmp/rows.csv" >"$tmp/one.csv"
printf 'a,price\n1,2.5\n2,3\n' >"$tmp/values.csv"
check "values that are no classes" says 2 "--data: values.csv: column 2 has values such as 2.5, and classes are learnt: whole \
numbers or words" train --data "$tmp/values.csv"
awk 'BEGIN { print "a,label"; for (i = 0; i < 200000; i++) printf "%d,word%d\n", i % 7, i * 7919 % 1000003 }' >"$tmp/words.csv"
check "a class for every row" sh -c "timeout 60 '$gs' train --data '$tmp/words.csv' --dry-run | grep -q ' classes=200000,'"
printf 'a,label\n1,9999999\n2,3\n' >"$tmp/ids.csv"
check "numbers that are no classes" says 2 "--data: ids.csv: has a class 9999999, and 2 items" train --data "$tmp/ids.csv"
check "predict, images for a model of rows" says 2 "kinds: has images, and the model was trained on rows of numbers" \
    predict "$tmp/csv-run" "$tmp/kinds"
check "a model of text" "$gs" train --model gpt --layers 1 --width 8 --heads 1 --context 8 --steps 1 $small \
    --data tests/cli/suite_data.sh --checkpoint "$tmp/gpt"
check "eval, images for it" says 2 "--data: kinds: has images, and the model was trained on tokens" \
    eval "$tmp/gpt" --data "$tmp/kinds"
check "prints no titles" test ! -s "$tmp/out"
check "predict, rows that are too short" says 2 "one.csv:1: has one column, and 2 are needed, with commas, semicolons or tabs between them" predict "$tmp/csv-run" "$tmp/one.csv"
check "predict, text for a model of images" says 2 "tests/cli/suite_data.sh: is not a file or folder of images, CIFAR, NumPy or CSV" \
    predict "$tmp/a" tests/cli/suite_data.sh
check "--augment beyond the image" says 2 "kinds: images of 16 x 16 cannot be moved by 16 pixels" \
    train --data "$tmp/kinds" --model cnn --augment crop:16
rm "$tmp/seg/masks/07.png"
check "an image without a mask" says 2 "--data: seg/images/07.png: has no mask: there is no PNG of its name in masks" \
    train --data "$tmp/seg"
head -c 100 "$tmp/kinds/disc/05.png" >"$tmp/cut" && mv "$tmp/cut" "$tmp/kinds/disc/05.png"
check "an image that is cut short" says 2 "--data: kinds/disc/05.png: is damaged: it is cut short" train --data "$tmp/kinds"
finish
