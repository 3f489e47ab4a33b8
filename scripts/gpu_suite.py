#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the CUDA backend on a machine with a GPU, tests it, measures it and looks for its memory errors, within one deadline.

    scripts/gpu_suite.sh [--part PART]... [--deadline SECONDS] [--programs FOLDER] [--again] [--dry-run] [-- CMAKE_ARGUMENT...]
    scripts/gpu_suite.sh --pack FILE.tar.zst        the programs of another machine's --programs, for a Hopper GPU: built, stripped

Parts, in this order: smoke, test, bench, sanitize; these without --part. Others run only if they are named: questions, what seven
minutes on a GPU answer with programs that were built before; scaling, the CPU's threads; build, which only builds. docs/testing.md
says what each does. --dry-run prints each step with the seconds that it should take on an H100 beside 16 cores, and their sums.
$OUT (build/gpu_suite) gets suite.json, whole and readable from the first second on, and the output of all that was run.
Exit status: 0 all passed; 1 a part failed; 2 none failed, but something could not be run or was cut off, and suite.json says what.
"""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import gpu_suite_parts as parts  # which puts benchmarks on the path
import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ["smoke", "test", "bench", "sanitize"]
NAMED = ["questions", "scaling"]  # parts that run only if they are asked for
MOST_CARRIED = 45 << 20  # bytes of a pack
RESERVE = 6  # seconds before the deadline in which nothing runs any more: children end, results are written
WORST = ["failed", "cut off", "stopped", "incomplete", "not run", "running", "waiting", "dry run", "passed"]


def sources(cmake_arguments):
    """Returns one hash of everything that is built or run."""
    digest = hashlib.sha256(" ".join(cmake_arguments).encode())
    found = [ROOT / "CMakeLists.txt", ROOT / "halfstep.h"]
    for folder in ("framework", "layers", "optim", "amp", "apps", "cuda", "tests", "benchmarks", "scripts", "configs"):
        found += (p for p in (ROOT / folder).rglob("*") if p.is_file())
    for path in sorted(found):
        if path.is_file() and path.suffix != ".pyc" and "benchmarks/results" not in path.as_posix():
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Suite:
    """The results, the children and the clock. Safe to use from the thread that builds and from the main one."""

    def __init__(self, a, cmake_arguments):
        self.a, self.cmake_arguments = a, cmake_arguments
        self.began = time.monotonic()
        self.out = pathlib.Path(os.environ.get("OUT") or ROOT / "build/gpu_suite").resolve()
        self.lock = threading.RLock()
        self.stopping, self.ready = "", {}
        self.tools = parts.find_tools()
        self.env = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
        if self.tools["nvcc"]:  # CMake looks on PATH
            self.env["PATH"] += os.pathsep + str(pathlib.Path(self.tools["nvcc"]).parent)
        self.parts = [p for p in PARTS if p in a.part or not (a.part or a.pack)] + [p for p in NAMED if p in a.part]
        self.expected = collections.Counter()  # seconds of each part, in a dry run
        self.data = {"format": 1, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "state": "running",
                     "deadline_s": a.deadline, "seconds": 0, "parts": {p: {"state": "waiting"} for p in self.parts},
                     "commit": os.environ.get("HALFSTEP_COMMIT", ""), "source": "", "tools": self.tools,
                     "machine": {"cores": os.cpu_count(), "system": platform.platform()}, "build": [], "steps": []}

    def say(self, text):
        with self.lock:
            print(f"{time.monotonic() - self.began:6.1f}  {text}", flush=True)

    def left(self):
        return self.began + self.a.deadline - min(RESERVE, self.a.deadline / 10) - time.monotonic()

    def note(self, entry, **fields):
        with self.lock:
            entry |= fields
            self.save()

    def save(self):
        """Replaces the result file, so that it is whole whenever the machine vanishes."""
        if self.a.dry_run:
            return
        with self.lock:
            self.data["seconds"] = round(time.monotonic() - self.began, 1)
            for part in self.parts:
                states = {s["state"] for s in self.data["steps"] if s["part"] == part}
                if states:
                    self.data["parts"][part] = {"state": min(states, key=WORST.index)}
            records.save(self.out / "suite.json", self.data)

    def end_child(self, process):
        for number, wait in ((signal.SIGTERM, 2), (signal.SIGKILL, 2)):
            try:
                os.killpg(process.pid, number)
                process.wait(wait)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass

    def run(self, step, entry):
        """Runs a step to its end, its limit, or that of the suite, and records its outcome."""
        command = [str(w) for w in step.command]
        shown = shlex.join([f"{k}={v}" for k, v in step.env.items()] + command)
        if self.a.dry_run:
            self.expected[step.part] += step.expect
            self.say(f"{step.part}: {step.expect:4.0f} s: {shown}")
            return self.note(entry, state="dry run")
        limit = min(step.limit, self.left() * step.share)
        if limit < min(step.least, self.a.deadline / 20) or self.stopping:
            self.say(f"{step.part}: {step.name}: not run: {self.stopping or 'the time was up'}")
            return self.note(entry, state="not run", why=self.stopping or "the time was up")
        self.note(entry, state="running", command=shown, at_s=round(time.monotonic() - self.began, 1))
        begin = time.monotonic()
        with open(self.out / ("build.log" if step.part == "build" else "suite.log"), "a+b") as log:
            log.write(f"\n== {entry['name']}: {shown}\n".encode())
            log.flush()
            start = log.tell()
            code, cut = self.wait(step, command, limit, log, entry)
            log.seek(start)
            output = log.read().decode(errors="replace")
        found = {"seconds": round(time.monotonic() - begin, 1)}
        try:
            found |= self.read(step, output, code)
        except Exception as e:  # unexpected output of a tool must not end the suite
            found["unread"] = f"{type(e).__name__}: {e}"
        if cut:
            found |= {"state": "cut off" if self.stopping or limit < step.limit else "failed", "why": cut}
        elif "state" not in found:
            found |= {"state": "passed"} if code == 0 else {"state": "failed", "why": f"exit status {code}"}
        if found["state"] == "failed":
            found["tail"] = output.splitlines()[-25:]
        self.note(entry, **found)
        why = f": {entry['why']}" if entry.get("why") else ""
        self.say("\n".join([f"{step.part}: {step.name}: {entry['state']} ({entry['seconds']} s){why}"] +
                           [f"        | {line}" for line in entry.get("tail", [])]))
        if step.show and "result" in entry:
            step.show(entry["result"])

    def wait(self, step, command, limit, log, entry):
        """Returns the exit status, and why the command was ended early, if it was."""
        end = time.monotonic() + limit
        group = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT,
                                       env=self.env | step.env, **group)
        except OSError as e:
            log.write(f"{e}\n".encode())
            return 127, ""
        try:
            seen = 0
            while not self.stopping and time.monotonic() < end:
                try:
                    return process.wait(0.2), self.stopping
                except subprocess.TimeoutExpired:
                    if step.file and step.file.exists() and step.file.stat().st_mtime != seen:
                        seen = step.file.stat().st_mtime
                        self.note(entry, result=json.loads(step.file.read_text()))  # it is written whole, or not at all
            return process.poll(), self.stopping or f"not ended after {limit:.0f} s"
        finally:
            self.end_child(process)

    def read(self, step, output, code):
        """Reads the output: a result, and a state with its reason where the exit status is not enough."""
        found = step.read(output, code) if step.read else {}
        if step.file and step.file.exists():
            found["result"] = json.loads(step.file.read_text())
            step.file.unlink()
        return found


def build(suite, wanted):
    """Runs the stages of the build, in a thread of its own; suite.ready says how each ended."""
    if suite.a.programs:
        suite.ready |= dict.fromkeys(wanted, "")
        return
    for stage, step in parts.build_stages(suite, wanted):
        entry = {"name": step.name, "state": "waiting"}
        with suite.lock:
            suite.data["build"].append(entry)
        suite.run(step, entry)
        good = suite.a.dry_run or entry["state"] == "passed"
        if stage:
            suite.ready[stage] = "" if good else f"{step.name}: {entry['state']}"
        if not good:
            for other in wanted:
                suite.ready.setdefault(other, f"{step.name}: {entry['state']}")
            return


def run_steps(suite, pending, builder):
    """Runs each step, in order, as soon as its programs are built; timed steps only when no compiler runs."""
    waiting = collections.deque(pending)
    while waiting:
        step = next((s for s in waiting if s.needs in ("", *suite.ready) and not (s.quiet and builder.is_alive())), None)
        if step is None:
            builder.join(0.05)
            continue
        waiting.remove(step)
        if suite.ready.get(step.needs):
            suite.note(step.entry, state="not run", why=f"the build ended early: {suite.ready[step.needs]}")
        elif step.expand:
            with suite.lock:
                suite.data["steps"].remove(step.entry)
            more = step.expand(suite)
            enter(suite, more)
            waiting.extendleft(reversed(more))
        else:
            suite.run(step, step.entry)


def enter(suite, steps):
    """Writes the planned steps into the results before they run."""
    with suite.lock:
        for step in steps:
            step.entry = {"part": step.part, "name": step.name, "state": "waiting"}
            suite.data["steps"].append(step.entry)
    suite.save()


def pack(suite):
    """Writes an archive of the programs, in their places in a build folder, with the libraries that not every system has."""
    with tempfile.TemporaryDirectory() as folder:
        files = [(p, p.relative_to(parts.BUILD)) for p in parts.packed_programs()]
        linked = parts.output_of("ldd", str(parts.PROGRAM))
        carried = r"=> (/\S*lib(?:dnnl|spdlog|fmt|re2|absl_\w+|lapack|blas|gfortran|quadmath|png16|jpeg)\.so\S*)"
        files += [(pathlib.Path(m), pathlib.Path("lib", pathlib.Path(m).name)) for m in re.findall(carried, linked)]
        for source, name in files:
            target = pathlib.Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if subprocess.run(["strip", "-o", target, source], capture_output=True).returncode:
                shutil.copy(source, target)
        with open(suite.a.pack, "wb") as archive:
            tar = subprocess.Popen(["tar", "-C", folder, "-cf", "-", "."], stdout=subprocess.PIPE)
            packed = subprocess.run(["zstd", "-q", "-19", "--long=30", "-T0", "-c"], stdin=tar.stdout, stdout=archive).returncode
            failed = tar.wait() or packed
    size = suite.a.pack.stat().st_size
    print(f"{suite.a.pack}: {size / (1 << 20):.1f} MB, {len(files)} files; there: zstd -d --long=30 | tar -x into FOLDER, "
          "LD_LIBRARY_PATH=FOLDER/lib, and --programs FOLDER")
    if size > MOST_CARRIED:
        print(f"more than the {MOST_CARRIED >> 20} MB that are meant to be carried")
    return 1 if failed or size > MOST_CARRIED else 0


def finish(suite):
    for entry in suite.data["steps"] + suite.data["build"]:
        if entry["state"] in ("waiting", "running"):
            suite.note(entry, state="not run", why=suite.stopping or "the time was up")
    for part in suite.parts:
        if suite.data["parts"][part]["state"] == "waiting":
            suite.data["parts"][part] = {"state": "not run", "why": suite.stopping}
    if not suite.a.dry_run:
        states = {p["state"] for p in suite.data["parts"].values()} | {e["state"] for e in suite.data["build"]}
        suite.note(suite.data, exit=1 if "failed" in states else 0 if states <= {"passed"} else 2,
                   state="stopped" if suite.stopping else "done")
        for part, entry in suite.data["parts"].items():
            first = next((s for s in suite.data["steps"] if (s["part"], s["state"]) == (part, entry["state"]) and "why" in s),
                         entry)
            name = f"{first['name']}: " if "name" in first else ""
            print(f"{part:<10}{entry['state']}" + (f": {name}{first['why']}" if first.get("why") else ""))
        print(f"{suite.data['seconds']} s, results in {suite.out / 'suite.json'}")
    return suite.data.get("exit", 0)


def at_least(least, kind):
    """Returns the reader of an option's number."""
    def read(text):
        value = kind(text)
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"takes {least} or more, got {text}")
        return value
    read.__name__ = "number"  # in argparse's message
    return read


def check(p, a):
    """Ends the program where an option cannot be followed, before anything is built."""
    if a.pack:
        if a.programs or a.part:
            p.error("--pack builds its own programs and runs no part: leave out --programs and --part")
        if not shutil.which("zstd"):
            p.error("--pack needs zstd (apt-get install zstd)")
        if not a.dry_run:
            try:
                a.pack.touch()
            except OSError as e:
                p.error(f"--pack: cannot write {a.pack}: {e.strerror}")
    if a.programs:
        use = {program: part for part in a.part or PARTS for program in (parts.programs_of(part) if part != "build" else [])}
        missing = [f"{program}, which part {part} runs" for program, part in use.items() if not program.exists()]
        if missing:
            p.error(f"--programs: there is no {missing[0]}")


def parse(arguments):
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own, cmake = arguments[:end], arguments[end + 1:]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                prog="scripts/gpu_suite.sh")
    p.add_argument("--pack", metavar="FILE", type=pathlib.Path, help="build the programs of part questions for a Hopper GPU and "
                   "pack them (zstd)")
    p.add_argument("--part", action="append", choices=["build"] + PARTS + NAMED, default=[], help="may be repeated")
    p.add_argument("--deadline", type=at_least(0.1, float), default=1800,
                   help="seconds for everything, the build included [%(default)s]")
    jobs = os.environ.get("HALFSTEP_JOBS") or str(os.cpu_count())
    p.add_argument("--jobs", type=at_least(1, int), default=jobs, help="of the build [%(default)s; HALFSTEP_JOBS]")
    p.add_argument("--cpu-tests", action="store_true", help="in part test also the ctest tests of label cpu: a longer build")
    p.add_argument("--programs", metavar="FOLDER", type=pathlib.Path,
                   help="build nothing: a copy of a build folder of another machine, with the programs in their places")
    p.add_argument("--again", action="store_true", help="also the parts that passed with these very sources")
    p.add_argument("--dry-run", action="store_true", help="print what would be run")
    a = p.parse_args(own)
    if a.programs:
        parts.use_build(a.programs.resolve())
    check(p, a)
    return a, ["-DCMAKE_CUDA_ARCHITECTURES=90-real"] * bool(a.pack) + cmake


def main():
    a, cmake = parse(sys.argv[1:])
    suite = Suite(a, cmake)
    if not a.dry_run:
        try:
            suite.out.mkdir(parents=True, exist_ok=True)
            for log in ("build.log", "suite.log"):
                (suite.out / log).write_bytes(b"")
        except OSError as e:
            print(f"gpu_suite.sh: cannot write {e.filename}: {e.strerror}; OUT=FOLDER names another place", file=sys.stderr)
            return 2
    def stop(number, _):  # code that waits for a child checks this several times a second
        suite.stopping = f"{signal.Signals(number).name} came"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    suite.save()  # before anything that takes time
    return work(suite)


def work(suite):
    a = suite.a
    stamp = parts.BUILD / "suite_passed.json"
    now = suite.data["source"] = sources(suite.cmake_arguments)
    passed = json.loads(stamp.read_text()) if stamp.exists() and not a.again and not a.dry_run else {}
    suite.data["commit"] = suite.data["commit"] or parts.output_of("git", "describe", "--always", "--dirty") or "unknown"
    if set(suite.parts) - {"scaling"} and not a.dry_run and not parts.gpu_is_there(suite.tools):
        suite.stopping = "no GPU: nvidia-smi -L finds none, and there is no /dev/nvidia0 (--part build builds without)"
        return finish(suite)
    pending = []
    for part in suite.parts:
        if passed.get(part) == now:
            suite.data["parts"][part] = {"state": "passed", "why": "before, with these sources"}
        else:
            pending += parts.STEPS[part](suite)
    enter(suite, pending)
    wanted = {s.needs for s in pending if s.needs} | ({"program", "tests"} if "build" in a.part or a.pack else set())
    builder = threading.Thread(target=build, args=(suite, wanted), daemon=True)
    builder.start()
    if a.dry_run:
        builder.join()
    run_steps(suite, pending, builder)
    while builder.is_alive():
        builder.join(0.2)
    code = finish(suite)
    if a.dry_run:
        for part, seconds in suite.expected.items():
            print(f"{part:<10}{seconds:5.0f} s")
        among = "; a build with no objects from before is among them" if suite.expected["build"] else ""
        print(f"{'together':<10}{sum(suite.expected.values()):5.0f} s{among}")
    elif a.pack and code == 0:
        code = pack(suite)
    fresh = {p: now for p in suite.parts if suite.data["parts"][p]["state"] == "passed"}
    if fresh and not a.dry_run:
        kept = {p: s for p, s in (json.loads(stamp.read_text()) if stamp.exists() else {}).items() if s == now}
        stamp.with_suffix(".new").write_text(json.dumps(kept | fresh))
        os.replace(stamp.with_suffix(".new"), stamp)
    return code


if __name__ == "__main__":
    sys.exit(main())
