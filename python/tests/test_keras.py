"""gradscale.keras: Keras's own tests, and every preset in a model that is trained."""
import os
import random
import subprocess
import sys
import unittest
import weakref

import pytest

import gradscale
import traces

keras = pytest.importorskip("keras")
import numpy as np  # noqa: E402
from keras import ops  # noqa: E402

from gradscale.keras import LossScaleOptimizer  # noqa: E402

STATELESS = keras.config.backend() == "jax"
compiled = weakref.WeakKeyDictionary()


def make(init=1024.0, **options):
    optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=init, **options)
    w = keras.Variable([1.0, 2.0])
    optimizer.build([w])
    return optimizer, w


def step(optimizer, w, found):
    grads = [ops.convert_to_tensor(np.float32([np.inf if found else 1.0, 2.0])) * optimizer.dynamic_scale.value]
    if not STATELESS:
        optimizer.apply(grads, [w])
        return
    if optimizer not in compiled:
        compiled[optimizer] = sys.modules["jax"].jit(optimizer.stateless_apply)
    weights, values = compiled[optimizer]([v.value for v in optimizer.variables], grads, [w.value])
    w.assign(weights[0])
    for variable, value in zip(optimizer.variables, values):
        variable.assign(value)


def test_kerass_own_tests_pass():
    from keras.src.optimizers import loss_scale_optimizer_test as theirs

    original = theirs.LossScaleOptimizer
    theirs.LossScaleOptimizer = LossScaleOptimizer
    try:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(theirs.LossScaleOptimizerTest)
        result = unittest.TestResult()
        suite.run(result)
    finally:
        theirs.LossScaleOptimizer = original
    assert result.testsRun > 20 and not result.failures and not result.errors, result.failures + result.errors


def test_the_default_moves_as_kerass_own():
    rng = random.Random(0)
    ours, w = make(init=3.0, dynamic_growth_steps=3)
    theirs, v = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), 3.0, 3), keras.Variable([1.0, 2.0])
    theirs.build([v])
    for _ in range(60):
        found = rng.random() < 0.3
        step(ours, w, found)
        step(theirs, v, found)
        assert float(ours.dynamic_scale) == float(theirs.dynamic_scale)
        assert int(ours.step_counter) == int(theirs.step_counter)
        assert ops.convert_to_numpy(w).tobytes() == ops.convert_to_numpy(v).tobytes()
        assert int(ours.iterations) == int(theirs.iterations)


@pytest.mark.parametrize("preset", ["tensorflow", "metaseq"] if STATELESS else gradscale.presets())
def test_a_preset_moves_as_recorded(preset):
    shortest = min(
        (t for t in traces.all_traces() if t.preset == preset and t.scales), key=lambda t: abs(len(t.found) - 60)
    )
    settings = {**shortest.settings, "lowest": "off", "highest": "off"}
    optimizer, w = make(init=None, policy=preset, settings=settings)
    for found, scale in list(zip(shortest.found, shortest.scales[1:]))[:100]:
        step(optimizer, w, found)
        assert optimizer.scaler.scale.hex() == scale.hex(), shortest.name
        assert float(optimizer.dynamic_scale) == np.float32(scale)


def model(optimizer):
    keras.utils.set_random_seed(1)
    net = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
    net.compile(optimizer=optimizer, loss="mse")
    return net


def data():
    x = np.random.default_rng(0).standard_normal((96, 8)).astype(np.float32)
    y = x[:, :1] * 2 - 1
    y[40] = np.inf  # one batch is bad
    return x, y


def test_a_model_in_mixed_float16_is_trained_saved_and_goes_on(tmp_path):
    keras.config.set_dtype_policy("mixed_float16")
    try:
        optimizer = LossScaleOptimizer(keras.optimizers.SGD(0.05), initial_scale=256.0, policy="paddle-static",
                                       settings={"interval": 5})  # fmt: skip
        net = model(optimizer)
        assert net.optimizer is optimizer
        x, y = data()
        net.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
        host = gradscale.Scaler("paddle-static", init=256.0, interval=5)
        for found in [False, False, True, False, False, False] * 2:
            attempt = host.step()
            attempt.flag(found)
            attempt.end()
        assert float(optimizer.dynamic_scale) == host.scale
        assert bytes(optimizer.scaler._c.machine) == bytes(host._c.machine)
        good = np.isfinite(y[:, 0])
        loss = net.evaluate(x[good], y[good], verbose=0)
        assert np.isfinite(loss)
        net.save(tmp_path / "net.keras")
        again = keras.models.load_model(tmp_path / "net.keras")
        assert type(again.optimizer) is LossScaleOptimizer and again.optimizer.policy == "paddle-static"
        assert bytes(again.optimizer.scaler._c.machine) == bytes(host._c.machine)
        for each in (net, again):
            each.fit(x, y, batch_size=16, epochs=1, shuffle=False, verbose=0)
        for a, b in zip(net.get_weights(), again.get_weights()):
            assert a.tobytes() == b.tobytes()
    finally:
        keras.config.set_dtype_policy("float32")


def test_the_state_of_kerass_own_is_taken_over():
    theirs = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5, momentum=0.9), 64.0, 5)
    v = keras.Variable([1.0, 2.0])
    theirs.build([v])
    for found in (True, False, False):
        step(theirs, v, found)
    store = {}
    theirs.save_own_variables(store)
    ours = LossScaleOptimizer(keras.optimizers.SGD(0.5, momentum=0.9), 64.0, 5)
    ours.build([v])
    ours.load_own_variables(store)
    assert (ours.scaler.scale, ours.scaler.clean_steps) == (32.0, 2)
    own = {}
    ours.save_own_variables(own)
    third = LossScaleOptimizer(keras.optimizers.SGD(0.5, momentum=0.9), 64.0, 5)
    third.build([v])
    third.load_own_variables(own)
    assert bytes(third.scaler._c.machine) == bytes(ours.scaler._c.machine)


def test_a_config_says_the_policy():
    optimizer, _ = make(policy="megatron", settings={"hyst": 3}, name="scaled")
    config = optimizer.get_config()
    again = LossScaleOptimizer.from_config(config)
    assert again.scaler.settings() == optimizer.scaler.settings() and again.name == "scaled"
    assert (config["policy"], config["settings"], config["initial_scale"]) == ("megatron", {"hyst": 3}, 1024.0)


@pytest.mark.parametrize(
    "options",
    [{"policy": "headroom"}, {"policy": "no_such"}, {"settings": {"speed": 1}}, {"settings": {"on_overflow": "retry:1"}},
     {"clipnorm": 1.0}, {"init": -1.0}, {"dynamic_growth_steps": -1}],  # fmt: skip
)
def test_a_mistake_is_a_value_error(options):
    with pytest.raises(ValueError):
        make(**options)


@pytest.mark.skipif(STATELESS, reason="these are the tests on jax")
def test_on_the_backends(tmp_path):
    pytest.importorskip("jax")
    env = {**os.environ, "KERAS_BACKEND": "jax"}
    tests = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__], env=env,
                           capture_output=True, text=True, cwd=tmp_path)  # fmt: skip
    assert tests.returncode == 0, tests.stdout[-3000:]


def test_another_backend_is_refused(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "tensorflow")
    with pytest.raises(gradscale.GradscaleError, match="torch or jax"):
        LossScaleOptimizer(keras.optimizers.SGD(0.5))
