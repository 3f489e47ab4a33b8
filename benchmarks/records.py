# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the records of measurements in benchmarks/results: JSON files with a row a line.

    python3 benchmarks/records.py FILE...    gives JSON files this form
"""
import json
import os
import pathlib
import platform
import sys

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
names_read = set()  # the names of the records that newest() has read


def has_rows(value):
    """Whether there is a list of objects in a value."""
    if isinstance(value, dict):
        return any(map(has_rows, value.values()))
    return isinstance(value, list) and any(isinstance(v, dict) or has_rows(v) for v in value)


def written(value, depth):
    """Writes a value on one line if it has no rows; else each of its parts on lines of its own."""
    if depth and not has_rows(value) or not value:
        return json.dumps(value)
    is_object = isinstance(value, dict)
    parts = [f"{json.dumps(k)}: {written(v, depth + 1)}" for k, v in value.items()] if is_object else \
            [written(v, depth + 1) for v in value]
    begin, end = "{}" if is_object else "[]"
    return f"{begin}\n" + ",\n".join(" " * (depth + 1) + part for part in parts) + "\n" + " " * depth + end


def text(record):
    """Returns the text of a record's file."""
    return written(record, 0) + "\n"


def load(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def save(path, record):
    """Writes a record whole or not at all: a machine may vanish at any moment."""
    new = pathlib.Path(f"{path}.new")
    new.write_text(text(record), encoding="utf-8")
    os.replace(new, path)


def newest(kind):
    """Reads the newest record of a kind: its name without the date."""
    path = sorted(RESULTS.glob(f"*-{kind}.json"))[-1]
    names_read.add(path.name)
    return load(path)


def machine():
    """Returns the name of this machine's CPU."""
    info = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":")[1].strip() for line in info if line.startswith("model name")), platform.processor())


if __name__ == "__main__":
    for name in sys.argv[1:]:
        save(name, load(name))
