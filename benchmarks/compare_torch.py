#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step times of the benchmark MLP: halfstep against PyTorch on the CPU, interleaved: float32 and autocast.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch
    /tmp/torch/bin/python benchmarks/compare_torch.py --batch 512 --width 1024

Each round runs both sides, one after the other, on the same number of threads; the ratio of a round is halfstep / PyTorch, and
the median over the rounds is printed: below 1 halfstep is faster. PyTorch uses its documented recipe (autocast around forward
and loss, SGD, a GradScaler for float16) in its usual eager mode and, with --fused, its fused SGD. Prints one JSON object last.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/halfstep"))
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--steps", type=int, default=30, help="timed steps a round")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--fused", action="store_true", help="PyTorch's fused SGD")
    p.add_argument("--arms", default="float32,bfloat16,float16")
    return p.parse_args()


def bench_mlp(binary, *arguments, timeout=None, env=None):
    """The JSON object that `halfstep bench mlp --json` prints. One that says what failed is a result too."""
    done = subprocess.run([binary, "bench", "mlp", "--json", *map(str, arguments)], capture_output=True, text=True,
                          timeout=timeout, env=env)
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        result = {}
    if not result.get("arms") or done.returncode and not any(arm.get("plain_products") for arm in result["arms"]):
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
    return result


def make_mlp(torch, width, layers):
    stages = []
    for i in range(layers):
        stages += [torch.nn.Linear(width, width)] + ([torch.nn.ReLU()] if i + 1 < layers else [])
    return torch.nn.Sequential(*stages)


def run_halfstep(a, arm):
    result = bench_mlp(a.binary, "--arms", arm, "--device", "cpu", "--batch", a.batch, "--width", a.width, "--layers", a.layers,
                       "--batches", 5, "--epochs", (a.steps + 9) // 5, "--warmup", 5, "--repeats", 1, "--threads", a.threads)
    return result["arms"][0]["median_ms"], result["description"]


class TorchStep:
    def __init__(self, a, arm):
        import torch
        self.torch, self.arm = torch, arm
        torch.manual_seed(0)
        self.net = make_mlp(torch, a.width, a.layers)
        self.scaler = torch.amp.GradScaler("cpu", enabled=arm == "float16")
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3, **({"fused": True} if a.fused else {}))
        self.data = [torch.randn(a.batch, a.width) for _ in range(5)]
        self.target = [torch.randn(a.batch, a.width) for _ in range(5)]
        self.loss_fn = torch.nn.MSELoss()

    def step(self, i):
        torch = self.torch
        with torch.autocast("cpu", dtype=torch.float16 if self.arm == "float16" else torch.bfloat16, enabled=self.arm != "float32"):
            loss = self.loss_fn(self.net(self.data[i % 5]), self.target[i % 5])
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.scaler.update()
        self.opt.zero_grad()

    def median_ms(self, steps):
        times = []
        for i in range(steps + 5):
            start = time.perf_counter()
            self.step(i)
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times[5:])


def main():
    a = parse_args()
    import torch
    torch.set_num_threads(a.threads)
    arms = a.arms.split(",")
    sides = {arm: TorchStep(a, arm) for arm in arms}
    times = {arm: {"halfstep": [], "torch": []} for arm in arms}
    description = ""
    for _ in range(a.rounds):
        for arm in arms:
            ms, description = run_halfstep(a, arm)
            times[arm]["halfstep"].append(ms)
            times[arm]["torch"].append(sides[arm].median_ms(a.steps))
    print(f"{a.layers} x Linear({a.width}, {a.width}), batch {a.batch}, {a.threads} threads, {a.rounds} rounds of {a.steps} steps")
    print(f"halfstep: {description}\nPyTorch {torch.__version__}{', fused SGD' if a.fused else ''}\n")
    print(f"{'arm':<10}{'halfstep ms':>13}{'PyTorch ms':>12}{'ratio':>8}   ratios of the rounds")
    result = {"torch": torch.__version__, "halfstep": description, "batch": a.batch, "width": a.width, "layers": a.layers,
              "threads": a.threads, "rounds": a.rounds, "fused": a.fused, "arms": {}}
    for arm, t in times.items():
        ratios = [h / p for h, p in zip(t["halfstep"], t["torch"])]
        mine, theirs, ratio = statistics.median(t["halfstep"]), statistics.median(t["torch"]), statistics.median(ratios)
        print(f"{arm:<10}{mine:>13.2f}{theirs:>12.2f}{ratio:>8.2f}   {min(ratios):.2f} .. {max(ratios):.2f}")
        result["arms"][arm] = {"halfstep_ms": mine, "torch_ms": theirs, "ratio": ratio, "ratios": ratios}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
