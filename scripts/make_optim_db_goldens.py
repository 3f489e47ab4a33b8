#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/apps/catalog/optim_db.safetensors: what PyTorch's optimizers do under the settings of its own tests
(torch.testing._internal.common_optimizers.optim_db), for every optimizer that a config can name.

Run by hand where torch, numpy, expecttest and safetensors are installed; tests only read the file:
    python3 scripts/make_optim_db_goldens.py
The metadata has each case under its key: type and args as a config has them, with PyTorch's learning rate where the setting has
none. The tensor KEY has the parameters [steps, 2, 3] in float64 after each of STEPS steps, for the problem of
make_optim_goldens.py: parameters (i - 2.5) / 2, gradient of step t sin(0.7 i + 0.9 t) + 0.3 p.
"""
import inspect
import json
import math
import pathlib

import torch
from safetensors.torch import save_file
from torch.testing._internal.common_optimizers import optim_db

torch.set_default_dtype(torch.float64)  # ASGD keeps its step size in this dtype
STEPS = (1, 2, 5, 20)
# LBFGS takes a closure, and is compared in tests/optim; SparseAdam takes sparse gradients.
LEFT_OUT = {"LBFGS", "SparseAdam"}


def trajectory(kind, options):
    p = torch.tensor([(i - 2.5) / 2 for i in range(6)], dtype=torch.float64).reshape(2, 3).requires_grad_()
    optimizer, recorded = kind([p], **options), []
    for t in range(max(STEPS)):
        moved = torch.tensor([math.sin(0.7 * i + 0.9 * t) for i in range(6)], dtype=torch.float64)
        p.grad = moved.reshape(2, 3) + 0.3 * p.detach()
        optimizer.step()
        if t + 1 in STEPS:
            recorded.append(p.detach().clone())
    return torch.stack(recorded)


def main():
    tensors, metadata = {}, {"torch": torch.__version__, "steps": json.dumps(STEPS)}
    for info in optim_db:
        kind = info.optim_cls
        if kind.__name__ in LEFT_OUT:
            continue
        rate = inspect.signature(kind.__init__).parameters["lr"].default
        for setting in info.optim_inputs_func(device="cpu"):
            options = {"lr": float(rate), **setting.kwargs}
            options["lr"] = float(options["lr"])  # some are tensors
            key = f"{kind.__name__} {len(tensors):02d}"
            tensors[key] = trajectory(kind, options)
            metadata[key] = json.dumps({"type": kind.__name__, "args": options})
    path = pathlib.Path(__file__).resolve().parent.parent / "tests/apps/catalog/optim_db.safetensors"
    save_file(tensors, path, metadata=metadata)
    print(f"{path}: {len(tensors)} cases, {path.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
