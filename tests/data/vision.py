"""What the scripts that write the vectors of torchvision's models share; tests/support/against_torchvision.h has the
same in C."""
import numpy
import torch


def number(tensor, count):
    """count numbers from -1 to 1, a function of the tensor's index and their own."""
    x = numpy.arange(count, dtype=numpy.uint32) * numpy.uint32(2654435761)
    x ^= numpy.uint32(tensor * 2246822519 & 0xFFFFFFFF)
    x ^= x >> numpy.uint32(15)
    x *= numpy.uint32(2246822519)
    x ^= x >> numpy.uint32(13)
    return (x >> numpy.uint32(8)).astype(numpy.float64) / 2**23 - 1


def images(batch, side):
    x = (2 * number(1000, batch * side * side * 3)).astype(numpy.float32)
    return torch.from_numpy(x.reshape(batch, side, side, 3)).permute(0, 3, 1, 2).contiguous()


def sample(grad, most):
    """At most so many elements of a gradient, spread over it in PyTorch's order."""
    flat, n = grad.detach().double().flatten(), min(most, grad.numel())
    return flat[[(i * flat.numel() // n + 7 * i) % flat.numel() for i in range(n)]].clone()


def distance(got, want):
    return [((g - w).norm() / w.norm()).item() for g, w in zip(got, want)]


def write(path, parts):
    with open(path, "wb") as out:
        for part in parts:
            out.write(numpy.asarray(part).astype("<f4").tobytes())
