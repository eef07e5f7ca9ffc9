#!/bin/sh
# The loss of a small GPT on bytes against the tokens of a step, with and without loss scaling:
# bench/text.sh [PROGRAM [FOLDER]]. The gradient of a wrong byte of probability p is p / tokens, and
# f16 rounds it to zero below 2^-25. doc/experiments.md has the results.
set -e
program=${1:-build/gradscale}
out=${2:-build/text}
steps=${STEPS:-200}
mkdir -p "$out"
for batch in ${BATCHES:-4 16 64}; do
    tokens=$((batch * 256))
    echo "== $tokens tokens a step"
    "$program" compare --model gpt --data self --layers 2 --width 64 --heads 4 --context 256 \
        --batch "$batch" --steps "$steps" --valid-items 64 --runs fp32,fp16:none,fp16:pytorch,bf16 \
        --output "$out/$tokens"
done
