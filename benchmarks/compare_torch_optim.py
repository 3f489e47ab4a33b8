#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of optimizers against PyTorch's on the CPU, interleaved: float32, 8 Linear layers of 1024 with layer norms between.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    /tmp/torch/bin/python benchmarks/compare_torch_optim.py [--match adam] [--json FILE]

Each round times halfstep and each of PyTorch's ways (foreach, fused where it has one) one after the other on the same number of
threads. The ratio of a round is halfstep over PyTorch's fastest, and the median over the rounds is printed with the least and the
greatest: below 1 halfstep is faster. Optimizers that PyTorch lacks are timed alone, beside its fastest AdamW.
A file that exists keeps its other rows.
"""
import argparse
import os
import statistics
import time

from compare_torch_nets import median_ms
from compare_torch_ops import ROOT, Halfstep, write

WIDTH, DEPTH = 1024, 8
MODEL = {"type": "Sequential", "layers": [layer for _ in range(DEPTH) for layer in (
    {"type": "Linear", "in_features": WIDTH, "out_features": WIDTH}, {"type": "LayerNorm", "normalized_shape": WIDTH})]}

# name, halfstep's JSON, PyTorch's class and arguments
CASES = [
    ("SGD", {"type": "SGD", "lr": 1e-3}, "SGD", {"lr": 1e-3}),
    ("SGD momentum", {"type": "SGD", "lr": 1e-3, "momentum": 0.9}, "SGD", {"lr": 1e-3, "momentum": 0.9}),
    ("Adam", {"type": "Adam"}, "Adam", {}),
    ("AdamW", {"type": "AdamW"}, "AdamW", {}),
    ("AdamW amsgrad", {"type": "AdamW", "amsgrad": True}, "AdamW", {"amsgrad": True}),
    ("NAdam", {"type": "NAdam"}, "NAdam", {}),
    ("RAdam", {"type": "RAdam"}, "RAdam", {}),
    ("Adamax", {"type": "Adamax"}, "Adamax", {}),
    ("RMSprop", {"type": "RMSprop"}, "RMSprop", {}),
    ("RMSprop momentum, centered", {"type": "RMSprop", "momentum": 0.9, "centered": True}, "RMSprop",
     {"momentum": 0.9, "centered": True}),
    ("Adagrad", {"type": "Adagrad"}, "Adagrad", {}),
    ("Adadelta", {"type": "Adadelta"}, "Adadelta", {}),
    ("ASGD", {"type": "ASGD"}, "ASGD", {}),
    ("Rprop", {"type": "Rprop"}, "Rprop", {}),
    ("Adafactor", {"type": "Adafactor"}, "Adafactor", {}),
    ("Muon, AdamW for vectors", {"type": "Muon"}, "Muon", {}),
    ("Lion (beside AdamW)", {"type": "Lion"}, "AdamW", {}),
    ("LAMB (beside AdamW)", {"type": "LAMB"}, "AdamW", {}),
    ("AdEMAMix (beside AdamW)", {"type": "AdEMAMix"}, "AdamW", {}),
]


class Torch:
    """One of PyTorch's ways. Muon takes matrices only: the other parameters go to AdamW, as in halfstep."""

    def __init__(self, kind, options, way):
        import torch
        torch.manual_seed(0)
        net = torch.nn.Sequential(*[layer for _ in range(DEPTH)
                                    for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH))])
        for p in net.parameters():
            p.grad = torch.randn_like(p)
        chosen = {"foreach": {"foreach": True}, "fused": {"fused": True}, "plain": {}}[way]
        if kind == "Muon":
            self.optimizers = [torch.optim.Muon([p for p in net.parameters() if p.dim() == 2], **options),
                               torch.optim.AdamW([p for p in net.parameters() if p.dim() != 2], fused=True)]
        else:
            self.optimizers = [getattr(torch.optim, kind)(net.parameters(), **options, **chosen)]
        for _ in range(2):
            self.run()

    def run(self):
        begin = time.perf_counter()
        for optimizer in self.optimizers:
            optimizer.step()
        return 1000 * (time.perf_counter() - begin)

    def ms(self, seconds):
        return median_ms(self.run, seconds)


def ways(kind, options):
    """Those that this PyTorch has for the optimizer."""
    out = {}
    for way in ("plain",) if kind == "Muon" else ("foreach", "fused"):
        try:
            out[way] = Torch(kind, options, way)
        except (TypeError, RuntimeError, ValueError):
            pass
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/benchmarks/nets"))
    p.add_argument("--match", default="", help="optimizers whose name contains this")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.2, help="of runs of each side, a round")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--json", help="write the rows here")
    a = p.parse_args()
    import torch
    torch.set_num_threads(a.threads)
    ours = Halfstep(a.binary, a.threads)
    print(f"{'optimizer':30} {'halfstep ms':>11} {'PyTorch ms':>10} {'way':8} {'ratio':>6} spread")
    for name, config, kind, options in CASES:
        if a.match.lower() not in name.lower():
            continue
        case = {"model": MODEL, "input": [1, WIDTH], "optimizer": config, "seconds": a.seconds}
        theirs = ways(kind, options)
        rounds = [(ours.ms(case), {way: t.ms(a.seconds) for way, t in theirs.items()}) for _ in range(a.rounds)]
        best = min(theirs, key=lambda way: statistics.median(r[1][way] for r in rounds))
        ratios = sorted(h / t[best] for h, t in rounds)
        row = {"row": name, "pass": "step", "dtype": "float32", "halfstep_ms": statistics.median(h for h, _ in rounds), "way": best,
               "torch_ms": statistics.median(t[best] for _, t in rounds), "ratio": statistics.median(ratios),
               "spread": [ratios[0], ratios[-1]]}
        print(f"{name:30} {row['halfstep_ms']:11.3f} {row['torch_ms']:10.3f} {best:8} {row['ratio']:6.2f} "
              f"{ratios[0]:.2f} to {ratios[-1]:.2f}", flush=True)
        if a.json:
            write(a.json, {"torch": torch.__version__, "threads": a.threads, "rounds": a.rounds, "seconds": a.seconds}, [row],
                  [c[0] for c in CASES])


if __name__ == "__main__":
    main()
