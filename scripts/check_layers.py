#!/usr/bin/env python3
"""Holds the code to its floors, and to a few rules of the house.

    scripts/check_layers.py [ROOT]      prints "file:line: rule" for each violation; exits 1 when there is one
    scripts/check_layers.py --self-test plants one violation of each rule in a temporary tree and checks that it is found

Floors: a file includes only from its own floor or below.

    8  apps, examples, benchmarks                     tests may look anywhere, and nobody includes a test
    7  amp/grad_scaler, amp/train_step, amp/custom    and halfstep.h, the header for users
    6  layers | optim                                 neighbours: neither includes the other
    5  framework/ops, framework/io, framework/data
    4  framework/autograd, amp/autocast
    3  framework/backend | cuda                       only framework/backend/registry.cpp may include cuda/
    2  framework/tensor
    1  framework/math
    0  framework/base, amp/policy                     no tensors
"""
import os
import re
import sys
import tempfile

# Path prefix -> floor; the longest match counts. tests are above all.
FLOORS = {
    "framework/base/": 0, "amp/policy.": 0,
    "framework/math/": 1,
    "framework/tensor/": 2,
    "framework/backend/": 3, "cuda/": 3,
    "framework/autograd/": 4, "amp/autocast.": 4,
    "framework/ops/": 5, "framework/io/": 5, "framework/data/": 5,
    "layers/": 6, "optim/": 6,
    "amp/grad_scaler.": 7, "amp/train_step.": 7, "amp/step_recorder.": 7, "amp/custom.": 7, "halfstep.h": 7,
    "apps/": 8, "examples/": 8, "benchmarks/": 8,
    "tests/": 9,
}
CODE = (".h", ".cpp", ".cu", ".cuh", ".def")
TEXT = CODE + (".py", ".sh", ".md", ".json", ".cmake", ".txt", ".in")
SKIPPED_FOLDERS = {"build", "runs", "deps", "__pycache__"}

CUDA_DOOR = {"framework/backend/registry.cpp"}  # the one registration call
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|curand|cusolver|cusparse|cufft|cupti|nccl|nvtx3?/|nvml|nvrtc|cub/|thrust/|cooperative_groups|"
                         r"device_launch_parameters|mma\.h)")
GENERATED = {"generated/halfstep_version.h"}  # written by CMake

MAX_LINES = 400
LONG_FILES = {  # file -> why it may be longer
    "tests/optim/torch_goldens.h": "numbers written by scripts/make_optim_goldens.py",
}

# Words about the place the code was written in, which mean nothing to its readers.
WORKPLACE = re.compile(r"(?<![\w.])/(work|home|root)/\w|\bshared/(design|spec)\b|\b(design|spec)/\w+\.md\b|"
                       r"\b(this|our|my) (session|sandbox|workplace)\b|\bthe (brief|lead engineer|workplace)\b", re.IGNORECASE)
WORKPLACE_EXEMPT = {"scripts/check_layers.py"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def floor_of(path):
    best = max((p for p in FLOORS if path.startswith(p)), key=len, default=None)
    return None if best is None else FLOORS[best]


def check_include(root, path, quote, target):
    """Yields the rules that the inclusion of `target` by `path` breaks."""
    if not path.startswith("cuda/") and CUDA_HEADER.match(target) and not target.startswith("cuda/"):
        yield f"{target} is a CUDA header: only cuda/ includes those"
        return
    if quote == "<" or target in GENERATED:
        return
    own = floor_of(path)
    if own == 9 and not os.path.exists(os.path.join(root, target)):
        beside = os.path.join(os.path.dirname(path), target)
        if os.path.exists(os.path.join(root, beside)):
            return  # a test's own header may be named from its folder
    other = floor_of(target)
    if other is None or not os.path.exists(os.path.join(root, target)):
        yield f'"{target}" is not a path from the repository root'
        return
    if own is None:
        return  # reported once for the file
    if target.startswith("cuda/") and not path.startswith(("cuda/", "tests/")) and path not in CUDA_DOOR:
        yield f"{target}: nobody includes cuda/ but {', '.join(sorted(CUDA_DOOR))}"
    if other > own:
        yield f"{target} is on floor {other}, above this file's floor {own}"
    for a, b in (("layers/", "optim/"), ("optim/", "layers/")):
        if path.startswith(a) and target.startswith(b):
            yield f"{target}: {a[:-1]} and {b[:-1]} are neighbours and do not include each other"


def files(root):
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(f for f in subfolders if f not in SKIPPED_FOLDERS and (not f.startswith(".") or f == ".ci"))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")
            if name.endswith(TEXT) or path.startswith(".ci/"):
                yield path


def violations(root):
    """All violations as (path, line, rule)."""
    found = []
    for path in files(root):
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
        is_code = path.endswith(CODE)
        if is_code and floor_of(path) is None:
            found.append((path, 1, "this file is on no floor: add it to FLOORS in scripts/check_layers.py"))
        if is_code and len(lines) > MAX_LINES and path not in LONG_FILES:
            found.append((path, len(lines), f"over {MAX_LINES} lines: split it, or give the reason in LONG_FILES of scripts/check_layers.py"))
        for number, line in enumerate(lines, 1):
            include = INCLUDE.match(line) if is_code else None
            if include:
                found += [(path, number, rule) for rule in check_include(root, path, *include.groups())]
            word = None if path in WORKPLACE_EXEMPT else WORKPLACE.search(line)
            if word:
                found.append((path, number, f'"{word.group(0)}" speaks of the place the code was written in'))
    return found


PLANTED = [  # path, text, part of the rule expected; None: legal
    ("framework/base/a.h", "#pragma once\n", None),
    ("framework/base/up.cpp", '#include "framework/tensor/a.h"\n', "is on floor 2, above this file's floor 0"),
    ("framework/tensor/a.h", '#include "framework/base/a.h"\n', None),
    ("framework/tensor/cuda.cpp", "#include <cuda_runtime.h>\n", "only cuda/ includes those"),
    ("framework/math/blas.h", "#  include <cublasLt.h>\n", "only cuda/ includes those"),
    ("framework/backend/registry.cpp", '#include "cuda/a.h"\n', None),
    ("framework/backend/other.cpp", '#include "cuda/a.h"\n', "nobody includes cuda/"),
    ("framework/autograd/a.h", '#include "amp/policy.h"\n#include "amp/autocast.h"\n', None),
    ("framework/autograd/up.cpp", '#include "amp/grad_scaler.h"\n', "is on floor 7, above this file's floor 4"),
    ("framework/ops/relative.cpp", '#include "registry.h"\n', "not a path from the repository root"),
    ("framework/ops/absent.cpp", '#include "framework/ops/absent.h"\n', "not a path from the repository root"),
    ("framework/ops/long.cpp", "\n" * 401, "over 400 lines"),
    ("framework/elsewhere/a.cpp", "\n", "on no floor"),
    ("amp/policy.h", '#include "framework/base/a.h"\n', None),
    ("amp/policy.cpp", '#include "framework/tensor/a.h"\n', "is on floor 2, above this file's floor 0"),
    ("amp/autocast.h", '#include "framework/tensor/a.h"\n', None),
    ("amp/grad_scaler.h", '#include "optim/a.h"\n', None),
    ("amp/new_part.h", "\n", "on no floor"),
    ("cuda/a.h", '#include <cuda_runtime.h>\n#include "framework/backend/registry.cpp"\n', None),
    ("cuda/up.cu", '#include "framework/ops/relative.cpp"\n', "is on floor 5, above this file's floor 3"),
    ("layers/a.h", '#include "framework/autograd/a.h"\n', None),
    ("layers/side.cpp", '#include "optim/a.h"\n', "neighbours"),
    ("optim/a.h", '#include "framework/tensor/a.h"\n', None),
    ("optim/side.cpp", '#include "layers/a.h"\n', "neighbours"),
    ("optim/up.cpp", '#include "apps/a.h"\n', "is on floor 8, above this file's floor 6"),
    ("apps/a.h", '#include "amp/grad_scaler.h"\n#include <CLI/CLI.hpp>\n#include "generated/halfstep_version.h"\n', None),
    ("apps/test.cpp", '#include "tests/ops/a.h"\n', "is on floor 9, above this file's floor 8"),
    ("tests/ops/a.h", '#include "apps/a.h"\n#include "cuda/a.h"\n', None),
    ("tests/ops/a_test.cpp", '#include "a.h"\n', None),
    ("docs/a.md", "measured in /" + "work/x\n", "the place the code was written in"),
    ("README.md", "docs/a.md, ~/x, https://host/home/page\n", None),
]


def self_test():
    wrong = []
    with tempfile.TemporaryDirectory() as root:
        for path, text, _ in PLANTED:
            os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        found = violations(root)
        for path, _, expected in PLANTED:
            rules = [rule for where, _, rule in found if where == path]
            as_expected = not rules if expected is None else len(rules) == 1 and expected in rules[0]
            if not as_expected:
                wrong.append(f"{path}: expected {expected or 'no violation'}, got {rules or 'none'}")
    print("\n".join(wrong) if wrong else f"check_layers: all {len(PLANTED)} planted files judged as they should be")
    return 1 if wrong else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    found = violations(os.path.abspath(root))
    for path, line, rule in found:
        print(f"{path}:{line}: {rule}")
    print(f"check_layers: {len(found)} violation(s)" if found else "check_layers: every include stays on its floor")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
