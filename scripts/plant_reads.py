#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants ten reads outside of arrays, and looks whether the tests under the address sanitizer find each of them.

    scripts/plant_reads.py              all ten, in a copy of the tree in build/planted/source, which scripts/build.sh asan builds
    scripts/plant_reads.py --only 3,5   some of them
    scripts/plant_reads.py --into DIR   the copy goes to this folder, which is empty or has an earlier copy
    scripts/plant_reads.py --check      only whether every plant still has its place in the code

One build holds all plants. Each is in force while HALFSTEP_PLANTED is its number; without that variable the copy computes what
the tree does. The tests that should reach a plant come first, and then the rest of what scripts/test.sh asan runs. A plant is found
when a test fails and its output has a report of a sanitizer or a failed assertion of the standard library. Ends with 1 when one is
not found. HALFSTEP_JOBS=N: compilers and tests at once.
"""
import argparse
import os
import re
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = os.path.join(ROOT, "build", "planted", "source")
COPIED = "copied_by_plant_reads"  # lists the files of a copy, so that those that have left the tree leave it too
LEFT_OUT = "slow|data"            # labels, as in scripts/test.sh
REPORT = re.compile(r"^.*(?:ERROR: AddressSanitizer:|: runtime error: |Assertion '.*' failed).*$", re.MULTILINE)
# One test in ctest's log: its name, its output and how it ended.
LOGGED = re.compile(r"^\d+/\d+ Test: (\S+)\n.*?^Output:\n-+\n(.*?)<end of output>\nTest time = [^\n]*\n-+\n([^\n]*)$",
                    re.MULTILINE | re.DOTALL)
# Comes before the first line of a changed file. A build joins files, so it may be there several times.
SWITCH = """#ifndef HS_PLANTED
#include <cstdlib>
// Returns the number of the plant that is in force, or 0.
inline int hs_planted() {
  static const int number = std::getenv("HALFSTEP_PLANTED") ? std::atoi(std::getenv("HALFSTEP_PLANTED")) : 0;
  return number;
}
#define HS_PLANTED(n) (hs_planted() == (n) ? 1 : 0)
#endif
#line 1
"""


class Plant(NamedTuple):
    number: int
    file: str
    what: str     # what is read too far
    old: str      # a text that the file has once
    new: str
    tests: list   # the programs that should reach it


# Kernels read tensors, whose allocator lets nobody touch what lies behind the bytes asked for (host_allocator.cpp); the arrays of
# tests/backend/buffers.h have 64 bytes more than their views. A vector's capacity must be its size, or one of its places is checked
# by the standard library.
PLANTS = (
    Plant(1, "framework/backend/cpu/gemm/dot.cpp", "the product of a row and a column has one term more",
          "for (; i < n; ++i) sum[i % width] += a[i] * b[i];",
          "for (; i < n + HS_PLANTED(1); ++i) sum[i % width] += a[i] * b[i];",
          ["ops"]),
    Plant(2, "framework/backend/cpu/reduce/softmax.cpp", "softmax looks for the maximum of a row one element beyond its end",
          "C(reduce_row<C>(Reduce::max, x, n));",
          "C(reduce_row<C>(Reduce::max, x, n + HS_PLANTED(2)));",
          ["ops"]),
    Plant(3, "framework/backend/cpu/convert/copy.cpp", "a copy into another layout begins at each row's second element",
          "out[k * out_stride] = in[k * in_stride];",
          "out[k * out_stride] = in[(k + HS_PLANTED(3)) * in_stride];",
          ["ops"]),
    Plant(4, "framework/backend/cpu/pool/avg_pool.cpp", "average pooling adds up windows one column to the right",
          "    const C* const from = columns + x.first(lo) + k;\n",
          "    const C* const from = columns + x.first(lo) + k + HS_PLANTED(4);\n",
          ["ops"]),
    Plant(5, "framework/backend/cpu/index/gather.cpp", "an embedding takes the row behind the one that was chosen",
          "std::memcpy(target, source + *chosen * step, size_t(n) * sizeof(T));",
          "std::memcpy(target, source + (*chosen + HS_PLANTED(5)) * step, size_t(n) * sizeof(T));",
          ["ops"]),
    Plant(6, "framework/data/tables/csv.cpp", "a table's inputs come from the row behind",
          "const double value = features[j].values[size_t(rows[i])];",
          "const double value = features[j].values[size_t(rows[i] + HS_PLANTED(6))];",
          ["data"]),
    Plant(7, "framework/data/formats/image_file.cpp", "a picture that becomes gray takes its blue from the byte behind it",
          "rgb[2] * kBlue",
          "rgb[2 + HS_PLANTED(7)] * kBlue",
          ["data"]),
    Plant(8, "framework/io/weights/safetensors.cpp",
          "safetensors convert truth values and unsigned integers from the element behind",
          "raw.data() + size_t(i) * sizeof(From)",
          "raw.data() + size_t(i + HS_PLANTED(8)) * sizeof(From)",
          ["io"]),
    Plant(9, "framework/data/tokens/bpe_merges.cpp",
          "a tokenizer looks for a pair at a word's last byte, which has no right neighbour",
          "for (int32_t i = 0; i + 1 < count; ++i) add_candidate(scratch, i);",
          "for (int32_t i = 0; i + 1 < count + HS_PLANTED(9); ++i) add_candidate(scratch, i);",
          ["data"]),
    Plant(10, "apps/use/generator.cpp", "a token's probability is made of the score of the token behind it",
          "std::exp((double(scores[i]) - double(scores[best])) / options.temperature);",
          "std::exp((double(scores.data()[i + size_t(HS_PLANTED(10))]) - double(scores[best])) / options.temperature);",
          ["apps"]),
)


# ---- the copy

def planted():
    """Returns {path: text} of the files with all plants; fails where a text is not there exactly once."""
    texts, faults = {}, []
    for plant in PLANTS:
        if plant.file not in texts:
            try:
                with open(os.path.join(ROOT, plant.file), encoding="utf-8") as f:
                    texts[plant.file] = SWITCH + f.read()
            except FileNotFoundError:
                texts[plant.file] = ""
        count = texts[plant.file].count(plant.old)
        if count != 1:
            faults.append(f"plant {plant.number}: {plant.file} must have once, and has {count} times: {plant.old.strip()}")
        texts[plant.file] = texts[plant.file].replace(plant.old, plant.new, 1)
    if faults:
        raise SystemExit("\n".join("plant_reads: " + fault for fault in faults))
    return texts


def copy_tree(into, texts):
    """Copies the files that git has or would take, with the plants. Files that stay equal keep their times, for the next build."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True,
                            capture_output=True).stdout.decode().split("\0")
    names = sorted({name for name in listed if name and os.path.isfile(os.path.join(ROOT, name))})
    record = os.path.join(into, COPIED)
    if os.path.exists(record):
        with open(record, encoding="utf-8") as f:
            for name in set(f.read().splitlines()) - set(names):
                if os.path.exists(os.path.join(into, name)):
                    os.remove(os.path.join(into, name))
    with open(record, "w", encoding="utf-8") as f:
        f.write("\n".join(names))
    for name in names:
        source, target = os.path.join(ROOT, name), os.path.join(into, name)
        with open(source, "rb") as f:
            data = texts[name].encode() if name in texts else f.read()
        if os.path.exists(target):
            with open(target, "rb") as f:
                if f.read() == data:
                    continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as f:
            f.write(data)
        os.chmod(target, os.stat(source).st_mode)


# ---- the tests

class Suite:
    """The tests of the copy that scripts/test.sh asan runs."""

    def __init__(self, source, jobs):
        self.build, self.jobs = os.path.join(source, "build", "asan"), jobs
        self.log = os.path.join(self.build, "Testing", "Temporary", "LastTest.log")
        listed = self.ctest({}, "-N", "-LE", LEFT_OUT).stdout.decode()
        self.names = re.findall(r"^ *Test +#\d+: (\S+)", listed, re.MULTILINE)

    def ctest(self, variables, *arguments):
        environment = {"OMP_NUM_THREADS": "2", **os.environ, **variables}
        return subprocess.run(["ctest", "--test-dir", self.build, *arguments], env=environment, capture_output=True, check=False)

    def run(self, names, number=0):
        """Runs these tests until one fails. Returns {name: (whether it failed, its output)} of those that ended."""
        pattern = "^(" + "|".join(name.replace(".", r"\.") for name in names) + ")$"
        self.ctest({"HALFSTEP_PLANTED": str(number)}, "-R", pattern, "--stop-on-failure", "-j", str(self.jobs))
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return {name: (not end.startswith("Test Pass"), output) for name, output, end in LOGGED.findall(f.read())}

    def hunt(self, plant):
        """Returns the test that finds the plant, and the first line of its report; None where no test does. A test that fails
        without a report has seen a wrong value: the others are tried all the same."""
        for part in plant.tests, [name for name in self.names if name not in plant.tests]:
            left = part
            while left:
                ended = self.run(left, plant.number)
                for name, (failed, output) in ended.items():
                    report = REPORT.search(output) if failed else None
                    if report:
                        return name, report.group().strip()
                left = [name for name in left if name not in ended] if ended else []
        return None

    def check_expected(self, plants):
        """Ends the program unless the tests that should find the plants are there, and pass without a plant."""
        wanted = sorted({name for plant in plants for name in plant.tests})
        if missing := set(wanted) - set(self.names):
            raise SystemExit(f"plant_reads: the suite has no test {', '.join(sorted(missing))}")
        ended = self.run(wanted)
        for name in wanted:
            if ended.get(name, (True, ""))[0]:
                raise SystemExit(f"plant_reads: without a plant, {name} does not pass: {self.log}")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        """Prints one line about what is wrong with the options, and exits."""
        self.exit(2, f"plant_reads: {message}\n")


def options():
    parser = Parser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", help="comma-separated numbers of plants, e.g. 3,5")
    parser.add_argument("--into", help="folder for the copy of the tree")
    parser.add_argument("--check", action="store_true", help="only look whether every plant has its place")
    given = parser.parse_args()
    known = [str(plant.number) for plant in PLANTS]
    numbers = known if given.only is None else given.only.split(",")
    for number in numbers:
        if number not in known:
            parser.error(f"--only: plants have the numbers 1 to {len(PLANTS)}, got {number!r}")
    given.plants = [plant for plant in PLANTS if str(plant.number) in numbers]
    if given.into is not None and not os.path.isdir(given.into):
        parser.error(f"--into: there is no folder {given.into}")
    given.into = os.path.abspath(given.into or WORK)
    if os.path.isdir(given.into) and os.listdir(given.into) and not os.path.exists(os.path.join(given.into, COPIED)):
        parser.error(f"--into: {given.into} must be empty or have an earlier copy")
    return given


def main():
    given, texts = options(), planted()
    os.environ.pop("HALFSTEP_PLANTED", None)
    if given.check:
        print(f"plant_reads: all {len(PLANTS)} plants have their places")
        return 0
    os.makedirs(given.into, exist_ok=True)
    copy_tree(given.into, texts)
    if subprocess.run(["scripts/build.sh", "asan"], cwd=given.into, check=False).returncode:
        raise SystemExit(f"plant_reads: the tree with plants does not build: {given.into}")
    suite = Suite(given.into, int(os.environ.get("HALFSTEP_JOBS") or os.cpu_count()))
    print("plant_reads: the expected tests, without a plant", file=sys.stderr, flush=True)
    suite.check_expected(given.plants)
    missed, lines = 0, ["no.  file: what is read too far | found by | the first line of the report | seconds"]
    for plant in given.plants:
        print(f"plant_reads: plant {plant.number}", file=sys.stderr, flush=True)
        began = time.monotonic()
        found = suite.hunt(plant)
        missed += not found
        who, report = found or ("NOT FOUND", "-")
        report = re.sub(r"^=+\d+=+ ?| on (?:unknown )?address 0x.*", "", report)  # without what differs from run to run
        lines.append(f"{plant.number:<4} {plant.file}: {plant.what} | {who} | {report} | {time.monotonic() - began:.0f}")
    print("\n".join(lines))
    print(f"{len(given.plants) - missed} of {len(given.plants)} reads outside of arrays are found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
