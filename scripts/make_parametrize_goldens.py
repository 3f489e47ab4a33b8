#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/layers/parametrize_goldens.safetensors, for tests/layers/parametrize_test.cpp: PyTorch's weight_norm,
spectral_norm and orthogonal.

Run by hand where torch, numpy and safetensors are installed:
    python3 scripts/make_parametrize_goldens.py
Of each case the file has, in float64: KEY/x, KEY/p.NAME (the state_dict before the first call), KEY/y (in training), KEY/y2 (of the
next call), KEY/e (in evaluation, after both), KEY/g.x and KEY/g.NAME (the gradients of sum(y * cos(0, 1, ...)), and KEY/s.NAME (the
buffers after both calls). The metadata has the printed text under KEY. "assigned KEY/given" is assigned to an
orthogonal weight, which becomes KEY/weight, with KEY/original.
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
    "orthogonal": (lambda: P.orthogonal(nn.Linear(5, 5)), (3, 5)),
    "orthogonal_tall": (lambda: P.orthogonal(nn.Linear(3, 5)), (2, 3)),
    "orthogonal_wide": (lambda: P.orthogonal(nn.Linear(5, 3)), (2, 5)),
    "orthogonal_exp_wide": (lambda: P.orthogonal(nn.Linear(5, 3), orthogonal_map="matrix_exp"), (2, 5)),
    "orthogonal_cayley": (lambda: P.orthogonal(nn.Linear(4, 4), "weight", "cayley"), (3, 4)),
    "orthogonal_cayley_tall": (lambda: P.orthogonal(nn.Linear(3, 5), orthogonal_map="cayley", use_trivialization=False), (2, 3)),
    "orthogonal_plain_exp": (lambda: P.orthogonal(nn.Linear(4, 4), use_trivialization=False), (3, 4)),
    "orthogonal_plain": (lambda: P.orthogonal(nn.Linear(5, 3), use_trivialization=False), (2, 5)),
    "orthogonal_square_householder": (lambda: P.orthogonal(nn.Linear(4, 4), "weight", "householder", use_trivialization=False),
                                      (3, 4)),
    "orthogonal_conv": (lambda: P.orthogonal(nn.Conv2d(2, 3, 3)), (2, 2, 5, 5)),
}


def trained(layer):
    """Returns an orthogonal layer whose original, without its diagonal, is not the first one."""
    with torch.no_grad():
        original = layer.parametrizations.weight.original
        change = torch.randn_like(original)
        change.diagonal(dim1=-2, dim2=-1).zero_()
        original += change


# The map, whether it is trivialized, and a value that is assigned: what the weight is afterwards.
ASSIGNED = {
    "square": ("matrix_exp", True, torch.tensor([[2.0, -1.0, 0.0], [0.5, 3.0, 1.0], [-1.0, 0.25, -2.0]])),
    "orthogonal": ("cayley", True, torch.tensor([[0.6, -0.8], [0.8, 0.6]])),
    "tall": ("householder", True, torch.tensor([[2.0, -1.0], [0.5, 3.0], [-1.0, 0.25]])),
    "plain tall": ("householder", False, torch.tensor([[2.0, -1.0], [0.5, 3.0], [-1.0, 0.25]])),
    "plain wide": ("householder", False, torch.tensor([[-2.0, -1.0, 0.5], [0.5, -3.0, -1.0]])),
    "triangular": ("householder", False, torch.tensor([[-2.0, 1.0, 0.5], [0.0, 3.0, -1.0], [0.0, 0.0, -1.0]])),
}


def main():
    tensors, texts = {}, {}
    for key, (name, trivialized, value) in ASSIGNED.items():
        layer = nn.Linear(value.size(1), value.size(0), dtype=torch.float64)
        P.orthogonal(layer, "weight", name, use_trivialization=trivialized)
        layer.weight = value.double()
        tensors.update({f"assigned {key}/given": value.double(), f"assigned {key}/weight": layer.weight.detach().contiguous(),
                        f"assigned {key}/original": layer.parametrizations.weight.original.detach().clone().contiguous()})
    for number, (key, (make, shape)) in enumerate(CASES.items()):
        torch.manual_seed(number)
        layer = make().double()
        if key.startswith("orthogonal"):
            trained(layer)
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
