#!/usr/bin/env python3
"""The Python package beside PyTorch's own, in one run, by turns.

    .cache/python/bin/python bench/torch_package.py [--only unscale,small,step,gpt,watch,import] [--seconds 10] [--json]

It needs PyTorch and the package (pip install ./python). The best of each side counts.

    unscale   GradScaler.unscale_ of one gradient of --elements, beside torch's operator, in f32, f16, bf16
    small     the same of 1,000 gradients of 4 KB; torch's whole unscale_ beside it
    step      scaler.step + scaler.update of 10 small parameters, SGD that moves nothing
    gpt       a training step of the GPT mini of torch_models.py, fp16 and torch.amp.GradScaler, with install() and
              without (one step of 12 s)
    watch     what watch() adds to a step with install(), at its default of one watched step in 100
    import    importing gradscale, in a process of its own
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch_models

from gradscale.torch import GradScaler, install, watch

NEAR_ONE = 1.0000001  # a scale at which gradients are multiplied and stay what they are


def seconds_of(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def by_turns(seconds, least=4, **sides):
    """The best of each, in seconds."""
    best, turn, end = dict.fromkeys(sides, float("inf")), 0, time.perf_counter() + seconds
    while turn < least or time.perf_counter() < end:
        for name, function in sides.items():
            best[name] = min(best[name], seconds_of(function))
        turn += 1
    return best


def row(name, best, ours="gradscale", theirs="torch", unit=1e3):
    return {"name": name, "ms": {side: unit * t for side, t in best.items()}, "ratio": best[theirs] / best[ours]}


# ---- the pass ----


def unscaling(make, grads, **options):
    """A function that unscales gradients as a step does."""
    parameters = [torch.nn.Parameter(torch.empty_like(g)) for g in grads]
    for parameter, grad in zip(parameters, grads):
        parameter.grad = grad
    scaler, optimizer = make("cpu", init_scale=NEAR_ONE, **options), torch.optim.SGD(parameters, lr=0.0)
    scaler.scale(torch.zeros(()))

    def unscale():
        scaler.unscale_(optimizer)
        scaler._per_optimizer_states.clear()

    return unscale


def operator(grads):
    found, inverse = torch.zeros(()), torch.tensor(1 / NEAR_ONE)
    return lambda: torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)


def bench_unscale(chosen):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        grads = [torch.randn(chosen.elements).to(dtype)]  # for both: where memory lies is worth some percent
        best = by_turns(chosen.seconds, torch=operator(grads), gradscale=unscaling(GradScaler, grads, allow_fp16=True))
        yield row(f"unscale {chosen.elements} {str(dtype)[6:]}", best)


def bench_small(chosen):
    sides = [[torch.randn(1024) for _ in range(1000)] for _ in range(3)]
    best = by_turns(chosen.seconds, torch=operator(sides[0]), torch_unscale=unscaling(torch.amp.GradScaler, sides[1]),
                    gradscale=unscaling(GradScaler, sides[2]))  # fmt: skip
    yield row("unscale 1000 x 4 KB", best)


# ---- steps ----


def stepping(make):
    parameters = [torch.nn.Parameter(torch.randn(100)) for _ in range(10)]
    for parameter in parameters:
        parameter.grad = torch.randn(100)
    scaler, optimizer = make("cpu", init_scale=NEAR_ONE), torch.optim.SGD(parameters, lr=0.0)
    scaler.scale(torch.zeros(()))

    def step():
        scaler.step(optimizer)
        scaler.update()

    return step


def bench_step(chosen):
    yield row("step + update of 10", by_turns(chosen.seconds, torch=stepping(torch.amp.GradScaler), gradscale=stepping(GradScaler)))


def bench_gpt(chosen):
    step, _ = torch_models.training_step(torch_models.MODELS["gpt-mini"], "fp16", False)
    with install():
        step()
        installed = by_turns(chosen.seconds, gradscale=step)
    yield row("GPT mini fp16, install()", {"torch": seconds_of(step), **installed})


def bench_watch(chosen):
    torch.manual_seed(1)
    net, ids, targets = torch_models.MODELS["gpt-mini"].make(4, 256)
    optimizer, scaler = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True), GradScaler("cpu")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(net(ids), targets)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    times = {"alone": [], "watched": [], "between": []}
    with install(), tempfile.TemporaryDirectory() as folder:
        step()
        end = time.perf_counter() + chosen.seconds
        while len(times["alone"]) < 3 or time.perf_counter() < end:
            with watch(net, scaler, os.path.join(folder, "run.jsonl")):  # the first step is watched
                times["watched"].append(seconds_of(step))
                step()  # memory and threads as they were
                times["between"].append(seconds_of(step))
            times["alone"].append(seconds_of(step))
    best = {side: min(all_) for side, all_ in times.items()}
    best["watched"] = statistics.median(times["watched"])  # what it allocates is part of it
    share = ((best["watched"] + 99 * best["between"]) / 100 - best["alone"]) / best["alone"]
    yield {"name": "watch, GPT mini fp16", "ms": {side: 1e3 * t for side, t in best.items()}, "added": share}


def bench_import(chosen):
    def running(code):
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    best = by_turns(min(chosen.seconds, 5), nothing=running("pass"), gradscale=running("import gradscale"))
    yield {"name": "import", "ms": {"import gradscale": 1e3 * (best["gradscale"] - best["nothing"])}}


BENCHES = {"unscale": bench_unscale, "small": bench_small, "step": bench_step, "gpt": bench_gpt, "watch": bench_watch,
           "import": bench_import}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(BENCHES))
    parser.add_argument("--elements", type=int, default=100_000_000)
    parser.add_argument("--seconds", type=float, default=10, help="for each row")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    unknown = set(chosen.only.split(",")) - set(BENCHES)
    if unknown:
        parser.error(f"--only: there is no {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    torch.set_num_threads(chosen.threads)
    rows = []
    if not chosen.json:
        print(f"PyTorch {torch.__version__}, {chosen.threads} threads, load {os.getloadavg()[0]:.1f}; ratio: torch / gradscale")
    for name in chosen.only.split(","):
        for each in BENCHES[name](chosen):
            rows.append(each)
            if not chosen.json:
                cells = ", ".join(f"{side} {ms:.3g} ms" for side, ms in each["ms"].items())
                tail = f"ratio {each['ratio']:.2f}" if "ratio" in each else f"added {each['added']:.2%}" if "added" in each else ""
                print(f"{each['name']:26} {cells}   {tail}", flush=True)
    if chosen.json:
        print(json.dumps({"torch": torch.__version__, "threads": chosen.threads, "load": os.getloadavg()[0], "rows": rows}))


if __name__ == "__main__":
    main()
