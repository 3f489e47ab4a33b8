#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sizes of what halfstep is shipped as, the glibc that each part needs, and the time of a start.

    benchmarks/sizes.py [--build build/default] [--own build/own] [--static build/static] [--json FILE]

BUILD has the wheel (scripts/wheel.py) and the target `installation`; OWN is the same with -DHALFSTEP_ONEDNN=OFF, without a wheel;
STATIC has the archive of scripts/static.sh. Rows are in bytes, of stripped files: the wheel and what it unpacks to, the archive and
its program, libhalfstep_predict.so and tests/consumer/main.cpp (which trains) linked with the static library, with oneDNN and with
halfstep's own loops. `needs`: shared libraries besides those of GCC and glibc. `glibc`: the newest version of it that a file asks
for; none for a file without shared libraries, which says from which Linux on it runs (`linux`). `start_ms`: the processor's time,
which other programs do not change, of the fastest of 50 runs of `--version`. It is no part of the tests.
"""
import argparse
import datetime
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True
import records

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNTIME = ("ld-linux", "libc.so", "libm.so", "libgcc_s", "libstdc++", "libgomp", "libdl.", "libpthread", "linux-vdso")


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def stripped(path, folder):
    copy = folder / "stripped"
    run("strip", "-o", copy, path)
    return copy.stat().st_size


def needs(path):
    """The sizes of the shared libraries that a file needs, also for others, by their names."""
    found = {}
    for line in run("ldd", path).splitlines():
        name, _, place = line.strip().partition(" => ")
        if place.startswith("/") and not name.startswith(RUNTIME):
            found[name] = pathlib.Path(place.split(" (")[0]).stat().st_size
    return found


def system(path):
    """What a file needs of the system."""
    versions = re.findall(r"\(GLIBC_([\d.]+)\)", run("objdump", "-T", path, stderr=subprocess.DEVNULL))
    if versions:
        return {"glibc": max(versions, key=lambda v: [*map(int, v.split("."))])}
    linux = re.search(r"OS: Linux, ABI: ([\d.]+)", run("readelf", "-n", path))
    return {"glibc": None, "linux": linux[1] if linux else None}


def start_ms(program):
    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1e3 * (usage.ru_utime + usage.ru_stime)

    times = []
    for _ in range(50):
        before = spent()
        run(program, "--version")
        times.append(spent() - before)
    return round(min(times), 2)


def only(folder, pattern, remedy):
    found = [*folder.glob(pattern)]
    if len(found) != 1:
        sys.exit(f"sizes.py: {folder} has {len(found)} files {pattern}, not one\nhelp: {remedy}")
    return found[0]


def wheel(build):
    path = only(build / "wheel", "halfstep-*.whl", "scripts/build.sh default installation && scripts/wheel.py")
    with zipfile.ZipFile(path) as archive:
        return {"what": "wheel", "name": path.name, "bytes": path.stat().st_size,
                "unpacked_bytes": sum(entry.file_size for entry in archive.infolist())}


def static(build):
    """Of the archive, and of the program in it."""
    path = only(build, "halfstep-*.tar.xz", "scripts/static.sh")
    program = build / path.name.removesuffix(".tar.xz") / "bin/halfstep"
    yield {"what": "static archive", "name": path.name, "bytes": path.stat().st_size}
    yield {"what": "static program", "bytes": program.stat().st_size, **system(program), "start_ms": start_ms(program)}


def libraries(build, name, folder):
    """Of the C library, and of a program that is linked with the static library of C++."""
    prefix, program = folder / "prefix", folder / "consumer"
    run("cmake", "--install", build, "--prefix", prefix, "--component", "libhalfstep-dev", stderr=subprocess.DEVNULL)
    environment = os.environ | {"PKG_CONFIG_PATH": os.pathsep.join(str(p.parent) for p in prefix.rglob("halfstep.pc"))}
    flags = [run("pkg-config", *options, "halfstep", env=environment).split() for options in (["--cflags"], ["--static", "--libs"])]
    run("g++", "-O2", *flags[0], ROOT / "tests/consumer/main.cpp", *flags[1], "-o", program)
    for what, path in ("libhalfstep_predict.so", build / "libhalfstep_predict.so.0"), ("linked program", program):
        yield {"what": what, "products": name, "bytes": stripped(path, folder), **system(path), "needs": needs(path)}


def main():
    parser = argparse.ArgumentParser()
    for name, build in ("build", "default"), ("own", "own"), ("static", "static"):
        parser.add_argument(f"--{name}", type=pathlib.Path, default=ROOT / "build" / build)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = [wheel(options.build.resolve()), *static(options.static.resolve()),
            {"what": "program", "start_ms": start_ms(options.build.resolve() / "halfstep")}]
    for name, build in ("oneDNN", options.build.resolve()), ("own loops", options.own.resolve()):
        with tempfile.TemporaryDirectory() as folder:
            rows += libraries(build, name, pathlib.Path(folder))
    print(*rows, sep="\n")
    if options.json:
        records.save(options.json, {"date": str(datetime.date.today()), "machine": records.machine(),
                                    "commit": run("git", "-C", ROOT, "describe", "--always", "--dirty").strip(),
                                    "command": "benchmarks/sizes.py --json FILE", "rows": rows})


if __name__ == "__main__":
    main()
