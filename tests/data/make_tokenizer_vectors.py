#!/usr/bin/python3
"""Writes what Hugging Face's tokenizers make of texts, for tests without them.

    tests/data/make_tokenizer_vectors.py tests/data/tokenizer

    plain/tokenizer.json, vocab.json, merges.txt   500 tokens, trained on some lines in several scripts
    added.json        the 256 bytes with added tokens that strip white space, and add_prefix_space
    vectors.txt       a line per text: tokenizer, its bytes in hexadecimal ("-": none), the ids
    classes.txt       FNV-1a of the classes of all code points but surrogates, found by asking

Made with tokenizers 0.23.3 of PyPI.
"""
import os
import random
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TRAINING = """The quick brown fox jumps over the lazy dog. We'll see that they've been there, haven't they?
Der schnelle braune Fuchs springt über den faulen Hund; größer, schöner, weiter.
Быстрая коричневая лиса перепрыгивает через ленивую собаку. 素早い茶色の狐は怠け者の犬を飛び越える。
    for (size_t i = 0; i < n; i++) { sum += x[i] * 1024; }      /* 3.14159, 2.71828 */
😀😀 emoji 👩‍👩‍👧 and numbers ½ ² Ⅷ 123456\t\ttabs\r\nand lines\r\n\r\n"""

PIECES = ["the", " The", " fox", "'s", "'ll", "'RE", "'ve", "''", "a", "é", "e\u0301", "日本", "日本語", "ж", "ß", "1", "12 3",
          "½", "Ⅷ", "٣", " ", "  ", "\t", "\n", "\r\n", "\v", "\x85", "\xa0", "\u2003", "\u2028", "\u3000", "\u200b",
          "\ufeff", "!", "...", "_", "--", "\0", "\x1b", "\x7f", "😀", "👩‍👩‍👧", "\U0001F1E9", "\u0301", "<|endoftext|>",
          "<|endoftext|", "<|", "\U0010FFFF", "\U000E0001", "x"]


def train(folder):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([TRAINING * 2], trainers.BpeTrainer(
        vocab_size=500, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    os.makedirs(folder, exist_ok=True)
    t.save(folder + "/tokenizer.json", pretty=False)
    t.model.save(folder)
    return t


def add(path):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t.add_tokens([AddedToken("the", normalized=True, lstrip=True), AddedToken("日本", rstrip=True), AddedToken("日本語"),
                  AddedToken("\u3000x", rstrip=True), AddedToken("12", lstrip=True, rstrip=True)])
    t.add_special_tokens([AddedToken("<|endoftext|>", lstrip=True), AddedToken("<|", rstrip=True)])
    t.save(path, pretty=False)
    return t


def texts():
    rng = random.Random(1)
    yield ""
    yield from PIECES
    for n in (127, 128, 129, 1000):
        yield "a" * n
        yield " " * n + "a"
        yield "thefox" * (n // 6) + "e"
    yield TRAINING
    for _ in range(400):
        yield "".join(rng.choice(PIECES) for _ in range(rng.randrange(2, 9)))
    for _ in range(100):
        yield "".join(chr(rng.choice((rng.randrange(0x250), rng.randrange(0x250, 0xD800),
                                      rng.randrange(0xE000, 0x110000)))) for _ in range(rng.randrange(1, 12)))


def class_of(pre, code):
    for number, before in (1, "a"), (2, "1"), (0, "!"):
        if len(pre.pre_tokenize_str(before + chr(code))) == 1:
            return number
    return 3


def main(folder):
    made = {"plain": train(folder + "/plain"), "added": add(folder + "/added.json")}
    with open(folder + "/vectors.txt", "w") as f:
        for text in texts():
            for name, t in made.items():
                print(name, text.encode().hex() or "-", *t.encode(text).ids, file=f)
    pre, h = pre_tokenizers.ByteLevel(add_prefix_space=False), 0xCBF29CE484222325
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            h = (h ^ class_of(pre, code)) * 0x100000001B3 % 2 ** 64
    with open(folder + "/classes.txt", "w") as f:
        print(f"{h:016x}", file=f)


main(sys.argv[1])
