#!/usr/bin/python3
"""Writes llama-hf.safetensors: a random LlamaForCausalLM of transformers, as save_pretrained writes it, and what
PyTorch makes of it: logits, gradients, ten steps of AdamW.

    tests/data/make_llama_vectors.py tests/data/llama-hf.safetensors

The truth is PyTorch in f64; beside it stands how far PyTorch's own f32, and its bf16 autocast, are from it.
tests/unit/test_llama.c holds gradscale to those distances. Besides the weights, all in f32:

    test.ids, test.targets [BATCH, TIME]         a target of -1 is left out
    test.logits [BATCH, TIME, VOCABULARY]        of f64; test.logits_error: the largest error of f32
    grad.NAME                                    of f64
    error.NAME [2]                               norm of the error over norm of the gradient: f32, bf16
    test.losses [3, STEPS]                       f64, f32, bf16 autocast

Made with transformers 5.23 and PyTorch 2.15 of PyPI, one thread.
"""
import copy
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, TIME, STEPS, VOCABULARY = 3, 12, 10, 48


class Run:
    def __init__(self, model, ids, targets, dtype, autocast):
        model = copy.deepcopy(model).to(dtype)
        w = dict(model.named_parameters())
        optim = torch.optim.AdamW([{"params": [p for p in w.values() if p.dim() > 1], "weight_decay": 0.1},
                                   {"params": [p for p in w.values() if p.dim() == 1], "weight_decay": 0}],
                                  lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
        self.losses = []
        for step in range(STEPS):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                logits = model(ids, use_cache=False).logits
            wide = logits if dtype == torch.float64 else logits.float()
            loss = functional.cross_entropy(wide.flatten(0, 1), targets.flatten(), ignore_index=-1)
            optim.zero_grad()
            loss.backward()
            if step == 0:
                self.logits = wide.detach().double()
                self.grads = {name: p.grad.double().clone() for name, p in w.items()}
            optim.step()
            self.losses.append(loss.item())


def main(path):
    torch.set_num_threads(1)
    torch.manual_seed(20261118)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, max_position_embeddings=16, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, initializer_range=0.2,
        tie_word_embeddings=False, attn_implementation="eager"))
    for p in model.parameters():
        if p.dim() == 1:
            torch.nn.init.normal_(p, 1.0, 0.2)
    ids, targets = torch.randint(VOCABULARY, (2, BATCH, TIME))
    targets[1, 5] = -1
    true, f32 = Run(model, ids, targets, torch.float64, False), Run(model, ids, targets, torch.float32, False)
    bf16 = Run(model, ids, targets, torch.float32, True)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(folder + "/model.safetensors")
    for name, truth in true.grads.items():
        tensors["grad." + name] = truth.float()
        tensors["error." + name] = torch.stack([(run.grads[name] - truth).norm() / truth.norm()
                                                for run in (f32, bf16)]).float()
    tensors["test.ids"], tensors["test.targets"] = ids.float(), targets.float()
    tensors["test.logits"] = true.logits.float()
    tensors["test.logits_error"] = (f32.logits - true.logits).abs().max().float()[None]
    tensors["test.losses"] = torch.tensor([true.losses, f32.losses, bf16.losses], dtype=torch.float64).float()
    save_file({name: x.contiguous() for name, x in tensors.items()}, path, metadata={"format": "pt"})


main(*sys.argv[1:])
