#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/tokenizers/: small tokenizers of each supported kind, and the ids that `tokenizers` of PyPI has for texts.

Run by hand where `tokenizers` is installed, after cases were added or changed; tests only read the files:
    python3 scripts/make_tokenizer_goldens.py
More texts and larger vocabularies, which are not kept. The test reads any such folder:
    python3 scripts/make_tokenizer_goldens.py --out /tmp/tokenizers --texts 10000 --vocabulary 4000 --corpus FILE...
    HALFSTEP_TOKENIZERS=/tmp/tokenizers build/default/tests/test_data "--test-case=BpeTokenizer: ids and texts*"
"""
import argparse
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
TIKTOKEN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
SENTENCES = [
    "First Citizen: Before we proceed any further, hear me speak. We'll say they're good, I'd say you've won, she's in; I'm.",
    "for (int i = 0; i < n; ++i) {\n\tsum += x[i] * 0x1F;  // 3.14159e-10\r\n}\r\n\r\n\r\nreturn  sum;   \n",
    "def f(x):\n    if x > 1000000:\n        return 'a' + \"b\"\n\n\n    return None",
    "Größe, naïve café, Ærøskøbing, pingüino, Łódź, Čeština, ŒUVRE, ﬁne",
    "Съешь ещё этих мягких французских булок, да выпей же чаю.", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "敏捷的棕色狐狸跳过了懒狗。いろはにほへと ちりぬるを。 빠른 갈색 여우가 게으른 개를 뛰어넘는다.",
    "צַדִּיק כַּתָּמָר יִפְרָח",
    "نص حكيم له سر قاطع وذو شأن عظيم ١٢٣٤٥", 
    "ऋषियों को सताने वाले दुष्ट १२३ राक्षसों", "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ๑๒๓",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 🏳️‍🌈 😀😃 ☕️ 1️⃣ ½ ² Ⅷ ① 𝟘𝟙 𝒜", 
    "e\u0301 a\u0308\u0304 q\u0323\u0307 \u1e9b\u0323 \u212b \u0958 \uac00\u11a8 \u1100\u1161\u11a8 \ufb1d \u2126",
    "DON'T WE'LL I'M YOU'VE HE'D THEY'RE IT'S 'Sup 'TIS 'lL 'Re '\u017f \u2019s O''s ''s 'x 'r 'l 'v 're've",
]
SPECIALS = ["<|endoftext|>", "<|begin|>", "<mask>", "<s>", "</s>", "<tool>", "<too", "caf\u00e9!"]
WORDS = " ".join(SENTENCES).split()


def point(rng):
    """Returns a code point of some kind: small ones, those around letters and numbers of any script, and any at all."""
    ranges = [(0, 0x80), (0x20, 0x7F), (0x80, 0x300), (0x300, 0x370), (0x370, 0x600), (0x600, 0xE00), (0x1100, 0x1200),
              (0x1E00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2200), (0x3000, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4),
              (0xF900, 0xFB50), (0xFE00, 0x10000), (0x10000, 0x12000), (0x1D100, 0x1D800), (0x1F300, 0x1FB00), (0, 0xD800),
              (0xE000, 0x110000)]
    return chr(rng.randrange(*rng.choice(ranges)))


def make_text(rng, corpus, length):
    def pick(things, least=1, most=length):
        return [rng.choice(things) for _ in range(rng.randint(least, max(least, most)))]

    def cut(text):
        at = rng.randrange(len(text))
        return text[at:at + rng.randint(1, 4 * length)]
    kind = rng.randrange(14)
    if kind == 0:
        return cut(corpus)
    if kind == 1:
        return cut(rng.choice(SENTENCES))
    if kind == 2:
        return "".join(pick(list(SPACES) + ["\r\n", " ", " ", "  ", "a", "1", "!", "\u4e00"]))
    if kind == 3:
        return "".join(point(rng) for _ in range(rng.randint(0, length)))
    if kind == 4:
        return "".join(pick(WORDS + list(SPACES) + [" ", " ", " "]))
    if kind == 5:
        return "".join(pick(["'", "\u2019", "S", "s", "t", "RE", "re", "Ve", "m", "LL", "ll", "lL", "D", "\u017f", " ", "x"]))
    if kind == 6:
        return "".join(pick(list("0123456789") + list("٠١٢३४५๑๒½²Ⅷ①𝟘𝟙三") + [" ", ",", ".", "a", "\U00011de0"]))
    if kind == 7:
        return "".join(pick(SPECIALS + SPECIALS + list(SPACES) + [" ", "  ", "a", "<", "<|", "|>", "word", "cafe\u0301!", "'s"]))
    if kind == 8:
        return bytes(rng.randrange(256) for _ in range(rng.randint(0, length))).decode("latin-1")
    if kind == 9:
        return bytes(rng.randrange(256) for _ in range(rng.randint(0, length))).decode("utf-8", "replace")
    if kind == 10:
        return "".join(pick(list("aeoqAKDd가각") + [chr(c) for c in range(0x300, 0x363)] + [chr(c) for c in range(0x1100, 0x11C3)]
                            + list("\u0338\u0327\u093c\u0915\u05bc\u0b47\u0b3e\u3099\u304b\u212b\uf900")))
    if kind == 11:
        return "".join(pick(["👩", "\u200d", "👧", "🏽", "\ufe0f", "👍", "🇩", "🇪", "1\ufe0f\u20e3", "😀", " ", "a"]))
    if kind == 12:
        return rng.choice(["a", "ab", " ", "\n", "\r\n", "1", "!", "\u4e00", "'s", "the "]) * rng.randint(0, 3 * length)
    return rng.choice(["", " ", "  ", "\n", " a", "a ", "\t\tx", "a\n\n\nb", "a \n b", " \r\n", "'", "''", "' s", "\u00a0x",
                       "\u3000\u3000x", "x" * length])


def trained(pre_tokenizer, corpus, vocabulary, specials=()):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return tokenizer


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), behavior, invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def tokenizers_of(corpus, size, all_kinds):
    """Returns {name: Tokenizer}"""
    out = {}
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t = out["gpt2"] = trained(byte_level, corpus, size, ["<|endoftext|>"])
    t.post_processor = processors.ByteLevel(trim_offsets=False)

    t = out["roberta"] = trained(pre_tokenizers.ByteLevel(add_prefix_space=True), corpus, size, ["<s>", "<pad>", "</s>", "<unk>"])
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))

    t = out["llama3"] = trained(split(LLAMA3), corpus, size)
    t.add_special_tokens(["<|begin|>", "<|endoftext|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", t.token_to_id("<|begin|>"))])])

    t = out["qwen2"] = trained(split(QWEN2), corpus, size)
    t.normalizer = normalizers.NFC()
    t.add_special_tokens(["<|endoftext|>"])
    t.add_tokens([AddedToken("<tool>", rstrip=True, normalized=False),
                  AddedToken("<too", normalized=True, lstrip=True, rstrip=True),
                  AddedToken("cafe\u0301!", normalized=True)])

    t = out["digits"] = trained(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level]), corpus, size)
    t.normalizer = normalizers.Sequence([])
    t.add_special_tokens(["<|endoftext|>", " <s>"])
    if all_kinds:
        out["tiktoken"] = trained(split(TIKTOKEN, "removed", True), corpus, size)
        out["r50k"] = trained(split(R50K), corpus, size)
        digits = pre_tokenizers.Digits(individual_digits=False)
        out["spaced"] = trained(pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=True)]), corpus, size)
    return out


def edited(path, name):
    """Makes files that the package reads, but no longer writes, or has no setter for."""
    text = json.loads(path.read_text())
    model = text["model"]
    if name == "gpt2":  # as OpenAI's own file
        del model["type"]
        model["merges"] = [" ".join(pair) for pair in model["merges"]]
        text["added_tokens"][0]["normalized"] = True
    else:  # words that are tokens, but that merges do not make
        model["ignore_merges"] = True
        del model["merges"][5::6]
    path.write_text(json.dumps(text, ensure_ascii=False, separators=(",", ":")))
    return Tokenizer.from_file(str(path))


HAN = r"\x{3400}-\x{4dbf}\x{4e00}-\x{9fff}\x{f900}-\x{faff}\x{20000}-\x{323af}"
POINTS_OF_WORDS = r"\p{L}\p{M}\p{N}"
WORDS_OF_TABLES = rf"[{HAN}]|(?:(?![{HAN}])[{POINTS_OF_WORDS}])+|[^\s{POINTS_OF_WORDS}]"
TEXTS_OF_TABLES = [
    "Great film, 10/10!", "I don't like it", "\u0130stanbul'da \u00c7ok G\u00dcZEL", "\u039f\u0394\u039f\u03a3 \u03a3",
    "cafe\u0301 caf\u00e9 CAF\u00c9", "\u4f60\u597dabc\u4e16\u754c\u3002",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "a\u200bb\u00a0c\u3000d\te\r\nf",
    "\U0001f600\U0001f44d\U0001f3fd <pad> [x] <unk>", "\ufb01ne \u2460 \u00bd x\u00b2 \u0667\u0668",
    "\uf900\U00020000\u30ab\u30bf\u30ab\u30ca", "", " ", " \u2003 both ends \n",
    "one two three four five six seven eight nine ten eleven"]


def texts_of_tables(rng, out):
    """Writes rows of framework/data/tokens/token_rows.h: a file of the package that splits texts, and its results."""
    strip = normalizers.Strip()
    for name, normalizer, pattern in (("words", [strip, normalizers.NFC(), normalizers.Lowercase()], WORDS_OF_TABLES),
                                      ("characters", [strip, normalizers.NFC()], r"[\s\S]")):
        texts = TEXTS_OF_TABLES + ["".join(point(rng) for _ in range(30)) for _ in range(30)]
        t = Tokenizer(models.WordLevel({}, unk_token="<unk>"))
        t.normalizer = normalizers.Sequence(normalizer)
        t.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        pieces = sorted({w for text in texts[::2] for w, _ in t.pre_tokenizer.pre_tokenize_str(t.normalizer.normalize_str(text))})
        vocabulary = ["<pad>", "<unk>", "<sep>"] + pieces
        t.model = models.WordLevel({w: i for i, w in enumerate(vocabulary)}, unk_token="<unk>")
        t.post_processor = processors.TemplateProcessing(single="$A:0", pair="$A:0 <sep>:0 $B:0", special_tokens=[("<sep>", 2)])
        t.enable_truncation(8)
        t.enable_padding(length=8, pad_id=0, pad_token="<pad>")
        cases = [[[a], t.encode(a).ids] for a in texts] + [[[a, b], t.encode(a, b).ids] for a, b in zip(texts, texts[5:])]
        golden = {"tokenizer": json.loads(t.to_str()), "vocabulary": vocabulary, "rows": cases}
        (out / f"table_{name}.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/data/tokenizers")
    args.add_argument("--texts", type=int, default=70, help="of each tokenizer")
    args.add_argument("--length", type=int, default=12, help="about how many pieces a text has at most")
    args.add_argument("--vocabulary", type=int, default=420)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--corpus", nargs="*", type=pathlib.Path, default=[], help="files to train on and to cut texts from")
    args = args.parse_args()
    rng = random.Random(args.seed)
    corpus = SENTENCES + [p.read_text(errors="replace") for p in args.corpus]
    large = args.vocabulary > 1000
    args.out.mkdir(parents=True, exist_ok=True)
    goldens = {}
    for name, tokenizer in tokenizers_of(corpus, args.vocabulary, large).items():
        path = args.out / f"{name}.json"
        tokenizer.save(str(path), pretty=False)
        if name == "gpt2":
            tokenizer.model.save(str(args.out), "gpt2")
        if name in ("gpt2", "llama3"):
            tokenizer = edited(path, name)
        texts = [make_text(rng, "\n".join(corpus), args.length) for _ in range(args.texts)]
        if large:
            line = "\n".join(corpus).replace("\n", " ")
            texts += ["x" * 1000000, "ab" * 50000, " " * 100000, "\n" * 100000, " \n" * 50000, "1" * 100000, line[:100000],
                      "".join(point(rng) for _ in range(30000)), "".join(SENTENCES) * 70]
        encodings = [[text, tokenizer.encode(text).ids, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts]
        ids = [e[1] for e in encodings]
        for below in (tokenizer.get_vocab_size(), 260):  # the latter are mostly not UTF-8
            ids += [[rng.randrange(below) for _ in range(rng.randint(0, args.length))] for _ in range(args.texts // 4)]
        decodings = [[i, tokenizer.decode(i), tokenizer.decode(i, skip_special_tokens=False)] for i in ids]
        goldens[name] = {"size": tokenizer.get_vocab_size(), "encode": encodings, "decode": decodings}
    if not large:
        texts_of_tables(rng, args.out)
    for name, golden in goldens.items():
        lines = [f'{{"tokenizer":"{name}.json","size":{golden["size"]}']
        for key in ("encode", "decode"):
            lines.append(f',"{key}":[' + ",\n".join(json.dumps(case, separators=(",", ":")) for case in golden[key]) + "]")
        (args.out / f"{name}.goldens.json").write_text("\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
