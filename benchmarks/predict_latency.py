#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Latency of trained models: python/halfstep.py beside PyTorch eager and onnxruntime, with the same weights and threads.

    HALFSTEP_LIBRARY=build/default/libhalfstep_predict.so benchmarks/predict_latency.py [--threads N] [--rounds N] [--json FILE]

Trains an MLP and a LeNet for a moment on digits that the program draws. Arms take turns, so that other programs on the machine
disturb all of them alike; printed are medians of single calls in microseconds. Needs NumPy and PyTorch; onnxruntime and onnx are
optional. It is no part of the tests.
"""
import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from torch import nn

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
import halfstep  # noqa: E402

LENET = [{"type": "Conv2d", "out_channels": 6, "kernel_size": 5, "padding": 2}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2},
         {"type": "Conv2d", "out_channels": 16, "kernel_size": 5}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2}, "Flatten",
         {"type": "Linear", "out_features": 120}, "ReLU", {"type": "Linear", "out_features": 84}, "ReLU",
         {"type": "Linear", "out_features": 10}]
MLP = ["Flatten", {"type": "Linear", "out_features": 256}, "ReLU", {"type": "Linear", "out_features": 10}]
MODELS = {
    "mlp": (MLP, lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))),
    "lenet": (LENET, lambda: nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))),
}


def train(folder, name, layers):
    """The folder of a short run."""
    config = {"version": 1, "name": name, "output_dir": name, "device": "cpu", "model": {"type": "Sequential", "layers": layers},
              "loss": "CrossEntropyLoss", "optimizer": {"type": "AdamW", "lr": 0.002},
              "data": {"train": {"type": "Digits", "size": 2000}, "loader": {"batch_size": 64}}, "train": {"epochs": 1}}
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    program = os.environ.get("HALFSTEP_PROGRAM", os.path.join(ROOT, "build/default/halfstep"))
    subprocess.run([os.path.abspath(program), "train", name + ".json", "--quiet"], cwd=folder, check=True)
    return os.path.join(folder, name)


def weights(checkpoint):
    """The tensors of model.safetensors."""
    with open(os.path.join(checkpoint, "model.safetensors"), "rb") as file:
        data = file.read()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    return {name: torch.from_numpy(numpy.frombuffer(data[end + t["data_offsets"][0]:end + t["data_offsets"][1]], numpy.float32)
                                   .reshape(t["shape"]).copy()) for name, t in header.items()}


def onnx_arm(net, threads):
    """The same net in onnxruntime, or None."""
    try:
        import onnxruntime
        file = io.BytesIO()
        torch.onnx.export(net, (torch.zeros(2, 1, 28, 28),), file, input_names=["x"], dynamic_axes={"x": {0: "n"}}, dynamo=False)
    except ImportError as e:
        print(f"without onnxruntime: {e}", file=sys.stderr)
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def arms_of(run, net, threads):
    # Both open times: of a model in a process that has opened one, and until its first answer.
    begun = time.perf_counter()
    model = halfstep.open(run, device="cpu")
    opened = time.perf_counter() - begun
    model(numpy.zeros((1, 1, 28, 28), numpy.float32))
    answered = time.perf_counter() - begun
    net.load_state_dict(weights(os.path.join(run, model.about["checkpoint"])))
    net.eval()

    def eager(x):
        with torch.inference_mode():
            return net(torch.from_numpy(x)).numpy()

    arms = {"halfstep": lambda x: model(x, raw=True), "torch": eager}
    onnx = onnx_arm(net, threads)
    if onnx:
        arms["onnxruntime"] = onnx
    return arms, {"open_ms": 1e3 * opened, "first_answer_ms": 1e3 * answered}


def measure(arms, batch, rounds):
    x = numpy.random.default_rng(0).random((batch, 1, 28, 28), numpy.float32)
    expected = arms["torch"](x)
    for name, arm in arms.items():
        assert numpy.allclose(arm(x), expected, rtol=1e-3, atol=1e-3), name
    times = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            for i in range(12):
                begun = time.perf_counter()
                arm(x)
                if i >= 2:  # the first calls bring the arm's data back into the caches
                    times[name].append(1e6 * (time.perf_counter() - begun))
    return {name: statistics.median(t) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json")
    options = parser.parse_args()
    halfstep.threads(options.threads)
    torch.set_num_threads(options.threads)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (layers, make) in MODELS.items():
            arms, opening = arms_of(train(folder, name, layers), make(), options.threads)
            print(f"{name}: opened in {opening['open_ms']:.1f} ms, first answer after {opening['first_answer_ms']:.1f} ms")
            for batch in (1, 64):
                medians = measure(arms, batch, options.rounds)
                rows.append({"model": name, "batch": batch, "threads": options.threads, "us": medians, **opening})
                print(f"{name} batch {batch}: " + ", ".join(f"{arm} {us:.1f} us" for arm, us in medians.items()), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"halfstep": halfstep.__version__, "torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
