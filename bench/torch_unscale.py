#!/usr/bin/env python3
"""gs_step_unscale beside PyTorch's own operator, in one run: the pass that a GradScaler makes over all gradients.

    build/torch/bin/python bench/torch_unscale.py [--elements 100000000] [--seconds 10] [--threads 2] [--json]

PyTorch's is torch._amp_foreach_non_finite_check_and_unscale_, which unscales and looks for Inf and NaN;
gs_step_unscale does that and takes the norm and the largest magnitude. Both work in place, by turns, on arrays
of the same size; the best of each counts. GB/s are bytes read and written. PyTorch comes from PyPI (`make
torch`); libgradscale.so from build/.
"""
import argparse
import ctypes
import json
import os
import time

import torch


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_size_t), ("dtype", ctypes.c_int),
                ("name", ctypes.c_char_p), ("strided", ctypes.c_void_p)]


class Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("alloc", ctypes.c_void_p * 2), ("parallel", ctypes.c_void_p * 2),
                ("threads", ctypes.c_uint), ("without_cpu", ctypes.c_uint)]


TYPES = {"f32": (torch.float32, 0, 4), "f16": (torch.float16, 1, 2), "bf16": (torch.bfloat16, 2, 2)}
ROOM = 4096 # bytes for a gs_scaler or a gs_step, which are plain data


class Gradscale:
    def __init__(self, path, threads):
        self.lib = ctypes.CDLL(path)
        self.ctx = ctypes.c_void_p()
        config = Config(size=ctypes.sizeof(Config), threads=threads)
        self.must(self.lib.gs_context_create(ctypes.byref(self.ctx), ctypes.byref(config), None))

    @staticmethod
    def must(status):
        if status != 0:
            raise SystemExit(f"torch_unscale.py: gradscale says status {status}")

    def scaler(self, spec):
        scaler = ctypes.create_string_buffer(ROOM)
        self.must(self.lib.gs_scaler_init(scaler, spec.encode(), None))
        return scaler

    def unscale(self, scaler, grad, dtype):
        step = ctypes.create_string_buffer(ROOM)
        tensor = Tensor(grad.data_ptr(), grad.numel(), dtype, b"grad", None)
        self.lib.gs_step_begin(step, scaler)
        self.must(self.lib.gs_step_unscale(step, self.ctx, None, ctypes.byref(tensor), ctypes.c_size_t(1)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=100_000_000)
    parser.add_argument("--seconds", type=float, default=10, help="for each data type")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--library", default="build/libgradscale.so")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    ours = Gradscale(chosen.library, chosen.threads)
    there, back = ours.scaler("static:2"), ours.scaler("static:0.5") # values neither grow nor vanish
    rows = []
    for name, (kind, dtype, size) in TYPES.items():
        mine, theirs = (torch.randn(chosen.elements, dtype=torch.float32).to(kind) for _ in range(2))
        found = torch.zeros(1)
        inverses = [torch.tensor([0.5]), torch.tensor([2.0])]
        best, turn, end = {"torch": 1e9, "gradscale": 1e9}, 0, time.perf_counter() + chosen.seconds
        while turn < 4 or time.perf_counter() < end:
            start = time.perf_counter()
            torch._amp_foreach_non_finite_check_and_unscale_([theirs], found, inverses[turn % 2])
            middle = time.perf_counter()
            ours.unscale(back if turn % 2 else there, mine, dtype)
            stop = time.perf_counter()
            best["torch"] = min(best["torch"], middle - start)
            best["gradscale"] = min(best["gradscale"], stop - middle)
            turn += 1
        traffic = 2 * size * chosen.elements / 1e9
        rows.append({"dtype": name, "turns": turn, "torch_ms": best["torch"] * 1e3,
                     "gradscale_ms": best["gradscale"] * 1e3, "torch_gb_per_s": traffic / best["torch"],
                     "gradscale_gb_per_s": traffic / best["gradscale"],
                     "ratio": best["torch"] / best["gradscale"]})
        del mine, theirs
    if chosen.json:
        print(json.dumps({"torch": torch.__version__, "threads": chosen.threads, "elements": chosen.elements,
                          "load": os.getloadavg()[0], "rows": rows}))
        return
    print(f"PyTorch {torch.__version__}, {chosen.threads} threads, {chosen.elements} elements,"
          f" load {os.getloadavg()[0]:.1f}")
    print("         torch ms   GB/s   gradscale ms   GB/s   torch / gradscale")
    for r in rows:
        print(f"{r['dtype']:6} {r['torch_ms']:10.1f} {r['torch_gb_per_s']:6.1f} {r['gradscale_ms']:14.1f}"
              f" {r['gradscale_gb_per_s']:6.1f} {r['ratio']:12.2f}")


main()
