#!/usr/bin/env python3
"""Prints a hash for each of many results of the program, to compare two builds bit for bit.

    scripts/fingerprint.py build/gradscale >before      # then change something, build again
    scripts/fingerprint.py build/gradscale | diff before -

Covered are the replay of every preset, advice, a comparison, and short training runs of every model,
precision, optimizer and instruction set: tensors of checkpoints, numbers of logs, values of JSON
output. Left out is what may differ from run to run: times, rates, versions, paths, the machine.
"""
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

VOLATILE = {"seconds", "items_per_s", "time", "version", "phases", "path", "machine", "config", "memory",
            "from", "compiler", "file"}
FASHION = "/usr/share/datasets/fashion-mnist" # Debian: dataset-fashion-mnist
DATA = pathlib.Path(__file__).resolve().parent.parent / "tests"


def stripped(value):
    if isinstance(value, dict):
        return {k: stripped(v) for k, v in value.items() if k not in VOLATILE}
    return [stripped(v) for v in value] if isinstance(value, list) else value


def digest(*parts):
    h = hashlib.sha256()
    for part in parts:
        h.update(part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode())
    return h.hexdigest()[:16]


def tensors(path):
    """Texts, names, types, shapes and bytes of a checkpoint, but for its options and its checksum."""
    raw = path.read_bytes()
    end = 8 + struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:end])
    texts = header.pop("__metadata__")
    return [{k: v for k, v in texts.items() if k not in ("config", "gradscale_version")}] + [
            [n, t["dtype"], t["shape"], digest(raw[end + t["data_offsets"][0]:end + t["data_offsets"][1]])]
            for n, t in sorted(header.items()) if n != "gradscale.xxh64"]


def log(path):
    """Without the lines of checkpoints: when one is on the disk, and so its place among the steps, is the disk's affair."""
    lines = [stripped(json.loads(line)) for line in path.read_text().splitlines()]
    return [line for line in lines if line.get("event") != "checkpoint"]


def text():
    """40 KB of words; the sources, on which a GPT trains by default, change with every edit."""
    state, out = 1, []
    while len(out) < 8000:
        state = state * 6364136223846793005 + 1442695040888963407 & 2**64 - 1
        out.append(["loss", "scale", "of", "a", "gradient", "is", "zero\n", "grows", "half"][(state >> 40) % 9])
    return " ".join(out)


def main(program):
    program = str(pathlib.Path(program).resolve())

    def run(*args): # in the folder of the text, whose path is then the same every time
        done = subprocess.run([program, *map(str, args)], capture_output=True, cwd=tmp)
        if done.returncode > 1:
            sys.exit(f"{' '.join(map(str, args))}: {done.stderr.decode()}")
        return done.stdout

    def show(name, *parts):
        print(f"{digest(*parts)}  {name}", flush=True)

    with tempfile.TemporaryDirectory() as name:
        tmp = pathlib.Path(name)
        (tmp / "words.txt").write_text(text())
        help_text = run("train", "--help").decode()
        known = [c for c in ("ref", "avx2", "avx512", "avx512bf16", "avx512vnni", "neon") if f"|{c}" in help_text]
        cpus = [c for c in known if subprocess.run([program, "info", "--cpu", c], capture_output=True).returncode == 0]

        presets = list(json.loads(run("presets", "--json")))
        for trace in sorted((DATA / "traces").glob("*.trace")):
            show(f"replay {trace.stem}", run("replay", "--emit", trace))
        flags = tmp / "flags.jsonl"
        flags.write_text("".join(json.dumps({"step": i + 1, "scale": 65536, "found_inf": i % 97 == 5,
                                             "amax": 2.0 ** (i % 23 - 30)}) + "\n" for i in range(6000)))
        for policy in presets + ["headroom", "logmax", "adaptive", "histogram", "static:128", "guard", "none"]:
            show(f"policy {policy}", stripped(json.loads(run("replay", "--policy", policy, "--json", flags))))
        show("simulate", stripped(json.loads(run("replay", "--simulate", "--json", "--steps", 20000, "--seeds", 2,
                                                 "--walk", 5000))))
        for grads in sorted((DATA / "data").glob("*.safetensors")) + sorted((DATA / "data").glob("*[!8].np[yz]")):
            show(f"advise {grads.name}", stripped(json.loads(run("advise", "--json", grads))))

        run("compare", "--config", DATA.parent / "examples/dense.conf", "--steps", 20, "--output", tmp / "dense",
            "--quiet")
        for path in sorted((tmp / "dense").glob("*.jsonl")):
            show(f"compare {path.stem}", log(path))

        def train(name, *options):
            folder = tmp / name.replace(" ", "-").replace(":", "-")
            run("train", *options, "--steps", 30, "--warmup", 3, "--valid-every", 15, "--telemetry-every", 10,
                "--log", folder.with_suffix(".jsonl"), "--checkpoint", folder, "--quiet")
            newest = sorted(folder.glob("*.safetensors"), key=lambda p: p.stat().st_mtime)[-1]
            show(name, tensors(newest), log(folder.with_suffix(".jsonl")))

        gpt = ["--model", "gpt", "--data", "words.txt", "--layers", 2, "--width", 64, "--heads", 2, "--context", 48,
               "--batch", 4, "--dropout", 0.1, "--valid-items", 20]
        images = ["--data", "shapes", "--batch", 8, "--valid-items", 32]
        for cpu in cpus:
            for precision in ("fp32", "fp16", "bf16"):
                tail = ["--precision", precision, "--cpu", cpu]
                train(f"gpt {precision} {cpu}", *gpt, *tail)
                train(f"fcn {precision} {cpu}", "--model", "fcn", *images, *tail)
                for model in ("cnn", "resnet", "mlp") if pathlib.Path(FASHION).exists() else ():
                    train(f"{model} {precision} {cpu}", "--model", model, "--data", "fashion-mnist", "--batch", 4,
                          "--hidden" if model == "mlp" else "--filters", 8, "--valid-items", 40, *tail)
                if pathlib.Path(FASHION).exists():
                    train(f"vit {precision} {cpu}", "--model", "vit", "--data", "fashion-mnist", "--patch", 7, "--layers",
                          2, "--width", 32, "--heads", 2, "--batch", 4, "--valid-items", 40, *tail)
        for optimizer in ("sgd", "adam", "lamb", "adafactor"):
            train(f"gpt {optimizer}", *gpt, "--precision", "bf16", "--optimizer", optimizer)
        for mode in ("O1", "O2", "O3"):
            train(f"gpt {mode}", *gpt, "--precision", "fp16", "--mode", mode, "--recompute", "--accumulate", 2)
        for how in ("retry:3", "attribute"):
            train(f"fcn {how}", "--model", "fcn", *images, "--precision", "fp16", "--on-overflow", how, "--set",
                  "init=16777216")
        for scaler in ("headroom", "logmax", "adaptive", "histogram", "static:1024", "none"):
            train(f"fcn {scaler}", "--model", "fcn", *images, "--precision", "fp16", "--scaler", scaler)


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(sys.argv[1])
