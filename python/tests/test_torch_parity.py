"""gradscale.torch.GradScaler against torch.amp.GradScaler: the same scales and gradients, bit for bit."""
import os
import random

import pytest

torch = pytest.importorskip("torch")
from gradscale.torch import GradScaler  # noqa: E402

LONG = os.environ.get("GS_LONG", "0") != "0"
TYPES = [torch.float32, torch.bfloat16, torch.float64]


def bits(x):
    if x is None:
        return None
    x = x.coalesce().values() if x.is_sparse else x
    return x.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def random_settings(rng):
    return dict(
        init_scale=rng.choice([65536.0, 1024.0, 3.7, 2.0**24, 2.0**120, 2.0**-130]),
        growth_factor=rng.choice([2.0, 1.5, 1.1]),
        backoff_factor=rng.choice([0.5, 0.7, 0.1]),
        growth_interval=rng.choice([1, 2, 5, 40]),
    )


def test_the_scale_over_10000_sequences_of_found_inf():
    """The machine alone, into zeros and infinities, as torch's operator moves."""
    from gradscale import Scaler

    rng = random.Random(1)
    for case in range(10_000):
        s = random_settings(rng)
        ours = Scaler("pytorch", lowest="off", highest="off", init=s["init_scale"], growth=s["growth_factor"],
                      backoff=s["backoff_factor"], interval=s["growth_interval"])  # fmt: skip
        scale = torch.tensor(s["init_scale"], dtype=torch.float32)
        tracker = torch.tensor(0, dtype=torch.int32)
        share = rng.choice([0.02, 0.3, 1.0, 0.0])
        for t in range(rng.choice([5, 20, 60])):
            found = rng.random() < share
            ours.update(found)
            torch._amp_update_scale_(scale, tracker, torch.tensor(float(found)), s["growth_factor"],
                                     s["backoff_factor"], s["growth_interval"])  # fmt: skip
            assert ours.scale == scale.item() and ours.clean_steps == tracker.item(), (case, t, s)


def run(make, seed, steps):
    """A run of random steps; yields everything that can be seen."""
    rng = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    scaler = make(**random_settings(rng) | {"init_scale": rng.choice([65536.0, 1024.0, 3.7, 2.0**100])})
    dtype, two, clip = rng.choice(TYPES), rng.random() < 0.5, rng.random() < 0.5
    fused, sparse = rng.random() < 0.3, rng.random() < 0.3

    def values(*shape):
        return torch.randn(*shape, generator=generator)

    w = [values(3, 5).requires_grad_(), values(7).to(dtype).requires_grad_(), values(4, 6).t().requires_grad_()]
    table = torch.nn.Embedding(6, 3, sparse=True, _weight=values(6, 3))
    groups = [[w[0], w[2]], [w[1]]] if two else [w]
    if sparse:
        groups.append([table.weight])
    kinds = [torch.optim.SGD] if sparse else [torch.optim.SGD, torch.optim.Adam]
    optimizers = []
    for group in groups:
        same = len({p.dtype for p in group}) == 1 and group[0].dtype is not torch.bfloat16
        kind = rng.choice(kinds)
        use_fused = fused and same and group[0] is not table.weight
        optimizers.append(kind(group, lr=0.01, **({"fused": True} if use_fused else {"foreach": False})))
    for _ in range(steps):
        for o in optimizers:
            o.zero_grad(set_to_none=rng.random() < 0.5)
        for _ in range(rng.choice([1, 2])):
            loss = (w[0] * values(3, 5)).sum() * 0.01 + (w[1].float() * values(7)).sum() + (w[2] * values(6, 4)).sum()
            if sparse:
                loss = loss + table(torch.tensor([1, 1, 4])).sum()
            scaler.scale(loss).backward()
        fault = rng.randrange(8)
        if fault < 3:
            w[fault].grad[(0,) * (w[fault].dim() - 1) + (2,)] = [float("inf"), float("nan"), float("-inf")][fault]
        if clip:
            for o in optimizers:
                scaler.unscale_(o)
            torch.nn.utils.clip_grad_norm_([p for g in groups for p in g if not p.grad.is_sparse], 1.0)
        for o in optimizers:
            scaler.step(o)
        if rng.random() < 0.05:
            scaler.update(rng.choice([128.0, 3.5]))
        else:
            scaler.update()
        everything = [*w, table.weight]
        moments = [bits(v) for o in optimizers for s in o.state.values() for v in s.values() if torch.is_tensor(v)]
        yield (scaler.get_scale(), scaler._get_growth_tracker(), [bits(p) for p in everything],
               [bits(p.grad) for p in everything], moments, scaler._scale.item(), scaler._growth_tracker.item())  # fmt: skip


@pytest.mark.parametrize("block", range(10))
def test_whole_steps(block):
    for case in range(1000 if LONG else 8):
        seed = block * 1000 + case
        theirs = run(lambda **kw: torch.amp.GradScaler("cpu", **kw), seed, 10)
        ours = run(lambda **kw: GradScaler("cpu", **kw), seed, 10)
        for t, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            assert a == b, (seed, t)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_every_f16_value_is_unscaled_as_torchs_operator_does(dtype):
    codes = torch.arange(65536, dtype=torch.int32).to(torch.uint16).view(torch.float16)
    for init in (65536.0, 3.7, 2.0**-20):
        for finite in (True, False):
            values = (codes[torch.isfinite(codes)] if finite else codes).to(dtype)
            w = torch.nn.Parameter(torch.zeros_like(values))
            w.grad = values.clone()
            scaler = GradScaler("cpu", init_scale=init, allow_fp16=True)
            scaler.scale(torch.zeros(()))
            scaler.unscale_(torch.optim.SGD([w], lr=1))
            want, found = values.clone(), torch.zeros(())
            inverse = torch.tensor(init, dtype=torch.float32).double().reciprocal().float()
            torch._amp_foreach_non_finite_check_and_unscale_([want], found, inverse)
            same = bits(want) == bits(w.grad)
            assert same or (torch.isnan(want) == torch.isnan(w.grad)).all() and bits(want.nan_to_num()) == bits(
                w.grad.nan_to_num()
            )


def test_state_dict_both_ways():
    for found in ([0] * 7, [0, 1, 0, 0], [1] * 5):
        scalers = [torch.amp.GradScaler("cpu", growth_interval=5), GradScaler("cpu", growth_interval=5)]
        for flag in found:
            for scaler in scalers:
                one_step(scaler, flag)
        crossed = [torch.amp.GradScaler("cpu"), GradScaler("cpu")]
        crossed[0].load_state_dict(scalers[1].state_dict())
        crossed[1].load_state_dict(scalers[0].state_dict())
        for flag in [0, 0, 0, 0, 0, 1, 0]:
            for scaler in scalers + crossed:
                one_step(scaler, flag)
            assert len({s.get_scale() for s in scalers + crossed}) == 1
            assert len({s._get_growth_tracker() for s in scalers + crossed}) == 1


def one_step(scaler, flag):
    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler.scale(w.sum()).backward()
    if flag:
        w.grad[1] = float("inf")
    scaler.step(optimizer)
    scaler.update()
