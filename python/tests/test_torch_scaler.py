"""gradscale.torch.GradScaler: torch's errors, what it has beyond torch, and complaints of users by their threads."""
import copy
import gc
import math
import pickle
import weakref

import pytest

torch = pytest.importorskip("torch")
import gradscale  # noqa: E402
from gradscale import _lib  # noqa: E402
from gradscale.torch import GradScaler, _grads  # noqa: E402
from test_torch_parity import one_step  # noqa: E402


def setup(*values, lr=1.0, kind=torch.optim.SGD, **settings):
    w = torch.nn.Parameter(torch.tensor(values or [1.0, 1.0]))
    return w, kind([w], lr=lr), GradScaler("cpu", **settings)


def step(scaler, optimizer, w, grad):
    """One step whose true gradient is `grad`."""
    optimizer.zero_grad()
    scaler.scale((w * torch.tensor(grad)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


# ---- as torch does it ----


def both():
    return [torch.amp.GradScaler, GradScaler]


def message(make, action):
    w = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([w], lr=1)
    scaler = make("cpu")
    try:
        action(scaler, optimizer, w)
    except Exception as error:
        return type(error), str(error)
    return None


def scaled(scaler, w):
    scaler.scale(w.sum()).backward()


def empty_step(scaler, optimizer, w):
    scaler.scale(torch.ones(()))
    scaler.step(optimizer)


def unscale_twice(scaler, optimizer, w):
    scaled(scaler, w)
    scaler.unscale_(optimizer)
    scaler.unscale_(optimizer)


def step_twice(scaler, optimizer, w):
    scaled(scaler, w)
    scaler.step(optimizer)
    scaler.step(optimizer)


def unscale_after_step(scaler, optimizer, w):
    scaled(scaler, w)
    scaler.step(optimizer)
    scaler.unscale_(optimizer)


def update_alone(scaler, optimizer, w):
    scaler.scale(torch.ones(()))
    scaler.update()


def pickle_inside(scaler, optimizer, w):
    scaled(scaler, w)
    scaler.step(optimizer)
    pickle.dumps(scaler)


def update_with_a_gradient(scaler, optimizer, w):
    scaled(scaler, w)
    scaler.update(torch.tensor(2.0, requires_grad=True))


MISTAKES = [
    lambda s, o, w: s.step(o),
    lambda s, o, w: s.unscale_(o),
    lambda s, o, w: s.update(),
    lambda s, o, w: s.step(o, closure=lambda: 0),
    lambda s, o, w: s.scale(3),
    lambda s, o, w: s.load_state_dict({}),
    lambda s, o, w: s.load_state_dict({"scale": 1.0}),
    empty_step,
    unscale_twice,
    step_twice,
    unscale_after_step,
    update_alone,
    pickle_inside,
    update_with_a_gradient,
]


@pytest.mark.parametrize("i", range(len(MISTAKES)))
def test_the_same_errors(i):
    theirs, ours = (message(make, MISTAKES[i]) for make in both())
    assert theirs is not None and ours == theirs


@pytest.mark.parametrize("settings", [{"growth_factor": 1.0}, {"backoff_factor": 1.0}])
def test_the_same_errors_of_the_constructor(settings):
    for make in both():
        with pytest.raises(AssertionError, match="factor must be"):
            make("cpu", **settings)


@pytest.mark.parametrize(
    "settings", [{"init_scale": -1.0}, {"init_scale": math.inf}, {"policy": "none_such"}, {"on_overflow": "hope"},
                 {"settings": {"speed": 3}}, {"growth_interval": -1}])  # fmt: skip
def test_senseless_settings_are_a_value_error(settings):
    with pytest.raises(ValueError):
        GradScaler("cpu", **settings)


def test_disabled_is_torch_disabled():
    for make in both():
        w = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([w], lr=1)
        scaler = make("cpu", enabled=False)
        loss = w.sum()
        assert scaler.scale(loss) is loss and not scaler.is_enabled()
        loss.backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert w.tolist() == [0, 0] and scaler.get_scale() == 1.0 and scaler.state_dict() == {}


def test_it_is_a_torch_amp_gradscaler_and_scales_lists():
    scaler = GradScaler("cpu", init_scale=4.0)
    assert isinstance(scaler, torch.amp.GradScaler)
    a, (b,) = scaler.scale([torch.ones(()), (torch.ones(2),)])
    assert a.item() == 4 and b.tolist() == [4, 4]


def test_setters():
    scaler = GradScaler("cpu")
    scaler.set_growth_factor(3.0), scaler.set_backoff_factor(0.25), scaler.set_growth_interval(1)
    assert (scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval()) == (3, 0.25, 1)
    one_step(scaler, 0)
    assert scaler.get_scale() == 3 * 65536
    one_step(scaler, 1)
    assert scaler.get_scale() == 3 * 65536 / 4
    with pytest.raises(ValueError):
        scaler.set_growth_interval(-3)
    assert scaler.get_growth_interval() == 1


def test_pickle_and_deepcopy_go_on():
    scaler = GradScaler("cpu", growth_interval=4)
    for flag in (0, 0, 1, 0, 0, 0):
        one_step(scaler, flag)
    copies = [pickle.loads(pickle.dumps(scaler)), copy.deepcopy(scaler)]
    for flag in (0, 1, 0, 0, 0, 0):
        for each in [scaler, *copies]:
            one_step(each, flag)
        assert len({each.state_dict()["gradscale"] for each in [scaler, *copies]}) == 1


def test_a_scale_that_others_wrote_is_taken_over():
    w, optimizer, scaler = setup()
    step(scaler, optimizer, w, [1.0, 1.0])
    scaler._scale.fill_(512.0)
    step(scaler, optimizer, w, [1.0, float("inf")])
    assert scaler.get_scale() == 256
    scaler._scale = torch.tensor(64.0)
    assert scaler.get_scale() == 64


def test_found_inf_that_ranks_have_summed_counts():
    w, optimizer, scaler = setup()
    scaled(scaler, w)
    scaler.unscale_(optimizer)
    scaler._found_inf_per_device(optimizer)[torch.device("cpu")] += 1
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [1, 1] and scaler.get_scale() == 32768 and not scaler.last.applied


def test_the_monkeypatch_that_allows_fp16():
    w = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    optimizer, scaler = torch.optim.SGD([w], lr=1), GradScaler("cpu", init_scale=4.0)
    original = scaler._unscale_grads_
    scaler._unscale_grads_ = lambda o, inv, found, _: original(o, inv, found, True)
    step(scaler, optimizer, w, [0.5, 0.25])
    assert w.tolist() == [0.5, 0.75]


# ---- bad input ----


def test_two_scalers_on_one_optimizer():
    w, optimizer, first = setup()
    second = GradScaler("cpu")
    scaled(first, w)
    second.scale(torch.ones(()))
    first.unscale_(optimizer)
    before = w.grad.clone()
    with pytest.raises(ValueError, match="another GradScaler"):
        second.unscale_(optimizer)
    assert torch.equal(w.grad, before)
    first.step(optimizer), first.update()
    step(second, optimizer, w, [1.0, 1.0])  # one after the other is fine


@pytest.mark.parametrize(
    "key, value",
    [("scale", math.nan), ("scale", -2.0), ("scale", 0.0), ("_growth_tracker", -5), ("growth_factor", math.nan),
     ("growth_interval", -1), ("gradscale", "nonsense")],  # fmt: skip
)
def test_a_senseless_state_dict_changes_nothing(key, value):
    scaler = GradScaler("cpu")
    one_step(scaler, 0)
    before = scaler.state_dict()
    with pytest.raises(ValueError):
        scaler.load_state_dict({**before, key: value})
    assert scaler.state_dict() == before
    for missing in ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"):
        with pytest.raises(KeyError):
            scaler.load_state_dict({k: v for k, v in before.items() if k != missing})
    assert scaler.state_dict() == before


def test_a_senseless_new_scale_changes_nothing():
    w, optimizer, scaler = setup()
    step(scaler, optimizer, w, [1.0, 1.0])
    for bad in (math.nan, -1.0, 0.0):
        with pytest.raises(ValueError):
            scaler.update(bad)
    assert scaler.get_scale() == scaler._scale.item() == 65536


# ---- gradients ----


@pytest.fixture(params=["in one call", "from Python"])
def reading(request, monkeypatch):
    """Both ways to read where gradients lie."""
    if request.param == "from Python":
        monkeypatch.setattr(_grads, "_exchange", None)
    elif _grads._exchange is None:
        pytest.skip("this torch has no table for DLPack")


def entries(tensors):
    """(data, count, dtype, cols, stride) of what the passes get."""
    grads = _grads.GradList()
    assert grads.update(tensors, True)
    array = (_lib.Tensor * grads.count).from_address(grads.pointer)
    return [(e.data, e.count, e.dtype, *((e.strided[0].cols, e.strided[0].stride) if e.strided else ())) for e in array]


def test_torch_has_the_table_that_makes_small_gradients_fast():
    version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
    assert (_grads._exchange is not None) == (version >= (2, 10))


def test_both_ways_to_read_gradients_see_the_same(monkeypatch):
    x, big = torch.ones(4, 3, 5, 7), torch.ones(8, 8)
    plain = [torch.tensor(3.0), torch.ones(5), torch.ones(1, 5, 1), torch.ones(2, 3, 4).double(), torch.empty(0, 3),
             x.to(memory_format=torch.channels_last), x.permute(3, 1, 0, 2), torch.ones(6).half()[2:], big.bfloat16().t(),
             torch.ones(2, 6).as_strided((2, 1, 6), (6, 99, 1)), torch.ones(12).as_strided((3, 4), (1, 3)), big[2:5]]  # fmt: skip
    views = [big[:, 1:4], big[::2], x[:, 1], torch.ones(9).as_strided((3, 4), (2, 1)), big[:, :1]]
    calls = []
    original = _grads.GradList._describe
    monkeypatch.setattr(_grads.GradList, "_describe", lambda self, t: (calls.append(r := original(self, t)), r)[1])
    fast = [entries([t]) for t in plain] + [entries([plain[1], t, plain[2]]) for t in views]
    assert len(calls) == len(plain + views) and [bool(about) for about in calls] == [True] * len(plain) + [False] * len(views)
    assert calls[5].elements == 4 * 3 * 5 * 7 and calls[5].dtypes == 1 << _lib.F32
    monkeypatch.setattr(_grads, "_exchange", None)
    assert fast == [entries([t]) for t in plain] + [entries([plain[1], t, plain[2]]) for t in views]


def test_a_list_follows_its_tensors(reading):
    """A tensor that moves, grows, is replaced or changes its type: the next call sees it."""
    grads, w = _grads.GradList(), torch.ones(6)

    def seen(tensors):
        assert grads.update(tensors, True)
        entry = _lib.Tensor.from_address(grads.pointer)
        return grads.count, entry.data, entry.count, entry.dtype

    for change in (lambda: w, lambda: w.resize_(9), lambda: w.set_(torch.ones(4)), lambda: torch.ones(4).bfloat16(),
                   lambda: torch.ones(2).double()):  # fmt: skip
        t = change()
        assert seen([t]) == (1, t.data_ptr(), t.numel(), _grads.DTYPES[t.dtype])
    assert seen([w, w.clone(), w.clone()])[0] == 3
    assert seen([w])[0] == 1


def test_no_stale_pointers_with_set_to_none(reading):
    w, optimizer, scaler = setup(*([1.0] * 1000))
    for i in range(50):
        keep = [torch.empty(1000) for _ in range(i % 7)]  # moves what the allocator hands out
        step(scaler, optimizer, w, [0.001] * 1000)
        assert scaler.last.amax == pytest.approx(0.001, rel=1e-6)
        del keep
    assert w[0].item() == pytest.approx(1 - 0.05, rel=1e-4)


def test_nothing_keeps_gradients_alive():
    w, optimizer, scaler = setup()
    step(scaler, optimizer, w, [1.0, float("nan")])
    gone = weakref.ref(w.grad)
    optimizer.zero_grad(set_to_none=True)
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_layouts(dtype, reading):
    base = torch.ones(6, 8, 10, dtype=dtype)
    for view in (base, base[:, ::2], base[..., 1:4], base.permute(2, 0, 1), base[1:3, 2:5, ::3], base[:0],
                 torch.ones(4, 3, 5, 2, dtype=dtype).to(memory_format=torch.channels_last)):  # fmt: skip
        w = torch.nn.Parameter(torch.empty(view.shape, dtype=dtype))
        w.grad = view
        view.fill_(8)
        scaler = GradScaler("cpu", init_scale=4.0, allow_fp16=True)
        scaler.scale(torch.zeros(()))
        scaler.unscale_(torch.optim.SGD([w], lr=1))
        assert (w.grad == 2).all()
        view.fill_(8)
        if view.numel():
            place = tuple(s - 1 for s in view.shape)
            view[place] = float("nan")
            scaler.update(4.0)
            optimizer = torch.optim.SGD([w], lr=1)
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            assert scaler.last.bad.index == place and scaler.last.reason == "nan"


def test_sparse_and_expanded(reading):
    table = torch.nn.Embedding(10, 2, sparse=True)
    w = torch.nn.Parameter(torch.ones(3))
    optimizer, scaler = torch.optim.SGD([table.weight, w], lr=1), GradScaler("cpu", init_scale=4.0)
    scaler.scale(table(torch.tensor([1, 1, 2])).sum() + w.sum()).backward()
    scaler.unscale_(optimizer)
    assert table.weight.grad.coalesce().values().tolist() == [[2, 2], [1, 1]]


def test_a_device_uses_torchs_pass_and_our_decision(monkeypatch):
    """With a stand-in: nothing is ours to pass over, as if all gradients were on a device."""
    monkeypatch.setattr(_grads, "_exchange", None)
    runs = []
    for types in (_grads.DTYPES, {}):
        monkeypatch.setattr(_grads, "DTYPES", types)
        w = torch.nn.Parameter(torch.ones(2))
        optimizer, scaler = torch.optim.SGD([w], lr=1), GradScaler("cpu", policy="headroom", model=[("fc.weight", w)])
        seen = []
        for grad in ([1e-3, 1e-4], [1e-3, 2e-3], [1.0, math.nan], [5.0, math.inf], [1e-3, 1e-4], [1e-6, 1e-5]):
            step(scaler, optimizer, w, grad)
            seen.append((scaler.get_scale(), scaler.last.applied, scaler.last.amax if scaler.last.applied else 0,
                         scaler.last.bad and scaler.last.bad[:2], w.tolist()))  # fmt: skip
        runs.append(seen)
    assert runs[0] == runs[1] and runs[0][2][3] == ("fc.weight", (1,))


# ---- beyond torch ----


@pytest.mark.parametrize("policy", [*gradscale.presets(), "headroom", "logmax", "adaptive", "histogram", "guard"])
def test_every_policy_trains(policy):
    w, optimizer, scaler = setup(lr=0.01, policy=policy)
    for _ in range(5):
        step(scaler, optimizer, w, [0.5, 0.25])
    assert scaler.counters.applied == 5 and w[0].item() == pytest.approx(1 - 0.025, rel=1e-3)
    again = GradScaler("cpu", policy=policy)
    again.load_state_dict(scaler.state_dict())
    assert again.state_dict()["gradscale"] == scaler.state_dict()["gradscale"]


def overflowing(scaler, optimizer, w, limit):
    """A closure whose gradients are infinite above a scale of `limit`; it uses random numbers."""
    seen = []

    def closure():
        optimizer.zero_grad()
        noise = torch.rand(2)
        seen.append((scaler.get_scale(), noise.tolist()))
        loss = (w * noise).sum()
        scaler.scale(loss).backward()
        if scaler.get_scale() > limit:
            w.grad[0] = float("inf")
        return loss

    return closure, seen


def test_retry_runs_the_batch_again_with_the_same_random_numbers():
    w, optimizer, scaler = setup(on_overflow="retry:5")
    closure, seen = overflowing(scaler, optimizer, w, 2.0**13)
    loss = scaler.step(optimizer, closure=closure)
    scaler.update()
    assert [s for s, _ in seen] == [2.0**16, 2.0**15, 2.0**14, 2.0**13]
    assert all(noise == seen[0][1] for _, noise in seen) and loss.item() == pytest.approx(sum(seen[0][1]))
    assert scaler.last.applied and scaler.counters.applied == 1 and scaler.counters.retried == 3
    assert w.tolist() == pytest.approx([1 - x for x in seen[0][1]])


def test_attribute_blames_the_batch_and_leaves_the_scale():
    w, optimizer, scaler = setup(on_overflow="attribute")
    closure, seen = overflowing(scaler, optimizer, w, 0.0)
    scaler.step(optimizer, closure=closure)
    scaler.update()
    assert not scaler.last.applied and scaler.counters.blamed == 1 and scaler.get_scale() == 65536
    assert w.tolist() == [1, 1] and len(seen) > 1


def test_retry_and_two_optimizers_is_refused():
    w, optimizer, scaler = setup(on_overflow="retry:2")
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1)
    other.param_groups[0]["params"][0].grad = torch.ones(1)
    scaled(scaler, w)
    scaler.step(optimizer)
    with pytest.raises(ValueError, match="several optimizers"):
        scaler.step(other)


def test_names_of_the_model_of_the_optimizer_and_without():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    for make, want in (
        (lambda: (torch.optim.SGD(model.parameters(), lr=1), GradScaler("cpu", model=model)), "1.weight"),
        (lambda: (torch.optim.SGD(model.named_parameters(), lr=1), GradScaler("cpu")), "1.weight"),
        (lambda: (torch.optim.SGD(model.parameters(), lr=1), GradScaler("cpu")), "parameter 2 of group 0"),
    ):
        optimizer, scaler = make()
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        model[1].weight.grad[1, 0] = float("nan")
        scaler.step(optimizer)
        assert scaler.last.bad[:2] == (want, (1, 0)) and math.isnan(scaler.last.bad.value)
        scaler.update()
        assert want in scaler.explain() and "\n" not in scaler.explain()


def test_fused_adam_skips_and_tells():
    for fused in (False, True):
        w = torch.nn.Parameter(torch.ones(2))
        optimizer, scaler = torch.optim.Adam([w], lr=0.1, fused=fused), GradScaler("cpu")
        step(scaler, optimizer, w, [1.0, 1.0])
        after = w.tolist()
        step(scaler, optimizer, w, [1.0, float("inf")])
        assert not scaler.last.applied and w.tolist() == after and scaler.last.bad.index == (1,)


# ---- complaints, by thread ----


def test_pytorch44511_the_schedule_runs_on_applied_steps():
    w, optimizer, scaler = setup()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for grad in ([1.0, 1.0], [1.0, float("inf")], [1.0, 1.0]):
        step(scaler, optimizer, w, grad)
        if scaler.last.applied:
            schedule.step()
    assert schedule.last_epoch == scaler.counters.applied == 2 and scaler.counters.skipped == {"inf": 1}


def test_apex834_nan_for_ever_is_stuck_and_explained():
    w, optimizer, scaler = setup(settings={"lowest": 2.0**-10, "stuck": 20})
    for _ in range(40):
        step(scaler, optimizer, w, [1.0, float("nan")])
    assert scaler.get_scale() == 2.0**-10 and scaler.health() == "STUCK" and "NaN" in scaler.explain()


def test_pytorch98828_interval_one_stays_finite():
    w, optimizer, scaler = setup(growth_interval=1, settings={"highest": 2.0**40}, lr=0.0)
    for _ in range(1000):
        step(scaler, optimizer, w, [1e-20, 1e-20])
    assert scaler.get_scale() == 2.0**40 and scaler.health() == "AT_CEILING"
    step(scaler, optimizer, w, [1.0, float("inf")])
    assert scaler.get_scale() == 2.0**39


def test_pytorch96755_what_only_unscaling_makes_infinite_is_not_applied():
    w, optimizer, scaler = setup(init_scale=2.0**-20)
    scaler.scale(w.sum())
    w.grad = torch.full((2,), 3e38)
    scaler.step(optimizer)
    scaler.update()
    assert not scaler.last.applied and w.tolist() == [1, 1]


def test_pytorch74739_fp16_gradients_where_they_are_wanted():
    w = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    optimizer = torch.optim.SGD([w], lr=1)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
        step(GradScaler("cpu"), optimizer, w, [0.5, 0.5])
    step(GradScaler("cpu", allow_fp16=True, init_scale=1024.0), optimizer, w, [0.5, 0.25])
    assert w.tolist() == [0.5, 0.75]


def test_lightning9330_the_norm_is_in_true_units():
    w, optimizer, scaler = setup(grad_norm=True)
    step(scaler, optimizer, w, [3.0, 4.0])
    assert scaler.last.grad_norm == pytest.approx(5) and scaler.last.amax == pytest.approx(4)


def test_deepspeed2686_the_step_tells_the_scale_it_ran_at():
    w, optimizer, scaler = setup(growth_interval=1)
    step(scaler, optimizer, w, [1.0, 1.0])
    assert scaler.last.scale == 65536 and scaler.get_scale() == 131072


def test_accelerate4242_fused_and_unfused_agree():
    runs = []
    for fused in (False, True):
        torch.manual_seed(0)
        w = torch.nn.Parameter(torch.ones(4))
        optimizer, scaler = torch.optim.AdamW([w], lr=0.1, fused=fused), GradScaler("cpu", growth_interval=3)
        applied = []
        for i in range(20):
            step(scaler, optimizer, w, [float("inf") if i % 5 == 3 else 0.5] * 4)
            applied.append(scaler.last.applied)
        runs.append((applied, scaler.get_scale(), optimizer.state[w]["step"].item()))
    assert runs[0] == runs[1] and runs[0][2] == 16


def test_swav47_headroom_finds_the_scale_without_skips():
    w, optimizer, scaler = setup(policy="headroom", lr=0.0, allow_fp16=True)
    for _ in range(20):
        step(scaler, optimizer, w, [1e-6, 2e-6])
    assert scaler.counters.skipped == {} and scaler.get_scale() > 2**24


def test_accelerate4289_resume_is_the_same_run():
    for policy in ("pytorch", "megatron", "headroom"):
        w, optimizer, whole = setup(policy=policy, lr=0.0)
        grads = [[1e-3 * (i % 5 + 1), float("inf") if i % 9 == 4 else 1.0] for i in range(60)]
        for grad in grads:
            step(whole, optimizer, w, grad)
        part = GradScaler("cpu", policy=policy)
        for grad in grads[:31]:
            step(part, optimizer, w, grad)
        resumed = GradScaler("cpu", policy=policy)
        resumed.load_state_dict(pickle.loads(pickle.dumps(part.state_dict())))
        for grad in grads[31:]:
            step(resumed, optimizer, w, grad)
        assert resumed.state_dict() == whole.state_dict()


def test_lvsm19_giving_up_a_step_leaves_the_next_one_legal():
    w, optimizer, scaler = setup()
    scaled(scaler, w)
    scaler.unscale_(optimizer)
    scaler.update()
    optimizer.zero_grad()
    step(scaler, optimizer, w, [1.0, 1.0])
    assert scaler.last.applied
