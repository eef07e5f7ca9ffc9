#!/usr/bin/python3
"""Writes what Hugging Face and PyTorch make of small models, in their own layouts.

    tests/data/make_hf_vectors.py tests/data

    gpt2-hf.safetensors    a random GPT2LMHeadModel of two layers as save_pretrained writes it, and beside
                           the weights, as "test.ids" and "test.logits", a text and what the model says of it
    convs-pt.safetensors   Conv2d, BatchNorm2d, ReLU and MaxPool2d three times, then a Linear: the names of
                           gradscale's plain cnn; "test.x" [n, h, w, c] and "test.logits"

Made with transformers 5 and PyTorch 2 of PyPI, one thread.
"""
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel


def gpt(path):
    config = GPT2Config(vocab_size=48, n_positions=16, n_embd=32, n_layer=2, n_head=2, initializer_range=0.2)
    model = GPT2LMHeadModel(config).eval()
    for name, p in model.named_parameters():
        if p.dim() == 1:
            nn.init.normal_(p, 1.0 if "ln" in name and "weight" in name else 0.0, 0.2)
    ids = torch.randint(0, 48, (3, 12))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model.save_pretrained(folder)
        tensors = load_file(folder + "/model.safetensors")
        tensors["test.ids"] = ids.float()
        tensors["test.logits"] = model(ids).logits.contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


class Convs(nn.Module):
    def __init__(self):
        super().__init__()
        for i, (a, b) in enumerate([(2, 4), (4, 8), (8, 16)], 1):
            setattr(self, f"conv{i}", nn.Conv2d(a, b, 3, padding=1, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(b))
        self.fc = nn.Linear(16 * 2 * 1, 5)

    def forward(self, x):
        for i in 1, 2, 3:
            x = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x))
            x = nn.functional.max_pool2d(torch.relu(x), 2)
        return self.fc(x.flatten(1))


def convs(path):
    model = Convs().train()
    x = torch.randn(3, 2, 16, 8)
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, 2, 16, 8) * 2 + 1)  # running statistics that are not those of a beginning
        model.eval()
        tensors = {name: p.clone() for name, p in model.state_dict().items()}
        tensors["test.x"] = x.permute(0, 2, 3, 1).contiguous()
        tensors["test.logits"] = model(x)
    save_file(tensors, path, metadata={"format": "pt"})


torch.set_num_threads(1)
torch.manual_seed(20261118)
gpt(sys.argv[1] + "/gpt2-hf.safetensors")
convs(sys.argv[1] + "/convs-pt.safetensors")
