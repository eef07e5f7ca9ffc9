#!/usr/bin/env python3
"""The matrix products of `gradscale bench gemm` beside PyTorch's, which are those of the oneDNN in its wheel.

    build/torch/bin/python bench/torch_gemm.py [--only TEXT] [--seconds 2] [--turns 2] [--threads 2] [--json]

Shapes and layouts come from `gradscale bench gemm --json`. A shape takes its turns: gradscale's products,
then torch.mm in f32 and in bf16; the best of each counts, in GFLOP/s. torch.mm rounds a bf16 product to bf16,
gradscale leaves it in f32. PyTorch comes from PyPI (`make torch`).
"""
import argparse
import json
import math
import os
import subprocess
import time

import torch

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def ours(chosen, name=None):
    """The results of `bench gemm`, of one shape or briefly of all."""
    command = [chosen.program, "bench", "gemm", "--json", "--threads", str(chosen.threads),
               "--seconds", str(chosen.seconds if name else 0.1)]
    if name or chosen.only:
        command += ["--only", name or chosen.only]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return [r for r in json.loads(done.stdout)["results"] if name in (None, r["name"])]


def theirs(shape, kind, seconds):
    """GFLOP/s of the best torch.mm in so many seconds."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    a = torch.randn((k, m) if shape["a_transposed"] else (m, k)).to(kind)
    b = torch.randn((n, k) if shape["b_transposed"] else (k, n)).to(kind)
    a, b = a.t() if shape["a_transposed"] else a, b.t() if shape["b_transposed"] else b
    c, best, end = torch.empty(m, n, dtype=kind), math.inf, time.perf_counter() + seconds
    repeat = max(1, int(2e8 / (2 * m * n * k)))
    while best == math.inf or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(repeat):
            torch.mm(a, b, out=c)
        best = min(best, (time.perf_counter() - start) / repeat)
    return 2e-9 * m * n * k / best


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="shapes with this in their name")
    parser.add_argument("--seconds", type=float, default=2, help="for each side, shape and turn (default 2)")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--program", default="build/gradscale")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = []
    for shape in ours(chosen):
        row = {"name": shape["name"], "group": shape["group"],
               **{f"{side}_{kind}": 0.0 for side in ("gradscale", "torch") for kind in TYPES}}
        for _ in range(chosen.turns):
            speed = ours(chosen, shape["name"])[0]["gflop_per_s"]
            for kind, dtype in TYPES.items():
                row[f"gradscale_{kind}"] = max(row[f"gradscale_{kind}"], speed[kind])
                row[f"torch_{kind}"] = max(row[f"torch_{kind}"], theirs(shape, dtype, chosen.seconds / 4))
        for kind in TYPES:
            row[f"ratio_{kind}"] = row[f"gradscale_{kind}"] / row[f"torch_{kind}"]
        rows.append(row)
    means = {kind: math.exp(sum(math.log(r[f"ratio_{kind}"]) for r in rows) / max(1, len(rows)))
             for kind in TYPES}
    if chosen.json:
        print(json.dumps({"torch": torch.__version__, "threads": chosen.threads, "load": os.getloadavg()[0],
                          "rows": rows, "mean_ratio": means}))
        return
    print(f"PyTorch {torch.__version__}, {chosen.threads} threads, load {os.getloadavg()[0]:.1f}; GFLOP/s")
    print(f"{'':26}{'f32':>8}{'torch':>8}{'ratio':>7}{'bf16':>9}{'torch':>8}{'ratio':>7}")
    for r in rows:
        print(f"{r['name']:26}" + " ".join(
            f"{r['gradscale_' + kind]:8.0f}{r['torch_' + kind]:8.0f}{r['ratio_' + kind]:7.2f}"
            for kind in TYPES))
    if rows:
        print(f"{'geometric mean':26}{means['f32']:23.2f}{means['bf16']:24.2f}")


main()
