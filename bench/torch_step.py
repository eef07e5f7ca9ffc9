#!/usr/bin/python3
"""The training steps of `gradscale bench step` in PyTorch and in gradscale, in one run, and the ratio.

    bench/torch_step.py [--models gpt-mini,gpt2,cnn,mlp] [--seconds 20] [--threads 2] [--json]

PyTorch is Debian's python3-torch, in fp32: on a CPU it has no fp16, and its bf16 is slower. It gets
the best there is in Debian: OpenBLAS with OpenMP, which python3-torch uses too (the package is
libopenblas0-openmp; --openblas names the folder of another copy), and, where the CPU has AVX-512,
OPENBLAS_CORETYPE=SkylakeX, because OpenBLAS 0.3.21 takes CPUs it does not know for old ones and is
then four times slower. The environment is read when libraries are loaded: the script starts itself
again with it.

PyTorch and gradscale take turns; the best step of each counts.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import time

MARK = "GRADSCALE_TORCH_STEP"


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="gpt-mini,cnn,mlp,gpt2")
    parser.add_argument("--seconds", type=float, default=20, help="for each side of each model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--program", default="build/gradscale")
    parser.add_argument("--openblas", help="folder of a libblas.so.3 that is OpenBLAS with OpenMP")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    unknown = set(chosen.models.split(",")) - set(MODELS)
    if unknown:
        parser.error(f"no model {unknown.pop()}: {', '.join(MODELS)}")
    if not os.path.exists(chosen.program):
        parser.error(f"no program {chosen.program}: make builds it, --program says where it is")
    return chosen


def tuned_environment(chosen):
    """What PyTorch needs to be at its best."""
    env = dict(os.environ, OMP_NUM_THREADS=str(chosen.threads))
    env[MARK] = "1"
    folder = chosen.openblas or next(iter(glob.glob("/usr/lib/*/openblas-openmp")), None)
    if folder and os.path.exists(os.path.join(folder, "libblas.so.3")):
        env["LD_LIBRARY_PATH"] = folder
    else:
        print("torch_step.py: no OpenBLAS with OpenMP: PyTorch will be slow; install "
              "libopenblas0-openmp", file=sys.stderr)
    with open("/proc/cpuinfo") as info:
        if "avx512f" in info.read():
            env["OPENBLAS_CORETYPE"] = "SkylakeX"
    return env


# ---- the models, as src/train/model_*.c has them ----

def gpt(vocabulary, layers, heads, width, batch, time_steps):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.gelu = nn.GELU(approximate="tanh")

        def attention(self, x):
            q, k, v = (part.view(batch, time_steps, heads, -1).transpose(1, 2)
                       for part in self.c_attn(x).split(width, dim=2))
            scores = (q @ k.transpose(2, 3)) * (width // heads) ** -0.5
            p = functional.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
            return self.c_proj((p @ v).transpose(1, 2).reshape(batch, time_steps, width))

        def forward(self, x):
            x = x + self.attention(self.ln_1(x))
            return x + self.mlp_proj(self.gelu(self.c_fc(self.ln_2(x))))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(time_steps, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.ln_f = nn.LayerNorm(width)

        def forward(self, ids):
            x = self.ln_f(self.blocks(self.wte(ids) + self.wpe(positions)))
            return functional.linear(x, self.wte.weight).flatten(0, 1)

    future = torch.ones(time_steps, time_steps, dtype=torch.bool).triu(1)
    positions = torch.arange(time_steps)
    ids = torch.randint(vocabulary, (batch, time_steps))
    return Gpt(), ids, torch.randint(vocabulary, (batch * time_steps,))


def cnn(batch):
    import torch
    from torch import nn
    parts, channels = [], 1
    for filters in 32, 64, 128:
        parts += [nn.Conv2d(channels, filters, 3, padding=1, bias=False),
                  nn.BatchNorm2d(filters), nn.ReLU(), nn.MaxPool2d(2)]
        channels = filters
    net = nn.Sequential(*parts, nn.Flatten(), nn.Linear(channels * 9, 10))
    return net, torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))


def mlp(batch):
    import torch
    from torch import nn
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                        nn.Linear(512, 10))
    return net, torch.randn(batch, 784), torch.randint(10, (batch,))


MODELS = {
    "gpt-mini": lambda: gpt(128, 6, 6, 384, 4, 256),
    "gpt2": lambda: gpt(50257, 12, 12, 768, 4, 256),
    "cnn": lambda: cnn(64),
    "mlp": lambda: mlp(64),
}


# ---- measuring ----

class Torch:
    """Steps of AdamW with the gradients clipped by their norm, as the bench does them."""

    def __init__(self, name):
        import torch
        self.torch = torch
        self.net, self.x, self.targets = MODELS[name]()
        self.weights = sum(p.numel() for p in self.net.parameters())
        self.optim = torch.optim.AdamW(self.net.parameters(), lr=1e-4)
        self.loss = torch.nn.CrossEntropyLoss()
        self.best = float("inf")

    def step(self):
        self.optim.zero_grad()
        self.loss(self.net(self.x), self.targets).backward()
        self.torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optim.step()

    def run(self, seconds):
        self.step()  # not measured: memory is made
        end = time.monotonic() + seconds
        while True:
            start = time.monotonic()
            self.step()
            done = time.monotonic()
            self.best = min(self.best, done - start)
            if done > end:
                return


def gradscale(chosen, model, precision, seconds):
    command = [chosen.program, "bench", "step", "--model", model, "--precision", precision,
               "--threads", str(chosen.threads), "--seconds", str(seconds), "--json"]
    env = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout)


def measure(chosen, name):
    TURNS = 2
    share = chosen.seconds / TURNS
    torch = Torch(name)
    best = {}
    for _ in range(TURNS):
        torch.run(share)
        for precision in "fp32", "fp16":
            ours = gradscale(chosen, name, precision, share / 2)
            if precision not in best or ours["seconds"] < best[precision]["seconds"]:
                best[precision] = ours
    if best["fp32"]["weights"] != torch.weights:
        sys.exit(f"torch_step.py: {name} has {torch.weights} weights here and "
                 f"{best['fp32']['weights']} in gradscale")
    return {"model": name, "weights": torch.weights, "torch_fp32_seconds": torch.best,
            "fp32_seconds": best["fp32"]["seconds"], "fp16_seconds": best["fp16"]["seconds"],
            "fp16_of_peak": best["fp16"]["of_peak"],
            "torch_over_fp32": torch.best / best["fp32"]["seconds"],
            "torch_over_fp16": torch.best / best["fp16"]["seconds"]}


def main():
    chosen = options()
    if MARK not in os.environ:
        os.execve(sys.executable, [sys.executable] + sys.argv, tuned_environment(chosen))
    try:
        import torch
    except ImportError:
        sys.exit("torch_step.py: there is no PyTorch: install python3-torch and use /usr/bin/python3")
    torch.set_num_threads(chosen.threads)
    rows = []
    if not chosen.json:
        print(f"PyTorch {torch.__version__}, {chosen.threads} threads, OPENBLAS_CORETYPE="
              f"{os.environ.get('OPENBLAS_CORETYPE')}, BLAS in "
              f"{os.environ.get('LD_LIBRARY_PATH', 'the default place')}\n\n"
              f"{'model':<10}{'torch fp32':>12}{'fp32':>10}{'fp16':>10}"
              f"{'torch/fp32':>12}{'torch/fp16':>12}   ms per step, best")
    for name in chosen.models.split(","):
        row = measure(chosen, name)
        rows.append(row)
        if not chosen.json:
            print(f"{name:<10}{1e3 * row['torch_fp32_seconds']:>12.1f}"
                  f"{1e3 * row['fp32_seconds']:>10.1f}{1e3 * row['fp16_seconds']:>10.1f}"
                  f"{row['torch_over_fp32']:>12.2f}{row['torch_over_fp16']:>12.2f}", flush=True)
    if chosen.json:
        print(json.dumps({"torch": torch.__version__, "threads": chosen.threads, "models": rows},
                         indent=2))


main()
