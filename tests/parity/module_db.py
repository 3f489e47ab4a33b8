#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own samples of layers and losses (torch.testing._internal.common_modules.module_db) through the tests of ours.

    python3 tests/parity/module_db.py [build/default/tests/test_apps]

Needs torch, numpy, expecttest and safetensors; no test of the suite runs it. Each sample that a config can express, with one input,
becomes a case of a file like layer_goldens.safetensors, and the program's tests of such files run on it: printed form, state,
outputs and gradients in float64 and float32, second derivatives by differences, a region, the meta device, saving. What is left out
is listed with its reason; layers that take several inputs, which a config has no place for, are compared in tests/layers.
"""
import collections
import inspect
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing
import zlib

import torch
from safetensors import safe_open
from torch.testing._internal.common_modules import module_db

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from make_layer_goldens import MADE, NOT_ARGUMENTS, draw_state, python, record_layer, record_loss, write_goldens  # noqa: E402

class LeftOut(Exception):
    """Why a sample has no case."""


def catalogue():
    """The types of a config that have a twin in torch.nn."""
    with safe_open(ROOT / "tests/apps/catalog/layer_goldens.safetensors", "pt") as file:
        return {key.split()[1] for key in file.metadata() if key.startswith("defaults ")}


def plain(value, wanted):
    """An argument as JSON; where a float is wanted, 2 becomes 2.0, as PyTorch prints what it was given."""
    if torch.is_tensor(value):
        return value.float().tolist()  # which a config's weights are as well
    if isinstance(value, (tuple, list)):
        return [plain(v, wanted) for v in value]
    if isinstance(value, torch.nn.Module):
        raise LeftOut("a layer as an argument")
    if callable(value):
        return value.__name__
    return float(value) if "float" in str(wanted) and type(value) is int else value


def arguments(cls, sample):
    """The constructor's arguments by name, as a config has them."""
    made = (typing.get_overloads(cls.__init__) or [cls.__init__])[0]
    parameters = inspect.signature(made).parameters
    given = inspect.signature(made).bind(None, *sample.constructor_input.args, **sample.constructor_input.kwargs).arguments
    out = {}
    for name, value in {**given, **given.pop("kwargs", {})}.items():
        if name == "momentum" and value is None:
            value = "cumulative"
        if name in ("return_indices", "_random_samples") and value:
            raise LeftOut(f"{name}, which a config does not have")
        if name in NOT_ARGUMENTS - {"reduction"} or (value is None and parameters[name].default is None):
            continue
        out[name] = plain(value, parameters[name].annotation)
    return out


def exact(x):
    """Values that float32 has as well."""
    if not torch.is_tensor(x):
        raise LeftOut("an input that is no tensor")
    return x.detach().float() if x.is_floating_point() else x.detach()


def case_of(info, sample, kind):
    if sample.forward_input is None:
        raise LeftOut("no input")
    inputs = sample.forward_input.args
    if sample.forward_input.kwargs:
        raise LeftOut("further inputs")
    name, args = info.module_cls.__name__, arguments(info.module_cls, sample)
    if len(inputs) != (2 if kind == "loss" else 1):
        raise LeftOut("further inputs")
    torch.manual_seed(zlib.crc32(json.dumps([name, args]).encode()))
    if kind == "loss":
        if torch.tensor(args.get("weight", 0)).min() < 0:
            raise LeftOut("negative weights, which a config refuses")
        if name == "PoissonNLLLoss":
            inputs = (inputs[0] / 4, inputs[1])  # differences between sums of large exponentials say little
        loss = info.module_cls(**python(args))
        case, tensors = record_loss(name, args, args.pop("reduction", "mean"), loss, *map(exact, inputs))
        if tensors["y"].isnan().any():
            raise LeftOut("an answer that is NaN")
        return case, tensors
    module, x = MADE.get(name, info.module_cls)(**python(args)).float(), exact(inputs[0])
    draw_state(name, module, torch.Generator().manual_seed(1))
    if args.get("norm_type", 2) == 1.5:
        x = x.abs()  # other values have no such power
    return record_layer(name, args, module, x)


def main(program="build/default/tests/test_apps"):
    known, made, left = catalogue(), [], collections.Counter()
    for info in module_db:
        name = info.module_cls.__name__
        kind = "loss" if name.endswith("Loss") else "layer"
        for training in (True, False) if info.train_and_eval_differ else (True,):
            torch.manual_seed(zlib.crc32(name.encode()))  # samples are drawn
            samples = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training)
            for sample in samples:
                try:
                    if name not in known:
                        raise LeftOut("no type of a config")
                    made.append((kind, case_of(info, sample, kind)))
                except LeftOut as why:
                    left[f"{why}: {name}"] += 1
    for why, count in sorted(left.items()):
        print(f"left out, {why} ({count})")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "module_db.safetensors"
        write_goldens(made, path)
        print(f"{len(made)} samples of {len({case['type'] for _, (case, _) in made})} types, torch {torch.__version__}", flush=True)
        tests = "layers print*,layers' gradients*,layers in a region*,layers on meta*,a layer's state_dict*,losses compute*"
        environment = {**os.environ, "HALFSTEP_LAYER_GOLDENS": str(path)}
        return subprocess.run([program, f"-tc={tests}"], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
