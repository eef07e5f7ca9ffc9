"""install(): libgradscale behind torch's own operators on the CPU.

Kernels are registered below autograd and autocast, so those work as ever. What a kernel does not take it hands to
the one that was there. torch.compile is not promised: its backend aot_eager calls these operators, inductor's code
calls others, which stay torch's.
"""
from __future__ import annotations

import ctypes
import math
import threading
from typing import Any, Callable

import torch

from .. import _lib
from .._lib import GradscaleError, lib
from ..scaler import Scaler
from ._grads import GradList
from ._products import SCORES_MAX, attention, attention_backward, product

_ref = ctypes.byref
_HALF = torch.float16
_SMALL = 24 << 10  # multiply-adds below which 13 us of Python cost more than is saved
_Original = Callable[..., Any]  # torch's own kernel
_kernels: dict[str, tuple[str, Callable[..., Any]]] = {}  # by operator: its group, the kernel


def _kernel(name: str, group: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _kernels[name] = (group, function)
        return function

    return register


# ---- products ----


def _takes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Two f16 matrices, or batches of them, that fit and are worth it."""
    if a.dtype is not _HALF or b.dtype is not _HALF or a.dim() != b.dim():
        return False
    m, k = a.shape[-2:]
    n = b.shape[-1]
    if b.shape[-2] != k or a.shape[:-2] != b.shape[:-2]:
        return False  # torch says what is wrong
    return m * n * k * (a.shape[0] if a.dim() == 3 else 1) >= _SMALL


def _empty(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype = _HALF) -> torch.Tensor:
    return torch.empty((*a.shape[:-1], b.shape[-1]), dtype=dtype)


@_kernel("mm", "products")
def _mm(original: _Original, a: torch.Tensor, b: torch.Tensor) -> Any:
    return product(a, b, _empty(a, b)) if a.dim() == 2 and _takes(a, b) else original(a, b)


@_kernel("bmm", "products")
def _bmm(original: _Original, a: torch.Tensor, b: torch.Tensor) -> Any:
    return product(a, b, _empty(a, b)) if a.dim() == 3 and _takes(a, b) else original(a, b)


def _add(original: _Original, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: Any, alpha: Any) -> Any:
    if c.dtype is not _HALF or not _takes(a, b) or not _is_plain(beta) or not _is_plain(alpha):
        return original(c, a, b, beta=beta, alpha=alpha)
    shape = (*a.shape[:-1], b.shape[-1])
    try:
        added = c.expand(shape)
    except RuntimeError:  # torch says what is wrong
        return original(c, a, b, beta=beta, alpha=alpha)
    if alpha != 1:
        sums = product(a, b, _empty(a, b, torch.float32)).mul_(alpha)
        return (sums.add_(added, alpha=beta) if beta != 0 else sums).to(_HALF)
    out = _empty(a, b)
    if beta == 0:
        return product(a, b, out)
    if beta == 1 and c.dim() == 1 and c.is_contiguous() and c.shape[0] == shape[-1]:
        return product(a, b, out, bias=c)
    return product(a, b, out.copy_(added), beta=float(beta))


def _is_plain(x: Any) -> bool:
    return isinstance(x, (int, float)) and math.isfinite(x)


@_kernel("addmm", "products")
def _addmm(original: _Original, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if a.dim() != 2:
        return original(c, a, b, beta=beta, alpha=alpha)
    return _add(original, c, a, b, beta, alpha)


@_kernel("baddbmm", "products")
def _baddbmm(original: _Original, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if a.dim() != 3:
        return original(c, a, b, beta=beta, alpha=alpha)
    return _add(original, c, a, b, beta, alpha)


def _takes_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float, mask: Any) -> bool:
    if mask is not None or dropout_p != 0 or any(x.dtype is not _HALF or x.dim() != 4 for x in (q, k, v)):
        return False
    if q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3] or 0 in q.shape + v.shape:
        return False
    scores: int = q.shape[2] * k.shape[2]
    return _SMALL <= scores * q.shape[3] and scores <= SCORES_MAX


def _scale(q: torch.Tensor, scale: float | None) -> float:
    return q.shape[3] ** -0.5 if scale is None else scale


@_kernel("_scaled_dot_product_flash_attention_for_cpu", "products")
def _attention(
    original: _Original,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    if not _takes_attention(q, k, v, dropout_p, attn_mask):
        return original(q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    return attention(q, k, v, is_causal, _scale(q, scale))


@_kernel("_scaled_dot_product_flash_attention_for_cpu_backward", "products")
def _attention_back(
    original: _Original,
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> Any:
    if grad.dtype is not _HALF or not _takes_attention(q, k, v, dropout_p, attn_mask):
        return original(grad, q, k, v, out, sums, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    return attention_backward(grad, q, k, v, out, sums, is_causal, _scale(q, scale))


# ---- the two operators of GradScaler ----


@_kernel("_amp_foreach_non_finite_check_and_unscale_", "scaler")
def _unscale(original: _Original, tensors: Any, found_inf: torch.Tensor, inv_scale: torch.Tensor) -> None:
    factor, grads = inv_scale.item() if inv_scale.numel() == 1 else math.nan, GradList()
    takes = math.isfinite(factor) and found_inf.numel() == 1 and found_inf.is_cpu and tensors
    if not takes or not grads.update(list(tensors), True) or grads.theirs:
        original(tensors, found_inf, inv_scale)
        return
    stats, context = _lib.Stats(), grads.context
    if abs(factor) > 1:  # what is unscaled may overflow: look at what was there
        context.run(lib.gs_tensors_unscale, grads.pointer, grads.pointer, grads.count, factor, _ref(stats))
    else:
        context.run(lib.gs_tensors_scale, grads.pointer, grads.count, factor, _ref(stats))
    if stats.inf or stats.nan:
        found_inf.fill_(1.0)


@_kernel("_amp_update_scale_", "scaler")
def _update(
    original: _Original,
    scale: torch.Tensor,
    tracker: torch.Tensor,
    found_inf: torch.Tensor,
    growth: float,
    backoff: float,
    interval: int,
) -> Any:
    try:
        machine = Scaler("pytorch", lowest="off", highest="off", growth=growth, backoff=backoff, interval=interval)
        machine.resume(scale.item(), int(tracker.item()))
    except (GradscaleError, ValueError):  # into zero, infinity or NaN torch goes alone
        return original(scale, tracker, found_inf, growth, backoff, interval)
    machine.update(found_inf.item() != 0)
    tracker.fill_(machine.clean_steps)
    return scale.fill_(machine.scale)


# ---- to install ----

_GROUPS = ("products", "scaler")
_lock = threading.RLock()
_users: dict[str, int] = dict.fromkeys(_GROUPS, 0)
_libraries: dict[str, torch.library.Library] = {}


def _register(group: str) -> None:
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name, (its_group, function) in _kernels.items():
        if its_group == group:
            library.impl(name, _bound(name, function), "CPU", with_keyset=True, allow_override=True)  # type: ignore[no-untyped-call]
    _libraries[group] = library


def _bound(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    kernel = torch.library.get_kernel(f"aten::{name}", "CPU")  # the one that is there now

    def call(keys: Any, *args: Any, **kwargs: Any) -> Any:
        return function(lambda *a, **k: kernel.call_boxed(keys, *a, **k), *args, **kwargs)

    return call


class Installed:
    """What `install` did; `undo()`, or leaving a with statement, takes it back."""

    def __init__(self, groups: tuple[str, ...]) -> None:
        self.groups = groups

    def undo(self) -> None:
        with _lock:
            for group in self.groups:
                _users[group] -= 1
                if _users[group] == 0:
                    _libraries.pop(group)._destroy()  # type: ignore[no-untyped-call]
            self.groups = ()

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *_: Any) -> None:
        self.undo()


def install(products: bool | None = None, scaler: bool = True) -> Installed:
    """Puts libgradscale behind torch's CPU operators: f16 mm, addmm, bmm, baddbmm and attention (`products`; None:
    unless torch's own are fast on this CPU), and the two operators of torch.amp.GradScaler (`scaler`). No code of
    the caller changes.

    >>> a, b = torch.ones(64, 64, dtype=torch.float16), torch.eye(64, dtype=torch.float16)
    >>> with install(products=True):
    ...     torch.equal(a @ b, a)
    True
    """
    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError("install() needs torch 2.9 or newer: it keeps the kernels that were there")
    if products is None:
        products = not torch.ops.mkldnn._is_mkldnn_fp16_supported()
    groups = tuple(group for group, wanted in zip(_GROUPS, (products, scaler)) if wanted)
    with _lock:
        for group in groups:
            if _users[group] == 0:
                _register(group)
            _users[group] += 1
    return Installed(groups)
