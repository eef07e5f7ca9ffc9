"""gradscale.Scaler: presets, the step protocol, and arrays of every kind."""
import copy
import ctypes
import math
import os
import pickle
import subprocess
import sys
from array import array

import pytest

import gradscale
import traces
from gradscale import GradscaleError, Scaler

np = pytest.importorskip("numpy")


# ---- what there is ----


def test_every_preset_moves_as_recorded():
    presets, steps = set(), 0
    for trace in traces.all_traces():
        if trace.scales is None:
            continue
        scaler = Scaler(trace.preset, **trace.settings, lowest="off", highest="off")
        seen = [scaler.scale]
        for found in trace.found:
            scaler.update(found)
            seen.append(scaler.scale)
        assert [x.hex() for x in seen] == [x.hex() for x in trace.scales], trace.name
        presets.add(trace.preset)
        steps += len(trace.found)
    assert presets == set(gradscale.presets()) and steps > 100_000


def test_settings_are_read_back_to_the_same_bits():
    scaler = Scaler("pytorch", growth=1.1, backoff=0.3, interval=7, init=3.7)
    other = Scaler("pytorch", **{k: v for k, v in scaler.settings().items()})
    assert other.save() == scaler.save()


@pytest.mark.parametrize(
    "spec, settings",
    [("no_such", {}), ("pytorch", {"growth": 0}), ("pytorch", {"speed": 3}), ("static:x", {}), ("pytorch", {"init": math.nan}),
     ("pytorch", {"init": "3 growth=9"}), ("pytorch", {"init": ""})],  # fmt: skip
)
def test_a_mistake_is_one_sentence_and_changes_nothing(spec, settings):
    with pytest.raises(GradscaleError) as caught:
        Scaler(spec, **settings)
    assert len(str(caught.value)) > 10 and "\n" not in str(caught.value)
    scaler = Scaler()
    before = scaler.save()
    if spec == "pytorch":
        with pytest.raises(ValueError):
            scaler.set(interval=3, **settings)
    assert scaler.save() == before


def test_a_scaler_is_named_by_a_string():
    with pytest.raises(TypeError, match="not by a int"):
        Scaler(3)


def test_errors_can_be_pickled():
    with pytest.raises(GradscaleError) as caught:
        Scaler("no_such")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.status == caught.value.status == "NAME"


# ---- the protocol ----


def test_retry_asks_for_the_same_batch_at_a_lower_scale():
    scaler = Scaler("pytorch", on_overflow="retry:3")
    step = scaler.step()
    step.flag(True)
    verdict = step.end()
    assert verdict.action == "retry" and verdict.scale == 32768
    step = scaler.step()
    step.flag(False)
    assert step.end().applied and scaler.counters.retried == 1


def test_a_loss_that_is_not_finite_leaves_the_scale():
    scaler = Scaler()
    step = scaler.step()
    step.loss(math.nan)
    step.flag(True)
    assert step.end()[:2] == ("skip", "forward") and scaler.scale == 65536


def test_several_steps_back_off_once():
    scaler = Scaler()
    steps = [scaler.step() for _ in range(3)]
    for step in steps:
        step.flag(True)
    gradscale.end_steps(steps)
    assert scaler.scale == 32768
    with pytest.raises(GradscaleError):
        gradscale.end_steps([Scaler().step(), Scaler().step()])


def test_groups_skip_together_and_scale_apart():
    scalers = [Scaler(), Scaler()]
    steps = [s.step() for s in scalers]
    steps[0].flag(True)
    steps[1].flag(False)
    verdicts = gradscale.end_group(steps, "skip_together")
    assert [v.action for v in verdicts] == ["skip", "skip"]
    assert [s.scale for s in scalers] == [32768, 65536]
    with pytest.raises(GradscaleError):
        gradscale.end_group(steps, "somehow")


def test_steps_of_ranks_are_merged_as_bytes():
    scaler = Scaler()
    mine, theirs = scaler.step(), scaler.step()
    mine.scan(np.ones(3, np.float32))
    theirs.scan(np.array([np.inf], np.float32))
    mine.merge(gradscale.Step.from_bytes(scaler, theirs.to_bytes()))
    assert mine.end().reason == "inf"
    with pytest.raises(GradscaleError):
        gradscale.Step.from_bytes(scaler, b"short")


@pytest.mark.parametrize("spec", ["headroom", "logmax", "adaptive", "histogram"])
def test_policies_that_read_more_than_a_flag(spec):
    scaler = Scaler(spec)
    first = scaler.scale
    for _ in range(30):
        step = scaler.step()
        step.unscale(np.full(100, 1e-3 * step.scale, np.float64))
        assert step.end().applied
    assert scaler.scale != first


# ---- state ----


def test_metaseq3_save_load_continue_is_the_uninterrupted_run():
    def run(scaler, pattern):
        for found in pattern:
            step = scaler.step()
            step.flag(found)
            step.end()

    pattern = [i % 7 == 3 or i % 11 == 5 for i in range(200)]
    for spec in ("pytorch", "megatron", "deepspeed", "headroom"):
        whole = Scaler(spec)
        run(whole, pattern)
        for keep in (
            lambda s: pickle.loads(pickle.dumps(s)),
            copy.deepcopy,
            lambda s: (t := Scaler(), t.load(s.save()))[0],
            lambda s: (t := Scaler(), t.load_text(s.save_text()))[0],
        ):
            part = Scaler(spec)
            run(part, pattern[:77])
            part = keep(part)
            run(part, pattern[77:])
            assert part.save() == whole.save()


def test_a_damaged_state_is_refused_and_changes_nothing():
    scaler = Scaler(interval=3)
    state = scaler.save()
    for bad in (b"", b"x" * 100, state[:-1], state[:40] + b"\xff" * 8 + state[48:]):
        with pytest.raises(GradscaleError):
            scaler.load(bad)
    with pytest.raises(GradscaleError):
        scaler.load_text("what?")
    assert scaler.save() == state


# ---- arrays ----


def kinds():
    yield "array f", array("f", [2, 4, 8, 16]), lambda x: list(x)
    yield "array d", array("d", [2, 4, 8, 16]), lambda x: list(x)
    yield "numpy f16", np.array([2, 4, 8, 16], np.float16), lambda x: x.tolist()
    yield "numpy f32", np.array([2, 4, 8, 16], np.float32), lambda x: x.tolist()
    yield "numpy f64", np.array([2, 4, 8, 16], np.float64), lambda x: x.tolist()
    yield "memoryview", memoryview(array("f", [2, 4, 8, 16])), lambda x: x.tolist()
    yield "buffer e", memoryview(np.array([2, 4, 8, 16], np.float16)), lambda x: x.obj.tolist()
    yield "ctypes", (ctypes.c_float * 4)(2, 4, 8, 16), lambda x: list(x)


class OnlyDLPack:
    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **kw):
        return self.x.__dlpack__(**kw)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda k: k[0])
def test_in_place_whatever_it_is(kind):
    _, x, values = kind
    step = Scaler("static:2").step()
    assert step.unscale(x).applied
    assert values(x) == [1, 2, 4, 8]


def test_dlpack_old_and_new():
    class Old(OnlyDLPack):
        def __dlpack__(self):
            return self.x.__dlpack__()

    for wrap in (OnlyDLPack, Old):
        x = np.array([2, 4], np.float32)
        assert Scaler("static:2").step().unscale(wrap(x)).applied
        assert x.tolist() == [1, 2]


def test_dlpack_says_that_it_is_read_only_or_elsewhere():
    x = np.ones(3, np.float32)
    x.flags.writeable = False
    with pytest.raises(GradscaleError, match="not writable"):
        Scaler().step().unscale(OnlyDLPack(x))

    class Far(OnlyDLPack):
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(GradscaleError, match="step.flag"):
        Scaler().step().scan(Far(x))


def views():
    base = np.arange(1, 2 * 3 * 4 * 5 * 2 + 1, dtype=np.float32).reshape(2, 3, 4, 10)
    yield base
    yield base[..., ::2]
    yield base[:, ::2]
    yield base[:, :, 1:3, 2:5]
    yield base.transpose(3, 1, 0, 2)
    yield base[::-1, :, ::-1, ::3]
    yield base[0, 0, 0]
    yield base[0, 0, 0, 3:4].reshape(())
    yield base[:0]
    yield np.asfortranarray(base)
    yield base[:, 1:2, :, 4:5]


@pytest.mark.parametrize("i", range(11))
def test_every_view_is_unscaled_once_and_nothing_beside_it(i):
    view = list(views())[i]
    whole = view if view.base is None else view.base
    want, rest = view * 0.5, whole.copy()
    step = Scaler("static:2").step()
    assert step.unscale([view]).applied
    np.testing.assert_array_equal(view, want)
    changed = int((whole != rest).sum())
    assert changed == view.size
    assert step.stats.elements == view.size


@pytest.mark.parametrize("i", [0, 1, 2, 3, 4, 5, 6, 9, 10])
def test_the_first_offender_is_named_by_its_owners_index(i):
    view = list(views())[i]
    if not view.flags.owndata:
        view.base.setflags(write=True)
    place = tuple(s - 1 for s in view.shape)
    view[place] = np.nan
    stats = gradscale.scan({"a": np.ones(4, np.float32), "w": view})
    assert stats.bad == ("w", place) and stats.nan == 1


@pytest.mark.parametrize(
    "x, words",
    [
        (np.ones(3, np.int32), "int32"),
        (np.ones(3, ">f4"), "byte order"),
        (np.broadcast_to(np.float32(1), 4), "writable"),
        (np.float32(3), "writable"),
        (array("i", [1]), "'i'"),
        (b"abcd", "'B'"),
    ],
)
def test_what_cannot_be_taken_is_said(x, words):
    step = Scaler().step()
    with pytest.raises(GradscaleError, match=words):
        step.unscale(x)
    assert step.decide().reason == "no_grads"


def test_an_expanded_view_is_read_but_not_written():
    x = np.lib.stride_tricks.as_strided(np.ones(1, np.float32), (4,), (0,), writeable=True)
    assert gradscale.scan(x).elements == 4
    with pytest.raises(GradscaleError, match="expanded"):
        Scaler().step().unscale(x)


def test_no_array_at_all():
    with pytest.raises(TypeError):
        gradscale.scan(object())
    assert gradscale.scan([]).elements == 0


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_a_storage_of_torch_is_taken_in_place():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        x = torch.full((2, 3), 8.0, dtype=dtype)
        step = gradscale.Scaler("pytorch", init=4.0).step()
        assert step.unscale(x.storage()).applied and (x == 2).all()
    with pytest.raises(gradscale.GradscaleError, match="is torch.int64"):
        gradscale.scan(torch.ones(2, dtype=torch.int64).storage())


def test_bfloat16_of_ml_dtypes_and_torch():
    torch = pytest.importorskip("torch")
    x = torch.tensor([2, 4, 6], dtype=torch.bfloat16)
    assert Scaler("static:2").step().unscale(x).applied and x.tolist() == [1, 2, 3]
    with pytest.raises(GradscaleError, match="meta"):
        gradscale.scan(torch.ones(3, device="meta"))
    with pytest.raises(GradscaleError, match="values"):
        gradscale.scan(torch.ones(3).to_sparse())


def test_into_another_type():
    half, wide = np.array([2, 4], np.float16), np.zeros(2, np.float32)
    assert Scaler("static:4").step().unscale(half, to=wide).applied
    assert half.tolist() == [2, 4] and wide.tolist() == [0.5, 1]


def test_the_same_list_again_is_left_alone_and_an_overlap_refused():
    x = np.full(8, 4, np.float32)
    step = Scaler("static:2").step()
    step.unscale(x)
    step.unscale(x)
    assert x.tolist() == [2] * 8
    with pytest.raises(GradscaleError, match="overlaps"):
        step.unscale(x[2:4])
    assert x.tolist() == [2] * 8


# ---- processes and threads ----


def test_threads_share_the_context():
    import threading

    wrong = []

    def work(seed):
        x = np.full(100_000, seed + 1, np.float32)
        for _ in range(20):
            if gradscale.scan(x).amax != seed + 1:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_a_forked_child_goes_on():
    gradscale.scan(np.ones(1_000_000, np.float32))
    child = os.fork()
    if child == 0:
        os._exit(gradscale.scan(np.full(1_000_000, 3, np.float32)).amax != 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_import_needs_the_standard_library_alone():
    code = "import sys, gradscale; sys.exit(any(m in sys.modules for m in ('numpy', 'torch', 'cffi')))"
    subprocess.run([sys.executable, "-S", "-c", "import sys; sys.path[:0] = %r; %s" % (sys.path, code)], check=True)
