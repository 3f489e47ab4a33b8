#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the table of docs/extend.md, the files of a new part, with the files found in the tree, and the list of layers for
clone() with the layers in the headers."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ("framework", "layers", "optim", "amp", "cuda", "apps")
CODE = {".h", ".cpp", ".def", ".cu", ".cuh"}
# Other programs' spellings of names, for "did you mean"; and a caller.
BESIDE = {"apps/schema/suggest.cpp", "framework/distributions/distributions.cpp"}
ROW = re.compile(r"^\| [^|]+ \| `(\w+)` \| (.+) \|$", re.MULTILINE)


def files_with(word):
    pattern = re.compile(rf"\b(?:{word}(?:Options)?|{word.capitalize()}Rule)\b")
    return {str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")
            if path.suffix in CODE and pattern.search(path.read_text(encoding="utf-8"))} - BESIDE

# class Linear : public Module {
DERIVED = re.compile(r"^(template <[^\n]*>\n)?(?:class|struct) (\w+)(?: final)?\s*:\s*(?:public )?([^{;]+?)\s*\{", re.MULTILINE)


# using Conv2d = Conv<2>;
ALIAS = re.compile(r"^(template <[^\n]*>\n)?using (\w+) =\s*(\w+)<", re.MULTILINE)


def layers():
    """The classes of layers/*.h that are modules and that no other class of them derives from."""
    bases, templates = {}, set()
    for path in (ROOT / "layers").rglob("*.h"):
        text = path.read_text(encoding="utf-8")
        for template, name, parents in DERIVED.findall(text) + ALIAS.findall(text):
            bases[name] = re.findall(r"(?:public )?(\w+)(?:<[^,]*>)?", parents)
            if template:
                templates.add(name)
    modules, before = {"Module", "ModuleOf", "PoolOf"}, 0  # PoolOf derives from its argument
    while len(modules) > before:
        before = len(modules)
        modules |= {name for name, of in bases.items() if modules.intersection(of)}
    modules = {name for name in modules if not name.endswith("Nd")}  # bases, some of them by macros
    return modules - templates - {parent for of in bases.values() for parent in of} - {"Module", "ModuleOf", "PoolOf"}


class Extend(unittest.TestCase):
    def test_all_layers_can_be_cloned(self):
        found = layers()
        self.assertGreater(len(found), 90)
        known = set(re.findall(r"\w+", (ROOT / "layers/module/classes.cpp").read_text(encoding="utf-8").split("register_all<")[1]))
        self.assertEqual(set(), found - known, "add it to layers/module/classes.cpp")

    def test_layers_that_pytorch_lacks_are_exported(self):
        script = (ROOT / "scripts/make_layer_goldens.py").read_text(encoding="utf-8")
        layers_made = set(re.findall(r'"(\w+)":', re.search(r"^MADE = \{(.*?)\}", script, re.DOTALL | re.MULTILINE)[1]))
        self.assertIn("UnitNorm", layers_made)
        written = (ROOT / "apps/export/torch_classes.cpp").read_text(encoding="utf-8")
        written = set(re.findall(r'\{"(\w+)", R"', written)) | {"TransformerEncoderLayer"}  # as a TransformerEncoder
        self.assertEqual(set(), layers_made - written, "add it to apps/export/torch_classes.cpp")

    def test_files_of_each_example(self):
        rows = ROW.findall((ROOT / "docs/extend.md").read_text(encoding="utf-8"))
        self.assertGreaterEqual(len(rows), 7)
        for example, files in rows:
            with self.subTest(example=example):
                self.assertEqual(set(re.findall(r"`([^`]+)`", files)), files_with(example))


if __name__ == "__main__":
    unittest.main()
