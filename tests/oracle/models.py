"""Models that gradscale exported, in other programs: do they say the same? And theirs in gradscale.

    models.py onnx FILE.onnx CHECKPOINT-PREDICTIONS.json IMAGES      probabilities of all images agree
    models.py gpt FOLDER TEXT LOSS           transformers and onnxruntime find the loss of a text
    models.py make-gpt FOLDER TEXT           writes a random GPT2LMHeadModel, prints its loss of a text
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
    x = images_of(images).astype(numpy.float32)[:, None]
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
    from transformers import GPT2LMHeadModel
    model, info = GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
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


globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
