#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes the CUDA kernels one place at a time and looks whether a test of the emulator turns red.

    scripts/mutate_kernels.py                        all of it, hours of work; in build/mutants
    scripts/mutate_kernels.py --kinds barrier,atomic only these; --files 'reduce|pool' only mutants in files so named
    scripts/mutate_kernels.py --modes plain --seconds 10   the quick part of it
    scripts/mutate_kernels.py --again                continues the last report: mutants that it lacks, and unexplained survivors

A mutant is one change of device code:
    barrier   a __syncthreads, __syncthreads_or or __syncwarp that does not wait
    fence     a __threadfence that does nothing
    atomic    an atomic operation made of a plain read and a plain write, or none at all
    exchange  a shuffle or vote in which each thread gets its own value
    bound     the < of a loop made <=, > made >=, or back
    guard     the same in an if or a conditional expression, or the comparison dropped: the branch is always taken
    stride    a loop's step longer by one, or an integer factor larger by one
All mutants are compiled into one copy of the kernels (tests/emulators/source/mutant.h), three times: for the emulator's plain,
race and asan modes. One run finds which places each test case reaches, and a mutant is then tried with those test cases only. A
test that fails, crashes, hangs or is stopped by the emulator kills it. Barriers, fences and atomics are tried in plain mode and in
race mode, the other mutants in one of the three; each is tried for as long as --seconds says. Those with an explanation are the
last.

Mutants that no test can see are listed in tests/emulators/source/explained_mutants.json, with the reason: equivalent ones, and
those of cases that are out of the emulator's reach.

The report says for each mutant which tests kill it: build/mutants/report.json, and a table of survivors on standard output. Ends
with 1 when a barrier, fence or atomic can be removed unnoticed, or when less than 95 % of the other mutants are killed.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import threading
import time

from kernel_mutants import ROOT, SOURCE, explained, find_mutants, fits

WORK = os.path.join(ROOT, "build", "mutants")
SYNCHRONISING = ("barrier", "fence", "atomic")
WANTED = 0.95
# Runs of the test program: (emulator's mode, order of threads and blocks, device). Those in plain mode are the ones that ctest
# does. On the tiny device a launch has one to four blocks, which do all tasks one after another; the large one is an H200.
DEVICES = {"usual": {}, "tiny": {"HALFSTEP_EMU_PROCESSORS": "1", "HALFSTEP_EMU_THREADS": "1"},
           "large": {"HALFSTEP_EMU_PROCESSORS": "132"}}
PLAIN = [("plain", "reverse", "tiny"), ("plain", "forward", "usual"), ("plain", "random", "large"), ("plain", "reverse", "usual")]
RACE = [("race", "forward", "tiny"), ("race", "forward", "usual")]
ASAN = [("asan", "forward", "tiny"), ("asan", "forward", "usual")]
SLOWER = {"plain": 1, "asan": 8, "race": 8}  # than plain mode, at most


# ---- building and running

class Program:
    """Builds the tests of the kernels, with all mutants, in the emulator's three modes."""

    def __init__(self, work, jobs):
        self.work, self.jobs, self.folder = work, jobs, {}

    def build(self, mode):
        folder = f"{self.work}-{mode}"  # at the depth of other build folders, for the compiler cache
        log = folder + ".log"
        print(f"building {folder}", file=sys.stderr, flush=True)
        with open(log, "w", encoding="utf-8") as f:
            configure = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                         "-DHALFSTEP_CUDA=OFF", f"-DHALFSTEP_CUDA_EMU_MODE={mode}",
                         f"-DHALFSTEP_CUDA_EMU_MUTANTS={os.path.join(self.work, 'source')}"]
            for command in configure, ["ninja", "-C", folder, "-j", str(self.jobs), "test_cuda_emu"]:
                if subprocess.run(command, stdout=f, stderr=subprocess.STDOUT, check=False).returncode:
                    raise SystemExit(f"the kernels with mutants do not build: {log}")
        self.folder[mode] = folder

    def names(self):
        command = [self.path("plain"), "--list-test-cases", "--no-colors=true"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        return [line for line in listed.stdout.splitlines() if line and not line.startswith(("[doctest]", "==="))]

    def path(self, mode):
        return os.path.join(self.folder[mode], "tests", "emulators", "test_cuda_emu")

    def run(self, test, variant, mutant=0, seconds=600, seen=None):
        """Returns a test case's ending (None if it passes, else a word) and its processor time."""
        mode, order, device = variant
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HALFSTEP_EMU_ORDER": order, "HALFSTEP_MUTANT": str(mutant),
                       "ASAN_OPTIONS": "allocator_may_return_null=1", **DEVICES[device]}
        if seen:
            environment["HALFSTEP_MUTANT_SEEN"] = seen

        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 3))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        command = [self.path(mode), f"--first={test + 1}", f"--last={test + 1}", "--abort-after=1", "--no-colors=true"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=limit)
        output = process.stdout.read().decode(errors="replace")
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        taken = usage.ru_utime + usage.ru_stime
        if process.returncode == 0:
            return None, taken
        if taken >= seconds or process.returncode in (-24, -9):
            return "hangs", taken
        if "cuda_emu: RACE" in output:
            return "race", taken
        emulator = re.search(r"cuda_emu: ERROR: (divergent|warp operation|deadlock)?", output)
        if emulator:
            return f"stopped{': ' + emulator.group(1) if emulator.group(1) else ''}", taken
        if "AddressSanitizer" in output or "runtime error" in output:
            return "sanitizer", taken
        return "fails" if process.returncode == 1 else f"crashes ({process.returncode})", taken


class Hunt:
    """Tries mutants with the test cases that reach them."""

    def __init__(self, program, work, modes, seconds):
        self.program, self.work, self.modes, self.most_seconds = program, work, modes, seconds
        self.names = program.names()
        self.seconds, self.reached = {}, {}  # by test; by mutant: tests
        self.integers = set()
        self.kills = {}                      # (file, variant, test) -> when: who killed neighbours is tried first
        self.lock = threading.Lock()

    def look(self, pool):
        """Runs every test case once, unchanged, for the lines it reaches and its time. For an unchanged program the old result
        is used."""
        with open(self.program.path("plain"), "rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
        path = os.path.join(self.work, "seen.json")
        known = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                known = json.load(f)
        if known.get("program") != digest:
            tests = list(pool.map(self.look_at, range(len(self.names))))
            known = {"program": digest, "tests": tests}
            with open(path, "w", encoding="utf-8") as f:
                json.dump(known, f)
        for test, (seconds, numbers) in enumerate(known["tests"]):
            self.seconds[test] = seconds
            for n in numbers:
                self.reached.setdefault(abs(n), set()).add(test)
                if n > 0:
                    self.integers.add(n)

    def look_at(self, test):
        seen = os.path.join(self.work, f"seen.{test}")
        longest, numbers = 0, set()
        for device in DEVICES:
            end, taken = self.program.run(test, ("plain", "forward", device), seen=seen)
            if end:
                raise SystemExit(f"without a mutant, {self.names[test]!r} {end} on the {device} device")
            longest = max(longest, taken)
            with open(seen, encoding="utf-8") as f:
                numbers.update(int(line) for line in f)
            os.remove(seen)
        return longest, sorted(numbers)

    def stages(self, mutant):
        """Returns lists of runs; one run of a list that kills is enough."""
        if mutant["kind"] not in SYNCHRONISING:
            stages = [PLAIN + ASAN + RACE]
        elif mutant["change"] == "made plain":
            stages = [RACE]  # in plain mode nothing comes between the parts
        else:
            stages = [PLAIN, RACE]
        return [[variant for variant in stage if variant[0] in self.modes] for stage in stages]

    def try_one(self, mutant):
        """Sets its status and the test that kills it."""
        tests = self.reached.get(mutant["id"], ())
        mutant["killed_by"] = []
        for stage in self.stages(mutant):
            self.stage(mutant, stage, tests)
        mutant["status"] = "killed" if mutant["killed_by"] else "survives" if tests else "not reached"
        return mutant

    def stage(self, mutant, variants, tests):
        """Sorts tests: those that killed neighbours, then two quick ones in every mode, then the cheapest, for --seconds in all."""
        with self.lock:
            killers = {key[1:]: when for key, when in self.kills.items() if key[0] == mutant["file"]}
        runs = [(self.seconds[test] * SLOWER[variant[0]], variant, test) for variant in variants for test in tests]
        early = sorted(tests, key=self.seconds.get)[:2]
        runs.sort(key=lambda run: (-killers.get(run[1:], 0), run[2] not in early, run[0]))
        left = self.most_seconds
        for expected, variant, test in runs:
            if left < 0:
                return
            end, taken = self.program.run(test, variant, mutant["id"], 4 + 5 * expected)
            left -= taken
            if end:
                with self.lock:
                    if expected < 1:
                        self.kills[mutant["file"], variant, test] = time.monotonic()
                mutant["killed_by"].append({"test": self.names[test], "mode": variant[0], "order": variant[1],
                                            "device": variant[2], "how": end})
                return


# ---- the report

def explain(mutant, entries):
    """Adds the recorded reason why no test kills it, if there is one."""
    entry = next((entry for entry in entries if fits(entry, mutant)), None)
    if entry and mutant["status"] not in ("killed", "not tried"):
        mutant["reason"] = entry["reason"]
        if entry["equivalent"]:
            mutant["status"] = "equivalent"


def key_of(mutant):
    """Returns a key that does not change when lines move; `twin` numbers equal lines."""
    return tuple(mutant[k] for k in ("file", "code", "kind", "change", "column", "twin"))


def summary_of(mutants):
    kinds = {}
    for m in mutants:
        row = kinds.setdefault(m["kind"], {"mutants": 0, "killed": 0, "equivalent": 0, "survive": 0, "not reached": 0,
                                         "not tried": 0})
        row["mutants"] += 1
        row["survive" if m["status"] == "survives" else m["status"]] += 1
    return kinds


def write_report(path, mutants, seconds):
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump({"seconds": round(seconds), "kinds": summary_of(mutants), "mutants": mutants}, f, indent=1)
    os.replace(path + ".part", path)


def print_table(mutants):
    columns = ["mutants", "killed", "equivalent", "survive", "not reached", "not tried"]
    kinds = summary_of(mutants)
    print(f"{'kind':<10}" + "".join(f"{c:>12}" for c in columns))
    for kind, row in sorted(kinds.items()):
        print(f"{kind:<10}" + "".join(f"{row[c]:>12}" for c in columns))
    for status in "equivalent", "not reached", "survives":
        for m in mutants:
            if m["status"] == status:
                print(f"{status}: {m['file']}:{m['line']}:{m['column']}: {m['kind']}, {m['change']}: {m['code']}"
                      f"{'  -- ' + m['reason'] if m.get('reason') else ''}")
    print("\nSynchronisation, and the first test case in each mode that sees it missing:")
    for m in mutants:
        if m["kind"] in SYNCHRONISING:
            print(f"{m['file']}:{m['line']}: {m['kind']}, {m['change']}: {m['code']}")
            for k in m["killed_by"]:
                print(f"    {k['mode']}, {k['order']}, {k['device']}: {k['how']}: {k['test']}")


def verdict(mutants):
    lost = [m for m in mutants if m["kind"] in SYNCHRONISING and m["status"] in ("survives", "not reached")]
    others = [m for m in mutants if m["kind"] not in SYNCHRONISING and m["status"] not in ("equivalent", "not tried")]
    killed = sum(m["status"] == "killed" for m in others)
    total = sum(m["kind"] in SYNCHRONISING and m["status"] != "not tried" for m in mutants)
    print(f"\n{len(lost)} of {total} mutants of barriers, fences and atomics are not noticed; "
          f"{killed} of {len(others)} other mutants are killed")
    return bool(lost) or killed < WANTED * len(others)


def last_results(path):
    """Returns {key: mutant} of the last report, without mutants that were not tried; explanations are looked up again."""
    with open(path, encoding="utf-8") as f:
        results = {key_of(m): m for m in json.load(f)["mutants"] if m["status"] != "not tried"}
    for m in results.values():
        if m["status"] == "equivalent":
            m["status"] = "survives" if m["reached"] else "not reached"
        m.pop("reason", None)
    return results


def write_sources(source, texts):
    for old in pathlib.Path(source, SOURCE).rglob("*.cu*"):
        if str(old.relative_to(source)) not in texts:
            old.unlink()
    for path, text in texts.items():
        full = os.path.join(source, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if not os.path.exists(full) or open(full, encoding="utf-8").read() != text:
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kinds", help="comma-separated, e.g. barrier,fence,atomic")
    parser.add_argument("--files", default="", help="only mutants in files whose name has this regular expression")
    parser.add_argument("--modes", default="plain,asan,race", help="comma-separated: the emulator's modes to try them in")
    parser.add_argument("--seconds", type=float, default=1000, help="of processor time for a mutant: the test cases that take "
                        "longest are left out")
    parser.add_argument("--again", action="store_true", help="only what the last report lacks or calls a survivor unexplained")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--work", default=WORK, help="folder for copies, builds and the report")
    options = parser.parse_args()
    os.nice(10)
    began = saved = time.time()
    options.work = os.path.abspath(options.work)
    mutants, texts = find_mutants(ROOT)
    write_sources(os.path.join(options.work, "source"), texts)

    kinds = set(options.kinds.split(",")) if options.kinds else {m["kind"] for m in mutants}
    modes = options.modes.split(",")
    program = Program(options.work, options.jobs)
    for mode in "plain", *[mode for mode in ("race", "asan") if mode in modes and (mode == "race" or kinds - set(SYNCHRONISING))]:
        program.build(mode)
    hunt = Hunt(program, options.work, modes, options.seconds)
    report, entries = os.path.join(options.work, "report.json"), explained(ROOT)
    before = last_results(report) if options.again and os.path.exists(report) else {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        hunt.look(pool)
        # Products and comparisons of other than integers are no strides and bounds; where nobody goes they may be.
        mutants = [m for m in mutants if m["id"] in hunt.integers or m["id"] not in hunt.reached]
        for m in mutants:
            last = before.get(key_of(m), {"status": "not tried", "killed_by": []})
            m.update(status=last["status"], killed_by=last["killed_by"], reached=m["id"] in hunt.reached)
            explain(m, entries)
        chosen = [m for m in mutants if m["kind"] in kinds and re.search(options.files, m["file"]) and
                  m["status"] in ("not tried", "survives", "not reached") and (not options.again or "reason" not in m) and
                  any(hunt.stages(m))]
        # The most informative ones come first.
        chosen.sort(key=lambda m: (any(fits(entry, m) for entry in entries), m["status"] != "not tried"))
        for i, mutant in enumerate(pool.map(hunt.try_one, chosen)):
            explain(mutant, entries)
            if mutant["status"] != "killed" and "reason" not in mutant:
                print(f"{i + 1}/{len(chosen)} {mutant['status']}: {mutant['file']}:{mutant['line']}:{mutant['column']}: "
                      f"{mutant['kind']}, {mutant['change']}: {mutant['code']}", file=sys.stderr, flush=True)
            if time.time() - saved > 30:
                saved = time.time()
                write_report(report, mutants, saved - began)
    write_report(report, mutants, time.time() - began)
    print_table(mutants if options.again else chosen)
    return int(verdict(mutants))


if __name__ == "__main__":
    sys.exit(main())
