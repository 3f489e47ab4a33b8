#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles libtorch_program.cpp with libtorch and compares what it prints with what it prints with halfstep.

    tests/torch/compare_libtorch.py PROGRAM [COMPILER]

PROGRAM is libtorch_program.cpp, linked with halfstep::torch. libtorch is the folder HALFSTEP_LIBTORCH, which has include/ and
lib/, or that of the PyTorch that python3 imports; without either it prints SKIPPED. Words must be equal, and numbers to nearly
four digits.
"""
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent / "libtorch_program.cpp"
RELATIVE, ABSOLUTE = 2e-4, 2e-5
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf|nan)$")


def libtorch():
    """Returns the folder of libtorch, or None."""
    given = os.environ.get("HALFSTEP_LIBTORCH")
    if given:
        return pathlib.Path(given)
    found = subprocess.run(["python3", "-c", "import torch; print(torch.__path__[0])"], capture_output=True, text=True, check=False)
    return pathlib.Path(found.stdout.strip()) if found.returncode == 0 else None


def compile_theirs(compiler, folder, out):
    include, lib = folder / "include", folder / "lib"
    headers = [f"-I{include}", f"-I{include}/torch/csrc/api/include"]
    libraries = [f"-L{lib}", f"-Wl,-rpath,{lib}", "-ltorch", "-ltorch_cpu", "-lc10"]
    subprocess.run([compiler, "-std=c++20", "-O0", "-w", *headers, str(SOURCE), "-o", str(out), *libraries], check=True)


def lines_of(program, folder):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    out = subprocess.run([str(program)], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if out.returncode != 0:
        sys.exit(f"{program} failed with {out.returncode}: {out.stderr[-2000:]}")
    return out.stdout.splitlines()


def same(ours, theirs):
    """Returns whether two lines have the same words and numbers."""
    mine, other = (re.split(r"([ ,()\[\]=:]+)", line.strip()) for line in (ours, theirs))
    if len(mine) != len(other):
        return False
    for a, b in zip(mine, other):
        if a.strip() == b.strip():  # the width of a column depends on rounding
            continue
        if not NUMBER.match(a) or not NUMBER.match(b) or not math.isclose(float(a), float(b), rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            return False
    return True


def main():
    folder = libtorch()
    if folder is None or not (folder / "include").is_dir():
        print("SKIPPED: compare_libtorch.py needs libtorch: set HALFSTEP_LIBTORCH, or install PyTorch for python3")
        return 0
    program = pathlib.Path(sys.argv[1]).resolve()
    if not program.exists():
        print("SKIPPED: compare_libtorch.py needs the target torch_parity")
        return 0
    with tempfile.TemporaryDirectory() as work:
        theirs = pathlib.Path(work) / "theirs"
        compile_theirs(sys.argv[2] if len(sys.argv) > 2 else "c++", folder, theirs)
        ours, expected = lines_of(program, work), lines_of(theirs, work)
    differ = [(i, a, b) for i, (a, b) in enumerate(zip(ours, expected), 1) if not same(a, b)]
    for i, a, b in differ[:20]:
        print(f"line {i}\n  halfstep: {a}\n  libtorch: {b}")
    if len(ours) != len(expected):
        print(f"halfstep prints {len(ours)} lines, libtorch {len(expected)}")
    print(f"{len(expected) - len(differ)} of {len(expected)} lines agree")
    return 1 if differ or len(ours) != len(expected) else 0


if __name__ == "__main__":
    sys.exit(main())
