#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Metrics in the readers that they are written for, TensorBoard's and pandas': sinks_check.py HALFSTEP [PICTURE]
Writes the last confusion matrix that TensorBoard has to PICTURE."""
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

try:
    import pandas
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
except ImportError as missing:
    sys.exit(f"SKIPPED: {missing} in this Python (pip install tensorboard pandas)")

CONFIG = {
    "name": "r", "device": "cpu", "seed": 3,
    "model": {"type": "MLP", "hidden": [8], "out_features": "auto"},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1},
    "data": {"train": {"type": "Digits", "size": 64}, "val": {"type": "Digits", "size": 32}, "loader": {"batch_size": 16}},
    "metrics": ["accuracy", "confusion_matrix"], "train": {"epochs": 4}, "checkpoint": {"every": "1 epoch", "keep_last": 9},
    "logging": {"every": "1 steps", "sinks": ["jsonl", "csv", "tensorboard"]},
    "output_dir": "r",
}
HPARAMS = {"seed": 3, "model.type": "MLP", "model.hidden.0": 8, "optimizer.type": "SGD", "optimizer.lr": 0.01,
           "optimizer.nesterov": False, "data.loader.batch_size": 16, "train.epochs": 4}
NO_SCALARS = ("step", "attempted", "epoch", "seconds")


def png_pixels(png):
    """Width, height, and a function of x and y, for 8 bits a channel and rows without interlace."""
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        body, at = png[at + 8:at + 8 + size], at + 12 + size
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert (depth, colour) == (8, 2)
        if kind == b"IDAT":
            data += body
    packed, rows, stride = zlib.decompress(data), [bytes(3 * width)], 3 * width
    for y in range(height):
        how, line, above = packed[y * (stride + 1)], bytearray(packed[y * (stride + 1) + 1:(y + 1) * (stride + 1)]), rows[-1]
        for i in range(stride):
            left, corner = (line[i - 3], above[i - 3]) if i >= 3 else (0, 0)
            guess = left + above[i] - corner
            paeth = min((left, above[i], corner), key=lambda v: abs(guess - v))
            line[i] = (line[i] + (0, left, above[i], (left + above[i]) // 2, paeth)[how]) % 256
        rows.append(bytes(line))
    return width, height, lambda x, y: tuple(rows[y + 1][3 * x:3 * x + 3])


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "c.json").write_text(json.dumps(CONFIG))

        def train(*options):
            subprocess.run([program, "train", "c.json", "--quiet", *options], cwd=folder, check=True)

        # A run that is resumed from its middle at another rate: what it did beyond that step before does not count.
        train()
        last = {}
        for line in (folder / "r/metrics.jsonl").read_text().splitlines():
            last.update(json.loads(line))
        train("--resume", "r/step-00000008", "--set", "optimizer.lr=0.01")
        lines = [json.loads(line) for line in (folder / "r/metrics.jsonl").read_text().splitlines()]
        assert last["train/loss"] != lines[-3]["train/loss"], "both runs took the same steps"

        want = {}
        for line in lines:
            for key, value in line.items():
                if key not in NO_SCALARS and isinstance(value, (int, float)):
                    want.setdefault(key, []).append((line["step"], value))
        events = event_accumulator.EventAccumulator(str(folder / "r"), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        assert sorted(events.Tags()["scalars"]) == sorted(want), (events.Tags()["scalars"], sorted(want))
        for key, points in want.items():
            got = [(s.step, s.value) for s in events.Scalars(key)]
            assert [s for s, _ in got] == [s for s, _ in points], (key, got, points)
            for (_, g), (_, w) in zip(got, points):
                assert math.isclose(g, w, rel_tol=1e-6), (key, g, w)

        # A confusion matrix is a picture: squares, whose colours say the share of a row.
        tables = [(line["step"], line["val/confusion_matrix/table"]) for line in lines if "val/confusion_matrix/table" in line]
        assert len(tables) == 4 and events.Tags()["images"] == ["val/confusion_matrix/table"], (tables, events.Tags()["images"])
        pictures = events.Images("val/confusion_matrix/table")
        assert [p.step for p in pictures] == [step for step, _ in tables], (pictures, tables)
        for picture, (_, table) in zip(pictures, tables):
            side, (width, height, pixels) = 320 // len(table), png_pixels(picture.encoded_image_string)
            assert (picture.width, picture.height) == (width, height) == (side * len(table),) * 2, (width, height, side)
            for t, row in enumerate(table):
                for p, count in enumerate(row):
                    red, green, blue = pixels(p * side + side // 2, t * side + side // 2)
                    white = (red, green, blue) == (255, 255, 255)
                    assert sum(row) == 0 or white == (count == 0), (t, p, count, red, green, blue)
                    assert count == 0 or (green > red if t == p else red > green), (t, p, count, red, green, blue)
        if len(sys.argv) > 2:
            pathlib.Path(sys.argv[2]).write_bytes(pictures[-1].encoded_image_string)

        # What runs are compared by: of the last start. A run's parts must not be there twice.
        files = sorted((folder / "r").glob("events.out.tfevents.*"))
        last_start = event_accumulator.EventAccumulator(str(files[-1]))
        last_start.Reload()
        content = last_start.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        hparams = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
        found = {key: getattr(value, value.WhichOneof("kind")) for key, value in hparams.items()}
        assert HPARAMS.items() <= found.items(), found
        assert not any(key.startswith(("output_dir", "data.train", "logging")) for key in found), found

        table = pandas.read_csv(folder / "r/metrics.csv")
        same = pandas.read_json(folder / "r/metrics.jsonl", lines=True)
        assert len(table) == len(same) == len(lines)
        for key in want:
            pandas.testing.assert_series_equal(table[key], same[key], check_dtype=False)
        print(f"{sum(map(len, want.values()))} scalars and {len(found)} hyperparameters in TensorBoard, "
              f"{len(table)} rows in pandas")


if __name__ == "__main__":
    main()
