"""Many tensors of a framework as gs_tensor entries in one call: python/native/exchange.c, which is in the library's file.

It needs the framework's table of functions for DLPack, `__dlpack_c_exchange_api__` of its tensor type (torch 2.10).
"""
from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_size_t, c_uint64, c_void_p, py_object
from typing import Any

from . import _lib



class About(Structure):
    """gsp_list: what is in a list."""

    _fields_ = [("elements", c_uint64), ("dtypes", c_uint64)]  # dtypes: a bit each


_native = ctypes.PyDLL(_lib.PATH)  # keeps the interpreter's lock, and raises what the framework's function raised
_native.gsp_exchange_usable.argtypes, _native.gsp_exchange_usable.restype = [c_void_p], c_int
_describe = _native.gsp_describe
_describe.argtypes = [c_void_p, POINTER(About), c_void_p, py_object, c_void_p, c_size_t]
_describe.restype = c_size_t
_get = ctypes.cast(ctypes.pythonapi.PyList_GetItem, c_void_p)


class Exchange:
    """A framework's table."""

    def __init__(self, table: int) -> None:
        self._table = c_void_p(table)

    def describe(self, into: int, tensors: list[Any]) -> About | None:
        """Fills entries at the address `into`; None if some tensor is not one run of memory, on the CPU and of a type
        that the passes take."""
        about = About()
        try:
            filled = _describe(into, about, self._table, tensors, _get, len(tensors))
        except RuntimeError:  # it has no memory: sparse, or on a device that DLPack has no number for
            return None
        return about if filled == len(tensors) else None


def exchange_of(tensor_type: Any) -> Exchange | None:
    """None: the framework has no table, or one that is not understood."""
    capsule = getattr(tensor_type, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = c_void_p, [py_object, c_char_p]
    table = pointer(capsule, b"dlpack_exchange_api")
    return Exchange(table) if _native.gsp_exchange_usable(table) else None
