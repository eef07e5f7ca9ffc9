#!/bin/sh
# The demo: demo.sh PROGRAM [OPTION...], with BUILD set by make. A few minutes on two cores; opens
# nothing. Options go to all of its commands (the tests ask for few --steps).
set -e
program=$1
shift
out=${BUILD:?}/demo
mkdir -p "$out"

# $1 what is to be seen, then the command
show()
{
    printf '\n== %s\n   gradscale' "$1"
    shift
    printf ' %s' "$@"
    printf '\n\n'
    "$program" "$@"
}

if [ -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz ]; then
    # 1407 steps of 128 images: three times through them
    show "A network learns to tell clothes apart, in fp16 with dynamic loss scaling" \
        train --model cnn --data fashion-mnist --precision fp16 --scaler pytorch --steps 1407 \
        --report "$out/fashion.html" --overwrite --no-save "$@"
else
    echo "Fashion-MNIST is not here (Debian's package dataset-fashion-mnist): the first part is left out"
fi

# Three arms of a spiral, 3000 points; record 1234 was read wrong. It is too large for f16, which no scale mends.
awk 'BEGIN {
    print "east,north,arm"
    for (i = 0; i < 3000; i++) {
        r = 0.1 + 0.9 * i / 3000; angle = 6 * r + 2.0944 * (i % 3)
        printf "%.4f,%.4f,%d\n", i == 1234 ? 1e9 : r * cos(angle), r * sin(angle), i % 3
    }
}' >"$out/spiral.csv"
show "The machine at work: the scale begins too high, falls, and grows until gradients overflow again;
   one bad record in the data is skipped and leaves the scale alone" \
    train --model mlp --data "$out/spiral.csv" --normalize no --hidden 64,64 --batch 64 --lr 0.01 --precision fp16 \
    --scaler pytorch --set init=16777216 --set interval=50 --on-overflow attribute --steps 600 \
    --report "$out/spiral.html" --overwrite --no-save "$@"

show "A loss that is a mean over millions of pixels: in fp16 the gradients underflow unless it is scaled" \
    compare --config examples/dense.conf --output "$out/dense" "$@"
