"""Keras 3: a LossScaleOptimizer with the scaler of any preset, on the torch and JAX backends.

The state is one more variable of the optimizer, gs_machine as 32-bit words, so that Keras saves it, restores it and
carries it through jit. On torch the library moves it, on JAX gradscale.jax.
"""
from __future__ import annotations

from typing import Any, Dict, List, Sequence

from ._needs import need

try:
    need("keras", __name__, "keras>=3.12")
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ImportError(f"Keras looks for tensorflow: {__name__} needs KERAS_BACKEND=torch or KERAS_BACKEND=jax") from None

import keras  # type: ignore[import-untyped]  # noqa: E402
import numpy as np  # noqa: E402
from keras import ops  # noqa: E402

from . import _lib  # noqa: E402
from ._lib import GradscaleError  # noqa: E402
from .scaler import Scaler  # noqa: E402

_BACKENDS = ("torch", "jax")


def _update_by_the_library(scaler: Scaler, words: Any, found: bool) -> tuple[Any, Any, Any]:
    host = scaler.copy()
    host._c.machine = _lib.Machine.from_buffer_copy(ops.convert_to_numpy(words).astype(np.int32).tobytes())
    if host.get("lowest") == "off":  # into zero and infinity, as Keras goes
        host.update(found)
    else:
        step = host.step()
        step.flag(found)
        step.end()
    return _words(host), host.scale, host.clean_steps


def _update_by_jax(scaler: Scaler, words: Any, found: bool) -> tuple[Any, Any, Any]:
    from .jax import _machine

    bits, scale, _ = _machine.step(scaler._c.params, scaler._c.rules, words.astype("uint32"), found)
    return bits.astype("int32"), scale, _machine.clean_steps(bits)


def _words(scaler: Scaler) -> np.ndarray:
    return np.frombuffer(bytes(scaler._c.machine), np.int32).reshape(-1, 2).copy()


@keras.saving.register_keras_serializable("gradscale")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):  # type: ignore[misc]
    """keras.optimizers.LossScaleOptimizer with a `policy`: a preset of gradscale.presets() or "static:1024", and
    `settings` of doc/scaler.md. With the default it moves as Keras's own, to the bit. Where a preset's framework
    raises, the step is skipped.

    >>> optimizer = LossScaleOptimizer(keras.optimizers.SGD(1.0), policy="megatron", settings={"hyst": 1})
    >>> w = keras.Variable([1.0, 2.0])
    >>> optimizer.apply([ops.array([2.0**32, float("inf")])], [w])     # gradients of the scaled loss
    >>> [float(x) for x in ops.convert_to_numpy(w)], float(optimizer.dynamic_scale)
    ([1.0, 2.0], 2147483648.0)
    """

    def __init__(
        self,
        inner_optimizer: keras.optimizers.Optimizer,
        initial_scale: float | None = None,
        dynamic_growth_steps: int | None = None,
        name: str | None = None,
        policy: str = "keras",
        settings: Dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if keras.config.backend() not in _BACKENDS:
            raise GradscaleError(f"Keras runs on {keras.config.backend()}: gradscale.keras needs torch or jax", "STATE")
        given = {"init": initial_scale, "interval": dynamic_growth_steps}
        given = {key: value for key, value in given.items() if value is not None}
        bounds = {"lowest": "off", "highest": "off"} if policy == "keras" else {}
        scaler = Scaler(policy, **{**bounds, **given, **(settings or {})})
        if scaler.policy != "machine" or scaler._c.rules.on_overflow or scaler._c.rules.probe:
            raise GradscaleError(f"{policy}: a preset or static:S is needed, and no setting that repeats steps", "NAME")
        params = scaler._c.params
        super().__init__(inner_optimizer, params.init, params.interval, name=name, **kwargs)
        self.policy, self.settings = policy, dict(settings or {})
        self._gs = scaler
        self._update = {"torch": _update_by_the_library, "jax": _update_by_jax}[keras.config.backend()]

    def build(self, var_list: Sequence[Any]) -> None:
        super().build(var_list)
        self.dynamic_scale.assign(self._gs.scale)
        self.machine = self.add_variable(
            shape=(_lib.MACHINE_WORDS, 2),
            dtype="int32",
            initializer=lambda shape, dtype: ops.convert_to_tensor(_words(self._gs), dtype),
            name="machine",
        )

    # ---- a step ----

    def _unscaled(self, grads: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        def each(g: Any, v: Any) -> Any:
            return g if g is None or self._overwrite_variable_with_gradient(v) else ops.divide(g, self.dynamic_scale)

        return [each(g, v) for g, v in zip(grads, variables)]

    def _advance(self, found: bool) -> None:
        words, scale, clean_steps = self._update(self._gs, self.machine.value, found)
        self.machine.assign(words)
        self.dynamic_scale.assign(scale)
        self.step_counter.assign(clean_steps)

    def _stateful_handle_finite_grads(self, grads: Any, trainable_variables: Any) -> None:
        unscaled = self._unscaled(grads, trainable_variables or self._trainable_variables)
        self.inner_optimizer.apply(unscaled, trainable_variables=trainable_variables)
        self._advance(False)

    def _stateful_handle_non_finite_grads(self) -> None:
        self._advance(True)

    def _stateless_handle_finite_grads(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(self.variables, optimizer_variables))) as scope:
            weights, inner = self.inner_optimizer.stateless_apply(
                self.inner_optimizer.variables, self._unscaled(grads, self._trainable_variables), trainable_variables
            )
            self._advance(False)
        return weights, [scope.get_current_value(v) for v in self._variables] + inner

    def _stateless_handle_non_finite_grads(self, optimizer_variables: Any, trainable_variables: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(self.variables, optimizer_variables))) as scope:
            self._advance(True)
        return trainable_variables, [scope.get_current_value(v) for v in self.variables]

    # ---- state ----

    @property
    def scaler(self) -> Scaler:
        """The library's scaler in the state of now: its explain(), save(), settings()."""
        scaler = self._gs.copy()
        if self.built:
            scaler._c.machine = _lib.Machine.from_buffer_copy(ops.convert_to_numpy(self.machine).tobytes())
        return scaler

    def load_own_variables(self, store: Any) -> None:
        """Of this class, or of Keras's own, which has a scale and a count."""
        variables = list(self.variables)
        if len(store.keys()) != len(variables) - 1:
            super().load_own_variables(store)
            return
        others = [v for v in variables if v is not self.machine]
        for i, variable in enumerate(others):
            variable.assign(store[str(i)])
        scaler = self._gs.copy()
        scaler.resume(float(ops.convert_to_numpy(self.dynamic_scale)), int(ops.convert_to_numpy(self.step_counter)))
        self.machine.assign(_words(scaler))

    def get_config(self) -> Dict[str, Any]:
        config: Dict[str, Any] = super().get_config()
        if self.policy != "keras" or self.settings:  # else it is what Keras's own writes
            config.update(policy=self.policy, settings=self.settings)
        return config
