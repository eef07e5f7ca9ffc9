"""Loss scaling for mixed-precision training.

Scaler is for arrays of any framework; gradscale.torch has a drop-in GradScaler for PyTorch; advise says which
scale gradients need. Importing needs the standard library alone.
"""
from ._advise import Advice, Shares, advise
from ._lib import GradscaleError
from .scaler import Counters, Scaler, Stats, Step, Verdict, Window, end_group, end_steps, presets, scan

__version__ = "0.1.0"
__all__ = [
    "Advice",
    "Counters",
    "GradscaleError",
    "Scaler",
    "Shares",
    "Stats",
    "Step",
    "Verdict",
    "Window",
    "advise",
    "end_group",
    "end_steps",
    "presets",
    "scan",
]
