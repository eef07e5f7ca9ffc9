"""The library's loops on torch's OpenMP threads: every index once, the same bits, and a forked child does not wait."""
import ctypes
import os
import threading
import time
from collections import Counter

import pytest

torch = pytest.importorskip("torch")
from gradscale import _lib  # noqa: E402
from gradscale.torch import GradScaler, _products, _threads  # noqa: E402

needs_openmp = pytest.mark.skipif(_threads._address is None, reason="torch is not linked with OpenMP")


def test_torchs_runtime_is_found():
    assert (_threads._address is not None) == ("OpenMP" in torch.__config__.parallel_info())


@needs_openmp
@pytest.mark.parametrize("threads", [1, 2, 3, 100])
def test_every_index_once(threads):
    run, user = _threads._openmp(threads)
    body_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, body_type, ctypes.c_void_p)(run.value)
    for count in (0, 1, 2, 63, 64, 65, 1000):
        seen, who = [], set()
        body = body_type(lambda _, i: (seen.append(i), who.add(threading.get_ident())))
        call(ctypes.addressof(user), count, body, None)
        assert Counter(seen) == Counter(range(count)) and len(who) <= max(1, min(threads, count))


@needs_openmp
def test_more_threads_than_one_work():
    run, user = _threads._openmp(2)
    body_type = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, body_type, ctypes.c_void_p)(run.value)
    who = set()

    def work(_, i):
        who.add(threading.get_ident())
        end = time.monotonic() + 100
        while len(who) < 2 and time.monotonic() < end:  # the first waits for the second
            time.sleep(0.001)

    call(ctypes.addressof(user), 2, body_type(work), None)
    assert len(who) == 2


def results():
    """Of a pass and of a product large enough for threads."""
    generator = torch.Generator().manual_seed(4)
    w = torch.nn.Parameter(torch.zeros(3_000_001))
    w.grad = torch.randn(3_000_001, generator=generator)
    scaler = GradScaler("cpu", init_scale=3.7, grad_norm=True)
    scaler.scale(torch.zeros(()))
    scaler.step(torch.optim.SGD([w], lr=0.0))
    a = torch.randn(200, 900, generator=generator).half()
    out = _products.product(a, a.t(), torch.empty(200, 200, dtype=torch.float16))
    return w.grad.numpy().tobytes(), scaler.last, out.numpy().tobytes()


@needs_openmp
def test_the_bits_are_those_of_the_librarys_own_pool(monkeypatch):
    before = torch.get_num_threads()
    seen = []
    try:
        for threads, address in ((2, _threads._address), (5, _threads._address), (2, None), (1, None)):
            torch.set_num_threads(threads)
            monkeypatch.setattr(_threads, "_address", address)
            seen.append(results())
    finally:
        torch.set_num_threads(before)
    assert all(each == seen[0] for each in seen)


def test_a_forked_child_goes_on():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        want = results()
        child = os.fork()
        if child == 0:
            os._exit(0 if _threads._address is None and unscaled(3_000_001) == 0.5 else 1)
        end = time.monotonic() + 100
        done = (0, 0)
        while done == (0, 0) and time.monotonic() < end:
            done = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if done == (0, 0):
            os.kill(child, 9)
            os.waitpid(child, 0)
        assert done == (child, 0)
        assert results() == want
    finally:
        torch.set_num_threads(before)


def unscaled(count):
    """By the library alone: torch's own loops would wait for threads that a child does not have."""
    values = (ctypes.c_float * count)(*([1.0] * count))
    tensor, stats = _lib.Tensor(ctypes.addressof(values), count, _lib.F32), _lib.Stats()
    _threads.context(2).run(_lib.lib.gs_tensors_scale, ctypes.addressof(tensor), 1, 0.5, ctypes.byref(stats))
    return values[count - 1]
