#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Networks against PyTorch, interleaved: forward in evaluation, and whole training steps.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy safetensors
    /tmp/torch/bin/python benchmarks/compare_torch_nets.py [--match lstm] [--json FILE]

With --onnxruntime (pip install onnx onnxruntime) also beside onnxruntime, which runs what PyTorch exports.

Each round times both sides one after the other on the same number of threads, each the median of the runs within --seconds, after a
pause in which the other side's waiting threads go to sleep. The ratio of a round is halfstep / PyTorch, and the median over the
rounds is printed with the least and the greatest: below 1 halfstep is faster. halfstep's nets are made from the JSON of a config,
PyTorch's run with autocast around forward alone and its usual SGD. The loss of both is the mean of the squared outputs.
The nets are in torch_nets.py. A file that exists keeps its other rows.

    python3 benchmarks/compare_torch_nets.py --before OLD/build/default/benchmarks/nets [--match ResNet]

Against the nets of another build in place of PyTorch, in the same way. With --busy N, beside N processes that never sleep.

    python3 benchmarks/compare_torch_nets.py --threads-independent [--threads 1]

What performance.threads_independent costs: with it, beside the same nets without it.

    python benchmarks/compare_torch_nets.py --device cuda [--variants eager,compile,max_autotune,graph,channels_last,...]
    python benchmarks/compare_torch_nets.py --small                   on a CPU, small: tries this part of the program

On a GPU training steps alone, of larger nets, in float16 and bfloat16: halfstep's eager and recorded steps beside each variant of
PyTorch, every run from an idle device to an idle device. Where PyTorch is missing halfstep is measured alone. GPT-2 is trained as
people do: cross entropy, AdamW (PyTorch's fused one), clipping, in float16 with a scaler. `max_autotune` is torch.compile's mode,
`graph` PyTorch's whole step as one CUDA graph; variants join with +, as channels_last+compile.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings

from compare_torch_ops import PAUSE, ROOT, Halfstep, write
from torch_nets import GPU_NETS, NETS, SMALL_NETS


def median_ms(run, seconds):
    """The median of run()'s results within `seconds`, of five runs at least, after the other side has gone to sleep."""
    time.sleep(PAUSE)
    end, times = time.perf_counter() + seconds, []
    while len(times) < 5 or time.perf_counter() < end:
        times.append(run())
    return statistics.median(times)


class Torch:
    def __init__(self, entry, dtype, train, device="cpu", variant="eager"):
        import torch
        torch.manual_seed(0)
        self.device = device
        self.torch, self.train, self.low = torch, train, None if dtype == "float32" else getattr(torch, dtype)
        ways = variant.split("+")
        self.net = entry["model"]().train(train).to(device)
        self.x = self.numbers(entry["input"])
        if "channels_last" in ways or entry["channels_last"]:
            self.net, self.x = self.net.to(memory_format=torch.channels_last), self.x.to(memory_format=torch.channels_last)
        step = entry.get("training") if train else None
        self.target = self.numbers(step["target"]) if step else None
        self.clip = step and step.get("clip_grad_norm")
        self.scaler = torch.amp.GradScaler(device, enabled=step is not None and dtype == "float16")
        if step:
            options = {k: v for k, v in step["optimizer"].items() if k != "type"}
            self.opt = getattr(torch.optim, step["optimizer"]["type"])(self.net.parameters(), fused=True, **options)
            if "graph" in ways:
                self.opt.defaults["capturable"] = self.opt.param_groups[0]["capturable"] = True
        else:
            self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        if "compile" in ways or "max_autotune" in ways:
            torch._dynamo.reset()  # it gives up on a process that has compiled eight nets
            self.net = torch.compile(self.net, mode="max-autotune" if "max_autotune" in ways else "default")
        self.graph = None
        for _ in range(2):
            self.run()
        if "graph" in ways:
            self.capture()

    def numbers(self, spec):
        torch = self.torch
        return (torch.randn(spec) if isinstance(spec, list) else torch.randint(0, spec["below"], spec["shape"])).to(self.device)

    def forward(self):
        with self.torch.autocast(self.device, dtype=self.low or self.torch.bfloat16, enabled=self.low is not None):
            return self.net(self.x)

    def loss(self):
        if self.target is None:
            return self.forward().float().square().mean()
        with self.torch.autocast(self.device, dtype=self.low or self.torch.bfloat16, enabled=self.low is not None):
            return self.torch.nn.functional.cross_entropy(self.net(self.x).flatten(0, -2), self.target.flatten())

    def step(self):
        self.scaler.scale(self.loss()).backward()
        if self.clip:
            self.scaler.unscale_(self.opt)
            self.torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
        self.scaler.step(self.opt)
        self.scaler.update()
        self.opt.zero_grad()

    def capture(self):
        """Records the whole step, as torch.cuda.graphs describes it."""
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(3):
                self.step()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            self.step()
        self.graph = graph
        self.run()

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def run(self):
        self.wait()
        begin = time.perf_counter()
        if self.graph:
            self.graph.replay()
        elif self.train:
            self.step()
        else:
            with self.torch.no_grad():
                self.forward()
        self.wait()
        return 1000 * (time.perf_counter() - begin)

    def ms(self, seconds):
        return median_ms(self.run, seconds)


class Onnx:
    """onnxruntime, with the file that PyTorch's older exporter writes of its own net. Forward in float32 alone."""
    def __init__(self, entry, threads):
        import logging
        import tempfile
        import onnxruntime
        import torch
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        theirs = Torch(entry, "float32", False)
        torch.backends.mha.set_fastpath_enabled(False)  # ops that ONNX lacks
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = os.path.join(folder, "net.onnx")
            torch.onnx.export(theirs.net.eval(), (theirs.x,), path, dynamo=False, input_names=["x"], opset_version=17)
            self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        torch.backends.mha.set_fastpath_enabled(True)
        self.x = theirs.x.contiguous().numpy()
        with torch.no_grad():
            expected = theirs.forward().numpy()
        found = self.session.run(None, {"x": self.x})[0]
        assert abs(found - expected).max() < 1e-3 * (1 + abs(expected).max()), "onnxruntime computes something else"

    def run(self):
        begin = time.perf_counter()
        self.session.run(None, {"x": self.x})
        return 1000 * (time.perf_counter() - begin)

    def ms(self, seconds):
        return median_ms(self.run, seconds)


class Before:
    """Another build's net, as a side of the comparison."""
    def __init__(self, binary, threads, case):
        self.other, self.case = Halfstep(binary, threads), case

    def ms(self, seconds):
        return self.other.ms(self.case | {"seconds": seconds})


def fits(side, entry, device):
    """Whether a side can be measured: channels_last is for images, and graphs are for GPUs."""
    return not ("channels_last" in side and not entry["name"].startswith("ResNet") or
                device == "cpu" and ("graph" in side.split("+") or side == "halfstep_recorded"))


def on_gpu(a):
    """One JSON object at the end, a line for each net and dtype before. Ends with 2 where something could not be measured."""
    try:
        import torch
        torch.set_num_threads(a.threads)
        variants = [v for v in a.variants.split(",") if v] if a.device == "cpu" or torch.cuda.is_available() else []
    except ImportError:
        torch, variants = None, []
    begin, rows = time.perf_counter(), []
    notes = [] if variants or not a.variants else ["no PyTorch for this GPU: halfstep is measured alone"]
    ours_sides = [] if a.torch_alone else ["halfstep", "halfstep_recorded", "halfstep_channels_last"]
    for entry in SMALL_NETS if a.small else GPU_NETS:
        for dtype in a.dtypes.split(","):
            if not any(part in entry["name"] for part in a.match.split("|")):
                continue
            row = {"row": entry["name"], "dtype": dtype, "ms": {}}
            case = {"model": entry["config"], "input": entry["input"], "dtype": dtype, "train": True, "seconds": a.seconds,
                    "device": a.device} | ({"training": entry["training"]} if "training" in entry else {})
            for side in ours_sides + variants:
                if not fits(side, entry, a.device):
                    continue
                if time.perf_counter() - begin > a.budget:
                    notes.append(f"{entry['name']} {dtype} {side}: the time was up")
                    continue
                try:
                    if side.startswith("halfstep"):  # a process each: the memory is the other side's afterwards
                        ours = Halfstep(a.binary, a.threads)
                        answer = ours.answer(case | {"recorded": side != "halfstep" and a.device == "cuda",
                                                     "channels_last": side.endswith("channels_last")})
                        row["ms"][side] = answer["ms"]
                        if "loss" in answer:
                            row["loss"] = answer["loss"]
                        ours.process.stdin.close()
                        ours.process.wait()
                    else:
                        theirs = Torch(entry, dtype, True, a.device, side)
                        row["ms"][f"torch_{side}"] = theirs.ms(a.seconds)
                        del theirs
                        if a.device == "cuda":
                            torch.cuda.empty_cache()
                except Exception as e:  # of one side: the others are measured all the same
                    notes.append(f"{entry['name']} {dtype} {side}: {(str(e) or type(e).__name__).splitlines()[0][:200]}")
            if row["ms"]:
                rows.append(row)
                print(f"{row['row']:34} {dtype:9} " + "  ".join(f"{k} {v:.2f} ms" for k, v in row["ms"].items()), flush=True)
    print(json.dumps({"nets": rows, "notes": notes, "torch": torch.__version__ if variants else None}))
    return 2 if notes else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/benchmarks/nets"))
    p.add_argument("--match", default="", help="nets whose name contains this; A|B: one of these")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seconds", type=float, default=0.4, help="of runs of each side, a round")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--dtypes", help="[float32,bfloat16; on a GPU float16,bfloat16]")
    p.add_argument("--json", help="write the rows here")
    p.add_argument("--before", help="on a CPU: the nets of another build, in place of PyTorch")
    p.add_argument("--threads-independent", action="store_true",
                   help="on a CPU: cut by shapes alone, beside the same build without it. Times of all threads together, which "
                        "other programs disturb less than the clock's")
    p.add_argument("--compile", action="store_true", help="on a CPU: beside torch.compile, too")
    p.add_argument("--onnxruntime", action="store_true", help="on a CPU: beside onnxruntime, too, which must be installed")
    p.add_argument("--floor", action="store_true",
                   help="on a CPU: the least time that the net's plan needs on this machine, and where the time goes")
    p.add_argument("--busy", type=int, default=0, metavar="N", help="on a CPU: beside N processes that never sleep")
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--small", action="store_true", help="on a CPU: the GPU's nets, small, and its variants of PyTorch")
    p.add_argument("--variants", default="eager,compile,max_autotune,graph,channels_last,channels_last+compile",
                   help="of PyTorch on a GPU; empty: none [%(default)s]")
    p.add_argument("--torch-alone", action="store_true", help="on a GPU: without halfstep")
    p.add_argument("--budget", type=float, default=400, help="on a GPU: seconds, after which no further net is begun")
    a = p.parse_args()
    a.dtypes = a.dtypes or ("float16,bfloat16" if a.device == "cuda" else "float32,bfloat16")
    if a.device == "cuda" or a.small:
        return on_gpu(a)
    if a.threads_independent:
        a.before = a.before or a.binary
    settings = {"threads": a.threads, "rounds": a.rounds, "seconds": a.seconds, "busy": a.busy}
    if a.before:
        sides = ["before"]
    else:
        import torch
        torch.set_num_threads(a.threads)
        settings = {"torch": torch.__version__} | settings
        if a.onnxruntime:
            import onnxruntime
            settings["onnxruntime"] = onnxruntime.__version__
        sides = ["eager"] + (["compile"] if a.compile else []) + (["onnxruntime"] if a.onnxruntime else [])
    print(f"{'net':40} {'pass':8} {'dtype':9} {'halfstep ms':>11} {'of floor':>9}"
          + "".join(f" {side + ' ms':>11} {'ratio':>6} {'spread':12}" for side in sides))
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(a.busy)]
    try:
        for entry in NETS:
            if not any(part in entry["name"] for part in a.match.split("|")):
                continue
            for dtype in a.dtypes.split(","):
                for train in (False, True):
                    row = on_cpu(entry, dtype, train, sides, a)
                    print(shown(row, sides), flush=True)
                    if a.json:
                        write(a.json, settings, [row], [n["name"] for n in NETS])
    finally:
        for process in others:
            process.kill()


def on_cpu(entry, dtype, train, sides, a):
    """A row of the table: both sides one after the other, round by round, and the floor of the net's plan. A new process computes
    it, since the memory that earlier nets have left costs up to a tenth."""
    ours = Halfstep(a.binary, a.threads)
    case = {"model": entry["config"], "input": entry["input"], "channels_last": entry["channels_last"], "dtype": dtype,
            "train": train, "seconds": a.seconds}
    with_key = case
    if a.threads_independent:
        case |= {"clock": "cpu_ms"}
        with_key = case | {"threads_independent": True}
    if train or dtype != "float32":  # what onnxruntime's CPU provider does not compute
        sides = [side for side in sides if side != "onnxruntime"]
    theirs, failed = {}, {}
    for side in sides:
        try:
            theirs[side] = (Before(a.before, a.threads, case) if a.before else
                            Onnx(entry, a.threads) if side == "onnxruntime" else Torch(entry, dtype, train, variant=side))
        except RuntimeError as e:  # as of PyTorch's LSTM in bfloat16, where the CPU has no instructions for it
            failed[side] = str(e).split("\n")[0]
    rounds = [(ours.ms(with_key), *(t.ms(a.seconds) for t in theirs.values())) for _ in range(a.rounds)]
    row = {"row": entry["name"], "pass": "train" if train else "forward", "dtype": dtype,
           "halfstep_ms": statistics.median(r[0] for r in rounds)}
    if failed:
        row["failed"] = failed
    for i, side in enumerate(theirs, 1):
        ratios = sorted(r[0] / r[i] for r in rounds)
        own = "" if side == "eager" else f"{side}_"
        row |= {("torch_ms" if side == "eager" else f"{side}_ms"): statistics.median(r[i] for r in rounds),
                f"{own}ratio": statistics.median(ratios), f"{own}spread": [ratios[0], ratios[-1]]}
    if a.floor:
        answer = ours.answer(case | {"seconds": 0, "floor": True})
        row |= {key: answer[key] for key in ("floor_ms", "profiled_ms", "calls")}
    return row


def shown(row, sides):
    floor = f"{100 * row['floor_ms'] / row['halfstep_ms']:7.0f} %" if "floor_ms" in row else ""
    text = f"{row['row']:40} {row['pass']:8} {row['dtype']:9} {row['halfstep_ms']:11.3f} {floor:>9}"
    for side in sides:
        own = "" if side == "eager" else f"{side}_"
        if side in row.get("failed", {}):
            text += f" {'fails':>11}" + 20 * " "
        if f"{own}spread" not in row:
            continue
        low, high = row[f"{own}spread"]
        text += f" {row['torch_ms' if side == 'eager' else f'{side}_ms']:11.3f} {row[f'{own}ratio']:6.2f} {low:.2f} to {high:.2f}"
    return text


if __name__ == "__main__":
    sys.exit(main())
