#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the table of docs/extend.md, the files of a new part, with the files found in the tree."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ("framework", "layers", "optim", "amp", "cuda", "apps")
CODE = {".h", ".cpp", ".def", ".cu", ".cuh"}
# Other programs' spellings of names, for "did you mean".
BESIDE = {"apps/schema/suggest.cpp"}
ROW = re.compile(r"^\| [^|]+ \| `(\w+)` \| (.+) \|$", re.MULTILINE)


def files_with(word):
    pattern = re.compile(rf"\b(?:{word}(?:Options)?|{word.capitalize()}Rule)\b")
    return {str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
            if path.suffix in CODE and pattern.search(path.read_text(encoding="utf-8"))} - BESIDE


class Extend(unittest.TestCase):
    def test_files_of_each_example(self):
        rows = ROW.findall((ROOT / "docs/extend.md").read_text(encoding="utf-8"))
        self.assertGreaterEqual(len(rows), 7)
        for example, files in rows:
            with self.subTest(example=example):
                self.assertEqual(set(re.findall(r"`([^`]+)`", files)), files_with(example))


if __name__ == "__main__":
    unittest.main()
