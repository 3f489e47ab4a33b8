#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Latency of trained models: python/halfstep beside PyTorch eager and onnxruntime, with the same weights and threads.

    HALFSTEP_LIBRARY=build/default/libhalfstep_predict.so benchmarks/predict_latency.py [--threads N] [--rounds N] [--callers N]
                                                                                        [--json FILE]

Trains an MLP, a LeNet, a recurrent model of characters and a small transformer for a moment. The rivals run what `halfstep export`
writes of them: model.py and an ONNX file. In bfloat16 PyTorch runs in autocast; onnxruntime's CPU provider has no arithmetic in it.
Arms take turns, so that other programs on the machine disturb all of them alike; printed are medians of single calls in
microseconds. Needs NumPy, PyTorch and safetensors; onnxruntime is optional. It is no part of the tests.
"""
import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy
import torch

import records

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PROGRAM = os.path.abspath(os.environ.get("HALFSTEP_PROGRAM", os.path.join(ROOT, "build/default/halfstep")))
sys.path.insert(0, os.path.join(ROOT, "python"))
import halfstep  # noqa: E402

DIGITS = {"type": "Digits", "size": 2000}
COPY = {"type": "CopyTask", "size": 500, "length": 16, "wait": 32, "symbols": 60}  # 64 tokens
LOGITS = {"type": "Linear", "out_features": "auto"}
MODELS = {
    "mlp": (DIGITS, ["Flatten", {"type": "Linear", "out_features": 256}, "ReLU", LOGITS]),
    "lenet": (DIGITS, [
        {"type": "Conv2d", "out_channels": 6, "kernel_size": 5, "padding": 2}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2},
        {"type": "Conv2d", "out_channels": 16, "kernel_size": 5}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2}, "Flatten",
        {"type": "Linear", "out_features": 120}, "ReLU", {"type": "Linear", "out_features": 84}, "ReLU", LOGITS]),
    "char_lstm": (COPY, [{"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 64},
                         {"type": "LSTM", "hidden_size": 256, "num_layers": 2}, LOGITS]),
    "transformer": (COPY, [
        {"type": "Embedding", "num_embeddings": "auto", "embedding_dim": 128}, {"type": "PositionEmbedding", "max_len": 64},
        {"type": "TransformerEncoder", "num_layers": 2, "nhead": 4, "dim_feedforward": 512, "is_causal": True, "norm": True},
        LOGITS]),
}


def program(*arguments, folder):
    subprocess.run([PROGRAM, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def train(folder, name, data, layers, dtype):
    """The folder of a short run, and what export writes of it."""
    run = f"{name}_{dtype}"
    config = {"version": 1, "name": run, "output_dir": run, "device": "cpu", "model": {"type": "Sequential", "layers": layers},
              "amp": {"dtype": dtype} if dtype != "float32" else False, "loss": "CrossEntropyLoss",
              "optimizer": {"type": "AdamW", "lr": 0.002}, "data": {"train": data, "loader": {"batch_size": 64}},
              "train": {"epochs": 1}}
    with open(os.path.join(folder, run + ".json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    program("train", run + ".json", "--quiet", folder=folder)
    program("export", run, "--to", "torch", "--out", run + "-torch", folder=folder)
    if dtype == "float32":
        program("export", run, "--to", "onnx", "--raw", "--out", run + ".onnx", folder=folder)
    return os.path.join(folder, run)


def torch_arm(folder, dtype):
    spec = importlib.util.spec_from_file_location(os.path.basename(folder), os.path.join(folder, "model.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    net = module.load()

    def eager(x):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            return net(module.prepare(torch.from_numpy(x))).float().numpy()
    return eager


def onnx_arm(path, threads):
    try:
        import onnxruntime
    except ImportError as e:
        print(f"without onnxruntime: {e}", file=sys.stderr)
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"input": x})[0]


def inputs_of(model, batch):
    draw = numpy.random.default_rng(0)
    shape = (batch, *model.input)
    vocabulary = model.form["vocabulary"]
    return draw.integers(0, vocabulary, shape) if vocabulary else draw.random(shape, numpy.float32)


def arms_of(run, dtype, threads):
    # Both open times: of a model in a process that has opened one, and until its first answer.
    begun = time.perf_counter()
    model = halfstep.open(run, device="cpu")
    opened = time.perf_counter() - begun
    model(inputs_of(model, 1), raw=True)
    answered = time.perf_counter() - begun
    arms = {"halfstep": lambda x: model(x, raw=True), "torch": torch_arm(run + "-torch", dtype)}
    onnx = onnx_arm(run + ".onnx", threads) if dtype == "float32" else None
    if onnx:
        arms["onnxruntime"] = onnx
    return model, arms, {"open_ms": 1e3 * opened, "first_answer_ms": 1e3 * answered}


def measure(arms, x, rounds, bound):
    expected = arms["torch"](x)
    for name, arm in arms.items():
        assert numpy.allclose(arm(x), expected, rtol=bound, atol=bound), name
    begun = time.perf_counter()
    arms["halfstep"](x)
    rounds = max(3, min(rounds, int(0.5 / (time.perf_counter() - begun + 1e-9))))  # large models: fewer
    times = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            for i in range(12):
                begun = time.perf_counter()
                arm(x)
                if i >= 2:  # the first calls bring the arm's data back into the caches
                    times[name].append(1e6 * (time.perf_counter() - begun))
    return {name: statistics.median(t) for name, t in times.items()}


def calls_per_second(arm, x, callers, seconds):
    counts, stop = [0] * callers, threading.Event()

    def call(caller):
        while not stop.is_set():
            arm(x)
            counts[caller] += 1

    threads = [threading.Thread(target=call, args=(caller,)) for caller in range(callers)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begun)


def several_callers(arms, x, callers, rounds=5, seconds=0.4):
    """Of each arm: how many calls `callers` threads make in the time of one call by one thread, the median of the rounds."""
    gains = {name: [] for name in arms}
    for _ in range(rounds):
        for name, arm in arms.items():
            alone = calls_per_second(arm, x, 1, seconds)
            gains[name].append(calls_per_second(arm, x, callers, seconds) / alone)
    return {name: statistics.median(gain) for name, gain in gains.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--callers", type=int, default=0, help="also how many calls this many threads make at once")
    parser.add_argument("--json")
    options = parser.parse_args()
    halfstep.threads(options.threads)
    torch.set_num_threads(options.threads)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (data, layers) in MODELS.items():
            for dtype in ("float32", "bfloat16"):
                model, arms, opening = arms_of(train(folder, name, data, layers, dtype), dtype, options.threads)
                for batch in (1, 64):
                    bound = 1e-3 if dtype == "float32" else 0.25
                    medians = measure(arms, inputs_of(model, batch), options.rounds, bound)
                    row = {"model": name, "dtype": dtype, "batch": batch, "threads": options.threads, "us": medians}
                    rows.append(row | opening)
                    print(f"{name} {dtype} batch {batch}: " + ", ".join(f"{arm} {us:.1f} us" for arm, us in medians.items()),
                          flush=True)
                    if options.callers:
                        gains = several_callers(arms, inputs_of(model, batch), options.callers)
                        rows[-1] |= {"callers": options.callers, "gain": gains}
                        print(f"  calls by {options.callers} threads at once, times as many: "
                              + ", ".join(f"{arm} {gain:.2f}" for arm, gain in gains.items()), flush=True)
    if options.json:
        records.save(options.json, {"halfstep": halfstep.__version__, "torch": torch.__version__, "rows": rows})


if __name__ == "__main__":
    main()
