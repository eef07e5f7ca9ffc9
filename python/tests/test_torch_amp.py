"""Loops of AMP's documentation and corners of its operators: the drop-in, and torch's own GradScaler on install(),
against torch's own."""
import contextlib
import copy
import math
import pickle

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from gradscale.torch import GradScaler, install  # noqa: E402


def bits(x):
    x = x.coalesce().values() if x.is_sparse else x
    return x.detach().contiguous().flatten().view(torch.uint8).tolist()


class Loop:
    """A small net, a control without scaling, data of which the third batch is bad."""

    def __init__(self, scaler, optimizer=torch.optim.SGD, **options):
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        self.other = copy.deepcopy(self.net)
        self.scaler, self.optimizer = scaler, optimizer(self.net.parameters(), lr=0.5, **options)
        self.second = optimizer(self.other.parameters(), lr=0.5, **options)
        self.data = [(torch.randn(8, 8), torch.randn(8, 8)) for _ in range(4)]

    def spoil(self, i, net=None):
        if i == 2:
            (net or self.net)[1].weight.grad[1, 2] = math.inf

    def seen(self):
        tensors = [*self.net.parameters(), *self.other.parameters()]
        return [bits(t) for t in tensors], self.scaler.get_scale(), self.scaler._get_growth_tracker()


def loss_of(net, x, y):
    return nn.functional.mse_loss(net(x), y)


def plain(loop):
    for i, (x, y) in enumerate(loop.data):
        loop.optimizer.zero_grad()
        loop.scaler.scale(loss_of(loop.net, x, y)).backward()
        loop.spoil(i)
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()
        yield loop.seen()


def clipping(loop):
    for i, (x, y) in enumerate(loop.data):
        loop.optimizer.zero_grad()
        loop.scaler.scale(loss_of(loop.net, x, y)).backward()
        loop.spoil(i)
        loop.scaler.unscale_(loop.optimizer)
        norm = nn.utils.clip_grad_norm_(loop.net.parameters(), 0.2)
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()
        yield loop.seen(), bits(norm)


def penalty(loop):
    """Gradients of gradients: scaled, unscaled by hand, and put into the loss."""
    for i, (x, y) in enumerate(loop.data):
        loop.optimizer.zero_grad()
        loss = loss_of(loop.net, x, y)
        scaled = torch.autograd.grad(loop.scaler.scale(loss), loop.net.parameters(), create_graph=True)
        norm = sum((g / loop.scaler.get_scale()).pow(2).sum() for g in scaled).sqrt()
        loop.scaler.scale(loss + 0.1 * norm).backward()
        loop.spoil(i)
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()
        yield loop.seen()


def accumulation(loop):
    for i, (x, y) in enumerate(loop.data):
        loop.scaler.scale(loss_of(loop.net, x, y) / 2).backward()
        if i % 2:
            loop.scaler.step(loop.optimizer)
            loop.scaler.update()
            loop.optimizer.zero_grad(set_to_none=False)
        yield loop.seen()


def two_nets_two_losses(loop):
    """The first optimizer alone meets the Inf; the scale backs off for both."""
    for i, (x, y) in enumerate(loop.data):
        loop.optimizer.zero_grad()
        loop.second.zero_grad()
        a, b = loop.net(x), loop.other(x)
        first, second = ((0.6 * a - 0.4 * b - y) ** 2).mean(), ((0.7 * a + 0.3 * b - y) ** 2).mean()
        loop.scaler.scale(first).backward(retain_graph=True)
        loop.scaler.scale(second).backward()
        loop.spoil(i)
        loop.scaler.unscale_(loop.optimizer)
        loop.scaler.step(loop.optimizer)
        loop.scaler.step(loop.second)
        loop.scaler.update()
        yield loop.seen()


def without_some_gradients(loop):
    for i, (x, y) in enumerate(loop.data):
        loop.optimizer.zero_grad()
        loop.scaler.scale(loss_of(loop.net, x, y)).backward()
        loop.net[0].bias.grad = None
        loop.spoil(i)
        if i == 1:  # other memory, between unscale_ and step
            loop.scaler.unscale_(loop.optimizer)
            loop.net[0].weight.grad = loop.net[0].weight.grad.clone()
        loop.scaler.step(loop.optimizer)
        loop.scaler.update()
        yield loop.seen()


def saved_and_loaded(loop):
    for i, seen in enumerate(plain(loop)):
        yield seen
        if i == 1:
            loop.scaler = pickle.loads(pickle.dumps(loop.scaler))
        if i == 2:
            state = loop.scaler.state_dict()
            loop.scaler = type(loop.scaler)("cpu", init_scale=7.0)
            loop.scaler.load_state_dict(state)


def a_scale_of_its_own(loop):
    for i, seen in enumerate(plain(loop)):
        yield seen
        loop.scaler.update(new_scale=[3.5, torch.tensor(100.0), 2.0**30, 1.0][i])


LOOPS = [plain, clipping, penalty, accumulation, two_nets_two_losses, without_some_gradients, saved_and_loaded,
         a_scale_of_its_own]  # fmt: skip
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9, "foreach": True}),
    "adam": (torch.optim.Adam, {}),
    "fused": (torch.optim.AdamW, {"fused": True}),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("way", ["drop-in", "install"])
def test_a_loop_is_torchs_to_the_bit(way, loop, optimizer):
    kind, options = OPTIMIZERS[optimizer]
    settings = {"init_scale": 128.0, "growth_factor": 2.0, "growth_interval": 1}
    want = list(loop(Loop(torch.amp.GradScaler("cpu", **settings), kind, **options)))
    with install(products=False) if way == "install" else contextlib.nullcontext():
        make = torch.amp.GradScaler if way == "install" else GradScaler
        assert list(loop(Loop(make("cpu", **settings), kind, **options))) == want


def test_an_optimizer_that_unscales_by_itself():
    """It is handed the scaler's tensors: grad_scale and found_inf of a fused optimizer, not unscaled before."""

    class Own(torch.optim.SGD):
        _step_supports_amp_scaling = True
        handed = None

        def step(self, closure=None):
            self.handed = self.grad_scale.item(), self.found_inf.item()

    for make in (torch.amp.GradScaler, GradScaler):
        w = nn.Parameter(torch.ones(3))
        optimizer, scaler = Own([w], lr=0.1), make("cpu", init_scale=8.0)
        for bad in (1.0, math.nan):
            w.grad = None
            scaler.scale((w * bad).sum()).backward()
            scaler.step(optimizer)
            assert optimizer.handed == ((8.0, 0.0) if bad == 1 else (8.0, 1.0))
            if bad == 1:
                assert w.grad.tolist() == [8.0] * 3
            scaler.update()


# ---- the two operators ----


@pytest.mark.parametrize("installed", [False, True])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_bad_value_anywhere_is_found(dtype, value, installed):
    with install(products=False) if installed else contextlib.nullcontext():
        for size in (1, 7, 64, 1025):
            for at in {0, size // 2, size - 1}:
                for which in range(3):
                    tensors = [torch.full((size,), 4.0, dtype=dtype) for _ in range(3)]
                    tensors[which][at] = value
                    found = torch.zeros(1)
                    torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, torch.tensor([0.25]))
                    assert found.item() == 1
                    assert all(t[i] == 1 for k, t in enumerate(tensors) for i in range(size) if (k, i) != (which, at))
        clean, found = [torch.full((5, 3), 4.0, dtype=dtype).t()], torch.zeros(1)
        torch._amp_foreach_non_finite_check_and_unscale_(clean, found, torch.tensor([0.25]))
        assert found.item() == 0 and (clean[0] == 1).all()


def test_the_update_operator_by_its_definition():
    with install(products=False):
        scale, tracker = torch.tensor([4.0]), torch.tensor([0], dtype=torch.int32)
        for found, want in [(0, (4.0, 1)), (0, (8.0, 0)), (0, (8.0, 1)), (1, (2.0, 0)), (0, (2.0, 1))]:
            torch._amp_update_scale_(scale, tracker, torch.tensor([float(found)]), 2.0, 0.25, 2)
            assert (scale.item(), tracker.item()) == want
        top = torch.tensor([torch.finfo(torch.float32).max])
        torch._amp_update_scale_(top, tracker.zero_(), torch.zeros(1), 2.0, 0.25, 1)
        assert top.item() == torch.finfo(torch.float32).max and tracker.item() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_sparse_gradients_with_doubled_indices(dtype):
    for make in (torch.amp.GradScaler, GradScaler):
        for values, finite in (([4.0, 8.0], True), ([60000.0, 60000.0], dtype is torch.float32), ([4.0, math.inf], False)):
            w = nn.Parameter(torch.zeros(5, 2, dtype=dtype))
            entries = torch.tensor([[v, v] for v in values], dtype=dtype)
            w.grad = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), entries, (5, 2))
            scaler, optimizer = make("cpu", init_scale=4.0), torch.optim.SGD([w], lr=1.0)
            found = torch.zeros(())
            per_device = scaler._unscale_grads_(optimizer, torch.tensor(0.25), found, True)
            assert (sum(x.item() for x in per_device.values()) == 0) is finite
            if finite:
                assert w.grad.to_dense()[1].tolist() == [sum(values) / 4] * 2
