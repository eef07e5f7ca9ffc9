"""gradscale.advise says what the program says."""
import json
import pathlib
import subprocess

import pytest

import gradscale
from gradscale import advise

np = pytest.importorskip("numpy")
DATA = pathlib.Path(__file__).parents[2] / "tests" / "data"


def hostile():
    rng = np.random.default_rng(1)
    yield "normal", rng.normal(size=5000).astype(np.float32) * 1e-6
    yield "halves", (rng.normal(size=5000) * 1e-4).astype(np.float16)
    yield "doubles", rng.normal(size=5000) * np.exp(rng.normal(size=5000) * 20)
    yield "beyond f32", np.array([1e300, 1e-300, 1.0])
    yield "nan", np.array([[1e-7, np.nan], [np.inf, 2.0]], np.float32)
    yield "zeros", np.zeros(7, np.float32)
    yield "large", np.array([1e6, 3.0], np.float32)
    yield "strided", np.asfortranarray(rng.normal(size=(60, 70)) * 1e-9)
    for path in sorted(DATA.glob("verdict_*.npy")):
        yield path.stem, np.load(path)


@pytest.mark.parametrize("name, x", list(hostile()), ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("margin", [0, 2, 9])
def test_as_the_program(name, x, margin, program, tmp_path):
    np.save(tmp_path / "x.npy", x)
    command = [program, "advise", "--json", "--margin", str(margin), str(tmp_path / "x.npy")]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ours, total = advise(x, margin=margin), told["total"]
    assert ours.verdict == told["advice"]["verdict"]
    log2 = told["advice"]["log2_scale"]
    assert ours.scale == (None if log2 is None else 2.0**log2)
    assert (ours.elements, ours.zero, ours.inf, ours.nan) == tuple(total[k] for k in ("elements", "zero", "inf", "nan"))
    nonzero = ours.elements - ours.zero - ours.inf - ours.nan
    for half, shares in (("fp16", ours.f16), ("bf16", ours.bf16)):
        for key, mine in (("flushed", "underflow"), ("subnormal", "subnormal"), ("overflow", "overflow")):
            assert total[half][key] == [round(getattr(s, mine) * nonzero) for s in shares]
    if told["first_nonfinite"]:
        assert np.ravel_multi_index(ours.bad[1], x.shape) == told["first_nonfinite"]["index"]
    assert str(ours) and eval(ours.code("cpu"), {"torch": FakeTorch})


class FakeTorch:
    class amp:
        @staticmethod
        def GradScaler(device, init_scale=65536.0, enabled=True):
            return init_scale > 0


def test_a_model_and_the_line_to_paste():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 4)
    with pytest.raises(ValueError, match="after backward"):
        advise(model)
    (model(torch.ones(1, 4)).sum() * 1e-9).backward()
    advice = advise(model)
    assert advice.verdict in ("scale", "too_small") and advice.lost == 1.0 and advice.lost_scaled < 0.01
    scaler = eval(advice.code("cpu"), {"torch": torch})
    assert scaler.get_scale() == advice.scale
    model.weight.grad[1, 2] = float("nan")
    assert advise(model).bad == ("weight", (1, 2))
    assert advise({k: v for k, v in model.state_dict().items()}).elements == 20
    with pytest.raises(gradscale.GradscaleError):
        advise(model, margin=99)
