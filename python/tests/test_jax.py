"""gradscale.jax: the machine of every preset, bit for bit the library's, under jit."""
import functools
import os
import random

import pytest

import gradscale
import traces

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from gradscale.jax import Scaler, all_finite, select  # noqa: E402

LONG = os.environ.get("GS_LONG", "0") != "0"
NO_BOUNDS = {"lowest": "off", "highest": "off"}


@functools.partial(jax.jit, static_argnums=0)
def run(scalers, found):
    """Of each scaler: scales, raised flags and machines after each step. One program: compiling is what takes time."""

    def one(scaler, found):
        def body(state, found):
            state = scaler.update(state, ~found)
            return state, (state.scale, state.raised, state.machine)

        return jax.lax.scan(body, scaler.init(), found)[1]

    return [one(scaler, flags) for scaler, flags in zip(scalers, found)]


def jax_run(cases):
    """cases: pairs of a scaler and flags."""
    return [
        [np.asarray(x) for x in seen]
        for seen in run(tuple(scaler for scaler, _ in cases), [jnp.asarray(found) for _, found in cases])
    ]


def c_run(host, found):
    """The same by the library: the step protocol, or without bounds, where no step can be unscaled, the machine."""
    scales, raised, machines = [], [], []
    bounds = host.get("lowest") != "off"
    for flag in found:
        step = host.step()
        step.flag(flag)
        raised.append(step.end().action == "fail" if bounds else host.update(flag))
        with np.errstate(over="ignore"):
            scales.append(np.float32(host.scale))
        machines.append(np.frombuffer(bytes(host._c.machine), np.uint32).reshape(-1, 2))
    return scales, raised, machines


def test_every_preset_moves_as_recorded():
    """The longest recording of each preset; all with GS_LONG."""
    recorded = {}
    for trace in traces.all_traces():
        if trace.scales is not None:
            recorded.setdefault(trace.preset, []).append(trace)
    assert set(recorded) == set(gradscale.presets())
    if LONG:
        parts = list(recorded.values())
    else:
        parts = [[max(group, key=lambda trace: len(trace.found)) for group in recorded.values()]]
    for part in parts:
        cases = [(Scaler(t.preset, **t.settings, **NO_BOUNDS), t.found) for t in part]
        for trace, (_, _, machines) in zip(part, jax_run(cases)):
            shown = np.ascontiguousarray(machines[:, 1]).view(np.float64)[:, 0]
            assert [x.hex() for x in shown.tolist()] == [x.hex() for x in trace.scales[1:]], trace.name


def settings_of(rng):
    """Factors that are not powers of two, short intervals, types, limits: what the presets use little of."""
    choices = {
        "init": [2.0**15, 3.7, 60000.0],
        "growth": [2.0, 1.1, 1.7],
        "backoff": [0.5, 0.3, 0.7],
        "interval": [1, 2, 5],
        "state": ["f16", "f32", "f64"],
        "grow_op": ["wide", "state"],
        "hyst": [1, 2, 3],
        "refill": ["none", "clean", "growth", "backoff", "clean+backoff"],
        "compare": ["eq", "ge", "mod", "wrap"],
        "extra": [0, 1],
        "credit": [0, 1],
        "lag": [0, 1],
        "floor": ["none", 1.0, 0.3],
        "max": ["none", 2.0**24, 50000.0],
        "window_follows": ["none", 2.0, 1.5],
        "bad_limit": ["none", 3],
        "track_rescale": ["no", "yes"],
        "tolerance": [0.0, 0.2],
        "keep_nonfinite": ["no", "yes"],
        "warm_growth": ["none", 3.3],
    }
    settings = {key: rng.choice(values) for key, values in choices.items() if rng.random() < 0.5}
    if rng.random() < 0.5:
        settings.update(NO_BOUNDS)
    if rng.random() < 0.4:
        settings.update(back_op=rng.choice(["div", "recip"]), backoff=rng.choice([2.0, 1.3, 3.0]))
    if rng.random() < 0.4:
        settings.update(err=rng.choice(["eq-before", "le-after", "restore-lt"]), err_min=rng.choice([1.0, 0.25]))
    return settings


def compare(wanted, rng, length):
    """The library and JAX on the same flags: every bit of the state."""
    cases = []
    for spec, settings in wanted:
        share = rng.choice([0.02, 0.3, 0.9])
        cases.append((spec, settings, [rng.random() < share for _ in range(length)]))
    seen = jax_run([(Scaler(spec, **settings), found) for spec, settings, found in cases])
    for (spec, settings, found), (scales, raised, machines) in zip(cases, seen):
        want_scales, want_raised, want = c_run(gradscale.Scaler(spec, **settings), found)
        assert machines.tobytes() == np.stack(want).tobytes(), (spec, settings)
        assert raised.tolist() == want_raised, (spec, settings)
        shown = np.stack(want_scales)
        shown[shown < 2.0**-126] = 0  # XLA has no subnormals of f32: the machine alone keeps them
        assert scales.tobytes() == shown.tobytes(), (spec, settings)


def test_a_preset_is_the_librarys_whole_machine():
    compare([(spec, {}) for spec in [*gradscale.presets(), "static:1000", "guard"]], random.Random(1), 5000)


def test_any_settings_are_the_librarys_whole_machine():
    rng, wanted = random.Random(2), []
    while len(wanted) < (400 if LONG else 20):
        settings = settings_of(rng)
        try:
            gradscale.Scaler(**settings)
        except gradscale.GradscaleError:  # not all go together
            continue
        wanted.append(("pytorch", settings))
    for i in range(0, len(wanted), 20):
        compare(wanted[i : i + 20], rng, 300)


# ---- steps ----


def test_a_training_loop_under_jit_scan_vmap_and_shard_map():
    scaler = Scaler("jmp", init=1024, interval=3)

    def train(carry, x):
        w, state = carry
        grads = jax.grad(lambda w: scaler.scale(state, jnp.sum((w.astype(jnp.float16) * x).astype(jnp.float32))))(w)
        grads, finite = scaler.unscale(state, grads)
        return (select(finite, w - grads, w), scaler.update(state, finite)), state.scale

    xs = jnp.asarray([[1, 2], [3, np.inf], [2, 1], [1, 1], [1, 1], [1, np.nan]], jnp.float16)
    start = jnp.zeros(2), scaler.init()
    (w, state), scales = jax.jit(lambda c: jax.lax.scan(train, c, xs))(start)
    assert w.tolist() == [-5.0, -5.0] and (int(state.applied), int(state.skipped)) == (4, 2)
    assert scales.tolist() == [1024, 1024, 512, 512, 512, 1024]
    eager = start
    for x in xs:
        eager, _ = train(eager, x)
    batch = jax.vmap(train)(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), start), xs[:2])[0][1]
    assert batch.scale.tolist() == [1024, 512]
    mesh = jax.make_mesh((1,), ("x",))
    everywhere = jax.shard_map(lambda s: scaler.update(s, jnp.array(False)), mesh=mesh, in_specs=jax.P(), out_specs=jax.P())
    assert float(jax.jit(everywhere)(scaler.init()).scale) == 512
    for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves((w, state))):
        assert a.dtype == b.dtype and a.tolist() == b.tolist()


def test_the_same_state_with_and_without_x64():
    found = [i % 3 == 2 for i in range(50)]
    scaler = Scaler("chainer")  # whose scales need f64
    (narrow,) = jax_run([(scaler, found)])
    with jax.enable_x64(True):
        (wide,) = jax_run([(Scaler("chainer"), found)])
    assert [a.tobytes() for a in narrow] == [b.tobytes() for b in wide]


def test_types_of_leaves():
    scaler = Scaler("static:65536")
    state = scaler.init()
    half = jnp.asarray(2.0, jnp.float16)
    assert scaler.scale(state, half).dtype == jnp.float32 and float(scaler.scale(state, half)) == 131072.0
    tree = {"w": jnp.asarray([65536.0], jnp.float32), "h": half, "b": jnp.asarray(65536, jnp.bfloat16), "n": 3, "none": None}
    true, finite = scaler.unscale(state, tree)
    assert true["w"].tolist() == [1.0] and true["n"] == 3 and true["none"] is None and bool(finite)
    assert [true[key].dtype for key in "hb"] == [jnp.float16, jnp.bfloat16]
    for bad in (jnp.inf, -jnp.inf, jnp.nan):
        assert not all_finite({"a": jnp.ones(3), "b": jnp.asarray([1.0, bad])})
    assert bool(all_finite({})) and bool(all_finite({"n": jnp.arange(3)}))
    small = Scaler("static:0.25").init()  # what only unscaling makes infinite
    assert not Scaler("static:0.25").unscale(small, jnp.asarray([60000.0], jnp.float16))[1]


def test_a_state_goes_to_the_host_and_back():
    scaler, host = Scaler("megatron", interval=3), gradscale.Scaler("megatron", interval=3)
    state = scaler.init()
    for found in [True, True, False, False, False, True]:
        state = scaler.update(state, jnp.asarray(not found))
        step = host.step()
        step.flag(found)
        step.end()
    there = scaler.to_host(state)
    assert bytes(there._c.machine) == bytes(host._c.machine) and there.counters == host.counters
    back = scaler.from_host(gradscale.Scaler("megatron", interval=3))
    assert float(back.scale) == 2.0**32 and jax.tree.structure(back) == jax.tree.structure(state)
    again = scaler.from_host(there)
    assert [x.tolist() for x in jax.tree.leaves(again)] == [x.tolist() for x in jax.tree.leaves(state)]
    leaves, shape = jax.tree.flatten(state)
    kept = jax.tree.unflatten(shape, [np.asarray(leaf) for leaf in leaves])  # as a checkpoint has it
    assert float(scaler.update(kept, jnp.asarray(True)).scale) == float(scaler.update(state, jnp.asarray(True)).scale)


def test_a_scaler_is_a_constant():
    assert Scaler("keras") == Scaler("keras") != Scaler("keras", interval=5)
    assert len({Scaler("keras"), Scaler("keras"), Scaler("pytorch")}) == 2
    traced = []

    @functools.partial(jax.jit, static_argnums=0)
    def update(scaler, state):
        traced.append(scaler)
        return scaler.update(state, jnp.array(True))

    for _ in range(3):
        update(Scaler("keras"), Scaler("keras").init())
    assert len(traced) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Scaler("headroom"),
        lambda: Scaler("no_such"),
        lambda: Scaler("pytorch", on_overflow="retry:2"),
        lambda: Scaler("pytorch", growth=0),
        lambda: Scaler().update(Scaler().init(), jnp.ones(3, bool)),
        lambda: Scaler().update(Scaler().init(), 1.0),
        lambda: Scaler("keras").from_host(gradscale.Scaler("pytorch")),
    ],
)
def test_a_mistake_is_one_sentence(make):
    with pytest.raises(gradscale.GradscaleError) as caught:
        make()
    assert "\n" not in str(caught.value)
