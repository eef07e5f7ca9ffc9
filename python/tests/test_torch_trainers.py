"""watch() in the trainers of others: accelerate's loop, Hugging Face's Trainer, Lightning."""
import json
import math
import subprocess

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import gradscale  # noqa: E402
from gradscale.torch import GradScaler, watch  # noqa: E402


def lines_of(log):
    return [json.loads(line) for line in open(log)]


def steps_of(log):
    return [line for line in lines_of(log) if "event" not in line]


def events(log, name):
    return [line["step"] for line in lines_of(log) if line.get("event") == name]


def is_reported(log, program):
    page = log.with_suffix(".html")
    told = subprocess.run([program, "report", log, "--output", page], check=True, capture_output=True, text=True).stdout
    return "could not be read" not in told and page.exists()


@pytest.mark.parametrize("make", [torch.amp.GradScaler, GradScaler])
def test_in_an_accelerate_loop(make, tmp_path, program):
    accelerate = pytest.importorskip("accelerate")
    torch.manual_seed(0)
    net, data = nn.Linear(8, 2), [torch.randn(16, 8) for _ in range(12)]
    accelerator = accelerate.Accelerator(cpu=True)
    accelerator.scaler = make("cpu")
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    skipped = []
    with watch(net, accelerator.scaler, tmp_path / "log", every=4):
        for i, x in enumerate(data):
            optimizer.zero_grad()
            accelerator.backward(net(x).pow(2).mean())
            if i == 5:
                net.weight.grad[0, 0] = math.nan
            optimizer.step()
            skipped.append(optimizer.step_was_skipped)
    assert [line["verdict"] == "skip" for line in steps_of(tmp_path / "log")] == skipped == [i == 5 for i in range(12)]
    assert is_reported(tmp_path / "log", program)


# ---- Hugging Face ----


def trainer_of(tmp_path, scaler, steps, **options):
    """A Llama made from its config. fp16=True needs a GPU: the scaler is set, as ours is there too."""
    transformers = pytest.importorskip("transformers")
    from gradscale.torch.transformers import WatchCallback

    torch.manual_seed(0)
    config = transformers.LlamaConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                                      intermediate_size=32, vocab_size=40)  # fmt: skip
    data = [{"input_ids": ids, "labels": ids} for ids in torch.randint(40, (32, 8))]
    arguments = transformers.TrainingArguments(
        tmp_path / "out", use_cpu=True, max_steps=steps, per_device_train_batch_size=4, report_to=[], disable_tqdm=True,
        save_steps=6, logging_strategy="no", run_name="tiny", **options)  # fmt: skip
    trainer = transformers.Trainer(transformers.LlamaForCausalLM(config), arguments, train_dataset=data, eval_dataset=data[:8],
                                   callbacks=[WatchCallback(tmp_path / "log", every=4)])  # fmt: skip
    trainer.accelerator.scaler = scaler
    return trainer


@pytest.mark.parametrize("make", [torch.amp.GradScaler, GradScaler])
def test_as_a_callback_of_hugging_faces_trainer(make, tmp_path, program):
    scaler = make("cpu")
    trainer = trainer_of(tmp_path, scaler, 8, gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=4)
    weight = trainer.model.model.layers[0].mlp.up_proj.weight
    uses = []
    weight.register_hook(lambda g: (uses.append(1), g * math.nan if len(uses) == 5 else g)[1])  # in the third step
    trainer.train()
    steps = steps_of(tmp_path / "log")
    assert [line["verdict"] for line in steps] == ["apply"] * 2 + ["skip"] + ["apply"] * 5
    assert [line["scale"] for line in steps] == [65536.0] * 3 + [32768.0] * 5
    assert events(tmp_path / "log", "layers") == [1, 5] and events(tmp_path / "log", "valid") == [4, 8]
    lines = lines_of(tmp_path / "log")
    assert lines[0]["name"] == "tiny" and lines[-1]["event"] == "end" and lines[-1]["applied"] == 7
    assert "model.layers.0.mlp.up_proj.weight" in [layer["name"] for layer in lines[2]["layers"]]
    assert not {"scale", "step", "update"} & set(scaler.__dict__)
    assert is_reported(tmp_path / "log", program)


def test_a_trainer_that_goes_on_from_a_checkpoint_goes_on_with_its_log(tmp_path, program):
    trainer_of(tmp_path, GradScaler("cpu"), 8).train()
    trainer_of(tmp_path, GradScaler("cpu"), 10).train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-6"))
    assert [line["step"] for line in steps_of(tmp_path / "log")] == [*range(1, 9), *range(7, 11)]
    assert events(tmp_path / "log", "resume") == [6]
    assert is_reported(tmp_path / "log", program)


def test_a_trainer_without_a_scaler_is_told_so(tmp_path):
    with pytest.raises(gradscale.GradscaleError, match="fp16=True"):
        trainer_of(tmp_path, None, 2).train()
    assert not (tmp_path / "log").exists()


# ---- Lightning ----


def fit(tmp_path, plugins, bad=-1):
    lightning = pytest.importorskip("lightning")
    from gradscale.torch.lightning import WatchCallback

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(8, 2)

        def training_step(self, batch, i):
            if i == bad:
                raise KeyError("lost")
            return self.net(batch).float().pow(2).mean()

        def validation_step(self, batch, _):
            self.log("val_loss", self.net(batch).float().pow(2).mean())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        plugins=plugins,
        callbacks=[WatchCallback(tmp_path / "log", every=4)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = [torch.utils.data.DataLoader([torch.randn(8) for _ in range(n)], batch_size=2) for n in (24, 4)]
    trainer.fit(Net(), *data)


def mixed(scaler):
    pytest.importorskip("lightning")
    from lightning.pytorch.plugins.precision import MixedPrecision

    return [MixedPrecision("16-mixed", "cpu", scaler=scaler)]


@pytest.mark.parametrize("make", [torch.amp.GradScaler, GradScaler])
def test_as_a_callback_of_lightning(make, tmp_path, program):
    fit(tmp_path, mixed(make("cpu", init_scale=2.0**10)))
    assert [line["verdict"] for line in steps_of(tmp_path / "log")] == ["apply"] * 12
    assert events(tmp_path / "log", "layers") == [1, 5, 9] and events(tmp_path / "log", "valid") == [12]
    assert lines_of(tmp_path / "log")[-1]["status"] == "done"
    assert is_reported(tmp_path / "log", program)


def test_a_fit_that_fails_ends_its_log(tmp_path):
    scaler = GradScaler("cpu")
    with pytest.raises(KeyError):
        fit(tmp_path, mixed(scaler), bad=3)
    assert len(steps_of(tmp_path / "log")) == 3 and lines_of(tmp_path / "log")[-1]["status"] == "failed"
    assert "update" not in scaler.__dict__


def test_a_fit_without_a_scaler_is_told_so(tmp_path):
    with pytest.raises(gradscale.GradscaleError, match="16-mixed"):
        fit(tmp_path, None)
