#!/usr/bin/python3
"""Writes resnet18.bin and resnet50.bin: what torchvision's ResNets make of a few images: logits, gradients,
losses of steps of AdamW.

    tests/data/make_resnet_vectors.py tests/data

Weights and images are not in the files: both sides compute them, see vision.py. The truth is PyTorch in f64;
beside it stands how far PyTorch's own f32, and its bf16 autocast, are from it. tests/unit/test_resnet.c holds
gradscale to those distances. Little-endian f32, in this order:

    logits [BATCH, CLASSES] of evaluation, with the running statistics of a beginning; the largest error of f32
    of the gradient of each weight SAMPLES elements, spread over it in PyTorch's order: see vision.py
    for each weight: norm of the error over norm of the gradient, of those, of f32 and of bf16 autocast
    losses of the steps in f64, in f32, in bf16 autocast
    after the steps, the running variance of the last norm, in f64; the largest relative error of f32

Made with torchvision 0.29 and PyTorch 2.15 of PyPI, one thread.
"""
import math
import sys

import numpy
import torch
import torchvision
from torch.nn import functional

from vision import distance, images, number, sample, write

BATCH, SIDE, CLASSES, SAMPLES, STEPS = 4, 64, 10, 32, 10


def weights(model):
    """In the order of the model's parameters, which is gradscale's."""
    for i, (name, p) in enumerate(model.named_parameters()):
        u = number(i, p.numel())
        if p.dim() == 4:
            value = u * math.sqrt(6 / (p.shape[0] * p.shape[2] * p.shape[3]))
        elif p.dim() == 2:
            value = u / math.sqrt(p.shape[1])
        else:
            # a small last norm keeps the 50 layers from amplifying every rounding
            center = 0 if name.endswith("bias") else 0.2 if name.endswith("bn3.weight") else 1
            value = center + 0.2 * center * u if center else 0.2 * u
        yield torch.from_numpy(value.astype(numpy.float32).reshape(p.shape))


class Run:
    def __init__(self, name, dtype, autocast):
        model = getattr(torchvision.models, name)(num_classes=CLASSES).to(dtype)
        w = list(model.parameters())
        with torch.no_grad():
            for p, value in zip(w, weights(model)):
                p.copy_(value)
        x, targets = images(BATCH, SIDE).to(dtype), torch.arange(BATCH) * 3 % CLASSES
        with torch.no_grad():
            self.logits = model.eval()(x).double()
        model.train()
        optim = torch.optim.AdamW([{"params": [p for p in w if p.dim() > 1], "weight_decay": 0.1},
                                   {"params": [p for p in w if p.dim() == 1], "weight_decay": 0}],
                                  lr=1e-4, betas=(0.9, 0.95), eps=1e-3)  # zero but for rounding: no step
        self.losses = []
        for step in range(STEPS):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                logits = model(x)
            loss = functional.cross_entropy(logits if dtype == torch.float64 else logits.float(), targets)
            optim.zero_grad()
            loss.backward()
            if step == 0:
                self.grads = [sample(p.grad, SAMPLES) for p in w]
            optim.step()
            self.losses.append(loss.item())
        self.var = list(model.buffers())[-2].double()


def main(folder):
    torch.set_num_threads(1)
    for name in "resnet18", "resnet50":
        true, f32 = Run(name, torch.float64, False), Run(name, torch.float32, False)
        bf16 = Run(name, torch.float32, True)
        parts = [true.logits, (f32.logits - true.logits).abs().max()] + true.grads
        parts += distance(f32.grads, true.grads) + distance(bf16.grads, true.grads)
        parts += true.losses + f32.losses + bf16.losses + [true.var]
        parts += [(f32.var / true.var - 1).abs().max()]
        print(name, true.losses, f32.losses, bf16.losses, sep="\n", file=sys.stderr)
        print(max(distance(f32.grads, true.grads)), max(distance(bf16.grads, true.grads)), file=sys.stderr)
        write(f"{folder}/{name}.bin", parts)


main(*sys.argv[1:])
