#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/apps/catalog/layer_goldens.safetensors: PyTorch's layers and losses, for every type of the catalogues.

Run by hand where torch, numpy and safetensors are installed, after cases were added or changed; tests only read the file:
    python3 scripts/make_layer_goldens.py
Its metadata has the case (type, args as a config has them, repr, state: name, shape and dtype in order) under a key, and for each
type under "defaults TYPE" the constructor's defaults. Of a case the file has the tensors
    KEY/x, KEY/t, KEY/p.NAME   the input, a loss's target, the state_dict: float32 values, computed with in float64
    KEY/y, KEY/e               the output while training (not of random layers), and in evaluation where that differs
    KEY/g.x, KEY/g.NAME        the gradients of sum(y * cos(0, 1, ...)) in training; of random layers in evaluation
    KEY/s.NAME                 buffers after the forward in training, where that moved them
"""
import inspect
import itertools
import json
import pathlib
import typing
import zlib

import torch
from safetensors.torch import save_file
from torch import nn

from layer_cases import layers, losses

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANDOM = {"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "RReLU"}
# Options that halfstep has in another form or not at all: places of tensors, work in place, reductions (JSON has only
# the mean), old spellings.
NOT_ARGUMENTS = {"self", "inplace", "device", "dtype", "size_average", "reduce", "reduction", "return_indices", "sparse",
                 "_weight", "_freeze", "min_value", "max_value"}


def draw(how, shape, generator):
    if how == "classes":
        return torch.randint(0, shape[1], [shape[0], *shape[2:]], generator=generator)
    if how == "labels":
        return torch.tensor([[1, 3, -1, 0], [0, -1, 2, 2], [2, 1, 0, 3]])
    if how == "padded labels":
        return torch.tensor([[1, 2, 2], [2, -1, -1], [1, 1, -1]])
    normal = torch.randn(shape, generator=generator)
    if isinstance(how, int):
        return torch.randint(0, how, shape, generator=generator)
    uniform = torch.rand(shape, generator=generator) * 0.9 + 0.05
    return {"normal": normal, "positive": uniform, "log": uniform.log(), "bits": (normal > 0).float(), "signs": normal.sign(),
            "counts": (uniform * 5).floor()}[how]


def python(args):
    """Converts the arguments of a config to PyTorch's."""
    out = {}
    for key, value in args.items():
        if key in ("weight", "pos_weight"):
            value = torch.tensor(value, dtype=torch.float64)
        elif key == "momentum" and value == "cumulative":
            value = None
        out[key] = tuple(value) if isinstance(value, list) else value
    return out


class SelfAttention(nn.MultiheadAttention):
    """As a config's MultiheadAttention: attention of x to itself."""

    def __init__(self, embed_dim, num_heads, *, is_causal=False, batch_first=True, **options):
        super().__init__(embed_dim, num_heads, batch_first=batch_first, **options)
        self.is_causal = is_causal

    def forward(self, x):
        return super().forward(x, x, x, need_weights=False, attn_mask=causal_mask(self, x))[0]

    def _get_name(self):
        return "MultiheadAttention"


class EncoderLayer(nn.TransformerEncoderLayer):
    def __init__(self, d_model, nhead, *, is_causal=False, batch_first=True, **options):
        super().__init__(d_model, nhead, batch_first=batch_first, **options)
        self.is_causal, self.batch_first = is_causal, batch_first

    def forward(self, x, src_mask=None, src_key_padding_mask=None, is_causal=False):
        return super().forward(x, src_mask=causal_mask(self, x))

    def _get_name(self):
        return "TransformerEncoderLayer"


def encoder(num_layers, norm=False, **options):
    layer = EncoderLayer(**options)
    last = nn.LayerNorm(options["d_model"], options.get("layer_norm_eps", 1e-5), bias=options.get("bias", True)) if norm else None
    return nn.TransformerEncoder(layer, num_layers, last, enable_nested_tensor=False)


def causal_mask(module, x):
    length = x.shape[1 if module.batch_first else 0]
    return torch.ones(length, length, dtype=torch.bool).triu(1) if module.is_causal else None


class PositionalEncoding(nn.Module):
    """That of PyTorch's tutorial, with batch_first."""

    def __init__(self, d_model, dropout=0.1, max_len=5000, batch_first=True):
        super().__init__()
        self.dropout, self.batch_first = nn.Dropout(dropout), batch_first
        angle = torch.arange(max_len).double()[:, None] * 10000.0 ** (-torch.arange(0, d_model, 2).double() / d_model)
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2], pe[:, 0, 1::2] = angle.sin(), angle.cos()[:, :d_model // 2]
        self.register_buffer("pe", pe)

    def forward(self, x):
        return self.dropout(x + (self.pe[:x.size(1), 0] if self.batch_first else self.pe[:x.size(0)]))


class PositionEmbedding(nn.Module):
    def __init__(self, max_len, d_model, batch_first=True):
        super().__init__()
        self.weight, self.batch_first = nn.Parameter(torch.randn(max_len, d_model)), batch_first

    def forward(self, x):
        return x + (self.weight[:x.size(1)] if self.batch_first else self.weight[:x.size(0), None])

    def extra_repr(self):
        return ", ".join(map(str, self.weight.shape)) + (", batch_first=True" if self.batch_first else "")


class RotaryEmbedding(nn.Module):
    """Computes by complex numbers."""

    def __init__(self, dim, base=10000.0, interleaved=False):
        super().__init__()
        self.dim, self.base, self.interleaved = dim, base, interleaved

    def forward(self, x):
        part, rest = x[..., :self.dim], x[..., self.dim:]
        pairs = part.unflatten(-1, (-1, 2)) if self.interleaved else part.unflatten(-1, (2, -1)).transpose(-1, -2)
        angle = torch.arange(x.shape[-2]).double()[:, None] * self.base ** (-torch.arange(0, self.dim, 2).double() / self.dim)
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle))
        return torch.cat([(turned if self.interleaved else turned.transpose(-1, -2)).flatten(-2), rest], -1)

    def extra_repr(self):
        return str(self.dim) + (f", base={self.base}" if self.base != 10000 else "") + (
            ", interleaved=True" if self.interleaved else "")


class Permute(nn.Module):
    """torchvision.ops.Permute"""

    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(self.dims)

    def extra_repr(self):
        return f"dims={self.dims}"


class UnitNorm(nn.Module):
    """torch.nn.functional.normalize as a layer."""

    def __init__(self, p=2.0, dim=1, eps=1e-12):
        super().__init__()
        self.p, self.dim, self.eps = p, dim, eps

    def forward(self, x):
        return nn.functional.normalize(x, self.p, self.dim, self.eps)

    def extra_repr(self):
        return f"p={self.p}, dim={self.dim}, eps={self.eps}"


# Types of a config that are made of PyTorch's, or whose call takes more in PyTorch.
MADE = {"MultiheadAttention": SelfAttention, "TransformerEncoderLayer": EncoderLayer, "TransformerEncoder": encoder,
        "PositionalEncoding": PositionalEncoding, "PositionEmbedding": PositionEmbedding, "RotaryEmbedding": RotaryEmbedding,
        "Permute": Permute, "UnitNorm": UnitNorm}


def waves(y):
    return torch.cos(torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape)


def first(outputs):
    """Returns the output of a recurrent layer, without its states."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def layer_case(kind, args, shape, how="normal"):
    text = json.dumps([kind, args, shape])
    generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
    torch.manual_seed(zlib.crc32(text.encode()))
    module = MADE.get(kind, getattr(nn, kind, None))(**python(args))
    draw_state(kind, module, generator)
    return record_layer(kind, args, module, draw(how, shape, generator))


def draw_state(kind, module, generator):
    for name, t in module.state_dict().items():  # other than the initial ones and zeros, and exact in float32
        if t.is_floating_point() and kind not in ("Embedding", "EmbeddingBag", "PositionalEncoding"):
            t.copy_(torch.rand(t.shape, generator=generator) + 0.5 if name.endswith(("weight", "var")) and t.dim() == 1
                    else torch.randn(t.shape, generator=generator))


def record_layer(kind, args, module, x):
    """Returns the case and its tensors: the outputs of a module with float32 values for x, computed in float64."""
    random = kind in RANDOM or (kind in MADE and args.get("dropout", defaults(kind).get("dropout", 0)) > 0)
    case = {"type": kind, "args": args, "repr": repr(module), "random": random,
            "state": [[n, list(t.shape), str(t.dtype).removeprefix("torch.")] for n, t in module.state_dict().items()]}
    tensors = {f"p.{n}": t.clone() for n, t in module.state_dict().items()}
    tensors["x"] = x
    module.double()
    if kind in ("Embedding", "EmbeddingBag") and module.max_norm:  # rows are scaled in place, and the state_dict has those
        tensors["s.weight"] = None
    x = x.double().requires_grad_() if x.is_floating_point() else x
    module.train(not random)
    y = first(module(x))
    leaves = {"x": x, **dict(module.named_parameters())}
    leaves = {n: t for n, t in leaves.items() if t.requires_grad}
    for n, g in zip(leaves, torch.autograd.grad((y * waves(y)).sum(), list(leaves.values()))):
        tensors[f"g.{n}"] = g
    tensors["e" if random else "y"] = y.detach()
    for n, t in module.state_dict().items():
        if n in dict(module.named_buffers()) or f"s.{n}" in tensors:
            tensors[f"s.{n}"] = t.clone()
    if not random:
        e = first(module.eval()(x)).detach()
        if not torch.equal(e, y.detach()):
            tensors["e"] = e
    return case, tensors


def ctc(loss, x, t):
    """Computes CTCLoss as a config does: [N, T, C] and labels up to the first -1. Its value is PyTorch's; its gradient is that of
    all alignments counted one by one, since PyTorch's is that of the log_softmax before."""
    n, steps, classes = x.shape
    lengths = (t >= 0).sum(1)
    want = loss(x.transpose(0, 1), t.clamp(min=0), torch.full([n], steps), lengths)
    each = []
    for i in range(n):
        found = [sum(x[i, s, c] for s, c in enumerate(path)) for path in itertools.product(range(classes), repeat=steps)
                 if [c for c, _ in itertools.groupby(path) if c != loss.blank] == t[i, :lengths[i]].tolist()]
        each.append(-torch.logsumexp(torch.stack(found), 0))
    each = torch.stack(each)
    out = {"none": each, "sum": each.sum(), "mean": (each / lengths.clamp(min=1)).mean()}[loss.reduction]
    assert torch.allclose(out, want), (out, want)
    return out


def loss_case(kind, args, shape, how, target, reduction):
    text = json.dumps([kind, args, shape, reduction])
    generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
    loss = getattr(nn, kind)(**{"reduction": reduction, **python(args)})
    return record_loss(kind, args, reduction, loss, draw(how, shape, generator), draw(target, shape, generator))


def record_loss(kind, args, reduction, loss, x, t):
    """Returns the case and its tensors: the value of a loss for x and a target."""
    tensors = {"x": x, "t": t}
    x = x.double().requires_grad_()
    y = ctc(loss, x, t) if kind == "CTCLoss" else loss(x, t.double() if t.is_floating_point() else t)
    (tensors["g.x"],) = torch.autograd.grad((y * waves(y)).sum(), [x])
    tensors["y"] = y.detach()
    return {"type": kind, "args": args, "repr": repr(loss), "reduction": args.get("reduction", reduction)}, tensors


def defaults(kind):
    if kind == "TransformerEncoder":  # a config says the layer's arguments, not the layer
        return {**defaults("TransformerEncoderLayer"), "num_layers": None, "norm": False}
    made = getattr(nn, kind, MADE.get(kind)).__init__
    parameters = inspect.signature((typing.get_overloads(made) or [made])[0]).parameters
    out = {n: None if p.default is p.empty else p.default for n, p in parameters.items()
           if n not in NOT_ARGUMENTS and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    return {n: getattr(v, "__name__", v) for n, v in out.items()}  # functions by their names


def main():
    made = [("layer", layer_case(*case)) for case in layers()]
    for case in losses():
        for reduction in ("mean",) if "reduction" in case[1] else ("mean", "sum", "none"):
            made.append(("loss", loss_case(*case, reduction)))
    path = ROOT / "tests/apps/catalog/layer_goldens.safetensors"
    write_goldens(made, path)
    print(f"{path}: {len(made)} cases, {path.stat().st_size} bytes, torch {torch.__version__}")


def write_goldens(made, path):
    """Writes `made`: pairs of "layer" or "loss" and a result of record_layer or record_loss."""
    tensors, metadata = {}, {"torch": torch.__version__}
    for i, (what, (case, parts)) in enumerate(made):
        key = f"{what} {i:03d}"
        metadata[key] = json.dumps(case)
        metadata[f"defaults {case['type']}"] = json.dumps(defaults(case["type"]))
        tensors.update({f"{key}/{n}": t.contiguous().clone() for n, t in parts.items()})
    save_file(tensors, path, metadata=metadata)


if __name__ == "__main__":
    main()
