# SPDX-License-Identifier: Apache-2.0
"""Writes the files that the pages name: tables, pictures, a text, a series, arrays, weights. The same bytes every time."""
import datetime
import io
import json
import math
import os
import random
import struct
import zipfile
import zlib

TOWNS = ["Bonn", "Jena", "Ulm"]


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def table(rows, heading, line):
    return "".join([heading + "\n"] + [line(i) + "\n" for i in range(rows)])


def write_houses(folder):
    draw = random.Random(1)
    homes = []
    for _ in range(120):
        rooms, town = draw.randint(1, 6), draw.randrange(3)
        area = 20 + 18 * rooms + draw.randint(0, 15)
        homes.append((rooms, area, TOWNS[town], 900 * area + 20000 * town + draw.randint(0, 9000)))
    area_of = lambda i: "" if i % 17 == 4 else homes[i][1]  # a few are missing
    line = lambda i: f"{homes[i][0]},{area_of(i)},{homes[i][2]},{homes[i][3]}"
    write(f"{folder}/houses.csv", table(120, "rooms,area,town,price", line))
    new = "rooms,area,town\n3,71,Ulm\n5,118,Bonn\n"
    write(f"{folder}/new.csv", new)
    write(f"{folder}/typo.csv", new + "2,60,Ullm\n")


def png(width, height, pixels):
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    lines = b"".join(b"\0" + pixels[3 * width * y:3 * width * (y + 1)] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            part(b"IDAT", zlib.compress(lines)) + part(b"IEND", b""))


def write_pictures(folder):
    draw = random.Random(2)

    def picture(red):
        return png(40, 32, bytes(min(255, level + draw.randrange(40)) for _ in range(40 * 32) for level in (red, 90, 215 - red)))

    for part, count in (("train", 12), ("val", 4)):
        for name, red in (("cat", 190), ("dog", 30)):
            for i in range(count):
                write(f"{folder}/pets/{part}/{name}/{i}.png", picture(red))
    for i, red in enumerate((190, 30, 30)):
        write(f"{folder}/photos/{i}.png", picture(red))


def write_text(folder):
    draw = random.Random(3)
    words = "a dark and stormy night the rain fell in torrents except when it was checked by wind which swept up streets".split()
    sentence = lambda: "It was " + " ".join(draw.choice(words) for _ in range(9)) + "."
    write(f"{folder}/novel.txt", "\n".join(sentence() for _ in range(500)) + "\n")


def write_reviews(folder):
    line = lambda i: f'{i},"It is a {("dull", "fine")[i % 2]} film, no. {i % 7}",{("bad", "good")[i % 2]}'
    write(f"{folder}/reviews.csv", table(200, "id,review,label", line))


def write_series(folder):
    draw = random.Random(4)
    day = lambda i: datetime.date(2024, 1, 1) + datetime.timedelta(i)
    sales = lambda i: round(100 + 30 * math.sin(2 * math.pi * i / 7) + i / 20 + draw.random() * 5, 1)
    write(f"{folder}/sales.csv", table(560, "date,sales,visitors", lambda i: f"{day(i)},{sales(i)},{200 + 60 * (i % 7 > 4)}"))


def npy(kind, shape, data):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head.encode() + data


def signals(count, seed):
    draw = random.Random(seed)
    targets = [draw.randrange(3) for _ in range(count)]
    values = [math.sin((k + 1) * (1 + y) / 3) + draw.random() / 5 for y in targets for k in range(16)]
    return (npy("<f4", f"({count}, 16)", struct.pack(f"<{len(values)}f", *values)),
            npy("<i8", f"({count},)", struct.pack(f"<{count}q", *targets)))


def write_arrays(folder):
    for part, count, seed in (("train", 150, 5), ("val", 30, 6)):
        x, y = signals(count, seed)
        write(f"{folder}/{part}_x.npy", x)
        write(f"{folder}/{part}_y.npy", y)
        if part == "train":
            packed = io.BytesIO()
            with zipfile.ZipFile(packed, "w") as file:
                for name, data in (("x.npy", x), ("y.npy", y)):
                    file.writestr(zipfile.ZipInfo(name), data)
            write(f"{folder}/signals.npz", packed.getvalue())
    write(f"{folder}/new.npy", signals(5, 7)[0])


def write_mnist(folder):
    """Files of MNIST in small: each digit is a square whose corner depends on the class."""
    draw = random.Random(8)
    for part, count in (("train", 300), ("t10k", 60)):
        labels = bytes(draw.randrange(10) for _ in range(count))
        pixels = bytearray(784 * count)
        for i, label in enumerate(labels):
            top, left = 3 + 4 * (label // 5) * 3 + draw.randrange(3), 2 + 5 * (label % 5)
            for y in range(top, top + 8):
                pixels[784 * i + 28 * y + left:784 * i + 28 * y + left + 5] = bytes([200]) * 5
        write(f"{folder}/mnist/{part}-images-idx3-ubyte", struct.pack(">IIII", 0x803, count, 28, 28) + bytes(pixels))
        write(f"{folder}/mnist/{part}-labels-idx1-ubyte", struct.pack(">II", 0x801, count) + labels)
    write(f"{folder}/a.png", png(28, 28, b"".join(bytes([200 * (4 < x < 10 < y < 20)] * 3) for y in range(28) for x in range(28))))


def pickled_tensor(name, shape, storage, key, count):
    """The opcodes of an entry of a state_dict, as torch.save writes them: a view of a storage that many may share."""
    text = lambda t: b"X" + struct.pack("<I", len(t)) + t.encode()
    number = lambda n: b"J" + struct.pack("<i", n)
    strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
    stored = b"(" + text("storage") + f"ctorch\n{storage}\n".encode() + text(key) + text("cpu") + number(count) + b"tQ"
    view = number(0) + b"(" + b"".join(map(number, shape)) + b"t(" + b"".join(map(number, strides)) + b"t"
    return text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + stored + view + b"\x89ccollections\nOrderedDict\n)RtR"


def write_resnet18(path, source):
    """Writes weights in torchvision's layout as torch.save does. All are 0, and share their memory."""
    with open(f"{source}/examples/resnet18.txt", encoding="utf-8") as names:
        shapes = {name: json.loads(shape) for name, shape in (line.split(" ", 1) for line in names)}
    largest = max(math.prod(shape) for shape in shapes.values())
    entry = lambda name, shape: (pickled_tensor(name, shape, "LongStorage", "1", 1) if name.endswith("num_batches_tracked") else
                                 pickled_tensor(name, shape, "FloatStorage", "0", largest))
    entries = b"".join(entry(name, shape) for name, shape in shapes.items())
    with zipfile.ZipFile(path, "w") as file:
        for part, data in (("data.pkl", b"\x80\x02}(" + entries + b"u."), ("version", b"3\n"), ("data/0", bytes(4 * largest)),
                           ("data/1", bytes(8))):
            file.writestr(zipfile.ZipInfo("archive/" + part), data)


def write_all(folder, source):
    """Writes into FOLDER/data, and links each file from FOLDER, too: pages name them both ways."""
    data = f"{folder}/data"
    for part in (write_houses, write_pictures, write_text, write_reviews, write_series, write_arrays, write_mnist):
        part(data)
    for name in os.listdir(data):
        os.symlink(f"data/{name}", f"{folder}/{name}")
    write_resnet18(f"{folder}/resnet18.pt", source)
