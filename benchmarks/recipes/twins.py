#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recipes of configs/recipes in PyTorch: a twin has the config's data, model, optimizer, schedule, batches and evaluations.

    HALFSTEP_DATA=FOLDER python3 benchmarks/recipes/twins.py mnist_lenet --precision bfloat16 --seed 1 --threads 1

The numbers are read from the config; the model and the data are written here again. Prints one line of JSON: the result, seconds
(with evaluations), samples a second (without), and the peak bytes of the process. Weights and orders are drawn by PyTorch.
"""
import argparse
import copy
import json
import math
import os
import pathlib
import re
import resource
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import digits

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = pathlib.Path(os.environ.get("HALFSTEP_DATA", "data"))


def config_of(name):
    text = (ROOT / "configs/recipes" / (name + ".json")).read_text()
    return json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))


class Call(nn.Module):
    """A function as a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Residual(nn.Module):
    def __init__(self, body, shortcut=None):
        super().__init__()
        self.body, self.shortcut = nn.Sequential(*body), nn.Sequential(*(shortcut or []))

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class Lstm(nn.Module):
    """All outputs, or the last; `stateful` continues from where the last batch ended, until reset()."""

    def __init__(self, inputs, hidden, last=False, stateful=False, bidirectional=False):
        super().__init__()
        self.lstm, self.last, self.stateful, self.state = nn.LSTM(inputs, hidden, batch_first=True,
                                                                  bidirectional=bidirectional), last, stateful, None

    def reset(self):
        self.state = None

    def forward(self, x):
        out, state = self.lstm(x, self.state)
        if self.stateful:
            self.state = tuple(s.detach() for s in state)
        return out[:, -1] if self.last else out


class Data:
    """Inputs and targets as tensors; `augment` is done to a training batch. `streams`: batches in order."""

    def __init__(self, inputs, targets, augment=None, streams=False):
        self.inputs, self.targets, self.augment, self.streams = torch.as_tensor(inputs), torch.as_tensor(targets), augment, streams

    def batches(self, size, generator=None, drop_last=False):
        n = len(self.inputs)
        order = torch.randperm(n, generator=generator) if generator and not self.streams else None
        for begin in range(0, n - size + 1 if drop_last else n, size):
            pick = slice(begin, begin + size) if order is None else order[begin:begin + size]
            x = self.inputs[pick]
            yield (self.augment(x) if generator and self.augment else x), self.targets[pick]


def cross_entropy(output, target):
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def accuracy(output, target):
    return (output.argmax(-1) == target).double().sum().item(), target.numel()


# ---- data

def mnist(split):
    import gzip
    read = lambda kind, skip: np.frombuffer(gzip.open(DATA / f"mnist/{split}-{kind}.gz").read(), np.uint8, offset=skip)
    images = read("images-idx3-ubyte", 16).reshape(-1, 1, 28, 28).astype(np.float32)
    return (images / 255 - 0.1307) / 0.3081, read("labels-idx1-ubyte", 8).astype(np.int64)


def table(path, scale=None):
    rows = np.loadtxt(DATA / path, delimiter=",")
    x = rows[:, :-1]
    mean, std = scale or (x.mean(0), np.where(x.std(0) > 0, x.std(0), 1))
    return ((x - mean) / std).astype(np.float32), rows[:, -1], (mean, std)


def text_pieces(seq_len, streams):
    """Pieces [n, seq_len] of the training part and of the rest: one after the other, or batches of the next piece of each
    stream."""
    raw = np.frombuffer((DATA / "tinyshakespeare/input.txt").read_bytes(), np.uint8)
    tokens = np.searchsorted(np.unique(raw), raw).astype(np.int64)
    cut, out = int(0.9 * len(tokens)), []
    for part in (tokens[:cut], tokens[cut:]):
        each = len(part) // max(1, streams)
        pieces = (each - 1) // seq_len
        starts = (np.arange(pieces)[:, None] * seq_len + np.arange(max(1, streams))[None] * each).reshape(-1, 1)
        at = starts + np.arange(seq_len)
        out.append(Data(part[at], part[at + 1], streams=streams > 0))
    return out


# ---- recipes: model, data.train, data.val, loss, results of an evaluation: sums and counts, and what is computed from them

def mnist_data():
    (x, y), (vx, vy) = mnist("train"), mnist("t10k")
    return Data(x, y), Data(vx, vy)


def mnist_lenet(c):
    model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                          nn.MaxPool2d(2),
                          nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
    return model, *mnist_data(), cross_entropy, accuracy, None


def conv_norm(inputs, outputs, stride=1, size=3):
    return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]


def mnist_resnet_small(c):
    model = nn.Sequential(*conv_norm(1, 12, 2), nn.ReLU(), Residual([*conv_norm(12, 12), nn.ReLU(), *conv_norm(12, 12)]), nn.ReLU(),
                          Residual([*conv_norm(12, 24, 2), nn.ReLU(), *conv_norm(24, 24)], conv_norm(12, 24, 2, 1)), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10))
    return model, *mnist_data(), cross_entropy, accuracy, None


def optdigits_mlp(c):
    x, y, scale = table("optdigits/optdigits.tra", (8, 8))
    vx, vy, _ = table("optdigits/optdigits.tes", scale)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.5), nn.Linear(256, 10))
    return model, Data(x, y.astype(np.int64)), Data(vx, vy.astype(np.int64)), cross_entropy, accuracy, None


def cifar10_conv(c):
    mean, std = (np.array(v, np.float32).reshape(3, 1, 1) for v in ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]))

    def read(name):
        rows = np.fromfile(DATA / "cifar10" / name, np.uint8).reshape(-1, 3073)
        return rows[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255, rows[:, 0].astype(np.int64)

    def augment(x):
        n = len(x)
        padded = F.pad(x, (4, 4, 4, 4))
        top, left, flip = torch.randint(9, (n,)), torch.randint(9, (n,)), torch.rand(n) < 0.5
        columns = torch.arange(32) + left[:, None]
        columns = torch.where(flip[:, None], columns.flip(1), columns)
        rows = torch.arange(32) + top[:, None]
        out = padded[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
        return ((out - torch.from_numpy(mean)) / torch.from_numpy(std)).contiguous()

    (x, y), (vx, vy) = read("data_batch_1.first4000.bin"), read("test_batch.first1000.bin")
    model = nn.Sequential(*conv_norm(3, 16), nn.ReLU(), nn.MaxPool2d(2), *conv_norm(16, 32), nn.ReLU(), nn.MaxPool2d(2),
                          *conv_norm(32, 64), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 10))
    return model, Data(x, y, augment), Data((vx - mean) / std, vy), cross_entropy, accuracy, None


def char_lstm(c):
    model = nn.Sequential(nn.Embedding(65, 64), Lstm(64, 192, stateful=True), nn.Linear(192, 65))
    return model, *text_pieces(64, c["data"]["loader"]["batch_size"]), cross_entropy, None, None


def char_transformer(c):
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(0.02 * torch.randn(64, 64))

        def forward(self, x):
            return x + self.weight

    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(64), enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask(64)
    encoder.forward_of = encoder.forward
    encoder.forward = lambda x: encoder.forward_of(x, mask=mask, is_causal=True)
    model = nn.Sequential(nn.Embedding(65, 64), Positions(), encoder, nn.Linear(64, 65))
    return model, *text_pieces(64, 0), cross_entropy, None, None


def squares(scale):
    def measure(output, target):
        return ((output.double() - target.double()) * scale).square().sum().item(), target.numel()
    return measure


def airline_lstm(c):
    lines = (DATA / "timeseries/airline-passengers.csv").read_text().splitlines()[1:]
    values = np.array([float(line.split(",")[1]) for line in lines if line])
    cut, window = int(0.67 * len(values)), c["data"]["train"]["window"]
    mean, std = values[:cut].mean(), values[:cut].std()
    v = ((values - mean) / std).astype(np.float32)
    windows = lambda a, b: Data(np.stack([v[i - window:i, None] for i in range(a, b)]), v[a:b, None])

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.lstm, self.head = nn.Linear(window, 1), Lstm(1, 16, last=True), nn.Linear(16, 1)

        def forward(self, x):
            return self.linear(x.flatten(1)) + self.head(self.lstm(x))

    return Model(), windows(window, cut), windows(cut, len(v)), F.mse_loss, squares(std), math.sqrt


def wine_regression(c):
    x, y, _ = table("regression/winequality-red.csv")
    data = Data(x, y[:, None].astype(np.float32))
    data.streams = True  # no shuffling
    return nn.Sequential(nn.Linear(11, 1)), data, data, F.mse_loss, squares(1), math.sqrt


def ctc_digits(c):
    own, seed = c["data"]["train"], c["seed"]
    model = nn.Sequential(nn.Conv2d(1, 8, 5, 4, 2), nn.ReLU(), Call(lambda x: x.permute(0, 3, 1, 2).flatten(2)),
                          Lstm(56, 64, bidirectional=True), nn.Linear(128, 11), nn.LogSoftmax(-1))

    def loss(output, target):
        n, steps = output.shape[:2]
        return F.ctc_loss(output.float().transpose(0, 1), target.clamp(min=0), torch.full((n,), steps), (target >= 0).sum(1))

    def distance(a, b):
        row = list(range(len(b) + 1))
        for i, x in enumerate(a):
            corner, row[0] = row[0], i + 1
            for j, y in enumerate(b):
                corner, row[j + 1] = row[j + 1], min(corner + (x != y), row[j + 1] + 1, row[j] + 1)
        return row[-1]

    def errors(output, target):
        wrong = count = 0
        for best, truth in zip(output.argmax(-1).tolist(), target.tolist()):
            said = [b for t, b in enumerate(best) if b and (t == 0 or best[t - 1] != b)]
            wanted = [t for t in truth if t >= 0]
            wrong, count = wrong + distance(said, wanted), count + len(wanted)
        return wrong, count

    parts = [Data(*digits.strips(seed, test, c["data"][split]["size"], own["min_digits"], own["max_digits"]))
             for test, split in enumerate(("train", "val"))]
    return model, *parts, loss, errors, None


RECIPES = {f.__name__: f for f in (mnist_lenet, mnist_resnet_small, optdigits_mlp, cifar10_conv, char_lstm, char_transformer,
                                   airline_lstm, wine_regression, ctc_digits)}


# ---- training

def optimizer_of(c, model):
    o = c["optimizer"]
    decay = o.get("weight_decay", 0.0)
    norms = {p for m in model.modules() if isinstance(m, (nn.BatchNorm2d, nn.LayerNorm)) for p in m.parameters()}
    free = {p for name, p in model.named_parameters() if o.get("no_decay_norm_bias") and (p in norms or "bias" in name)}
    groups = [{"params": [p for p in model.parameters() if p not in free], "weight_decay": decay}]
    if free:
        groups.append({"params": [p for p in model.parameters() if p in free], "weight_decay": 0.0})
    if o["type"] == "SGD":
        return torch.optim.SGD(groups, lr=o["lr"], momentum=o.get("momentum", 0.0))
    return torch.optim.AdamW(groups, lr=o["lr"])


def evaluate(model, c, data, loss, measure, autocast):
    part, whole, total = 0.0, 0, 0.0
    model.eval()
    for m in model.modules():
        if isinstance(m, Lstm):
            m.kept, m.state = m.state, None
    with torch.no_grad():
        for x, y in data.batches(c["data"]["loader"]["batch_size"]):
            with autocast():
                output = model(x)
                value = loss(output, y)
            total += value.item() * len(x)
            if measure:
                p, w = measure(output, y)
                part, whole = part + p, whole + w
    model.train()
    for m in model.modules():
        if isinstance(m, Lstm):
            m.state = m.kept
    return total / len(data.inputs), part / max(1, whole)


def train(name, precision, seed, overrides):
    c = config_of(name)
    c["seed"] = seed
    c["train"].update(overrides)
    torch.manual_seed(seed)
    model, train_data, val_data, loss, measure, finish = RECIPES[name](c)
    autocast = lambda: torch.autocast("cpu", getattr(torch, precision) if precision != "float32" else torch.bfloat16,
                                      precision != "float32")
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "float16")
    optimizer, t, size = optimizer_of(c, model), c["train"], c["data"]["loader"]["batch_size"]
    drop_last, window = c["data"]["loader"].get("drop_last", False), t.get("accumulate_steps", 1)
    batches = len(train_data.inputs) // size if drop_last else -(-len(train_data.inputs) // size)
    steps, warmup = t["epochs"] * -(-batches // window), c["scheduler"].get("warmup_steps", 0)
    rate = lambda i: (i + 1) / warmup if i < warmup else 0.5 * (1 + math.cos(math.pi * (i - warmup) / (steps - warmup)))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    average = copy.deepcopy(list(model.parameters())) if "ema" in t else None
    every = int(str(t.get("eval_every", "1 epoch")).split()[0])
    generator = torch.Generator().manual_seed(seed)
    begin, evaluating, samples = time.perf_counter(), 0.0, 0
    for epoch in range(t["epochs"]):
        for m in model.modules():
            if isinstance(m, Lstm):
                m.reset()
        for i, (x, y) in enumerate(train_data.batches(size, generator, drop_last)):
            with autocast():
                value = loss(model(x), y)
            last_window = i >= batches - batches % window
            scaler.scale(value / (batches % window if last_window else window)).backward()
            samples += len(x)
            if (i + 1) % window and i + 1 < batches:
                continue
            if "clip_grad_norm" in t:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), t["clip_grad_norm"])
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if scaler.get_scale() >= before:
                schedule.step()
                if average:
                    with torch.no_grad():
                        torch._foreach_lerp_(average, list(model.parameters()), 1 - t["ema"]["decay"])
        if (epoch + 1) % every == 0 or epoch + 1 == t["epochs"]:
            start = time.perf_counter()
            own = [p.detach().clone() for p in model.parameters()]
            with torch.no_grad():
                for p, a in zip(model.parameters(), average or []):
                    p.copy_(a)
            val_loss, result = evaluate(model, c, val_data, loss, measure, autocast)
            with torch.no_grad():
                for p, o in zip(model.parameters(), own):
                    p.copy_(o)
            evaluating += time.perf_counter() - start
    seconds = time.perf_counter() - begin
    result = val_loss if measure is None else finish(result) if finish else result
    return {"result": result, "val_loss": val_loss, "seconds": seconds, "samples_per_second": samples / (seconds - evaluating),
            "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
            "parameters": sum(p.numel() for p in model.parameters())}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("recipe", choices=RECIPES)
    p.add_argument("--precision", default="float32", choices=("float32", "bfloat16", "float16"))
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--epochs", type=int, help="others than the config's")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    print(json.dumps(train(a.recipe, a.precision, a.seed, {"epochs": a.epochs} if a.epochs else {})))


if __name__ == "__main__":
    main()
