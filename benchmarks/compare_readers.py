#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Data from files to the first step of training: halfstep against pandas, Python's text and torchvision's loader, interleaved.

    python3 benchmarks/compare_readers.py --json FILE

`csv`: a table of numbers, of which halfstep trains on four fifths and holds out the rest; pandas reads it to float32. `text`: a
text by characters; Python maps it to a torch tensor of bytes, as nanoGPT's preparation does. `pictures`: JPEGs in folders of
classes, checked, measured and read by the epoch of a linear model; the ImageFolder of torchvision decodes them once and trains
nothing. Of each program the processor's seconds (user and system, all threads) and the peak of its memory are measured as the
system counts them, with the start of the program. Medians over the rounds; a ratio is halfstep / rival: below 1 halfstep is
cheaper. Needs pandas, torch, torchvision and Pillow.
"""
import argparse
import datetime
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAIN = {"loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.01}, "train": {"max_steps": 1},
         "diagnostics": {"every": "never"}}
PANDAS = "import pandas, numpy; pandas.read_csv({0!r}, dtype=numpy.float32)"
TEXT = """import torch
text = open({0!r}, encoding="utf-8").read()
number = {{c: i for i, c in enumerate(sorted(set(text)))}}
torch.tensor(bytearray(map(number.__getitem__, text)), dtype=torch.uint8)"""
PICTURES = """import torch, torchvision
from torchvision import transforms as T
data = torchvision.datasets.ImageFolder({0!r}, T.Compose([T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)]))
for x, y in torch.utils.data.DataLoader(data, 64, shuffle=True, num_workers={1}): pass"""


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/halfstep"))
    p.add_argument("--python", default=sys.executable, help="with pandas, torch, torchvision and Pillow")
    p.add_argument("--rows", type=int, default=1_000_000, help="of a table of 21 columns")
    p.add_argument("--megabytes", type=int, default=100, help="of text")
    p.add_argument("--pictures", type=int, default=4000, help="of 128 x 128 pixels")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--machine", help="the machine in words [its CPU's model name]")
    p.add_argument("--json", type=pathlib.Path, help="write the record here")
    return p.parse_args()


def write_csv(path, rows):
    draw = random.Random(0)
    with open(path, "w", encoding="ascii") as out:
        out.write(",".join(f"x{i}" for i in range(20)) + ",y\n")
        for _ in range(rows):
            out.write(",".join(f"{draw.gauss(0, 1):.5f}" for _ in range(20)) + f",{draw.randrange(3)}\n")


def write_text(path, megabytes):
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(1, 9))) for _ in range(5000)]
    piece = " ".join(draw.choices(words, k=150_000)).replace(" aa", ".\nAA")
    with open(path, "w", encoding="ascii") as out:
        for _ in range(megabytes * 1_000_000 // len(piece) + 1):
            out.write(piece)


WRITE_PICTURES = """import pathlib, numpy
from PIL import Image
draw = numpy.random.default_rng(0)
for i in range({1}):
    folder = pathlib.Path({0!r}) / "ab"[i % 2]
    folder.mkdir(parents=True, exist_ok=True)
    small = draw.integers(0, 256, (16, 16, 3), dtype=numpy.uint8)
    Image.fromarray(small).resize((128, 128), Image.BICUBIC).save(folder / f"{{i:06}}.jpg", quality=90)"""


def configs(folder):
    csv = {"type": "CSV", "path": "t.csv", "standardize": True}
    norm = [{"type": "Normalize", "from": "data"}]
    never = {"eval_every": "never", "max_steps": 1}
    model = {"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": "auto"}]}
    return {
        "csv": TRAIN | {"model": model, "train": never, "checkpoint": {"keep_best": 0, "monitor": "train/loss"},
                        "data": {"train": csv | {"range": [0, 0.8]}, "val": csv | {"range": [0.8, 1]}}},
        "text": TRAIN | {"model": {"type": "Sequential", "layers": [
            {"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 8}, {"type": "Linear", "out_features": "auto"}]},
            "data": {"train": {"type": "Text", "path": "t.txt", "seq_len": 64}}},
        "pictures": TRAIN | {"model": model, "train": {"epochs": 1},
                             "data": {"train": {"type": "ImageFolder", "path": "pictures", "transforms": norm}}},
    }


def run(command, environment=None):
    """(processor seconds, peak of memory in MB) of a program."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}: {said.decode()[-2000:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    a = parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_csv(folder / "t.csv", a.rows)
        write_text(folder / "t.txt", a.megabytes)
        subprocess.run([a.python, "-c", WRITE_PICTURES.format(str(folder / "pictures"), a.pictures)], check=True)
        rivals = {"csv": ("pandas", PANDAS.format(str(folder / "t.csv"))), "text": ("Python", TEXT.format(str(folder / "t.txt"))),
                  "pictures": ("torchvision", PICTURES.format(str(folder / "pictures"), a.threads))}
        for kind, config in configs(folder).items():
            config["data"]["root"] = config["output_dir"] = str(folder)
            config["output_dir"] += "/run"
            (folder / f"{kind}.json").write_text(json.dumps(config), encoding="utf-8")
            ours, theirs = [], []
            for _ in range(a.rounds):
                # A cache of its own: pictures that were opened before would be remembered.
                with tempfile.TemporaryDirectory() as cache:
                    ours.append(run([a.binary, "train", str(folder / f"{kind}.json"), "--overwrite", "--threads", str(a.threads)],
                                    os.environ | {"XDG_CACHE_HOME": cache}))
                theirs.append(run([a.python, "-c", rivals[kind][1]]))
            row = {"data": kind, "rival": rivals[kind][0], "halfstep_rounds": ours, "rival_rounds": theirs}
            for i, unit in enumerate(("cpu_s", "peak_mb")):
                row[f"halfstep_{unit}"] = statistics.median(r[i] for r in ours)
                row[f"rival_{unit}"] = statistics.median(r[i] for r in theirs)
                row[f"{unit}_ratio"] = row[f"halfstep_{unit}"] / row[f"rival_{unit}"]
            rows.append(row)
            print(f"{kind:9} halfstep {row['halfstep_cpu_s']:6.2f} s, {row['halfstep_peak_mb']:5.0f} MB   {row['rival']} "
                  f"{row['rival_cpu_s']:6.2f} s, {row['rival_peak_mb']:5.0f} MB   ratios {row['cpu_s_ratio']:.2f}, "
                  f"{row['peak_mb_ratio']:.2f}", flush=True)
    if a.json:
        records.save(a.json, {"date": datetime.date.today().isoformat(), "machine": a.machine or records.machine(),
                              "cpus": os.cpu_count(), "threads": a.threads, "load": os.getloadavg(), "rows_of_csv": a.rows,
                              "megabytes_of_text": a.megabytes, "pictures": a.pictures, "rows": rows})


if __name__ == "__main__":
    main()
