#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws training histories from a seed, runs each in PyTorch, and writes tests/amp/histories.safetensors: what each is, and the
numbers of all its steps. tests/amp/histories_test.cpp replays them.

Run by hand where torch and safetensors are installed; tests only read the file:
    python3 scripts/make_history_goldens.py [--seed N] [--count 300] [--out FILE] [--only N]
A history that PyTorch refuses, or whose numbers are not finite, or move by more than the test allows where the first weights move
by one rounding, is drawn again; the last line counts why. What is not drawn, because halfstep differs on purpose:
  - two schedules of which one sets rates whatever the other makes of them (LambdaLR, CosineAnnealingWarmRestarts, OneCycleLR,
    CyclicLR), also in a ChainedScheduler: halfstep refuses them; a rate set by hand beside them is used for one step
  - CosineAnnealingLR beyond T_max, where PyTorch's rate rises again, and with eta_min beside other schedules
  - OneCycleLR and CyclicLR within a SequentialLR, which in PyTorch change the rates of the schedules before them
  - a group added beside a schedule that keeps a list of rates, which PyTorch refuses
  - ConstantLR with total_iters=0: its factor stays for good in PyTorch, but not by PyTorch's own closed form
  - dampening of SGD that is there when momentum is switched on: PyTorch's first buffer is then the whole gradient
  - t0 of ASGD that changes on the way: PyTorch's mu is that of the old one for one more step
  - gradients near the largest float32, and an infinite scaled loss whose gradient is 0 (MultiMarginLoss): whether something
    overflows on the way depends on the order of factors
"""
import argparse
import collections
import json
import math
import pathlib
import random
import warnings

import torch
from safetensors.torch import save_file

from history_torch import History

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
LAYERS = {"mlp": [[0, 1], [2, 3]], "deep": [[0, 1], [2, 3], [4, 5]], "bn": [[0], [1, 2], [3, 4]], "ln": [[0, 1], [2, 3], [4, 5]],
          "conv": [[0, 1], [2, 3]]}
STATES = {"SGD": ["momentum_buffer"], "Adam": ["exp_avg", "exp_avg_sq", "step"], "NAdam": ["exp_avg", "exp_avg_sq", "mu_product"],
          "RAdam": ["exp_avg", "exp_avg_sq", "step"], "Adamax": ["exp_avg", "exp_inf", "step"], "RMSprop": ["square_avg", "step"],
          "Adagrad": ["sum", "step"], "Adadelta": ["square_avg", "acc_delta", "step"], "ASGD": ["ax", "eta", "mu", "step"],
          "Rprop": ["prev", "step_size", "step"], "Adafactor": ["row_var", "col_var", "variance", "step"],
          "Muon": ["momentum_buffer"], "LBFGS": []}
STATES["AdamW"] = STATES["Adam"]


def tolerance(scale):
    return 1e-5 * (scale + 0.01)


class Draw(random.Random):
    def maybe(self, share):
        return self.random() < share

    def near(self, low, high):
        return float(f"{math.exp(self.uniform(math.log(low), math.log(high))):.3g}")

    def some(self, **options):
        """Draws each option with a probability; its choices are a list."""
        return {k: self.choice(v) for k, v in options.items() if self.maybe(0.45)}

    # ---- parts of a history
    def optimizer(self):
        kind = self.choice(["SGD"] * 4 + ["Adam"] * 3 + ["AdamW"] * 3 + ["RMSprop"] * 2 + sorted(set(STATES) - {"AdamW", "SGD"}))
        decay, betas, eps = [0.02, 0.2], [[0.8, 0.95], [0.5, 0.6], [0.9, 0.9]], [1e-6, 1e-3]
        up = [True, False, False]
        if kind == "SGD":
            a = {"lr": self.near(0.02, 0.3), **self.some(momentum=[0.5, 0.9], weight_decay=decay, maximize=up)}
            a.update(self.some(nesterov=[True], dampening=[0.3]) if "momentum" in a else {})
            if a.get("nesterov"):
                a.pop("dampening", 0)
        elif kind in ("Adam", "AdamW"):
            a = {"lr": self.near(0.005, 0.1), **self.some(betas=betas, eps=eps, weight_decay=decay, amsgrad=[True], maximize=up)}
        elif kind == "NAdam":
            a = {"lr": self.near(0.005, 0.1), **self.some(betas=betas, eps=eps, weight_decay=decay, momentum_decay=[0.0, 0.05],
                                                          decoupled_weight_decay=[True], maximize=up)}
        elif kind == "RAdam":
            a = {"lr": self.near(0.005, 0.1),
                 **self.some(betas=betas, eps=eps, weight_decay=decay, decoupled_weight_decay=[True], maximize=up)}
        elif kind == "Adamax":
            a = {"lr": self.near(0.005, 0.1), **self.some(betas=betas, eps=eps, weight_decay=decay, maximize=up)}
        elif kind == "RMSprop":
            a = {"lr": self.near(0.002, 0.02), **self.some(alpha=[0.8, 0.9], eps=eps, weight_decay=decay, momentum=[0.5, 0.9],
                                                            centered=[True], maximize=up)}
        elif kind == "Adagrad":
            a = {"lr": self.near(0.02, 0.2), **self.some(lr_decay=[0.05], weight_decay=decay, initial_accumulator_value=[0.3],
                                                          eps=eps, maximize=up)}
        elif kind == "Adadelta":
            a = {"lr": self.near(0.3, 2), **self.some(rho=[0.7, 0.95], eps=[1e-4, 1e-3], weight_decay=decay, maximize=up)}
        elif kind == "ASGD":
            a = {"lr": self.near(0.02, 0.2), **self.some(lambd=[0.01, 0.1], alpha=[0.5, 1.0], t0=[0.0, 3.0, 6.0],
                                                          weight_decay=decay, maximize=up)}
        elif kind == "Rprop":
            a = {"lr": self.near(0.005, 0.05), **self.some(etas=[[0.4, 1.3]], step_sizes=[[1e-3, 0.05]], maximize=up)}
        elif kind == "Adafactor":
            a = {"lr": self.near(0.01, 0.1), **self.some(beta2_decay=[-0.5], eps=[[1e-6, 1e-2]], d=[1.5], weight_decay=decay,
                                                          maximize=up)}
        elif kind == "Muon":
            a = {"lr": self.near(1e-4, 1e-3), **self.some(weight_decay=decay, momentum=[0.8], nesterov=[False], ns_steps=[4],
                                                          adjust_lr_fn=["match_rms_adamw"], adamw_lr=[0.01])}
        else:
            a = {"lr": self.near(0.1, 0.5), "max_iter": self.choice([2, 3, 4]),
                 **self.some(history_size=[2], line_search_fn=["strong_wolfe"])}
        return {"kind": kind, "args": a}

    def loss(self, net):
        kind = self.choice(["CrossEntropyLoss"] * 5 + ["NLLLoss", "MSELoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss",
                                                       "BCEWithLogitsLoss", "PoissonNLLLoss", "KLDivLoss", "SoftMarginLoss",
                                                       "MultiMarginLoss"])
        if kind == "MultiMarginLoss" and net == "conv":
            kind = "CrossEntropyLoss"
        out, weight = {"kind": kind}, [0.2, 1.0, 2.5]
        if kind in ("CrossEntropyLoss", "NLLLoss"):
            out.update(self.some(weight=[weight], ignored=[2, 4, 6]))
        if kind == "CrossEntropyLoss":
            out.update(self.some(label_smoothing=[0.1]))
        if kind == "MultiMarginLoss":
            out.update(self.some(weight=[weight], p=[2], margin=[0.5]))
        if kind == "BCEWithLogitsLoss" and net != "conv":
            out.update(self.some(weight=[weight], pos_weight=[[2.0, 0.5, 1.0]]))
        if kind == "HuberLoss":
            out.update(self.some(delta=[0.5]))
        if kind == "SmoothL1Loss":
            out.update(self.some(beta=[0.5]))
        if kind == "PoissonNLLLoss":
            out.update(self.some(full=[True]))
        if self.maybe(0.15):
            out["reduction"] = "sum"
        elif kind == "KLDivLoss" and self.maybe(0.5):
            out["reduction"] = "batchmean"
        return out

    def relative(self, steps, alone):
        """Draws a schedule that changes the rate of the one before it."""
        kind = self.choice(["StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR", "CosineAnnealingLR",
                            "MultiplicativeLR"])
        n = self.randint
        args = {"StepLR": lambda: {"step_size": n(1, 4), "gamma": self.choice([0.5, 0.7, 1.3])},
                "MultiStepLR": lambda: {"milestones": sorted(n(0, steps) for _ in range(n(1, 3))), "gamma": 0.4},
                "ConstantLR": lambda: {"factor": self.choice([0.3, 0.5]), "total_iters": n(1, 5)},
                "LinearLR": lambda: {"start_factor": self.choice([0.2, 1.0]), "end_factor": self.choice([1.0, 0.5, 0.0]),
                                     "total_iters": n(1, 8)},
                "ExponentialLR": lambda: {"gamma": self.choice([0.8, 0.95, 1.1])},
                "PolynomialLR": lambda: {"total_iters": n(2, 2 * steps), "power": self.choice([1.0, 2.0, 0.5])},
                "CosineAnnealingLR": lambda: {"T_max": n(steps, 2 * steps),
                                              "eta_min": self.choice([0.0, 0.003]) if alone else 0.0},
                "MultiplicativeLR": lambda: {"lambda": [0.85, self.choice([0.0, 0.05])]}}[kind]()
        return {"kind": kind, "args": args}

    def absolute(self, steps, lr):
        kind, n = self.choice(["LambdaLR", "CosineAnnealingWarmRestarts", "OneCycleLR", "CyclicLR"]), self.randint
        args = {"LambdaLR": lambda: {"lambda": [0.5, self.choice([0.1, -0.1])]},
                "CosineAnnealingWarmRestarts": lambda: {"T_0": n(2, 5), "T_mult": n(1, 2), "eta_min": self.choice([0.0, 0.002])},
                "OneCycleLR": lambda: {"max_lr": lr * 2, "total_steps": n(steps + 2, 2 * steps),
                                       "pct_start": self.choice([0.3, 0.5]),
                                       **self.some(anneal_strategy=["linear"], three_phase=[True], div_factor=[10.0])},
                "CyclicLR": lambda: {"base_lr": lr / 2, "max_lr": lr * 2, "step_size_up": n(2, 4),
                                     **self.some(step_size_down=[2, 3], mode=["triangular2", "exp_range"], gamma=[0.95])}}[kind]()
        return {"kind": kind, "args": args}

    def schedules(self, steps, opt):
        lr, shape = opt["args"]["lr"], self.random()
        if shape < 0.2:
            return []
        if shape < 0.4:
            return [self.relative(steps, True)]
        if shape < 0.52:
            s = self.absolute(steps, lr)
            if s["kind"] in ("OneCycleLR", "CyclicLR"):
                has_momentum = opt["kind"] in ("SGD", "RMSprop", "Adam", "AdamW", "NAdam", "RAdam", "Adamax")
                # Of RMSprop a buffer would begin on the way, which PyTorch has not.
                moves = has_momentum and self.maybe(0.7) and (opt["kind"] != "RMSprop" or opt["args"].get("momentum", 0) > 0)
                s["args"]["cycle_momentum"] = moves and not opt["args"].get("nesterov")
                s["args"].update({"base_momentum": 0.6, "max_momentum": 0.9} if s["args"]["cycle_momentum"] else {})
            return [s]
        plateau = {"kind": "ReduceLROnPlateau", "args": {"factor": 0.5, "patience": self.randint(0, 2),
                                                         **self.some(cooldown=[1], min_lr=[lr * 0.3], mode=["max"],
                                                                     threshold_mode=["abs"], threshold=[0.1])}}
        if shape < 0.6:
            return [plateau]
        if shape < 0.7:
            return [self.relative(steps, False), self.relative(steps, False)]
        if shape < 0.74:
            return [plateau, self.relative(steps, False)]
        if shape < 0.84:
            parts = [self.relative(steps, False) for _ in range(self.randint(2, 3))]
            if self.maybe(0.3):
                parts[-1] = {"kind": "LambdaLR", "args": {"lambda": [0.5, 0.1]}}
            marks = sorted(self.sample(range(1, steps), len(parts) - 1))
            return [{"kind": "SequentialLR", "args": {"parts": parts, "milestones": marks}}]
        if shape < 0.94:
            parts = [self.relative(steps, False) for _ in range(self.randint(2, 3))]
            return [{"kind": "ChainedScheduler", "args": {"parts": parts}}]
        return [{"kind": "Epochs", "args": {"of": self.relative(steps, True), "steps": self.randint(2, 4)}}]

    def option(self, opt):
        """Draws a change of an option during the training."""
        own = {"SGD": [("momentum", [0.0, 0.3, 0.8]), ("weight_decay", [0.0, 0.1])],
               "RMSprop": [("alpha", [0.7]), ("eps", [1e-2]), ("weight_decay", [0.0, 0.1])],
               "Adagrad": [("lr_decay", [0.1]), ("eps", [1e-2])], "Adadelta": [("rho", [0.5]), ("eps", [1e-2])],
               "ASGD": [("lambd", [0.05]), ("alpha", [0.9])], "Rprop": [("etas", [[0.3, 1.1]])],
               "Adafactor": [("d", [2.0]), ("weight_decay", [0.1])], "Muon": [], "LBFGS": []}
        adam = [("betas", [[0.7, 0.9], [0.0, 0.99]]), ("eps", [1e-2]), ("weight_decay", [0.0, 0.1]), ("maximize", [True, False])]
        choices = own.get(opt["kind"], adam)
        if not choices:
            return None
        name, values = self.choice(choices)
        if opt["args"].get("nesterov") and name in ("momentum", "dampening"):
            name, values = "weight_decay", [0.05]
        return [name, self.choice(values)]

    def history(self, n):
        opt = self.optimizer()
        kind = opt["kind"]
        lbfgs, muon = kind == "LBFGS", kind == "Muon"
        net = self.choice(["mlp", "deep", "bn", "ln", "conv"] if not lbfgs and not muon else ["mlp", "deep"])
        steps, layers = self.randint(6, 13), LAYERS[net]
        spec = {"n": n, "net": net, "loss": self.loss(net), "opt": opt, "states": list(STATES[kind]), "steps": steps}
        if opt["args"].get("amsgrad"):
            spec["states"].append("max_exp_avg_sq")
        if kind == "RMSprop":
            spec["states"] += (["momentum_buffer"] if opt["args"].get("momentum", 0) > 0 else []) + \
                (["grad_avg"] if opt["args"].get("centered") else [])
        later = []
        if lbfgs or muon or self.maybe(0.4):
            groups, own = [sum(layers, [])], [{}]
        else:
            groups = [list(ids) for ids in layers]
            own = [self.group_args(opt) for _ in groups]
            if self.maybe(0.6):
                later = [(groups.pop(), own.pop())]
        spec["groups"], spec["group_args"] = groups, own
        spec["schedules"] = self.schedules(steps, opt)
        spec["momenta"] = any(s["args"].get("cycle_momentum") for s in spec["schedules"])
        spec["averages"] = []
        if self.maybe(0.55):
            for _ in range(1 if self.maybe(0.8) else 2):
                spec["averages"].append(self.choice([{"decay": 0.7}, {"decay": 0.9, "warm_up": True}, {"equal": True}]) |
                                        self.some(start=[1, 3], every=[2, 3]))
        plain = lbfgs or muon
        spec["scaler"] = None
        if not plain and self.maybe(0.5):
            spec["scaler"] = {"init_scale": self.choice([2.0**40, 2.0**60]), "growth_interval": self.randint(1, 4),
                              **self.some(growth_factor=[4.0], backoff_factor=[0.25])}
        spec["clip"] = {}
        if not lbfgs and self.maybe(0.4):
            spec["clip"] = self.choice([{"norm": 0.3}, {"value": 0.05}, {"norm": 0.5, "value": 0.1}, {"norm": 0.3, "type": 1.0},
                                        {"norm": 0.2, "type": 0}])
        spec["mode"] = self.choice(["step", "loop"])
        if spec["mode"] == "step" and "type" in spec["clip"]:
            del spec["clip"]["type"]
        spec["accumulate"] = 1 if lbfgs or self.maybe(0.6) else self.randint(2, 3)
        spec["batch"] = self.choice([4, 5, 6, 8])
        spec["metrics"] = [round(self.uniform(0.5, 1.5) - 0.03 * t, 3) for t in range(steps)] \
            if any(s["kind"] == "ReduceLROnPlateau" for s in spec["schedules"]) else []
        spec["events"], count = [], len(groups)
        kept = ("LambdaLR", "CosineAnnealingWarmRestarts", "OneCycleLR", "CyclicLR", "CosineAnnealingLR", "MultiplicativeLR")
        lists = any(kind in json.dumps(spec["schedules"]) for kind in kept)  # of rates, so that PyTorch takes no other group
        for t in range(1, steps):
            if later and not lists and self.maybe(0.3):
                ids, args = later.pop()
                spec["events"].append([t, "add", ids, args])
                count += 1
            if self.maybe(0.12):
                g = -1 if plain else self.choice([-1, self.randrange(count)])
                spec["events"].append([t, "lr", g, float(f"{opt['args']['lr'] * self.uniform(0.3, 1.5):.3g}")])
            if self.maybe(0.1) and not spec["momenta"] and (change := self.option(opt)):
                spec["events"].append([t, "option", self.randrange(count)] + change)
            if self.maybe(0.12):
                spec["events"].append([t, "batch", self.choice([3, 4, 6, 7])])
            if self.maybe(0.15):
                i = self.randrange(sum(map(len, layers)) - 2)
                frozen = [e for e in spec["events"] if e[1] in ("freeze", "thaw") and e[2] == i]
                spec["events"].append([t, "thaw" if frozen and frozen[-1][1] == "freeze" else "freeze", i])
            if spec["scaler"] and spec["loss"]["kind"] != "MultiMarginLoss" and self.maybe(0.12):
                spec["events"].append([t, "factor", self.choice([1e35, 1e35, 1e39])])
            if spec["scaler"] and self.maybe(0.05):
                spec["events"].append([t, "scale", 2.0**self.randint(30, 60)])
            if spec["averages"] and self.maybe(0.08):
                spec["events"].append([t, "put"])
            if spec["averages"] and spec["mode"] == "loop" and self.maybe(0.2):
                spec["events"].append([t, "evaluate"])
        spec["saves"] = sorted(self.sample(range(1, steps), self.randint(1, 3)))
        return spec

    def group_args(self, opt):
        own = {}
        if self.maybe(0.6):
            own["lr"] = float(f"{opt['args']['lr'] * self.choice([0.3, 0.5, 2.0]):.3g}")
        change = self.option(opt)
        if change and self.maybe(0.5) and change[0] != "maximize":
            own[change[0]] = change[1]
        return own


def measured(spec):
    """Returns the numbers of a history and what is wrong with them."""
    torch.manual_seed(0)
    try:
        whole = History(spec).run()
        other = History(spec, nudge=1.2e-7).run()
    except Exception as e:  # what PyTorch refuses
        return None, f"{type(e).__name__}: {str(e).splitlines()[0][:90] if str(e) else ''}"
    if whole.ties:
        return None, "has gradients that nearly cancel"
    if len(whole.numbers) != len(other.numbers):
        return None, "takes another course after one rounding"
    for (v, scale), (w, _) in zip(whole.numbers, other.numbers):
        if math.isnan(v) and math.isnan(w):  # the loss of no target
            continue
        if not (abs(v) < 1e37 and abs(w) < 1e39) and v != w:
            return None, "is not finite"
        if v != w and abs(v - w) > tolerance(scale) / (30 if spec["opt"]["kind"] == "LBFGS" else 3):
            return None, "is sensitive to one rounding"
    params = [p for p in whole.params]
    if not all(torch.isfinite(p).all() and p.abs().max() < 1e3 for p in params):
        return None, "leaves weights that are not finite"
    return [v for v, _ in whole.numbers], None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--only", type=int)
    here = pathlib.Path(__file__).resolve().parent.parent / "tests/amp/histories.safetensors"
    parser.add_argument("--out", type=pathlib.Path, default=here)
    args = parser.parse_args()
    tensors, metadata = {}, {"torch": torch.__version__, "seed": str(args.seed)}
    again, n = collections.Counter(), 0
    while len(tensors) < args.count:
        n += 1
        if args.only and n > args.only:
            break
        if args.only and n != args.only:
            continue
        spec = Draw(f"{args.seed} {n}").history(n)
        numbers, fault = measured(spec)
        if args.only:
            print(json.dumps(spec), fault)
        if fault:
            again[fault] += 1
            continue
        key = f"{n:05d}"
        tensors[key] = torch.tensor(numbers, dtype=torch.float64).to(torch.float32)
        metadata[key] = json.dumps({k: v for k, v in spec.items() if v not in ({}, [], None, False)}, separators=(",", ":"))
    save_file(tensors, args.out, metadata=metadata)
    print(f"{args.out}: {len(tensors)} histories of {n}, {args.out.stat().st_size} bytes, torch {torch.__version__}")
    for fault, count in again.most_common():
        print(f"  {count} drawn again: {fault}")


if __name__ == "__main__":
    main()
