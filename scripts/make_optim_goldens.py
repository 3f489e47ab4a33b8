#!/usr/bin/env python3
"""Writes tests/optim/torch_goldens.h: optimizer and schedule trajectories as PyTorch computes them, in float64.

Usage: python3 scripts/make_optim_goldens.py > tests/optim/torch_goldens.h   (needs torch)

The problem: 6 parameters p_i = (i - 2.5) / 2, gradient of step t (from 0): sin(0.7 i + 0.9 t) + 0.3 p_i.
"""
import math

import torch

STEPS = (1, 5, 20)  # parameters are recorded after these many steps

CASES = [
    ("sgd", torch.optim.SGD, dict(lr=0.1)),
    ("sgd_decay", torch.optim.SGD, dict(lr=0.1, weight_decay=0.2)),
    ("sgd_momentum", torch.optim.SGD, dict(lr=0.05, momentum=0.9)),
    ("sgd_dampening", torch.optim.SGD, dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.1)),
    ("sgd_nesterov", torch.optim.SGD, dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1)),
    ("sgd_maximize", torch.optim.SGD, dict(lr=0.05, momentum=0.5, maximize=True)),
    ("adam", torch.optim.Adam, dict(lr=0.05)),
    ("adam_decay", torch.optim.Adam, dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2)),
    ("adam_amsgrad", torch.optim.Adam, dict(lr=0.05, betas=(0.5, 0.6), amsgrad=True)),
    ("adam_maximize", torch.optim.Adam, dict(lr=0.05, maximize=True)),
    ("adamw", torch.optim.AdamW, dict(lr=0.05)),
    ("adamw_amsgrad", torch.optim.AdamW, dict(lr=0.05, betas=(0.5, 0.6), weight_decay=0.3, amsgrad=True)),
]


def numbers(values, indent):
    """A C++ list, three numbers a line."""
    text = [f"{float(v):.17g}" for v in values]
    rows = [", ".join(text[i : i + 3]) for i in range(0, len(text), 3)]
    return "{" + (",\n" + " " * indent).join(rows) + "}"


def trajectory(kind, options):
    p = torch.tensor([(i - 2.5) / 2 for i in range(6)], dtype=torch.float64, requires_grad=True)
    optimizer = kind([p], **options)
    recorded = []
    for t in range(max(STEPS)):
        p.grad = torch.tensor([math.sin(0.7 * i + 0.9 * t) for i in range(6)], dtype=torch.float64) + 0.3 * p.detach()
        optimizer.step()
        if t + 1 in STEPS:
            recorded.append(p.detach().clone())
    return recorded


def rates(make, steps):
    p = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.3)
    schedule = make(optimizer)
    out = []
    for _ in range(steps):
        out.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return out


print(f"// PyTorch {torch.__version__.split('+')[0]}'s trajectories; written by scripts/make_optim_goldens.py.")
print("#pragma once\n\n#include <vector>\n\nnamespace goldens {\n")
print("struct Trajectory {\n  const char* name;\n  double at[3][6];  // after 1, 5 and 20 steps\n};")
print("inline constexpr Trajectory kTrajectories[] = {")
for name, kind, options in CASES:
    rows = ",\n      ".join(numbers(r, 7) for r in trajectory(kind, options))
    print(f'    {{"{name}",\n     {{{rows}}}}},')
print("};\n")
cosine = rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=10, eta_min=0.01), 11)
steps = rates(lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=3, gamma=0.5), 11)
print(f"// lr 0.3; CosineAnnealingLR(T_max=10, eta_min=0.01) and StepLR(step_size=3, gamma=0.5), after 0 to 10 steps")
print(f"inline const std::vector<double> kCosine = {numbers(cosine, 4)};")
print(f"inline const std::vector<double> kStep = {numbers(steps, 4)};")
print("\n}  // namespace goldens")
