#!/usr/bin/env python3
"""Trains the recipes of configs/recipes with halfstep and their twins in PyTorch, and writes docs/recipes.md from the record.

    HALFSTEP_DATA=FOLDER python3 benchmarks/recipes/run.py --binary build/release/halfstep --json FILE [--match char] [--no-twin]
    HALFSTEP_DATA=FOLDER python3 benchmarks/recipes/run.py --binary build/release/halfstep --json FILE --resume-check
    python3 benchmarks/recipes/run.py --json FILE --docs

For each recipe, seed and precision both sides run one after the other on the same number of threads. A file that exists keeps its other
rows, and its rows of the same name are replaced: a long table can be recorded in pieces, also by several of these at once.
"""
import argparse
import datetime
import fcntl
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRECISIONS = ("float32", "bfloat16", "float16")

# What is told of each: the metric's key in the result of `halfstep train`, how it is written, the value that it must reach, and the
# checkpoints of the resume check.
RECIPES = {
    "mnist_lenet": {"metric": "val.accuracy", "data": "MNIST", "reference": 0.989, "of": "what LeNet-5 is asked for in 5 epochs"},
    "mnist_resnet_small": {"metric": "val.accuracy", "data": "MNIST", "reference": 0.9691, "of": "the nearest neighbour on pixels"},
    "optdigits_mlp": {"metric": "val.accuracy", "data": "UCI digits, 8 x 8", "reference": 0.97, "of": "what an MLP is expected to reach"},
    "cifar10_conv": {"metric": "val.accuracy", "data": "4,000 images of CIFAR-10, 1,000 to test", "reference": 0.254,
                     "of": "the nearest neighbour on pixels"},
    "char_lstm": {"metric": "val.loss", "data": "tiny Shakespeare, last 10 % held out", "reference": 1.75, "of": "asked for; a 4-gram has 1.784"},
    "char_transformer": {"metric": "val.loss", "data": "tiny Shakespeare, last 10 % held out", "reference": 2.046, "of": "a trigram"},
    "airline_lstm": {"metric": "val.rmse", "data": "airline passengers, last 33 % held out", "reference": 41.85,
                     "of": "the value of a year before"},
    "wine_regression": {"metric": "val.rmse", "data": "red wine, all 1,599 rows", "reference": 0.64558, "of": "least squares"},
    "ctc_digits": {"metric": "val.label_error_rate", "data": "strips of 2 to 4 drawn digits, 4,000 and 500", "reference": 0.10,
                   "of": "chosen: nine of ten labels right"},
}


def run(command, threads):
    """The last line of stdout as JSON, and the most memory that the process had."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=env, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {err.read()[-2000:]}")
        return json.loads(out.read().splitlines()[-1]), 1024 * usage.ru_maxrss


def halfstep(a, recipe, precision, seed, folder, *more):
    amp = "amp=false" if precision == "float32" else f'amp={{"dtype":"{precision}"}}'
    return run([a.binary, "train", f"configs/recipes/{recipe}.json", "--json", "--quiet", "--threads", str(a.threads), "--device", "cpu",
                "--set", f"seed={seed}", "--set", amp, "--set", f"output_dir={folder}", *more], a.threads)


def sides(a, recipe, precision, seed):
    """Rows of one run of each side."""
    with tempfile.TemporaryDirectory() as folder:
        out, resident = halfstep(a, recipe, precision, seed, folder + "/run")
    rows = [{"side": "halfstep", "result": out[RECIPES[recipe]["metric"]], "peak_bytes": out["peak_bytes"], "process_bytes": resident,
             "seconds": out["seconds"], "samples_per_second": out["samples_per_second"], "epochs": out["epochs"],
             "steps_applied": out["steps_applied"], "steps_skipped": out["steps_skipped"], "scale": out["scale"]}]
    if a.twin and seed < a.twin_seeds:
        out, resident = run([sys.executable, "benchmarks/recipes/twins.py", recipe, "--precision", precision, "--seed", str(seed),
                             "--threads", str(a.threads)], a.threads)
        rows.append({"side": "torch", "result": out["result"], "process_bytes": resident, "seconds": out["seconds"],
                     "samples_per_second": out["samples_per_second"]})
    return [{"recipe": recipe, "precision": precision, "seed": seed, "threads": a.threads, **row} for row in rows]


def digest(folder):
    """SHA-256 of the weights and the state of the newest checkpoint in a run's folder."""
    newest = max(folder.glob("step-*"))
    return {name: hashlib.sha256((newest / name).read_bytes()).hexdigest() for name in ("model.safetensors", "state.safetensors")}


def resume_check(a, recipe, precision):
    """One run as a whole, and one that goes on in another folder from the whole one's checkpoint in the middle."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan, _ = run([a.binary, "train", f"configs/recipes/{recipe}.json", "--lr-preview"], a.threads)
        # Not at the end of an epoch: the order of the data, open streams and random crops go on within one.
        steps, at = plan["steps"], int(0.55 * plan["steps"])
        at += plan["steps_per_epoch"] > 1 and at % plan["steps_per_epoch"] == 0
        more = ["--set", f"checkpoint.every={at}", "--set", "checkpoint.keep_last=0", "--set", "checkpoint.keep_best=0"]
        halfstep(a, recipe, precision, 0, folder / "whole", *more)
        middle = folder / "whole" / f"step-{at:08d}"
        halfstep(a, recipe, precision, 0, folder / "part", *more, "--resume", str(middle))
        whole, part = digest(folder / "whole"), digest(folder / "part")
        return {"recipe": recipe, "precision": precision, "at": at, "steps": steps, "whole": whole, "resumed": part,
                "equal": whole == part}


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.processor())


def write(a, list_name, new, key):
    """Puts rows into the record over those with the same key."""
    file = pathlib.Path(a.json)
    with open(str(file) + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = json.loads(file.read_text()) if file.exists() else {}
        rows = {key(r): r for r in old.get(list_name, []) + new}
        order = lambda r: (list(RECIPES).index(r["recipe"]), PRECISIONS.index(r["precision"]), r.get("side", ""), r.get("seed", 0))
        git = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
        record = {"date": datetime.date.today().isoformat(), "machine": machine(), "cores": os.cpu_count(), "commit": git.stdout.strip(),
                  "torch": importlib.metadata.version("torch"), "note": a.note or old.get("note", ""), "rows": old.get("rows", []),
                  "resumed": old.get("resumed", []), list_name: sorted(rows.values(), key=order)}
        file.write_text(json.dumps(record, indent=1) + "\n")
    os.unlink(str(file) + ".lock")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/release/halfstep"))
    p.add_argument("--json", required=True, help="the record")
    p.add_argument("--match", default="", help="recipes whose name contains this; several with commas between")
    p.add_argument("--seeds", type=lambda s: [int(i) for i in s.split(",")], default=[0, 1, 2])
    p.add_argument("--precisions", type=lambda s: s.split(","), default=list(PRECISIONS))
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--no-twin", dest="twin", action="store_false")
    p.add_argument("--twin-seeds", type=int, default=3, help="the twin runs seeds below this")
    p.add_argument("--resume-check", action="store_true", help="go on from the middle of a run instead, once a recipe")
    p.add_argument("--note", help="of the record: how it was measured")
    p.add_argument("--docs", action="store_true", help="write docs/recipes.md from the record, and stop")
    a = p.parse_args()
    if a.docs:
        import docs
        return docs.write(a.json, RECIPES, PRECISIONS)
    failed = False
    for recipe in RECIPES:
        if not any(m in recipe for m in a.match.split(",")):
            continue
        if a.resume_check:
            for precision in a.precisions:
                row = resume_check(a, recipe, precision)
                failed |= not row["equal"]
                print(f"{recipe:20} {precision:9} from step {row['at']} of {row['steps']}: {'equal' if row['equal'] else 'DIFFERENT'}", flush=True)
                write(a, "resumed", [row], lambda r: (r["recipe"], r["precision"]))
            continue
        for seed in a.seeds:
            for precision in a.precisions:
                rows = sides(a, recipe, precision, seed)
                for r in rows:
                    print(f"{recipe:20} {precision:9} seed {seed} {r['side']:9} {r['result']:.5g}  {r['seconds']:.1f} s", flush=True)
                write(a, "rows", rows, lambda r: (r["recipe"], r["precision"], r["seed"], r["side"]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
