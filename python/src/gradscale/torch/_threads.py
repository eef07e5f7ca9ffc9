"""The library's loops on torch's own threads.

Two pools on the same cores disturb each other: OpenMP's threads spin for milliseconds after each loop. So where torch
runs on OpenMP its runtime runs ours too (python/native/threads.c); else the library has a pool of its own.
"""
from __future__ import annotations

import ctypes
import os
from ctypes import Structure, c_uint, c_void_p
from typing import Any

import torch

from .. import _lib


class _OpenMP(Structure):  # gsp_openmp
    _fields_ = [("parallel", c_void_p), ("threads", c_uint)]


def _find_openmp() -> int | None:
    """The address of GOMP_parallel in the runtime that torch is linked with."""
    try:
        torchs = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        return ctypes.cast(torchs.GOMP_parallel, c_void_p).value
    except (OSError, AttributeError):
        return None


_address = _find_openmp()


def _openmp(threads: int) -> tuple[Any, _OpenMP]:
    return ctypes.cast(_lib.lib.gsp_run_openmp, c_void_p), _OpenMP(_address, threads)


def context(threads: int | None = None) -> _lib.Context:
    """The context for as many threads as torch uses, or fewer."""
    threads = threads or torch.get_num_threads()
    return _lib.context(threads, _openmp if threads > 1 and _address is not None else None)


def _after_fork() -> None:
    """A child has none of the threads, and OpenMP would wait for them."""
    global _address
    _address = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
