"""A preset's scaler for JAX: its parameters are the library's, its state is a pytree."""
from __future__ import annotations

from typing import Any, NamedTuple, Tuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _lib
from .. import scaler as _host
from .._lib import GradscaleError
from . import _machine


class State(NamedTuple):
    """Of a scaler between two steps. All leaves are arrays: keep it beside the optimizer's state."""

    scale: Any  # f32: of the next step
    applied: Any  # i32: steps with finite gradients
    skipped: Any  # i32: the others
    raised: Any  # bool: the framework of the preset would have raised in the last step
    machine: Any  # u32[11, 2]: gs_machine as it lies in memory


def _is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.floating))


def all_finite(tree: Any) -> jax.Array:
    """Whether no leaf has an Inf or NaN."""
    leaves = [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree) if _is_float(x)]
    return jnp.all(jnp.stack(leaves)) if leaves else jnp.array(True)


def select(finite: Any, new: Any, old: Any) -> Any:
    """`new`, leaf by leaf, if the gradients were finite, else `old`."""
    return jax.tree.map(lambda a, b: jnp.where(finite, a, b), new, old)


class Scaler:
    """A preset of gradscale.presets(), "static:1024" or "guard", with settings of doc/scaler.md. It holds no state
    and can be hashed: close over it, or give it to jit as a static argument.

    >>> scaler = Scaler("pytorch", init=2.0**10)
    >>> @jax.jit
    ... def train(w, state, x):
    ...     grad = jax.grad(lambda w: scaler.scale(state, jnp.sum(w * x)))(w)
    ...     grad, finite = scaler.unscale(state, grad)
    ...     return select(finite, w - grad, w), scaler.update(state, finite)
    >>> w, state = jnp.zeros(2), scaler.init()
    >>> for x in (jnp.array([1.0, 2.0]), jnp.array([1.0, jnp.inf])):
    ...     w, state = train(w, state, x)
    >>> w.tolist(), float(state.scale), int(state.applied), int(state.skipped)
    ([-1.0, -2.0], 512.0, 1, 1)
    """

    def __init__(self, spec: str = "pytorch", **settings: Any) -> None:
        self._host = _host.Scaler(spec, **settings)
        if self._host.policy != "machine":
            raise GradscaleError(f"{spec} reads more than whether gradients were finite: gradscale.Scaler has it", "NAME")
        rules = self._host._c.rules
        if rules.on_overflow or rules.probe or rules.fail_after:
            raise GradscaleError("on_overflow, probe and fail_after are for gradscale.Scaler, outside of jit", "STATE")
        self._params, self._rules = self._host._c.params, rules

    def _key(self) -> Tuple[bytes, bytes]:
        return bytes(self._params), bytes(self._rules)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scaler) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"<gradscale.jax.Scaler {self._host.settings()}>"

    # ---- pure functions ----

    def init(self) -> State:
        """The state before the first step."""
        return self.from_host(self._host)

    def scale(self, state: State, loss: Any) -> Any:
        """The loss, or the floating leaves of a tree, times the scale: in f32 where they are half, since a scale
        may be beyond f16."""
        return jax.tree.map(lambda x: x * state.scale if _is_float(x) else x, loss)

    def unscale(self, state: State, grads: Any) -> Tuple[Any, jax.Array]:
        """Gradients in true units, each in its type, and whether all are finite, before and after. Where devices
        have gradients of their own, reduce those, or `finite`, before `update`."""
        with jax.enable_x64(True):
            inverse = (1.0 / state.scale.astype(jnp.float64)).astype(jnp.float32)

        def each(g: Any) -> Any:
            return (g * inverse).astype(jnp.result_type(g)) if _is_float(g) else g

        true = jax.tree.map(each, grads)
        return true, all_finite(grads) & all_finite(true)

    def update(self, state: State, finite: Any) -> State:
        """The state of the next step."""
        finite = jnp.asarray(finite)
        if finite.shape != () or finite.dtype != jnp.bool_:
            raise GradscaleError(f"finite is {finite.dtype}{list(finite.shape)}: a single bool is needed", "DTYPE")
        bits, scale, raised = _machine.step(self._params, self._rules, state.machine, ~finite)
        applied = finite.astype(jnp.int32)
        return State(scale, state.applied + applied, state.skipped + (1 - applied), raised, bits)

    # ---- to and from the host ----

    def to_host(self, state: State) -> _host.Scaler:
        """A gradscale.Scaler that goes on from here: its save(), explain() and health. Not under jit."""
        host = self._host.copy()
        host._c.machine = _lib.Machine.from_buffer_copy(np.asarray(state.machine, np.uint32).tobytes())
        counters, applied, skipped = host._c.counters, int(state.applied), int(state.skipped)
        counters.attempted, counters.applied = applied + skipped, applied
        counters.skipped[_lib.REASONS.index("inf")] = skipped
        return host

    def from_host(self, host: _host.Scaler) -> State:
        """The state of a gradscale.Scaler with the same settings."""
        if (bytes(host._c.params), bytes(host._c.rules)) != self._key() or host.policy != "machine":
            raise GradscaleError("the scaler has other settings than this one", "STATE")
        counters = host._c.counters
        applied, skipped = (min(n, 2**31 - 1) for n in (counters.applied, sum(counters.skipped)))
        with np.errstate(over="ignore"):
            scale = np.float32(host.scale)
        return State(
            jnp.asarray(scale),
            jnp.asarray(applied, jnp.int32),
            jnp.asarray(skipped, jnp.int32),
            jnp.asarray(False),
            jnp.asarray(_machine.words(host._c.machine)),
        )
