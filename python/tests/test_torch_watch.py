"""watch(): a log that the program reads, counts that are right, and nothing left behind."""
import json
import math
import pickle
import subprocess
import time

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import gradscale  # noqa: E402
from gradscale.torch import GradScaler, watch  # noqa: E402


def run(scaler, log, steps=25, every=10, dtype=torch.float16, factor=1.0, bad=7, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 16), nn.GELU(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.randn(32, 1, 4, 4), torch.randint(4, (32,))
    with watch(net, scaler, log, every=every, **options) as watcher:
        for i in range(steps):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
                loss = nn.functional.cross_entropy(net(x).float(), y) * factor
            scaler.scale(loss).backward()
            if i == bad:
                net[3].weight.grad[0, 0] = math.inf
            scaler.step(optimizer)
            scaler.update()
    return watcher, [json.loads(line) for line in open(log)]


@pytest.mark.parametrize("make", [torch.amp.GradScaler, GradScaler])
def test_the_program_reads_it(make, tmp_path, program):
    log = tmp_path / "run.jsonl"
    watcher, lines = run(make("cpu"), log)
    steps = [line for line in lines if "event" not in line]
    assert [line["step"] for line in steps] == list(range(1, 26))
    assert [line["step"] for line in lines if line.get("event") == "layers"] == [1, 11, 21]
    assert [line["found_inf"] for line in steps] == [i == 7 for i in range(25)]
    assert steps[8]["scale"] == steps[7]["scale"] / 2 and steps[0]["lr"] == 1e-3
    names = [layer["name"] for layer in lines[2]["layers"]]
    assert sorted(names) == ["0.weight", "3.weight", "5.weight"]
    end = lines[-1]
    assert (end["event"], end["applied"], end["skipped"], end["status"]) == ("end", 24, 1, "done")
    page = tmp_path / "report.html"
    told = subprocess.run([program, "report", log, "--output", page], check=True, capture_output=True, text=True).stdout
    html = page.read_text()
    assert "3.weight" in html and "could not be read" not in told
    replay = subprocess.run([program, "replay", "--policy", "pytorch", log], check=True, capture_output=True, text=True)
    assert "32768" in replay.stdout


def reference(net, x, g_out):
    """What one Linear layer stores in f16, counted by hand."""
    exact = [g_out.double() @ net.weight.detach().half().double(), g_out.double().t() @ x.half().double()]
    values = torch.cat([e.flatten() for e in exact])
    stored = values.float().half()
    nonzero = values != 0
    return {
        "elements": values.numel(),
        "flushed": ((stored == 0) & nonzero).sum().item() / nonzero.sum().item(),
        "subnormal": ((stored != 0) & (stored.abs() < 2**-14)).sum().item() / nonzero.sum().item(),
    }


@pytest.mark.parametrize("scale", [1.0, 256.0, 65536.0])
def test_the_counts_are_those_of_rounding(scale, tmp_path):
    torch.manual_seed(1)
    net = nn.Linear(40, 30)
    x = torch.randn(50, 40, requires_grad=True)
    weight = torch.randn(50, 30) * torch.exp(4 * torch.randn(50, 30)) * 1e-8
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=scale), torch.optim.SGD(net.parameters(), lr=0.0)
    kept = []
    with watch(net, scaler, tmp_path / "log", every=1):
        with torch.autocast("cpu", dtype=torch.float16):
            out = net(x)
        out.register_hook(lambda g: kept.append(g.clone()))
        scaler.scale((out.float() * weight).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    lines = [json.loads(line) for line in open(tmp_path / "log")]
    row = next(line for line in lines if line.get("event") == "layers")["layers"][0]
    want = reference(net, x.detach(), kept[0])
    for key, value in want.items():
        assert row[key] == pytest.approx(value, abs=2e-3), key
    assert row["flushed"] > 0 or scale > 1
    histogram = next(line for line in lines if line.get("event") == "exponents")["layers"][0]
    assert sum(histogram["counts"]) + histogram["zero"] + histogram["bad"] == 50 * 40


def test_a_run_in_f32_tells_what_half_would_lose(tmp_path):
    _, lines = run(torch.amp.GradScaler("cpu", init_scale=1.0), tmp_path / "log", dtype=torch.float32, factor=1e-7, bad=-1)
    assert lines[1]["underflow"] > 0.1
    _, lines = run(torch.amp.GradScaler("cpu"), tmp_path / "log", dtype=torch.float32, factor=1e-7, bad=-1)
    assert lines[1]["underflow"] < 0.1


def test_nothing_is_changed_and_nothing_is_left(tmp_path):
    def train(watched):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1), GradScaler("cpu", growth_interval=3)
        watcher = watch(net, scaler, tmp_path / "log", every=2) if watched else None
        for _ in range(9):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = net(torch.ones(4, 8)).float().pow(2).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        if watcher:
            assert pickle.loads(pickle.dumps(scaler)).get_scale() == scaler.get_scale()
            watcher.close()
            watcher.close()
            assert not any(m._forward_hooks for m in net.modules())
            assert not {"scale", "step", "update", "__getstate__"} & set(scaler.__dict__)
        return [p.tolist() for p in net.parameters()], scaler.get_scale()

    assert train(False) == train(True)


def test_a_log_goes_on(tmp_path, program):
    log = tmp_path / "log"
    run(GradScaler("cpu"), log, steps=5)
    with open(log, "a") as file:
        file.write('{"step": 6, "lo')  # the process was killed here
    _, lines = run(GradScaler("cpu"), log, steps=5, resume=True)
    assert [line["step"] for line in lines if "event" not in line] == list(range(1, 11))
    assert sum(line.get("event") == "run" for line in lines) == 1
    assert [line for line in lines if line.get("event") == "resume"] == [{"event": "resume", "step": 5, "from": str(log)}]
    _, lines = run(GradScaler("cpu"), log, steps=3, resume=7)  # a checkpoint of step 7: 8 to 10 are void
    assert [line["step"] for line in lines if "event" not in line] == [*range(1, 11), 8, 9, 10]
    page = tmp_path / "r.html"
    subprocess.run([program, "report", log, "--output", page], check=True)
    assert "resumed 2 times" in page.read_text()


@pytest.mark.parametrize("text", ["my notes\nand more\n", "my notes", '{"event": "run"}\nmine\n', "[1]\n", '{"step": 3}\n'])
def test_what_is_no_log_is_not_touched(text, tmp_path):
    other = tmp_path / "notes.txt"
    other.write_text(text)
    with pytest.raises(gradscale.GradscaleError, match="no log"):
        watch(nn.Linear(2, 2), torch.amp.GradScaler("cpu"), other, resume=True)
    assert other.read_text() == text


def test_between_watched_steps_a_step_costs_a_line(tmp_path):
    """Less than 2% at the default N: no hooks are there, and a line takes microseconds."""
    net, scaler = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), GradScaler("cpu")
    optimizer, lines = torch.optim.SGD(net.parameters(), lr=0.1), []
    with watch(net, scaler, tmp_path / "log"):
        for i in range(300):
            hooks = sum(len(module._forward_hooks) for module in net.modules())
            assert hooks == (2 if i % 100 == 0 else 0)
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(4, 8)).sum()).backward()
            scaler.step(optimizer)
            before = time.perf_counter()
            scaler.update()
            lines.append(time.perf_counter() - before)
    assert sorted(lines)[len(lines) // 2] < 1e-3


def test_mistakes():
    net, scaler = nn.Linear(2, 2), torch.amp.GradScaler("cpu")
    for wrong in ({"every": 0}, {"half": "f8"}, {"resume": -1}):
        with pytest.raises(ValueError):
            watch(net, scaler, "/dev/null", **wrong)
    with pytest.raises(TypeError):
        watch(net, "scaler", "/dev/null")
    with pytest.raises(OSError):
        watch(net, scaler, "/no/such/folder/log")
    with watch(net, scaler, "/dev/null"), pytest.raises(ValueError, match="watched already"):
        watch(net, scaler, "/dev/null")
