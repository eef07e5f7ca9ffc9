#!/usr/bin/python3
"""Writes optim.bin: what PyTorch's SGD, Adam and AdamW do with recorded gradients.

    tests/data/make_optim_vectors.py tests/data/optim.bin

Little-endian f32. First the gradients, STEPS x COUNT; then the weights at the start, COUNT; then, for
each case of CASES in order and each step, the weights and both moments after it, 3 x COUNT, zero
where there is none. tests/unit/test_parity.c has the same list. Made with PyTorch 1.13.0 of Debian 12, one thread.
"""
import sys

import numpy
import torch

STEPS, COUNT = 100, 18

CASES = [
    (torch.optim.SGD, dict(lr=0.1)),
    (torch.optim.SGD, dict(lr=0.05, momentum=0.9, weight_decay=1e-2)),
    (torch.optim.SGD, dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3)),
    (torch.optim.SGD, dict(lr=0.05, momentum=0.8, dampening=0.3)),
    (torch.optim.Adam, dict(lr=1e-2)),
    (torch.optim.Adam, dict(lr=1e-2, betas=(0.8, 0.95), eps=1e-6, weight_decay=1e-2)),
    (torch.optim.AdamW, dict(lr=1e-2)),
    (torch.optim.AdamW, dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.1)),
]


def main(path):
    torch.set_num_threads(1)
    rng = numpy.random.default_rng(20240601)
    # Magnitudes from 1e-6 to 1e2, an element's own and drifting, now and then a zero.
    size = 10.0 ** rng.uniform(-6, 2, COUNT)
    grads = (rng.standard_normal((STEPS, COUNT)) + 0.3) * size
    grads[rng.random((STEPS, COUNT)) < 0.05] = 0
    grads = grads.astype(numpy.float32)
    start = rng.standard_normal(COUNT).astype(numpy.float32)
    parts = [grads, start]
    for kind, settings in CASES:
        weight = torch.nn.Parameter(torch.from_numpy(start.copy()))
        optim = kind([weight], **settings)
        for grad in grads:
            weight.grad = torch.from_numpy(grad.copy())
            optim.step()
            state = optim.state[weight]
            none = torch.zeros(COUNT)
            momentum = state.get("momentum_buffer")
            first = state.get("exp_avg", none if momentum is None else momentum)
            for part in weight.detach(), first, state.get("exp_avg_sq", none):
                parts.append(part.numpy().copy())
    with open(path, "wb") as out:
        for part in parts:
            out.write(part.astype("<f4").tobytes())


main(*sys.argv[1:])
