"""The graph of a quantised model: are its products those of integers, and are they the library's?

    qdq.py graph FILE.onnx N                   each of its N products with a weight reads Clip, QuantizeLinear,
                                               DequantizeLinear, and an int8 initializer per channel
    qdq.py weights FILE.onnx FILE.safetensors  the integers are those of the weights, by doc/quantize.md
    qdq.py images FILE.onnx PREDICTIONS.json IMAGES     onnxruntime finds the probabilities
    qdq.py text FILE.onnx TEXT LOSS                     or the loss

The last bits of floats can turn an activation that lies between two integers, and with it all that follows.
So nine images of ten agree to 1e-5 and all to 0.02, 99% of pixels have the same class, and a loss agrees to
1e-3.
"""
import json
import struct
import sys

MATRICES = "Conv", "Gemm", "MatMul"


# ---- the file: messages of Protocol Buffers ----

def fields(data):
    at, found = 0, {}

    def varint():
        nonlocal at
        x = shift = 0
        while True:
            byte = data[at]
            at += 1
            x |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return x
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            n = 4 if key & 7 == 5 else varint()
            value, at = data[at:at + n], at + n
        found.setdefault(key >> 3, []).append(value)
    return found


def read(path):
    """By the name of what it makes: (type, inputs, attributes). Of constants: (type, shape, bytes)."""
    with open(path, "rb") as f:
        graph = fields(fields(f.read())[7][0])
    nodes, constants = {}, {}
    for node in map(fields, graph[1]):
        ints = {a[1][0].decode(): a[3][0] for a in map(fields, node.get(5, [])) if 3 in a}
        nodes[node[2][0].decode()] = node[4][0].decode(), [x.decode() for x in node[1]], ints
    for x in map(fields, graph[5]):
        constants[x[8][0].decode()] = x[2][0], x.get(1, []), x[9][0]
    return nodes, constants


def products(path):
    """Of each: the node, what its x is made of, and the DequantizeLinear of its weight or None."""
    nodes, constants = read(path)
    for node in nodes.values():
        if node[0] not in MATRICES:
            continue
        w = node[1][1]
        while w in nodes and nodes[w][0] in ("Transpose", "Identity"):
            w = nodes[w][1][0]
        if w in constants or nodes[w][1][0] in constants:
            yield node, node[1][0], nodes.get(w)


def one(constant):
    return struct.unpack("<f" if constant[0] == 1 else "<b", constant[2])[0]


def graph(path, n):
    nodes, constants = read(path)
    found = list(products(path))
    for node, x, w in found:
        assert w and w[0] == "DequantizeLinear" and constants[w[1][0]][0] == 3, (node, w)
        codes, scale, zero = (constants[i] for i in w[1])
        assert scale[1] == zero[1] == [codes[1][w[2]["axis"]]], (scale[1], zero[1], codes[1])
        assert zero[0] == 3 and not any(zero[2]) and b"\x80" not in codes[2]
        chain = [node]
        for kind in "DequantizeLinear", "QuantizeLinear", "Clip":
            chain.append(nodes[chain[-1][1][0]])
            assert chain[-1][0] == kind, (chain, kind)
        assert chain[1][1][1:] == chain[2][1][1:] and one(constants[chain[1][1][2]]) == 0
        unit, low, high = (one(constants[i]) for i in [chain[1][1][1]] + chain[3][1][1:])
        assert low == -high and (unit == 1 if high == 0 else abs(high / unit - 127) < 1e-4), (unit, low, high)
    kinds = [node[0] for node in nodes.values()]
    integers = sum(c[0] == 3 and len(c[1]) > 1 for c in constants.values())
    counts = len(found), integers, kinds.count("QuantizeLinear"), kinds.count("DequantizeLinear") / 2
    assert counts == (int(n),) * 4, (counts, n)
    try:
        import onnx
        onnx.checker.check_model(path, full_check=True)
    except ImportError:
        pass


def weights(path, safetensors):
    import numpy
    constants, f32 = read(path)[1], numpy.float32
    with open(safetensors, "rb") as f:
        data = f.read()
    begin = 8 + int.from_bytes(data[:8], "little")
    head = json.loads(data[8:begin])
    for _, _, (_, inputs, ints) in products(path):
        name, axis = inputs[0].removesuffix(".int8"), ints["axis"]
        codes, scale = (numpy.frombuffer(constants[i][2], t) for i, t in zip(inputs, ("<i1", "<f4")))
        first, end = head[name]["data_offsets"]
        w = numpy.frombuffer(data[begin + first:begin + end], "<f4")
        w, codes = (numpy.moveaxis(x.reshape(head[name]["shape"]), axis, 0) for x in (w, codes))
        w, codes = (x.reshape(len(x), -1) for x in (w, codes))
        amax = abs(w).max(axis=1)
        none = amax <= 2.0 ** -24
        m = numpy.where(none, f32(0), f32(127) / numpy.where(none, f32(1), amax))
        assert m.dtype == f32 and numpy.array_equal(codes, numpy.rint(w * m[:, None])), name
        assert numpy.array_equal(scale, numpy.where(none, f32(1), f32(1) / numpy.where(none, f32(1), m))), name


# ---- what it computes ----

def run(path, name, x):
    """As the graph stands, and as onnxruntime optimizes it."""
    import onnxruntime
    for level in "ORT_DISABLE_ALL", "ORT_ENABLE_ALL":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        yield level, session.run(["logits"], {name: x})[0]


def images(path, predictions, images):
    import numpy
    with open(images, "rb") as f:
        data = f.read()
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(data[3])]
    x = numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    x = x.astype(numpy.float32)
    x = x[:, None] if x.ndim == 3 else numpy.ascontiguousarray(x.transpose(0, 3, 1, 2))
    with open(predictions) as f:
        theirs = json.load(f)
    assert len(theirs) == len(x), (len(theirs), len(x))
    for level, logits in run(path, "image", x):
        if logits.ndim == 4:
            ours = logits.argmax(axis=1).reshape(len(x), -1)
            same = numpy.mean([numpy.mean(ours[i] == item["pixels"]) for i, item in enumerate(theirs)])
            print(level, "equal pixels", same)
            assert same > 0.99, same
            continue
        e = numpy.exp(logits - logits.max(axis=1, keepdims=True))
        p = e / e.sum(axis=1, keepdims=True)
        off = numpy.array([max(abs(p[i, c["class"]] - c["probability"]) for c in item["classes"])
                           for i, item in enumerate(theirs)])
        print(level, "largest difference", off.max(), "within 1e-5", (off < 1e-5).mean())
        assert off.max() < 0.02 and (off < 1e-5).mean() >= 0.9, off


def text(path, text, loss):
    import numpy
    with open(text, "rb") as f:
        ids = numpy.frombuffer(f.read(), numpy.uint8).astype(numpy.int64)
    for level, logits in run(path, "ids", ids[None]):
        x = logits[0].astype(numpy.float64)
        lse = numpy.log(numpy.exp(x - x.max(axis=-1, keepdims=True)).sum(axis=-1)) + x.max(axis=-1)
        found = numpy.mean(lse[:-1] - x[numpy.arange(len(ids) - 1), ids[1:]])
        print(level, "loss", found, "not", loss)
        assert abs(found - float(loss)) < 1e-3, (found, loss)


globals()[sys.argv[1]](*sys.argv[2:])
