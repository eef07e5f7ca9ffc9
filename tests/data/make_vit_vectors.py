#!/usr/bin/python3
"""Writes vit.bin: what torchvision's VisionTransformer makes of a few images: logits, gradients, ten steps of
AdamW.

    tests/data/make_vit_vectors.py tests/data/vit.bin

Weights and images are not in the file: both sides compute them, see vision.py. The truth is PyTorch in f64;
beside it stands how far PyTorch's own f32, and its bf16 autocast, are from it. tests/unit/test_vit.c holds
gradscale to those distances. Little-endian f32, in this order:

    logits [BATCH, CLASSES]; the largest error of f32
    of the gradient of each weight SAMPLES elements, spread over it in PyTorch's order: see vision.py
    for each weight: norm of the error over norm of the gradient, of those, of f32 and of bf16 autocast
    losses of the steps in f64, in f32, in bf16 autocast

Made with torchvision 0.29 and PyTorch 2.15 of PyPI, one thread.
"""
import math
import sys

import numpy
import torch
from torch.nn import functional
from torchvision.models import VisionTransformer

from vision import distance, images, number, sample, write

SIDE, PATCH, LAYERS, HEADS, WIDTH, HIDDEN, CLASSES = 36, 4, 2, 2, 32, 80, 10
BATCH, SAMPLES, STEPS = 3, 64, 10


def is_vector(p):
    """As gradscale has it: biases, norms and the class token, which are not decayed."""
    return p.numel() == p.shape[-1]


def weights(model):
    """In the order of the model's parameters, which is gradscale's."""
    for i, (name, p) in enumerate(model.named_parameters()):
        u = number(i, p.numel())
        if is_vector(p):
            gamma = ".ln" in name and name.endswith("weight")
            value = 1 + 0.3 * u if gamma else 0.3 * u
        else:
            value = 0.5 * u if p.dim() == 3 else 1.7 * u / math.sqrt(p[0].numel())
        yield torch.from_numpy(value.astype(numpy.float32).reshape(p.shape))


class Run:
    def __init__(self, dtype, autocast):
        model = VisionTransformer(SIDE, PATCH, LAYERS, HEADS, WIDTH, HIDDEN, num_classes=CLASSES).to(dtype).train()
        w = list(model.parameters())
        with torch.no_grad():
            for p, value in zip(w, weights(model)):
                p.copy_(value)
        x, targets = images(BATCH, SIDE).to(dtype), torch.arange(BATCH) * 3 % CLASSES
        optim = torch.optim.AdamW([{"params": [p for p in w if not is_vector(p)], "weight_decay": 0.1},
                                   {"params": [p for p in w if is_vector(p)], "weight_decay": 0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-5)  # the keys' bias has no gradient but rounding
        self.losses = []
        for step in range(STEPS):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                logits = model(x)
            wide = logits if dtype == torch.float64 else logits.float()
            loss = functional.cross_entropy(wide, targets)
            optim.zero_grad()
            loss.backward()
            if step == 0:
                self.logits = wide.detach().double()
                self.grads = [sample(p.grad, SAMPLES) for p in w]
            optim.step()
            self.losses.append(loss.item())


def main(path):
    torch.set_num_threads(1)
    true, f32, bf16 = Run(torch.float64, False), Run(torch.float32, False), Run(torch.float32, True)
    parts = [true.logits, (f32.logits - true.logits).abs().max()] + true.grads
    parts += distance(f32.grads, true.grads) + distance(bf16.grads, true.grads)
    parts += true.losses + f32.losses + bf16.losses
    print(true.losses, f32.losses, bf16.losses, sep="\n", file=sys.stderr)
    print(distance(f32.grads, true.grads), distance(bf16.grads, true.grads), sep="\n", file=sys.stderr)
    write(path, parts)


main(*sys.argv[1:])
