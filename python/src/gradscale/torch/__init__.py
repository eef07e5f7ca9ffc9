"""PyTorch: a drop-in for torch.amp.GradScaler; f16 on a CPU at the speed of f32; logs of a run."""
from ._install import Installed, install
from ._watch import Watcher, watch
from .grad_scaler import GradScaler, Offender, Outcome

__all__ = ["GradScaler", "Installed", "Offender", "Outcome", "Watcher", "install", "watch"]
