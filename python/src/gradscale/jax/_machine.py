"""The machine of src/scaler/machine.c in jax.numpy: the same bits of the whole state after every step.

(1) Parameters come from the library, so that a preset is defined once. They are constants of the trace: what a
    preset does not use is not compiled.
(2) The state is gs_machine's memory as 32-bit words, whose doubles are used under enable_x64 alone. So a run
    without x64, and a checkpoint that knows no f64, lose nothing.
(3) Numbers of a type T below f64 are rounded in f64, since XLA flushes the subnormals of f32.
"""
from __future__ import annotations

from typing import Any, Dict, Tuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import _lib
from .._lib import Params, Rules

Fields = Dict[str, Any]  # of gs_machine: f64 or i64 scalars

_REALS = ("scale", "shown", "interval", "count")
_WHOLE = ("clean", "bad", "run", "it", "last_rescale", "ovf", "ever")
_WIDE, _STATE, _DIV, _RECIP = range(4)  # GS_ARITH_
_EQ, _GE, _MOD, _WRAP = range(4)  # GS_COMPARE_
_REFILL_CLEAN, _REFILL_GROWTH, _REFILL_BACKOFF = 1, 2, 4
_ERR_NONE, _EQ_BEFORE, _LE_AFTER, _RESTORE_LT = range(4)  # GS_ERR_
_FORMATS = {0: (11, -14, 15), 1: (24, -126, 127)}  # GS_STATE_F16, F32: bits, exponents
_MOST = (65504.0, float(np.finfo(np.float32).max), float(np.finfo(np.float64).max))


# ---- numbers of type T ----


def _round(p: Params, x: Any) -> Any:
    """To the nearest number of T, ties to even."""
    if p.state not in _FORMATS:
        return x
    bits, lowest, highest = _FORMATS[p.state]
    exponent = ((lax.bitcast_convert_type(x, jnp.int64) >> 52) & 0x7FF) - 1023
    unit = jnp.maximum(exponent, lowest) - (bits - 1)
    last = lax.bitcast_convert_type((unit + 1023) << 52, jnp.float64)
    rounded = jnp.round(x / last) * last  # powers of two: the division is exact
    return jnp.where(jnp.isfinite(x) & (rounded >= 2.0 ** (highest + 1)), jnp.inf, rounded)


def _constant(p: Params, x: float) -> float:
    """The same of a parameter."""
    types = (np.float16, np.float32, np.float64)
    with np.errstate(all="ignore"):
        return float(types[p.state](x))


def _divide(x: Any, by: float) -> Any:
    """XLA would multiply by the reciprocal of a constant, which is another number."""
    return x / lax.optimization_barrier(jnp.full_like(x, by))  # type: ignore[no-untyped-call]


def _move(p: Params, op: int, scale: Any, factor: float) -> Any:
    f = factor if op == _WIDE else _constant(p, factor)
    if op == _DIV:
        return _round(p, _divide(scale, f))
    return _round(p, scale * (_constant(p, 1 / f) if op == _RECIP else f))


def _where(condition: Any, a: Fields, b: Fields) -> Fields:
    return {key: jnp.where(condition, a[key], b[key]) for key in a}


# ---- a step: the names and the order are those of machine.c ----


def _growth_is_due(p: Params, m: Fields) -> Any:
    limit = m["interval"] + float(p.extra)
    if p.compare == _GE:
        return m["count"] >= limit
    if p.compare == _MOD:
        beyond = (m["clean"] - p.extra).astype(jnp.float64)
        return (beyond > 0) & (m["interval"] > 0) & (jnp.fmod(beyond, m["interval"]) == 0)
    return m["count"] == limit


def _grow(p: Params, m: Fields) -> Fields:
    n = dict(m)
    next_ = _move(p, p.grow_op, m["scale"], p.growth)
    if p.warm_growth == p.warm_growth:
        next_ = jnp.where(m["ever"] == 0, _move(p, p.grow_op, m["scale"], p.warm_growth), next_)
    most = _constant(p, p.max)
    bounded = jnp.where(next_ > most, most, next_)
    n["scale"] = jnp.where(jnp.isfinite(next_), bounded, m["scale"]) if p.keep_nonfinite else bounded
    n["count"] = jnp.full_like(m["count"], p.extra)
    if p.refill & _REFILL_GROWTH:
        n["bad"] = jnp.zeros_like(m["bad"])
    if p.window_follows == p.window_follows:
        n["interval"] = m["interval"] * p.window_follows
    n["last_rescale"] = m["it"]
    return n


def _step_clean(p: Params, m: Fields) -> Fields:
    m = dict(m, run=jnp.zeros_like(m["run"]), clean=m["clean"] + 1, count=m["count"] + 1)
    if p.refill & _REFILL_CLEAN:
        m["bad"] = jnp.zeros_like(m["bad"])
    m = _where(_growth_is_due(p, m), _grow(p, m), m)
    if p.compare == _WRAP:
        m["count"] = jnp.fmod(m["count"], m["interval"])
    return m


def _back_off(p: Params, m: Fields) -> Tuple[Fields, Any]:
    floor = _constant(p, p.floor)
    next_ = _move(p, p.back_op, m["scale"], p.backoff)
    next_ = jnp.where(next_ < floor, floor, next_)
    n = dict(m, last_rescale=m["it"], ovf=jnp.zeros_like(m["ovf"]))
    if p.refill & _REFILL_BACKOFF:
        n["bad"] = jnp.zeros_like(m["bad"])
    if p.window_follows == p.window_follows:
        n["interval"] = jnp.maximum(jnp.trunc(_divide(m["interval"], p.window_follows)), 1.0)
    return n, next_


def _step_found(p: Params, m: Fields) -> Tuple[Fields, Any, Any]:
    """The state, whether the framework raises, and whether it stops there."""
    due = m["bad"] + 1 >= p.hyst
    early = jnp.zeros_like(due)
    if p.track_rescale:
        since = m["it"] - m["last_rescale"]
        m = dict(m, ovf=m["ovf"] + 1)
        early = since == 0
        due = m["ovf"].astype(jnp.float64) / since.astype(jnp.float64) >= p.tolerance
    if p.err == _EQ_BEFORE:
        early = early | (due & (m["scale"] == p.err_min))
    n = dict(m, bad=m["bad"] + 1, run=m["run"] + 1, ever=jnp.ones_like(m["ever"]))
    lower, next_ = _back_off(p, n)
    n = _where(due, lower, n)
    next_ = jnp.where(due, next_, m["scale"])
    n["clean"], n["count"] = jnp.zeros_like(m["clean"]), jnp.zeros_like(m["count"])
    late = jnp.zeros_like(due)
    if p.err == _LE_AFTER:
        late = next_ <= p.err_min
    if p.err == _RESTORE_LT:
        next_ = jnp.where(next_ < p.err_min, m["scale"], next_)
    n["scale"] = jnp.where(late, m["scale"], next_)
    stops = early | late
    return _where(early, m, n), stops | (n["run"] > p.bad_limit), stops


def _bounded(p: Params, rules: Rules, x: Any) -> Any:
    top = min(rules.highest, _MOST[p.state])
    if rules.highest == rules.highest:
        x = jnp.where(x > top, top, x)
    return jnp.where(x >= rules.lowest, x, rules.lowest) if rules.lowest == rules.lowest else x


def _hold(p: Params, rules: Rules, m: Fields) -> Fields:
    return dict(m, scale=_bounded(p, rules, m["scale"]), shown=_bounded(p, rules, m["shown"]))


# ---- words ----


def words(machine: _lib.Machine) -> np.ndarray:
    """gs_machine as it lies in memory."""
    return np.frombuffer(bytes(machine), np.uint32).reshape(_lib.MACHINE_WORDS, 2).copy()


def clean_steps(bits: Any) -> Any:
    """Towards the next growth, as i32."""
    with jax.enable_x64(True):
        return _fields(bits)["count"].astype(jnp.int32)


def _fields(bits: Any) -> Fields:
    real, whole = lax.bitcast_convert_type(bits, jnp.float64), lax.bitcast_convert_type(bits, jnp.int64)
    return {key: (real if key in _REALS else whole)[i] for i, key in enumerate(_REALS + _WHOLE)}


def step(p: Params, rules: Rules, bits: Any, found: Any) -> Tuple[Any, Any, Any]:
    """One step inside the bounds: the words, the scale in f32, whether the framework raises."""
    with jax.enable_x64(True):
        m = _hold(p, rules, _fields(bits))
        clean = _step_clean(p, m)
        over, raises, stops = _step_found(p, m)
        n = _where(found, over, clean)
        raises, stops = found & raises, found & stops
        moved = dict(n, it=n["it"] + 1, shown=m["scale"] if p.lag else n["scale"])
        n = _hold(p, rules, _where(stops, n, moved))
        parts = [lax.bitcast_convert_type(n[key], jnp.uint32) for key in _REALS + _WHOLE]
        return jnp.stack(parts), n["shown"].astype(jnp.float32), raises
