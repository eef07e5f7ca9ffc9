"""PyTorch: a drop-in for torch.amp.GradScaler."""
from .grad_scaler import GradScaler, Offender, Outcome

__all__ = ["GradScaler", "Offender", "Outcome"]
