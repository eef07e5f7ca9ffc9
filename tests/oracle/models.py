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


def same_weights(a, b):
    from safetensors.numpy import load_file
    a, b = load_file(a), load_file(b)
    for name in a:
        if "running" not in name and "num_batches" not in name:
            assert numpy.array_equal(a[name], b[name]), name


globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
