"""The training steps of `gradscale bench step` in PyTorch 2.x and in gradscale, in one run.

    make bench-torch [BENCH_ARGS="--models gpt-mini,cnn,mlp --seconds 10 --json"]
    build/torch/bin/python bench/torch_step.py --help

PyTorch gets what makes it fast on a CPU: scaled_dot_product_attention, fused AdamW, channels_last, autocast in
bf16, and in fp16 torch.amp.GradScaler; eager, and torch.compile where that works. Each of its ways to run a
model is a process of its own (torch_models.py), so that its peak resident set is that of one precision.
gradscale runs in fp32, bf16 and fp16. All take turns; the best and the median step of each are shown, and one
that takes longer than --limit is stopped. With --json, one object on standard output; times in seconds, null
where there was no step:

    torch, threads, cpu, kernels           PyTorch's version; of `gradscale bench step`
    models[].model, .weights
    models[].runs[].side                   "torch", "torch.compile" or "gradscale"
    models[].runs[].precision              "fp32", "bf16" or "fp16"
    models[].runs[].best, .median, .steps  of a step; the first of each turn is not counted
    models[].runs[].first                  the first step ever; torch.compile compiles in it
    models[].runs[].resident, .before      bytes of the peak resident set; of it before the model was made
    models[].runs[].error                  why there is no step; else null
    models[].ratio.PRECISION               PyTorch's best over gradscale's best, in this precision
    models[].ratio.best                    in the fastest precision of each
"""
import argparse
import importlib.metadata
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time

from torch_models import MODELS

PRECISIONS = "fp32", "bf16", "fp16"


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt-mini,cnn,mlp",
                        help=f"some of {', '.join(MODELS)} (default %(default)s)")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--seconds", type=float, default=10, help="for each run, all turns (default 10)")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120,
                        help="seconds for one step of PyTorch, compiling included (default 120)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--program", default="build/gradscale")
    parser.add_argument("--no-compile", action="store_true", help="eager only")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    for name, known in ("models", MODELS), ("precisions", PRECISIONS):
        for one in getattr(chosen, name).split(","):
            if one not in known:
                parser.error(f"--{name}: there is no {one}; there are {', '.join(known)}")
    if chosen.turns < 1 or chosen.seconds < 0 or chosen.limit <= 0 or chosen.threads < 1:
        parser.error("--turns and --threads begin at 1, --limit is above 0, --seconds not below")
    if not os.path.exists(chosen.program):
        parser.error(f"no program {chosen.program}: make builds it, --program says where it is")
    return chosen


class Run:
    """What is known of one side in one precision."""

    def __init__(self, side, precision):
        self.side, self.precision = side, precision
        self.first = self.resident = self.before = self.error = self.weights = None
        self.steps, self.medians, self.best = 0, [], None

    def add(self, best, median, steps):
        self.best = min(self.best or best, best)
        self.medians.append(median)
        self.steps += steps

    def as_json(self):
        return {"side": self.side, "precision": self.precision, "best": self.best,
                "median": statistics.median(self.medians) if self.medians else None,
                "steps": self.steps, "first": self.first, "resident": self.resident,
                "before": self.before, "error": self.error}

    def close(self):
        pass


class Torch(Run):
    """A worker that makes the model once and runs steps when told to, a JSON line for each."""

    def __init__(self, chosen, model, precision, compiled):
        super().__init__("torch.compile" if compiled else "torch", precision)
        self.limit = chosen.limit
        self.errors = tempfile.TemporaryFile("w+")
        self.worker = subprocess.Popen(
            [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_models.py"),
             model, precision, "compile" if compiled else "eager", str(chosen.threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=dict(os.environ, OMP_NUM_THREADS=str(chosen.threads)))

    def answer(self):
        """The next line, or None after noting why there is none."""
        if not select.select([self.worker.stdout], [], [], self.limit)[0]:
            self.error = f"a step takes longer than {self.limit:g} s"
        else:
            line = self.worker.stdout.readline()
            if line:
                return json.loads(line)
            self.errors.seek(0)
            errors = [x for x in self.errors.read().splitlines() if x.strip()]
            self.error = errors[-1] if errors else "the worker ended"
        self.worker.kill()
        return None

    def turn(self, seconds):
        if self.error:
            return
        times, end = [], None
        while end is None or time.monotonic() < end:
            try:
                self.worker.stdin.write("step\n")
                self.worker.stdin.flush()
            except BrokenPipeError:
                pass # it has ended: there is no answer, and its last words say why
            step = self.answer()
            if not step:
                break
            self.weights, self.resident, self.before = step["weights"], step["resident"], step["before"]
            if self.first is None:
                self.first = step["seconds"]
            if end is None:
                end = time.monotonic() + seconds
                if step["seconds"] > seconds: # then the first is all there is
                    times.append(step["seconds"])
            else:
                times.append(step["seconds"])
        if times:
            self.add(min(times), statistics.median(times), len(times))

    def close(self):
        try:
            self.worker.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.worker.wait(10)
        except subprocess.TimeoutExpired:
            self.worker.kill()
            self.worker.wait()


class Gradscale(Run):
    def __init__(self, chosen, model, precision):
        super().__init__("gradscale", precision)
        how = MODELS[model]
        self.command = [chosen.program, "bench", "step", "--model", how.ours, "--precision", precision,
                        "--batch", str(how.batch), "--threads", str(chosen.threads), "--json"]
        if how.time:
            self.command += ["--time", str(how.time)]
        self.report = None

    def turn(self, seconds):
        # A round has two more kinds of steps and the peak.
        child = subprocess.run(self.command + ["--seconds", str(3 * seconds)], stdout=subprocess.PIPE)
        if child.returncode != 0:
            sys.exit(f"torch_step.py: {' '.join(self.command)} has failed")
        self.report = json.loads(child.stdout)
        self.weights = self.report["weights"]
        self.resident = max(self.resident or 0, self.report["resident_bytes"] or 0)
        self.add(self.report["seconds"], self.report["median_seconds"], self.report["rounds"])


def best_of(runs, ours, precision=None):
    return min((r.best for r in runs if r.best and (r.side == "gradscale") == ours and
                precision in (None, r.precision)), default=None)


def ratio(runs, precision=None):
    theirs, ours = best_of(runs, False, precision), best_of(runs, True, precision)
    return theirs / ours if theirs and ours else None


def measure(chosen, model):
    precisions = chosen.precisions.split(",")
    runs = [Gradscale(chosen, model, p) for p in precisions]
    runs += [Torch(chosen, model, p, compiled) for p in precisions
             for compiled in ((False,) if chosen.no_compile else (False, True))]
    runs.sort(key=lambda r: PRECISIONS.index(r.precision))
    try:
        for turn in range(chosen.turns):
            for run in runs if turn % 2 == 0 else reversed(runs):
                print(f"{model}: turn {turn + 1} of {chosen.turns}, {run.side} in {run.precision}",
                      file=sys.stderr, flush=True)
                run.turn(chosen.seconds / chosen.turns)
    finally:
        for run in runs:
            run.close()
    weights = {r.weights for r in runs if r.weights}
    if len(weights) > 1:
        sys.exit(f"torch_step.py: {model} has {' and '.join(map(str, sorted(weights)))} weights")
    return runs, weights.pop()


def print_table(model, weights, runs):
    def cell(x, factor, digits, width=12):
        return f"{'-':>{width}}" if x is None else f"{factor * x:>{width}.{digits}f}"

    print(f"{model}, {weights} weights\n{'':<16}{'precision':<10}{'best ms':>12}{'median ms':>12}"
          f"{'steps':>7}{'peak MB':>12}{'before MB':>12}")
    for run in runs:
        row = run.as_json()
        print(f"{run.side:<16}{run.precision:<10}{cell(row['best'], 1e3, 2)}{cell(row['median'], 1e3, 2)}"
              f"{run.steps:>7}{cell(run.resident, 1e-6, 0)}{cell(run.before, 1e-6, 0)}"
              f"{'   ' + run.error[:70] if run.error else ''}")
    for name, precision in [(p, p) for p in PRECISIONS] + [("the best of all", None)]:
        x = ratio(runs, precision)
        if x:
            print(f"{name}: PyTorch takes {x:.2f} times as long as gradscale")
    print(flush=True)


def main():
    chosen = options()
    try: # without loading it
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        sys.exit("torch_step.py: there is no PyTorch: make bench-torch gets it and runs this")
    models, machine = [], {}
    if not chosen.json:
        print(f"PyTorch {version}, {chosen.threads} threads\n")
    for model in chosen.models.split(","):
        runs, weights = measure(chosen, model)
        report = next(r.report for r in runs if r.side == "gradscale")
        machine = {"cpu": report["cpu"], "kernels": report["kernels"]}
        models.append({"model": model, "weights": weights, "runs": [r.as_json() for r in runs],
                       "ratio": dict({p: ratio(runs, p) for p in PRECISIONS}, best=ratio(runs))})
        if not chosen.json:
            print_table(model, weights, runs)
    if chosen.json:
        json.dump(dict(torch=version, threads=chosen.threads, **machine, models=models),
                  sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()
