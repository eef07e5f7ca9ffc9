# What torch.amp.GradScaler makes of the runs of parity.cpp, in the same words.
import ctypes
import sys

import torch

libc = ctypes.CDLL(None)
state = 0


def draw(below):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % below


def values(count):
    return torch.tensor([(draw(2001) - 1000) / 512 for _ in range(count)], dtype=torch.float32)


def text(x):
    if x is None:
        return "none"
    return x.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes().hex()


def hexed(x):  # printf's %a
    out = ctypes.create_string_buffer(64)
    libc.snprintf(out, ctypes.c_size_t(64), b"%a", ctypes.c_double(x))
    return out.value.decode()


class Scaler(torch.amp.GradScaler):
    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        return super()._unscale_grads_(optimizer, inv_scale, found_inf, True)


inits, growths, backoffs = [65536, 1024, 3.7, 2.0**24, 2.0**120], [2, 1.5], [0.5, 0.7]
intervals, types = [1, 2, 5], [torch.float32, torch.bfloat16, torch.float64, torch.float16]
for c in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100):
    state = c + 1
    init, growth, backoff = inits[draw(5)], growths[draw(2)], backoffs[draw(2)]
    interval = intervals[draw(3)]
    dtype = types[draw(4)]
    two, clip = draw(2) == 0, draw(2) == 0
    scaler = Scaler("cpu", init, growth, backoff, interval)
    w0 = values(15).reshape(3, 5).requires_grad_()
    w1 = values(7).to(dtype).requires_grad_()
    w2 = values(4).requires_grad_()
    groups = [[w0, w2], [w1]] if two else [[w0, w1, w2]]
    optimizers = [torch.optim.SGD(g, 0.125, foreach=False) for g in groups]
    for t in range(40):
        for o in optimizers:
            o.zero_grad()
        for _ in range(1 + draw(2)):
            loss = (w0 * values(15).reshape(3, 5)).sum() * 0.01 + (w1.to(torch.float32) * values(7)).sum()
            if draw(2) == 0:
                loss = loss + (w2 * values(4)).sum()
            scaler.scale(loss).backward()
        what, where = draw(10), draw(7)
        if what == 0:
            w0.grad.view(-1)[where] = float("inf")
        if what == 1:
            w1.grad[where] = float("nan")
        if what == 2:
            w1.grad[where] = float("-inf")
        if clip:
            for o in optimizers:
                scaler.unscale_(o)
        for o in optimizers:
            scaler.step(o)
        scaler.update()
        print(c, t, hexed(scaler.get_scale()), scaler._get_growth_tracker(),
              *(text(x) for w in (w0, w1, w2) for x in (w.grad, w)))
