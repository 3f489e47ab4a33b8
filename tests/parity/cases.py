# SPDX-License-Identifier: Apache-2.0
"""The op table's cases (tests/ops/op_cases.h has their format) and elementwise.def's rows, with inputs drawn for them. Needs
torch."""
import json
import math
import pathlib
import re

import torch
from torch_ops import DTYPES, value_of

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def rows():
    """The rows of elementwise.def: name -> (tensors, lo, hi)."""
    text = (ROOT / "framework/math/elementwise.def").read_text()
    text = re.sub(r"^//.*$", "", text, flags=re.M)
    found = {}
    for kind, body in re.findall(r'^HS_(UNARY|BINARY|TEST)\((.*?"\s*)\)$', text, flags=re.M | re.S):
        name = re.match(r"\s*(\w+)", body).group(1)
        bounds = re.search(r'(-?[\d.]+),\s*(-?[\d.]+),\s*"[^"]*"\s*$', body)
        lo, hi = (float(bounds.group(1)), float(bounds.group(2))) if bounds else (-2.0, 2.0)
        found[name] = (1 if kind == "UNARY" else 2, lo, hi)
    return found


def cases():
    """All cases of tests/ops/cases that PyTorch can answer; each has its line of JSON under "line"."""
    out = []
    for path in sorted((ROOT / "tests/ops/cases").glob("*.json")):
        for case in json.loads(path.read_text()):
            if case.get("torch", True) and not case.get("sampled", False):
                out.append(case)
    return out


def specs_of(case):
    """Every tensor of a case, in order: (name in the file, spec)."""
    for i, spec in enumerate(case["in"]):
        if isinstance(spec, dict) and "list" in spec:
            for k, member in enumerate(spec["list"]):
                if member is not None:
                    yield f"{i}.{k}", member
        elif spec is not None:
            yield str(i), spec


def flatten(v):
    return [x for y in v for x in flatten(y)] if isinstance(v, list) else [value_of(v)]


def draw(spec, generator, sizes=lambda s: s):
    """One tensor of a case in float64 (or the spec's own integers); `sizes` maps a drawn shape to another."""
    if isinstance(spec, list):
        spec = {"shape": spec}
    if "values" in spec:
        values = flatten(spec["values"])
        shape = spec.get("shape", [len(values)])
        return torch.tensor([float(v) for v in values], dtype=torch.float64).to(DTYPES[spec.get("dtype", "float64")]).reshape(shape)
    shape = sizes(spec["shape"])
    if spec.get("distinct"):
        order = torch.randperm(math.prod(shape), generator=generator)
        return (order.double() * 0.05 - 0.97).reshape(shape)
    lo, hi = spec.get("lo", -2.0), spec.get("hi", 2.0)
    return torch.rand(shape, dtype=torch.float64, generator=generator) * (hi - lo) + lo


def arguments(case, tensors):
    """Tensors by name as call() takes them."""
    out = []
    for i, spec in enumerate(case["in"]):
        if isinstance(spec, dict) and "list" in spec:
            out.append([None if m is None else tensors[f"{i}.{k}"] for k, m in enumerate(spec["list"])])
        else:
            out.append(None if spec is None else tensors[str(i)])
    return out


def differentiated(case):
    """The names of the inputs whose gradients are part of the case (those that have one: floating dtypes)."""
    here = case["op"] in ("ctc_loss", "embedding_dense_backward")  # PyTorch's gradients differ, those of SPECIAL do not
    if not case.get("gradient", True) or not case.get("torch_gradient", True) and not here:
        return set()
    return {name for name, spec in specs_of(case)
            if isinstance(spec, list) or not spec.get("constant") and spec.get("grad", "values" not in spec)}
