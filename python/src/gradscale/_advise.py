"""Which loss scale do these gradients need? The rules are those of `gradscale advise`."""
from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

from . import _lib
from ._lib import BF16, F16, GradscaleError
from ._tensors import TensorList
from .scaler import exponents_of

_F16_MAX = 65504.0
# Shares of the non-zero values: below the first nobody has measured that it matters, above the second it does.
_NEGLIGIBLE, _SERIOUS = 1e-4, 1e-2


class Shares(NamedTuple):
    """Of the finite values that are not zero, what rounding at a scale makes of them."""

    underflow: float
    subnormal: float
    overflow: float


class Advice(NamedTuple):
    """What `advise` found."""

    verdict: str  # "scale", "no_need", "too_wide", "too_small", "too_large" or "empty"
    scale: float | None  # to use
    largest_safe: float | None  # with which no value overflows in f16
    elements: int
    zero: int
    inf: int
    nan: int
    amax: float
    bad: tuple[str, tuple[int, ...]] | None  # the first Inf or NaN
    f16: tuple[Shares, ...]  # at scales 2^0 to 2^24
    bf16: tuple[Shares, ...]

    @property
    def lost(self) -> float:
        """The share that becomes zero in f16 without a scale."""
        return self.f16[0].underflow

    @property
    def lost_scaled(self) -> float:
        """The share that becomes zero in f16 with the scale."""
        if self.scale is None:
            return self.lost
        return self.f16[min(max(round(math.log2(self.scale)), 0), _lib.MAX_LOG2_SCALE)].underflow

    def code(self, device: str = "cuda") -> str:
        """The line to paste."""
        if self.scale is None:
            return f'torch.amp.GradScaler("{device}")'
        if self.verdict == "no_need":
            return f'torch.amp.GradScaler("{device}", enabled=False)'
        return f'torch.amp.GradScaler("{device}", init_scale=2.0**{round(math.log2(self.scale))})'

    def __str__(self) -> str:
        if self.verdict == "empty":
            return "There is no finite value but zero: no scale can be advised."
        if self.scale is None:
            return "The largest of these values is beyond even FP32: no scale helps."
        words = {
            "no_need": "FP16 needs no scaling here",
            "scale": f"For FP16 use a scale of {self.scale:.10g}",
            "too_wide": f"These values are too far apart for FP16, even with a scale of {self.scale:.10g}: prefer BF16",
            "too_small": f"These values are too small for FP16, even with a scale of {self.scale:.10g}",
            "too_large": f"These values are too large for FP16: the largest is {self.amax:.4g}; prefer BF16, or clip",
        }[self.verdict]
        return f"{words}: {self.lost_scaled:.3%} of the non-zero values become zero, without a scale {self.lost:.3%}."


def advise(gradients: Any, margin: int = 2) -> Advice:
    """Which scale gradients need: of a torch model (the .grad of its parameters), a mapping of names to arrays, one
    array or several. They are to be in true units: after unscale_, or of a loss that was not scaled. `margin`: bits to
    leave between the largest value and 65504.

    >>> from array import array
    >>> advice = advise({"w": array("f", [1e-8, 3e-8, 1e-3, 2e-9])})
    >>> advice.verdict, advice.scale, advice.lost, advice.lost_scaled
    ('scale', 8388608.0, 0.5, 0.0)
    >>> advice.code()
    'torch.amp.GradScaler("cuda", init_scale=2.0**23)'
    """
    if hasattr(gradients, "named_parameters"):
        gradients = {name: p.grad for name, p in gradients.named_parameters() if p.grad is not None}
        if not gradients:
            raise GradscaleError("no parameter of the model has a gradient: call it after backward", "STATE")
        gradients = {name: g._values() if g.is_sparse else g for name, g in gradients.items()}
    if not 0 <= margin <= 15:
        raise GradscaleError(f"a margin of {margin} bits is not between 0 and 15", "RANGE")
    arrays = TensorList(gradients)
    stats = _lib.Stats()
    _lib.lib.gs_stats_init(ctypes.byref(stats))
    x = exponents_of(arrays, stats)
    elements = sum(entry.count for entry in arrays.array[: arrays.count])
    nonzero = elements - x.zero - x.inf - x.nan
    shares = {half: tuple(_at(x, half, k, nonzero) for k in range(_lib.MAX_LOG2_SCALE + 1)) for half in (F16, BF16)}
    verdict, scale, safe = _choose(stats.amax, nonzero, margin, shares[F16])
    bad = arrays.locate(stats.bad_tensor, stats.bad_index)
    return Advice(verdict, scale, safe, elements, x.zero, x.inf, x.nan, stats.amax, bad, shares[F16], shares[BF16])


def _at(x: _lib.Exponents, half: int, k: int, nonzero: int) -> Shares:
    r = _lib.Rounded()
    _lib.call("gs_exponents_at", ctypes.byref(r), ctypes.byref(x), half, k)
    n = nonzero or 1
    return Shares(r.underflow / n, r.subnormal / n, r.overflow / n)


def _choose(amax: float, nonzero: int, margin: int, f16: tuple[Shares, ...]) -> tuple[str, float | None, float | None]:
    if nonzero == 0:
        return "empty", None, None
    if not math.isfinite(amax):
        return "too_large", None, None
    safe = math.floor(math.log2(_F16_MAX / amax))
    while math.ldexp(amax, safe) > _F16_MAX:
        safe -= 1
    while math.ldexp(amax, safe + 1) <= _F16_MAX:
        safe += 1
    log2 = min(safe - margin, _lib.MAX_LOG2_SCALE)
    if log2 < 0:
        verdict = "too_large"
    elif f16[0].underflow <= _NEGLIGIBLE and f16[0].subnormal <= _SERIOUS:
        verdict, log2 = "no_need", 0
    elif f16[log2].underflow <= _SERIOUS:
        verdict = "scale"
    else:
        verdict = "too_small" if safe - margin > _lib.MAX_LOG2_SCALE else "too_wide"
    return verdict, math.ldexp(1.0, log2), math.ldexp(1.0, safe)
