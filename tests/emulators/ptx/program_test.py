#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole training runs of the program on the PTX of its kernels: program_test.py HALFSTEP_PTX_PROGRAM

A multilayer perceptron and a LeNet train in float16 under a gradient scaler, with recorded steps and without. Both ways give the
same losses to the last bit, and the CPU backend gives nearly the same.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

LENET = """[{"type": "Conv2d", "out_channels": 6, "kernel_size": 5, "padding": 2}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2},
  {"type": "Conv2d", "out_channels": 16, "kernel_size": 5}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2}, "Flatten",
  {"type": "Linear", "out_features": 64}, "ReLU", {"type": "Linear", "out_features": "auto"}]"""
MLP = """["Flatten", {"type": "Linear", "out_features": 64}, "ReLU", {"type": "Dropout", "p": 0.1},
  {"type": "Linear", "out_features": "auto"}]"""
STEPS = 8


def losses(program, folder, layers, device, recorded):
    config = folder / "config.json"
    config.write_text(json.dumps({
        "name": "run", "output_dir": str(folder / "run"), "device": device, "amp": {"dtype": "float16"},
        "model": {"type": "Sequential", "layers": json.loads(layers)}, "loss": "CrossEntropyLoss",
        "optimizer": {"type": "AdamW", "lr": 0.002}, "data": {"train": "Digits", "loader": {"batch_size": 16}},
        "train": {"max_steps": STEPS}, "performance": {"cuda_graph": recorded}, "logging": {"every": 1}}))
    ran = subprocess.run([program, "train", config, "--quiet", "--overwrite"], capture_output=True, text=True, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    return [line["train/loss"] for line in lines if "train/loss" in line][:STEPS]


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    for name, layers in (("MLP", MLP), ("LeNet", LENET)):
        with tempfile.TemporaryDirectory() as folder:
            stats = pathlib.Path(folder) / "stats"
            os.environ["HALFSTEP_PTX_STATS"] = str(stats)
            plain = losses(program, pathlib.Path(folder), layers, "cuda", False)
            launches = [line.split("\t") for line in stats.read_text().splitlines()]
            recorded = losses(program, pathlib.Path(folder), layers, "cuda", True)
            cpu = losses(program, pathlib.Path(folder), layers, "cpu", False)
        print(f"{name}: {len(launches)} kernels, {sum(int(line[0]) for line in launches)} launches, losses {plain}")
        assert len(plain) == STEPS and len(launches) > 8, (plain, launches)
        assert plain == recorded, (plain, recorded)
        assert plain[-1] < plain[0], plain
        assert all(abs(a - b) < 0.01 for a, b in zip(plain, cpu)), (plain, cpu)


main()
