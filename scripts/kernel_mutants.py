#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds places in the CUDA kernels that a mutant may change, and writes the text that has all mutants (mutate_kernels.py).

    scripts/kernel_mutants.py       tests the rewriting on a few lines of code
"""
import json
import os
import pathlib
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = "cuda/kernels"
EXPLAINED = "tests/emulators/source/explained_mutants.json"  # mutants that no test can see, and why
IDS_PER_FILE = 512

RELATION = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
SWAPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
CALL = re.compile(r"\b(__syncthreads|__syncthreads_or|__syncthreads_and|__syncthreads_count|__syncwarp|__threadfence|"
                  r"atomic(?:Add|Max|Min|Exch|Or|Inc)|__shfl(?:_xor|_up|_down)?_sync|__ballot_sync|__any_sync|__all_sync)\(")


def masked(text):
    """Returns the text with comments, literals and preprocessor lines as spaces."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
                         r'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.S | re.M)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def closing(text, at):
    """Returns the end of the bracket at `at`."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    depth = 0
    for i in range(at, len(text)):
        if text[i] in pairs:
            depth += 1
        elif text[i] in ")}]":
            depth -= 1
            if depth == 0:
                return i
    raise ValueError(f"no end of the bracket at {at}")


def device_bodies(code):
    """Returns spans of the bodies of functions for the device."""
    end = 0
    for m in re.finditer(r"__(?:global|device)__", code):
        if m.start() < end:
            continue
        i = m.end()
        while i < len(code) and code[i] not in "{;":
            i = closing(code, i) + 1 if code[i] == "(" else i + 1
        if i < len(code) and code[i] == "{":
            end = closing(code, i)
            yield i + 1, end


def constant_spans(code):
    """Returns places where the compiler computes, and places of declarations."""
    for m in re.finditer(r"\b(?:if constexpr|static_assert|SHARED|DYN_SHARED|decltype) ?(?=\()", code):
        yield m.start(), closing(code, m.end())
    for m in re.finditer(r"\bsizeof\(\w+\) \* \w+", code):
        yield m.start(), m.end()
    for m in re.finditer(r"(?<!if )\b(?:constexpr|using)\b", code):
        yield m.start(), code.find(";", m.start())


def arguments(code, at):
    """Returns the texts of a call's arguments, whose bracket opens at `at`."""
    end, depth, parts, begin = closing(code, at), 0, [], at + 1
    for i in range(at + 1, end):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if code[i] == "," and depth == 0:
            parts.append((begin, i))
            begin = i + 1
    parts.append((begin, end))
    return parts


class Place:
    """The brackets that are open at a position, innermost first, up to the next brace."""

    def __init__(self, code, begin, at):
        self.brackets, self.code, self.at = [], code, at
        depth = 0
        for i in range(at - 1, begin - 1, -1):
            if code[i] in ")]}":
                depth += 1
            elif code[i] in "([{":
                if depth == 0:
                    if code[i] == "{":
                        break
                    self.brackets.append(i)
                else:
                    depth -= 1

    def keyword(self, *words):
        """Returns the bracket of an `if (` or the like around the position, or None."""
        for i in self.brackets:
            if re.search(r"\b(?:%s) ?$" % "|".join(words), self.code[max(0, i - 8):i]):
                return i
        return None

    def in_step(self):
        """Returns whether the position is in the third part of a for."""
        i = self.keyword("for")
        return i is not None and self.code.count(";", i, self.at) == 2

    def dropped(self):
        """Returns the value of a comparison that no longer guards anything."""
        i = self.keyword("if")
        leaves = i is not None and re.match(r"[\s{]*(?:continue|return|break)\b", self.code[closing(self.code, i) + 1:])
        return "false" if leaves else "true"


def is_extreme(code, m):
    """Returns whether this is a < b ? a : b or the like, the same with <=."""
    after = re.match(r"([^?:;]+) \? ([^?:;]+) : ([^?;]+)", code[m.end():])
    if not after:
        return False
    right, first, second = (" ".join(part.split()) for part in after.groups())
    before = " ".join(code[max(0, m.start() - 200):m.start()].split())
    second = second[:end_of(second)]
    return (first == right and before.endswith(second)) or (second == right and before.endswith(first))


def end_of(text):
    """Returns the end of an expression whose surroundings may follow it."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if depth < 0 or (c == "," and depth == 0):
            return i
    return len(text)


class Mutants:
    """Finds the mutants of one file, and makes the text that has them all."""

    def __init__(self, path, text, first_id):
        self.path, self.text, self.next_id = path, text, first_id
        self.code = masked(text)
        self.found, self.edits = [], []  # edits: (begin, end, new text)
        constants = list(constant_spans(self.code))
        for begin, end in device_bodies(self.code):
            for m in re.compile(r" (<=|>=|<|>|\*) |\b(\w+) \+= ").finditer(self.code, begin, end):
                if not any(b <= m.start() < e for b, e in constants):
                    self.operator(m, begin)
            for m in CALL.finditer(self.code, begin, end):
                self.call(m)

    def add(self, kind, at, change):
        begin = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        line = self.text[begin:end]
        mutant = {"id": self.next_id, "kind": kind, "file": self.path, "line": self.text.count("\n", 0, at) + 1,
                  "column": at - begin + 1, "change": change, "code": line.strip(),
                  "next": self.text[end:].lstrip().split("\n", 1)[0]}
        mutant["twin"] = sum(all(m[k] == mutant[k] for k in ("column", "change", "code")) for m in self.found)
        self.found.append(mutant)
        self.next_id += 1
        return self.next_id - 1

    def operator(self, m, begin):
        place = Place(self.code, begin, m.start())
        if m.group(2):
            if place.in_step():
                n = self.add("stride", m.start(2), f"{m.group(2)} += 1 + ...")
                self.edits.append((m.start(2), m.end(2), f"mutant::step<{n}>({m.group(2)})"))
            return
        op, at = m.group(1), m.start(1)
        if op == "*":
            self.edits.append((at, at + 1, f"* mutant::times<{self.add('stride', at, '* (1 + ...)')}> *"))
            return
        loop = place.keyword("for", "while") is not None
        first, ways = self.next_id, ""
        extreme = is_extreme(self.code, m)
        if not extreme:
            self.add("bound" if loop else "guard", at, f"{op} to {SWAPPED[op]}")
            ways = "s"
        if extreme or not loop:
            to = place.dropped()
            self.add("guard", at, f"{op} to {to}")
            ways += to[0]
        self.edits.append((at, at + len(op), f"< mutant::{RELATION[op]}_{ways}<{first}> >"))

    def call(self, m):
        name, at, opens = m.group(1), m.start(), m.end() - 1
        end = closing(self.code, opens) + 1
        parts = [self.text[b:e].strip() for b, e in arguments(self.code, opens)]

        def otherwise(kind, change, value):
            self.edits.append((at, at, f"(mutant::on({self.add(kind, at, change)}) ? {value} : "))
            self.edits.append((end, end, ")"))

        if name in ("__syncthreads", "__syncwarp", "__threadfence"):
            otherwise("fence" if name == "__threadfence" else "barrier", "removed", "(void)0")
        elif name.startswith("__syncthreads"):
            otherwise("barrier", "does not wait", f"int(!!({parts[0]}))")
        elif name.startswith("atomic"):
            otherwise("atomic", "made plain", f"mutant::plain::{name}({', '.join(parts)})")
            otherwise("atomic", "removed", f"mutant::none({parts[0]}, {parts[1]})")
        elif name == "__ballot_sync":
            otherwise("exchange", "own bit alone", f"unsigned(!!({parts[1]})) << (threadIdx.x % 32)")
        else:
            otherwise("exchange", "own value", f"({parts[1]})")

    def rewritten(self):
        text = self.text
        order = sorted(range(len(self.edits)), key=lambda i: (self.edits[i][0], self.edits[i][1], i), reverse=True)
        for i in order:
            begin, end, new = self.edits[i]
            text = text[:begin] + new + text[end:]
        return f'#include "mutant.h"\n#line 1 "{self.path}"\n' + text


def find_mutants(root):
    """Returns all mutants, and {path: text} of the files that have them all."""
    found, texts = [], {}
    files = sorted(file for file in (pathlib.Path(root) / SOURCE).rglob("*") if file.suffix in (".cu", ".cuh"))
    for i, file in enumerate(files):
        path = str(file.relative_to(root))
        mutants = Mutants(path, file.read_text(encoding="utf-8"), 1 + i * IDS_PER_FILE)
        if len(mutants.found) >= IDS_PER_FILE:
            raise SystemExit(f"{path}: {len(mutants.found)} mutants, more than {IDS_PER_FILE - 1}")
        found += mutants.found
        texts[path] = mutants.rewritten()
    return found, texts


def explained(root):
    """{file, code, next, change, equivalent, reason}: `code` is part of the line, and `next` of the line below, where others have
    the same code; `change` is empty for all of a line's mutants. Not equivalent: it could be seen, but not here."""
    with open(os.path.join(root, EXPLAINED), encoding="utf-8") as f:
        return json.load(f)


def fits(entry, mutant):
    return (mutant["file"].endswith("/" + entry["file"]) and entry["code"] in mutant["code"] and
            entry.get("next", "") in mutant["next"] and entry["change"] in ("", mutant["change"]))


def self_test():
    text = """
#include "x.h"
#define LOOP(i) for (int i = 0; i < 3; ++i)
// a < b
template <class T, int N>
__global__ void __launch_bounds__(kThreads) kernel(int n, const T* x) {
  constexpr int kRows = N < 4 ? N : 4 * 2;
  SHARED(T, tile, [N * 2]);
  if constexpr (N > 3) return;
  for (int i = int(threadIdx.x); i < n; i += n * 2) {
    if (i >= n || x[i] > 3) continue;
    tile[i] = x[i < n - 1 ? i : n - 1];
  }
  __syncthreads();
  while (__syncthreads_or(n > 5)) n = atomicMin(&tile[0], 3);
}
void host(int a, int b) { kernel(a < b); }
"""
    mutants = Mutants("kernel.cu", text, 1)
    found = [(m["line"], m["kind"], m["change"]) for m in mutants.found]
    wanted = [(10, "bound", "< to <="), (10, "stride", "i += 1 + ..."), (10, "stride", "* (1 + ...)"), (11, "guard", ">= to >"),
              (11, "guard", ">= to false"), (11, "guard", "> to >="), (11, "guard", "> to false"), (12, "guard", "< to true"),
              (15, "bound", "> to >="), (14, "barrier", "removed"), (15, "barrier", "does not wait"),
              (15, "atomic", "made plain"), (15, "atomic", "removed")]
    assert found == wanted, found
    entry = {"file": "kernel.cu", "code": "for (int i =", "change": "< to <=", "next": "if (i >= n"}
    found = [fits({**entry, **other}, {**mutants.found[0], "file": "x/kernel.cu"}) for other in ({}, {"next": "tile[i]"})]
    assert found == [True, False], found
    lines = mutants.rewritten().splitlines()
    assert lines[11] == ("  for (int i = int(threadIdx.x); i < mutant::lt_s<1> > n; "
                         "mutant::step<2>(i) += n * mutant::times<3> * 2) {"), lines[11]
    assert lines[15] == "  (mutant::on(10) ? (void)0 : __syncthreads());", lines[15]
    waits = "  while ((mutant::on(11) ? int(!!(n > 5)) : __syncthreads_or(n < mutant::gt_s<9> > 5)))"
    assert lines[16].startswith(waits), lines[16]
    assert lines[17:] == text.splitlines()[15:], lines[17:]
    found, _ = find_mutants(ROOT)
    assert len(found) > 500 and {m["kind"] for m in found} >= {"barrier", "bound", "guard", "stride", "exchange", "atomic"}
    for entry in explained(ROOT):
        assert any(fits(entry, m) for m in found), f"no such mutant any more: {entry}"
    print("the rewriting works")
    return 0


if __name__ == "__main__":
    sys.exit(self_test())
