#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests see of the kernels' PTX.

usage: plant.py FOLDER --launched OBJECT...              every kernel must be launched by some test
       plant.py FOLDER --planted COUNT [--seed N] OBJECT...   faults in the PTX, one at a time

FOLDER has test_cuda_ptx_kernels and test_cuda_ptx_framework. OBJECT are the objects of cuda/kernels, whose PTX is not compressed.
A fault is one changed instruction, at a line that a test runs. It is found when a test or the machine fails. For the others, the
bytes that the host copied from the device are compared with those of a run without the fault. Equal bytes mean that there was
nothing to see, as with a comparison whose border cannot matter. Other bytes are within the tolerance of the test; these faults are
listed, so that a person can judge the tolerance.
"""
import argparse
import collections
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
ENTRY = re.compile(r"\.entry\s+(\w+)\s*\(")
SHUFFLES = {"16": "8", "8": "4", "4": "2", "2": "1", "1": "2"}
SWAPS = [
    (r"\badd\.(f32|f64|s32|s64)\b", r"sub.\1", "add -> sub"),
    (r"\bsub\.(f32|f64|s32|s64)\b", r"add.\1", "sub -> add"),
    (r"\bmul\.(f32|f64)\b", r"add.\1", "mul -> add"),
    (r"\bsetp\.lt\.", "setp.le.", "lt -> le"),
    (r"\bsetp\.ge\.", "setp.gt.", "ge -> gt"),
    (r"\bsetp\.eq\.", "setp.ne.", "eq -> ne"),
    (r"\bsetp\.gt\.", "setp.ge.", "gt -> ge"),
    (r"^@%p", "@!%p", "guard turned round"),
    (r"^.*\bst\.global\..*$", "", "store left out"),
    (r"^.*\bst\.shared\..*$", "", "shared store left out"),
    (r"^.*\bbar\.sync\b.*$", "", "barrier left out"),
    (r"(shfl\.sync\.bfly\.b32 .*, )(16|8|4|2|1)(, )", lambda m: m[1] + SHUFFLES[m[2]] + m[3], "shuffle of another lane"),
    (r"cvt\.rn\.f16\.f32", "cvt.rz.f16.f32", "f16 rounded towards zero"),
    (r"cvt\.rn\.f32\.f64", "cvt.rz.f32.f64", "f32 rounded towards zero"),
    (r"\bld\.global\.(.*)\+(4|8|12|16)\];", r"ld.global.\1+0];", "load from elsewhere"),
    (r"\bld\.param\.(.*)\+(\d+)\];", r"ld.param.\1+0];", "another parameter"),
]


def ptx_in(path):
    content = path.read_bytes()
    at = content.find(b".version ")
    begin = content.rfind(b"\0", 0, at) + 1  # lines are numbered from here
    return content[begin:content.find(b"\0", at)].decode("latin1") if at >= 0 else ""


class Programs:
    def __init__(self, folder, scratch):
        self.folder, self.scratch = folder, scratch

    def run(self, program, *arguments, timeout=None, **variables):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HALFSTEP_EMU_GUARD": "0", **variables}
        return subprocess.run([self.folder / program, "--test-suite-exclude=slow", *arguments], capture_output=True, text=True,
                              env=environment, timeout=timeout)

    def launched_by(self, program, *arguments):
        """Kernel: the lines of its PTX that ran."""
        file = self.scratch / "stats"
        file.unlink(missing_ok=True)
        ran = self.run(program, *arguments, HALFSTEP_PTX_STATS=str(file))
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
        rows = [line.rstrip("\n").split("\t") for line in file.read_text().splitlines()] if file.exists() else []
        return {row[4]: set(map(int, row[5].split())) for row in rows}

    def digest(self, test, timeout=None, **variables):
        file = self.scratch / "digest"
        file.unlink(missing_ok=True)
        ran = self.run("test_cuda_ptx_kernels", f"--source-file=*{test}.cpp", timeout=timeout,
                       HALFSTEP_EMU_DIGEST=str(file), **variables)
        return ran, file.read_text() if file.exists() else ""


def launched(programs, texts):
    there = {name for text in texts.values() for name in ENTRY.findall(text)}
    ran = set(programs.launched_by("test_cuda_ptx_kernels")) | set(programs.launched_by("test_cuda_ptx_framework"))
    # Norms of more parts than there is scratch memory for take minutes: the suite "slow" of large_test.cpp launches them.
    missing = sorted(name for name in there - ran if "norm_packed" not in name)
    print(f"{len(there)} kernels, {len(there & ran)} launched by the quick tests")
    print("\n".join(f"launched by no test: {name}" for name in missing))
    return 1 if missing else 0


def planted(programs, texts, count, seed):
    quickest = {}  # kernel: seconds, test and lines of the quickest test that launches it
    for path in sorted((ROOT / "tests/cuda/kernels").glob("*_test.cpp")):
        began = time.monotonic()
        for name, lines in programs.launched_by("test_cuda_ptx_kernels", f"--source-file=*{path.stem}.cpp").items():
            if name not in quickest or time.monotonic() - began < quickest[name][0]:
                quickest[name] = time.monotonic() - began, path.stem, lines
    bodies = collections.defaultdict(list)  # file: kernel and its lines
    for file, text in texts.items():
        kernel = None
        for number, line in enumerate(text.split("\n"), 1):
            if found := ENTRY.search(line):
                kernel = found[1] if found[1] in quickest else None
                if kernel:
                    bodies[file].append((kernel, []))
            elif kernel:
                bodies[file][-1][1].append((number, line.strip()))
                if line.startswith("}"):
                    kernel = None
    draw, files, clean = random.Random(seed), sorted(bodies), {}
    edit = programs.scratch / "edit"
    kinds, listed, tried = collections.defaultdict(collections.Counter), [], 0
    while tried < count:
        file = files[tried % len(files)]
        kernel, body = draw.choice(bodies[file])
        pattern, swap, kind = draw.choice(SWAPS)
        seconds, test, ran = quickest[kernel]
        places = [(n, line) for n, line in body if n in ran and re.search(pattern, line)]
        if not places:
            continue
        number, line = draw.choice(places)
        tried += 1
        edit.write_text(f"{kernel}\n{number}\n{re.sub(pattern, swap, line, count=1)}\n")
        if test not in clean:
            began = time.monotonic()
            expected = programs.digest(test)[1]
            clean[test] = expected, 60 + 20 * (time.monotonic() - began)
        expected, limit = clean[test]
        try:
            result, bytes_seen = programs.digest(test, timeout=limit, HALFSTEP_PTX_EDIT=str(edit))
            how = ("found by a test" if result.returncode == 1 else "found by the machine" if result.returncode else
                   "nothing changed" if bytes_seen == expected else "within tolerance")
        except subprocess.TimeoutExpired:
            how = "found: it hangs"
        kinds[kind][how] += 1
        if how == "within tolerance":
            listed.append(f"{file}:{number} {kind}, {test}: {line}")
    total = sum(kinds.values(), collections.Counter())
    print(f"{tried} faults: " + ", ".join(f"{n} {how}" for how, n in total.most_common()))
    for kind, counts in sorted(kinds.items()):
        print(f"  {kind}: " + ", ".join(f"{n} {how}" for how, n in counts.most_common()))
    print("\n".join(["within tolerance:", *listed] if listed else []))
    # What only a rounding's direction, a border or the order of a sum explains is rare.
    return 1 if 4 * total["within tolerance"] > tried else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--launched", action="store_true")
    parser.add_argument("--planted", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("objects", type=pathlib.Path, nargs="+")
    o = parser.parse_args()
    texts = {path.name.split(".")[0]: ptx_in(path) for path in o.objects}
    assert any(texts.values()), "no PTX in the objects"
    with tempfile.TemporaryDirectory() as scratch:
        programs = Programs(o.folder.resolve(), pathlib.Path(scratch))
        return launched(programs, texts) if o.launched else planted(programs, texts, o.planted, o.seed)


sys.exit(main())
