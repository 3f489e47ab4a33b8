#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/layers/parametrize_goldens.safetensors, for tests/layers/parametrize_test.cpp: PyTorch's weight_norm and
spectral_norm.

Run by hand where torch, numpy and safetensors are installed:
    python3 scripts/make_parametrize_goldens.py
Of each case the file has, in float64: KEY/x, KEY/p.NAME (the state_dict before the first call), KEY/y (in training), KEY/y2 (of the
next call), KEY/e (in evaluation, after both), KEY/g.x and KEY/g.NAME (the gradients of sum(y * cos(0, 1, ...)), and KEY/s.NAME (the
buffers after both calls). The metadata has the printed text under KEY.
"""
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import parametrizations as P

ROOT = pathlib.Path(__file__).resolve().parent.parent


def weight_normed_lstm():
    layer = nn.LSTM(3, 4)
    for name in ("weight_ih_l0", "weight_hh_l0"):
        P.weight_norm(layer, name)
    return layer


CASES = {
    "weight_norm": (lambda: P.weight_norm(nn.Linear(5, 4)), (3, 5)),
    "weight_norm_dim1": (lambda: P.weight_norm(nn.Conv2d(2, 3, 3), dim=1), (2, 2, 5, 5)),
    "weight_norm_all": (lambda: P.weight_norm(nn.Linear(5, 4), dim=None), (3, 5)),
    "weight_norm_bias": (lambda: P.weight_norm(nn.Linear(5, 4), "bias"), (3, 5)),
    "weight_norm_lstm": (weight_normed_lstm, (6, 2, 3)),
    "spectral_norm": (lambda: P.spectral_norm(nn.Linear(5, 4)), (3, 5)),
    "spectral_norm_conv": (lambda: P.spectral_norm(nn.Conv2d(2, 3, 3), n_power_iterations=3), (2, 2, 5, 5)),
    "spectral_norm_transposed": (lambda: P.spectral_norm(nn.ConvTranspose2d(2, 3, 3)), (2, 2, 5, 5)),
    "spectral_norm_dim2": (lambda: P.spectral_norm(nn.Conv2d(2, 3, 3), dim=2), (2, 2, 5, 5)),
    "spectral_norm_bias": (lambda: P.spectral_norm(nn.Linear(5, 4), "bias"), (3, 5)),
}


def main():
    tensors, texts = {}, {}
    for number, (key, (make, shape)) in enumerate(CASES.items()):
        torch.manual_seed(number)
        layer = make().double()
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        out = {"x": x, **{"p." + n: t.clone() for n, t in layer.state_dict().items()}}
        first = lambda r: r[0] if isinstance(r, tuple) else r
        y = out["y"] = first(layer(x))
        (y * torch.cos(torch.arange(y.numel(), dtype=y.dtype)).reshape(y.shape)).sum().backward()
        out["y2"] = first(layer(x))
        out["g.x"] = x.grad
        out.update({"g." + n: p.grad for n, p in layer.named_parameters()})
        out.update({"s." + n: b.clone() for n, b in layer.named_buffers()})
        out["e"] = first(layer.eval()(x))
        tensors.update({f"{key}/{n}": t.detach().clone().contiguous() for n, t in out.items()})
        texts[key] = repr(layer)
        texts[key + " state"] = " ".join(layer.state_dict())
    save_file(tensors, ROOT / "tests/layers/parametrize_goldens.safetensors", metadata=texts)


if __name__ == "__main__":
    main()
