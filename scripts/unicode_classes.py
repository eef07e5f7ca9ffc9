#!/usr/bin/env python3
"""Writes src/io/bpe/unicode_classes.c: letters, numbers and white space of Unicode 16.0.0.

    python3 -m venv build/unicode && build/unicode/bin/pip install unicodedata2==16.0.0
    build/unicode/bin/python scripts/unicode_classes.py >src/io/bpe/unicode_classes.c

The version is that of Oniguruma in Hugging Face's tokenizers 0.21 and later: another one gives other tokens. Python
3.14 has it without the package.
"""
import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

VERSION = "16.0.0"
OTHER, LETTER, NUMBER, SPACE = range(4)  # gsi_char_class
BLOCK = 256  # code points; 4 to a byte


def class_of(code):
    category = unicodedata.category(chr(code))
    if category[0] == "L":
        return LETTER
    if category[0] == "N":
        return NUMBER
    # the property White_Space: separators, and six controls
    if category[0] == "Z" or code in (9, 10, 11, 12, 13, 0x85):
        return SPACE
    return OTHER


def rows(values, per_row, form):
    values = list(values)
    for i in range(0, len(values), per_row):
        print("    " + " ".join(form % v + "," for v in values[i:i + per_row]))


def main():
    if unicodedata.unidata_version != VERSION:
        sys.exit(f"unicode_classes.py: this Python has Unicode {unicodedata.unidata_version}, not {VERSION}")
    blocks, index = {}, []
    for first in range(0, 0x110000, BLOCK):
        classes = [class_of(code) for code in range(first, first + BLOCK)]
        packed = bytes(sum(classes[i + k] << 2 * k for k in range(4)) for i in range(0, BLOCK, 4))
        index.append(blocks.setdefault(packed, len(blocks)))
    print(f"/* Made by scripts/unicode_classes.py from Unicode {VERSION}. */")
    print('#include "io/bpe/unicode.h"\n')
    print("/* clang-format off */")
    print(f"const uint8_t gsi_unicode_index[{len(index)}] = {{")
    rows(index, 18, "%d")
    print("};\n")
    print(f"const uint8_t gsi_unicode_blocks[][{BLOCK // 4}] = {{")
    for packed in blocks:
        print("    {")
        rows(packed, 16, "0x%02x")
        print("    },")
    print("};")


main()
