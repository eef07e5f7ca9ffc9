"""Lightning: watch() as a callback."""
from __future__ import annotations

from typing import Any

from .._needs import need
from ._callback import Recorder

_Callback: Any = need("lightning.pytorch", __name__, "lightning").Callback


class WatchCallback(Recorder, _Callback):  # type: ignore[misc]
    """Writes the log of a fit as gradscale.torch.watch does: Trainer(..., callbacks=[WatchCallback("run.jsonl")]).

    The fit needs a GradScaler: precision="16-mixed", or the plugin MixedPrecision with one of ours. A fit that goes on
    from a checkpoint goes on with its log. Of several processes the first writes.
    """

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            scaler = getattr(trainer.precision_plugin, "scaler", None)
            self._begin(pl_module, scaler, None, trainer.global_step, 'precision="16-mixed"')

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._validated(trainer.callback_metrics.get("val_loss"))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end("done")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end("failed")
