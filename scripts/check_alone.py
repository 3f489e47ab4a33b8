#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each .cpp compiles by itself: in a build that joins the files of a folder, one may use what only another includes.

    scripts/check_alone.py [PATTERN]    files whose path contains a match of this regular expression; without one, all
    scripts/check_alone.py --last 40    of those, the files that the last 40 commits changed, and the .cpp of each changed header
    CXX=clang++ CXXFLAGS=-stdlib=libc++ scripts/check_alone.py    another compiler

Compilers write no objects, so this takes a third of a build's time. Prints what they say; exits 1 when they say anything.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def check(entry):
    """What the compiler says of one file, or of its failure."""
    words = shlex.split(entry["command"])
    at = words.index("-o")
    del words[at:at + 2]
    words[words.index("-c")] = "-fsyntax-only"
    done = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True, check=False)
    return done.stderr or (f"{words[0]} ended with {done.returncode}\n" if done.returncode else "")


def commands_of(folder, preset, environment, options=()):
    """Configures a build of the host's code, and returns its compile commands; [] when that fails: what CMake said is printed."""
    configured = subprocess.run(["cmake", "--preset", preset, "-B", folder, "-DCMAKE_CXX_COMPILER_LAUNCHER=", "-DHALFSTEP_CUDA=OFF",
                                 *options], env=environment, capture_output=True, text=True, check=False)
    if configured.returncode:
        print(configured.stdout + configured.stderr, file=sys.stderr)
        return []
    with open(f"{folder}/compile_commands.json", encoding="utf-8") as file:
        return json.load(file)


def check_all(entries):
    """Compiles them on all cores, without objects; prints what compilers say, and returns how many files they said it of."""
    bad = 0
    jobs = int(os.environ.get("HALFSTEP_JOBS") or os.cpu_count())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for path, said in zip(entries, pool.map(check, entries.values())):
            if said:
                bad += 1
                print(f"{path}:\n{said}", file=sys.stderr)
    return bad


def changed(commits):
    """The paths, without extensions, that the last commits changed."""
    log = subprocess.run(["git", "log", f"-{commits}", "--name-only", "--format="], capture_output=True, text=True, check=True)
    return {os.path.splitext(path)[0] for path in log.stdout.splitlines()}


def main():
    parser = argparse.ArgumentParser(description="Checks that each .cpp compiles by itself.")
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--last", type=int, metavar="COMMITS")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    recent = changed(arguments.last) if arguments.last else None
    folder = "build/alone-" + re.sub(r"\W+", "_", os.environ.get("CXX", "g++") + os.environ.get("CXXFLAGS", ""))
    entries = {}  # one of each file: some are part of several programs
    commands = commands_of(folder, "dev", os.environ)
    for entry in commands:
        path = os.path.relpath(entry["file"])
        if (path.endswith(".cpp") and not path.startswith("build/") and re.search(arguments.pattern, path)
                and (recent is None or os.path.splitext(path)[0] in recent)):
            entries.setdefault(path, entry)
    bad = check_all(entries)
    print(f"check_alone: {bad} of {len(entries)} files do not compile by themselves without a word" if bad else
          f"check_alone: all {len(entries)} files compile by themselves")
    return 1 if bad or not commands or (recent is None and not entries) else 0


if __name__ == "__main__":
    sys.exit(main())
