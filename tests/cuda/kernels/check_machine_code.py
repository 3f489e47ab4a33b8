#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the machine code of the kernels that the benchmarks' nets spend their time in.

usage: check_machine_code.py [--show] CUOBJDUMP OBJECT...      objects with machine code of sm_90
       check_machine_code.py --self-test

A GPU hides the time of a load behind other loads, so the loop in which a kernel moves its memory must have several of them under
way before it uses the first one. The compiler prevents that without a word when it cannot keep the values in registers, or when an
index needs a division. For each kernel of KERNELS this looks at the hottest loop, which is the innermost loop with the most loads
of 16 bytes:

    loads   16-byte loads that are under way at the same time, at least
    local   instructions of the loop that access local memory, where registers are spilled: none
    divide  integer divisions in the loop, at most
    each    instructions of the loop for each byte of an element, which it reads or writes, at most 10: an H100 issues about 11 in
            the time of a byte. Counted on the shortest way round, with elements of 16 bits; only where the elements are given

--show prints the figures of all kernels with loads of 16 bytes.
"""
import pathlib
import re
import subprocess
import sys

# File: (a part of the kernel's mangled name, loads, divisions, elements of a round, operands of an element). Packs are read by the
# dtype that they have when the kernel runs, as one load of 16-bit elements or two of float: both ways are in the loop, and count.
KERNELS = {
    "normalize": [("20backward_once_kernel", 16, 0), ("24add_backward_once_kernel", 16, 0)],
    "normalize_channels_last": [("15backward_stripsINS0_7RunRows", 8, 0), ("16normalize_stripsINS0_7RunRows", 8, 0)],
    "variance": [("25moments_of_packed_columns", 8, 0)],
    "batch_norm": [("13forward_packs", 6, 0), ("14backward_packs", 8, 0)],
    "softmax": [("14softmax_kernelINS0_7RunRows", 2, 0), ("23softmax_backward_kernelINS0_7RunRows", 2, 0)],
    "cross_entropy": [("20cross_entropy_kernelINS0_7RunRows", 2, 0), ("20cross_entropy_kernelINS0_10PeeledRows", 2, 0)],
    "derivative_sums": [("22derivative_sums_kernel", 4, 0)],
    "mse": [("10mse_packed", 2, 0), ("19mse_backward_packed", 2, 0)],
    "norm_sums": [("20packed_column_kernel", 8, 0)],
    "optimizer": [("7SgdRuleEfLb1", 6, 0), ("8AdamRuleEfLb1", 5, 0)],
    "scaling": [("unscale_list", 4, 0)],
    "unary_packs": [(f"functor{name}ELi1", 2, 1, 8, 2)
                    for name in ("4relu", "4gelu", "9gelu_tanh", "4silu", "4mish", "7sigmoid", "4tanh")],
    "unary_backward_packs": [(f"functor{name}_backwardELi2", 3, 1, 8, 3)
                             for name in ("13relu", "13gelu", "18gelu_tanh", "13silu", "13mish", "16sigmoid", "13tanh")],
    "binary": [("functor17add_relu_backwardELi3", 4, 1, 8, 4)],
    "binary_packs": [("functor3addELi2", 3, 1, 8, 3)],
}
MOST_EACH = 10
LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
FUNCTION = re.compile(r"Function : (\S+)")
REGISTER = re.compile(r"\bR(\d+)((?:\.64)?)")
TARGET = re.compile(r"^(?:@\S+\s+)?(?:BRA|BSSY|CALL)\b.*?0x([0-9a-f]+)")
BARRIER = re.compile(r"\bB\d+\b")
RECIPROCAL = re.compile(r"I2F\S*\.RP")
WIDTHS = {"128": 16, "64": 8}


class Instruction:
    def __init__(self, address, text):
        self.address, self.text = address, text
        words = text.split()
        self.guard = words[0] if words[0].startswith("@") else ""
        self.operation = words[1] if self.guard else words[0]
        operands = text[text.index(self.operation) + len(self.operation):]
        first, _, rest = operands.partition(",")
        self.is_load = self.operation.startswith("LDG")
        self.width = next((WIDTHS[part] for part in self.operation.split(".") if part in WIDTHS), 4) if self.is_load else 0
        writes = not self.operation.startswith(("ST", "RED", "BRA", "BAR", "EXIT"))
        found = REGISTER.findall(first)
        self.result = set()
        if writes and found:
            begin = int(found[0][0])
            self.result = set(range(begin, begin + max(1, self.width // 4)))
        self.reads = {int(n) + k for n, wide in REGISTER.findall(rest if writes else operands) for k in range(2 if wide else 1)}


def functions_of(sass):
    """Name: its instructions."""
    found, body = {}, []
    for line in sass.splitlines():
        if match := FUNCTION.search(line):
            body = found.setdefault(match[1], [])
        elif match := LINE.match(line):
            body.append(Instruction(int(match[1], 16), match[2]))
    return found


def blocks_of(body):
    """The basic blocks of a function, as lists of instructions, and the numbers of the blocks that may follow each."""
    jumps, joins = {}, {}
    for i in body:
        target = int(match[1], 16) if (match := TARGET.search(i.text)) else None
        barrier = BARRIER.search(i.text)
        if i.operation.startswith("BSSY"):
            joins[barrier[0]] = target  # where the threads that wait at the barrier continue
        elif i.operation.startswith("BSYNC"):
            jumps[i.address] = joins.get(barrier[0])
        elif i.operation.startswith("BRA"):
            jumps[i.address] = target
        elif i.operation.startswith(("EXIT", "RET", "BRX")):
            jumps[i.address] = None
    begins = {body[0].address} | {t for t in jumps.values() if t is not None}
    blocks = []
    for i in body:
        if i.address in begins or not blocks or blocks[-1][-1].address in jumps:
            blocks.append([])
        blocks[-1].append(i)
    number = {block[0].address: n for n, block in enumerate(blocks)}
    follow = []
    for n, block in enumerate(blocks):
        last = block[-1]
        after = {number[jumps[last.address]]} if jumps.get(last.address) in number else set()
        conditional = last.guard or "," in last.text.partition("0x")[0]  # "@P0 BRA 0x10", "BRA.DIV UR4, 0x10"
        if (last.address not in jumps or conditional) and n + 1 < len(blocks):
            after.add(n + 1)
        follow.append(after)
    return blocks, follow


def loops_of(body):
    """The natural loops: each as the numbers of its first block and of all of them; the blocks; and which follow each."""
    blocks, follow = blocks_of(body)
    before = [set() for _ in blocks]
    for n, after in enumerate(follow):
        for m in after:
            before[m].add(n)
    everything = (1 << len(blocks)) - 1
    above = [1] + [everything] * (len(blocks) - 1)  # bit m of above[n]: every way to block n leads through m
    changed = True
    while changed:
        changed = False
        for n in range(1, len(blocks)):
            through = everything if before[n] else 0
            for m in before[n]:
                through &= above[m]
            through |= 1 << n
            changed, above[n] = changed or through != above[n], through
    loops = {}
    for n, after in enumerate(follow):
        for head in after:
            if not above[n] >> head & 1:
                continue
            members, todo = loops.setdefault(head, {head}), [n]
            while todo:
                if (m := todo.pop()) not in members:
                    members.add(m)
                    todo += before[m]
    return list(loops.items()), blocks, follow


def shortest_round(head, loop, blocks, follow):
    """Instructions of the shortest way round a loop: of branches for several dtypes, and of a division's exceptions, the least."""
    least, todo = {head: 0}, [head]
    while todo:
        n = todo.pop()
        for m in (follow[n] & loop) - {head}:
            if least[n] + len(blocks[n]) < least.get(m, 1 << 30):
                least[m] = least[n] + len(blocks[n])
                todo.append(m)
    return min(way + len(blocks[n]) for n, way in least.items() if head in follow[n])


def hottest(body):
    """The innermost loop with the most loads of 16 bytes: its instructions, and how many its shortest round has; none: [], 0."""
    loops, blocks, follow = loops_of(body)
    codes = [(head, loop, [i for n in sorted(loop) for i in blocks[n]]) for head, loop in loops]
    codes = [found for found in codes if any(i.is_load for i in found[2])]
    inner = [found for found in codes if not any(other < found[1] for _, other, _ in codes)]
    head, loop, code = max(inner, key=lambda found: sum(i.width == 16 for i in found[2]), default=(0, set(), []))
    return code, shortest_round(head, loop, blocks, follow) if code else 0


def most_under_way(loop):
    """16-byte loads that are under way at the same time, at most."""
    waiting, most = [], 0
    for instruction in loop * 2:  # a load may be for the next round
        waiting = [result for result in waiting if not result & (instruction.reads | instruction.result)]
        if instruction.is_load and instruction.width == 16:
            waiting.append(instruction.result)
            most = max(most, len(waiting))
    return most


def divides(instruction, body):
    """Does a division of integers begin here, or in the function that this calls? The first step makes a float of the divisor."""
    if instruction.operation.startswith("CALL") and (match := TARGET.search(instruction.text)):
        called = [i for i in body if i.address >= int(match[1], 16)]
        end = next((n for n, i in enumerate(called) if i.operation.startswith("RET")), len(called))
        return any(RECIPROCAL.match(i.operation) for i in called[:end])
    return bool(RECIPROCAL.match(instruction.operation))


def figures_of(body):
    loop, rounds = hottest(body)
    local = sum(i.operation.startswith(("LDL", "STL")) for i in loop)
    return {"loads": most_under_way(loop), "local": local, "divide": sum(divides(i, body) for i in loop), "round": rounds}


def faults_of(functions, wanted):
    for part, loads, divisions, *counted in wanted:
        found = {name: figures_of(body) for name, body in functions.items() if part in name}
        if not found:
            yield f"no kernel has {part} in its name"
        for name, figures in found.items():
            if figures["loads"] < loads:
                yield f"{name}: {figures['loads']} loads of 16 bytes under way in the hottest loop, not {loads} or more"
            if figures["local"]:
                yield f"{name}: {figures['local']} accesses of local memory in the hottest loop"
            if figures["divide"] > divisions:
                yield f"{name}: {figures['divide']} divisions of integers in the hottest loop, not {divisions} or fewer"
            if counted and (each := figures["round"] / (2 * counted[0] * counted[1])) > MOST_EACH:
                yield f"{name}: {each:.1f} instructions for each byte of an element, not {MOST_EACH} or fewer"


def self_test():
    def code(*lines):
        return "Function : k\n" + "\n".join(f"        /*{16 * i:04x}*/                   {text} ;" for i, text in enumerate(lines))

    def figures(*lines):
        return figures_of(functions_of(code(*lines))["k"])
    loop = ("LDG.E.128 R4, [R2.64]", "LDG.E.128.CONSTANT R8, [R2.64+0x10]", "FADD R12, R4, R9",
            "STG.E.128 desc[UR4][R14.64], R12")
    assert figures("MOV R2, R3", *loop, "@P0 BRA 0x10", "EXIT") == {"loads": 2, "local": 0, "divide": 0, "round": 5}
    # Each is used before the next one.
    assert figures("LDG.E.128 R4, [R2.64]", "FADD R12, R4, R5", "LDG.E.128 R8, [R2.64]", "FADD R12, R8, R5",
                   "@!P1 BRA 0x0")["loads"] == 1
    assert figures("LDL R1, [R0]", "MOV R2, R3", "STL [R0], R4", *loop, "@P0 BRA 0x10")["local"] == 1  # one is before it
    assert figures(*loop, "I2F.U64.RP R20, R22", "@P0 BRA 0x0")["divide"] == 1
    # The inner loop counts, not the one around it.
    assert figures("STL [R0], R4", *loop, "@P0 BRA 0x10", "@P1 BRA 0x0")["local"] == 0
    assert figures("LDG.E.128 R4, [R2.64]", "BRA 0x10")["loads"] == 0
    # The shortest way round: past a branch for another dtype.
    branch = ("LDG.E.128 R4, [R2.64]", "@P1 BRA 0x40", "FADD R12, R4, R5", "FADD R12, R4, R5", "FADD R13, R4, R5", "@P0 BRA 0x0")
    assert figures(*branch)["round"] == 4
    assert list(faults_of(functions_of(code(*branch)), [("k", 1, 0, 1, 1)])) == []
    long = functions_of(code(branch[0], *["FADD R12, R4, R5"] * 20, *branch[-2:]))
    assert "11.5 instructions for each byte" in list(faults_of(long, [("k", 1, 0, 1, 1)]))[0]
    assert list(faults_of(functions_of(code("EXIT")), [("other", 1, 0)])) == ["no kernel has other in its name"]
    assert len(list(faults_of(functions_of(code(*loop, "LDL R1, [R0]", "@P0 BRA 0x0")), [("k", 3, 0)]))) == 2


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    show, arguments = "--show" in sys.argv, [a for a in sys.argv[1:] if a != "--show"]
    tool, objects = arguments[0], {pathlib.Path(o).name.split(".")[0]: o for o in arguments[1:]}
    if tool.endswith("NOTFOUND"):
        print("SKIPPED: there is no cuobjdump; it comes with the toolkit, and as the Python package nvidia-cuda-cuobjdump")
        return 0
    faults = []
    for name, path in objects.items():
        if name not in KERNELS and not show:
            continue
        sass = subprocess.run([tool, "-arch", "sm_90", "-sass", path], capture_output=True, text=True, check=True).stdout
        if "Function :" not in sass:
            print("SKIPPED: the objects have no machine code of sm_90")
            return 0
        functions = functions_of(sass)
        if show:
            for kernel, body in functions.items():
                if (figures := figures_of(body))["loads"]:
                    numbers = " ".join(f"{k} {v}" for k, v in figures.items())
                    print(name, numbers, re.sub(r"_ZN8halfstep.*?_cu_\w{8}", "", kernel)[:110])
        faults += [f"{name}: {fault}" for fault in faults_of(functions, KERNELS.get(name, []))]
    print("\n".join(faults))
    missing = [name for name in KERNELS if name not in objects]
    assert not missing, f"no object of {missing}"
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
