#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An option or a required argument of a layer, loss, optimizer, schedule, transform or data set is described in its list alone: no
other place of the tree has its default, bounds or sentence. Functions have the defaults of PyTorch's functions."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRUCT = re.compile(r"^struct (\w+Options) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r'\b(?:option|in_words|argument|columns_of|count_of)\("(\w+)", ')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
ARGUMENTS = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^()"])*')
FIELD = re.compile(r'\b(?:boolean|integer|number|text|choice|sizes|list|width|copies)\("(\w+)", ')
# The condition of a check, and a name in it that is compared with a number: a bound.
CHECK = re.compile(r"check<ValueError>\(((?:[^(),\"]|\((?:[^()]|\([^()]*\))*\))*),")
BOUND = re.compile(r"(?<![\w.%*] )(?<![\w.>])\*?(?:\w+(?:\.|->))?(\w+?)_? (?:[<>]=?|[!=]=) -?\d")
# A number as the default of an argument of a constructor.
DEFAULT = re.compile(r"^\s+(?:explicit )?(\w+)\([^;{]*?\b(?:double|int64_t|bool) (\w+) = (-?[\d.]+|true|false)", re.MULTILINE)

# What families the rule holds for: the places of their lists, and the files of the catalogue with their fields.
FAMILIES = {
    "resampling": (["framework/ops/window/resample"], ["rows/layer_rows.cpp"]),
    "layers and losses": (["layers", "framework/ops/loss", "framework/ops/elementwise"],
                          ["modules.cpp", "rows/layer_rows.cpp", "rows/window_rows.cpp", "rows/container_rows.cpp",
                           "rows/attention_rows.cpp", "rows/recurrent_rows.cpp", "losses.cpp"]),
    "optimizers and the scaler": (["optim", "amp/step/grad_scaler"], ["rows/optimizer_rows.cpp", "../config/sections.h"]),
    "schedules": (["optim/schedule"], ["rows/schedule_rows.cpp"]),
    "transforms": (["framework/data/transforms"], ["rows/transform_rows.cpp"]),
    "data sets": (["framework/data/sets", "framework/data/tables", "framework/data/tokens", "framework/data/formats/text_file"],
                  ["datasets.cpp", "rows/image_rows.cpp", "rows/table_rows.cpp", "rows/array_rows.cpp", "rows/text_rows.cpp",
                   "rows/generated_rows.cpp"])}
# Structs of options without a list, and why.
WITHOUT_LIST = {
    "KaimingOptions": "of an initialiser", "LoadOptions": "of load()", "OrthogonalOptions": "of a parametrization",
    "SpectralNormOptions": "of a parametrization", "LambdaLROptions": "a function", "MultiplicativeLROptions": "a function",
    "SequentialLROptions": "schedules", "PictureCheckOptions": "of a check", "BpePairOptions": "of a tokenizer's file",
    "ShardOptions": "of ranks"}
# Rules between values, in the words of a bound, by file.
RULES = {
    "normalization.cpp": {"num_groups": "divides"}, "pooling.cpp": {"dims": "a count of dimensions"},
    "init.cpp": {"groups": "of dirac_"}, "losses.cpp": {"ignore_index": "with targets of probabilities"},
    "optimizers.cpp": {"momentum": "with nesterov", "dampening": "with nesterov"}, "clip.cpp": {"eps": "of a function"},
    "two_pass.cpp": {"beta2_decay": "the schema has no bound"},
    "schedule.cpp": {key: "one of two ways" for key in ("total_steps", "epochs", "steps_per_epoch", "max_lr")},
    "text_tokens.cpp": {"vocab_size": "of other tokenizers"}, "tensor_dataset.cpp": {"classes": "of a program's tensors"},
    "resample.cpp": {"size": "that a factor makes"}}
# What a config says besides the list, by file: the field is no option of the class, or has another meaning.
FIELDS = {"container_rows.cpp": {"dropout": "of an MLP, 0 by default", "dim": "of Parallel and Graph", "inputs": "of Graph",
                                 "end": "of Graph"},
          "window_rows.cpp": {"padding_mode": "PyTorch's, of one word"},
          "optimizer_rows.cpp": {"lr": "of a group of a program's optimizer", "weight_decay": "likewise"},
          "sections.h": {"start": "of swa, a share", "every": "of swa, an epoch by default", "epochs": "of the run",
                         "mode": "of checkpoint.monitor"},
          "schedule_rows.cpp": {"warmup_steps": "of all schedules"},
          "array_rows.cpp": {"input": "a file of NPY", "target": "a file of NPY"}}


def read(places, suffix):
    """The texts of the files in folders, or of those whose names begin so."""
    paths = [p for at in places for p in (ROOT.glob(f"{at}/**/*{suffix}" if (ROOT / at).is_dir() else f"{at}*{suffix}"))]
    return {p: p.read_text(encoding="utf-8") for p in paths}


def options_in(texts):
    """The options that lists describe: their names, and their sentences."""
    out = {}
    for text in texts:
        for match in OPTION.finditer(text):
            after = ARGUMENTS.match(text, match.end()).group(0)
            sentence = "".join(STRING.findall(after))
            out.setdefault(match.group(1), set()).add(sentence)
    return out


def structs_without_list(texts):
    return [name for text in texts for name, body in STRUCT.findall(text)
            if "list()" not in body and "_OPTIONS(" not in body and name not in WITHOUT_LIST]


def bounds_outside(texts, options):
    """Names of options and arguments that conditions of `texts`, by file name, compare with a number."""
    return [f"{name}: {key}" for name, text in texts for condition in CHECK.findall(text) for key in BOUND.findall(condition)
            if key in options and key not in RULES.get(name, {})]


def defaults_outside(texts, options):
    return [f"{m.group(1)}: {m.group(2)} = {m.group(3)}" for text in texts for m in DEFAULT.finditer(text) if m.group(2) in options]


def fields_outside(name, text, options):
    return [key for key in FIELD.findall(text) if key in options and key not in FIELDS.get(name, {})]


def sentences_outside(text, options):
    said = {doc for docs in options.values() for doc in docs if len(doc) > 20}
    return [doc for doc in said if f'"{doc}"' in text]


class OptionsOnce(unittest.TestCase):
    def setUp(self):
        self.families = [(*family, options_in([*read(family[0], ".cpp").values(), *read(family[0], ".h").values()]))
                         for family in FAMILIES.values()]
        self.assertGreater(min(len(options) for _, _, options in self.families), 5)
        self.assertGreater(sum(len(options) for _, _, options in self.families), 250)

    def test_every_struct_has_a_list(self):
        for folders, _, _ in self.families:
            self.assertEqual([], structs_without_list(read(folders, ".h").values()))

    def test_no_bound_outside_a_list(self):
        for folders, _, options in self.families:
            self.assertEqual([], bounds_outside([(p.name, text) for p, text in read(folders, ".cpp").items()], options))

    def test_no_default_outside_its_struct(self):
        for folders, _, options in self.families:
            found = defaults_outside(read(folders, ".h").values(), options)
            self.assertEqual([], [of for of in found if of not in ("Parallel: dim = 1", "PadNd: value = 0")])

    def test_no_field_of_a_config_repeats_an_option(self):
        for _, catalogue, options in self.families:
            for path in catalogue:
                at = ROOT / "apps/catalog" / path
                self.assertEqual([], fields_outside(at.name, at.read_text(encoding="utf-8"), options), path)

    def test_no_sentence_outside_a_list(self):
        for _, _, options in self.families:
            for path in (ROOT / "apps").rglob("*.cpp"):
                if path.name != "label_metrics.cpp":  # the blank of a metric
                    self.assertEqual([], sentences_outside(path.read_text(encoding="utf-8"), options), path.name)


class SelfTest(unittest.TestCase):
    LIST = ('HALFSTEP_OPTIONS(FlipOptions, option("p", &O::p, "probability of a " "mirrored picture").at_least(0),\n'
            '                 in_words("on_error", &O::skip, "fail", "skip", "what happens then"))')

    def test_each_rule_finds_what_breaks_it(self):
        options = options_in([self.LIST])
        self.assertEqual({"p", "on_error"}, set(options))
        self.assertEqual(["NewOptions"], structs_without_list(["struct NewOptions {\n  double p = 0.5;\n};\n"]))
        self.assertEqual([], structs_without_list(["struct NewOptions {\n  static const OptionList<NewOptions>& list();\n};\n"]))
        for broken in ("o.p >= 0", "width > 0 && p < 1", "!on || *options_.p <= 1", "p_ != 0"):
            self.assertEqual(["a.cpp: p"], bounds_outside([("a.cpp", f'check<ValueError>({broken}, "Flip", "p");')], options))
        self.assertEqual([], bounds_outside([("a.cpp", 'check<ValueError>(o.p <= o.q, "Flip", "p");')], options))
        self.assertEqual(["Flip: p = 0.5"], defaults_outside(["  explicit Flip(double p = 0.5);"], options))
        self.assertEqual([], defaults_outside(["  explicit Flip(double p = defaults().p);"], options))
        self.assertEqual({"width"}, set(options_in(['HALFSTEP_ARGUMENTS(Flip, argument("width", "of the picture").at_least(1))'])))
        self.assertEqual(["p"], fields_outside("transforms.cpp", 'number("p", 0.5, "probability").at_least(0)', options))
        self.assertEqual(["probability of a mirrored picture"],
                         sentences_outside('text("q", "probability of a mirrored picture")', options))


if __name__ == "__main__":
    unittest.main()
