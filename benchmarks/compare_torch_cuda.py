#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step times of the benchmark MLPs on a GPU: halfstep against the variants of PyTorch, interleaved A B A B.

    python3 benchmarks/compare_torch_cuda.py --binary build/gpu/halfstep --out result.json     # scripts/gpu_suite.sh runs this
    python3 benchmarks/compare_torch_cuda.py --print result.json                               # the tables of an earlier run

docs/performance.md says what is measured and how to read it. Ends with 0; with 1 if halfstep failed or its losses left PyTorch's;
with 2 if something could not be measured (no PyTorch, the time was up): the notes below the tables say what.
"""
import argparse
import ctypes
import datetime
import gc
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

import records
from compare_torch import ROOT, bench_mlp
from mlp_tables import CASES, floor_ms, inner_steps, print_tables, rates_of
from torch_mlp import BATCHES, TORCH, Torch, ceilings, read_safetensors


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/gpu/halfstep"))
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to try the script")
    p.add_argument("--case", action="append", help=f"one of {', '.join(CASES)} or BATCH,WIDTH,LAYERS; may be repeated")
    p.add_argument("--halfstep-variants", help="e.g. fp16,bf16_tuned,fp16_eager [all there are]")
    p.add_argument("--torch-variants", default=",".join(TORCH), help="%(default)s")
    p.add_argument("--stream-only", action="store_true", help="leave out the steps that the host waits for one by one")
    p.add_argument("--rounds", type=int, default=2, help="turns of each side a case")
    p.add_argument("--samples", type=int, default=30, help="of PyTorch in each round")
    p.add_argument("--stream-s", type=float, default=0.6, help="for the samples of many steps, and at least 5 of them")
    p.add_argument("--warm-s", type=float, default=0.3, help="warm-up of each variant, and at least 20 steps")
    p.add_argument("--budget", type=float, default=450, help="seconds, after which no further case is begun")
    p.add_argument("--compile-mode", default="default", help="of torch.compile, e.g. max-autotune-no-cudagraphs")
    p.add_argument("--source", default="", help="recorded: hash of the sources")
    p.add_argument("--out", help="result file; a folder: DATE-GPU.json in it")
    p.add_argument("--print", metavar="FILE", help="print the tables of a result file and end")
    return p.parse_args()


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def gpu_state():
    keys = ["name", "driver_version", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "memory.used"]
    lines = output_of("nvidia-smi", "--query-gpu=" + ",".join(keys), "--format=csv,noheader,nounits").splitlines()
    return dict(zip(keys, [v.strip() for v in lines[0].split(",")])) if lines else {}


def import_torch(notes):
    try:
        import torch
        return torch
    except ImportError as e:
        notes.append(f"PyTorch was not found ({e}): halfstep alone")
        return None


def versions(a, torch):
    out = {"halfstep": output_of(a.binary, "--version"), "nvcc": output_of("nvcc", "--version").rpartition("\n")[2]}
    if not torch:
        return out
    out |= {"torch": torch.__version__, "torch_cuda": torch.version.cuda}
    if a.device == "cuda":
        out |= {"torch_cublaslt": loaded_cublaslt(torch), "torch_cudnn": torch.backends.cudnn.version()}
    return out


def loaded_cublaslt(torch):
    """Version and path of the library that PyTorch multiplies with, which PyTorch does not report."""
    torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")  # loads it
    try:
        path = re.search(r"/\S*libcublasLt\.so\S*", pathlib.Path("/proc/self/maps").read_text()).group()
        version = ctypes.CDLL(path).cublasLtGetVersion
        version.restype = ctypes.c_size_t
        return f"{version()} ({path})"
    except (OSError, AttributeError) as e:
        return f"unknown ({e})"


class Halfstep:
    """One variant of a case: a fresh process each round."""

    def __init__(self, a, case, variant, flags):
        arm = {"fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16"}[variant.split("_")[0]]
        self.a, (batch, width, layers) = a, case
        # The tuner's choices of earlier runs must not reach the variants without it.
        tuned = variant.endswith("_tuned")
        verdicts = pathlib.Path(a.binary).resolve().parent / "bench_products.txt"
        self.env = os.environ | {"HALFSTEP_TUNE": "1" if tuned else "0", "HALFSTEP_TUNE_FILE": str(verdicts) if tuned else ""}
        self.inner = inner_steps(case)
        samples = 5 if variant == "fp32" and batch >= 4096 or a.device == "cpu" else 20
        self.arguments = ["--device", a.device, "--arms", arm, "--batch", batch, "--width", width, "--layers", layers,
                          "--batches", BATCHES, "--epochs", (20 + self.inner * samples) // BATCHES + 1, "--warmup", 20]
        if "--graph" in flags:
            self.arguments += ["--graph", "off" if variant.endswith("_eager") else "auto"]
        self.kinds = {"stream": ["--inner", self.inner], "sync": ["--inner", 1]} if "--inner" in flags else {"sync": []}
        if a.stream_only and "stream" in self.kinds:
            self.kinds.pop("sync")

    @staticmethod
    def variants(a, flags):
        if a.halfstep_variants:
            return a.halfstep_variants.split(",")
        tuned = ["fp16_tuned", "bf16_tuned"] if a.device == "cuda" else []
        return ["fp32"] + ["tf32"] * ("tf32" in flags) + ["fp16", "bf16"] + tuned + ["fp16_eager"] * ("--graph" in flags)

    def round(self, row):
        out = {}
        for kind, extra in self.kinds.items():
            result = bench_mlp(self.a.binary, *self.arguments, *extra, timeout=120, env=self.env)
            arm = result["arms"][0]
            row |= {k: arm[k] for k in ("products", "plain_products") if k in arm}
            out[kind] = {"median_ms": arm["median_ms"], "min_ms": arm["fastest_ms"], "p90_ms": arm.get("p90_ms")}
            out |= {k: arm[k] for k in ("peak_bytes", "first_loss", "final_loss", "skipped")}
            out |= {"description": result["description"], "recorded": arm.get("recorded", False)}
        if "stream" in self.kinds:  # each is a process a round, and of the lesser one is enough
            self.kinds.pop("sync", None)
        return out


def measure_case(a, torch, entry, plan, flags, deadline, notes, save):
    """Fills in the rows of `entry`, one for each (side, variant) of `plan`, and saves after each round of each."""
    name, case, rows, sides, data = entry["case"], (entry["batch"], entry["width"], entry["layers"]), {}, {}, None
    for turn in range(a.rounds):
        for side, variant in plan:
            key = (side, variant)
            row = rows.get(key)
            if row is None:
                row = rows[key] = {"side": side, "variant": variant, "floor_ms": floor_ms(case, variant, a.rates), "rounds": []}
                entry["rows"].append(row)
            if "error" in row:
                continue
            if time.monotonic() > deadline:
                notes.append(f"{name}: the time was up before round {turn + 1} of {side} {variant}")
                return
            print(f"  {name} round {turn + 1}: {side} {variant}", file=sys.stderr, flush=True)
            try:
                if key not in sides:
                    if side == "halfstep":
                        sides[key] = Halfstep(a, case, variant, flags)
                    else:
                        if data is None:
                            torch.manual_seed(1)
                            data = [[torch.randn(case[0], case[1], device=a.device) for _ in range(BATCHES)] for _ in range(2)]
                        sides[key] = Torch(a, torch, case, variant, data)
                row["rounds"].append(sides[key].round(row) if side == "halfstep" else sides[key].round())
            except subprocess.CalledProcessError as e:
                row["error"] = (e.stderr or e.stdout or str(e)).strip()[-500:]
            except Exception as e:  # one variant that fails must not end the others
                row["error"] = f"{type(e).__name__}: {e}"[:500]
            save()


def plans(a, torch, cases, flags):
    """The measurements, the most important first, as (case, plan). PyTorch's compiled variant is last: it compiles for a minute."""
    mine = [("halfstep", v) for v in Halfstep.variants(a, flags)]
    theirs = [("torch", v) for v in a.torch_variants.split(",") if v] if torch else []
    how = {v: TORCH[v].get("how", "eager") for _, v in theirs}
    theirs = [t for t in theirs if a.device == "cuda" or not how[t[1]].endswith("graph")]
    compiled = [t for t in theirs if how[t[1]] == "compile"]
    plain = mine + [t for t in theirs if t not in compiled]
    return [(name, plain) for name in cases] + [(name, compiled) for name in cases if compiled]


def loss_curves(a, torch, flags, notes, out):
    """Appends 20 steps from halfstep's own weights and data, both sides: the largest relative difference of the losses."""
    if not torch:
        return
    if "--export" not in flags:
        notes.append("loss curves not compared: this halfstep has no --export")
        return
    batch, width, layers, batches, epochs = (512, 1024, 3, 5, 4) if a.device == "cuda" else (32, 64, 3, 5, 4)
    path = pathlib.Path(a.binary).parent / "bench_start.safetensors"
    for variant, arm in (("fp32", "float32"), ("fp16", "float16"), ("bf16", "bfloat16")):
        row = {"variant": variant, "ok": False}
        out.append(row)
        try:
            ours = bench_mlp(a.binary, "--device", a.device, "--arms", arm, "--batch", batch, "--width", width, "--layers", layers,
                             "--batches", batches, "--epochs", epochs, "--warmup", 0, "--export", path,
                             timeout=120)["arms"][0]["losses"]
            start = {k: v.to(a.device) for k, v in read_safetensors(torch, path).items()}
            data = [[start.pop(f"{side}.{i}") for i in range(batches)] for side in ("input", "target")]
            side = Torch(a, torch, (batch, width, layers), variant, data)
            side.net.load_state_dict(start)
            theirs = []
            for i in range(batches * epochs):
                side.next_batch = lambda i=i: (data[0][i % batches], data[1][i % batches])
                theirs.append(float(side.step()))
            worst = max(abs(x - y) / abs(y) for x, y in zip(ours, theirs))
            row |= {"halfstep": ours, "torch": theirs, "max_relative_difference": worst, "steps": len(ours),
                    "ok": len(ours) == len(theirs) and worst <= 1e-3}
        except subprocess.CalledProcessError as e:
            row["error"] = (e.stderr or str(e)).strip()[-500:]
        except Exception as e:
            row["error"] = f"{type(e).__name__}: {e}"[:500]
        finally:
            path.unlink(missing_ok=True)


def result_path(a, result):
    path = pathlib.Path(a.out)
    if not path.is_dir():
        return path
    gpu = result["gpu_before"].get("name") or ("cuda" if a.device == "cuda" else "cpu")
    return path / f"{result['date']}-{re.sub('[^a-z0-9]+', '-', gpu.lower()).strip('-')}.json"


def main():
    a = parse_args()
    if a.print:
        print_tables(records.load(a.print))
        return 0
    deadline = time.monotonic() + a.budget
    names = a.case or list(CASES)
    cases = {n: CASES[n] if n in CASES else tuple(int(v) for v in n.split(",")) for n in names}
    help_text = output_of(a.binary, "bench", "mlp", "--help")
    if not help_text:
        print(f"compare_torch_cuda.py: {a.binary} does not run: build it first", file=sys.stderr)
        return 1
    flags = set(re.findall(r"--[a-z0-9-]+", help_text)) | ({"tf32"} if "tf32" in help_text and a.device == "cuda" else set())
    notes = [f"this halfstep has no {f} here: {what}" for f, what in
             (("tf32", "no TF32 row"), ("--graph", "no eager row beside its graph"),
              ("--inner", "it synchronises after each step, and is compared with PyTorch doing the same")) if f not in flags]
    torch = import_torch(notes)
    if torch and a.device == "cuda" and not torch.cuda.is_available():
        notes.append("PyTorch sees no GPU: halfstep alone")
        torch = None
    commit = os.environ.get("HALFSTEP_COMMIT") or output_of("git", "describe", "--always", "--dirty") or "unknown"
    result = {"format": 2, "date": datetime.date.today().isoformat(), "commit": commit, "source": a.source,
              "device": a.device, "machine": {"cores": os.cpu_count(), "system": platform.platform()},
              "versions": versions(a, torch), "gpu_before": gpu_state(), "gpu_after": {}, "ceilings": {}, "loss_curves": [],
              "notes": notes, "cases": []}

    def save():  # whole or not at all: the run may be cut off at any moment
        if a.out:
            records.save(result_path(a, result), result)

    save()
    if torch and a.device == "cuda":
        try:
            result["ceilings"] = ceilings(torch)
        except Exception as e:
            notes.append(f"ceilings not measured: {type(e).__name__}: {e}"[:300])
        torch.cuda.empty_cache()
    result["rates"] = a.rates = rates_of(result["gpu_before"].get("name"), result["ceilings"])
    if not a.rates:
        notes.append("this GPU is not known, and was not measured: no floors and no predictions")
    save()
    loss_curves(a, torch, flags, notes, result["loss_curves"])
    entries, skipped = {}, {}
    for name, plan in plans(a, torch, cases, flags):
        if time.monotonic() > deadline:
            skipped[name if name not in entries else f"{name} compiled"] = True
            continue
        if name not in entries:
            entries[name] = dict(zip(("case", "batch", "width", "layers"), (name, *cases[name]))) | {"rows": []}
            result["cases"].append(entries[name])
        measure_case(a, torch, entries[name], plan, flags, deadline, notes, save)
        gc.collect()
        if torch:
            torch.compiler.reset()
            torch.cuda.empty_cache()
    if skipped:
        notes.append(f"the {a.budget:.0f} s were up: not measured: {', '.join(skipped)}")
    result["gpu_after"] = gpu_state()
    save()
    print_tables(result)
    failed = [r for c in result["cases"] for r in c["rows"] if "error" in r]
    plain = any(r.get("plain_products") for c in result["cases"] for r in c["rows"])
    if plain or any(r["side"] == "halfstep" for r in failed) or not all(r["ok"] for r in result["loss_curves"]):
        return 1
    return 2 if failed or not torch or any("the time was up" in n or "were up" in n for n in notes) else 0


if __name__ == "__main__":
    sys.exit(main())
