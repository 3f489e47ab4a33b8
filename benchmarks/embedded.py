#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trained models in small programs: sizes of what is linked, and latency on one thread, with oneDNN and with halfstep's own loops.

    benchmarks/embedded.py [--build build/default] [--own build/own] [--rounds N] [--json FILE]

BUILD has oneDNN; OWN is a build with -DHALFSTEP_ONEDNN=OFF. Both have the targets halfstep_predict and halfstep. Sizes are in
bytes, stripped: libhalfstep_predict.so, tests/consumer/main.cpp linked with the static library (which trains), and the shared
libraries that each needs besides those of GCC and glibc. Latencies are medians of single calls in microseconds, of a LeNet and
an MLP in float32, beside onnxruntime with the same weights; arms take turns. Needs NumPy and onnxruntime. It is no part of the
tests.
"""
import argparse
import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnxruntime

import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNTIME = ("ld-linux", "libc.so", "libm.so", "libgcc_s", "libstdc++", "libgomp", "libdl.", "libpthread", "linux-vdso")
LOGITS = {"type": "Linear", "out_features": "auto"}
POOL = {"type": "MaxPool2d", "kernel_size": 2}
MODELS = {
    "mlp": ["Flatten", {"type": "Linear", "out_features": 256}, "ReLU", LOGITS],
    "lenet": [{"type": "Conv2d", "out_channels": 6, "kernel_size": 5, "padding": 2}, "ReLU", POOL,
              {"type": "Conv2d", "out_channels": 16, "kernel_size": 5}, "ReLU", POOL, "Flatten",
              {"type": "Linear", "out_features": 120}, "ReLU", {"type": "Linear", "out_features": 84}, "ReLU", LOGITS],
}


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def stripped(path, folder):
    copy = folder / "stripped"
    run("strip", "-o", copy, path)
    return copy.stat().st_size


def needs(path):
    """The sizes of the shared libraries that a file needs, by their names."""
    found = {}
    for line in run("ldd", path).splitlines():
        name, _, place = line.strip().partition(" => ")
        if place.startswith("/") and not name.startswith(RUNTIME):
            found[name] = pathlib.Path(place.split(" (")[0]).stat().st_size
    return found


def sizes(build, folder):
    """Of the library and of a program that is linked with the static one."""
    prefix, program = folder / "prefix", folder / "consumer"
    for component in ("libhalfstep-dev", "libhalfstep-predict0"):
        run("cmake", "--install", build, "--prefix", prefix, "--component", component)
    environment = os.environ | {"PKG_CONFIG_PATH": os.pathsep.join(str(p.parent) for p in prefix.rglob("halfstep.pc"))}
    flags = [run("pkg-config", *options, "halfstep", env=environment).split() for options in (["--cflags"], ["--static", "--libs"])]
    run("g++", "-O2", *flags[0], ROOT / "tests/consumer/main.cpp", *flags[1], "-o", program)
    files = {"library": build / "libhalfstep_predict.so.0", "program": program}
    return {kind: {"bytes": stripped(path, folder), "needs": needs(path)} for kind, path in files.items()}


def module(build, name):
    """python/halfstep with the library of a build."""
    os.environ["HALFSTEP_LIBRARY"] = str(build / "libhalfstep_predict.so.0")
    spec = importlib.util.spec_from_file_location(name, ROOT / "python/halfstep/__init__.py",
                                                  submodule_search_locations=[str(ROOT / "python/halfstep")])
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    sys.modules[name].threads(1)
    return sys.modules[name]


def medians(arms, x, rounds):
    expected = arms["onnxruntime"](x)
    times = {name: [] for name in arms}
    for name, arm in arms.items():
        assert numpy.allclose(arm(x), expected, rtol=1e-3, atol=1e-3), name
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
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/default")
    parser.add_argument("--own", type=pathlib.Path, default=ROOT / "build/own")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json")
    options = parser.parse_args()
    builds = {"onednn": options.build.resolve(), "own": options.own.resolve()}
    record = {"machine": records.machine(), "onnxruntime": onnxruntime.__version__, "sizes": [], "rows": []}
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        modules = {name: module(build, f"halfstep_{name}") for name, build in builds.items()}
        for model, layers in MODELS.items():
            config = {"name": model, "output_dir": str(folder / model), "device": "cpu", "amp": False, "loss": "CrossEntropyLoss",
                      "model": {"type": "Sequential", "layers": layers}, "optimizer": {"type": "AdamW", "lr": 0.002},
                      "data": {"train": {"type": "Digits", "size": 2000}, "loader": {"batch_size": 64}}, "train": {"epochs": 1}}
            records.save(folder / f"{model}.json", config)
            program, onnx = builds["onednn"] / "halfstep", folder / f"{model}.onnx"
            run(program, "train", folder / f"{model}.json", "--quiet")
            run(program, "export", folder / model, "--to", "onnx", "--raw", "--out", onnx)
            session = onnxruntime.InferenceSession(str(onnx), session_options, providers=["CPUExecutionProvider"])
            arms = {"onnxruntime": lambda x, session=session: session.run(None, {"input": x})[0]}
            for name, loaded in modules.items():
                arms[name] = lambda x, net=loaded.open(folder / model, device="cpu"): net(x, raw=True)
            for batch in (1, 64):
                x = numpy.random.default_rng(0).random((batch, 1, 28, 28), numpy.float32)
                rounds = options.rounds if batch == 1 else options.rounds // 8
                row = {"model": model, "batch": batch, "us": medians(arms, x, rounds)}
                record["rows"].append(row)
                print(f"{model} batch {batch}: " + ", ".join(f"{arm} {us:.1f} us" for arm, us in row["us"].items()), flush=True)
        for name, build in builds.items():
            (folder / name).mkdir()
            for kind, size in sizes(build, folder / name).items():
                record["sizes"].append({"build": name, "kind": kind} | size)
                print(f"{name} {kind}: {size['bytes']} bytes, needs " + ", ".join(f"{k} {v}" for k, v in size["needs"].items()))
    if options.json:
        records.save(options.json, record)


if __name__ == "__main__":
    main()
