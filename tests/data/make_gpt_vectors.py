#!/usr/bin/python3
"""Writes gpt.bin: what PyTorch makes of a GPT of two layers: logits, gradients, ten steps of AdamW.

    tests/data/make_gpt_vectors.py tests/data/gpt.bin

The truth is PyTorch in f64; beside it stands how far PyTorch's own f32, and its bf16 autocast, are
from it. tests/unit/test_gpt.c holds gradscale to those distances. Little-endian, 4 bytes each, in this order:

    ids, targets [BATCH, TIME] as integers; all that follows is f32
    the weights, in the order of gradscale's model: see weights()
    logits [BATCH, TIME, VOCABULARY], in f64 rounded to f32; the largest error of PyTorch's f32
    gradients of all weights, in f64 rounded to f32
    for each weight: norm of the error over norm of the gradient, of f32 and of bf16 autocast
    losses of STEPS steps in f64, in f32, in bf16 autocast

Made with PyTorch 1.13.0 of Debian 12, one thread.
"""
import math
import os
import sys

os.environ["DNNL_MAX_CPU_ISA"] = "AVX512_CORE"  # with AMX, oneDNN 2.6 may die of an illegal instruction

import numpy
import torch
from torch.nn import functional

VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH = 48, 16, 2, 2, 32
BATCH, TIME, STEPS = 3, 12, 10


def weights(rng):
    """Larger than GPT-2's at its start, so that attention attends and every norm matters."""
    def matrix(rows, cols):
        return rng.standard_normal((rows, cols)) * 0.5 / math.sqrt(cols)

    def norm():
        return [1 + 0.2 * rng.standard_normal(WIDTH), 0.2 * rng.standard_normal(WIDTH)]

    def linear(out, ins):
        return [2 * matrix(out, ins), 0.1 * rng.standard_normal(out)]

    parts = [2 * matrix(VOCABULARY, WIDTH), matrix(CONTEXT, WIDTH)]
    for _ in range(LAYERS):
        parts += norm() + linear(3 * WIDTH, WIDTH) + linear(WIDTH, WIDTH)
        parts += norm() + linear(4 * WIDTH, WIDTH) + linear(WIDTH, 4 * WIDTH)
    return [part.astype(numpy.float32) for part in parts + norm()]


def logits_of(w, ids):
    def norm(x, at):
        return functional.layer_norm(x, (WIDTH,), w[at], w[at + 1])

    def linear(x, at):
        return functional.linear(x, w[at], w[at + 1])

    def attention(x):
        q, k, v = (part.view(BATCH, TIME, HEADS, -1).transpose(1, 2)
                   for part in x.split(WIDTH, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
        future = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)
        p = functional.softmax(scores.masked_fill(future, -math.inf), dim=-1)
        return (p @ v).transpose(1, 2).reshape(BATCH, TIME, WIDTH)

    x = functional.embedding(ids, w[0]) + w[1][:TIME]
    for block in range(2, 2 + 12 * LAYERS, 12):
        x = x + linear(attention(linear(norm(x, block), block + 2)), block + 4)
        x = x + linear(functional.gelu(linear(norm(x, block + 6), block + 8), approximate="tanh"),
                       block + 10)
    return functional.linear(norm(x, 2 + 12 * LAYERS), w[0])


class Run:
    """A model in one precision: logits and gradients of the first step, losses of all."""

    def __init__(self, start, ids, targets, dtype, autocast):
        w = [torch.nn.Parameter(torch.tensor(part, dtype=dtype)) for part in start]
        optim = torch.optim.AdamW([{"params": [p for p in w if p.dim() > 1], "weight_decay": 0.1},
                                   {"params": [p for p in w if p.dim() == 1], "weight_decay": 0}],
                                  lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
        self.losses = []
        for step in range(STEPS):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                logits = logits_of(w, ids)
            wide = logits if dtype == torch.float64 else logits.float()
            loss = functional.cross_entropy(wide.flatten(0, 1), targets.flatten(), ignore_index=-1)
            optim.zero_grad()
            loss.backward()
            if step == 0:
                self.logits = wide.detach().double()
                self.grads = [p.grad.double().clone() for p in w]
            optim.step()
            self.losses.append(loss.item())


def distance(got, want):
    return [((g - w).norm() / w.norm()).item() for g, w in zip(got, want)]


def main(path):
    torch.set_num_threads(1)
    rng = numpy.random.default_rng(20240602)
    start = weights(rng)
    ids = torch.from_numpy(rng.integers(0, VOCABULARY, (BATCH, TIME)))
    targets = torch.from_numpy(rng.integers(0, VOCABULARY, (BATCH, TIME)))
    targets[1, 5] = -1  # left out
    true = Run(start, ids, targets, torch.float64, False)
    f32 = Run(start, ids, targets, torch.float32, False)
    bf16 = Run(start, ids, targets, torch.float32, True)
    parts = start + [true.logits, (f32.logits - true.logits).abs().max()] + true.grads
    parts += distance(f32.grads, true.grads) + distance(bf16.grads, true.grads)
    parts += true.losses + f32.losses + bf16.losses
    with open(path, "wb") as out:
        for part in ids, targets:
            out.write(part.numpy().astype("<i4").tobytes())
        for part in parts:
            out.write(numpy.asarray(part).astype("<f4").tobytes())


main(*sys.argv[1:])
