#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the recipes of configs/recipes with halfstep and their twins in PyTorch, and writes docs/recipes.md from the record.

    HALFSTEP_DATA=FOLDER python3 benchmarks/recipes/run.py --binary build/default/halfstep --json FILE [--match char] [--no-twin]
    HALFSTEP_DATA=FOLDER python3 benchmarks/recipes/run.py --binary build/default/halfstep --json FILE --resume-check
    python3 benchmarks/recipes/run.py --json FILE --docs

For each recipe, seed and precision both sides run one after the other on the same number of threads. A file that exists keeps its
other rows, and its rows of the same name are replaced: a long table can be recorded in pieces, also by several of these at once.
"""
import argparse
import datetime
import fcntl
import hashlib
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import records  # noqa: E402

PRECISIONS = ("float32", "bfloat16", "float16")

# What is reported of each: the metric's key in the result of `halfstep train`, its format, the value that it must reach, and the
# checkpoints of the resume check.
RECIPES = {
    "mnist_lenet": {"metric": "val.accuracy", "data": "MNIST", "reference": 0.989, "of": "expected of LeNet-5 in 5 epochs"},
    "mnist_resnet_small": {"metric": "val.accuracy", "data": "MNIST", "reference": 0.9691, "of": "the nearest neighbour on pixels"},
    "optdigits_mlp": {"metric": "val.accuracy", "data": "UCI digits, 8 x 8", "reference": 0.97, "of": "expected of an MLP"},
    "cifar10_conv": {"metric": "val.accuracy", "data": "4,000 images of CIFAR-10, 1,000 to test", "reference": 0.254,
                     "of": "the nearest neighbour on pixels"},
    "char_lstm": {"metric": "val.loss", "data": "tiny Shakespeare, last 10 % held out", "reference": 1.75,
                  "of": "chosen; a 4-gram has 1.784"},
    "char_transformer": {"metric": "val.loss", "data": "tiny Shakespeare, last 10 % held out", "reference": 2.046,
                         "of": "a trigram"},
    "airline_lstm": {"metric": "val.rmse", "data": "airline passengers, last 33 % held out", "reference": 41.85,
                     "of": "the value of a year before"},
    "wine_regression": {"metric": "val.rmse", "data": "red wine, all 1,599 rows", "reference": 0.64558, "of": "least squares"},
    "ctc_digits": {"metric": "val.label_error_rate", "data": "strips of 2 to 4 generated digits: 4,000 to train, 500 to test",
                   "reference": 0.10, "of": "chosen: nine of ten labels right"},
}

# Notes of records in the words of the page, since a record is never edited.
NOTES = {
    "Two runs at a time, on one thread each, on a machine on which other programs ran too: "
    "times are not better than they are here.":
        "Runs were made two at a time, on one thread each, while other programs used the machine as well; on an idle machine they\n"
        "would take the same time or less.",
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
    return run([a.binary, "train", f"configs/recipes/{recipe}.json", "--json", "--quiet", "--threads", str(a.threads), "--device",
                "cpu",
                "--set", f"seed={seed}", "--set", amp, "--set", f"output_dir={folder}", *more], a.threads)


def sides(a, recipe, precision, seed):
    """Rows of one run of each side."""
    with tempfile.TemporaryDirectory() as folder:
        out, resident = halfstep(a, recipe, precision, seed, folder + "/run")
    rows = [{"side": "halfstep", "result": out[RECIPES[recipe]["metric"]], "peak_bytes": out["peak_bytes"],
             "process_bytes": resident,
             "seconds": out["seconds"], "samples_per_second": out["samples_per_second"], "epochs": out["epochs"],
             "steps_applied": out["steps_applied"], "steps_skipped": out["steps_skipped"], "scale": out["scale"]}]
    if a.twin and seed < a.twin_seeds:
        try:
            out, resident = run([sys.executable, "benchmarks/recipes/twins.py", recipe, "--precision", precision, "--seed",
                                 str(seed),
                                 "--threads", str(a.threads)], a.threads)
            rows.append({"side": "torch", "result": out["result"], "process_bytes": resident, "seconds": out["seconds"],
                         "samples_per_second": out["samples_per_second"]})
        except RuntimeError as e:  # what PyTorch cannot do is part of the record
            rows.append({"side": "torch", "error": str(e).strip().splitlines()[-1].split(". ")[0]})
    return [{"recipe": recipe, "precision": precision, "seed": seed, "threads": a.threads, **row} for row in rows]


def digest(folder):
    """SHA-256 of the weights and the state of the newest checkpoint in a run's folder."""
    newest = max(folder.glob("step-*"))
    return {name: hashlib.sha256((newest / name).read_bytes()).hexdigest() for name in ("model.safetensors", "state.safetensors")}


def resume_check(a, recipe, precision):
    """A whole run, and one in another folder that resumes from a checkpoint in the middle of the first."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plan, _ = run([a.binary, "train", f"configs/recipes/{recipe}.json", "--lr-preview"], a.threads)
        # Not at the end of an epoch, so that the order of the data, open streams and random crops must be restored, too.
        steps, at = plan["steps"], int(0.55 * plan["steps"])
        at += plan["steps_per_epoch"] > 1 and at % plan["steps_per_epoch"] == 0
        more = ["--set", f"checkpoint.every={at}", "--set", "checkpoint.keep_last=0", "--set", "checkpoint.keep_best=0"]
        halfstep(a, recipe, precision, 0, folder / "whole", *more)
        middle = folder / "whole" / f"step-{at:08d}"
        halfstep(a, recipe, precision, 0, folder / "part", *more, "--resume", str(middle))
        whole, part = digest(folder / "whole"), digest(folder / "part")
        return {"recipe": recipe, "precision": precision, "at": at, "steps": steps, "whole": whole, "resumed": part,
                "equal": whole == part}


def write(a, list_name, new, key):
    """Puts rows into the record over those with the same key."""
    file = pathlib.Path(a.json)
    with open(str(file) + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        old = records.load(file) if file.exists() else {}
        rows = {key(r): r for r in old.get(list_name, []) + new}
        order = lambda r: (list(RECIPES).index(r["recipe"]), PRECISIONS.index(r["precision"]), r.get("side", ""), r.get("seed", 0))
        git = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True)
        record = {"date": datetime.date.today().isoformat(), "machine": records.machine(), "cores": os.cpu_count(),
                  "commit": git.stdout.strip(),
                  "torch": importlib.metadata.version("torch"), "note": a.note or old.get("note", ""), "rows": old.get("rows", []),
                  "resumed": old.get("resumed", []), list_name: sorted(rows.values(), key=order)}
        records.save(file, record)
    os.unlink(str(file) + ".lock")


# ---- docs

def shown(recipe, value, digits=2):
    """A result as its metric is written."""
    if RECIPES[recipe]["metric"] in ("val.accuracy", "val.label_error_rate"):
        return f"{100 * value:.{digits}f} %"
    return f"{value:.5f}" if recipe == "wine_regression" else f"{value:.2f}" if recipe == "airline_lstm" else f"{value:.3f}"


def summary(recipe, values):
    """Mean and standard deviation over seeds."""
    if not values:
        return "not run"
    text = shown(recipe, statistics.mean(values))
    if len(values) == 1:
        return text + " (one seed)"
    return text.replace(" %", "") + " ± " + shown(recipe, statistics.stdev(values)) + ("" if len(values) == 3
                                                                                       else f" ({len(values)} seeds)")


def bound(recipe):
    lower = RECIPES[recipe]["metric"] != "val.accuracy"
    return ("≤ " if lower else "≥ ") + shown(recipe, RECIPES[recipe]["reference"]), lower


def verdict(recipe, base, other):
    """How a precision's mean differs from float32's, and whether seeds explain that: Student's t for two means, 95 %."""
    if len(base) != 3 or len(other) != 3:
        return "fewer than three seeds: not judged"
    gap = statistics.mean(other) - statistics.mean(base)
    noise = 2.776 * ((statistics.variance(base) + statistics.variance(other)) / 3) ** 0.5
    percent = RECIPES[recipe]["metric"] in ("val.accuracy", "val.label_error_rate")
    show = (lambda v: f"{100 * v:+.2f} %") if percent else (lambda v: f"{v:+.2g}")
    return f"{show(gap)}: " + ("within the noise" if abs(gap) <= noise else "**outside the noise**") + f" (±{show(noise)[1:]})"


def write_docs(file):
    record = records.load(file)
    rows = record["rows"]

    def values(recipe, side, precision, key="result"):
        return [r[key] for r in rows if (r["recipe"], r["side"], r["precision"]) == (recipe, side, precision) and key in r]

    def each(recipe, key, form):
        return " / ".join(form(statistics.median(v)) if (v := values(recipe, "halfstep", p, key)) else "-" for p in PRECISIONS)

    mib = lambda v: f"{v / 2**20:.1f}" if v < 10 * 2**20 else f"{v / 2**20:.0f}"
    count = lambda v: f"{v:,.0f}"
    longest = max(r["seconds"] for r in rows if r["side"] == "halfstep")
    out = [f"""<!-- Written by benchmarks/recipes/run.py --docs from {file.name}; do not edit. -->
# Recipes

`configs/recipes/` holds configs that train small models, all but `ctc_digits` on real data. They read their data from the folder in
the environment variable `HALFSTEP_DATA`; a comment in each config lists the files:

    HALFSTEP_DATA=FOLDER halfstep train configs/recipes/mnist_lenet.json
    HALFSTEP_DATA=FOLDER halfstep train configs/recipes/mnist_lenet.json --set amp.dtype=float16
    HALFSTEP_DATA=FOLDER halfstep train configs/recipes/mnist_lenet.json --no-amp

They train in mixed precision, in bfloat16 on a CPU and in float16 on a GPU; `--no-amp` trains in float32. The config of
`wine_regression` switches mixed precision off, since both 16-bit precisions change its result by more than another seed does
(below).

Two more models need their own training loop, so they are C++ programs instead of configs: `examples/autoencoder.cpp`, whose target
is its input, and `examples/wgan_gp.cpp`, a Wasserstein GAN whose critic's loss contains its gradients. A test trains each of them
on generated digits, in float16 and in bfloat16; they are not compared with PyTorch.

All numbers here come from `benchmarks/results/{file.name}`, recorded on {record['date']} on
{record['cores']} cores of {record['machine']}, together with those of PyTorch {record['torch']};
`benchmarks/recipes/run.py` records them again.
{NOTES.get(record['note'], record['note'])}
The longest run of halfstep took {longest:.0f} seconds.

## Results

Mean ± standard deviation over the seeds 0, 1 and 2. The seed determines weights, order and augmentation, and for `ctc_digits` also
the data. The numbers are the accuracy on the test images for `mnist_*`, `optdigits_mlp` and `cifar10_conv`; the loss in nats per
character for `char_*`; the root mean square error for `airline_lstm` (in thousands of passengers) and `wine_regression`; and the
label error rate for `ctc_digits`. The bound is the result that each run should reach. The brackets say which simple method reaches
the bound, or how else it was chosen.

| recipe | data | bound | float32 | bfloat16 | float16 | PyTorch, float32 |
| --- | --- | --- | --- | --- | --- | --- |"""]
    missed = []
    for recipe, about in RECIPES.items():
        limit, lower = bound(recipe)
        cells = [summary(recipe, values(recipe, "halfstep", p)) for p in PRECISIONS]
        out.append(f"| [`{recipe}`](../configs/recipes/{recipe}.json) | {about['data']} | {limit} ({about['of']}) | "
                   + " | ".join(cells) +
                   f" | {summary(recipe, values(recipe, 'torch', 'float32'))} |")
        for r in rows:  # the bound is rounded to the printed digits
            if r["recipe"] == recipe and r["side"] == "halfstep" and (
                    r["result"] > about["reference"] + 5e-6 if lower else r["result"] < about["reference"]):
                missed.append(f"`{recipe}` in {r['precision']} with seed {r['seed']} ({shown(recipe, r['result'])})")
    out.append("""
Widths and learning rates of `optdigits_mlp` and `airline_lstm` were chosen in a few tries on these held-out data: the results show
that both programs train alike, not how well the models would do on unseen data.
""")
    runs = sum(r["side"] == "halfstep" for r in rows)
    out.append(f"Of the {runs} runs of halfstep " + ("all reach their bounds." if not missed else
               f"{runs - len(missed)} reach their bounds; these do not:\n" + ",\n".join(missed) + "."))
    short = [(n, p) for n in RECIPES for p in PRECISIONS[1:] if values(n, "torch", p)]
    if short:
        out.append("\nPyTorch in 16 bit, where it was run (one seed): " +
                   ",\n".join(f"`{n}` in {p} {summary(n, values(n, 'torch', p)).replace(' (one seed)', '')}" for n, p in short)
                   + ".")
    errors = sorted({(r["recipe"], r["precision"], r["error"].split(". ")[0]) for r in rows if "error" in r})
    if errors:
        out.append("\nPyTorch failed in these:\n" + ",\n".join(f"`{n}` in {p} ({e})" for n, p, e in errors) + ".")
    out.append(f"""
## Precisions

The table has the difference of the means over three seeds, 16-bit minus float32. The brackets have the limit of the noise: if only
the seeds differed, the difference would exceed this limit in 5 of 100 cases (Student's t).

| recipe | bfloat16 | float16 |
| --- | --- | --- |""")
    outside = []
    for recipe in RECIPES:
        cells = [verdict(recipe, values(recipe, "halfstep", "float32"), values(recipe, "halfstep", p)) for p in PRECISIONS[1:]]
        outside += [f"`{recipe}` in {p}" for p, cell in zip(PRECISIONS[1:], cells) if "outside" in cell]
        out.append(f"| `{recipe}` | " + " | ".join(cells) + " |")
    float16 = [r for r in rows if r["precision"] == "float16" and r["side"] == "halfstep"]
    skipped = [f"{sum(r['steps_skipped'] for r in float16 if r['recipe'] == n)} of `{n}`"
               for n in RECIPES if any(r["recipe"] == n and r.get("steps_skipped") for r in rows)]
    out.append("\nOutside the noise: " + (", ".join(outside) if outside else "none")
               + ".\nSteps that the scaler skipped, over all seeds:\n" +
               (", ".join(skipped) if skipped else "none") + ".")
    if any("wine" in o for o in outside):
        out.append("""`wine_regression` reaches the minimum of a convex loss from every seed, so the results of its
seeds hardly differ: the difference comes from rounding weights and outputs to 16 bits.""")
    out.append(f"""
## Time and memory

Medians over the seeds, float32 / bfloat16 / float16. Seconds are the time of the whole run with its evaluations; samples/s are
without evaluations. Peak MiB is counted by the allocator, data sets included; process MiB is the largest resident size of the
process, in float32: PyTorch's includes Python and its libraries. PyTorch's program, the twin, runs right after halfstep's run of
the same seed, on the same number of threads.

| recipe | threads | seconds | samples/s | peak MiB | process MiB | PyTorch: seconds | samples/s | process MiB |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |""")
    for recipe in RECIPES:
        threads = sorted({r["threads"] for r in rows if r["recipe"] == recipe})
        theirs = [values(recipe, "torch", "float32", k) for k in ("seconds", "samples_per_second", "process_bytes")]
        median = lambda v, form: form(statistics.median(v)) if v else "-"
        out.append(f"| `{recipe}` | {', '.join(map(str, threads))} | "
                   f"{each(recipe, 'seconds', lambda v: f'{v:.1f}')} | {each(recipe, 'samples_per_second', count)} | "
                   f"{each(recipe, 'peak_bytes', mib)} | {median(values(recipe, 'halfstep', 'float32', 'process_bytes'), mib)} | "
                   f"{median(theirs[0], lambda v: f'{v:.1f}')} | {median(theirs[1], count)} | {median(theirs[2], mib)} |")
    out.append("""
A twin (`benchmarks/recipes/twins.py`) reads batch size, epochs, optimizer, schedule, clipping, accumulation and averaging from the
config, and has the same model, data, preprocessing and evaluations. It draws weights, orders, crops and dropout from PyTorch's
generator, so single results differ as much as those of two seeds.

## Interrupted and resumed

Each recipe was run as a whole, and then resumed in another folder from a checkpoint of that run at a step within an epoch. At the
end the SHA-256 of `model.safetensors` (weights, running statistics) and of `state.safetensors` (moments, averages, scaler,
generator, states of streams) were compared; the last column has their first digits.

| recipe | precision | from step | of | restored state | at the end |
| --- | --- | --- | --- | --- | --- |""")
    special = {"mnist_resnet_small": "accumulation, running statistics", "cifar10_conv": "augmentation, EMA, running statistics",
               "char_lstm": "streams and their states, clipping", "optdigits_mlp": "dropout", "ctc_digits": "clipping",
               "char_transformer": "clipping",
               "wine_regression": "momentum"}
    for r in record["resumed"]:
        out.append(f"| `{r['recipe']}` | {r['precision']} | {r['at']} | {r['steps']} | "
                   f"{special.get(r['recipe'], 'order of the data')}, schedule | " +
                   (f"equal: {r['whole']['model.safetensors'][:8]}, {r['whole']['state.safetensors'][:8]}" if r["equal"]
                    else "**different**") + " |")
    (ROOT / "docs/recipes.md").write_text("\n".join(out) + "\n")
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", default=str(ROOT / "build/default/halfstep"))
    p.add_argument("--json", required=True, help="the record")
    p.add_argument("--match", default="", help="recipes whose name contains this; several with commas between")
    p.add_argument("--seeds", type=lambda s: [int(i) for i in s.split(",")], default=[0, 1, 2])
    p.add_argument("--precisions", type=lambda s: s.split(","), default=list(PRECISIONS))
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--no-twin", dest="twin", action="store_false")
    p.add_argument("--twin-seeds", type=int, default=3, help="the twin runs seeds below this")
    p.add_argument("--resume-check", action="store_true", help="instead resume each recipe once from the middle of a run")
    p.add_argument("--note", help="of the record: how it was measured")
    p.add_argument("--docs", action="store_true", help="write docs/recipes.md from the record, and stop")
    a = p.parse_args()
    if a.docs:
        return write_docs(pathlib.Path(a.json))
    failed = False
    for recipe in RECIPES:
        if not any(m in recipe for m in a.match.split(",")):
            continue
        if a.resume_check:
            for precision in a.precisions:
                row = resume_check(a, recipe, precision)
                failed |= not row["equal"]
                print(f"{recipe:20} {precision:9} from step {row['at']} of {row['steps']}: "
                      f"{'equal' if row['equal'] else 'DIFFERENT'}", flush=True)
                write(a, "resumed", [row], lambda r: (r["recipe"], r["precision"]))
            continue
        for seed in a.seeds:
            for precision in a.precisions:
                rows = sides(a, recipe, precision, seed)
                for r in rows:
                    outcome = r.get("error") or f"{r['result']:.5g}  {r['seconds']:.1f} s"
                    print(f"{recipe:20} {precision:9} seed {seed} {r['side']:9} {outcome}", flush=True)
                write(a, "rows", rows, lambda r: (r["recipe"], r["precision"], r["seed"], r["side"]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
