#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the whole tree with every compiler that is promised to work: no error and no warning.

    scripts/check_compilers.py                          those of ALL that are installed
    scripts/check_compilers.py clang++-19 "clang++-19 -stdlib=libc++"

The files of a folder are joined as in a build, nothing is linked, and device code is left out: a compiler takes about as long as
half a build. Exits 1 when one says anything; where none is installed it prints "SKIPPED: ...".
"""
import glob
import os
import re
import shutil
import sys

import check_alone

ALL = [*(f"clang++-{version}" for version in range(14, 20)), "clang++-19 -stdlib=libc++",
       *(f"g++-{version}" for version in range(12, 16))]


def check_compiler(compiler):
    """Returns the number of the tree's files for which one compiler prints something."""
    command, *flags = compiler.split()
    if command.startswith("clang") and (headers := glob.glob("/usr/lib/llvm-*/lib/clang/*/include/omp.h")):
        flags += ["-idirafter", os.path.dirname(headers[-1])]  # Debian has OpenMP for one version of LLVM at a time
    openmp = ["-DOpenMP_CXX_FLAGS=-fopenmp", "-DOpenMP_CXX_LIB_NAMES=omp", "-DOpenMP_omp_LIBRARY=omp"]
    environment = dict(os.environ, CXX=command, CXXFLAGS=" ".join(flags))
    folder = "build/compiler-" + re.sub(r"\W+", "_", compiler)
    shutil.rmtree(folder, ignore_errors=True)  # options of a compiler are only taken by a new build
    found = check_alone.commands_of(folder, "default", environment, openmp)
    # Without the few files that a build writes while it runs.
    entries = {os.path.relpath(entry["file"]): entry for entry in found if os.path.exists(entry["file"])}
    if not entries:
        print(f"check_compilers: {compiler}: the build could not be configured", flush=True)
        return 1
    bad = len(check_alone.check_all(entries))
    print(f"check_compilers: {compiler}: " + (f"{bad} of {len(entries)} files have errors or warnings" if bad else
                                              f"{len(entries)} files, no warning"), flush=True)
    return bad


def main(*compilers):
    os.chdir(check_alone.ROOT)
    installed = [compiler for compiler in compilers or ALL if shutil.which(compiler.split()[0])]
    if not installed:
        print("SKIPPED: check_compilers.py: none of these is installed: " + ", ".join(compilers or ALL))
        return 0
    return 1 if any([check_compiler(compiler) for compiler in installed]) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
