#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes framework/data/tokens/unicode_classes.cpp, unicode_words.cpp and unicode_decompositions.cpp: the tables of
framework/data/tokens/unicode.h.

They are found by asking the package `tokenizers` about each code point, so that halfstep's ids are its ids. Run by hand where it is
installed, when it has moved to another Unicode:
    python3 scripts/make_unicode_tables.py
Python's unicodedata only proposes: what the package does not confirm is not written.
"""
import pathlib
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "framework/data"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def in_class(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return [c for c in POINTS if not split.pre_tokenize_str(chr(c))]


def runs(values):
    """Returns [(first, last, value)] of {code point: value}."""
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1 and out[-1][2] == values[c]:
            out[-1] = (out[-1][0], c, values[c])
        else:
            out.append((c, c, values[c]))
    return out


def combining_orders():
    """Returns the combining class of each mark, found by sorting it among marks whose class is known since Unicode 3.2."""
    known = {}
    for c in POINTS:
        order = unicodedata.ucd_3_2_0.combining(chr(c))
        if order and nfd(chr(c)) == chr(c):
            known.setdefault(order, chr(c))
    first, last = known[min(known)], max(known)
    out = {}
    for c in POINTS:
        mark, order = chr(c), unicodedata.combining(chr(c))
        if not order or nfd(mark) != mark:
            continue
        passes = [k for k in known if known[k] != mark and nfd(known[k] + mark) == mark + known[k]]  # greater classes
        if not passes and (order != last or nfd(mark + first) != first + mark):
            continue  # the package does not know it as a mark
        assert passes == [k for k in known if k > order], hex(c)
        out[c] = order
    return out


def decompositions():
    """Returns ([(whole, first, second)], the wholes of two that NFC does not compose). Hangul is computed by arithmetic."""
    apart, excluded = [], []
    for c in POINTS:
        parts = nfd(chr(c))
        if parts == chr(c) or 0xAC00 <= c <= 0xD7A3:
            continue
        step = [int(p, 16) for p in unicodedata.decomposition(chr(c)).split()]
        assert 1 <= len(step) <= 2 and nfd("".join(map(chr, step))) == parts, hex(c)
        apart.append((c, *step, 0)[:3])
        if len(step) == 2 and nfc(parts) != chr(c):
            excluded.append(c)
    return apart, excluded


def small_letters():
    """Returns [(first, last, step, distance)]: every step-th code point from first to last has a small letter so far from it."""
    lower = normalizers.Lowercase().normalize_str
    moves = {c: ord(lower(chr(c))) - c for c in POINTS if len(lower(chr(c))) == 1 and lower(chr(c)) != chr(c)}
    assert [c for c in POINTS if len(lower(chr(c))) != 1] == [0x130], "code points that become two"
    out = []
    for c in sorted(moves):
        row = out[-1] if out else None
        step = c - row[1] if row else 0
        if row and row[3] == moves[c] and (step == row[2] or row[0] == row[1]) and step <= 2:
            out[-1] = (row[0], c, step, row[3])
        else:
            out.append((c, c, 1, moves[c]))
    return out


def table(name, kind, rows):
    lines = ["   "]
    for row in rows:
        cell = "{" + ",".join(f"{v:#x}" if v >= 0 else str(v) for v in row) + "},"
        if len(lines[-1]) + len(cell) > 132:
            lines.append("   ")
        lines[-1] += (" " if len(lines[-1]) == 3 else "") + cell
    return f"constexpr {kind} {name}[] = {{\n" + "\n".join(lines) + "\n};\n"


def write(name, about, tables, functions):
    text = (f"// SPDX-License-Identifier: Apache-2.0\n// {about}\n// Written by scripts/make_unicode_tables.py from tokenizers "
            f"{tokenizers.__version__}.\n#include <span>\n\n#include \"framework/data/tokens/unicode.h\"\n\n"
            "namespace halfstep {\nnamespace {\n\n"
            "// clang-format off\n" + "\n".join(tables) + "// clang-format on\n\n}  // namespace\n\n")
    for function, kind, table_name in functions:
        text += f"std::span<const {kind}> {function}() {{ return {table_name}; }}\n"
    (FOLDER / name).write_text(text + "\n}  // namespace halfstep\n")


def main():
    def ranges(points):
        return [row[:2] for row in runs(dict.fromkeys(points, 0))]
    apart, excluded = decompositions()
    write("unicode_classes.cpp", "Letters, numbers, and combining classes.",
          [table("kLetters", "PointRange", ranges(in_class(r"\p{L}"))), table("kNumbers", "PointRange", ranges(in_class(r"\p{N}"))),
           table("kCombining", "CombiningRange", runs(combining_orders()))],
          [("letter_ranges", "PointRange", "kLetters"), ("number_ranges", "PointRange", "kNumbers"),
           ("combining_ranges", "CombiningRange", "kCombining")])
    write("unicode_words.cpp", "Marks, and small letters.",
          [table("kMarks", "PointRange", ranges(in_class(r"\p{M}"))), table("kSmallLetters", "SmallLetters", small_letters())],
          [("mark_ranges", "PointRange", "kMarks"), ("small_letters", "SmallLetters", "kSmallLetters")])
    write("unicode_decompositions.cpp", "Code points that are others in one.",
          [table("kApart", "Decomposition", apart), table("kExcluded", "PointRange", ranges(excluded))],
          [("decompositions", "Decomposition", "kApart"), ("composition_exclusions", "PointRange", "kExcluded")])


if __name__ == "__main__":
    main()
