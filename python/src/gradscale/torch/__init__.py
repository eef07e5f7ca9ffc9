"""PyTorch: a drop-in for torch.amp.GradScaler; f16 on a CPU at the speed of f32; logs of a run."""
from .._needs import need

need("torch", __name__, "torch>=2.9")

from ._install import Installed, install  # noqa: E402
from ._watch import Watcher, watch  # noqa: E402
from .grad_scaler import GradScaler, Offender, Outcome  # noqa: E402

__all__ = ["GradScaler", "Installed", "Offender", "Outcome", "Watcher", "install", "watch"]
