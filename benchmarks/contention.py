#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step times of the benchmark MLP with all cores free and with one of them busy: halfstep against PyTorch on the CPU.

    /tmp/torch/bin/python benchmarks/contention.py --json FILE

Each round times each shape and precision, first idle, then beside a process that never sleeps, halfstep and PyTorch one after the
other; medians over the rounds are printed. A ratio is halfstep / PyTorch: below 1 halfstep is faster. What the busy process costs
is chance in part, as it and the threads are moved about by the system: the rounds' times are in the JSON.
"""
import argparse
import contextlib
import datetime
import os
import pathlib
import statistics
import subprocess
import sys
import time

import records
from compare_torch import ROOT, TorchStep, run_halfstep

CASES = [(64, 64, 1500), (128, 256, 250), (512, 1024, 10)]  # batch, width, timed steps a round


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/halfstep"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--arms", default="float32,bfloat16")
    p.add_argument("--machine", help="the machine in words [its CPU's model name]")
    p.add_argument("--json", type=pathlib.Path, help="write the record here")
    return p.parse_args()


@contextlib.contextmanager
def neighbour(busy):
    """A process that wants a core all the time, while the block runs."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
    time.sleep(0.2)
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait()


def torch_ms(side, steps, seconds=1.0):
    """The median of `steps` steps, or of fewer when they take long, as they may beside other programs."""
    begin, times = time.perf_counter(), []
    while len(times) < 8 or (len(times) < steps + 5 and time.perf_counter() - begin < seconds):
        start = time.perf_counter()
        side.step(len(times))
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[5:])


def main():
    a = parse_args()
    import torch
    torch.set_num_threads(a.threads)
    rows, description = [], ""
    for batch, width, steps in CASES:
        for arm in a.arms.split(","):
            case = argparse.Namespace(**vars(a), batch=batch, width=width, layers=3, steps=steps, fused=False)
            times = {f"{side}_{state}": [] for side in ("halfstep", "torch") for state in ("idle", "busy")}
            rows.append((case, arm, TorchStep(case, arm), times))
    for round_ in range(a.rounds):
        for state in ("idle", "busy"):
            print(f"round {round_ + 1} of {a.rounds}, {state}", file=sys.stderr)
            with neighbour(state == "busy"):
                for case, arm, torch_step, times in rows:
                    ms, description = run_halfstep(case, arm)
                    times[f"halfstep_{state}"].append(ms)
                    times[f"torch_{state}"].append(torch_ms(torch_step, case.steps))

    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    record = {"date": datetime.date.today().isoformat(), "machine": a.machine or records.machine(), "cores": os.cpu_count(),
              "commit": commit, "halfstep": description, "torch": torch.__version__, "threads": a.threads, "rounds": a.rounds,
              "rows": []}
    print(f"{record['machine']}, {a.threads} threads, {a.rounds} rounds; {description}; PyTorch {torch.__version__}")
    print(f"{'batch x width':<14}{'arm':<10}{'':>6}{'halfstep ms':>13}{'PyTorch ms':>12}{'ratio':>8}")
    for case, arm, _, times in rows:
        medians = {key: statistics.median(values) for key, values in times.items()}
        for state in ("idle", "busy"):
            mine, theirs = medians[f"halfstep_{state}"], medians[f"torch_{state}"]
            print(f"{case.batch} x {case.width:<8}{arm:<10}{state:>6}{mine:>13.3f}{theirs:>12.3f}{mine / theirs:>8.2f}")
        record["rows"].append({"batch": case.batch, "width": case.width, "arm": arm, "steps": case.steps, "median_ms": medians,
                               "ms": times})
    if a.json:
        records.save(a.json, record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
