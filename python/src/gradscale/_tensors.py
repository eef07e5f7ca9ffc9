"""Anybody's arrays as a list of gs_tensor, where they lie: no copy is made.

Taken are torch tensors, typed storages and whatever has __array_interface__, __dlpack__ or the buffer protocol. An array
whose memory is not rows of one length becomes several entries of the list.
"""
from __future__ import annotations

import ctypes
import itertools
import sys
from ctypes import c_char_p, c_int, c_int32, c_int64, c_ssize_t, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Iterable, Mapping, NamedTuple, NoReturn, Sequence

from . import _lib
from ._lib import BF16, BYTES, F16, F32, F64, GradscaleError


class Layout(NamedTuple):
    """Memory of an array: strides are in elements and may be negative."""

    data: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writable: bool
    keep: Any  # what must live as long as the pointer is used


def _refuse(name: str, message: str, status: str = "DTYPE") -> NoReturn:
    raise GradscaleError(f"{name} {message}", status)


def c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _elements(strides: Sequence[int], bytes_: int, name: str) -> tuple[int, ...]:
    if any(s % bytes_ for s in strides):
        _refuse(name, "has elements that are not aligned to their size", "ALIGN")
    return tuple(s // bytes_ for s in strides)


# ---- torch ----


def _torch_types(torch: Any) -> dict[Any, int]:
    return {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16, torch.float64: F64}


def _from_torch(x: Any, name: str, torch: Any) -> Layout:
    if x.device.type != "cpu":
        _refuse(
            name,
            f"is on {x.device}, and passes run on the CPU: unscale it there by step.inverse and report step.flag("
            "found_inf) or step.amax(largest), or use gradscale.torch.GradScaler, which does",
            "STATE",
        )
    if x.layout is not torch.strided:
        _refuse(name, f"is {x.layout}: pass its values()")
    dtype = _torch_types(torch).get(x.dtype)
    if dtype is None:
        _refuse(name, f"is {x.dtype}: f32, f16, bf16 and f64 are taken")
    return Layout(x.data_ptr(), dtype, tuple(x.shape), x.stride(), True, x)


# ---- __array_interface__ ----

_TYPES = {"f2": F16, "f4": F32, "f8": F64}


def _from_interface(x: Any, name: str) -> Layout:
    about = x.__array_interface__
    typestr = about["typestr"]
    dtype = _TYPES.get(typestr[1:])
    if dtype is None and getattr(getattr(x, "dtype", None), "name", "") == "bfloat16":
        dtype = BF16
    if dtype is None:
        _refuse(name, f"is {getattr(x, 'dtype', typestr)}: f32, f16, bf16 and f64 are taken")
    if typestr[0] not in "|=" and typestr[0] != ("<" if sys.byteorder == "little" else ">"):
        _refuse(name, "has the byte order of another machine")
    shape, strides = tuple(about["shape"]), about.get("strides")
    strides = c_strides(shape) if strides is None else _elements(strides, BYTES[dtype], name)
    if about.get("data") is None:
        return _from_buffer(x, name)
    data, readonly = about["data"]
    is_copy = isinstance(x, sys.modules["numpy"].generic) if "numpy" in sys.modules else False
    return Layout(data, dtype, shape, strides, not (readonly or is_copy), (x, about))


# ---- __dlpack__ ----


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _DLVersioned(ctypes.Structure):  # as far as it is read
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _DLTensor),
    ]


_CPU = 1
_DLPACK_TYPES = {(2, 16): F16, (2, 32): F32, (2, 64): F64, (4, 16): BF16}


def _from_dlpack(x: Any, name: str) -> Layout:
    device = x.__dlpack_device__()
    if device[0] != _CPU:
        _refuse(
            name,
            f"is on a device (DLPack's type {int(device[0])}), and passes run on the CPU: unscale it there by "
            "step.inverse and report step.flag(found_inf) or step.amax(largest)",
            "STATE",
        )
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, [ctypes.py_object, c_char_p]
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = c_int, [ctypes.py_object, c_char_p]
    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError:  # of before 1.0
        capsule = x.__dlpack__()
    writable = True
    if is_valid(capsule, b"dltensor_versioned"):
        managed = _DLVersioned.from_address(pointer(capsule, b"dltensor_versioned"))
        tensor, writable = managed.tensor, not managed.flags & 1
    else:
        tensor = _DLTensor.from_address(pointer(capsule, b"dltensor"))
    dtype = _DLPACK_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        _refuse(name, "has a type that is not taken: f32, f16, bf16 and f64 are")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else c_strides(shape)
    return Layout((tensor.data or 0) + tensor.byte_offset, dtype, shape, strides, writable, (x, capsule))


# ---- the buffer protocol ----


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", ctypes.py_object),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", ctypes.POINTER(c_ssize_t)),
        ("strides", ctypes.POINTER(c_ssize_t)),
        ("suboffsets", ctypes.POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


class _Buffer:
    """The address of a buffer, which is held until this object goes."""

    def __init__(self, x: Any) -> None:
        self.view = _PyBuffer()
        get = ctypes.pythonapi.PyObject_GetBuffer
        get.argtypes, get.restype = [ctypes.py_object, ctypes.POINTER(_PyBuffer), c_int], c_int
        get(x, ctypes.byref(self.view), 0x0018 | 0x0004)  # PyBUF_STRIDES | PyBUF_FORMAT; ctypes raises

    def __del__(self) -> None:
        release = ctypes.pythonapi.PyBuffer_Release
        release.argtypes, release.restype = [ctypes.POINTER(_PyBuffer)], None
        if self.view.buf is not None or self.view.len == 0:
            release(ctypes.byref(self.view))


_FORMATS = {"e": F16, "f": F32, "d": F64}


def _from_buffer(x: Any, name: str) -> Layout:
    view = memoryview(x)
    dtype = _FORMATS.get(view.format.lstrip("@=" + ("<" if sys.byteorder == "little" else ">!")))
    if dtype is None:
        _refuse(name, f"is a buffer of '{view.format}': 'e', 'f' and 'd' are taken, others by memoryview.cast")
    held = _Buffer(view)
    strides = _elements(view.strides or (), BYTES[dtype], name)
    return Layout(held.view.buf or 0, dtype, tuple(view.shape or ()), strides, not view.readonly, held)


def layout(x: Any, name: str) -> Layout:
    """Where x lies. A GradscaleError says why it cannot be used."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.TypedStorage):
        bytes_ = x._untyped_storage
        x = torch.empty(0, dtype=x.dtype, device=bytes_.device).set_(bytes_)
    if torch is not None and isinstance(x, torch.Tensor):
        return _from_torch(x, name, torch)
    if hasattr(x, "__array_interface__"):
        return _from_interface(x, name)
    if hasattr(x, "__dlpack__"):
        return _from_dlpack(x, name)
    try:
        memoryview(x)
    except TypeError:
        raise TypeError(
            f"{name} is a {type(x).__name__}: it has neither __array_interface__ nor __dlpack__ nor a buffer"
        ) from None
    return _from_buffer(x, name)


# ---- lists ----


class Spans(NamedTuple):
    """An array in the order of its memory: `outer` offsets of rows x cols, `stride` elements apart."""

    data: int
    offsets: tuple[int, ...]  # in elements
    rows: int
    cols: int
    stride: int
    order: tuple[int, ...]  # axes, slowest first, as elements are counted


def spans(at: Layout, name: str, writes: bool) -> Spans:
    axes = [i for i, size in enumerate(at.shape) if size != 1]
    if any(at.shape[i] == 0 for i in axes):
        return Spans(at.data, (0,), 0, 0, 0, ())
    data = at.data
    for i in axes:
        if at.strides[i] < 0:
            data += at.strides[i] * (at.shape[i] - 1) * BYTES[at.dtype]
        elif at.strides[i] == 0 and writes:
            _refuse(name, "is an expanded view: its elements share memory", "STATE")
    axes.sort(key=lambda i: -abs(at.strides[i]))
    merged: list[list[int]] = []  # [size, stride], slowest first
    for i in axes:
        size, stride = at.shape[i], abs(at.strides[i])
        if merged and merged[-1][1] == size * stride:
            merged[-1] = [merged[-1][0] * size, stride]
        else:
            merged.append([size, stride])
    cols = merged.pop()[0] if merged and merged[-1][1] == 1 else 1
    rows, stride = merged.pop() if merged else (1, cols)
    if stride < cols:  # rows that overlap: one by one
        merged.append([rows, stride])
        rows, stride = 1, cols
    offsets = tuple(
        sum(index * step for index, (_, step) in zip(indices, merged))
        for indices in itertools.product(*(range(size) for size, _ in merged))
    )
    return Spans(data, offsets, rows, cols, stride, tuple(axes))


class TensorList:
    """A gs_tensor array over arrays, and which array each entry is of."""

    def __init__(self, arrays: Any, writes: bool = False, taken: Iterable[int] | None = None) -> None:
        self.names: list[str] = []
        self.layouts: list[Layout] = []
        self.spans: list[Spans] = []
        entries: list[tuple[Spans, int, int, str]] = []
        self.owner: list[int] = []
        for name, x in named(arrays):
            at = layout(x, name)
            if writes and not at.writable:
                _refuse(name, "is not writable", "STATE")
            if taken is not None and at.dtype not in taken:
                _refuse(name, f"is {_lib.DTYPES[at.dtype]}, which this call does not take")
            where = spans(at, name, writes)
            for offset in where.offsets:
                entries.append((where, offset, at.dtype, name))
                self.owner.append(len(self.names))
            self.names.append(name)
            self.layouts.append(at)
            self.spans.append(where)
        self.count = len(entries)
        self.array = (_lib.Tensor * max(self.count, 1))()
        self._strides = (_lib.Strided * max(self.count, 1))()
        for i, (where, offset, dtype, name) in enumerate(entries):
            entry = self.array[i]
            entry.data = where.data + offset * BYTES[dtype]
            entry.count, entry.dtype, entry.name = where.rows * where.cols, dtype, name.encode()
            if where.rows > 1 and where.stride != where.cols:
                self._strides[i] = _lib.Strided(where.cols, where.stride)
                entry.strided = ctypes.pointer(self._strides[i])

    def locate(self, tensor: int, index: int) -> tuple[str, tuple[int, ...]] | None:
        """Name and index, as the array's owner would write it, of an element of the list."""
        if tensor >= self.count:
            return None
        owner = self.owner[tensor]
        where, at = self.spans[owner], self.layouts[owner]
        flat = (tensor - self.owner.index(owner)) * where.rows * where.cols + index
        place = [0] * len(at.shape)
        for axis in reversed(where.order):
            flat, at_axis = divmod(flat, at.shape[axis])
            place[axis] = at_axis if at.strides[axis] >= 0 else at.shape[axis] - 1 - at_axis
        return self.names[owner], tuple(place)


def named(arrays: Any) -> list[tuple[str, Any]]:
    """(name, array) of a mapping, of one array, or of several."""
    if isinstance(arrays, Mapping):
        return [(str(name), x) for name, x in arrays.items()]
    if isinstance(arrays, (list, tuple)):
        return [(f"tensor {i}", x) for i, x in enumerate(arrays)]
    return [("tensor 0", arrays)]
