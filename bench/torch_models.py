"""The models of `gradscale bench step` in PyTorch, and a worker that trains one: see torch_step.py.

    torch_models.py MODEL PRECISION eager|compile THREADS

It runs a training step for each line it reads and answers with a line of JSON: its seconds, the weights, the
peak resident set in bytes, and what that was before the model was made.
"""
import collections
import json
import sys
import time

Model = collections.namedtuple("Model", "ours make batch time")


# ---- the models, as src/train/model_*.c has them ----

def gpt(vocabulary, layers, heads, width):
    def make(batch, time_steps):
        import torch
        from torch import nn
        from torch.nn import functional

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
                self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
                self.gelu = nn.GELU(approximate="tanh")

            def attention(self, x):
                q, k, v = (part.view(batch, time_steps, heads, -1).transpose(1, 2)
                           for part in self.c_attn(x).split(width, dim=2))
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                return self.c_proj(y.transpose(1, 2).reshape(batch, time_steps, width))

            def forward(self, x):
                x = x + self.attention(self.ln_1(x))
                return x + self.mlp_proj(self.gelu(self.c_fc(self.ln_2(x))))

        class Gpt(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(time_steps, width)
                self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
                self.ln_f = nn.LayerNorm(width)
                self.register_buffer("positions", torch.arange(time_steps), persistent=False)

            def forward(self, ids):
                x = self.ln_f(self.blocks(self.wte(ids) + self.wpe(self.positions)))
                return functional.linear(x, self.wte.weight).flatten(0, 1)

        ids = torch.randint(vocabulary, (batch, time_steps))
        return Gpt(), ids, torch.randint(vocabulary, (batch * time_steps,))
    return make


def cnn(batch, _):
    import torch
    from torch import nn
    parts, channels = [], 1
    for filters in 32, 64, 128:
        parts += [nn.Conv2d(channels, filters, 3, padding=1, bias=False),
                  nn.BatchNorm2d(filters), nn.ReLU(), nn.MaxPool2d(2)]
        channels = filters
    net = nn.Sequential(*parts, nn.Flatten(), nn.Linear(channels * 9, 10))
    images = torch.randn(batch, 1, 28, 28).to(memory_format=torch.channels_last)
    return net.to(memory_format=torch.channels_last), images, torch.randint(10, (batch,))


def resnet18(batch, _):
    """As torchvision builds it, without needing the package."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, channels, width, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or channels != width:
                self.downsample = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False),
                                                nn.BatchNorm2d(width))

        def forward(self, x):
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            return self.relu(y + (self.downsample(x) if self.downsample else x))

    parts = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
             nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width in 64, 128, 256, 512:
        parts += [Block(channels, width, 1 if width == 64 else 2), Block(width, width, 1)]
        channels = width
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 200))
    images = torch.randn(batch, 3, 64, 64).to(memory_format=torch.channels_last)
    return net.to(memory_format=torch.channels_last), images, torch.randint(200, (batch,))


def mlp(batch, _):
    import torch
    from torch import nn
    net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                        nn.Linear(512, 10))
    return net, torch.randn(batch, 784), torch.randint(10, (batch,))


MODELS = {
    "gpt-mini": Model("gpt-mini", gpt(128, 6, 6, 384), 4, 256),
    "gpt-mini-1024": Model("gpt-mini", gpt(128, 6, 6, 384), 1, 1024),
    "gpt-mini-2048": Model("gpt-mini", gpt(128, 6, 6, 384), 1, 2048),
    "gpt2": Model("gpt2", gpt(50257, 12, 12, 768), 4, 256),
    "cnn": Model("cnn", cnn, 64, 0),
    "resnet18": Model("resnet18", resnet18, 32, 0),
    "mlp": Model("mlp", mlp, 64, 0),
}


# ---- the worker ----

def peak_resident():
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def training_step(model, precision, compiled):
    """A function that does one, with the gradients clipped by their norm, as the bench does it."""
    import torch
    net, x, targets = model.make(model.batch, model.time)
    optim = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    loss_of = torch.nn.CrossEntropyLoss()
    half = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    run = torch.compile(net) if compiled else net

    def step():
        optim.zero_grad()
        with torch.autocast("cpu", dtype=half, enabled=half is not None):
            loss = loss_of(run(x), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optim)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optim)
        scaler.update()

    return step, sum(p.numel() for p in net.parameters())


def main():
    name, precision, how, threads = sys.argv[1:]
    import torch
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    before = peak_resident()
    step, weights = training_step(MODELS[name], precision, how == "compile")
    for _ in sys.stdin:
        start = time.monotonic()
        step()
        seconds = time.monotonic() - start
        print(json.dumps({"seconds": seconds, "weights": weights, "resident": peak_resident(),
                          "before": before}), flush=True)


if __name__ == "__main__":
    main()
