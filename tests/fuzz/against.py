#!/usr/bin/env python3
"""against.py ACCEPTS [COUNT [SEED]]: our readers of npy, npz, safetensors and JSON against those of numpy, safetensors
and Python's json, on COUNT inputs each: files that are right, and changes of them. Both take a file, with the same
names, shapes and values, or both refuse it. Where we mean to differ, DIFFERENCES says how and why; these are counted.
"""
import io, json, os, random, struct, subprocess, sys, warnings, zipfile
import numpy as np
from safetensors import deserialize

warnings.simplefilter("ignore")
accepts, count, seed = sys.argv[1], int((sys.argv + [2000])[2]), int((sys.argv + [0, 1])[3])
rng = random.Random(seed)
ours = subprocess.Popen([accepts], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def ask(kind, data):
    ours.stdin.write(kind + struct.pack("<I", len(data)) + data)
    ours.stdin.flush()
    line = ours.stdout.readline().decode(errors="replace").rstrip("\n")
    if not line:
        sys.exit("FAILED: accepts has died of %r" % data)
    return (line.startswith("yes"), line.split(" ", 1)[1] if " " in line else "")

# Where we refuse what they take: a phrase of our error message, and why.
DIFFERENCES = {
    "json": [
        ("duplicate object key", "RFC 8259 leaves it open; a header or config that says two things says nothing"),
        ("an escape that is none", "half of a surrogate pair, which UTF-8 cannot have"),
        ("real number overflow", "1e999 is infinite in Python, and no number of JSON"),
        ("\\u0000", "names are C strings"),
        ("too deep", "512 levels; Python has those of its stack"),
        ("too long", "1200 characters of a number"),
    ],
    "npy": [
        ("but there are", "numpy reads an array and leaves the bytes behind it; a file is one array"),
        ("follows the dictionary", "numpy evaluates the header as Python, comments and line ends included"),
        ("dictionary", "the same: other spaces, escapes and numbers"),
        ("descr is not a type", "numpy takes arrays of arrays, and prefixes of Python's strings"),
        ("shape is not a tuple", "numpy evaluates -0 and the like"),
        ("dimensions", "at most 8"),
    ],
    "npz": [
        ("is not a sound zip file", "zipfile searches for a directory, and repairs where it begins"),
        ("differs from what the directory says", "zipfile takes the method of the directory"),
        ("overlaps what follows", "zipfile reads members that lie in each other"),
        ("bytes packed and", "zipfile reads as much as there is, and believes no size"),
        ("unpacks to more than it says", "zipfile stops where the directory says"),
        ("cannot be unpacked", "bytes of a member that zipfile does not come to"),
        ("but there are", "as of npy"),
        ("zip64 sizes", "zipfile passes over extra fields that are cut short"),
        ("checksum", "numpy does not come to the end of a member that has bytes behind its array"),
        ("is packed by method", "stored and deflated; zipfile has bzip2 and lzma besides"),
    ],
    "safetensors": [
        ("is not a .npy, .npz or", "a header begins with {, says the format; theirs takes spaces before it"),
        ("dimensions", "at most 8"),
        ("\\u0000", "names are C strings"),
        ("twice", "the last of two equal keys counts there"),
        ("an escape that is none", "half of a surrogate pair"),
    ],
}

def unread(why, said):
    """The member that numpy complains of is one that we show and never read: not .npy, or of no type for gradients."""
    name = why.split("'")[1] if why.count("'") > 1 else ""
    return (name[:-4] if name.endswith(".npy") else name).encode().hex() in \
        [w.split("=")[0] for w in said.split(" ")[1:] if w.endswith("=-")]

# Where we take what they refuse: theirs, ours.
LENIENT = {
    "json": lambda why, said: False,
    "npy": lambda why, said: said.endswith("=-"), # a type that nobody reads as gradients
    # what a reader should be able to do is a number in the file, and says nothing of it
    "npz": lambda why, said: "allow_pickle" in why or "zip file version" in why or (said.endswith("=-") or "=- " in said) and
        (unread(why, said) or "CRC" not in why),
    "safetensors": lambda why, said: False,
}

# ---- theirs ----

def bits(x):
    return "%x" % struct.unpack("<Q", struct.pack("<d", float(x)))[0]

def shown(name, a):
    """An entry as accepts shows it."""
    flat = a.ravel(order="K") if a.ndim else a.reshape(1)
    readable = a.dtype.kind == "f" and a.dtype.itemsize in (2, 4, 8)
    values = ",".join(bits(x) for x in flat[:40]) if readable else "-"
    return (name.encode().hex(), ",".join(str(n) for n in a.shape), values)

def same_values(a, b):
    if a == b:
        return True
    x, y = a.split(","), b.split(",")
    nan = lambda v: v != "-" and v != "" and (int(v, 16) & (1 << 63) - 1) > 0x7FF0000000000000
    return len(x) == len(y) and all(p == q or (nan(p) and nan(q)) for p, q in zip(x, y))

def theirs_npy(data):
    a = np.load(io.BytesIO(data), allow_pickle=False)
    if not isinstance(a, np.ndarray):
        raise ValueError("no array")
    return [shown("", a)]

def theirs_npz(data):
    with np.load(io.BytesIO(data), allow_pickle=False) as z:
        return [shown(n, z[n]) for n in z.files if isinstance(z[n], np.ndarray)]

ST = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
def theirs_safetensors(data):
    out = []
    for name, t in deserialize(data):
        if t["dtype"] in ST:
            a = np.frombuffer(bytes(t["data"]), ST[t["dtype"]])
        elif t["dtype"] == "BF16":
            a = (np.frombuffer(bytes(t["data"]), "<u2").astype("<u4") << 16).view("<f4")
        else:
            a = None
        values = "-" if a is None else ",".join(bits(x) for x in a[:40])
        out.append((name.encode().hex(), ",".join(str(n) for n in t["shape"]), values))
    return out

def constant(x):
    raise ValueError("no JSON: " + x)

def theirs_json(data):
    text = data.decode("utf-8")          # strict; json.loads would guess other encodings
    if text.startswith("\ufeff"):
        raise ValueError("a byte order mark")
    json.loads(text, parse_constant=constant)
    return []

# ---- inputs ----

def seeds(*ends):
    folder = "tests/data"
    files = [open(os.path.join(folder, n), "rb").read() for n in sorted(os.listdir(folder)) if n.endswith(ends)]
    return [f for f in files if len(f) < 4000]

def npy(a):
    b = io.BytesIO()
    np.save(b, a)
    return b.getvalue()

def npz(deflated, **arrays):
    b = io.BytesIO()
    (np.savez_compressed if deflated else np.savez)(b, **arrays)
    return b.getvalue()

def some_json(depth=0):
    r = rng.random()
    if depth < 4 and r < 0.3:
        return {rng.choice(["a", "b", "", "é", "x\ty"]) + str(i): some_json(depth + 1) for i in range(rng.randrange(4))}
    if depth < 4 and r < 0.5:
        return [some_json(depth + 1) for _ in range(rng.randrange(4))]
    return rng.choice([None, True, False, 0, -1, 1.5, 1e300, -2e-308, 12345678901234567890, "text", "\u20ac\U0001f600", "\"\\/\b"])

SEEDS = {
    "npy": seeds(".npy") + [npy(np.arange(6, dtype=t).reshape(2, 3)) for t in ("<f2", "<f4", ">f8", "<i4", "|u1")],
    "npz": seeds(".npz") + [npz(d, a=np.arange(5, dtype="f4"), b=np.float64(2)) for d in (0, 1)],
    "safetensors": seeds(".safetensors"),
    "json": [b"{}"],
}
TOKENS = {
    "npy": [b"'", b"(", b")", b",", b"True", b"False", b"<f4", b">f2", b"0", b"1", b"9" * 12, b" ", b"shape", b"descr", b"L"],
    "npz": [b"PK\1\2", b"PK\5\6", b"\0\0\0\0", b"\xff\xff\xff\xff", b"a.npy"],
    "safetensors": [b'"', b"{", b"}", b"[", b"]", b",", b":", b"F32", b"BF16", b"F64", b"0", b"-1", b"4", b"99999999999",
                    b"\\u0041", b"__metadata__", b"shape", b"data_offsets", b" "],
    "json": [b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\u00e9", b"\\ud83d\\ude00", b"\\ud800", b"\\u0000", b"\\x", b"1e5",
             b"-", b"01", b"1.", b".5", b"1e999", b"NaN", b"Infinity", b"true", b"nul", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80",
             b"\t", b"\n", b"\x0b", b'{"a":1,"a":2}', b"\xef\xbb\xbf"],
}

def change(kind, data):
    d = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        at = rng.randrange(len(d) + 1)
        how = rng.randrange(6)
        if how == 0 and at < len(d):
            d[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            d[at:at] = rng.choice(TOKENS[kind])
        elif how == 2:
            del d[at:at + rng.randrange(1, 5)]
        elif how == 3:
            token = rng.choice(TOKENS[kind])
            d[at:at + len(token)] = token
        elif how == 4 and rng.random() < 0.3:
            del d[at:]
        elif how == 5 and at < len(d):
            d[at] = rng.randrange(256)
    d = bytes(d)
    if kind == "safetensors" and len(d) > 8 and rng.random() < 0.8:      # a length that fits, so that more is read
        end = d.rfind(b"}", 8, 8 + 3000)
        if end > 0:
            d = struct.pack("<Q", end + 1 - 8) + d[8:]
    return d

# ---- compare ----

def compare(kind, data):
    """None, or the name of a difference that is meant; else an AssertionError."""
    try:
        want, why = {"npy": theirs_npy, "npz": theirs_npz, "safetensors": theirs_safetensors, "json": theirs_json}[kind](data), ""
    except RecursionError:
        return "depth"
    except Exception as e:
        want, why = None, "%s: %s" % (type(e).__name__, e)
    took, said = ask(b"j" if kind == "json" else b"t", data)
    if want is None:
        if took and not LENIENT[kind](why, said):
            raise AssertionError("we take it, they do not: %s" % why)
        return "we take more" if took else None
    if not took:
        for phrase, _ in DIFFERENCES[kind]:
            if phrase in said:
                return phrase
        raise AssertionError("they take it, we say: %s" % said)
    if kind == "json":
        return None
    words = said.split(" ")
    if words[0] != kind:
        return "another format"
    got = [tuple(w.split("=")) for w in words[1:]]
    mine = sorted(got)
    for (n, s, v), (name, shape, values) in zip(mine, sorted(want)):
        if (n, s) != (name, shape) or not same_values(v, values):
            raise AssertionError("%r, and they read %r" % ((n, s, v), (name, shape, values)))
    if len(mine) != len(want):
        raise AssertionError("%d entries, and they have %d" % (len(mine), len(want)))
    return None

failed = 0
for kind in ("json", "npy", "npz", "safetensors"):
    meant, same, taken = {}, 0, 0
    for i in range(count):
        base = json.dumps(some_json(), ensure_ascii=rng.random() < 0.5).encode() if kind == "json" else rng.choice(SEEDS[kind])
        data = change(kind, base)
        try:
            which = compare(kind, data)
        except AssertionError as e:
            failed += 1
            if failed < 30:
                print("FAILED %s: %s\n  %r" % (kind, e, data[:300]))
            continue
        if which is None:
            same += 1
        else:
            meant[which] = meant.get(which, 0) + 1
    print("%s: %d inputs, %d alike, %d differences that are meant%s" % (kind, count, same, sum(meant.values()),
          "".join("; %s: %d" % (k or "other", v) for k, v in sorted(meant.items(), key=lambda x: -x[1]))))
ours.stdin.close()
ours.wait()
sys.exit(1 if failed or ours.returncode else 0)
