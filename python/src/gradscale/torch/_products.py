"""f16 matrix products of torch tensors by gs_gemm_run, where they lie.

The sums are accumulated in f32 and rounded once. An operand is read through its own strides; one with no unit
stride, or whose rows overlap, is copied first.
"""
from __future__ import annotations

import ctypes
import math
from typing import Iterator

import torch

from .. import _lib
from .._lib import lib
from ._threads import context

_DTYPES = {torch.float32: _lib.F32, torch.float16: _lib.F16}


def _operand(x: torch.Tensor) -> tuple[torch.Tensor, int, int, int]:
    """tensor, row stride, batch stride, transposed: of a matrix, or of a batch of them."""
    rows, cols = x.shape[-2:]
    down, right = x.stride()[-2:]
    batch = x.stride(0) if x.dim() == 3 and x.shape[0] > 1 else 0
    if (right == 1 or cols == 1) and (down >= cols or rows == 1):
        return x, max(down, cols) if rows > 1 else cols, batch, 0
    if (down == 1 or rows == 1) and (right >= rows or cols == 1):
        return x, max(right, rows) if cols > 1 else rows, batch, 1
    x = x.contiguous()
    return x, cols, rows * cols if batch or x.dim() == 3 else 0, 0


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    beta: float = 0.0,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """out = a b + bias + beta out, of matrices or batches of them; rows of out have unit stride."""
    a, a_stride, a_batch, a_transposed = _operand(a)
    b, b_stride, b_batch, b_transposed = _operand(b)
    is_batch = out.dim() == 3
    gemm = _lib.Gemm(
        m=out.shape[-2],
        n=out.shape[-1],
        k=a.shape[-1],
        batch=out.shape[0] if is_batch else 1,
        a=_lib.Matrix(a.data_ptr(), _DTYPES[a.dtype], a_stride, a_batch, a_transposed),
        b=_lib.Matrix(b.data_ptr(), _DTYPES[b.dtype], b_stride, b_batch, b_transposed),
        c=_lib.MatrixOut(out.data_ptr(), _DTYPES[out.dtype], out.stride(-2), out.stride(0) if is_batch else 0),
        beta=beta,
    )
    if bias is not None:
        gemm.bias, gemm.bias_dtype = bias.data_ptr(), _DTYPES[bias.dtype]
    context().run(lib.gs_gemm_run, ctypes.byref(gemm))
    return out


# ---- attention ----
#
# Scores of a few heads are stored in f32, and every pass over them counts. So what is added to a row of scores is
# one more column of the product, and the mask is what the product is added to.

_SCORES = 4 << 20  # at a time: 16 MB
SCORES_MAX = 16 << 20  # of one head; torch's own does more, without storing them


def _heads(q: torch.Tensor, k: torch.Tensor) -> Iterator[tuple[int, slice]]:
    """(b, heads) of parts whose scores fit."""
    step = max(1, _SCORES // max(q.shape[2] * k.shape[2], 1))
    for b in range(q.shape[0]):
        for h in range(0, q.shape[1], step):
            yield b, slice(h, min(h + step, q.shape[1]))


def _mask(q: torch.Tensor, k: torch.Tensor, is_causal: bool) -> torch.Tensor | None:
    if not is_causal:
        return None
    return torch.full((q.shape[2], k.shape[2]), -math.inf, dtype=torch.float32).triu_(1)


def _wide(x: torch.Tensor, column: torch.Tensor | float, scale: float = 1.0) -> torch.Tensor:
    """(x scale | column) in f32."""
    wide = torch.empty((*x.shape[:-1], x.shape[-1] + 1), dtype=torch.float32)
    torch.mul(x, scale, out=wide[..., :-1])
    wide[..., -1] = column
    return wide


def _scores(q: torch.Tensor, k: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    s = torch.empty((q.shape[0], q.shape[1], k.shape[1]), dtype=torch.float32)
    if mask is None:
        return product(q, k.transpose(1, 2), s)
    return product(q, k.transpose(1, 2), s.copy_(mask), beta=1.0)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(q k^T scale) v and the logarithms of the sums; q is (batch, heads, time, size)."""
    batch, heads, time, _ = q.shape
    out = torch.empty((batch, heads, time, v.shape[3]), dtype=q.dtype)
    sums = torch.empty((batch, heads, time), dtype=torch.float32)
    mask = _mask(q, k, is_causal)
    for b, h in _heads(q, k):
        s = _scores(q[b, h].float().mul_(scale), k[b, h], mask)
        largest = s.amax(-1)
        torch.softmax(s, -1, out=s)
        torch.sub(largest, s.amax(-1).log_(), out=sums[b, h])  # the largest is exp(largest - log of the sum)
        product(s, v[b, h], out[b, h])
    return out, sums


def attention_backward(
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    sums: torch.Tensor,
    is_causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of q, k and v. With p the probabilities: ds = p (dp - rowsum(dout out)) scale."""
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype) for x in (q, k, v))
    mask = _mask(q, k, is_causal)
    for b, h in _heads(q, k):
        wide = _wide(q[b, h], -sums[b, h], scale)
        p = _scores(wide, _wide(k[b, h], 1.0), mask).exp_()
        g = grad[b, h]
        product(p.transpose(1, 2), g, dv[b, h])
        ds = torch.empty_like(p)
        less = (g.float() * out[b, h]).sum(-1).neg_()
        product(_wide(g, less), _wide(v[b, h], 1.0).transpose(1, 2), ds)
        ds.mul_(p)
        product(ds, k[b, h].float().mul_(scale), dq[b, h])
        product(ds.transpose(1, 2), wide[..., :-1], dk[b, h])
    return dq, dk, dv
