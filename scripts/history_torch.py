# SPDX-License-Identifier: Apache-2.0
"""A training history in PyTorch, as its specification describes it (scripts/make_history_goldens.py draws them). What
tests/amp/history.h does in halfstep is done here in the same order, so that the numbers of both are in one order.

Data, first weights and the order of samples are formulas of the history's number."""
import math

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

SAMPLES, FEATURES, CLASSES = 23, 4, 3


def layers_of(net):
    nn = torch.nn
    return {
        "mlp": lambda: [nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)],
        "deep": lambda: [nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)],
        "bn": lambda: [nn.Linear(4, 5, bias=False), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)],
        "ln": lambda: [nn.Linear(4, 5), nn.LayerNorm(5), nn.SiLU(), nn.Linear(5, 3)],
        "conv": lambda: [nn.Conv1d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv1d(3, 3, 1)],  # the loss of 4 positions
    }[net]()


def floats(count, of):
    return torch.tensor([of(i) for i in range(count)], dtype=torch.float64).to(torch.float32)


class Data:
    def __init__(self, spec):
        n, positions = spec["n"], 4 if spec["net"] == "conv" else 1
        shape = (SAMPLES, 2, 4) if positions > 1 else (SAMPLES, FEATURES)
        self.x = floats(SAMPLES * 8 // (1 if positions > 1 else 2), lambda i: math.sin(1.3 * i + 0.37 * n)).reshape(shape)
        loss = spec["loss"]
        kind, out = loss["kind"], (SAMPLES, CLASSES, 4) if positions > 1 else (SAMPLES, CLASSES)
        rows = (SAMPLES, 4) if positions > 1 else (SAMPLES,)
        count = SAMPLES * CLASSES * positions
        if kind in ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss"):
            y = torch.tensor([(i * i + 2 * i + n) % CLASSES for i in range(SAMPLES * positions)])
            for i in range(len(y)):
                if (i * 5 + n) % 7 < loss.get("ignored", 0):
                    y[i] = -100
            self.y = y.reshape(rows)
        elif kind == "BCEWithLogitsLoss":
            self.y = floats(count, lambda i: (i * i + n) % 2).reshape(out)
        elif kind == "SoftMarginLoss":
            self.y = floats(count, lambda i: (i * i + n) % 2 * 2 - 1).reshape(out)
        elif kind == "PoissonNLLLoss":
            self.y = floats(count, lambda i: (i * i + n) % 4).reshape(out)
        elif kind == "KLDivLoss":
            self.y = floats(count, lambda i: 0.3 + 0.1 * math.sin(i + n)).reshape(out)
        else:
            self.y = floats(count, lambda i: math.cos(0.9 * i + n)).reshape(out)

    @staticmethod
    def order(epoch):
        a, b = 1 + (5 * epoch + 3) % (SAMPLES - 1), 7 * epoch % SAMPLES
        return [(a * i + b) % SAMPLES for i in range(SAMPLES)]


class Criterion:
    """A loss and what it is a mean over; None: a sum."""

    def __init__(self, loss):
        options = {k: v for k, v in loss.items() if k not in ("kind", "ignored", "log")}
        for key in ("weight", "pos_weight"):
            if key in options:
                options[key] = torch.tensor(options[key], dtype=torch.float32)
        self.kind, self.weight, self.reduction = loss["kind"], options.get("weight"), options.get("reduction", "mean")
        self.module = getattr(torch.nn, self.kind)(**options)
        self.logs = self.kind in ("NLLLoss", "KLDivLoss")

    def __call__(self, out, y):
        return self.module(torch.log_softmax(out, 1) if self.logs else out, y)

    def over(self, y):
        if self.reduction == "sum":
            return None
        if self.kind in ("CrossEntropyLoss", "NLLLoss"):
            counts = y[y != -100]
            return float(self.weight.double()[counts].sum()) if self.weight is not None else float(len(counts))
        return float(y.shape[0]) if self.kind == "MultiMarginLoss" or self.reduction == "batchmean" else float(y.numel())


def by_count(args):
    a, b = args["lambda"]
    return lambda t: a + b * (t % 4)


def schedule_of(spec, opt):
    kind, args, lrs = spec["kind"], dict(spec.get("args", {})), torch.optim.lr_scheduler
    if kind == "Epochs":
        return Epochs(schedule_of(args["of"], opt), args["steps"])
    if kind in ("ChainedScheduler", "SequentialLR"):
        parts = [schedule_of(part, opt) for part in args["parts"]]
        if kind == "ChainedScheduler":
            return lrs.ChainedScheduler(parts, optimizer=opt)
        return lrs.SequentialLR(opt, parts, milestones=args["milestones"])
    if "lambda" in args:
        return getattr(lrs, kind)(opt, by_count(args))
    return getattr(lrs, kind)(opt, **args)


class Epochs:
    def __init__(self, schedule, steps):
        self.schedule, self.steps, self.count = schedule, steps, 0

    def step(self):
        self.count += 1
        if self.count % self.steps == 0:
            self.schedule.step()


class Holder(torch.nn.Module):
    """A parameter as a module, for AveragedModel: each is averaged from the first step after it has come to the optimizer."""

    def __init__(self, p):
        super().__init__()
        self.p = p


class Average:
    def __init__(self, options):
        self.o, self.models, self.steps = options, {}, {}
        o = options
        if o.get("equal"):
            self.args = {}
        elif o.get("warm_up"):
            self.args = {"avg_fn": lambda a, p, n: a + (p - a) * (1 - min(o["decay"], (1 + float(n)) / (10 + float(n))))}
        else:
            self.args = {"multi_avg_fn": get_ema_multi_avg_fn(o["decay"])}

    def stepped(self, params):
        for i, p in params:
            step = self.steps.get(i, 0)
            self.steps[i] = step + 1
            place = step + 1 - self.o.get("start", 0)
            if place > 0 and place % self.o.get("every", 1) == 0:
                if i not in self.models:
                    self.models[i] = AveragedModel(Holder(p), **self.args)
                self.models[i].update_parameters(Holder(p))

    def value(self, i):
        return self.models[i].module.p.detach() if i in self.models else None


class History:
    def __init__(self, spec, nudge=0.0):
        self.spec, self.numbers, self.whole = spec, [], []
        n = spec["n"]
        self.net = torch.nn.Sequential(*layers_of(spec["net"]))
        self.params = list(self.net.parameters())
        with torch.no_grad():
            for i, p in enumerate(self.params):
                one = 1.0 if spec["net"] in ("bn", "ln") and self.names()[i] == "1.weight" else 0.0
                start = floats(p.numel(), lambda j: one + 0.6 * math.sin(1.7 * j + 0.9 * i + 0.3 * n)).reshape(p.shape)
                wiggle = torch.tensor([(-1.0) ** (j + i) for j in range(p.numel())]).reshape(p.shape)
                p.copy_(start * (1 + nudge * wiggle))
        self.data, self.loss = Data(spec), Criterion(spec["loss"])
        opt = spec["opt"]
        kind, args = getattr(torch.optim, opt["kind"]), {k: v for k, v in opt["args"].items() if k != "adamw_lr"}
        groups = [self.group(ids, own) for ids, own in zip(spec["groups"], spec["group_args"])]
        if opt["kind"] == "Muon":  # the rest is AdamW's
            params = groups[0]["params"]
            rest = [p for p in params if p.dim() != 2]
            lr = opt["args"].get("adamw_lr", 0) or args["lr"]
            self.opts = [kind([p for p in params if p.dim() == 2], **args)]
            self.opts.append(torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.95), eps=1e-10,
                                               weight_decay=args.get("weight_decay", 0.1)))
        elif opt["kind"] == "LBFGS":
            self.opts = [kind(groups[0]["params"], **args)]
        else:
            self.opts = [kind(groups, **args)]
        self.schedules = [[schedule_of(s, o) for o in self.opts] for s in spec["schedules"]]
        self.averages = [Average(a) for a in spec["averages"]]
        self.scaler = torch.amp.GradScaler("cpu", **spec["scaler"]) if spec["scaler"] else None
        self.batch, self.epoch, self.at, self.ties = spec["batch"], 0, 0, False

    def names(self):
        return [name for name, _ in self.net.named_parameters()]

    def group(self, ids, own):
        return {"params": [self.params[i] for i in ids], **own}

    def trained(self):
        held = {id(p) for o in self.opts for g in o.param_groups for p in g["params"]}
        return [(i, p) for i, p in enumerate(self.params) if id(p) in held]

    def next_batch(self):
        order = Data.order(self.epoch)
        if self.at >= SAMPLES:
            self.epoch, self.at = self.epoch + 1, 0
            return None
        rows = order[self.at:self.at + self.batch]
        self.at += self.batch
        return self.data.x[rows], self.data.y[rows]

    def window(self):
        """Returns the micro-batches of a step, which ends with the epoch."""
        out = []
        while len(out) < self.spec["accumulate"]:
            batch = self.next_batch()
            if batch is not None:
                out.append(batch)
            elif out:
                break
        return out

    def event(self, e):
        kind = e[0]
        if kind == "lr":
            for o in self.opts:
                for g, group in enumerate(o.param_groups):
                    if e[1] in (-1, g):
                        group["lr"] = e[2]
        elif kind == "option":
            for o in self.opts:
                o.param_groups[e[1]][e[2]] = tuple(e[3]) if isinstance(e[3], list) else e[3]
        elif kind == "add":
            self.opts[0].add_param_group(self.group(e[1], e[2]))
        elif kind in ("freeze", "thaw"):
            self.params[e[1]].requires_grad_(kind == "thaw")
        elif kind == "batch":
            self.batch = e[1]
        elif kind == "put":
            with torch.no_grad():
                for i, p in self.trained():
                    if self.averages[0].value(i) is not None:
                        p.copy_(self.averages[0].value(i))

    def run(self):
        for t in range(self.spec["steps"]):
            factor, events = 1.0, [e[1:] for e in self.spec["events"] if e[0] == t]
            for e in events:
                if e[0] == "factor":
                    factor = e[1]
                self.event(e)
            if self.spec["opt"]["kind"] == "LBFGS":
                applied = self.closure_step()
            else:
                applied = self.step(factor)
            for schedules in self.schedules:
                for s in schedules:
                    if isinstance(s, torch.optim.lr_scheduler.ReduceLROnPlateau):
                        s.step(self.spec["metrics"][t])
                    elif applied:
                        s.step()
            if applied:
                for a in self.averages:
                    a.stepped(self.trained())
            self.after_step(t, applied)
            for e in events:
                if e[0] == "scale":
                    self.scaler.update(e[1])
                elif e[0] == "evaluate":
                    self.evaluate()
        self.all_values()
        return self

    def closure_step(self):
        (x, y), first = self.window()[0], []

        def closure():
            self.opts[0].zero_grad()
            loss = self.loss(self.net(x), y)
            loss.backward()
            first.append(loss.item())
            return loss

        if self.spec["mode"] == "step" and self.loss.over(y) == 0:  # halfstep skips it
            self.put(math.nan)
            return False
        self.opts[0].step(closure)
        self.put(first[0])
        return True

    def step(self, factor):
        as_train_step = self.spec["mode"] == "step"
        window = self.window()
        for o in self.opts:
            o.zero_grad()
        buffers = [b.clone() for b in self.net.buffers()]
        overs = [self.loss.over(y) for _, y in window]
        total, bad_loss = sum(o or 0 for o in overs), False
        for (x, y), over in zip(window, overs):
            loss = self.loss(self.net(x), y)
            if factor != 1:
                loss = loss * factor
            self.put(loss.item())
            if not as_train_step:
                loss = loss / self.spec["accumulate"] if self.spec["accumulate"] > 1 else loss
            elif over == 0:
                continue
            elif over is not None:
                loss = loss * (over / total)
            bad_loss = bad_loss or not math.isfinite(loss.item())
            (self.scaler.scale(loss) if self.scaler else loss).backward()
        if as_train_step and total == 0 and overs[0] is not None:  # halfstep skips it
            self.restore(buffers)
            self.put(0.0)
            return False
        for _, p in self.trained():  # the sign of an element that nearly cancels depends on the order of a sum
            size = p.grad.abs() if p.grad is not None else torch.zeros(1)
            self.ties = self.ties or bool(size.max() > 0 and size.min() < 1e-6 * size.max())
        norm = self.clip()
        applied = True
        if self.scaler:
            for o in self.opts:
                self.scaler.step(o)
            found = sum(f.item() for o in self.opts
                        for f in self.scaler._per_optimizer_states[id(o)]["found_inf_per_device"].values())
            applied = found == 0
            if as_train_step and bad_loss:  # halfstep moves no scale then
                self.scaler._per_optimizer_states.clear()
                self.scaler._growth_tracker.fill_(0)
            else:
                self.scaler.update()
            if not applied and as_train_step:
                self.restore(buffers)
        else:
            for o in self.opts:
                o.step()
        self.put(norm if applied and norm is not None else 0.0)
        return applied

    def restore(self, buffers):
        with torch.no_grad():
            for b, old in zip(self.net.buffers(), buffers):
                b.copy_(old)

    def clip(self):
        clip = self.spec["clip"]
        if not clip:
            return None
        if self.scaler:
            for o in self.opts:
                self.scaler.unscale_(o)
        params = [p for _, p in self.trained()]
        if "value" in clip:
            torch.nn.utils.clip_grad_value_(params, clip["value"])
        if "norm" in clip:
            return torch.nn.utils.clip_grad_norm_(params, clip["norm"], clip.get("type", 2.0) or math.inf).item()
        return None

    def evaluate(self):
        own = [p.detach().clone() for p in self.params]
        with torch.no_grad():
            for i, p in self.trained():
                if self.averages and self.averages[0].value(i) is not None:
                    p.copy_(self.averages[0].value(i))
            self.net.eval()
            out = self.net(self.data.x[:8])
            self.net.train()
            self.put_tensor(out)
            for p, mine in zip(self.params, own):
                p.copy_(mine)

    # ---- numbers
    def put(self, number, scale=None):
        self.numbers.append((float(number), abs(float(number)) if scale is None else scale))

    def put_tensor(self, t):
        """Adds a sum with fixed weights, and the sum of absolute values as its scale."""
        if t is None:
            return self.put(0.0)
        flat = t.detach().double().reshape(-1)
        weights = torch.tensor([1 + 0.5 * math.sin(2.3 * j + 0.7) for j in range(flat.numel())], dtype=torch.float64)
        self.put((flat * weights).sum().item(), (flat * weights).abs().sum().item())

    def state(self, p, name):
        for o in self.opts:
            state = o.state.get(p, {})
            if float(state.get("step", 1)) == 0:  # Adagrad's are there before its first step
                continue
            if state.get(name) is not None:
                return torch.as_tensor(state[name], dtype=torch.float32)
        return None

    def tensors(self):
        yield from self.params
        for b in self.net.buffers():
            yield b
        for a in self.averages:
            for i, _ in enumerate(self.params):
                yield a.value(i)
        for name in self.spec["states"]:
            for p in self.params:
                yield self.state(p, name)

    def after_step(self, t, applied):
        self.put(float(applied))
        if self.scaler:
            self.put(self.scaler.get_scale())
        for g in self.opts[0].param_groups:
            self.put(g["lr"])
            if self.spec.get("momenta"):
                self.put(g["betas"][0] if "betas" in g else g["momentum"])
        for tensor in self.tensors():
            self.put_tensor(tensor)

    def all_values(self):
        for tensor in self.tensors():
            if tensor is not None:
                scale = tensor.detach().abs().double().max().item() if tensor.numel() else 0
                for v in tensor.detach().double().reshape(-1).tolist():
                    self.put(v, max(scale, abs(v)))
