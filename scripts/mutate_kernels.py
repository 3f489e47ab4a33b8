#!/usr/bin/env python3
"""Changes the CUDA kernels one place at a time and looks whether a test of the emulator turns red.

    scripts/mutate_kernels.py                        all of it, hours of work; in build/mutants
    scripts/mutate_kernels.py --kinds barrier,atomic only these; --files 'reduce|pool' only mutants in files so named
    scripts/mutate_kernels.py --again                only the mutants that the last report calls survivors

A mutant is one change of device code:
    barrier   a __syncthreads, __syncthreads_or or __syncwarp that does not wait
    fence     a __threadfence that does nothing
    atomic    an atomic operation made of a plain read and a plain write, or none at all
    exchange  a shuffle or vote in which each thread gets its own value
    bound     the < of a loop made <=, > made >=, or back
    guard     the same in an if or a conditional expression, or the comparison dropped: the branch is always taken
    stride    a loop's step longer by one, or an integer factor larger by one
All mutants are compiled into one copy of the kernels (tests/cuda_emu/mutant.h), three times: for the emulator's plain, race and
asan modes. One run finds which places each test case reaches, and a mutant is then tried with those test cases only. A test that
fails, crashes, hangs or is stopped by the emulator kills it. Barriers, fences and atomics are tried in plain mode and in race mode;
the other mutants in plain mode, and those that survive in asan and race mode.

Mutants that no test can see are listed in tests/cuda_emu/explained_mutants.json, with the reason: equivalent ones, and those of
cases that are out of the emulator's reach.

The report says for each mutant which tests kill it: build/mutants/report.json, and a table of survivors on standard output. Ends
with 1 when a barrier, fence or atomic can be removed unnoticed, or when less than 95 % of the other mutants are killed.
"""
import argparse
import concurrent.futures
import json
import os
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
MOST_SECONDS = 240  # of one run of all test cases that reach a mutant: the long ones are left out in the slow modes


# ---- building and running

class Program:
    """The tests of the kernels, with all mutants, in the emulator's three modes."""

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
        return os.path.join(self.folder[mode], "tests", "cuda_emu", "test_cuda_emu")

    def run(self, test, variant, mutant=0, seconds=600, seen=None):
        """How a test case ends: None when it passes, else a word; and the processor time that it took."""
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

    def __init__(self, program, work):
        self.program, self.work = program, work
        self.names = program.names()
        self.seconds, self.reached = {}, {}  # by test; by mutant: tests
        self.integers = set()
        self.kills = {}                      # (file, test) -> how many: who killed neighbours is tried first
        self.lock = threading.Lock()

    def look(self, pool):
        """One run of every test case, unchanged: what it reaches and how long it takes."""
        def one(test):
            seen = os.path.join(self.work, f"seen.{test}")
            for device in DEVICES:
                end, taken = self.program.run(test, ("plain", "forward", device), seen=seen)
                if end:
                    raise SystemExit(f"without a mutant, {self.names[test]!r} {end} on the {device} device")
                with open(seen, encoding="utf-8") as f:
                    numbers = [int(line) for line in f]
                os.remove(seen)
                with self.lock:
                    self.seconds[test] = max(taken, self.seconds.get(test, 0))
                    for n in numbers:
                        self.reached.setdefault(abs(n), set()).add(test)
                        if n > 0:
                            self.integers.add(n)
        list(pool.map(one, range(len(self.names))))

    def try_one(self, mutant):
        """Sets its status and who kills it."""
        tests = self.reached.get(mutant["id"], ())
        mutant["killed_by"] = []
        if not tests:
            mutant["status"] = "not reached"
            return mutant
        if mutant["kind"] not in SYNCHRONISING:
            stages = [PLAIN, ASAN + RACE]
        elif mutant["change"] == "made plain":
            stages = [RACE]  # in plain mode nothing comes between the parts
        else:
            stages = [PLAIN, RACE]
        for stage in stages:
            if mutant["killed_by"] and mutant["kind"] not in SYNCHRONISING:
                break
            self.stage(mutant, stage, tests)
        mutant["status"] = "killed" if mutant["killed_by"] else "survives"
        return mutant

    def stage(self, mutant, variants, tests):
        with self.lock:
            killers = {t: self.kills.get((mutant["file"], t), 0) for t in tests if self.seconds[t] < 1}
            order = sorted(tests, key=lambda t: (-killers.get(t, 0), self.seconds[t]))
        for variant in variants:
            spent = 0
            for test in order:
                expected = self.seconds[test] * SLOWER[variant[0]]
                if variant[0] != "plain" and spent + expected > MOST_SECONDS:
                    continue
                spent += expected
                limit = 4 + 5 * expected
                end, _ = self.program.run(test, variant, mutant["id"], limit)
                if end:
                    with self.lock:
                        key = mutant["file"], test
                        self.kills[key] = self.kills.get(key, 0) + 1
                    mutant["killed_by"].append({"test": self.names[test], "mode": variant[0], "order": variant[1],
                                                "device": variant[2], "how": end})
                    return


# ---- the report

def explain(mutant):
    """Adds why no test kills it, where somebody has said so."""
    entry = next((entry for entry in explained(ROOT) if fits(entry, mutant)), None)
    if entry and mutant["status"] != "killed":
        mutant["reason"] = entry["reason"]
        if entry["equivalent"]:
            mutant["status"] = "equivalent"


def key_of(mutant):
    """What stays the same when lines move; `twin` numbers equal lines."""
    return tuple(mutant[k] for k in ("file", "code", "kind", "change", "column", "twin"))


def summary_of(mutants):
    kinds = {}
    for m in mutants:
        row = kinds.setdefault(m["kind"], {"mutants": 0, "killed": 0, "equivalent": 0, "survive": 0, "not reached": 0})
        row["mutants"] += 1
        row["survive" if m["status"] == "survives" else m["status"]] += 1
    return kinds


def write_report(path, mutants, seconds):
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump({"seconds": round(seconds), "kinds": summary_of(mutants), "mutants": mutants}, f, indent=1)
    os.replace(path + ".part", path)


def print_table(mutants):
    columns = ["mutants", "killed", "equivalent", "survive", "not reached"]
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
    others = [m for m in mutants if m["kind"] not in SYNCHRONISING and m["status"] != "equivalent"]
    killed = sum(m["status"] == "killed" for m in others)
    total = sum(m["kind"] in SYNCHRONISING for m in mutants)
    print(f"\n{len(lost)} of {total} mutants of barriers, fences and atomics are not noticed; "
          f"{killed} of {len(others)} other mutants are killed")
    return bool(lost) or killed < WANTED * len(others)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kinds", help="comma-separated, e.g. barrier,fence,atomic")
    parser.add_argument("--files", default="", help="only mutants in files whose name has this regular expression")
    parser.add_argument("--again", action="store_true", help="only what the last report does not call killed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--work", default=WORK, help="folder for copies, builds and the report")
    options = parser.parse_args()
    os.nice(10)
    began = time.time()
    source = os.path.join(options.work, "source")
    os.makedirs(os.path.join(source, SOURCE), exist_ok=True)
    mutants, texts = find_mutants(ROOT)
    for name in set(os.listdir(os.path.join(source, SOURCE))) - {os.path.basename(p) for p in texts}:
        os.remove(os.path.join(source, SOURCE, name))
    for path, text in texts.items():
        full = os.path.join(source, path)
        if not os.path.exists(full) or open(full, encoding="utf-8").read() != text:
            with open(full, "w", encoding="utf-8") as f:
                f.write(text)

    kinds = set(options.kinds.split(",")) if options.kinds else {m["kind"] for m in mutants}
    chosen = [m for m in mutants if m["kind"] in kinds and re.search(options.files, m["file"])]
    report, done = os.path.join(options.work, "report.json"), []
    if options.again:
        with open(report, encoding="utf-8") as f:
            before = {key_of(m): m for m in json.load(f)["mutants"] if m["status"] == "killed"}
        done = [{**m, **{k: before[key_of(m)][k] for k in ("status", "killed_by")}} for m in chosen if key_of(m) in before]
        chosen = [m for m in chosen if key_of(m) not in before]

    program = Program(options.work, options.jobs)
    for mode in "plain", "race", *["asan"] * bool(kinds - set(SYNCHRONISING)):
        program.build(mode)
    hunt = Hunt(program, options.work)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        hunt.look(pool)
        # Products and comparisons of other than integers are no strides and bounds; where nobody goes they may be.
        chosen = [m for m in chosen if m["id"] in hunt.integers or m["id"] not in hunt.reached]
        saved = time.time()
        for i, mutant in enumerate(pool.map(hunt.try_one, chosen)):
            explain(mutant)
            done.append(mutant)
            if mutant["status"] != "killed" and "reason" not in mutant:
                print(f"{i + 1}/{len(chosen)} {mutant['status']}: {mutant['file']}:{mutant['line']}:{mutant['column']}: "
                      f"{mutant['kind']}, {mutant['change']}: {mutant['code']}", file=sys.stderr, flush=True)
            if time.time() - saved > 30:
                saved = time.time()
                write_report(report, done, saved - began)
    done.sort(key=lambda m: m["id"])
    write_report(report, done, time.time() - began)
    print_table(done)
    return int(verdict(done))


if __name__ == "__main__":
    sys.exit(main())
