#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes the adapter of cuDNN one place at a time and looks whether a test on the emulator turns red.

    tests/emulators/fake_cudnn/mutate_dnn.py             all of dnn_mutants.json; builds in build/dnn_mutants
    tests/emulators/fake_cudnn/mutate_dnn.py --only gru  only those whose name has this text
    tests/emulators/fake_cudnn/mutate_dnn.py --check     only whether every mutant still has its place in the code

A mutant replaces one piece of text of a file, which the file has once; ON in the new text is true while the mutant is in force.
All mutants are compiled into one copy of the files (mutant.h). Ends with 1 when a mutant lives.
"""
import argparse
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
WORK = os.path.join(ROOT, "build", "dnn_mutants")
SOURCE = os.path.join(ROOT, "build", "dnn_mutants_source")
# Runs of the tests: as a user's program does it, with work that waits, and with nothing fused.
RUNS = [{}, {"HALFSTEP_EMU_ASYNC": "1", "HALFSTEP_EMU_ORDER": "random"}, {"HALFSTEP_FAKE_DNN_REFUSE": "8"}]
SECONDS = 120
GRAPHS = ["--source-file=*/dnn_*test.cpp"]
# All but the longest, which is of whole training steps.
RECURRENT = ["--source-file=*recurrent_test.cpp,*dnn_faults_test.cpp", "--test-case-exclude=recorded steps of recurrent networks*"]


def tests_of(mutant):
    return RECURRENT if "/rnn" in mutant["file"] else GRAPHS


def rewritten(mutants):
    """The files with all mutants, by path; fails where a mutant has no place of its own."""
    texts, faults = {}, []
    for number, m in enumerate(mutants, 1):
        path = m["file"]
        if path not in texts:
            with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                texts[path] = f.read()
        count = texts[path].count(m["from"])
        if count != 1:
            faults.append(f"{m['name']}: {path} has {count} times {m['from']!r}")
        texts[path] = texts[path].replace(m["from"], re.sub(r"\bON\b", f"mutant::on({number})", m["to"]), 1)
    if faults:
        raise SystemExit("\n".join(faults))
    return {path: '#include "mutant.h"\n' + text for path, text in texts.items()}


def build(jobs):
    configure = ["cmake", "-S", ROOT, "-B", WORK, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DHALFSTEP_CUDA=OFF",
                 f"-DHALFSTEP_DNN_MUTANTS={SOURCE}"]
    with open(WORK + ".log", "w", encoding="utf-8") as log:
        for command in configure, ["ninja", "-C", WORK, "-j", str(jobs), "test_cuda_emulated"]:
            if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode:
                raise SystemExit(f"the adapter with mutants does not build: {WORK}.log")


def ending(number, extra, tests):
    """How the tests end with a mutant: None when they pass, else a word."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HALFSTEP_MUTANT": str(number), "HALFSTEP_TUNE_FILE": "", **extra}
    command = [os.path.join(WORK, "tests", "emulators", "test_cuda_emulated"), *tests, "--abort-after=1", "--no-colors=true"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", timeout=SECONDS,
                              check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode == 0:
        return None
    for line in (done.stdout + done.stderr).splitlines():
        if line.startswith("cuda_emu: ERROR"):
            return line
    return "fails" if done.returncode == 1 else f"crashes ({done.returncode})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only look for the places")
    parser.add_argument("--only", default="", metavar="TEXT", help="only mutants whose name has this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    with open(os.path.join(HERE, "dnn_mutants.json"), encoding="utf-8") as f:
        mutants = json.load(f)
    texts = rewritten(mutants)
    if arguments.check:
        return 0
    for path, text in texts.items():
        to = os.path.join(SOURCE, path)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with open(to, "w", encoding="utf-8") as f:
            f.write(text)
    build(arguments.jobs)
    for extra in RUNS:
        for tests in GRAPHS, RECURRENT:
            if end := ending(0, extra, tests):
                raise SystemExit(f"without a mutant, with {extra}, {tests}: {end}")
    alive = tried = 0
    for number, m in enumerate(mutants, 1):
        if arguments.only not in m["name"]:
            continue
        tried += 1
        end = None
        for extra in RUNS:
            end = end or ending(number, extra, tests_of(m))
        alive += end is None
        print(f"{'LIVES ' if end is None else 'killed'}  {m['name']}: {end or m['file']}", flush=True)
    print(f"{tried - alive} of {tried} killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
