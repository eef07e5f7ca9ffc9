#!/bin/sh
# The demo: demo.sh PROGRAM [OPTION...], with BUILD set by make. A few minutes on two cores; opens
# nothing. Options go to both of its commands (the tests ask for few --steps).
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
    echo "Fashion-MNIST is not here (Debian's package dataset-fashion-mnist): the first half is left out"
fi
show "A loss that is a mean over millions of pixels: in fp16 the gradients underflow unless it is scaled" \
    compare --config examples/dense.conf --output "$out/dense" "$@"
