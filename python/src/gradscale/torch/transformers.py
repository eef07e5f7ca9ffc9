"""Hugging Face's Trainer: watch() as a callback."""
from __future__ import annotations

from typing import Any

from .._needs import need
from ._callback import Recorder

_TrainerCallback: Any = need("transformers", __name__, "transformers[torch]").TrainerCallback


class WatchCallback(Recorder, _TrainerCallback):  # type: ignore[misc]
    """Writes the log of a run as gradscale.torch.watch does: Trainer(..., callbacks=[WatchCallback("run.jsonl")]).

    The run needs a GradScaler: fp16=True, or one of ours as trainer.accelerator.scaler before train(). A run that goes
    on from a checkpoint goes on with its log. Of several processes the first writes.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.is_world_process_zero:
            scaler = getattr(given["optimizer"], "scaler", None)
            self._begin(given["model"], scaler, args.run_name, state.global_step, "fp16=True")

    def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._validated((given.get("metrics") or {}).get("eval_loss"))

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self._end("done")
