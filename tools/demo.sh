#!/bin/sh
# The demo: demo.sh PROGRAM, with BUILD and CC set by make. Grows with the program.
set -e
program=$1

title() { printf '\n== %s\n\n' "$*"; }

title "The program of README.md: without a scale, f16 loses the gradients and nothing is learnt"
${CC:-gcc} -Iinclude -o "$BUILD/first" examples/00_first.c "$BUILD/libgradscale.a" -lm -pthread
"$BUILD/first"

title "Which scale do these gradients need? gradscale advise tests/data/grads.safetensors"
"$program" advise tests/data/grads.safetensors

title "Recordings of other frameworks' scalers, bit for bit: gradscale replay tests/traces/*.trace"
"$program" replay tests/traces/*.trace

title "Passes over 32 MB of gradients beside what memory can do: gradscale bench kernels"
"$program" bench kernels --sizes 32M --seconds 3 --only f32
