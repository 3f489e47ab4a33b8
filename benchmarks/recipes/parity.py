#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the recipes of configs/recipes in 16 bits and holds the verdicts of `halfstep parity` against docs/recipes.md.

    HALFSTEP_DATA=FOLDER python3 benchmarks/recipes/parity.py --binary build/default/halfstep --json FILE [--match char]

docs/recipes.md lists the recipes and precisions whose results are outside the noise of the seeds: there the verdict must be
"harmful", everywhere else it must not be. A run is judged at its last checkpoint. Long recipes train for fewer epochs here. A file
that exists keeps its other rows.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import records  # noqa: E402

# Of recipes that would train for more than 10 seconds; the others train to their end.
EPOCHS = {"mnist_lenet": 1, "cifar10_conv": 3, "char_lstm": 1, "char_transformer": 1}


def hurt():
    """The (recipe, precision) pairs that docs/recipes.md finds outside the noise."""
    text = (ROOT / "docs/recipes.md").read_text()
    line = re.search(r"^Outside the noise: (.*)$", text, re.M).group(1)
    return set(re.findall(r"`(\w+)` in (\w+)", line))


def judge(binary, recipe, precision, folder):
    sets = ["--set", "amp.enabled=true", "--set", f"amp.dtype={precision}", "--set", f"output_dir={folder}"]
    if recipe in EPOCHS:
        sets += ["--set", f"train.epochs={EPOCHS[recipe]}"]
    threads = ["--threads", "1"]
    config = str(ROOT / f"configs/recipes/{recipe}.json")
    subprocess.run([binary, "train", config, "--quiet", *sets, *threads], check=True, stdout=subprocess.DEVNULL)
    found = subprocess.run([binary, "parity", folder, "--json", *threads], stdout=subprocess.PIPE, text=True)
    if found.returncode not in (0, 6):
        sys.exit(f"{recipe} in {precision}: parity ended with code {found.returncode}")
    return json.loads(found.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--json", required=True, type=pathlib.Path)
    parser.add_argument("--match", default="")
    args = parser.parse_args()
    record = records.load(args.json) if args.json.exists() else {"rows": []}
    record["what"] = "halfstep parity --json of each recipe at its last checkpoint, on 8 batches, after training on one thread"
    record["machine"], record["epochs"] = records.machine(), EPOCHS
    expected = hurt()
    for config in sorted((ROOT / "configs/recipes").glob("*.json")):
        recipe = config.stem
        if args.match not in recipe:
            continue
        for precision in ("bfloat16", "float16"):
            with tempfile.TemporaryDirectory() as scratch:
                found = judge(os.path.abspath(args.binary), recipe, precision, os.path.join(scratch, "run"))
            row = {"recipe": recipe, "precision": precision, "hurt": (recipe, precision) in expected}
            for key in ("step", "verdict", "measure", "by", "error", "noise", "cosine", "bias", "flushed", "scale", "worst",
                        "worst_error", "loss", "loss_float32"):
                row[key] = found.get(key)
            row["worst_ratio"] = max((m["ratio"] for m in found.get("modules", [])), default=None)
            row["agrees"] = row["hurt"] == (row["verdict"] == "harmful")
            record["rows"] = [r for r in record["rows"] if (r["recipe"], r["precision"]) != (recipe, precision)] + [row]
            record["rows"].sort(key=lambda r: (r["recipe"], r["precision"]))
            records.save(args.json, record)
            print(f"{recipe:20} {precision:9} step {row['step']:5}  {row['verdict']:9} {row['measure']:.3g} of the {row['by']}"
                  f"{'' if row['agrees'] else '   DISAGREES with docs/recipes.md'}", flush=True)
    agree = sum(r["agrees"] for r in record["rows"])
    print(f"{agree} of {len(record['rows'])} verdicts agree with docs/recipes.md")
    return 0 if agree == len(record["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
