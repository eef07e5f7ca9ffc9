#!/usr/bin/env python3
"""Makes the golden files of this folder, which tests/unit/test_io.c and suite_advise.sh read.

Needs NumPy (1.24.2 made those committed). safetensors and bf16 are written by hand: eight bytes
with the length of the header, the header, the data.
"""
import json
import os
import struct

import numpy as np

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def halves(x):
    """The top 16 bits of f32, nearest even: bf16."""
    u = np.asarray(x, "<f4").view("<u4").astype(np.uint64)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype("<u2")


def safetensors(name, tensors, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for key, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[key] = {"dtype": dtype, "shape": list(array.shape),
                       "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(name, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


rng = np.random.default_rng(7)
a = (rng.standard_normal((3, 4)) * 1e-3).astype("<f4")
np.save("f4.npy", a)
np.save("f4_fortran.npy", np.asfortranarray(a))
np.save("f8_big_endian.npy", a.astype(">f8"))
np.save("f2_scalar.npy", np.array(0.5, "<f2"))
np.save("i8.npy", np.arange(6).reshape(2, 3))
np.savez("stored.npz", a=a, b=a.astype("<f2"), empty=np.zeros((0, 5), "<f4"), steps=np.arange(3))
np.savez_compressed("deflated.npz", a=a, zeros=np.zeros(5000, "<f4"))

# Gradients as they are: log-normal magnitudes around 2^-22, with zeros from a ReLU.
def grads(n, log2, spread, zeros):
    x = np.exp2(rng.normal(log2, spread, n)) * rng.choice([-1.0, 1.0], n)
    x[rng.random(n) < zeros] = 0
    return x

safetensors("grads.safetensors", {
    "fc1.weight": ("F32", grads(3000, -22, 4, 0.3).astype("<f4").reshape(60, 50)),
    "fc1.bias": ("F16", grads(60, -12, 2, 0.0).astype("<f2")),
    "fc2.weight": ("BF16", halves(grads(600, -18, 3, 0.1)).reshape(10, 60)),
    "fc2.bias": ("F64", grads(10, -9, 2, 0.0).astype("<f8")),
    "step": ("I64", np.array(1200, "<i8")),
}, {"format": "gradscale test"})

bad = grads(200, -10, 2, 0).astype("<f4")
bad[77] = np.nan
bad[90] = np.inf
safetensors("nonfinite.safetensors", {
    "good": ("F32", grads(100, -10, 2, 0).astype("<f4")),
    "layer4.weight": ("F32", bad.reshape(20, 10)),
})
safetensors("zeros.safetensors", {"w": ("F32", np.zeros(16, "<f4"))})

# One for each verdict that the others do not give.
steps = np.arange(200)
np.save("verdict_large.npy", np.array([1, 2, 1e6, 1e-9], "<f4"))
np.save("verdict_wide.npy", np.exp2(-50.0 + steps / 4).astype("<f4"))
np.save("verdict_small.npy", np.exp2(-140.0 + steps / 4).astype("<f4"))
np.save("verdict_fine.npy", np.exp2(-10.0 + steps / 20).astype("<f4"))
np.save("verdict_beyond.npy", np.array([1e300, 1, 1e-300, 0]))
