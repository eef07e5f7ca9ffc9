#!/bin/sh
# The loss of a small GPT on bytes against the tokens of a step, with and without loss scaling:
# bench/text.sh [PROGRAM [FOLDER]]. First as one micro-batch of 1,024 tokens of a step of so many,
# which is a weight of the loss; then 16,384 tokens in one batch. doc/experiments.md has the results.
set -e
program=${1:-build/gradscale}
out=${2:-build/text}
runs=fp32,fp16:none,fp16:pytorch
mkdir -p "$out"
for tokens in 1024 16384 262144 1048576; do
    printf '\n== 1,024 tokens of a step of %s\n\n' "$tokens"
    "$program" compare --config examples/text.conf --runs $runs --output "$out/$tokens" \
        --loss-weight "$(awk -v n="$tokens" 'BEGIN { printf "%.12g", 1024 / n }')"
done
printf '\n== 16,384 tokens in one batch\n\n'
"$program" compare --config examples/text.conf --runs $runs --output "$out/batch" --batch 64 \
    --steps 100
