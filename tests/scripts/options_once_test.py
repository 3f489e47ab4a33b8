#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An option of a layer, loss, schedule, transform or data set is described in its list alone: no other place of the tree has its
default, bounds or sentence."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STRUCT = re.compile(r"^struct (\w+Options) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r'\w+\("(\w+)", &\w+::\w+,')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
ARGUMENTS = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^()"])*')
FIELD = re.compile(r'\b(?:boolean|integer|number|text|choice|sizes|list|width|copies)\("(\w+)", ')
# An option compared with a number: a bound.
BOUND = re.compile(r"check<ValueError>\(!?\*?(?:o|options|options_)\.(\w+) (?:[<>]=?|[!=]=) -?[\d.]+")
# A number as the default of an argument of a constructor.
DEFAULT = re.compile(r"^\s+(?:explicit )?(\w+)\([^;{]*?\b(?:double|int64_t|bool) (\w+) = (-?[\d.]+|true|false)", re.MULTILINE)

# What families the rule holds for: the places of their lists, and the files of the catalogue with their fields.
FAMILIES = {
    "resampling": (["framework/ops/window/resample"], ["rows/layer_rows.cpp"]),
    "layers and losses": (["layers", "framework/ops/loss", "framework/ops/elementwise"],
                          ["rows/layer_rows.cpp", "rows/window_rows.cpp", "rows/container_rows.cpp", "rows/attention_rows.cpp",
                           "rows/recurrent_rows.cpp", "losses.cpp"]),
    "schedules": (["optim/schedule"], ["schedulers.cpp"]),
    "transforms": (["framework/data/transforms"], ["transforms.cpp"]),
    "data sets": (["framework/data/sets", "framework/data/tables", "framework/data/tokens"],
                  ["rows/image_rows.cpp", "rows/table_rows.cpp", "rows/array_rows.cpp", "rows/text_rows.cpp",
                   "rows/generated_rows.cpp"])}
# Structs of options without a list, and why.
WITHOUT_LIST = {
    "KaimingOptions": "of an initialiser", "LoadOptions": "of load()", "OrthogonalOptions": "of a parametrization",
    "SpectralNormOptions": "of a parametrization", "LambdaLROptions": "a function", "MultiplicativeLROptions": "a function",
    "SequentialLROptions": "schedules", "ArrayOptions": "most are found in the training data",
    "CifarOptions": "a config's type says which labels", "MnistOptions": "a config's type says which of the sets",
    "SplitOptions": "keys of all data sets", "PictureCheckOptions": "of a check", "BpePairOptions": "of a tokenizer's file"}
# Rules between values, in the words of a bound.
RULES = {"ignore_index": "with targets of probabilities", "vocab_size": "of other tokenizers"}
# What a config says besides the list, by file: the field is no option of the class, or has no struct.
FIELDS = {"layer_rows.cpp": {"dim": "of Unflatten, required", "padding": "of padding layers, required",
                             "groups": "of ChannelShuffle, required", "output_size": "of Fold, required",
                             "size": "of LocalResponseNorm, required"},
          "window_rows.cpp": {"padding_mode": "PyTorch's, of one word", "norm_type": "of LPPool, required",
                              "output_size": "of adaptive pooling, required"},
          "container_rows.cpp": {"bias": "of an MLP", "dropout": "of an MLP", "dim": "of Parallel and Graph"},
          "attention_rows.cpp": {"max_len": "required", "dim": "of RotaryEmbedding, required", "num_layers": "of a stack"},
          "schedulers.cpp": {"warmup_steps": "of all schedules"},
          "array_rows.cpp": {"classes": "of arrays", "vocab_size": "of arrays"}}


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
    return [m.group(0) for text in texts for m in BOUND.finditer(text) if m.group(1) in options and m.group(1) not in RULES]


def defaults_outside(texts, options):
    return [f"{m.group(1)}: {m.group(2)} = {m.group(3)}" for text in texts for m in DEFAULT.finditer(text) if m.group(2) in options]


def fields_outside(name, text, options):
    return [key for key in FIELD.findall(text) if key in options and key not in FIELDS.get(name, {})]


def sentences_outside(text, options):
    said = {doc for docs in options.values() for doc in docs if len(doc) > 20}
    return [doc for doc in said if f'"{doc}"' in text]


class OptionsOnce(unittest.TestCase):
    def setUp(self):
        self.families = [(*family, options_in(read(family[0], ".cpp").values())) for family in FAMILIES.values()]
        self.assertGreater(min(len(options) for _, _, options in self.families), 5)
        self.assertGreater(sum(len(options) for _, _, options in self.families), 150)

    def test_every_struct_has_a_list(self):
        for folders, _, _ in self.families:
            self.assertEqual([], structs_without_list(read(folders, ".h").values()))

    def test_no_bound_outside_a_list(self):
        for folders, _, options in self.families:
            self.assertEqual([], bounds_outside(read(folders, ".cpp").values(), options))

    def test_no_default_outside_its_struct(self):
        for folders, _, options in self.families:
            if folders[0] != "layers":  # a layer takes no numbers besides its options
                self.assertEqual([], defaults_outside(read(folders, ".h").values(), options))

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
        self.assertEqual(1, len(bounds_outside(['check<ValueError>(o.p >= 0, "Flip", "p must be >= 0");'], options)))
        self.assertEqual(["Flip: p = 0.5"], defaults_outside(["  explicit Flip(double p = 0.5);"], options))
        self.assertEqual([], defaults_outside(["  explicit Flip(double p = defaults().p);"], options))
        self.assertEqual(["p"], fields_outside("transforms.cpp", 'number("p", 0.5, "probability").at_least(0)', options))
        self.assertEqual(["probability of a mirrored picture"],
                         sentences_outside('text("q", "probability of a mirrored picture")', options))


if __name__ == "__main__":
    unittest.main()
