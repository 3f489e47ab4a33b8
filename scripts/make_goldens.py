#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/ops/goldens.safetensors: PyTorch's outputs and gradients for every case of the op table.

Run by hand where torch, numpy and safetensors are installed, after cases were added or changed; tests only read the file:
    python3 scripts/make_goldens.py
For each case of tests/ops/cases/*.json that PyTorch can answer, and one for each row of elementwise.def, the file's metadata has
the case (op, in, attrs, gradient) under a key, and the file has the tensors
    KEY/0, KEY/1.0, ...   the inputs: float32 values, computed with in float64
    KEY/out, KEY/out.0    the outputs in float64
    KEY/grad.0, ...       the gradients of sum_k out.k * cos(k, k + 1, ...)
    KEY/low.out, ...      where PyTorch's CPU autocast does with the op what halfstep's does: the outputs in a bfloat16 region, of
    float32
                          inputs for ops that it runs low, of bfloat16 ones for those that it runs in float32
"""
import json
import pathlib
import sys
import zlib

import torch
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/parity"))
import cases as C  # noqa: E402
import torch_ops as T  # noqa: E402


def identity(case):
    """Returns the key by which tests/ops/golden_test.cpp finds a case."""
    return {"op": case["op"], "in": case["in"], "attrs": case.get("attrs", {}), "gradient": case.get("gradient", True)}


def row_cases():
    for op, (count, lo, hi) in C.rows().items():
        shapes = [[[3, 5]]] if count == 1 else [[[3, 5], [3, 5]], [[2, 1, 4], [3, 1]]]
        for shape in shapes:
            yield {"op": op, "in": [{"shape": s, "lo": lo, "hi": hi} for s in shape], "gradient": op not in NO_GRADIENT}


NO_GRADIENT = ("floor_divide", "trunc_divide", "heaviside", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
               "logical_xor")


def policies():
    lists = json.loads((ROOT / "tests/ops/autocast_lists.json").read_text())
    return {name: policy for group in ("required", "optional") for policy, names in lists[group].items() for name in names}


def weighted_sum(outputs):
    total = 0
    for k, out in enumerate(outputs):
        if out.is_floating_point() and out.requires_grad:
            w = torch.cos(torch.arange(out.numel(), dtype=torch.float64) + k).reshape(out.shape)
            total = total + (out * w.to(out.dtype)).sum()
    return total


def named(outputs):
    return {"out" if len(outputs) == 1 else f"out.{k}": t for k, t in enumerate(outputs)}


def in_region(case, inputs, policy):
    """Returns the outputs in a CPU autocast region, or nothing if PyTorch's lists differ from halfstep's."""
    if policy not in ("lower", "fp32") or "dtype" in case.get("attrs", {}) or "dtype" in case["op"]:
        return {}
    given = torch.float32 if policy == "lower" else torch.bfloat16
    wanted = torch.bfloat16 if policy == "lower" else torch.float32
    tensors = {n: t.to(given) if t.is_floating_point() else t for n, t in inputs.items()}
    try:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = named(T.call(case["op"], C.arguments(case, tensors), case.get("attrs", {})))
    except Exception:
        return {}
    if any(t.is_floating_point() and t.dtype != wanted for t in outputs.values()):
        return {}
    return {f"low.{n}": t for n, t in outputs.items()}


def golden(case, policy):
    """Returns the tensors of a case; raises as PyTorch does."""
    text = json.dumps(identity(case), sort_keys=True)
    generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
    inputs, wanted = {}, C.differentiated(case)
    for name, spec in C.specs_of(case):
        t = C.draw(spec, generator)
        inputs[name] = t.float() if t.is_floating_point() else t
    exact = {n: t.double().requires_grad_(n in wanted) if t.is_floating_point() else t.clone() for n, t in inputs.items()}
    outputs = T.call(case["op"], C.arguments(case, exact), case.get("attrs", {}))
    tensors = {**inputs, **{n: t.detach() for n, t in named(outputs).items()}, **in_region(case, inputs, policy)}
    total = weighted_sum(outputs)
    wanted = [n for n in exact if exact[n].requires_grad]
    if torch.is_tensor(total) and wanted:
        for n, g in zip(wanted, torch.autograd.grad(total, [exact[n] for n in wanted], allow_unused=True)):
            if g is not None:
                tensors[f"grad.{n}"] = g.detach()
    return text, tensors


def main():
    policy = policies()
    tensors, metadata, refused = {}, {"torch": torch.__version__}, []
    for case in [*row_cases(), *C.cases()]:
        try:
            text, made = golden(case, policy.get(case["op"]))
        except Exception as e:
            refused.append(f"{case['op']}, {case.get('name', '')}: {str(e).splitlines()[0] if str(e) else type(e).__name__}")
            continue
        key = f"{case['op']}.{zlib.crc32(text.encode()):08x}"
        metadata[key] = text
        tensors.update({f"{key}/{n}": t.contiguous().clone() for n, t in made.items()})
    path = ROOT / "tests/ops/goldens.safetensors"
    save_file(tensors, path, metadata=metadata)
    print(f"{path}: {len(metadata) - 1} cases, {path.stat().st_size} bytes, torch {torch.__version__}")
    for text in refused:
        print(f'PyTorch refuses: {text} (a mistake, a call for tests/parity/torch_ops.py, or "torch": false)')
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
