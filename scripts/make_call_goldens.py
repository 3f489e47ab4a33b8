#!/usr/bin/env python3
"""Writes tests/layers/call_goldens.safetensors: calls of PyTorch's modules that take more than one tensor, or give more.

Run by hand where torch and safetensors are installed, after cases were added or changed; the tests only read the file:
    python3 scripts/make_call_goldens.py
Its metadata has the case (type, args, call: the arguments that are no tensors, repr, state) under a key. Of a case the file has
    KEY/p.NAME, KEY/i.NAME     the state_dict and the tensors of the call: float32 values, computed with in float64
    KEY/o.0, KEY/o.1...        what came back, in training unless the case is random
    KEY/g.NAME, KEY/gi.NAME    the gradients of the sum of every floating result times cos(0, 1, ...)
"""
import json
import pathlib
import zlib

import torch
from safetensors.torch import save_file
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parent.parent


def masks(*shape, hidden):
    """bool, where every row keeps something"""
    flat = torch.zeros(shape, dtype=torch.bool)
    for index in hidden:
        flat[tuple(index)] = True
    return flat


def attention():
    """(type, args, tensors of the call, the call's other arguments)"""
    kind = "MultiheadAttention"
    base = {"embed_dim": 4, "num_heads": 2}
    q, k, v = [3, 2, 4], [5, 2, 4], [5, 2, 4]
    padding = masks(2, 5, hidden=[(0, 3), (0, 4), (1, 0)])
    see = masks(3, 5, hidden=[(0, 1), (0, 2), (1, 4), (2, 0)])
    yield kind, base, {"query": q, "key": k, "value": v}, {}
    yield kind, base, {"query": q, "key": k, "value": v, "key_padding_mask": padding}, {"average_attn_weights": False}
    yield kind, {**base, "kdim": 3, "vdim": 5, "bias": False}, {"query": q, "key": [5, 2, 3], "value": [5, 2, 5],
                                                                "attn_mask": see}, {}
    yield kind, {**base, "kdim": 3}, {"query": q, "key": [5, 2, 3], "value": v}, {"need_weights": False}
    yield kind, {**base, "batch_first": True}, {"query": [2, 3, 4], "key": [2, 5, 4], "value": [2, 5, 4], "attn_mask": see,
                                                "key_padding_mask": padding}, {"need_weights": False}
    yield kind, base, {"query": q, "key": k, "value": v, "attn_mask": [4, 3, 5], "key_padding_mask": padding}, {}
    yield kind, base, {"query": q, "key": k, "value": v, "attn_mask": [4, 3, 5], "key_padding_mask": [2, 5]}, {"need_weights": False}
    for weights in (True, False):
        yield kind, {**base, "add_bias_kv": True, "add_zero_attn": True}, {"query": q, "key": k, "value": v, "attn_mask": [3, 5],
                                                                           "key_padding_mask": padding}, {"need_weights": weights}
    yield kind, {**base, "add_zero_attn": True, "bias": False}, {"query": q, "key": k, "value": v}, {"need_weights": False}
    yield kind, base, {"query": [3, 4], "key": [5, 4], "value": [5, 4], "attn_mask": [2, 3, 5], "key_padding_mask": padding[0]}, {}
    yield kind, {**base, "batch_first": True}, {"query": [3, 4]}, {"need_weights": False}
    yield kind, base, {"query": [3, 2, 4]}, {}
    yield kind, base, {"query": [3, 2, 4], "key": k}, {"need_weights": False}
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    for weights in (True, False):
        yield kind, base, {"query": [3, 2, 4], "attn_mask": causal}, {"need_weights": weights, "is_causal": True}
    yield kind, {**base, "batch_first": True}, {"query": [2, 3, 4], "attn_mask": causal, "key_padding_mask": masks(2, 3, hidden=[(0, 1), (1, 2)])}, {
        "is_causal": True}


def transformers():
    small = {"d_model": 4, "nhead": 2, "dim_feedforward": 5, "dropout": 0.0}
    see, across = masks(3, 3, hidden=[(0, 2), (1, 0), (2, 1)]), masks(3, 5, hidden=[(0, 0), (1, 4)])
    pad, far = masks(2, 3, hidden=[(0, 0)]), masks(2, 5, hidden=[(1, 1), (1, 2)])
    src = {"src": [2, 3, 4], "src_mask": see, "src_key_padding_mask": pad}
    tgt = {"tgt": [3, 2, 4], "memory": [5, 2, 4], "tgt_mask": [3, 3], "memory_mask": across, "tgt_key_padding_mask": pad,
           "memory_key_padding_mask": far}
    yield "TransformerEncoderLayer", {**small, "batch_first": True}, src, {}
    yield "TransformerEncoderLayer", {**small, "norm_first": True, "activation": "gelu"}, {"src": [3, 4], "src_mask": [3, 3]}, {}
    yield "TransformerEncoder", {**small, "batch_first": True, "num_layers": 2, "norm": True}, src, {}
    for first in (False, True):
        yield "TransformerDecoderLayer", {**small, "norm_first": first}, tgt, {}
    yield "TransformerDecoderLayer", {**small, "batch_first": True, "bias": False, "activation": "gelu", "layer_norm_eps": 0.1}, {
        "tgt": [2, 3, 4], "memory": [2, 5, 4]}, {}
    yield "TransformerDecoder", {**small, "num_layers": 2}, {"tgt": [3, 2, 4], "memory": [5, 2, 4]}, {}
    yield "TransformerDecoder", {**small, "num_layers": 1, "norm": True}, tgt, {}
    both = {**small, "num_encoder_layers": 2, "num_decoder_layers": 1}
    causal = torch.ones(3, 3, dtype=torch.bool).triu(1)
    yield "Transformer", both, {"src": [5, 2, 4], "tgt": [3, 2, 4]}, {}
    yield "Transformer", {**both, "norm_first": True, "batch_first": True, "activation": "gelu", "bias": False}, {
        "src": [2, 5, 4], "tgt": [2, 3, 4], "tgt_mask": causal, "memory_mask": across, "src_key_padding_mask": far,
        "tgt_key_padding_mask": pad, "memory_key_padding_mask": far}, {"tgt_is_causal": True}


def make(kind, args):
    args = dict(args)
    if kind in ("TransformerEncoder", "TransformerDecoder"):
        count, norm = args.pop("num_layers"), args.pop("norm", False)
        layer = getattr(nn, kind + "Layer")(**args)
        return getattr(nn, kind)(layer, count, nn.LayerNorm(args["d_model"]) if norm else None)
    return getattr(nn, kind)(**{k: tuple(v) if isinstance(v, list) else v for k, v in args.items()})


def call(module, kind, inputs, flags):
    if kind == "MultiheadAttention":  # what is missing is the one before
        inputs = dict(inputs)
        inputs.setdefault("key", inputs["query"])
        inputs.setdefault("value", inputs["key"])
    if kind == "TransformerEncoder":
        inputs = {n.replace("src_mask", "mask"): t for n, t in inputs.items()}
    out = module(**inputs, **flags)
    return [t for t in (out if isinstance(out, tuple) else (out,)) if t is not None]


def case(kind, args, tensors, flags):
    text = json.dumps([kind, args, list(tensors), flags])
    generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
    module = make(kind, args)
    for name, t in module.state_dict().items():
        t.copy_(torch.rand(t.shape, generator=generator) + 0.5 if "norm" in name and name.endswith("weight")
                else torch.randn(t.shape, generator=generator))
    out = {f"p.{n}": t.clone() for n, t in module.state_dict().items()}
    inputs = {n: torch.randn(t, generator=generator) if isinstance(t, list) else t for n, t in tensors.items()}
    out.update({f"i.{n}": t for n, t in inputs.items()})
    module.double()
    inputs = {n: t.double().requires_grad_() if t.is_floating_point() else t for n, t in inputs.items()}
    results = call(module, kind, inputs, flags)
    loss = sum((y * torch.cos(torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape)).sum() for y in results
               if y.is_floating_point())
    leaves = {f"g.{n}": p for n, p in module.named_parameters()}
    leaves.update({f"gi.{n}": t for n, t in inputs.items() if t.requires_grad})
    for n, g in zip(leaves, torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)):
        if g is not None:
            out[n] = g
    out.update({f"o.{i}": y.detach() for i, y in enumerate(results)})
    state = [[n, list(t.shape)] for n, t in module.state_dict().items()]
    return {"type": kind, "args": args, "call": flags, "repr": repr(module), "state": state}, out


def main():
    tensors, metadata = {}, {"torch": torch.__version__}
    for i, given in enumerate([*attention(), *transformers()]):
        about, parts = case(*given)
        metadata[f"{i:03d}"] = json.dumps(about)
        tensors.update({f"{i:03d}/{n}": t.contiguous().clone() for n, t in parts.items()})
    path = ROOT / "tests/layers/call_goldens.safetensors"
    save_file(tensors, path, metadata=metadata)
    print(f"{path}: {len(metadata) - 1} cases, {path.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
