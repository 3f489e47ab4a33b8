#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/picture_goldens.safetensors: files of pictures, and what Pillow reads of them.

Run by hand where Pillow is installed; tests only read the file:
    python3 scripts/make_picture_goldens.py
NAME.file has the bytes of a file, NAME.pixels [height, width, 3] those of ImageOps.exif_transpose(Image.open(file)).convert("RGB").
Names that begin with jpeg are JPEG, the others PNG; names that begin with block have an EXIF block that is odd.
"""
import io
import json
import pathlib
import struct
import warnings
import zlib

from PIL import Image, ImageOps

warnings.simplefilter("ignore")  # of odd blocks
tensors = {}


def scene(width, height):
    """Returns colors with which every rotation of the picture differs."""
    image = Image.new("RGB", (width, height))
    for y in range(height):
        for x in range(width):
            image.putpixel((x, y), (40 + 20 * x % 216, 250 - 24 * y % 216, 8 * (x // 2 + y // 2)))
    return image


def add(name, data):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    tensors[name + ".file"] = ([len(data)], data)
    tensors[name + ".pixels"] = ([image.height, image.width, 3], image.tobytes())


def tiff(entries, order="<", start=8, count=None, tail=b""):
    """Returns a TIFF header and one directory: entries are (tag, type, count, four bytes)."""
    out = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, start) + b"\0" * (start - 8)
    out += struct.pack(order + "H", len(entries) if count is None else count)
    for tag, kind, n, value in entries:
        out += struct.pack(order + "HHI", tag, kind, n) + value
    return out + struct.pack(order + "I", 0) + tail


def short(order, value):
    return struct.pack(order + "HH", value, 0)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(image=None, before=b"", behind=b"", **options):
    out = io.BytesIO()
    (image or scene(5, 3)).save(out, "PNG", **options)
    data = out.getvalue()
    end = data.rindex(b"IEND") - 4
    return data[:33] + before + data[33:end] + behind + data[end:]


def jpeg(app1=b"", **options):
    out = io.BytesIO()
    scene(24, 16).save(out, "JPEG", quality=95, subsampling=0, **options)
    data = out.getvalue()
    return data[:2] + (b"\xff\xe1" + struct.pack(">H", len(app1) + 2) + app1 if app1 else b"") + data[2:]


for o in range(1, 9):
    order = "<" if o % 2 else ">"
    block = tiff([(0x010F, 2, 4, b"abc\0"), (0x0112, 3, 1, short(order, o))], order)
    add(f"jpeg.{o}", jpeg(b"Exif\0\0" + block, progressive=o % 3 == 0))
    add(f"png.{o}", png(**{"before" if o < 5 else "behind": chunk(b"eXIf", block)}))
first = tiff([(0x0112, 3, 1, short("<", 6))])
add("jpeg.two_blocks", jpeg(b"Exif\0\0" + first)[:2] + jpeg(b"http://ns.adobe.com/xap/1.0/\0<x/>")[2:])
add("jpeg.after_another", jpeg(b"Exif\0\0" + first)[:2] + b"\xff\xe1\0\x08notes\0" + jpeg(b"Exif\0\0" + first)[2:])

for name, block in {
    "long": tiff([(0x0112, 4, 1, struct.pack("<I", 6))]),
    "byte": tiff([(0x0112, 1, 1, b"\x03\0\0\0")]),
    "two_values": tiff([(0x0112, 3, 2, struct.pack("<HH", 8, 3))]),
    "at_an_offset": tiff([(0x0112, 3, 3, struct.pack("<I", 26))], tail=struct.pack("<HHH", 6, 1, 1)),
    "twice": tiff([(0x0112, 3, 1, short("<", 3)), (0x0112, 3, 1, short("<", 6))]),
    "zero": tiff([(0x0112, 3, 1, short("<", 0))]),
    "nine": tiff([(0x0112, 3, 1, short("<", 9))]),
    "offset_beyond": tiff([(0x0112, 3, 3, struct.pack("<I", 4000000000))]),
    "directory_beyond": tiff([])[:4] + struct.pack("<I", 4000000000),
    "directory_later": tiff([(0x0112, 3, 1, short(">", 7))], ">", start=40),
    "fewer_entries": tiff([(0x0112, 3, 1, short("<", 5))], count=60000)[:22],
    "with_prefix": b"Exif\0\0" + first,
}.items():
    add("block." + name, png(before=chunk(b"eXIf", block)))

gamma = {g: chunk(b"gAMA", struct.pack(">I", g)) for g in (100000, 55556, 45455)}
chroma = chunk(b"cHRM", struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000))
add("color.gamma1", png(before=gamma[100000]))
add("color.gamma18", png(before=chroma + gamma[55556]))
add("color.srgb", png(before=chunk(b"sRGB", b"\0") + gamma[45455]))
add("color.profile", png(before=chunk(b"iCCP", b"x\0\0" + zlib.compress(b"junk" * 40))))
add("color.palette", png(scene(5, 3).quantize(12), before=gamma[100000]))
add("color.gray", png(scene(5, 3).convert("L"), before=gamma[55556]))
transparent = scene(5, 3).convert("RGBA")
transparent.putpixel((1, 1), (200, 100, 50, 60))
add("color.transparent", png(transparent, before=gamma[100000]))
# Pixels that cannot be seen have colors, too, which Pillow keeps: in each way in which a PNG can say it.
clear = scene(5, 3)
shades = Image.new("L", (5, 3))
shades.putdata([0, 0, 255, 128, 3] * 3)
for mode in ("RGBA", "LA"):
    image = clear.convert("L" if mode == "LA" else "RGB").convert(mode)
    image.putalpha(shades)
    add("color.clear." + mode, png(image))
palette = clear.quantize(12)
add("color.clear.palette", png(palette, transparency=bytes([0, 255, 0, 100])))
add("color.clear.rgb", png(clear, before=chunk(b"tRNS", struct.pack(">3H", *clear.getpixel((2, 1))))))
gray = clear.convert("L")
add("color.clear.gray", png(gray, before=chunk(b"tRNS", struct.pack(">H", gray.getpixel((2, 1))))))
plain = jpeg()
add("jpeg.junk_before_end", plain[:-2] + b"\x12" * 258 + plain[-2:])
add("jpeg.junk_behind_end", plain + b"\0" * 1000)

header, data = {}, b""
for name, (shape, content) in sorted(tensors.items()):
    header[name] = {"dtype": "U8", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
    data += content
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
target = pathlib.Path(__file__).resolve().parent.parent / "tests/data/picture_goldens.safetensors"
target.write_bytes(struct.pack("<Q", len(text)) + text + data)
print(f"{target.name}: {len(tensors) // 2} pictures, {target.stat().st_size} bytes")
