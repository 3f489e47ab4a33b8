#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Remembers what passed on this machine, so that the whole check (.ci/run) does not repeat what cannot differ.

    scripts/passed.py has kernels [BUILD]    exits 0 if the tests labelled `kernels` passed with the same sources and tools, else 1
    scripts/passed.py keep kernels [BUILD]   remembers that they passed
    scripts/passed.py --self-test

The digest covers all that these tests read: the sources that their programs are made of and every header that those include, the
build files, the choices of the build in BUILD (build/default), the compilers, the packages and the CPU. Digests are kept in
$XDG_CACHE_HOME/halfstep/passed.json (~/.cache), 2,000 for each kind at most; without that file nothing has passed.
"""
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
COMPILED = {".cpp", ".cu"}
# What tests of the kernels run, without the tests of other things that the emulators have.
KERNELS = ("amp/policy", "cuda", "framework/backend", "framework/base", "framework/math", "framework/tensor", "tests/cuda/kernels",
           "tests/emulators", "tests/support")
OTHERS = re.compile(r"tests/emulators/(?!ptx/)\w+/\w+_test\.cpp")
MOST = 2000


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


@functools.cache
def included(path, root, _changed):
    """Returns the files of the tree that a file includes, and the system headers by their names. Generated headers are left out."""
    found, system = [], []
    for kind, target in INCLUDE.findall(read(path)):
        if kind == "<":
            system.append(target)
        else:
            found += [p for p in (root / target, path.parent / target) if p.is_file()][:1]
    return found, system


def closure(roots, root=ROOT):
    """Returns the files `roots` and all files of the tree that they include, directly or not, and the names of system headers."""
    found, system, todo = set(), set(), list(roots)
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            more, names = included(path, root, path.stat().st_mtime_ns)
            todo += more
            system.update(names)
    return found, system


def sources(folders, root=ROOT):
    return [path for folder in folders for path in (root / folder).rglob("*") if path.suffix in COMPILED]


def build_files(root=ROOT):
    return [*root.glob("CMake*.*"), *(root / "scripts/cmake").iterdir(), *(path for folder in ("cuda", "tests", "apps", "examples")
                                                                           for path in (root / folder).rglob("CMakeLists.txt"))]


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def machine():
    """Describes the CPU, the compilers and the packages."""
    facts = [line for line in read(pathlib.Path("/proc/cpuinfo")).splitlines() if line.startswith(("model name", "flags"))][:2]
    for compiler in (os.environ.get("CXX", "g++"), "nvcc"):
        facts.append(output(compiler, "--version"))
    packages = ("libdnnl-dev", "libeigen3-dev", "doctest-dev", "nlohmann-json3-dev", "libspdlog-dev", "libc6")
    return [*facts, output("dpkg-query", "-W", *packages)]


def choices(build, root=ROOT):
    """Returns what the build was configured with, and the versions of CUDA's libraries."""
    chosen = re.compile(r"HALFSTEP|CMAKE_\w*FLAGS|CMAKE_BUILD_TYPE|CMAKE_CUDA_ARCH")
    lines = [line for line in read(build / "CMakeCache.txt").splitlines() if chosen.match(line)]
    for line in list(lines):
        if re.match(r"HALFSTEP_\w+_INCLUDE_DIR:", line):
            lines += [read(header) for header in pathlib.Path(line.partition("=")[2]).glob("cu*_version.h")]
    return [line.replace(str(root), "") for line in lines]


def digest(files, facts, root=ROOT):
    """Returns the digest of the files, by their paths in the tree, and of the facts."""
    out = hashlib.sha256(json.dumps(facts).encode())
    for path in sorted(files):
        out.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return out.hexdigest()


def of_kernels(build):
    read_by_tests = [path for path in sources(KERNELS) if not OTHERS.match(str(path.relative_to(ROOT)))]
    return digest(closure(read_by_tests)[0] | set(build_files()), [machine(), choices(build)])


def store():
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "halfstep/passed.json"


def passed(kind):
    """Returns {digest: when it passed}."""
    try:
        return json.loads(read(store())).get(kind, {})
    except (OSError, ValueError):
        return {}


def keep(kind, digests):
    path, now = store(), datetime.datetime.now().isoformat(" ", "minutes")
    try:
        known = json.loads(read(path))
    except (OSError, ValueError):
        known = {}
    of_kind = {**known.get(kind, {}), **{one: now for one in digests}}
    known[kind] = dict(sorted(of_kind.items(), key=lambda item: item[1])[-max(MOST, len(digests)):])
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump(known, file)
    os.replace(file.name, path)


def self_test():
    """Changes one file at a time in a small tree, and sees that the digest follows what a test reads and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        files = {"cuda/kernel.cu": '#include "framework/ops/far.h"\n', "framework/ops/far.h": '#include "beside.h"\n',
                 "framework/ops/beside.h": "int x;\n", "framework/ops/unread.h": "int y;\n"}
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")

        def now(facts=()):
            return digest(closure(sources(("cuda",), root), root)[0], list(facts), root)

        before = now()
        for name, follows in (("cuda/kernel.cu", True), ("framework/ops/far.h", True), ("framework/ops/beside.h", True),
                              ("framework/ops/unread.h", False)):
            (root / name).write_text(files[name] + "// changed\n", encoding="utf-8")
            if (now() != before) != follows:
                return f"{name}: the digest {'stays' if follows else 'changes'}"
            (root / name).write_text(files[name], encoding="utf-8")
        if now(["another compiler"]) == before:
            return "the digest does not follow the compiler"
        os.environ["XDG_CACHE_HOME"] = folder
        keep("kernels", [before])
        keep("alone", [f"{i:064}" for i in range(MOST + 9)])
        if before not in passed("kernels") or len(passed("alone")) != MOST + 9 or passed("neither"):
            return "the store loses digests"
    return ""


def main(arguments):
    if arguments == ["--self-test"]:
        wrong = self_test()
        print(f"passed: {wrong}" if wrong else "passed: the self-test passes")
        return 1 if wrong else 0
    if len(arguments) not in (2, 3) or arguments[0] not in ("has", "keep") or arguments[1] != "kernels":
        print(f"passed.py: takes has kernels, keep kernels or --self-test, got {' '.join(arguments) or 'nothing'}", file=sys.stderr)
        return 2
    now = of_kernels(ROOT / (arguments[2] if len(arguments) == 3 else "build/default"))
    if arguments[0] == "keep":
        keep("kernels", [now])
        return 0
    when = passed("kernels").get(now)
    if when:
        print(f"tests of the kernels on emulators: passed on {when} with these sources, compilers and CPU, and are not run again")
    return 0 if when else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
