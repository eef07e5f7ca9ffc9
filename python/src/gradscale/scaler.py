"""The scaler and its step protocol, for arrays of any framework."""
from __future__ import annotations

import ctypes
import math
from typing import Any, Iterator, NamedTuple, Sequence

from . import _lib
from ._lib import GradscaleError, lib
from ._tensors import TensorList

_ref = ctypes.byref
COUPLINGS = ("independent", "skip_together", "scale_together")
WINDOW_RULES = ("skip_window", "drop_microbatch")


class Verdict(NamedTuple):
    """What to do with a step: "apply", "skip", "retry" or "fail", and why."""

    action: str
    reason: str
    scale: float  # of the rerun after "retry", else of the next step
    factor: float  # of a window: multiply the gradients by it too

    @property
    def applied(self) -> bool:
        return self.action == "apply"


class Stats(NamedTuple):
    """What a pass saw. Counts of zero, subnormal and underflow are of `count` alone."""

    elements: int
    inf: int
    nan: int
    zero: int
    subnormal: int
    underflow: int
    amax: float
    sumsq: float
    bad: tuple[str, tuple[int, ...]] | None  # name and index of the first Inf or NaN

    @property
    def finite(self) -> bool:
        return self.inf == 0 and self.nan == 0

    @property
    def norm(self) -> float:
        return math.sqrt(self.sumsq)


class Counters(NamedTuple):
    """Steps since the scaler was made; `skipped` by reason."""

    attempted: int
    applied: int
    skipped: dict[str, int]
    retried: int
    blamed: int


def _verdict(v: _lib.Verdict) -> Verdict:
    reason = _lib.REASONS[v.reason] if v.reason < len(_lib.REASONS) else "version"
    return Verdict(_lib.ACTIONS[v.action], reason, v.scale, v.factor)


def _stats(s: _lib.Stats, tensors: TensorList | None = None) -> Stats:
    bad = tensors.locate(s.bad_tensor, s.bad_index) if tensors is not None else None
    return Stats(s.elements, s.inf, s.nan, s.zero, s.subnormal, s.underflow, s.amax, s.sumsq, bad)


def _text(value: Any) -> str:
    """A value as gs_scaler_set reads it, to the same bits."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return str(int(value)) if isinstance(value, int) else float(value).hex()


def settings_text(settings: dict[str, Any]) -> bytes:
    pairs = [f"{key}={_text(value)}" for key, value in settings.items()]
    for pair in pairs:
        if len(pair.split()) != 1:  # it would be read as several
            raise GradscaleError(f"'{pair}': a setting has no spaces", "RANGE")
    return " ".join(pairs).encode()


def presets() -> list[str]:
    """Names of the frameworks' scalers.

    >>> "pytorch" in presets() and "megatron" in presets()
    True
    """
    names: list[str] = []
    while (name := lib.gs_preset_name(len(names))) is not None:
        names.append(name.decode())
    return names


class Scaler:
    """A loss scaler: a preset ("pytorch", "megatron", ...), "static:1024", "guard", "headroom", "logmax",
    "adaptive", "histogram" or "none", with settings of doc/scaler.md.

    >>> from array import array
    >>> scaler = Scaler("pytorch", init=1024, interval=2)
    >>> grads = array("f", [1024.0, 2048.0])          # of loss * 1024
    >>> step = scaler.step()
    >>> step.unscale(grads).applied                   # in place, and looks for Inf and NaN
    True
    >>> list(grads), step.end().action, scaler.scale
    ([1.0, 2.0], 'apply', 1024.0)
    >>> step = scaler.step()
    >>> step.scan({"w": array("f", [1, float("inf")])}).bad
    ('w', (1,))
    >>> step.end()
    Verdict(action='skip', reason='inf', scale=512.0, factor=1.0)
    """

    def __init__(self, spec: str = "pytorch", **settings: Any) -> None:
        if not isinstance(spec, str):
            raise TypeError(f"a scaler is named by a string, not by a {type(spec).__name__}")
        self._c = _lib.Scaler()
        _lib.call("gs_scaler_init", _ref(self._c), spec.encode())
        if settings:
            self.set(**settings)

    # ---- settings ----

    def set(self, **settings: Any) -> None:
        """Changes parameters and rules, all or nothing: set(growth=1.5, on_overflow="retry:3")."""
        _lib.call("gs_scaler_set", _ref(self._c), settings_text(settings))

    def get(self, key: str) -> str:
        """The value of a setting, as `set` takes it.

        >>> Scaler("megatron").get("hyst")
        '2'
        """
        text = ctypes.create_string_buffer(256)
        _lib.call("gs_scaler_get", text, len(text), _ref(self._c), key.encode())
        return text.value.decode()

    def keys(self) -> Iterator[str]:
        i = 0
        while (key := lib.gs_scaler_key(_ref(self._c), i)) is not None:
            yield key.decode()
            i += 1

    def settings(self) -> dict[str, str]:
        return {key: self.get(key) for key in self.keys()}

    # ---- state ----

    @property
    def scale(self) -> float:
        """Of the next step."""
        return float(lib.gs_scaler_scale(_ref(self._c)))

    @scale.setter
    def scale(self, value: float) -> None:
        _lib.call("gs_scaler_set_scale", _ref(self._c), float(value))

    @property
    def policy(self) -> str:
        return _lib.POLICIES[self._c.policy]

    @property
    def clean_steps(self) -> int:
        """Towards the next growth: torch's _growth_tracker."""
        return int(self._c.machine.count)

    def resume(self, scale: float, clean_steps: int = 0) -> None:
        """Goes on from another implementation's scale and count of clean steps."""
        _lib.call("gs_scaler_resume", _ref(self._c), float(scale), int(clean_steps))

    @property
    def counters(self) -> Counters:
        c = self._c.counters
        skipped = {reason: c.skipped[i] for i, reason in enumerate(_lib.REASONS) if i and c.skipped[i]}
        return Counters(c.attempted, c.applied, skipped, c.retried, c.blamed)

    @property
    def health(self) -> str:
        """CALIBRATING, HEALTHY, AT_FLOOR, AT_CEILING or STUCK."""
        return str(lib.gs_health_name(lib.gs_scaler_health(_ref(self._c))), "ascii")

    def explain(self, names: Sequence[str] = ()) -> str:
        """What a user needs to be told, in a sentence; names of the tensors that were scanned.

        >>> scaler = Scaler()
        >>> print(scaler.explain())
        the scale is 65536 and no step has confirmed it yet
        """
        tensors = (_lib.Tensor * max(len(names), 1))()
        for entry, name in zip(tensors, names):
            entry.name = name.encode()
        text = ctypes.create_string_buffer(1024)
        lib.gs_scaler_explain(text, len(text), _ref(self._c), tensors if names else None, len(names))
        return text.value.decode(errors="replace")

    def save(self) -> bytes:
        """All of the state. Loading it and going on is bit for bit never having stopped."""
        room, used = ctypes.create_string_buffer(1024), ctypes.c_size_t()
        _lib.call("gs_scaler_save", room, len(room), _ref(used), _ref(self._c))
        return room.raw[: used.value]

    def load(self, state: bytes) -> None:
        _lib.call("gs_scaler_load", _ref(self._c), bytes(state), len(state))

    def save_text(self) -> str:
        """The same as text, which a checkpoint in any format can hold."""
        room, used = ctypes.create_string_buffer(4096), ctypes.c_size_t()
        _lib.call("gs_scaler_save_text", room, len(room), _ref(used), _ref(self._c))
        return room.raw[: used.value].decode()

    def load_text(self, state: str) -> None:
        text = state.encode()
        _lib.call("gs_scaler_load_text", _ref(self._c), text, len(text))

    def copy(self) -> Scaler:
        other = type(self).__new__(type(self))
        other._c = _lib.Scaler.from_buffer_copy(self._c)
        return other

    def __getstate__(self) -> dict[str, bytes]:
        return {"state": self.save()}

    def __setstate__(self, state: dict[str, bytes]) -> None:
        self._c = _lib.Scaler()
        self.load(state["state"])

    def __copy__(self) -> Scaler:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Scaler:
        return self.copy()

    def __repr__(self) -> str:
        return f"<gradscale.Scaler {self.policy} scale={self.scale:g} {self.health}>"

    # ---- steps ----

    def step(self) -> Step:
        """A step at the scale of now."""
        return Step(self)

    def window(self, rule: str = "skip_window") -> Window:
        """A gradient accumulation window at the scale of now: "skip_window" or "drop_microbatch"."""
        return Window(self, rule)

    def update(self, found: bool) -> bool:
        """The raw machine alone, without bounds and counters. True where the framework raises."""
        return bool(lib.gs_scaler_update(_ref(self._c), int(bool(found))))


class Step:
    """One step: report what the gradients look like, any number of times; then `end`."""

    def __init__(self, scaler: Scaler) -> None:
        self.scaler = scaler
        self._c = _lib.Step()
        self._bad: tuple[str, tuple[int, ...]] | None = None
        lib.gs_step_begin(_ref(self._c), _ref(scaler._c))

    @property
    def scale(self) -> float:
        """Multiply the loss by it."""
        return float(self._c.scale)

    @property
    def inverse(self) -> float:
        """Multiply the gradients by it."""
        return float(self._c.inverse)

    @property
    def stats(self) -> Stats:
        """Of the scaled gradients, merged."""
        return _stats(self._c.stats)._replace(bad=self._bad)

    def loss(self, value: float) -> None:
        """The loss before scaling: if it is not finite, the scale is not to blame."""
        lib.gs_step_loss(_ref(self._c), float(value))

    def scan(self, tensors: Any) -> Stats:
        """Looks at scaled gradients: an array, several, or a mapping of names to arrays."""
        arrays, stats = TensorList(tensors), _lib.Stats()
        _lib.context().run(lib.gs_tensors_scan, arrays.array, arrays.count, _ref(stats))
        result = _stats(stats, arrays)
        self._look_at_exponents(arrays)
        lib.gs_step_scan(_ref(self._c), _ref(stats))
        self._bad = self._bad or result.bad
        return result

    def unscale(self, tensors: Any, to: Any = None) -> Verdict:
        """Looks at scaled gradients and multiplies them by `inverse`, in place or into `to`. A list that was
        given before is left alone. Returns what `decide` says."""
        arrays = TensorList(tensors, writes=to is None)
        target = TensorList(to, writes=True) if to is not None else None
        if target is not None and target.count != arrays.count:
            raise GradscaleError("`to` does not match the tensors: another number, or memory in another order", "SIZE")
        before = self._c.given.tensors
        self._look_at_exponents(arrays)
        _lib.context().run_on(
            _ref(self._c), lib.gs_step_unscale, target.array if target else None, arrays.array, arrays.count
        )
        if self._bad is None and self._c.stats.bad_tensor >= before:
            self._bad = arrays.locate(self._c.stats.bad_tensor - before, self._c.stats.bad_index)
        return self.decide()

    def _look_at_exponents(self, arrays: TensorList) -> None:
        if self.scaler.policy == "histogram":
            lib.gs_step_exponents(_ref(self._c), _ref(self.scaler._c), _ref(exponents_of(arrays)))

    def flag(self, found: bool) -> None:
        """All that a device tells: whether there was an Inf or NaN."""
        lib.gs_step_flag(_ref(self._c), int(bool(found)))

    def amax(self, largest: float) -> None:
        """The largest magnitude of the scaled gradients; Inf or NaN if there was one."""
        lib.gs_step_amax(_ref(self._c), float(largest))

    def sums(self, elements: int, nonfinite: int, amax: float, sumsq: float) -> None:
        lib.gs_step_sums(_ref(self._c), elements, nonfinite, amax, sumsq)

    def reject(self) -> None:
        """The caller has a reason of its own not to apply the step."""
        lib.gs_step_reject(_ref(self._c))

    def merge(self, other: Step) -> None:
        """What another rank, micro-batch or buffer saw."""
        lib.gs_step_merge(_ref(self._c), _ref(other._c))

    def to_bytes(self) -> bytes:
        """Plain data, to be sent to another rank of the same version."""
        return bytes(self._c)

    @classmethod
    def from_bytes(cls, scaler: Scaler, data: bytes) -> Step:
        step = cls(scaler)
        if len(data) != ctypes.sizeof(_lib.Step):
            raise GradscaleError("this is not a step: it has another length", "VERSION")
        step._c = _lib.Step.from_buffer_copy(data)
        return step

    def decide(self) -> Verdict:
        """What `end` will say; nothing changes."""
        return _verdict(lib.gs_step_decide(_ref(self._c), _ref(self.scaler._c)))

    def end(self) -> Verdict:
        """Feeds the scaler and says what to do."""
        return _verdict(lib.gs_step_end(_ref(self._c), _ref(self.scaler._c)))

    def abandon(self) -> None:
        """Forgets a batch that was to be retried."""
        lib.gs_step_abandon(_ref(self._c), _ref(self.scaler._c))


def end_steps(steps: Sequence[Step]) -> None:
    """Ends several steps of one scaler with one update, as a GradScaler does with several optimizers."""
    scalers = {id(step.scaler) for step in steps}
    if len(scalers) != 1:
        raise GradscaleError("the steps are of several scalers: use end_group", "STATE")
    array = (_lib.Step * len(steps))(*(step._c for step in steps))
    _lib.call("gs_steps_end", array, len(steps), _ref(steps[0].scaler._c))
    for step, ended in zip(steps, array):
        step._c = ended


def end_group(steps: Sequence[Step], coupling: str = "independent") -> list[Verdict]:
    """Ends one step each of several scalers: "independent", "skip_together" or "scale_together"."""
    if coupling not in COUPLINGS:
        raise GradscaleError(f"no coupling {coupling}: {', '.join(COUPLINGS)}", "NAME")
    n = len(steps)
    array = (_lib.Step * max(n, 1))(*(step._c for step in steps))
    scalers = (ctypes.c_void_p * max(n, 1))(*(ctypes.addressof(step.scaler._c) for step in steps))
    verdicts = (_lib.Verdict * max(n, 1))()
    lib.gs_group_end(verdicts, array, scalers, n, COUPLINGS.index(coupling))
    for step, ended in zip(steps, array):
        step._c = ended
    return [_verdict(verdicts[i]) for i in range(n)]


class Window:
    """Gradient accumulation: one scale for all micro-batches, one verdict at the end.

    >>> scaler = Scaler("pytorch")
    >>> window = scaler.window("drop_microbatch")
    >>> for found in (False, True, False):
    ...     micro = scaler.step()
    ...     micro.flag(found)
    ...     if window.add(micro):
    ...         pass                                  # accumulate its gradients
    >>> window.end()
    Verdict(action='apply', reason='fine', scale=32768.0, factor=1.5)
    """

    def __init__(self, scaler: Scaler, rule: str = "skip_window") -> None:
        if rule not in WINDOW_RULES:
            raise GradscaleError(f"no rule {rule}: {', '.join(WINDOW_RULES)}", "NAME")
        self.scaler = scaler
        self._c = _lib.Window()
        lib.gs_window_begin(_ref(self._c), _ref(scaler._c), WINDOW_RULES.index(rule))

    @property
    def scale(self) -> float:
        return float(self._c.step.scale)

    def add(self, micro: Step) -> bool:
        """One micro-batch. True: accumulate its gradients; False: leave them out."""
        return bool(lib.gs_window_add(_ref(self._c), _ref(micro._c)))

    def merge(self, other: Window) -> None:
        lib.gs_window_merge(_ref(self._c), _ref(other._c))

    def end(self) -> Verdict:
        return _verdict(lib.gs_window_end(_ref(self._c), _ref(self.scaler._c)))


# ---- passes on their own ----


def exponents_of(arrays: TensorList, stats: _lib.Stats | None = None) -> _lib.Exponents:
    """The histogram of a list, entry by entry in order; what was seen is merged into `stats`."""
    x, context = _lib.Exponents(), _lib.context()
    for i in range(arrays.count):
        entry, seen = arrays.array[i], _lib.Stats()
        lib.gs_stats_init(_ref(seen))
        if entry.dtype != _lib.F64:
            context.run(lib.gs_tensors_exponents, _ref(x), _ref(entry), 1, _ref(seen))
        else:  # which has a call of its own
            cols = entry.strided.contents.cols if entry.strided else entry.count
            stride = entry.strided.contents.stride if entry.strided else cols
            for row in range(entry.count // cols if cols else 0):
                part = _lib.Stats()
                lib.gs_stats_init(_ref(part))
                lib.gs_exponents_add_f64(_ref(x), entry.data + 8 * row * stride, cols, _ref(part))
                if part.bad_index != _lib.NONE:
                    part.bad_index += row * cols
                lib.gs_stats_merge(_ref(seen), _ref(part))
        if stats is not None:
            if seen.bad_tensor != _lib.NONE:
                seen.bad_tensor = i
            lib.gs_stats_merge(_ref(stats), _ref(seen))
    return x


def scan(tensors: Any) -> Stats:
    """Inf, NaN, the largest magnitude and the sum of squares, in one read.

    >>> from array import array
    >>> scan(array("d", [3, -4])).norm
    5.0
    """
    arrays, stats = TensorList(tensors), _lib.Stats()
    _lib.context().run(lib.gs_tensors_scan, arrays.array, arrays.count, _ref(stats))
    return _stats(stats, arrays)
