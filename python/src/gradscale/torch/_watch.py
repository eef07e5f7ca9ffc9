"""watch(): the log of a run, with what each layer's gradients lose in their half type.

What a half tensor has lost cannot be seen in it. So every N steps, for every Linear and Conv layer, the gradients of
its input and its weight are computed once more in f32 from what backward had, and what rounding does to them is
counted. Between those steps the model has no hooks; a step costs one line of JSON.
"""
from __future__ import annotations

import ctypes
import json
import math
import os
import time
from typing import Any, Callable, TextIO

import torch
import torch.nn.grad as nn_grad
from torch import nn

from .. import _lib
from .._lib import GradscaleError, lib
from .._tensors import TensorList
from ..scaler import exponents_of
from ._products import product
from ._threads import context

_HALVES = {torch.float16: "f16", torch.bfloat16: "bf16"}
_CONVS: dict[type, tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]] = {
    nn.Conv1d: (nn_grad.conv1d_input, nn_grad.conv1d_weight),
    nn.Conv2d: (nn_grad.conv2d_input, nn_grad.conv2d_weight),
    nn.Conv3d: (nn_grad.conv3d_input, nn_grad.conv3d_weight),
}


# ---- one layer ----


def _linear(layer: Any, x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of input and weight in f32."""
    g, x, w = g.reshape(-1, g.shape[-1]), x.reshape(-1, x.shape[-1]), layer.weight.detach().to(x.dtype)
    if g.is_cpu and g.dtype is x.dtype is torch.float16 and g.numel() and x.numel():
        return (
            product(g, w, torch.empty(x.shape, dtype=torch.float32)),
            product(g.t(), x, torch.empty(w.shape, dtype=torch.float32)),
        )
    g, x, w = g.float(), x.float(), w.float()
    return g @ w, g.t() @ x


def _conv(layer: Any, x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    of_input, of_weight = _CONVS[type(layer)]
    args = (layer.stride, layer.padding, layer.dilation, layer.groups)
    w = layer.weight.detach().to(x.dtype).float()
    return of_input(x.shape, w, g.float(), *args), of_weight(x.float(), w.shape, g.float(), *args)


def _takes(module: nn.Module) -> bool:
    if type(module) in _CONVS:
        return module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return isinstance(module, nn.Linear)


class _Layer:
    """What was seen of one layer in a watched step, of all its uses."""

    def __init__(self, half: int) -> None:
        self.half = half
        self.elements = self.zero = self.underflow = self.subnormal = self.bad = 0
        self.amax = 0.0
        self.exponents = _lib.Exponents()

    def add(self, of_input: torch.Tensor | None, of_weight: torch.Tensor) -> None:
        for tensor in (of_input, of_weight):
            if tensor is None:
                continue
            arrays = TensorList(tensor.cpu())
            each = (_lib.Stats * max(arrays.count, 1))()
            context().run(lib.gs_tensors_count, arrays.array, arrays.count, self.half, each)
            for s in each[: arrays.count]:
                self.elements += s.elements
                self.zero += s.zero
                self.underflow += s.underflow
                self.subnormal += s.subnormal
                self.bad += s.inf + s.nan
                self.amax = max(self.amax, s.amax)
            if tensor is of_input:
                lib.gs_exponents_merge(ctypes.byref(self.exponents), ctypes.byref(exponents_of(arrays)))

    @property
    def nonzero(self) -> int:
        return self.elements - self.zero - self.bad

    def row(self, name: str) -> dict[str, Any]:
        n = self.nonzero or 1
        return {
            "name": name,
            "elements": self.elements,
            "flushed": self.underflow / n,
            "subnormal": self.subnormal / n,
            "inf": self.bad,
            "amax": self.amax,
        }

    def histogram(self, name: str) -> dict[str, Any]:
        x = self.exponents
        used = [i for i in range(_lib.BINADES) if x.all[i]]
        first, last = (used[0], used[-1]) if used else (_lib.BINADE_OF_ONE, _lib.BINADE_OF_ONE - 1)
        counts = [x.all[i] for i in range(first, last + 1)]
        return {"name": name, "first": first - _lib.BINADE_OF_ONE, "counts": counts, "zero": x.zero, "bad": x.inf + x.nan}


# ---- the watcher ----


class Watcher:
    """What `watch` returns. Use it in a with statement, or call `close`."""

    def __init__(
        self,
        model: nn.Module,
        scaler: torch.amp.GradScaler,
        log: str | os.PathLike[str],
        every: int,
        half: str,
        name: str | None,
        resume: bool | int,
    ) -> None:
        self._scaler, self._every, self._half = scaler, every, half
        self._layers = [(path, module) for path, module in model.named_modules() if _takes(module)]
        self._seen: dict[str, _Layer] = {}
        self._hooks: list[Any] = []
        self.step = _last_step(log, resume) if resume is not False and os.path.exists(log) else 0
        self._file: TextIO | None = open(log, "a" if self.step else "w", encoding="utf-8")
        self.applied = self.skipped = 0
        self._loss: torch.Tensor | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._begun = self._before = time.perf_counter()
        if self.step == 0:
            self._write(self._run_line(model, name))
        else:
            self._write({"event": "resume", "step": self.step, "from": os.fspath(log)})
        self._attach()
        self._arm()

    def _run_line(self, model: nn.Module, name: str | None) -> dict[str, Any]:
        return {
            "event": "run",
            "version": lib.gs_version().decode(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "name": name or type(model).__name__,
            "model": f"{type(model).__module__}.{type(model).__qualname__}",
            "data": None,
            "parameters": sum(p.numel() for p in model.parameters()),
            "config": {"scaler": type(self._scaler).__module__, "torch": torch.__version__, "every": str(self._every)},
            "machine": {"cpu": None, "kernels": "torch", "threads": torch.get_num_threads(), "ranks": 1},
        }

    # ---- around the scaler ----

    def _attach(self) -> None:
        """The scaler's own methods stay; the instance gets ones that call them."""
        scaler = self._scaler
        scale, step, update, get_state = scaler.scale, scaler.step, scaler.update, scaler.__getstate__

        def watched_scale(outputs: Any) -> Any:
            if isinstance(outputs, torch.Tensor):
                self._loss = outputs.detach()
            return scale(outputs)

        def watched_step(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            self._optimizer = optimizer
            return step(optimizer, *args, **kwargs)

        def watched_update(new_scale: Any = None) -> None:
            at, found = scaler.get_scale(), self._found()
            update() if new_scale is None else update(new_scale)
            self._end_of_step(at, found)

        def state() -> dict[str, Any]:  # to be pickled: without these four
            return {k: v for k, v in get_state().items() if k not in self._methods}

        self._methods = {"scale": watched_scale, "step": watched_step, "update": watched_update, "__getstate__": state}
        scaler.__dict__.update(self._methods)

    def _found(self) -> bool:
        states = self._scaler._per_optimizer_states.values() if self._scaler.is_enabled() else ()
        return any(t.item() for state in states for t in state["found_inf_per_device"].values())

    # ---- the layers ----

    def _arm(self) -> None:
        """Hooks for the next step, if it is one to watch."""
        if self.step % self._every:
            return
        for path, module in self._layers:
            self._hooks.append(module.register_forward_hook(self._hook(path)))

    def _hook(self, path: str) -> Callable[[nn.Module, Any, Any], None]:
        def forward(module: nn.Module, inputs: Any, output: Any) -> None:
            x = inputs[0].detach() if inputs and isinstance(inputs[0], torch.Tensor) else None
            if x is None or not isinstance(output, torch.Tensor) or not output.requires_grad:
                return
            needs_input = inputs[0].requires_grad

            def backward(g: torch.Tensor) -> None:
                with torch.no_grad(), torch.autocast(g.device.type, enabled=False):
                    work = _conv if type(module) in _CONVS else _linear
                    of_input, of_weight = work(module, x.to(g.dtype), g.detach())
                    half = _HALVES.get(g.dtype, self._half)
                    layer = self._seen.get(path) or _Layer(_lib.DTYPES.index(half))
                    layer.add(of_input if needs_input else None, of_weight)
                    self._seen[path] = layer

            output.register_hook(backward)  # type: ignore[no-untyped-call]

        return forward

    # ---- lines ----

    def _end_of_step(self, scale: float, found: bool) -> None:
        now = time.perf_counter()
        self.step += 1
        self.applied += not found
        self.skipped += found
        loss = self._loss.float().mean().item() if self._loss is not None else math.nan
        last = getattr(self._scaler, "last", None)
        layers, self._seen = self._seen, {}
        total = sum(layer.nonzero for layer in layers.values())
        amax = last.amax if last is not None else math.nan
        if last is None and layers:
            amax = max(layer.amax for layer in layers.values()) / scale
        line = {
            "step": self.step,
            "loss": loss,
            "scale": scale,
            "found_inf": bool(found),
            "amax": amax,
            "verdict": "skip" if found else "apply",
            "reason": (last.reason if last is not None else "inf") if found else "fine",
            "reruns": 0,
            "grad_norm": last.grad_norm if last is not None else math.nan,
            "lr": float(self._optimizer.param_groups[0]["lr"]) if self._optimizer is not None else math.nan,
            "underflow": sum(layer.underflow for layer in layers.values()) / total if total else math.nan,
            "items_per_s": math.nan,
            "seconds": now - self._before,
            "items": None,
        }
        self._write(line)
        if layers:
            rows = [layer.row(path + ".weight") for path, layer in layers.items()]
            self._write({"event": "layers", "step": self.step, "layers": rows})
            half = _lib.DTYPES[next(iter(layers.values())).half]
            histograms = [layer.histogram(path + ".weight") for path, layer in layers.items()]
            self._write({"event": "exponents", "step": self.step, "half": half, "scale": scale, "layers": histograms})
        self._loss = None
        self._disarm()
        self._arm()
        self._before = time.perf_counter()

    def _write(self, line: dict[str, Any]) -> None:
        """Whole lines, each in one write; what is not finite is null."""
        if self._file is not None:
            self._file.write(json.dumps(_finite(line), ensure_ascii=False, allow_nan=False) + "\n")
            self._file.flush()

    def valid(self, loss: float, accuracy: float = math.nan, best: bool = False) -> None:
        """A validation after this step."""
        self._write({"event": "valid", "step": self.step, "loss": loss, "accuracy": accuracy, "best": best})

    def _disarm(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def close(self, status: str = "done") -> None:
        """Ends the log and takes every hook away."""
        if self._file is None:
            return
        self._disarm()
        for name, method in self._methods.items():
            if self._scaler.__dict__.get(name) is method:
                del self._scaler.__dict__[name]
        end = {"event": "end", "step": self.step, "seconds": time.perf_counter() - self._begun, "status": status}
        self._write({**end, "applied": self.applied, "skipped": self.skipped, "retried": 0})
        self._file.close()
        self._file = None

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close("done" if kind is None else "failed")


def _last_step(log: str | os.PathLike[str], resume: bool | int) -> int:
    """After which the run goes on: that of the log, or of a checkpoint. A line that was torn is cut off."""
    last, whole = 0, 0
    with open(log, "rb+") as file:
        for line in file:
            if whole and not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                last = max(last, entry.get("step", 0))
            except (ValueError, AttributeError, TypeError):
                entry = {}
            if whole == 0 and entry.get("event") != "run" or not entry:
                raise GradscaleError(f"{os.fspath(log)} is no log to go on with", "FORMAT")
            whole += len(line)
        file.truncate(whole)
    return last if resume is True else min(last, int(resume))


def _finite(x: Any) -> Any:
    if isinstance(x, float):
        return x if math.isfinite(x) else None
    if isinstance(x, dict):
        return {k: _finite(v) for k, v in x.items()}
    return [_finite(v) for v in x] if isinstance(x, list) else x


def watch(
    model: nn.Module,
    scaler: torch.amp.GradScaler,
    log: str | os.PathLike[str] = "run.jsonl",
    every: int = 100,
    half: str = "f16",
    name: str | None = None,
    resume: bool | int = False,
) -> Watcher:
    """Writes the log of a run, which `gradscale report`, `replay` and `compare` read: a line per scaler.update(), and every
    `every` steps, beginning with the first, what the gradients of each Linear and Conv layer lose in the type they are
    stored in (`half`, where that is f32). `scaler` is torch's GradScaler or ours; accelerate has it as
    accelerator.scaler; for Hugging Face's Trainer and for Lightning there is a WatchCallback. `resume` goes on with a log that is there, behind
    its last step or behind the step of a checkpoint: what the log has beyond that is void.

    >>> import tempfile
    >>> net, folder = nn.Linear(4, 2), tempfile.TemporaryDirectory()
    >>> optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    >>> with watch(net, scaler, folder.name + "/run.jsonl", every=1) as watcher:
    ...     scaler.scale(net(torch.ones(3, 4)).sum()).backward()
    ...     _ = scaler.step(optimizer)
    ...     scaler.update()
    >>> watcher.step, len(open(folder.name + "/run.jsonl").readlines())
    (1, 5)
    """
    if resume is not True and resume < 0:
        raise GradscaleError(f"resume: True, or the step of a checkpoint, not {resume}", "RANGE")
    if every < 1:
        raise GradscaleError("every: at least 1", "RANGE")
    if half not in ("f16", "bf16"):
        raise GradscaleError(f"half: f16 or bf16, not {half}", "DTYPE")
    if not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(f"scaler is a {type(scaler).__name__}, no GradScaler")
    if "update" in scaler.__dict__:
        raise GradscaleError("the scaler is watched already", "STATE")
    return Watcher(model, scaler, log, every, half, name, resume)
