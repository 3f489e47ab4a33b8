# SPDX-License-Identifier: Apache-2.0
"""Reads the PTX of the kernels that AMP spends its time in: each must have 16-byte loads and stores.

usage: check_wide_loads.py FILE.cu.o... | --self-test     objects with PTX that is not compressed

nvcc cuts a pack into small accesses when it cannot prove something, without a word; only the PTX shows it.
"""
import pathlib
import re
import sys

# File: (kernel, its 16-byte loads, its 16-byte stores), at least. A kernel is each whose mangled name matches.
FORMS = 2  # a pack of 16-bit elements is one access, of float two
KERNELS = {
    "comparison": [("packs_kernel.*Choose", 3 * FORMS, FORMS), ("packs_kernel.*functor2lt", 2 * FORMS, 0)],
    "pointwise_packs": [("pointwise_packs_kernel.*4lerp", 3 * FORMS, FORMS)],
    "copy": [("cast_kernelI6__halff", 1, FORMS), ("cast_kernelIf6__half", FORMS, 1), ("cast_kernelIf13__nv_bfloat16", FORMS, 1)],
    "softmax": [("14softmax_kernelINS0_7RunRows", 4 * FORMS, 4 * FORMS),
                ("softmax_backward_kernelINS0_7RunRows", 8 * FORMS, 4 * FORMS)],
    "derivative_sums": [("22derivative_sums_kernel", 4, 2)],
    "cross_entropy": [("20cross_entropy_kernelINS0_7RunRows", 4 * FORMS, 0),
                      ("cross_entropy_backward_kernelINS0_7RunRows", FORMS, FORMS)],
    "variance": [("moments_of_rowsI.*4Runs", 4 * FORMS, 0), ("moments_of_rowsI.*11CoveredRuns", 4 * FORMS, 0),
                 ("moments_of_packed_columns", 4 * FORMS, 0)],
    "normalize": [("16normalize_kernelIfLi8E", 2, 2), ("15backward_kernelIfLi8E", 4, 2),
                  ("20backward_once_kernelILi1E", 2 * 4 * FORMS, 4 * FORMS),
                  ("20backward_once_kernelILi8E", 2 * 4 * FORMS, 4 * FORMS),
                  ("20add_normalize_kernelIfLi8E", 2 * FORMS, 2 * FORMS), ("19add_backward_kernelIfLi8E", 3 * FORMS, 2 * FORMS),
                  ("24add_backward_once_kernelILi1E", 3 * 4 * FORMS, 2 * 4 * FORMS),
                  ("24add_backward_once_kernelILi8E", 3 * 4 * FORMS, 2 * 4 * FORMS)],
    "normalize_channels_last": [("16normalize_stripsINS0_7RunRows", 2 * 4 * FORMS, 4 * FORMS),
                                ("15backward_stripsINS0_7RunRows", 2 * 2 * 2 * FORMS, 2 * FORMS)],
    "batch_norm": [("14forward_kernelIfLi8ELb0E", 2, 2), ("14forward_kernelIfLi8ELb1E", 4, 2), ("15backward_kernelIfLi8E", 2, 2),
                   ("13forward_packsILb0E", 3 * FORMS, 3 * FORMS), ("13forward_packsILb1E", 6 * FORMS, 3 * FORMS),
                   ("14backward_packs", 4 * FORMS, 2 * FORMS)],
}
ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)(?=\.entry\s|\.func\s|\Z)", re.S)  # with scopes inside it
WIDE = {kind: re.compile(rf"\b{kind}\.(?:\w+\.)*(?:v4\.[ubf]32|v2\.[ubf]64)\b") for kind in ("ld.global", "st.global")}


def faults_of(ptx, wanted):
    """The faults of the PTX, one line each."""
    bodies = dict(ENTRY.findall(ptx))
    for pattern, loads, stores in wanted:
        found = {name: body for name, body in bodies.items() if re.search(pattern, name)}
        if not found:
            yield f"no kernel matches {pattern}"
        for name, body in found.items():
            for kind, least in (("ld.global", loads), ("st.global", stores)):
                count = len(WIDE[kind].findall(body))
                if count < least:
                    yield f"{name}: {count} {kind} of 16 bytes, not {least} or more"


def ptx_in(path):
    """The first PTX in an object file; "" if there is none, or if it is compressed."""
    content = path.read_bytes()
    at = content.find(b".version ")
    return content[at:content.find(b"\0", at)].decode() if at >= 0 else ""


def self_test():
    body = ".visible .entry _Z4copyv(\n)\n{\n%s\n}\n"
    wide = body % "ld.global.v4.u32 {%r1}, [%rd1];\nst.global.wb.v2.b64 [%rd2], {%r1};"
    assert not list(faults_of(wide, [("copy", 1, 1)]))
    assert len(list(faults_of(wide, [("copy", 2, 1)]))) == 1
    assert len(list(faults_of(wide, [("other", 0, 0)]))) == 1
    scopes = body % "{\n.reg .b32 %t;\n}\nld.global.v4.u32 {%r1}, [%rd1];\nst.global.v4.u32 [%rd2], {%r1};"
    assert not list(faults_of(scopes, [("copy", 1, 1)]))
    assert list(faults_of(body % "" + wide.replace("copy", "other"), [("copyv", 1, 0)]))  # not the next kernel's
    narrow = body % "ld.global.v2.u32 {%r1}, [%rd1];\nld.param.v4.u32 {%r1}, [%rd1];\nst.global.u64 [%rd2], %r1;"
    assert len(list(faults_of(narrow, [("copy", 1, 1)]))) == 2


def main():
    if "--self-test" in sys.argv:
        return self_test()
    files = {path.name.split(".")[0]: path for path in map(pathlib.Path, sys.argv[1:])}
    texts = {name: ptx_in(files[name]) for name in KERNELS if name in files}
    faults = [f"{name}.cu: no PTX of it was given" for name in KERNELS if name not in texts]
    faults += [f"{name}.cu: {fault}" for name in texts for fault in faults_of(texts[name], KERNELS[name])]
    print("\n".join(faults) or f"{sum(map(len, KERNELS.values()))} kernels read and write 16 bytes at a time")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
