"""install(): f16 products against f64 on hostile shapes, and torch's operators as they were for everything else.

The bound: sums of k products in f32, in blocks of 384, then one rounding to f16:
    |c - exact| <= (min(k, 384) + ceil(k / 384) + 2) 2^-24 sum |a b| + max(2^-11 |exact|, 2^-25)
"""
import math
import threading

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402

from gradscale.torch import GradScaler, _install, install  # noqa: E402

HALF = torch.float16


@pytest.fixture(autouse=True)
def whatever_the_size(monkeypatch):
    monkeypatch.setattr(_install, "_SMALL", 1)


@pytest.fixture
def calls(monkeypatch):
    """How often the library multiplied."""
    count = []
    original = _install.product
    monkeypatch.setattr(_install, "product", lambda *a, **k: (count.append(1), original(*a, **k))[1])
    return count


def values(*shape, seed=0, scale=1.0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed + math.prod(shape))) * scale).to(HALF)


def within(c, a, b, add=None, alpha=1.0, beta=1.0):
    a, b = a.double(), b.double()
    exact = alpha * (a @ b)
    size = abs(alpha) * (a.abs() @ b.abs())
    if add is not None:
        exact, size = exact + beta * add.double(), size + abs(beta) * add.double().abs()
    k = a.shape[-1]
    bound = (min(k, 384) + -(-k // 384) + 4) * 2**-24 * size + torch.clamp(2**-11 * exact.abs(), min=2**-25)
    assert c.dtype is HALF and c.shape == exact.shape
    assert ((c.double() - exact).abs() <= bound).all()


SHAPES = [(1, 1, 1), (1, 7, 5), (7, 1, 5), (5, 7, 1), (3, 3, 3), (17, 33, 65), (1, 384, 768), (64, 1, 700), (33, 129, 385),
          (128, 64, 1000), (2, 3, 0), (0, 3, 4), (3, 0, 4)]  # fmt: skip


def layouts(*shape):
    """The same values in memory laid out in every way."""
    x = values(*shape)
    big = torch.zeros(*shape[:-2], shape[-2] + 3, 2 * shape[-1] + 5, dtype=HALF)
    yield x
    yield x.transpose(-1, -2).contiguous().transpose(-1, -2)
    wide = big[..., : shape[-2], : shape[-1]]
    yield wide.copy_(x)
    step = big[..., : shape[-2], : 2 * shape[-1] : 2]
    yield step.copy_(x)
    yield x[..., :1, :].expand(shape) if shape[-2] else x
    yield x[..., :1].expand(shape) if shape[-1] else x
    yield x.flip(-1)


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_mm_of_every_layout(m, n, k, calls):
    with install(products=True):
        for a in layouts(m, k):
            for b in layouts(k, n):
                within(a @ b, a, b)
    assert bool(calls) == (m * n * k > 0)


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_bmm_of_every_layout(m, n, k, calls):
    with install(products=True):
        for a in layouts(3, m, k):
            for b in layouts(3, k, n):
                within(torch.bmm(a, b), a, b)
        shared = values(k, n).expand(3, k, n)
        within(torch.bmm(values(3, m, k), shared), values(3, m, k), shared)
        mixed = values(m, 3, k).transpose(0, 1)
        within(torch.bmm(mixed, shared), mixed, shared)
    assert bool(calls) == (m * n * k > 0)


@pytest.mark.parametrize("beta, alpha", [(1, 1), (0, 1), (0.5, 1), (1, 0.25), (2, -3), (0, 2)])
def test_addmm_and_baddbmm(beta, alpha, calls):
    a, b = values(9, 50), values(50, 11)
    nan = torch.full((9, 11), math.nan, dtype=HALF)
    with install(products=True):
        for c in (values(11), values(9, 11), values(9, 1), values(1, 11), values(11, 9).t(), values(1), values(22)[::2]):
            within(torch.addmm(c, a, b, beta=beta, alpha=alpha), a, b, c, alpha, beta)
            within(torch.baddbmm(c, a[None], b[None], beta=beta, alpha=alpha), a[None], b[None], c, alpha, beta)
        assert beta or torch.isfinite(torch.addmm(nan, a, b, beta=0, alpha=alpha)).all()
    assert len(calls) >= 14


def test_magnitudes_infinities_and_nan():
    with install(products=True):
        tiny = torch.full((4, 300), 2.0**-20, dtype=HALF)
        within(tiny @ tiny.t(), tiny, tiny.t())
        large = torch.full((4, 300), 300.0, dtype=HALF)
        assert torch.isinf(large @ large.t()).all()
        assert ((large[:, :1] @ torch.full((1, 2), 2.0**7.5, dtype=HALF)) < 65505).all()
        bad = values(4, 300)
        bad[1, 2], bad[2, 3] = math.nan, math.inf
        out = bad @ values(300, 5)
        assert torch.isnan(out[1]).all() and torch.isinf(out[2]).all() and torch.isfinite(out[[0, 3]]).all()


def test_a_result_may_overwrite_its_operand():
    with install(products=True):
        a = values(8, 8)
        want = (a.double() @ a.double()).to(HALF)
        a.copy_(a @ a.t().t())
        assert (a.double() - want.double()).abs().max() < 0.05
        x = values(16, 8)
        x.addmm_(values(16, 8), values(8, 8))  # torch's own: the operator in place is not ours


def test_what_is_not_half_is_torchs_own(calls):
    with install(products=True):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32):
            a = torch.ones(4, 4).to(dtype)
            assert torch.equal(a @ a, torch.full((4, 4), 4).to(dtype))
            assert torch.equal(torch.bmm(a[None], a[None])[0], a @ a)
    assert not calls


def test_small_products_are_torchs_own(calls, monkeypatch):
    monkeypatch.setattr(_install, "_SMALL", 1 << 14)
    with install(products=True):
        values(4, 4) @ values(4, 4)
    assert not calls


@pytest.mark.parametrize("a, b", [((2, 3), (4, 5)), ((2, 3, 4), (3, 4, 5)), ((3,), (4, 5))])
def test_torchs_errors(a, b):
    a, b = values(*a), values(*b)
    seen = []
    for context in (None, install(products=True)):
        with pytest.raises(RuntimeError) as caught:
            torch.bmm(a, b) if a.dim() == 3 else a @ b
        seen.append(str(caught.value))
        if context:
            context.undo()
    assert seen[0] == seen[1]
    with install(products=True), pytest.raises(RuntimeError):
        torch.addmm(values(7), values(2, 3), values(3, 4))


def test_mixed_types_raise_as_ever():
    with install(products=True), pytest.raises(RuntimeError):
        values(4, 4) @ torch.ones(4, 4)


# ---- autograd and its neighbours ----


def linear_grads(dtype):
    torch.manual_seed(3)
    x = torch.randn(6, 5, 32).to(HALF).to(dtype).requires_grad_()
    w = torch.randn(48, 32).to(HALF).to(dtype).requires_grad_()
    b = torch.randn(48).to(HALF).to(dtype).requires_grad_()
    (F.linear(x, w, b) * torch.ones((), dtype=dtype)).sum().backward()
    return [x.grad, w.grad, b.grad]


def test_autograd(calls):
    exact = linear_grads(torch.float64)
    with install(products=True):
        ours = linear_grads(HALF)
    assert len(calls) >= 3
    for a, b in zip(exact, ours):
        assert (a - b.double()).abs().max() <= 2**-9 * a.abs().max()


def test_no_grad_inference_autocast_and_vmap(calls):
    a, b = values(20, 30), values(30, 40)
    with install(products=True):
        with torch.no_grad():
            within(a @ b, a, b)
        with torch.inference_mode():
            within(a @ b, a, b)
        with torch.autocast("cpu", dtype=HALF):
            within(a.float() @ b.float(), a, b)
        batch = values(4, 20, 30)
        within(torch.vmap(lambda x: x @ b)(batch), batch, b.expand(4, 30, 40))
    assert len(calls) >= 4


def test_several_threads():
    a, b = values(64, 200), values(200, 64)
    wrong = []

    def work():
        for _ in range(30):
            try:
                within(a @ b, a, b)
            except AssertionError:
                wrong.append(1)

    with install(products=True):
        threads = [threading.Thread(target=work) for _ in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 8), (2, 3, 37, 16), (2, 2, 128, 64), (1, 2, 5, 1)])
def test_attention_and_its_gradients(shape, causal, monkeypatch):
    from gradscale.torch import _products

    monkeypatch.setattr(_products, "_SCORES", 20_000)  # several parts
    batch, heads, time, size = shape
    inputs = [values(batch, time, heads, size, seed=i).transpose(1, 2) for i in range(3)]
    weight = values(*shape, seed=9)

    def run(dtype):
        q, k, v = (x.to(dtype).requires_grad_() for x in inputs)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return [out, *torch.autograd.grad(out, (q, k, v), weight.to(dtype))]

    exact, torchs = run(torch.float64), run(HALF)
    with install(products=True):
        ours = run(HALF)
    for e, t, o in zip(exact, torchs, ours):
        assert o.shape == e.shape and o.dtype is HALF
        error = (o.double() - e).abs().max()
        assert error <= 2 * (t.double() - e).abs().max() + 2**-9 * e.abs().max() + 1e-6


def test_attention_with_a_mask_and_of_other_types_is_torchs_own():
    q = values(1, 2, 16, 8)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    want = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    with install(products=True):
        assert torch.equal(F.scaled_dot_product_attention(q, q, q, attn_mask=mask), want)
        F.scaled_dot_product_attention(q.float(), q.float(), q.float())
        F.scaled_dot_product_attention(q[:, :, :4], q, q)


# ---- the two operators of GradScaler ----


def scaler_run(installed):
    torch.manual_seed(0)
    w, v = torch.nn.Parameter(torch.randn(5, 7)), torch.nn.Parameter(torch.randn(3).bfloat16())
    optimizer, scaler = torch.optim.SGD([w, v], lr=0.1), torch.amp.GradScaler("cpu", growth_interval=3)
    seen = []
    for i in range(40):
        optimizer.zero_grad()
        scaler.scale((w * torch.randn(5, 7)).sum() + (v * torch.randn(3)).sum()).backward()
        if i % 7 == 4:
            w.grad[2, 3] = [math.inf, math.nan][i % 2]
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), scaler._get_growth_tracker(), w.tolist(), v.tolist()))
    return seen


def test_torchs_gradscaler_runs_on_ours_bit_for_bit():
    with install(products=False):
        ours = scaler_run(True)
    assert ours == scaler_run(False)


def test_what_only_unscaling_makes_infinite_is_not_found_as_torch_has_it():
    runs = []
    for context in (None, install(products=False)):
        grad, found = torch.tensor([3e38, 1.0]), torch.zeros(())
        torch._amp_foreach_non_finite_check_and_unscale_([grad], found, torch.tensor(1000.0))
        runs.append((grad.tolist(), found.item()))
        if context:
            context.undo()
    assert runs[0] == runs[1]


# ---- undo ----


def test_undo_leaves_torch_as_it_was_and_nesting_counts(calls):
    a = values(30, 30)
    before = a @ a
    outer = install(products=True)
    with install(products=True):
        a @ a
    a @ a
    assert len(calls) == 2
    outer.undo()
    outer.undo()  # again is nothing
    assert torch.equal(a @ a, before) and len(calls) == 2
    with install(products=True):
        a @ a
    assert len(calls) == 3


def test_a_training_run_learns_with_it():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4))
    x = torch.randn(256, 16)
    y = (x @ torch.randn(16, 4)).argmax(1)
    optimizer, scaler = torch.optim.Adam(net.parameters(), lr=0.01), GradScaler("cpu", model=net)
    with install(products=True):
        for _ in range(60):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=HALF):
                loss = F.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert loss.item() < 0.3
