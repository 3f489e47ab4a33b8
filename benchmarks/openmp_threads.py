#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it brings that OpenMP's threads get the framework's own work while they wait for more (framework/backend/cpu/team.h).

    python3 benchmarks/openmp_threads.py [--rounds 5] [--json FILE]

Times the nets of compare_torch_nets.py that have convolutions, round by round: as they start, and with GOMP_SPINCOUNT=300000. This
is OpenMP's own default, but where it is set the framework keeps its work on its own threads. The ratio is shared / apart: below 1
sharing is faster.
"""
import argparse
import json
import os
import statistics

from compare_torch_ops import ROOT, Halfstep, write
from torch_nets import NETS


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/benchmarks/nets"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.3, help="of runs of each side, a round")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--json", help="write the rows here")
    a = p.parse_args()
    shared = Halfstep(a.binary, a.threads)
    os.environ["GOMP_SPINCOUNT"] = "300000"
    apart = Halfstep(a.binary, a.threads)
    names = [n["name"] for n in NETS if n["name"].startswith(("LeNet", "ResNet"))]
    for entry in NETS:
        for dtype in ("float32", "bfloat16") if entry["name"] in names else ():
            for train in (False, True):
                case = {"model": entry["config"], "input": entry["input"], "channels_last": entry["channels_last"], "dtype": dtype,
                        "train": train, "seconds": a.seconds}
                rounds = [(shared.ms(case), apart.ms(case)) for _ in range(a.rounds)]
                ratios = sorted(s / t for s, t in rounds)
                row = {"row": entry["name"], "pass": "train" if train else "forward", "dtype": dtype,
                       "shared_ms": statistics.median(s for s, _ in rounds), "apart_ms": statistics.median(t for _, t in rounds),
                       "ratio": statistics.median(ratios), "spread": [ratios[0], ratios[-1]]}
                print(json.dumps(row), flush=True)
                if a.json:
                    write(a.json, {"threads": a.threads, "rounds": a.rounds, "seconds": a.seconds}, [row], names)


if __name__ == "__main__":
    main()
