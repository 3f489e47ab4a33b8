#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws pictures for scripts/try_newcomer.sh: draw_shapes.py FOLDER.

FOLDER/shapes gets 100 noisy pictures of each of three shapes, a folder a shape, and FOLDER/new one more of each. Python alone is
enough.
"""
import pathlib
import random
import struct
import sys
import zlib

SIDE = 40
SHAPES = {"circle": lambda x, y, r: x * x + y * y < r * r,
          "cross": lambda x, y, r: min(abs(x), abs(y)) < r / 4 and max(abs(x), abs(y)) < r,
          "square": lambda x, y, r: max(abs(x), abs(y)) < 0.9 * r}


def write_png(path, pixels):
    def part(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    width = 3 * SIDE
    rows = b"".join(b"\0" + pixels[y * width:(y + 1) * width] for y in range(SIDE))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) +
                     part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))


def draw(shape, rng):
    """Draws one at a random place, of random size and colors, as bytes of red, green and blue."""
    left, top, size = rng.uniform(14, 26), rng.uniform(14, 26), rng.uniform(7, 12)
    ink, paper = [rng.randrange(120, 256) for _ in range(3)], [rng.randrange(80) for _ in range(3)]
    out = bytearray()
    for y in range(SIDE):
        for x in range(SIDE):
            color = ink if SHAPES[shape](x - left, y - top, size) else paper
            out += bytes(min(255, max(0, value + rng.randrange(-20, 21))) for value in color)
    return bytes(out)


def main():
    root, rng = pathlib.Path(sys.argv[1]), random.Random(0)
    for shape in SHAPES:
        for i in range(100):
            write_png(root / "shapes" / shape / f"{i:03}.png", draw(shape, rng))
        write_png(root / "new" / f"{shape}.png", draw(shape, rng))


main()
