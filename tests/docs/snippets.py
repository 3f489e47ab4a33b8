#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests of docs/from_pytorch.md: a function for each line of the right column of its tables, and for each whole program.

    tests/docs/snippets.py DOC OUT.cpp    writes the functions, which tests/docs/from_pytorch_test.h gives their variables
    tests/docs/snippets.py DOC --torch    runs the left column with PyTorch, to see that it is PyTorch; needs torch and torchvision
"""
import re
import sys


def rows(path):
    """(line, left, right) of each row whose two cells are code."""
    out = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            cells = [c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
            if len(cells) == 2 and all(re.fullmatch(r"`[^`]+`", c) for c in cells):
                out.append((number, cells[0].strip("`"), cells[1].strip("`")))
    return out


def programs(path):
    """(line, text) of each block of C++ with a main function."""
    with open(path, encoding="utf-8") as f:
        page = f.read()
    blocks = re.finditer(r"^```cpp\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [(page.count("\n", 0, b.start(1)) + 1, b[1]) for b in blocks if "int main()" in b[1]]


def write(doc, target):
    found, whole = rows(doc), programs(doc)
    if not whole:
        raise SystemExit(f"{doc}: no whole program was found")
    if len(found) < 50:
        raise SystemExit(f"{doc}: only {len(found)} rows of code were found")
    with open(target, "w", encoding="utf-8") as f:
        f.write('#include "tests/docs/from_pytorch_test.h"\n')
        for number, _, right in found:
            f.write(f'\nTEST_CASE("docs/from_pytorch.md, line {number}") {{\n  HS_VARIABLES\n'
                    f'#line {number} "{doc}"\n  {right};\n}}\n')
        for number, text in whole:  # started twice: the second time it continues
            text = re.sub(r"^(#include .*|using namespace halfstep;)$", "", text, flags=re.MULTILINE)
            f.write(f'\nnamespace program_{number} {{\n#line {number} "{doc}"\n' + text.replace("int main()", "void run()") + "}\n"
                    f'TEST_CASE("docs/from_pytorch.md, the program of line {number}") {{\n  const InTempDir there;\n'
                    f'  program_{number}::run();\n  program_{number}::run();\n}}\n')


def check_torch(doc):
    import collections
    import copy
    import os
    import tempfile

    import torch
    import torch.utils.checkpoint
    import torchvision.transforms.v2

    wrong, found = 0, rows(doc)
    folder = tempfile.TemporaryDirectory()
    os.chdir(folder.name)
    for number, left, _ in found:
        if "safetensors" in left or "from_numpy" in left or "hook" in left:
            continue
        x, y = torch.rand(4, 5), torch.rand(4, 5)
        model = torch.nn.Sequential(torch.nn.Linear(5, 5))
        names = {"torch": torch, "torchvision": torchvision, "nn": torch.nn, "F": torch.nn.functional, "x": x, "y": y,
                 "model": model, "device": "cpu",
                 "w": torch.rand(4, 5, requires_grad=True), "mask": x > 0.5, "rows": torch.tensor([0, 3, 1]),
                 "a": torch.arange(3.0),
                 "b": torch.arange(4.0), "square": torch.eye(3) + 0.1, "classes": torch.tensor([0, 1, 2, 3]),
                 "index": torch.zeros(4, 5, dtype=torch.int64), "values": [1.0, 2.0],
                 "optimizer": torch.optim.SGD(model.parameters()),
                 "scaler": torch.amp.GradScaler("cpu"), "collections": collections, "copy": copy, "wide": True,
                 "images": torch.rand(2, 3, 4, 4)}
        torch.save(model.state_dict(), "m.pt")
        text = left.replace("[1:, rows]", "[1:, rows]")
        try:
            exec(text, names)
        except Exception as e:  # the report names it
            wrong += 1
            print(f"{doc}:{number}: {left}: {e}")
    print(f"{len(found)} rows, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    sys.exit(check_torch(sys.argv[1]) if sys.argv[2] == "--torch" else write(*sys.argv[1:]))
