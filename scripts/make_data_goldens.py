#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/data_goldens.safetensors: torchvision's transforms at given parameters, and metrics by their formulas.

Run by hand where torch, torchvision and safetensors are installed, after cases were added or changed; tests only read the file:
    python3 scripts/make_data_goldens.py
image.C [C, 9, 12] are the pictures, and "NAME:C" is what NAME makes of each: the tests say which arguments a name means.
metric.* are outputs, targets and the metrics' values in float64.
"""
import math
import pathlib

import torch
import torchvision.transforms.functional as F
from safetensors.torch import save_file
from torchvision.transforms import InterpolationMode

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR


def images(x):
    for mode in ("constant", "edge", "reflect", "symmetric"):
        yield f"pad:{mode}", F.pad(x, [1, 2, 3, 4], fill=0.25 if mode == "constant" else 0, padding_mode=mode)
    for size in ([4, 4], [5, 5], [9, 12], [12, 5], [14, 15]):
        yield "center_crop:{}x{}".format(*size), F.center_crop(x, size)
    for size in ([6], [5, 20], [18, 6]):
        name = "x".join(map(str, size))
        for antialias in (True, False):
            yield f"resize:{name}:{'aa' if antialias else 'plain'}", F.resize(x, size, BILINEAR, antialias=antialias)
        yield f"resize:{name}:nearest", F.resize(x, size, NEAREST)
    for angle in (-33.0, 17.0, 91.0):
        for mode in (NEAREST, BILINEAR):
            yield f"rotate:{angle:g}:{mode.value}", F.rotate(x, angle, mode, fill=[0.0])  # as RandomRotation calls it
            yield f"rotate:{angle:g}:{mode.value}:fill", F.rotate(x, angle, mode, fill=0.5)
            yield f"affine:{angle:g}:{mode.value}", F.affine(x, angle, [2, -1], 1.3, [8.0, -5.0], mode, fill=[0.75])
    for factor in (0.0, 0.4, 1.0, 1.7):
        yield f"brightness:{factor:g}", F.adjust_brightness(x, factor)
        yield f"contrast:{factor:g}", F.adjust_contrast(x, factor)
        yield f"saturation:{factor:g}", F.adjust_saturation(x, factor)
    for factor in (-0.5, -0.13, 0.0, 0.31, 0.5):
        yield f"hue:{factor:g}", F.adjust_hue(x, factor)
    yield "normalize", F.normalize(x, [0.4, 0.5, 0.6][:len(x)], [0.2, 0.3, 0.4][:len(x)])


def class_metrics(scores, target):
    """Computes the formulas of sklearn.metrics with zero_division=0."""
    classes = scores.shape[-1]
    scores, target = scores.reshape(-1, classes).double(), target.reshape(-1)
    best = scores.argmax(-1)
    table = torch.zeros(classes, classes, dtype=torch.float64)  # rows: the class, columns: the prediction
    for t, b in zip(target, best):
        table[t, b] += 1
    hit, said, true = table.diag(), table.sum(0), table.sum(1)
    precision = torch.where(said > 0, hit / said.clamp(min=1), 0)
    recall = torch.where(true > 0, hit / true.clamp(min=1), 0)
    f1 = torch.where(said + true > 0, 2 * hit / (said + true).clamp(min=1), 0)
    there = said + true > 0  # classes that occur in either
    yield "accuracy", hit.sum() / table.sum()
    for k in range(1, min(3, classes) + 1):
        yield f"top_{k}", (scores.topk(k, -1).indices == target[:, None]).any(-1).double().mean()
    yield "precision", precision[there].mean()
    yield "recall", recall[there].mean()
    yield "f1", f1[there].mean()
    yield "confusion", table
    nll = -scores.log_softmax(-1).gather(1, target[:, None]).mean()
    yield "perplexity", nll.exp()
    yield "bits_per_char", nll / math.log(2)
    areas = []
    for c in range(classes):
        positive, negative = scores[target == c].softmax(-1)[:, c], scores[target != c].softmax(-1)[:, c]
        if len(positive) and len(negative):
            pairs = positive[:, None] - negative[None, :]
            areas.append(((pairs > 0).double() + 0.5 * (pairs == 0).double()).mean())
    yield "auroc", torch.stack(areas).mean()


def number_metrics(output, target):
    output, target = output.double(), target.double()
    error = output - target
    yield "mae", error.abs().mean()
    yield "rmse", error.square().mean().sqrt()
    each = 1 - error.square().sum(0) / (target - target.mean(0)).square().sum(0)
    yield "r2", each.mean()


def main():
    torch.manual_seed(7)
    tensors = {}
    for channels in (1, 3):
        x = torch.rand(channels, 9, 12)
        tensors[f"image.{channels}"] = x
        for name, y in images(x):
            tensors[f"{name}:{channels}"] = y
    made = {"flat": (torch.randn(37, 5), torch.randint(0, 4, (37,))),  # class 4 never occurs
            "binary": (torch.randn(23, 2), torch.randint(0, 2, (23,))),
            "ties": (torch.randint(0, 3, (29, 3)).float(), torch.randint(0, 3, (29,))),
            "sequence": (torch.randn(7, 4, 5), torch.randint(0, 5, (7, 4)))}
    for name, (scores, target) in made.items():
        values = dict(class_metrics(scores, target))
        if name == "ties":  # whose best class is a matter of taste
            values = {"auroc": values["auroc"]}
        tensors.update({f"metric.{name}.{n}": v for n, v in values.items()})
        tensors.update({f"metric.{name}.output": scores, f"metric.{name}.target": target})
    output, target = torch.randn(19, 3), torch.randn(19, 3) * torch.tensor([1.0, 2.0, 0.5])
    tensors.update({"metric.numbers.output": output, "metric.numbers.target": target})
    tensors.update({f"metric.numbers.{n}": v for n, v in number_metrics(output, target)})
    path = ROOT / "tests/data/data_goldens.safetensors"
    save_file({n: t.contiguous().clone() for n, t in tensors.items()}, path, metadata={"torch": torch.__version__})
    print(f"{path}: {len(tensors)} tensors, {path.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
