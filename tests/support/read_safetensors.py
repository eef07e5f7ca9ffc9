"""read_safetensors.py layout FILE: reads a checkpoint as any tool for safetensors would, with nothing but Python's
own library; exits 1 with an error message unless the layout is what the format and doc/checkpoint.md say.
read_safetensors.py library FILE: Python's library safetensors finds the same tensors."""
import json
import struct
import sys

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1}
MASK = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rotl(x, n):
    return (x << n | x >> (64 - n)) & MASK


def mix(lane, word):
    return rotl((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data):
    lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
    whole = len(data) // 32 * 32
    for i, (word,) in enumerate(struct.iter_unpack("<Q", data[:whole])):
        lanes[i % 4] = mix(lanes[i % 4], word)
    h = P5
    if whole:
        h = sum(rotl(v, n) for v, n in zip(lanes, (1, 7, 12, 18))) & MASK
        for v in lanes:
            h = ((h ^ mix(0, v)) * P1 + P4) & MASK
    h = (h + len(data)) & MASK
    rest = data[whole:]
    while len(rest) >= 8:
        h = (rotl(h ^ mix(0, struct.unpack("<Q", rest[:8])[0]), 27) * P1 + P4) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        h = (rotl(h ^ struct.unpack("<I", rest[:4])[0] * P1 & MASK, 23) * P2 + P3) & MASK
        rest = rest[4:]
    for byte in rest:
        h = rotl(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def no_twins(pairs):
    assert len({k for k, _ in pairs}) == len(pairs), "a name comes twice"
    return dict(pairs)


reader, path = sys.argv[1:]
with open(path, "rb") as file:
    data = file.read()
(length,) = struct.unpack("<Q", data[:8])
assert (8 + length) % 64 == 0, "the data are not aligned to 64 bytes"
header = json.loads(data[8:8 + length].decode("utf-8"), object_pairs_hook=no_twins)
metadata = header.pop("__metadata__")
assert all(isinstance(v, str) for v in metadata.values()), "metadata that are no text"
assert metadata["format"] == "pt" and metadata["gradscale_checkpoint"] == "1"

at = 0
for name, info in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    begin, end = info["data_offsets"]
    count = 1
    for n in info["shape"]:
        count *= n
    assert set(info) == {"dtype", "shape", "data_offsets"}, name
    assert begin == at, "a hole or an overlap before " + name
    assert end - begin == count * SIZES[info["dtype"]], "the size of " + name
    assert begin % SIZES[info["dtype"]] == 0, "the alignment of " + name
    at = end
assert at == len(data) - 8 - length, "bytes of no tensor"
assert name == "gradscale.xxh64", "the last tensor is " + name
assert struct.unpack("<Q", data[-8:])[0] == xxh64(data[:-8]), "the checksum"

if reader == "library":
    from safetensors import safe_open
    with safe_open(path, framework="np") as tensors:
        assert set(tensors.keys()) == set(header)
