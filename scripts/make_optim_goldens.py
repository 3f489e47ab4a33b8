#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/optim/torch_goldens.safetensors: optimizer and schedule trajectories in float64, as PyTorch computes them. Of
optimizers that PyTorch lacks the formulas of the papers are written out here.

Run by hand where torch and safetensors are installed; tests only read the file: python3 scripts/make_optim_goldens.py

`trajectory NAME` [4, 6]: parameters after each of STEPS. The problem: 6 parameters p_i = (i - 2.5) / 2, gradient of step t (from
0): sin(0.7 i + 0.9 t) + 0.3 p_i. `lbfgs NAME` [3, 6], `evaluations NAME` [3]: Rosenbrock's function after 1, 3 and 6 steps.
`rates NAME` [82]: pairs of rate and momentum after 0 to 40 steps, from 0.3 and 0.9; plateaus see
2 + cos(0.4 step) / (1 + 0.1 step).
"""
import math
import pathlib

import torch
from safetensors.torch import save_file
from torch.optim import lr_scheduler

STEPS = (1, 5, 20, 200)  # parameters are recorded after these many steps
torch.set_default_dtype(torch.float64)


class Formula(torch.optim.Optimizer):
    """Makes an optimizer of one parameter from a function f(p, g, t, state, **options) -> new p, with t from 1."""

    def __init__(self, params, **options):
        super().__init__(params, options)
        self.t, self.kept = 0, {}

    def step(self):
        self.t += 1
        for group in self.param_groups:
            options = {k: v for k, v in group.items() if k != "params"}
            for p in group["params"]:
                p.data = self.formula(p.data, p.grad, self.t, self.kept, **options)


class Lion(Formula):
    """Implements Chen et al. 2023, algorithm 2."""

    @staticmethod
    def formula(p, g, t, kept, lr, betas, weight_decay=0.0):
        m = kept.get("m", torch.zeros_like(p))
        c = betas[0] * m + (1 - betas[0]) * g
        kept["m"] = betas[1] * m + (1 - betas[1]) * g
        return p - lr * (torch.sign(c) + weight_decay * p)


class LAMB(Formula):
    """Implements You et al. 2020, algorithm 2, with phi the identity; the ratio is 1 if either norm is 0."""

    @staticmethod
    def formula(p, g, t, kept, lr, betas, eps=1e-6, weight_decay=0.01, always_adapt=False):
        m = betas[0] * kept.get("m", torch.zeros_like(p)) + (1 - betas[0]) * g
        v = betas[1] * kept.get("v", torch.zeros_like(p)) + (1 - betas[1]) * g**2
        kept.update(m=m, v=v)
        r = (m / (1 - betas[0] ** t)) / (torch.sqrt(v / (1 - betas[1] ** t)) + eps) + weight_decay * p
        ratio = p.norm() / r.norm() if p.norm() > 0 and r.norm() > 0 else 1.0
        return p - lr * (ratio if weight_decay or always_adapt else 1.0) * r


class AdEMAMix(Formula):
    """Implements Pagliardini, Ablin & Grangier 2024, algorithm 1, with the schedulers of their section 3."""

    @staticmethod
    def formula(p, g, t, kept, lr, betas, alpha, eps=1e-8, weight_decay=0.0, warmup=0):
        b1, b2, b3 = betas
        if warmup:
            alpha = min(t * alpha / warmup, alpha)
            life = lambda b: math.log(0.5) / math.log(b + 1e-8) - 1
            if t < warmup:
                b3 = 0.5 ** (1 / ((1 - t / warmup) * life(b1) + t / warmup * life(b3) + 1))
        zero = torch.zeros_like(p)
        m1 = b1 * kept.get("m1", zero) + (1 - b1) * g
        m2 = b3 * kept.get("m2", zero) + (1 - b3) * g
        v = b2 * kept.get("v", zero) + (1 - b2) * g**2
        kept.update(m1=m1, m2=m2, v=v)
        update = (m1 / (1 - b1**t) + alpha * m2) / (torch.sqrt(v / (1 - b2**t)) + eps)
        return p - lr * (update + weight_decay * p)


O = torch.optim
CASES = [  # the names begin with the optimizer's and are those of tests/optim/problem.h; a last item: the shape
    ("sgd", O.SGD, dict(lr=0.1)),
    ("sgd_decay", O.SGD, dict(lr=0.1, weight_decay=0.2)),
    ("sgd_momentum", O.SGD, dict(lr=0.05, momentum=0.9)),
    ("sgd_dampening", O.SGD, dict(lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.1)),
    ("sgd_nesterov", O.SGD, dict(lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1)),
    ("sgd_maximize", O.SGD, dict(lr=0.01, momentum=0.5, maximize=True)),
    ("adam", O.Adam, dict(lr=0.05)),
    ("adam_decay", O.Adam, dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2)),
    ("adam_amsgrad", O.Adam, dict(lr=0.05, betas=(0.5, 0.6), amsgrad=True)),
    ("adam_maximize", O.Adam, dict(lr=0.05, maximize=True)),
    ("adamw", O.AdamW, dict(lr=0.05)),
    ("adamw_amsgrad", O.AdamW, dict(lr=0.05, betas=(0.5, 0.6), weight_decay=0.3, amsgrad=True)),
    ("nadam", O.NAdam, dict(lr=0.05)),
    ("nadam_decay", O.NAdam, dict(lr=0.05, betas=(0.8, 0.95), weight_decay=0.1, momentum_decay=0.03)),
    ("nadam_decoupled", O.NAdam, dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    ("radam", O.RAdam, dict(lr=0.05)),
    ("radam_decay", O.RAdam, dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2)),
    ("radam_decoupled", O.RAdam, dict(lr=0.05, betas=(0.9, 0.9), weight_decay=0.2, decoupled_weight_decay=True, maximize=True)),
    ("adamax", O.Adamax, dict(lr=0.05)),
    ("adamax_decay", O.Adamax, dict(lr=0.05, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.2, maximize=True)),
    ("rmsprop", O.RMSprop, dict(lr=0.05)),
    ("rmsprop_momentum", O.RMSprop, dict(lr=0.02, alpha=0.9, momentum=0.8, weight_decay=0.1)),
    ("rmsprop_centered", O.RMSprop, dict(lr=0.01, alpha=0.9, eps=1e-3, centered=True)),
    ("rmsprop_all", O.RMSprop, dict(lr=0.005, alpha=0.8, eps=1e-2, momentum=0.5, centered=True, weight_decay=0.1, maximize=True)),
    ("adagrad", O.Adagrad, dict(lr=0.1)),
    ("adagrad_all", O.Adagrad, dict(lr=0.1, lr_decay=0.02, weight_decay=0.1, initial_accumulator_value=0.3, eps=1e-4,
                                    maximize=True)),
    ("adadelta", O.Adadelta, dict(lr=1.0)),
    ("adadelta_all", O.Adadelta, dict(lr=0.5, rho=0.8, eps=1e-4, weight_decay=0.1, maximize=True)),
    ("asgd", O.ASGD, dict(lr=0.05)),
    ("asgd_all", O.ASGD, dict(lr=0.05, lambd=0.01, alpha=0.6, t0=7, weight_decay=0.1, maximize=True)),
    ("rprop", O.Rprop, dict(lr=0.02)),
    ("rprop_all", O.Rprop, dict(lr=0.02, etas=(0.4, 1.3), step_sizes=(1e-3, 0.05), maximize=True)),
    ("lion", Lion, dict(lr=0.02, betas=(0.9, 0.99))),
    ("lion_decay", Lion, dict(lr=0.02, betas=(0.8, 0.95), weight_decay=0.3)),
    ("lamb", LAMB, dict(lr=0.05, betas=(0.9, 0.999))),
    ("lamb_plain", LAMB, dict(lr=0.05, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.0)),
    ("lamb_always", LAMB, dict(lr=0.05, betas=(0.8, 0.95), weight_decay=0.0, always_adapt=True)),
    ("ademamix", AdEMAMix, dict(lr=0.02, betas=(0.9, 0.999, 0.9999), alpha=2.0)),
    ("ademamix_warmup", AdEMAMix, dict(lr=0.02, betas=(0.8, 0.95, 0.99), alpha=5.0, weight_decay=0.1, warmup=50)),
    ("adafactor", O.Adafactor, dict(lr=0.05, eps=(2.0**-23, 1e-3))),
    ("adafactor_matrix", O.Adafactor, dict(lr=0.05, eps=(2.0**-23, 1e-3)), (2, 3)),
    ("adafactor_all", O.Adafactor, dict(lr=0.1, beta2_decay=-0.5, eps=(1e-6, 1e-2), d=1.5, weight_decay=0.1), (3, 2)),
    ("muon", O.Muon, dict(lr=0.02), (2, 3)),
    ("muon_tall", O.Muon, dict(lr=0.02, momentum=0.8, nesterov=False, weight_decay=0.3, ns_steps=4, adjust_lr_fn="match_rms_adamw"),
     (3, 2)),
    ("muon_wide", O.Muon, dict(lr=0.02, adjust_lr_fn="spectral_unclamped"), (2, 3)),
]


def trajectory(kind, options, shape=(6,)):
    p = torch.tensor([(i - 2.5) / 2 for i in range(6)]).reshape(shape).requires_grad_()
    optimizer = kind([p], **options)
    recorded = []
    for t in range(max(STEPS)):
        p.grad = torch.tensor([math.sin(0.7 * i + 0.9 * t) for i in range(6)]).reshape(shape) + 0.3 * p.detach()
        optimizer.step()
        if t + 1 in STEPS:
            recorded.append(p.detach().flatten().clone())
    return recorded


def lbfgs(**options):
    """Minimises Rosenbrock's function of 6 variables from -1.2, 1, ...; returns point and evaluations after 1, 3 and 6 steps."""
    p = torch.tensor([-1.2, 1.0] * 3).requires_grad_()
    optimizer = O.LBFGS([p], **options)
    calls, out = 0, []

    def closure():
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()
        loss.backward()
        return loss

    for step in range(6):
        optimizer.step(closure)
        if step + 1 in (1, 3, 6):
            out.append((calls, p.detach().clone()))
    return out


def rates(make, steps=41, metrics=None):
    """Returns pairs of rate and momentum, after 0 to steps - 1 steps."""
    p = torch.zeros(1, requires_grad=True)
    optimizer = O.SGD([p], lr=0.3, momentum=0.9)
    schedule = make(optimizer)
    out = []
    for step in range(steps):
        group = optimizer.param_groups[0]
        out += [group["lr"], group["momentum"]]
        optimizer.step()
        schedule.step(*([] if metrics is None else [metrics(step)]))
    return out


L = lr_scheduler
SCHEDULES = [  # the names are those of tests/optim/schedule_test.cpp
    ("step", lambda o: L.StepLR(o, step_size=3, gamma=0.5)),
    ("multi_step", lambda o: L.MultiStepLR(o, milestones=[4, 9, 9, 20], gamma=0.5)),
    ("exponential", lambda o: L.ExponentialLR(o, gamma=0.9)),
    ("polynomial", lambda o: L.PolynomialLR(o, total_iters=15, power=2.0)),
    ("linear", lambda o: L.LinearLR(o, start_factor=0.25, end_factor=0.75, total_iters=7)),
    ("constant", lambda o: L.ConstantLR(o, factor=0.2, total_iters=6)),
    ("lambda", lambda o: L.LambdaLR(o, lambda t: 1 / (1 + t * t))),
    ("cosine", lambda o: L.CosineAnnealingLR(o, T_max=40, eta_min=0.01)),
    ("restarts", lambda o: L.CosineAnnealingWarmRestarts(o, T_0=6, eta_min=0.02)),
    ("restarts_longer", lambda o: L.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.0)),
    ("one_cycle", lambda o: L.OneCycleLR(o, max_lr=0.6, total_steps=42)),
    ("one_cycle_three", lambda o: L.OneCycleLR(o, max_lr=0.6, total_steps=42, pct_start=0.25, anneal_strategy="linear",
                                               div_factor=10,
                                               final_div_factor=100, three_phase=True, base_momentum=0.7, max_momentum=0.9)),
    ("cyclic", lambda o: L.CyclicLR(o, base_lr=0.1, max_lr=0.5, step_size_up=5, step_size_down=9)),
    ("cyclic_halving", lambda o: L.CyclicLR(o, base_lr=0.1, max_lr=0.5, step_size_up=6, mode="triangular2", base_momentum=0.7)),
    ("cyclic_range", lambda o: L.CyclicLR(o, base_lr=0.1, max_lr=0.5, step_size_up=6, mode="exp_range", gamma=0.95,
                                          cycle_momentum=False)),
    ("chained", lambda o: L.ChainedScheduler([L.ConstantLR(o, factor=0.1, total_iters=5), L.ExponentialLR(o, gamma=0.9)])),
    ("sequential", lambda o: L.SequentialLR(o, [L.LinearLR(o, start_factor=0.1, total_iters=8), L.ExponentialLR(o, gamma=0.9)],
                                            milestones=[10])),
]
PLATEAUS = [
    ("plateau", lambda o: L.ReduceLROnPlateau(o, factor=0.5, patience=2, cooldown=1, min_lr=0.02)),
    ("plateau_max", lambda o: L.ReduceLROnPlateau(o, mode="max", factor=0.3, patience=1, threshold=0.05, threshold_mode="abs")),
]


LBFGS = [("plain", dict(lr=2e-3, max_iter=8, history_size=3)), ("wolfe", dict(max_iter=6, line_search_fn="strong_wolfe")),
         ("wolfe_short", dict(lr=0.5, max_iter=5, max_eval=9, history_size=2, line_search_fn="strong_wolfe"))]


def metric(step):
    return 2 + math.cos(0.4 * step) / (1 + 0.1 * step)


def main():
    tensors = {f"trajectory {name}": torch.stack(trajectory(kind, options, *shape)) for name, kind, options, *shape in CASES}
    for name, options in LBFGS:
        found = lbfgs(**options)
        tensors[f"lbfgs {name}"] = torch.stack([point for _, point in found])
        tensors[f"evaluations {name}"] = torch.tensor([calls for calls, _ in found])
    for name, make in SCHEDULES:
        tensors[f"rates {name}"] = torch.tensor(rates(make))
    for name, make in PLATEAUS:
        tensors[f"rates {name}"] = torch.tensor(rates(make, metrics=metric))
    path = pathlib.Path(__file__).resolve().parent.parent / "tests/optim/torch_goldens.safetensors"
    save_file(tensors, path, metadata={"torch": torch.__version__})
    print(f"{path}: {len(tensors)} tensors, {path.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
