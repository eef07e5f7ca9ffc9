"""The gradients of an optimizer as a list for the library's passes.

(1) An entry is of the tensor that is there now: its pointer, size, type and strides are read at every call, so that
    zero_grad(set_to_none=True) leaves no stale pointer. Where all are one run of memory each, one call of C writes
    the list anew (_exchange.py). Else they are compared with those that the list was made from.
(2) What the passes do not take (a device, an expanded view, a type) is left to torch's own operator.
"""
from __future__ import annotations

import ctypes
from array import array
from operator import attrgetter
from typing import Any

import torch

from .. import _lib
from .._exchange import About, exchange_of
from .._tensors import Layout, spans
from ._threads import context

DTYPES = {torch.float32: _lib.F32, torch.float16: _lib.F16, torch.bfloat16: _lib.BF16, torch.float64: _lib.F64}
_WORDS = ctypes.sizeof(_lib.Tensor) // 8  # data, count, dtype, name, strided
_ALONE = 1 << 20  # elements up to which one thread is done before others have woken up
_exchange = exchange_of(torch.Tensor)
_dtype = attrgetter("dtype")
_data_ptr, _numel, _is_contiguous = torch.Tensor.data_ptr, torch.Tensor.numel, torch.Tensor.is_contiguous


class GradList:
    """`array[count]`: descriptors of the tensors that are ours; `theirs`: the other tensors."""

    def __init__(self) -> None:
        self._key: list[list[Any]] = []
        self._layouts: list[Any] | None = None  # shapes and strides, unless all are contiguous
        self._has_half = False
        self._plain = _exchange is not None  # until tensors are seen for which one call is not enough
        self._memory: Any = None
        self.count, self.pointer = 0, 0
        self._elements = 0
        self.owners: list[int] | None = None  # of each entry its tensor; None: they are the tensors
        self._spans: list[Any] = []
        self.theirs: list[torch.Tensor] = []

    def update(self, tensors: list[torch.Tensor], allow_fp16: bool) -> bool:
        """False: some are sparse, or are f16 and that is not allowed. The list is not to be used then."""
        if self._plain:
            about = self._describe(tensors)
            if about is not None:
                self._elements = about.elements
                return allow_fp16 or not about.dtypes >> _lib.F16 & 1
            self._plain, self._memory = False, None
        try:
            key = [
                list(map(_data_ptr, tensors)),
                list(map(_numel, tensors)),
                list(map(_dtype, tensors)),
                list(map(_is_contiguous, tensors)),
            ]
        except RuntimeError:  # sparse: no storage
            return False
        same = key == self._key
        layouts = None if same and self._layouts is None or all(key[3]) else [(t.shape, t.stride()) for t in tensors]
        if same and layouts == self._layouts:
            return allow_fp16 or not self._has_half
        has_half = torch.float16 in key[2]
        if has_half and not allow_fp16:
            return False
        if layouts is None and all(t.is_cpu and t.dtype in DTYPES for t in tensors):
            words = array("Q", bytes(8 * _WORDS * len(tensors)))
            words[0::_WORDS] = array("Q", key[0])
            words[1::_WORDS] = array("Q", key[1])
            words[2::_WORDS] = array("Q", map(DTYPES.__getitem__, key[2]))
            self._memory, self.count = words, len(tensors)
            self.pointer = words.buffer_info()[0]
            self.theirs, self.owners, self._spans = [], None, []
        else:
            self._fill_one_by_one(tensors)
        self._key, self._layouts, self._has_half = [] if self.theirs else key, layouts, has_half
        self._elements = sum(key[1])
        return True

    @property
    def context(self) -> _lib.Context:
        """For a pass over the list."""
        return context(None if self._elements > _ALONE else 1)

    def _describe(self, tensors: list[torch.Tensor]) -> About | None:
        if self._memory is None or self.count != len(tensors):
            self._memory, self.count = array("Q", bytes(8 * _WORDS * len(tensors))), len(tensors)
            self.pointer = self._memory.buffer_info()[0]
        return _exchange.describe(self.pointer, tensors)  # type: ignore[union-attr]  # or it would not be _plain

    def _fill_one_by_one(self, tensors: list[torch.Tensor]) -> None:
        entries: list[Any] = []
        owners: list[int] = []
        self._spans, self.theirs = [], []
        for i, t in enumerate(tensors):
            if not t.is_cpu or t.layout is not torch.strided or t.dtype not in DTYPES or 0 in _real_strides(t):
                self.theirs.append(t)
                continue
            at = Layout(t.data_ptr(), DTYPES[t.dtype], tuple(t.shape), t.stride(), True, t)
            where = spans(at, "", True)
            for part, offset in enumerate(where.offsets):
                entries.append((where, where.data + offset * _lib.BYTES[at.dtype], at.dtype))
                owners.append(i)
                self._spans.append((at.shape, at.strides, where, part))
        self.owners, self.count = owners, len(entries)
        self._memory = (_lib.Tensor * max(self.count, 1))()
        self._strides = (_lib.Strided * max(self.count, 1))()
        for entry, strided, (where, data, dtype) in zip(self._memory, self._strides, entries):
            entry.data, entry.count, entry.dtype = data, where.rows * where.cols, dtype
            if where.rows > 1 and where.stride != where.cols:
                strided.cols, strided.stride = where.cols, where.stride
                entry.strided = ctypes.pointer(strided)
        self.pointer = ctypes.addressof(self._memory)

    def locate(self, entry: int, index: int, tensors: list[torch.Tensor]) -> tuple[int, tuple[int, ...]]:
        """Which tensor, and the index in it, an element of the list is."""
        if self.owners is None:
            owner, shape, strides = entry, tensors[entry].shape, tensors[entry].stride()
            order = tuple(sorted(range(len(shape)), key=lambda axis: -strides[axis]))
        else:
            owner = self.owners[entry]
            shape, strides, where, part = self._spans[entry]
            index += part * where.rows * where.cols
            order = where.order
        place = [0] * len(shape)
        for axis in reversed(order):
            index, at = divmod(index, shape[axis])
            place[axis] = at if strides[axis] >= 0 else shape[axis] - 1 - at
        return owner, tuple(place)


def _real_strides(t: torch.Tensor) -> list[int]:
    return [stride for size, stride in zip(t.shape, t.stride()) if size > 1]
