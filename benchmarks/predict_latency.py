#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Latency of trained models: python/halfstep beside PyTorch eager and onnxruntime, with the same weights and threads.

    HALFSTEP_LIBRARY=build/default/libhalfstep_predict.so benchmarks/predict_latency.py [--models NAME...] [--dtypes NAME...]
        [--batches N...] [--threads N] [--rounds N] [--own LIBRARY] [--callers N] [--json FILE]

Trains an MLP, a LeNet, a recurrent model of characters and a small transformer for a moment. The rivals run what `halfstep export`
writes of them: model.py and an ONNX file. In bfloat16 PyTorch runs in autocast; onnxruntime's CPU provider has no arithmetic in it.
--own: the same library of a build with -DHALFSTEP_ONEDNN=OFF. Arms take turns, so that other programs on the machine disturb all of
them alike; printed are medians of single calls in microseconds, and the median over the rounds of halfstep's time divided by each
rival's in the same round. Needs NumPy and a rival: PyTorch with safetensors, or onnxruntime. It is no part of the tests.
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


def imported(name):
    """A rival's module, or None."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        print(f"without {name}: {e}", file=sys.stderr)
        return None


def of_library(library):
    """python/halfstep with another library."""
    os.environ["HALFSTEP_LIBRARY"] = os.path.abspath(library)
    spec = importlib.util.spec_from_file_location("halfstep_own", halfstep.__file__, submodule_search_locations=halfstep.__path__)
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules[spec.name]


def torch_arm(torch, folder, dtype):
    spec = importlib.util.spec_from_file_location(os.path.basename(folder), os.path.join(folder, "model.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    net = module.load()

    def eager(x):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            return net(module.prepare(torch.from_numpy(x))).float().numpy()
    return eager


def onnx_arm(onnxruntime, path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"input": x})[0]


def inputs_of(model, batch):
    draw = numpy.random.default_rng(0)
    shape = (batch, *model.input)
    vocabulary = model.form["vocabulary"]
    return draw.integers(0, vocabulary, shape) if vocabulary else draw.random(shape, numpy.float32)


def arms_of(run, dtype, threads, rivals, own):
    # Both open times: of a model in a process that has opened one, and until its first answer.
    begun = time.perf_counter()
    model = halfstep.open(run, device="cpu")
    opened = time.perf_counter() - begun
    model(inputs_of(model, 1), raw=True)
    answered = time.perf_counter() - begun
    arms = {"halfstep": lambda x: model(x, raw=True)}
    if own:
        other = own.open(run, device="cpu")
        arms["own loops"] = lambda x: other(x, raw=True)
    if rivals["torch"]:
        arms["torch"] = torch_arm(rivals["torch"], run + "-torch", dtype)
    if rivals["onnxruntime"] and dtype == "float32":
        arms["onnxruntime"] = onnx_arm(rivals["onnxruntime"], run + ".onnx", threads)
    return model, arms, {"open_ms": 1e3 * opened, "first_answer_ms": 1e3 * answered}


def measure(arms, x, rounds, bound):
    """Medians of each arm in microseconds, and the medians of halfstep's ratios to the rivals with the quartiles."""
    expected = list(arms.values())[-1](x)
    for name, arm in arms.items():
        assert numpy.allclose(arm(x), expected, rtol=bound, atol=bound), name
    begun = time.perf_counter()
    arms["halfstep"](x)
    rounds = max(3, min(rounds, int(0.5 / (time.perf_counter() - begun + 1e-9))))  # large models: fewer
    times, ratios = {name: [] for name in arms}, {}
    for _ in range(rounds):
        for name, arm in arms.items():
            for i in range(12):
                begun = time.perf_counter()
                arm(x)
                if i >= 2:  # the first calls bring the arm's data back into the caches
                    times[name].append(1e6 * (time.perf_counter() - begun))
        now = {name: statistics.median(t[-10:]) for name, t in times.items()}
        for rival in now.keys() & {"torch", "onnxruntime"}:
            for ours in now.keys() - {"torch", "onnxruntime"}:
                ratios.setdefault(f"{ours} / {rival}", []).append(now[ours] / now[rival])
    quartiles = {name: [round(q, 3) for q in statistics.quantiles(r, n=4)] for name, r in sorted(ratios.items())}
    return {"us": {name: round(statistics.median(t), 2) for name, t in times.items()}, "ratios": quartiles}


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
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS])
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--own", help="libhalfstep_predict.so of a build without oneDNN")
    parser.add_argument("--callers", type=int, default=0, help="also how many calls this many threads make at once")
    parser.add_argument("--json")
    options = parser.parse_args()
    halfstep.threads(options.threads)
    rivals = {name: imported(name) for name in ("torch", "onnxruntime")}
    if not any(rivals.values()):
        parser.error("needs PyTorch or onnxruntime, to compare with: pip install onnxruntime")
    if rivals["torch"]:
        rivals["torch"].set_num_threads(options.threads)
    own = of_library(options.own) if options.own else None
    if own:
        own.threads(options.threads)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            for dtype in options.dtypes:
                run = train(folder, name, *MODELS[name], dtype)
                model, arms, opening = arms_of(run, dtype, options.threads, rivals, own)
                for batch in options.batches:
                    bound = 1e-3 if dtype == "float32" else 0.25
                    found = measure(arms, inputs_of(model, batch), options.rounds, bound)
                    row = {"model": name, "dtype": dtype, "batch": batch, "threads": options.threads}
                    rows.append(row | found | opening)
                    cells = [f"{arm} {us:.1f} us" for arm, us in found["us"].items()]
                    cells += [f"{which} {r[1]:.2f} ({r[0]:.2f} to {r[2]:.2f})" for which, r in found["ratios"].items()]
                    print(f"{name} {dtype} batch {batch}: " + ", ".join(cells), flush=True)
                    if options.callers:
                        gains = several_callers(arms, inputs_of(model, batch), options.callers)
                        rows[-1] |= {"callers": options.callers, "gain": gains}
                        print(f"  calls by {options.callers} threads at once, times as many: "
                              + ", ".join(f"{arm} {gain:.2f}" for arm, gain in gains.items()), flush=True)
    if options.json:
        versions = {name: rival.__version__ for name, rival in rivals.items() if rival}
        records.save(options.json, {"halfstep": halfstep.__version__, **versions, "machine": records.machine(), "rows": rows})


if __name__ == "__main__":
    main()
