#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ops against PyTorch on the CPU, interleaved: forward alone, and forward with backward, float32 and bfloat16.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy safetensors
    /tmp/torch/bin/python benchmarks/compare_torch_ops.py [--match conv] [--rows 10:20] [--dtypes float32]
        [--json FILE]

Each round times both sides one after the other on the same number of threads, each the fastest of --repeat runs or of as many as
fit into LEAST, after a pause in which the other side's waiting threads go to sleep: until then they spin on the cores that are
being timed. The ratio of a round is halfstep / PyTorch, and the median over the rounds is printed with the least and the greatest:
below 1 halfstep is faster. The rows are in ROWS; in float16 those that are there in bfloat16. A file that exists keeps its other
rows: a long table can be measured in pieces.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import records

PAUSE, LEAST = 0.02, 0.03  # seconds
ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/parity"))


def numbers(*shape, **more):
    return {"shape": list(shape), **more}


def row(op, *inputs, dtypes=("float32", "bfloat16"), backward=True, **attrs):
    return {"op": op, "in": [list(i) if isinstance(i, tuple) else i for i in inputs], "attrs": attrs, "dtypes": dtypes,
            "backward": backward}


BIG = (4096, 1024)
IMAGES = (32, 64, 56, 56)
ROWS = [
    # products
    row("mm", (512, 512), (512, 512)),
    row("mm", (1024, 1024), (1024, 1024)),
    row("bmm", (16, 256, 64), (16, 64, 256)),
    row("linear", (512, 1024), (1024, 1024), (1024,)),
    row("addmm", (1024,), (512, 1024), (1024, 1024)),
    row("baddbmm", (16, 128, 128), (16, 128, 64), (16, 64, 128)),
    row("mv", (2048, 2048), (2048,)),
    row("scaled_dot_product_attention", (2, 8, 256, 64), (2, 8, 256, 64), (2, 8, 256, 64)),
    # convolution
    row("conv2d", (32, 64, 56, 56), (64, 64, 3, 3), (64,), padding=1),
    row("conv2d", (8, 3, 224, 224), numbers(64, 3, 7, 7), (64,), stride=2, padding=3),
    row("conv2d", (32, 64, 56, 56), (256, 64, 1, 1), (256,)),
    row("conv2d", (32, 16, 28, 28), (32, 16, 5, 5), (32,), padding=2),
    row("conv2d", (32, 64, 28, 28), (64, 1, 3, 3), None, padding=1, groups=64),
    row("conv1d", (32, 64, 512), (64, 64, 3), (64,), padding=1),
    row("conv_transpose2d", (16, 64, 28, 28), (64, 32, 4, 4), (32,), stride=2, padding=1),
    # rows
    row("softmax", BIG, dim=-1),
    row("log_softmax", BIG, dim=-1),
    row("layer_norm", BIG, (1024,), (1024,), normalized_shape=[1024]),
    row("rms_norm", BIG, (1024,), normalized_shape=[1024]),
    row("group_norm", (32, 64, 28, 28), (64,), (64,), num_groups=8),
    row("batch_norm", IMAGES, None, None, (64,), (64,), training=True),
    row("batch_norm", (256, 512), None, None, (512,), (512,), training=True),
    *(row("batch_norm", numbers(*s, channels_last=last), None, None, (s[1],), (s[1],), training=True)
      for s in ((8, 64, 56, 56), (32, 256, 14, 14), (8, 512, 7, 7)) for last in (False, True)),
    *(row("group_norm", numbers(8, 64, 56, 56, channels_last=last), (64,), (64,), num_groups=8) for last in (False, True)),
    *(row("instance_norm", numbers(8, 64, 56, 56, channels_last=last), None, None, (64,), (64,)) for last in (False, True)),
    row("cross_entropy", (1024, 10000), numbers(1024, below=10000)),
    row("mse_loss", BIG, BIG),
    row("binary_cross_entropy_with_logits", BIG, numbers(*BIG, positive=True, fixed=True)),
    row("smooth_l1_loss", BIG, BIG),
    # pooling and resampling
    row("max_pool2d", IMAGES, kernel_size=2),
    row("max_pool2d", IMAGES, kernel_size=3, stride=2, padding=1),
    row("avg_pool2d", IMAGES, kernel_size=2),
    row("adaptive_avg_pool2d", IMAGES, output_size=[1, 1]),
    row("interpolate", (8, 32, 56, 56), mode="bilinear", scale_factor=2, dtypes=("float32",)),
    row("interpolate", (8, 32, 56, 56), mode="nearest", scale_factor=2, dtypes=("float32",)),
    row("grid_sample", (4, 16, 64, 64), numbers(4, 64, 64, 2), dtypes=("float32",), align_corners=False),
    # elementwise
    row("relu", BIG), row("gelu", BIG), row("silu", BIG), row("sigmoid", BIG), row("tanh", BIG), row("exp", BIG),
    row("leaky_relu", BIG), row("elu", BIG), row("softplus", BIG),
    row("add", BIG, BIG), row("mul", BIG, BIG), row("mul", BIG, (1024,)), row("div", BIG, numbers(*BIG, positive=True)),
    row("pow", numbers(*BIG, positive=True), exponent=2.5, dtypes=("float32",)),
    row("addcmul", BIG, BIG, BIG), row("clamp", BIG, min=-0.5, max=0.5),
    # reductions, scans, order
    row("sum", BIG), row("sum", BIG, dim=1), row("sum", BIG, dim=0), row("mean", BIG, dim=1), row("amax", BIG, dim=1),
    row("var", BIG, dim=1), row("norm", BIG, dim=1), row("logsumexp", BIG, dim=1), row("argmax", BIG, dim=1, backward=False),
    row("cumsum", BIG, dim=1), row("cumsum", BIG, dim=0), row("prod", BIG, dim=1, dtypes=("float32",)),
    row("sort", (512, 4096), dim=1), row("topk", (512, 4096), k=8),
    # indexing and memory
    row("embedding", numbers(50000, 512), numbers(8192, below=50000), dtypes=("float32",)),
    row("index_select", (50000, 512), numbers(8192, below=50000), dim=0, dtypes=("float32",)),
    row("gather", BIG, numbers(4096, 1024, below=1024), dim=1, dtypes=("float32",)),
    row("scatter_add", (4096, 1024), numbers(4096, 1024, below=1024), (4096, 1024), dim=1, dtypes=("float32",)),
    row("cat", {"list": [list(BIG), list(BIG)]}, dim=1),
    row("pad", (32, 64, 28, 28), pad=[1, 1, 1, 1]),
    # cells
    row("lstm_cell", (64, 256), (64, 256), (64, 256), (1024, 256), (1024, 256), (1024,), (1024,)),
    row("gru_cell", (64, 256), (64, 256), (768, 256), (768, 256), (768,), (768,)),
    # what a call costs: --rows=-3:
    row("add", (1,), (1,), dtypes=("float32",)), row("mul", (1,), (1,), dtypes=("float32",)),
    row("linear", (8, 8), (8, 8), (8,), dtypes=("float32",)),
]


class Halfstep:
    def __init__(self, binary, threads):
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen([binary, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ms(self, case):
        return self.answer(case)[case.get("clock", "ms")]

    def answer(self, case):
        time.sleep(PAUSE)
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


class Torch:
    def __init__(self, case):
        import torch
        import torch_ops
        self.torch, self.call, self.case = torch, torch_ops.call, case
        self.wanted = []
        self.inputs = [self.make(s) for s in case["in"]]
        self.out_gradients = None
        self.run()

    def make(self, spec):
        torch = self.torch
        if spec is None:
            return None
        if isinstance(spec, dict) and "list" in spec:
            return [self.make(s) for s in spec["list"]]
        more = spec if isinstance(spec, dict) else {}
        shape = more.get("shape", spec)
        if "below" in more:
            return torch.randint(0, more["below"], shape)
        t = (torch.rand(shape) + 0.1 if more.get("positive") else torch.randn(shape)).to(getattr(torch, self.case["dtype"]))
        if more.get("channels_last"):
            t = t.to(memory_format=torch.channels_last)
        if self.case["backward"] and not more.get("fixed"):
            self.wanted.append(t.requires_grad_())
        return t

    def run(self):
        begin = time.perf_counter()
        if self.case["backward"]:
            out = [t for t in self.outputs() if t.requires_grad]
            if self.out_gradients is None:
                self.out_gradients = [self.torch.ones_like(t) for t in out]
            self.torch.autograd.grad(out, self.wanted, self.out_gradients, allow_unused=True)
        else:
            with self.torch.no_grad():
                self.outputs()
        return 1000 * (time.perf_counter() - begin)

    def outputs(self):
        out = self.call(self.case["op"], self.inputs, self.case["attrs"])
        return list(out) if isinstance(out, (tuple, list)) else [out]

    def ms(self, repeat):
        time.sleep(PAUSE)
        end, times = time.perf_counter() + LEAST, []
        while len(times) < repeat or time.perf_counter() < end:
            times.append(self.run())
        return min(times)


def title(case):
    def shape(s):
        if s is None:
            return "-"
        if isinstance(s, dict) and "list" in s:
            return "[" + " ".join(shape(x) for x in s["list"]) + "]"
        last = " channels-last" if isinstance(s, dict) and s.get("channels_last") else ""
        return ("x".join(map(str, s["shape"] if isinstance(s, dict) else s)) or "()") + last
    attrs = " ".join(f"{k}={v}" for k, v in case["attrs"].items())
    return f"{case['op']} {' '.join(shape(s) for s in case['in'])}" + (f" {attrs}" if attrs else "")


def write(path, settings, results, order):
    """Writes the rows to `path`, in this order of names, over those that it has of the same name, pass and dtype; names that
    are not among them any more go."""
    file = pathlib.Path(path)
    key = lambda r: (r["row"], r["pass"], r["dtype"])
    before = [r for r in records.load(file)["rows"] if r["row"] in order] if file.exists() else []
    rows = {key(r): r for r in before + results}
    git = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
    report = {"date": datetime.date.today().isoformat(), "machine": records.machine(), "commit": git.stdout.strip(), **settings,
              "rows": sorted(rows.values(), key=lambda r: order.index(r["row"]))}
    records.save(file, report)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/benchmarks/ops"))
    p.add_argument("--match", default="", help="rows whose op contains this")
    p.add_argument("--rows", default=":", help="FIRST:LAST of ROWS, as Python counts, e.g. 0:20")
    p.add_argument("--dtypes", default="float32,bfloat16")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--repeat", type=int, default=5, help="runs of each side a round, of which the fastest counts")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--json", help="write the rows here")
    a = p.parse_args()
    import torch
    torch.set_num_threads(a.threads)
    ours = Halfstep(a.binary, a.threads)
    results = []
    print(f"{'row':88} {'pass':9} {'dtype':9} {'halfstep ms':>11} {'PyTorch ms':>10} {'ratio':>6} spread")
    for r in ROWS[slice(*(int(i) if i else None for i in a.rows.split(":")))]:
        if a.match not in r["op"]:
            continue
        for dtype in [d for d in a.dtypes.split(",") if d in r["dtypes"] or (d == "float16" and "bfloat16" in r["dtypes"])]:
            for backward in ([False, True] if r["backward"] else [False]):
                case = {"op": r["op"], "in": r["in"], "attrs": r["attrs"], "dtype": dtype, "backward": backward, "repeat": a.repeat,
                        "seconds": LEAST}
                entry = {"row": title(case), "pass": "fwd+bwd" if backward else "forward", "dtype": dtype}
                try:
                    theirs = Torch(case)
                    rounds = [(ours.ms(case), theirs.ms(a.repeat)) for _ in range(a.rounds)]
                except Exception as e:  # a row that one side cannot run is part of the result
                    entry["error"] = str(e).splitlines()[0]
                    print(f"{entry['row'][:88]:88} {entry['pass']:9} {dtype:9} {entry['error'][:60]}", flush=True)
                else:
                    entry["halfstep_ms"] = statistics.median(h for h, _ in rounds)
                    entry["torch_ms"] = statistics.median(t for _, t in rounds)
                    ratios = sorted(h / t for h, t in rounds)
                    entry["ratio"] = statistics.median(ratios)
                    entry["spread"] = [ratios[0], ratios[-1]]
                    print(f"{entry['row'][:88]:88} {entry['pass']:9} {dtype:9} {entry['halfstep_ms']:11.3f} "
                              f"{entry['torch_ms']:10.3f} "
                          f"{entry['ratio']:6.2f} {ratios[0]:.2f} to {ratios[-1]:.2f}", flush=True)
                results.append(entry)
                if a.json:
                    write(a.json, {"torch": torch.__version__, "threads": a.threads, "rounds": a.rounds, "repeat": a.repeat},
                          [entry],
                          [title(r) for r in ROWS])
    good = [r for r in results if r.get("ratio", 9) <= 1.0]
    print(f"{len(good)} of {len(results)} rows at or below 1.0")


if __name__ == "__main__":
    main()
