#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each .cpp compiles by itself: in a build that joins the files of a folder, one may use what only another includes.

    scripts/check_alone.py [PATTERN]    files whose path contains a match of this regular expression; without one, all
    scripts/check_alone.py --new        of those, the files that have not passed on this machine with the same text, header, set of
                                        headers reached by includes, options and compiler
    CXX=clang++ CXXFLAGS=-stdlib=libc++ scripts/check_alone.py    another compiler

Compilers write no objects, so this takes a third of a build's time. Prints what they say; exits 1 when they say anything.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True
import passed

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def check(entry):
    """Returns the compiler's output for one file, or a line about its failure."""
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
    """Compiles them on all cores, without objects; prints compilers' output, and returns the paths that have some."""
    bad = []
    jobs = int(os.environ.get("HALFSTEP_JOBS") or os.cpu_count())
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for path, said in zip(entries, pool.map(check, entries.values())):
            if said:
                bad.append(path)
                print(f"{path}:\n{said}", file=sys.stderr)
    return bad


def digests(entries):
    """Returns {path: digest} of what decides whether a file compiles by itself: its text, that of its header, which headers it
    reaches, the options and the compiler. What leaves a header that is still included is missed by every build."""
    root = pathlib.Path.cwd()
    compilers = {}
    out = {}
    for path, entry in entries.items():
        words = shlex.split(entry["command"].replace(entry["directory"], "").replace(str(root), ""))
        if words[0] not in compilers:
            compilers[words[0]] = passed.output(words[0], "--version")
        own = [p for p in (root / path, (root / path).with_suffix(".h")) if p.is_file()]
        files, system = passed.closure(own, root)
        reached = sorted(str(file.relative_to(root)) for file in files)
        out[path] = passed.digest(own, [words, compilers[words[0]], reached, sorted(system)], root)
    return out


def main():
    parser = argparse.ArgumentParser(description="Checks that each .cpp compiles by itself.")
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--new", action="store_true")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    folder = "build/alone-" + re.sub(r"\W+", "_", os.environ.get("CXX", "g++") + os.environ.get("CXXFLAGS", ""))
    entries = {}  # one of each file: some are part of several programs
    commands = commands_of(folder, "dev", os.environ)
    for entry in commands:
        path = os.path.relpath(entry["file"])
        if path.endswith(".cpp") and not path.startswith("build/") and re.search(arguments.pattern, path):
            entries.setdefault(path, entry)
    known, found = passed.passed("alone"), digests(entries)
    fresh = {path: entry for path, entry in entries.items() if not arguments.new or found[path] not in known}
    bad = check_all(fresh)
    passed.keep("alone", {found[path] for path in entries} - {found[path] for path in bad})
    before = f"; the other {len(entries) - len(fresh)} have before" if len(fresh) < len(entries) else ""
    print(f"check_alone: {len(bad)} of {len(fresh)} files do not compile by themselves without a word" if bad else
          f"check_alone: all {len(fresh)} files compile by themselves{before}")
    return 1 if bad or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
