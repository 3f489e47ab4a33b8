#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels that the benchmarks' nets spend their time in for seven GPU architectures, and compares registers and stack
with registers.json: neither may grow.

usage: check_registers.py [--write] NVCC CUOBJDUMP BUILD_FOLDER [FILE...]     FILE: of cuda/kernels, without folder and ending

A kernel with too many registers runs on fewer threads, and one with a stack keeps values in local memory, which is the GPU's slow
memory. What fits on one architecture need not fit on another, and no test that runs on one GPU notices.

In the table, for each file and architecture: the most registers of a kernel, and for each kernel that has a stack its bytes.
--write records what the compiler makes now, of the files that are named or of all in the table. A file takes half a minute or more.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
TABLE = pathlib.Path(__file__).parent / "registers.json"
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
ARCHITECTURE = re.compile(r"^arch = sm_(\d+)", re.M)
KERNEL = re.compile(r"Function (\S+):\s*\n\s*REG:(\d+) STACK:(\d+)")


def short(name):
    """A kernel's mangled name without its namespaces, which have a hash of the file's path."""
    return re.sub(r"^_ZN8halfstep4cuda(?:\d+_GLOBAL__N__\w{8}_\d+_\w+_cu_\w{8})?\d*", "", name)


def usage_in(text):
    """{architecture: {"registers": most, "stack": {kernel: bytes}}} of cuobjdump's output."""
    found = {}
    parts = ARCHITECTURE.split(text)
    for architecture, part in zip(parts[1::2], parts[2::2]):
        kernels = [(short(name), int(registers), int(stack)) for name, registers, stack in KERNEL.findall(part)]
        if kernels:
            found[architecture] = {"registers": max(r for _, r, _ in kernels), "stack": {k: s for k, _, s in kernels if s > 0}}
    return found


def compiled(nvcc, cuobjdump, build, name, folder):
    made = folder / f"{name}.o"
    targets = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    source = next((ROOT / "cuda/kernels").rglob(f"{name}.cu"))
    subprocess.run([nvcc, "-O3", "-DNDEBUG", "-std=c++20", "-I", ROOT, "-I", build, *targets, "-c", source, "-o", made], check=True)
    return usage_in(subprocess.run([cuobjdump, "-res-usage", made], capture_output=True, text=True, check=True).stdout)


def faults_of(name, recorded, now):
    for architecture, known in recorded.items():
        found = now.get(architecture, {"registers": 0, "stack": {}})
        if found["registers"] > known["registers"]:
            yield f"{name} on sm_{architecture}: a kernel has {found['registers']} registers, the most were {known['registers']}"
        for kernel, stack in found["stack"].items():
            if stack > known["stack"].get(kernel, 0):
                yield f"{name} on sm_{architecture}: {kernel} has a stack of {stack} bytes, {known['stack'].get(kernel, 0)} before"


def self_test():
    text = """Fatbin elf code:
================
arch = sm_75

Resource usage:
 Function _ZN8halfstep4cuda45_GLOBAL__N__6474649f_12_norm_sums_cu_f13e9b1c10run_kernelIfLi1ELb0EEEvNS1_4SumsEPT_:
  REG:40 STACK:16 SHARED:64 LOCAL:0
 Function _ZN8halfstep4cuda10any_kernelIfEEvv:
  REG:64 STACK:0
"""
    usage = usage_in(text)
    assert usage == {"75": {"registers": 64, "stack": {"run_kernelIfLi1ELb0EEEvNS1_4SumsEPT_": 16}}}, usage
    assert not list(faults_of("x", usage, usage))
    assert len(list(faults_of("x", {"75": {"registers": 63, "stack": {}}}, usage))) == 2


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    write, arguments = "--write" in sys.argv, [a for a in sys.argv[1:] if a != "--write"]
    nvcc, cuobjdump, build, *names = arguments
    if cuobjdump.endswith("NOTFOUND"):
        print("SKIPPED: there is no cuobjdump; it comes with the toolkit, and as the Python package nvidia-cuda-cuobjdump")
        return 0
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"compiler": "", "files": {}}
    version = re.search(r"V([\d.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout)[1]
    if not write and version != table["compiler"]:
        print(f"SKIPPED: the table is of nvcc {table['compiler']}, and this is {version}: --write records what it makes")
        return 0
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names or list(table["files"]):
            now = compiled(nvcc, cuobjdump, build, name, pathlib.Path(folder))
            faults += faults_of(name, table["files"].get(name, {}), now)
            if write:
                table["files"][name], table["compiler"] = now, version
                TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    print("\n".join(faults))
    return bool(faults and not write)


if __name__ == "__main__":
    sys.exit(main())
