"""What the callbacks of transformers.py and lightning.py share: a watcher from the beginning of a run to its end."""
from __future__ import annotations

import os
from typing import Any

from torch import nn

from .._lib import GradscaleError
from ._watch import Watcher, watch


class Recorder:
    def __init__(self, log: str | os.PathLike[str] = "run.jsonl", every: int = 100, half: str = "f16") -> None:
        super().__init__()
        self.path, self.every, self.half = log, every, half  # Lightning gives every callback a `log`
        self.watcher: Watcher | None = None

    def _begin(self, model: nn.Module, scaler: Any, name: str | None, step: int, hint: str) -> None:
        """`step` is that of a checkpoint, or 0; `hint` says how the framework gets a scaler."""
        self._end("failed")  # of a run that raised
        if scaler is None:
            raise GradscaleError(f"this Trainer has no GradScaler to watch: {hint} makes one", "STATE")
        self.watcher = watch(model, scaler, self.path, self.every, self.half, name, step or False)

    def _validated(self, loss: Any) -> None:
        if self.watcher is not None and loss is not None:
            self.watcher.valid(float(loss))

    def _end(self, status: str) -> None:
        if self.watcher is not None:
            self.watcher.close(status)
        self.watcher = None
