"""libgradscale's C ABI as ctypes sees it: structs, prototypes, errors. Nothing else of the package does.

Structs mirror include/gradscale; tests/test_abi.py compares sizes and offsets with the headers.
"""
from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, ClassVar

NONE = 2**64 - 1  # GS_NONE: no such number
DTYPES = ("f32", "f16", "bf16", "f8e4m3", "f8e5m2", "f64")  # gs_dtype
F32, F16, BF16, F64 = 0, 1, 2, 5
BYTES = {F32: 4, F16: 2, BF16: 2, F64: 8}
REASONS = ("fine", "inf", "nan", "forward", "no_grads", "user")
ACTIONS = ("apply", "skip", "retry", "fail")
APPLY, SKIP, RETRY, FAIL = range(4)
POLICIES = ("machine", "headroom", "logmax", "adaptive", "histogram", "none")
BINADES, BINADE_OF_ONE = 320, 192
MAX_LOG2_SCALE = 24


class Error(Structure):
    _fields_ = [("status", c_int), ("text", c_char * 240)]


class Config(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("resize", c_void_p),
        ("resize_user", c_void_p),
        ("run", c_void_p),
        ("run_user", c_void_p),
        ("threads", c_uint),
        ("without_cpu", c_uint),
    ]


class Stats(Structure):
    _fields_ = [
        ("elements", c_uint64),
        ("inf", c_uint64),
        ("nan", c_uint64),
        ("zero", c_uint64),
        ("subnormal", c_uint64),
        ("underflow", c_uint64),
        ("amax", c_float),
        ("sumsq", c_double),
        ("bad_tensor", c_uint64),
        ("bad_index", c_uint64),
    ]


class Strided(Structure):
    _fields_ = [("cols", c_size_t), ("stride", c_size_t)]


class Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("count", c_size_t),
        ("dtype", c_int),
        ("name", c_char_p),
        ("strided", POINTER(Strided)),
    ]


class Exponents(Structure):
    _fields_ = [
        ("zero", c_uint64),
        ("inf", c_uint64),
        ("nan", c_uint64),
        ("all", c_uint64 * BINADES),
        ("power", c_uint64 * BINADES),
        ("top", c_uint64 * BINADES),
    ]


class Rounded(Structure):
    _fields_ = [("zero", c_uint64), ("underflow", c_uint64), ("subnormal", c_uint64), ("overflow", c_uint64)]


class Matrix(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int),
        ("stride", c_size_t),
        ("batch_stride", c_size_t),
        ("transposed", c_int),
        ("group", c_size_t),
        ("group_stride", c_size_t),
        ("im2col", c_void_p),
    ]


class MatrixOut(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("stride", c_size_t), ("batch_stride", c_size_t)]


class Gemm(Structure):
    _fields_ = [
        ("m", c_size_t),
        ("n", c_size_t),
        ("k", c_size_t),
        ("batch", c_size_t),
        ("a", Matrix),
        ("b", Matrix),
        ("c", MatrixOut),
        ("beta", c_float),
        ("bias", c_void_p),
        ("bias_dtype", c_int),
        ("bias_per_row", c_int),
        ("stats", POINTER(Stats)),
    ]


class Params(Structure):
    _fields_ = (
        [(name, c_double) for name in "init growth backoff tolerance floor max err_min window_follows".split()]
        + [("warm_growth", c_double)]
        + [(name, c_int64) for name in "interval extra credit hyst bad_limit".split()]
        + [(name, c_uint8) for name in "state grow_op back_op compare refill track_rescale".split()]
        + [(name, c_uint8) for name in "keep_nonfinite err lag".split()]
        + [("reserved", c_uint8 * 7)]
    )


class Machine(Structure):
    _fields_: ClassVar[Any] = (
        [(name, c_double) for name in "scale shown interval count".split()]
        + [(name, c_int64) for name in "clean bad run it last_rescale ovf".split()]
        + [("ever", c_uint8), ("reserved", c_uint8 * 7)]
    )


MACHINE_WORDS = ctypes.sizeof(Machine) // 8


class Rules(Structure):
    _fields_ = [
        ("lowest", c_double),
        ("highest", c_double),
        ("stuck", c_uint32),
        ("fail_after", c_uint32),
        ("retries", c_uint8),
        ("on_overflow", c_uint8),
        ("probe", c_uint8),
        ("half", c_uint8),
        ("reserved", c_uint8 * 4),
    ]


class Counters(Structure):
    _fields_ = [
        ("attempted", c_uint64),
        ("applied", c_uint64),
        ("skipped", c_uint64 * len(REASONS)),
        ("retried", c_uint64),
        ("blamed", c_uint64),
    ]


class Event(Structure):
    _fields_ = [("scale", c_double), ("phase", c_uint8), ("reruns", c_uint8), ("reserved", c_uint8 * 6)]


class Streak(Structure):
    _fields_ = [
        ("from_", c_float),
        ("to", c_float),
        ("tensor", c_uint64),
        ("index", c_uint64),
        ("steps", c_uint32),
        ("reason", c_uint8),
        ("nan_only", c_uint8),
        ("reserved", c_uint8 * 2),
    ]


class Scaler(Structure):
    _fields_ = [
        ("size", c_uint32),
        ("policy", c_uint8),
        ("probing", c_uint8),
        ("reserved", c_uint8 * 2),
        ("params", Params),
        ("machine", Machine),
        ("rules", Rules),
        ("counters", Counters),
        ("tune", c_double * 3),
        ("history", c_float * 16),
        ("mean", c_double * 3),
        ("seen", c_uint32),
        ("zeros", c_uint32),
        ("event", Event),
        ("streak", Streak),
        ("later", c_uint64 * 1),
    ]


class Given(Structure):
    _fields_ = [
        ("lists", c_uint32),
        ("spans", c_uint32),
        ("tensors", c_uint64),
        ("list", c_uint64 * 16),
        ("begin", c_uint64 * 16),
        ("end", c_uint64 * 16),
    ]


class Step(Structure):
    _fields_ = (
        [("size", c_uint32)]
        + [(name, c_uint8) for name in "looked amax_known flagged forward rejected unscaled dropped ended".split()]
        + [("verdict", c_uint8 * 2), ("reserved", c_uint8 * 2)]
        + [("scale", c_double), ("inverse", c_double), ("stats", Stats)]
        + [(name, c_uint64) for name in "elements above above_band".split()]
        + [("given", Given), ("later", c_uint64 * 5)]
    )


class Verdict(Structure):
    _fields_ = [("action", c_int), ("reason", c_int), ("scale", c_double), ("factor", c_double)]


class Window(Structure):
    _fields_ = [("step", Step), ("bad", Step), ("seen", c_uint64), ("good", c_uint64), ("rule", c_int)]


# name: result, arguments. A result `status` becomes an exception unless it is GS_OK.
_status = object()
_P, _E = POINTER, POINTER(Error)
_PROTOTYPES = {
    "gs_version": (c_char_p,),
    "gs_version_number": (c_int,),
    "gs_cpus_usable": (c_uint, c_void_p),
    "gs_context_create": (_status, _P(c_void_p), _P(Config), _E),
    "gs_context_free": (None, c_void_p),
    "gs_context_threads": (c_uint, c_void_p),
    "gs_context_error": (_E, c_void_p),
    "gs_param_key": (c_char_p, c_size_t),
    "gs_preset_name": (c_char_p, c_size_t),
    "gs_stats_init": (None, _P(Stats)),
    "gs_stats_merge": (None, _P(Stats), _P(Stats)),
    "gs_tensors_scan": (c_int, c_void_p, c_void_p, c_size_t, _P(Stats)),
    "gs_tensors_count": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "gs_tensors_scale": (c_int, c_void_p, c_void_p, c_size_t, c_float, _P(Stats)),
    "gs_tensors_unscale": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_float, _P(Stats)),
    "gs_tensors_exponents": (c_int, c_void_p, _P(Exponents), c_void_p, c_size_t, _P(Stats)),
    "gs_exponents_add_f64": (None, _P(Exponents), c_void_p, c_size_t, _P(Stats)),
    "gs_exponents_merge": (None, _P(Exponents), _P(Exponents)),
    "gs_exponents_at": (_status, _P(Rounded), _P(Exponents), c_int, c_int, _E),
    "gs_gemm_run": (c_int, c_void_p, _P(Gemm)),
    "gs_scaler_init": (_status, _P(Scaler), c_char_p, _E),
    "gs_scaler_set": (_status, _P(Scaler), c_char_p, _E),
    "gs_scaler_get": (_status, c_char_p, c_size_t, _P(Scaler), c_char_p, _E),
    "gs_scaler_key": (c_char_p, _P(Scaler), c_size_t),
    "gs_scaler_scale": (c_double, _P(Scaler)),
    "gs_scaler_set_scale": (_status, _P(Scaler), c_double, _E),
    "gs_scaler_resume": (_status, _P(Scaler), c_double, c_int64, _E),
    "gs_scaler_update": (c_int, _P(Scaler), c_int),
    "gs_scaler_health": (c_int, _P(Scaler)),
    "gs_health_name": (c_char_p, c_int),
    "gs_scaler_explain": (c_void_p, c_char_p, c_size_t, _P(Scaler), c_void_p, c_size_t),
    "gs_scaler_save": (_status, c_char_p, c_size_t, _P(c_size_t), _P(Scaler), _E),
    "gs_scaler_save_text": (_status, c_char_p, c_size_t, _P(c_size_t), _P(Scaler), _E),
    "gs_scaler_load": (_status, _P(Scaler), c_char_p, c_size_t, _E),
    "gs_scaler_load_text": (_status, _P(Scaler), c_char_p, c_size_t, _E),
    "gs_step_begin": (None, _P(Step), _P(Scaler)),
    "gs_step_loss": (None, _P(Step), c_double),
    "gs_step_scan": (None, _P(Step), _P(Stats)),
    "gs_step_scan_unscaled": (None, _P(Step), _P(Stats)),
    "gs_step_sums": (None, _P(Step), c_uint64, c_uint64, c_double, c_double),
    "gs_step_flag": (None, _P(Step), c_int),
    "gs_step_amax": (None, _P(Step), c_double),
    "gs_step_exponents": (None, _P(Step), _P(Scaler), _P(Exponents)),
    "gs_step_reject": (None, _P(Step)),
    "gs_step_merge": (None, _P(Step), _P(Step)),
    "gs_step_unscale": (c_int, _P(Step), c_void_p, c_void_p, c_void_p, c_size_t),
    "gs_step_decide": (Verdict, _P(Step), _P(Scaler)),
    "gs_step_end": (Verdict, _P(Step), _P(Scaler)),
    "gs_step_abandon": (None, _P(Step), _P(Scaler)),
    "gs_steps_end": (_status, c_void_p, c_size_t, _P(Scaler), _E),
    "gs_group_end": (None, c_void_p, c_void_p, c_void_p, c_size_t, c_int),
    "gs_window_begin": (None, _P(Window), _P(Scaler), c_int),
    "gs_window_add": (c_int, _P(Window), _P(Step)),
    "gs_window_merge": (None, _P(Window), _P(Window)),
    "gs_window_end": (Verdict, _P(Window), _P(Scaler)),
}


class GradscaleError(ValueError):
    """The library's error message, with the name of its status: "RANGE", "NAME", "DTYPE", ..."""

    def __init__(self, message: str, status: str = "RANGE") -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.args[0], self.status)


PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libgradscale.so")


def _open() -> Any:
    lib = ctypes.CDLL(PATH)
    lib.gs_status_name.restype = c_char_p
    lib.gs_status_name.argtypes = [c_int]
    for name, (result, *arguments) in _PROTOTYPES.items():
        function = getattr(lib, name)
        function.argtypes = arguments
        function.restype = c_int if result is _status else result
    return lib


lib = _open()


def fail(error: Error) -> None:
    raise GradscaleError(error.text.decode(errors="replace"), lib.gs_status_name(error.status).decode())


def call(name: str, *arguments: Any) -> None:
    """A function whose last argument is a gs_error: raises what it says."""
    error = Error()
    if getattr(lib, name)(*arguments, ctypes.byref(error)) != 0:
        fail(error)


class Context:
    """A gs_context. It serves one caller at a time, so that calls take its lock; ctypes releases the GIL."""

    def __init__(self, threads: int = 0, parallel: Callable[[int], tuple[Any, Any]] | None = None) -> None:
        config = Config(size=ctypes.sizeof(Config), threads=threads)
        if parallel is not None:
            config.run, self.user = parallel(threads)
            config.run_user = ctypes.addressof(self.user)
        self.handle = c_void_p()
        call("gs_context_create", ctypes.byref(self.handle), ctypes.byref(config))
        self.lock = threading.Lock()

    def run(self, function: Callable[..., int], *arguments: Any) -> None:
        """function(ctx, *arguments); its message is in the context."""
        with self.lock:
            if function(self.handle, *arguments) != 0:
                fail(lib.gs_context_error(self.handle).contents)

    def run_on(self, first: Any, function: Callable[..., int], *arguments: Any) -> None:
        """The same for a function whose context is its second argument."""
        with self.lock:
            if function(first, self.handle, *arguments) != 0:
                fail(lib.gs_context_error(self.handle).contents)


_contexts: dict[Any, Context] = {}
_making = threading.Lock()


def context(threads: int = 0, parallel: Callable[[int], tuple[Any, Any]] | None = None) -> Context:
    """The process's context of so many threads; 0: as many as it may use CPUs. `parallel` makes run and user of a
    gs_parallel for as many: threads of somebody else's."""
    found = _contexts.get((threads, parallel))
    if found is None:
        with _making:
            found = _contexts.get((threads, parallel))
            if found is None:
                found = _contexts[threads, parallel] = Context(threads, parallel)
    return found


def _after_fork() -> None:
    """A child has neither the threads of its parent's contexts nor those that may hold their locks."""
    global _making
    _making = threading.Lock()
    _contexts.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
