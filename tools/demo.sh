#!/bin/sh
# The demo: demo.sh PROGRAM, with BUILD and CC set by make. Grows with the program.
set -e
program=$1

title() { printf '\n== %s\n\n' "$*"; }

title "Gradients in f16, by scale: too low and the small ones vanish, too high and the large overflow"
${CC:-gcc} -Iinclude -o "$BUILD/unscale" examples/00_unscale.c "$BUILD/libgradscale.a" -lm -pthread
"$BUILD/unscale"

title "This machine and the number formats: gradscale info"
"$program" info

title "Passes over 32 MB of gradients beside what memory can do: gradscale bench kernels"
"$program" bench kernels --sizes 32M --seconds 3 --only f32
