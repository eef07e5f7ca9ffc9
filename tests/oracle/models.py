"""Models that gradscale exported, in other programs: do they say the same? And theirs in gradscale.

    models.py onnx FILE.onnx CHECKPOINT-PREDICTIONS.json IMAGES      probabilities of all images agree
    models.py gpt FOLDER TEXT LOSS           transformers and onnxruntime find the loss of a text
    models.py make-gpt FOLDER TEXT           writes a random GPT2LMHeadModel, prints its loss of a text
    models.py llama FOLDER TEXT LOSS         transformers finds the loss of a text
    models.py make-llama FOLDER TEXT         as make-gpt, a LlamaForCausalLM
    models.py torchvision NAME FILE.safetensors CHECKPOINT-PREDICTIONS.json IMAGES MEAN INVERSE-STD
                                             torchvision's model NAME takes the weights, and agrees; vit: a
                                             VisionTransformer of the sizes in grey()
    models.py make-torchvision NAME FILE.safetensors        writes a random one for grey images
    models.py same-weights A.safetensors B.safetensors      all but running statistics are equal
    models.py make-steps FOLDER              writes FOLDER/NAME: a random mlp, cnn, resnet and fcn, and data
    models.py steps FOLDER NAME              FOLDER/NAME-PRECISION.jsonl and .safetensors, the log and the weights
                                             of ten steps of SGD, which are the sum of the gradients: at most 3
                                             times as far from PyTorch's f64 as its f32, in bf16 2 times and in
                                             fp16 as far as its bf16 autocast, resnet 2 times
"""
import gzip
import json
import sys

import numpy


def images_of(path):
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rb") as f:
        data = f.read()
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
    return numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def softmax(x):
    e = numpy.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def run_onnx(path, name, x):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {name: x})[0]


def onnx(model, predictions, images):
    x = images_of(images).astype(numpy.float32)
    x = x[:, None] if x.ndim == 3 else numpy.ascontiguousarray(x.transpose(0, 3, 1, 2))
    logits = run_onnx(model, "image", x)
    with open(predictions) as f:
        theirs = json.load(f)
    assert len(theirs) == len(x), (len(theirs), len(x))
    if logits.ndim == 4:
        ours = logits.argmax(axis=1).reshape(len(x), -1)
        same = numpy.mean([numpy.mean(ours[i] == item["pixels"]) for i, item in enumerate(theirs)])
        assert same > 0.999, same
        return
    p = softmax(logits)
    worst = max(abs(p[i, c["class"]] - c["probability"]) for i, item in enumerate(theirs) for c in item["classes"])
    assert worst < 1e-5, worst
    print("largest difference", worst)


def mean_loss(logits, ids):
    logits = numpy.asarray(logits, numpy.float64)
    top = logits.max(axis=-1, keepdims=True)
    lse = numpy.log(numpy.exp(logits - top).sum(axis=-1)) + top[..., 0]
    return float(numpy.mean(lse[:-1] - logits[numpy.arange(len(ids) - 1), ids[1:]]))


def transformers_loss(folder, ids):
    import torch
    from transformers import AutoModelForCausalLM
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    model.eval()
    with torch.no_grad():
        return mean_loss(model(torch.tensor(ids)[None]).logits[0].numpy(), ids)


def gpt(folder, model, text, loss):
    with open(text, "rb") as f:
        ids = numpy.frombuffer(f.read(), numpy.uint8).astype(numpy.int64)
    found = transformers_loss(folder, ids)
    assert abs(found - float(loss)) < 1e-5, ("transformers", found, loss)
    found = mean_loss(run_onnx(model, "ids", ids[None])[0], ids)
    assert abs(found - float(loss)) < 1e-5, ("onnxruntime", found, loss)


def make_gpt(folder, text):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=256, n_positions=64, n_embd=32, n_layer=2, n_head=2, initializer_range=0.2)
    GPT2LMHeadModel(config).save_pretrained(folder)
    with open(text, "rb") as f:
        ids = numpy.frombuffer(f.read(), numpy.uint8).astype(numpy.int64)
    print(transformers_loss(folder, ids))


def llama(folder, text, loss):
    with open(text, "rb") as f:
        ids = numpy.frombuffer(f.read(), numpy.uint8).astype(numpy.int64)
    found = transformers_loss(folder, ids)
    assert abs(found - float(loss)) < 1e-5, (found, loss)
    with open(folder + "/config.json") as f:
        assert json.load(f)["architectures"] == ["LlamaForCausalLM"]


def make_llama(folder, text):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=256, max_position_embeddings=64, hidden_size=32, intermediate_size=88,
                         num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
                         initializer_range=0.2, tie_word_embeddings=False, rope_parameters={
                             "rope_type": "default", "rope_theta": 500000.0})
    LlamaForCausalLM(config).save_pretrained(folder)
    with open(text, "rb") as f:
        ids = numpy.frombuffer(f.read(), numpy.uint8).astype(numpy.int64)
    print(transformers_loss(folder, ids))


def grey(name):
    import torch
    import torchvision
    if name == "vit":
        model = torchvision.models.VisionTransformer(8, 2, 2, 4, 32, 48, num_classes=10)
        model.conv_proj = torch.nn.Conv2d(1, 32, 2, 2)
        for p in model.class_token, model.heads.head.weight, model.heads.head.bias:
            torch.nn.init.normal_(p)  # zeros would hide what is done with them
        return model
    model = getattr(torchvision.models, name)(num_classes=10)
    model.conv1 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    return model


def torchvision(name, weights, predictions, images, mean, inverse_std):
    import torch
    from safetensors.torch import load_file
    model = grey(name)
    model.load_state_dict(load_file(weights), strict=True)
    x = (images_of(images).astype(numpy.float32)[:, None] - float(mean)) * float(inverse_std)
    with torch.no_grad():
        p = softmax(model.eval()(torch.from_numpy(x.astype(numpy.float32))).numpy())
    with open(predictions) as f:
        theirs = json.load(f)
    worst = max(abs(p[i, c["class"]] - c["probability"]) for i, item in enumerate(theirs) for c in item["classes"])
    assert len(theirs) == len(x) and worst < 1e-5, worst


def make_torchvision(name, path):
    import torch
    from safetensors.torch import save_file
    torch.manual_seed(1)
    save_file({k: v.contiguous() for k, v in grey(name).state_dict().items()}, path)


STEPS, RATE, BATCH = 10, 0.003, 32
SIZES = {"mlp": (4, 6), "cnn": (8, 16), "resnet": (8, 8), "fcn": (6, 5)}


def own(name):
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, n, out):
            super().__init__()
            stride = 1 if n == out else 2
            self.conv1, self.bn1 = nn.Conv2d(n, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
            self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
            if stride > 1:
                self.downsample = nn.Sequential(nn.Conv2d(n, out, 1, stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x):
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            h, w = SIZES[name]
            if name == "mlp":
                self.layers = nn.ModuleList([nn.Linear(3 * h * w, 16), nn.Linear(16, 8), nn.Linear(8, 3)])
            elif name == "fcn":
                self.conv1, self.conv2, self.conv3 = (nn.Conv2d(n, m, 3, 1, 1) for n, m in ((3, 6), (6, 6), (6, 3)))
            elif name == "cnn":
                for i in range(3):
                    setattr(self, f"conv{i + 1}", nn.Conv2d(4 << i - 1 if i else 3, 4 << i, 3, 1, 1, bias=False))
                    setattr(self, f"bn{i + 1}", nn.BatchNorm2d(4 << i))
                self.fc = nn.Linear(16 * (h // 8) * (w // 8), 3)
            else:
                self.conv1, self.bn1 = nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
                for i, (n, out) in enumerate(((4, 4), (4, 8), (8, 16))):
                    setattr(self, f"layer{i + 1}", nn.Sequential(Block(n, out), Block(out, out)))
                self.fc = nn.Linear(16, 3)

        def forward(self, x):
            if name == "mlp":
                x = x.permute(0, 2, 3, 1).flatten(1)
                for layer in self.layers[:-1]:
                    x = torch.relu(layer(x))
                return self.layers[-1](x)
            if name == "fcn":
                return self.conv3(torch.relu(self.conv2(torch.relu(self.conv1(x)))))
            if name == "cnn":
                for i in "123":
                    x = torch.max_pool2d(torch.relu(getattr(self, "bn" + i)(getattr(self, "conv" + i)(x))), 2)
                return self.fc(x.flatten(1))
            x = self.layer3(self.layer2(self.layer1(torch.relu(self.bn1(self.conv1(x))))))
            return self.fc(x.mean((2, 3)))

    return Net()


def make_steps(folder):
    import os
    import torch
    from safetensors.torch import save_file
    torch.manual_seed(1)
    random = numpy.random.default_rng(2)
    for name, (h, w) in SIZES.items():
        os.makedirs(f"{folder}/{name}")
        save_file({k: v.contiguous() for k, v in own(name).state_dict().items()}, f"{folder}/{name}/model.safetensors")
        y = random.integers(0, 3, (BATCH, h, w) if name == "fcn" else BATCH)
        x = random.normal(size=(BATCH, h, w, 3)) + (y[..., None] if name == "fcn" else y[:, None, None, None])
        for split in "train", "test":
            numpy.save(f"{folder}/{name}/x_{split}.npy", x.astype(numpy.float32))
            numpy.save(f"{folder}/{name}/y_{split}.npy", y)


def run_steps(name, folder, dtype, autocast):
    import torch
    from safetensors.torch import load_file
    model = own(name)
    model.load_state_dict(load_file(folder + "/model.safetensors"))
    model.to(dtype).train()
    x = torch.from_numpy(numpy.load(folder + "/x_train.npy")).permute(0, 3, 1, 2).to(dtype)
    y = torch.from_numpy(numpy.load(folder + "/y_train.npy"))
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    losses = []
    for _ in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = {k: v.detach().double().numpy() for k, v in model.state_dict().items() if "num_batches" not in k}
    return numpy.array(losses), weights


def steps(folder, name):
    import torch
    from safetensors.numpy import load_file
    true_losses, true = run_steps(name, f"{folder}/{name}", torch.float64, False)

    def off(x):
        return sum(((x[k] - true[k]) ** 2).sum() for k in true) ** 0.5
    # a relu that a rounding turns makes much of itself in a residual net of a few filters
    for precision, factor in ("fp32", 3), ("bf16", 2), ("fp16", 2 if name == "resnet" else 1):
        losses, weights = run_steps(name, f"{folder}/{name}", torch.float32, precision != "fp32")
        with open(f"{folder}/{name}-{precision}.jsonl") as f:
            ours = [line["loss"] for line in map(json.loads, f) if "step" in line and "event" not in line]
        assert len(ours) == STEPS, ours
        worst, bound = abs(numpy.array(ours) - true_losses).max(), abs(losses - true_losses).max()
        ours = load_file(f"{folder}/{name}-{precision}.safetensors")
        assert set(ours) == set(true), set(ours) ^ set(true)
        print(f"{name} {precision}: losses {worst / bound:.2f} times as far, weights {off(ours) / off(weights):.2f}")
        assert worst <= factor * bound and off(ours) <= factor * off(weights), (worst, bound)


def same_weights(a, b):
    from safetensors.numpy import load_file
    a, b = load_file(a), load_file(b)
    for name in a:
        if "running" not in name and "num_batches" not in name:
            assert numpy.array_equal(a[name], b[name]), name


globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
