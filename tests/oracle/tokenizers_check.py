"""Tokenizers of gradscale beside Hugging Face's.

    tokenizers_check.py text FILE [SEED]            writes a hostile text: all of Unicode, and mixtures
    tokenizers_check.py ids TOKENIZER TEXT IDS      IDS, a token file of gradscale, has the ids of TEXT
    tokenizers_check.py decode TOKENIZER TEXT       decoding gives the text back
    tokenizers_check.py merges TOKENIZER TEXT       training on TEXT gives the merges of TOKENIZER
    tokenizers_check.py make FOLDER TEXT SIZE       trains one: tokenizer.json, vocab.json and merges.txt
    tokenizers_check.py added FILE                  a tokenizer.json with added tokens that strip white space
"""
import json
import random
import struct
import sys

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

SPACES = " \t\n\r\v\f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000\u200b\ufeff"


def hostile(seed=1):
    """Everything once, then random mixtures of what a tokenizer may trip over."""
    rng = random.Random(seed)
    parts = [chr(c) + ("" if c % 16 else " 0") for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    parts += [chr(c) + ("a", "1", " ", "!")[c % 4] for c in range(0, 0x30000, 7) if not 0xD800 <= c < 0xE000]
    parts += ["'s 't 're 've 'm 'll 'd 'S 'RE 'x ''s 're've don't we'll I'd's 's", "\r\n\r\n \r\n  a", " " * 1000 + "x",
              "\n" * 500, "\t" * 300 + " a", "a" * 3000, "0123456789" * 300, "!?" * 700, "e\u0301" * 50,
              "\U0001F468\u200d\U0001F469\u200d\U0001F467 \U0001F1E9\U0001F1EA \U0001F44D\U0001F3FD", "<|endoftext|>",
              "a<|endoftext|>b <|endoftext|> <|endoftex|><|endoftext|", "\0\x01\x7f\x1b[0m"]
    words = ["the", "The", " of", "Ünïcödé", "日本語", "русский", "العربية", "हिन्दी", "ไทย", "1", "²", "Ⅷ", "½", "'", "'s",
             "'ll", "_", "--", "...", "\u0301", "\u200d", "😀", "🇩", "<|endoftext|>"] + list(SPACES)
    for _ in range(20000):
        parts.append("".join(rng.choice(words) for _ in range(rng.randrange(1, 6))))
        if rng.random() < 0.1:
            parts.append("".join(chr(rng.choice((rng.randrange(32, 0x250), rng.randrange(0x250, 0xD800),
                                                 rng.randrange(0xE000, 0x110000)))) for _ in range(rng.randrange(8))))
        if rng.random() < 0.05:
            parts.append(rng.choice(SPACES) * rng.randrange(30))
    return "".join(parts)


def read(path):
    with open(path, encoding="utf-8", newline="") as f:
        return f.read()


def load(path):
    return Tokenizer.from_file(path)


def text(path, seed="1"):
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write(hostile(int(seed)))


def ids(tokenizer, path, found):
    with open(found, "rb") as f:
        data = f.read()
    count = struct.unpack("<3i", data[:12])[2]
    ours = list(struct.unpack(f"<{count}H", data[1024:]))
    theirs = load(tokenizer).encode(read(path)).ids
    for i, (a, b) in enumerate(zip(ours, theirs)):
        assert a == b, f"token {i} is {a}, and {b} for tokenizers"
    assert len(ours) == len(theirs), (len(ours), len(theirs))
    print(f"{count} ids as those of tokenizers {tokenizers.__version__}")


def decode(tokenizer, path):
    t, whole = load(tokenizer), read(path)
    assert t.decode(t.encode(whole).ids, skip_special_tokens=False) == whole


def trained(path, size, specials):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([read(path)], trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, special_tokens=specials, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def merges_of(t):
    return [m if isinstance(m, str) else " ".join(m) for m in json.loads(t.to_str())["model"]["merges"]]


def merges(tokenizer, path):
    ours = load(tokenizer)
    theirs = merges_of(trained(path, ours.get_vocab_size() - 1, []))
    for i, (a, b) in enumerate(zip(merges_of(ours), theirs)):
        assert a == b, f"merge {i} is {a!r}, and {b!r} for tokenizers"
    assert len(merges_of(ours)) == len(theirs), (len(merges_of(ours)), len(theirs))
    print(f"{len(theirs)} merges")


def make(folder, path, size):
    t = trained(path, int(size), ["<|endoftext|>"])
    t.save(folder + "/tokenizer.json")
    t.model.save(folder)


def added(path):
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t.add_tokens([AddedToken("the", normalized=True, lstrip=True), AddedToken("日本", rstrip=True), AddedToken("日本語"),
                  AddedToken("\u3000x", rstrip=True), AddedToken("1", lstrip=True, rstrip=True)])
    t.add_special_tokens([AddedToken("<|endoftext|>", lstrip=True), AddedToken("<|", rstrip=True)])
    t.save(path)


globals()[sys.argv[1]](*sys.argv[2:])
