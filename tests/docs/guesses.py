#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lines that a user of PyTorch types first, of tests/docs/guesses.txt: do they compile, and do they give PyTorch's results?

    tests/docs/guesses.py OUT.cpp    writes a test of all lines, which compares results with those of guesses.json
    tests/docs/guesses.py --torch    runs the lines with PyTorch and writes guesses.json; needs torch

A line is C++, and behind "  // " PyTorch's own text where that is another. The value of what follows its last semicolon counts.
Behind "  //~ " shapes and dtypes count, not numbers, which are random. The result None is not compared.
"""
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LINES, RESULTS = os.path.join(HERE, "guesses.txt"), os.path.join(HERE, "guesses.json")


def guesses():
    """(number, C++, PyTorch, are numbers compared?) of each line."""
    out = []
    with open(LINES, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text = line.rstrip("\n")
            if text and not text.startswith("# "):
                left, mark, right = re.fullmatch(r"(.*?)(?:  //(~?) (.*))?", text).groups()
                out.append((number, left, right or left, mark != "~"))
    return out


def parted(text):
    """The statements, and the expression behind the last semicolon that is not in brackets."""
    depth, at = 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == ";" and not depth:
            at = i + 1
    return text[:at], text[at:].strip()


def write(target):
    with open(target, "w", encoding="utf-8") as out:
        out.write('#include "tests/docs/guesses_test.h"\n\n')
        calls = []
        for number, left, _, _ in guesses():
            first, last = parted(left)
            out.write(f"struct Guess{number} : Variables {{\n  auto run() {{\n#line {number} \"{LINES}\"\n    {first}\n"
                      f"#line {number} \"{LINES}\"\n    return ({last}), Nothing();\n  }}\n}};\n")
            calls.append(f'  check_guess<Guess{number}>({number}, R"({left})");\n')
        out.write('TEST_CASE("tests/docs/guesses.txt") {\n' + "".join(calls) + "}\n")


def flat(value, numbers):
    """[shape, dtype, numbers] of a tensor, numbers and texts as they are, a list of several; None for what is not compared."""
    import torch
    if isinstance(value, torch.Tensor):
        value = value.detach()
        values = value.to(torch.float64).flatten().tolist() if numbers else []
        some = values[::-(-len(values) // 16) or 1]
        shown = [float(f"{v:.7g}") if math.isfinite(v) else str(v) for v in some]
        return [list(value.shape), str(value.dtype).removeprefix("torch."), shown]
    if isinstance(value, (list, tuple)):
        return [list(map(float, value))] if all(isinstance(v, (int, float)) for v in value) else [flat(v, numbers) for v in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def variables():
    import math
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    names = {}
    for module in (F, torch, nn, torch.optim, torch.optim.lr_scheduler):
        names |= {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    names |= {name: getattr(__builtins__, name) for name in ("list", "dict", "len", "float", "int", "bool", "str", "type")}
    names |= {name: getattr(F, name) for name in ("gelu", "dropout", "normalize")}
    import copy
    wave = lambda n: torch.sin(torch.arange(n, dtype=torch.float64)).to(torch.float32)
    names |= {"torch": torch, "nn": nn, "F": F, "math": math, "copy": copy, "distributions": torch.distributions,
              "autograd": torch.autograd, "linalg": torch.linalg, "init": nn.init, "lr_scheduler": torch.optim.lr_scheduler,
              "utils": torch.utils, "device": torch.device("cpu"), "vmap": torch.vmap}
    names |= {"x": wave(20).view(4, 5), "y": torch.cos(torch.arange(20.0, dtype=torch.float64)).to(torch.float32).view(4, 5),
              "v": wave(5), "v3": wave(3), "a": wave(24).view(2, 3, 4), "m": torch.eye(3) * 3 + 0.5,
              "k": torch.tensor([0, 3, 1]), "t": torch.tensor([0, 2, 1, 4]), "index": torch.zeros(4, 5, dtype=torch.int64),
              "images": wave(384).view(2, 3, 8, 8), "kernel": wave(54).view(2, 3, 3, 3), "bias": wave(2),
              "seq": wave(60).view(2, 6, 5), "numbers": [1.0, 2.0, 3.0]}
    x, y = names["x"], names["y"]
    names |= {"mask": x > 0, "w": (y * 0.5).requires_grad_(), "parts": [x, y]}
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(torch.cos(torch.arange(p.numel(), dtype=torch.float64) * 0.7 + i).view(p.shape) * 0.3)
    return names | {"net": net, "opt": torch.optim.SGD(net.parameters(), lr=0.1)}


def record():
    import warnings
    warnings.simplefilter("ignore")
    import torch
    torch.set_num_threads(1)
    results, wrong = {}, 0
    for number, left, right, numbers in guesses():
        first, last = parted(right)
        names = variables()
        torch.manual_seed(1)
        try:
            exec(first, names)
            result = flat(eval(last, names), numbers)
        except Exception as e:
            wrong += 1
            print(f"{LINES}:{number}: {right}: {type(e).__name__}: {e}")
            continue
        results[left] = result
    with open(RESULTS, "w", encoding="utf-8") as file:
        rows = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in results.items()]
        file.write("{\n" + ",\n".join(rows) + "\n}\n")
    compared = sum(result is not None for result in results.values())
    print(f"{compared} results of {len(guesses())} lines, {wrong} that PyTorch refuses")
    return wrong > 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sys.exit(record() if sys.argv[1] == "--torch" else write(sys.argv[1]))
