#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What explaining and observing cost: `halfstep train` with diagnostics off, off again, at their defaults, and observing each step.

    chrt -f 1 python3 benchmarks/diagnostics_cost.py --binary build/default/halfstep --json FILE

The arms of a round run one after the other, and the median of the rounds counts. `off again` over `off` is what chance makes of it.
Runs are too short for a step that the defaults observe.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

import records

OFF = ["diagnostics.explain=false", "diagnostics.every=never"]
ARMS = {"off": OFF, "off_again": OFF, "default": [], "observed": ['diagnostics.every="1 steps"']}


def linear(width):
    return {"type": "Linear", "out_features": width}


def mlp(width):
    return [linear(width), "ReLU", linear(width), "ReLU", linear(width)]


LENET = [{"type": "Conv2d", "out_channels": 6, "kernel_size": 5, "padding": 2}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2},
         {"type": "Conv2d", "out_channels": 16, "kernel_size": 5}, "ReLU", {"type": "MaxPool2d", "kernel_size": 2}, "Flatten",
         linear(120), "ReLU", linear(84), "ReLU", linear(10)]
# name: layers, shape of a sample, what is to be found, loss, batch, steps
NETS = {"mlp 64x64": (mlp(64), [64], {"target_shape": [64]}, "MSELoss", 64, 900),
        "mlp 512x1024": (mlp(1024), [1024], {"target_shape": [1024]}, "MSELoss", 512, 6),
        "lenet 64": (LENET, [1, 28, 28], {"classes": 10}, "CrossEntropyLoss", 64, 60)}


def step_ms(binary, folder, net, dtype, sets, threads):
    layers, shape, target, loss, batch, steps = NETS[net]
    config = {"name": "cost", "output_dir": "out", "device": "cpu", "seed": 1,
              "model": {"type": "Sequential", "layers": layers}, "loss": loss, "optimizer": {"type": "SGD", "lr": 0.001},
              "amp": {"dtype": dtype}, "train": {"epochs": 1},
              "data": {"train": {"type": "Random", "input_shape": shape, "num_batches": steps, **target},
                       "loader": {"batch_size": batch}},
              "checkpoint": {"every": "never"}, "logging": {"every": "never", "sinks": []}}
    with open(os.path.join(folder, "c.json"), "w") as file:
        json.dump(config, file)
    command = [binary, "train", "c.json", "--quiet", "--json", "--overwrite", "--threads", str(threads)]
    for value in sets:
        command += ["--set", value]
    out = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    return 1e3 * batch / json.loads(out)["samples_per_second"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--json", required=True)
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    binary = os.path.abspath(a.binary)
    record = {"what": "milliseconds of a training step, medians of interleaved rounds", "cpu": records.machine(),
              "threads": a.threads, "rounds": a.rounds, "rows": []}
    for net in NETS:
        for dtype in ("float16", "bfloat16"):
            times = {arm: [] for arm in ARMS}
            with tempfile.TemporaryDirectory() as folder:
                for _ in range(a.rounds):
                    for arm, sets in ARMS.items():
                        times[arm].append(step_ms(binary, folder, net, dtype, sets, a.threads))
            ms = {arm: statistics.median(t) for arm, t in times.items()}
            row = {"net": net, "dtype": dtype, "ms": ms}
            for arm in ("off_again", "default", "observed"):
                row[arm + "_over_off"] = ms[arm] / ms["off"]
            record["rows"].append(row)
            print(f"{net:14} {dtype:9} off {ms['off']:8.3f} ms   off again {row['off_again_over_off']:.3f}   "
                  f"default {row['default_over_off']:.3f}   observed {row['observed_over_off']:.2f}", flush=True)
    records.save(a.json, record)


if __name__ == "__main__":
    main()
