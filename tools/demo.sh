#!/bin/sh
# The demo: demo.sh PROGRAM, with BUILD set by make. Minutes on two cores; opens nothing.
set -e
program=$1
out=${BUILD:?}/demo
data=/usr/share/datasets/fashion-mnist
mkdir -p "$out"

title() { printf '\n== %s\n   gradscale %s\n\n' "$1" "$2"; }

# $1 what it shows, the others: the command
show()
{
    what=$1
    shift
    title "$what" "$*"
    "$program" "$@"
}

if [ -e "$data/train-images-idx3-ubyte.gz" ]; then
    show "A convolutional network learns Fashion-MNIST in fp16 with dynamic loss scaling" \
        train --data fashion-mnist --model cnn --precision fp16 --scaler pytorch \
        --report "$out/fashion.html"
else
    echo "Fashion-MNIST is not here (Debian's package dataset-fashion-mnist): the first part is left out"
fi
show "A loss that is the mean over many pixels: without scaling fp16 loses the gradients" \
    compare --config examples/dense.conf --output "$out/dense"
