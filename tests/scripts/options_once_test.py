#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An option of a layer or loss is described in its list alone: no other place of the tree has its default, bounds or sentence."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRUCT = re.compile(r"^struct (\w+Options) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r'option\("(\w+)", &O::\w+,\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
FIELD = re.compile(r'\b(?:boolean|integer|number|text|choice|sizes|list|width|copies)\("(\w+)", ')
# An option compared with a number: a bound.
BOUND = re.compile(r"check<ValueError>\(!?\*?(?:o|options|options_)\.(\w+) (?:[<>]=?|[!=]=) -?[\d.]+")
# Options of programs alone.
WITHOUT_LIST = {
    "FractionalMaxPoolLayerOptions": "has a generator; one of two sizes", "KaimingOptions": "of an initialiser",
    "LoadOptions": "of load()", "OrthogonalOptions": "of a parametrization", "SpectralNormOptions": "of a parametrization"}
# Rules between values, in the words of a bound.
RULES = {"ignore_index": "with targets of probabilities"}
# What a config says besides the list, by file: the layers there have no struct of options, or the field is no option of the class.
FIELDS = {"layer_rows.cpp": {"mode": "of Upsample, an op's struct", "dim": "of Unflatten, required",
                             "padding": "of padding layers, required",
                             "groups": "of ChannelShuffle, required"},
          "window_rows.cpp": {"padding_mode": "PyTorch's, of one word", "norm_type": "of LPPool, required"},
          "container_rows.cpp": {"bias": "of an MLP", "dropout": "of an MLP", "dim": "of Parallel and Graph"},
          "attention_rows.cpp": {"max_len": "required", "dim": "of RotaryEmbedding, required", "num_layers": "of a stack"}}


def read(pattern):
    return {p: p.read_text(encoding="utf-8") for folder in ("layers", "framework/ops/loss", "framework/ops/elementwise")
            for p in (ROOT / folder).rglob(pattern)}


class OptionsOnce(unittest.TestCase):
    def setUp(self):
        self.options = {}
        for path, text in read("*.cpp").items():
            for name, doc in OPTION.findall(text):
                self.options.setdefault(name, set()).add("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', doc)))
        self.assertGreater(len(self.options), 50)

    def test_every_struct_has_a_list(self):
        structs = [found for path, text in read("*.h").items() if "layers" in path.parts for found in STRUCT.findall(text)]
        self.assertGreater(len(structs), 30)
        self.assertEqual([], [name for name, body in structs if "list()" not in body and name not in WITHOUT_LIST])

    def test_no_bound_outside_a_list(self):
        found = [f"{path.relative_to(ROOT)}: {m.group(0)}" for path, text in read("*.cpp").items()
                 for m in BOUND.finditer(text) if m.group(1) in self.options and m.group(1) not in RULES]
        self.assertEqual([], found)

    def test_no_field_of_a_config_repeats_an_option(self):
        found = []
        for path in [*(ROOT / "apps/catalog/rows").glob("*_rows.cpp"), ROOT / "apps/catalog/losses.cpp"]:
            if path.name in ("array_rows.cpp", "table_rows.cpp", "image_rows.cpp", "text_rows.cpp", "generated_rows.cpp",
                             "metric_rows.cpp"):
                continue  # data and metrics
            for key in FIELD.findall(path.read_text(encoding="utf-8")):
                if key in self.options and key not in FIELDS.get(path.name, {}):
                    found.append(f"{path.name}: {key}")
        self.assertEqual([], found)

    def test_no_sentence_outside_a_list(self):
        sentences = {doc for docs in self.options.values() for doc in docs if len(doc) > 20}
        found = []
        for path in (ROOT / "apps").rglob("*.cpp"):
            if path.name == "label_metrics.cpp":
                continue  # the blank of a metric
            text = path.read_text(encoding="utf-8")
            found += [f"{path.name}: {doc}" for doc in sentences if f'"{doc}"' in text]
        self.assertEqual([], found)


if __name__ == "__main__":
    unittest.main()
