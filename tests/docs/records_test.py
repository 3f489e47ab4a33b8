#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each record in benchmarks/results has a row a line, and a page or a figure that reads it; each record that a page names is there.

    records_test.py FOLDER

Before that it tries itself on records that nobody reads, and on pages that name none.
"""
import fnmatch
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / folder) for folder in ("benchmarks", "scripts")]
import records
import write_figures

NAME = re.compile(r"\b\d{4}-\d\d-\d\d-[\w*-]+\.json")


def named(root):
    """Yields the page and the name of each record in the pages; a name may have stars."""
    for page in [*root.glob("*.md"), *(root / "docs").rglob("*.md")]:
        yield from ((page.relative_to(root), name) for name in NAME.findall(page.read_text(encoding="utf-8")))


def faults(root, of_figures):
    """Yields what is wrong; `of_figures`: the names of the records that figures are computed from."""
    there = {path.name: path for path in sorted((root / "benchmarks/results").glob("*.json"))}
    wanted = list(named(root))
    for name, path in there.items():
        if path.read_text(encoding="utf-8") != records.text(records.load(path)):
            yield f"{name} has not a row a line: python3 benchmarks/records.py benchmarks/results/{name}"
        if name not in of_figures and not any(fnmatch.fnmatch(name, pattern) for _, pattern in wanted):
            yield f"{name} has no reader: name it in a page or read it in scripts/write_figures.py, or delete it"
    for page, pattern in wanted:
        if not fnmatch.filter(there, pattern):
            yield f"{page} names {pattern}, which is not there"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "benchmarks/results").mkdir(parents=True)
        (root / "docs/reference").mkdir(parents=True)
        for name in ("named", "starred-a", "of-figure", "unread"):
            records.save(root / f"benchmarks/results/2026-01-01-{name}.json", {"rows": [{"a": [1, 2.50]}, {"b": {}}]})
        (root / "benchmarks/results/2026-01-01-named.json").write_text('{\n "rows": [\n  {\n   "a": 1\n  }\n ]\n}\n')
        (root / "a.md").write_text("`2026-01-01-named.json` and `2026-01-01-lost.json`")
        (root / "docs/reference/b.md").write_text("`benchmarks/results/2026-01-01-starred-*.json`")
        text = (root / "benchmarks/results/2026-01-01-unread.json").read_text()
        assert text == '{\n "rows": [\n  {"a": [1, 2.5]},\n  {"b": {}}\n ]\n}\n', text
        found = list(faults(root, {"2026-01-01-of-figure.json"}))
    rules = [(fault.split()[0], rule) for fault in found for rule in ("row a line", "no reader", "not there") if rule in fault]
    expected = [("2026-01-01-named.json", "row a line"), ("2026-01-01-unread.json", "no reader"), ("a.md", "not there")]
    assert rules == expected, found


if __name__ == "__main__":
    self_test()
    for figure in write_figures.FIGURES.values():
        figure()
    wrong = list(faults(pathlib.Path(sys.argv[1]), records.names_read))
    print("\n".join(wrong) or "records_test: every record has a reader")
    sys.exit(1 if wrong else 0)
