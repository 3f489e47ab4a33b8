#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
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
    """Returns a bool mask in which every row keeps something."""
    flat = torch.zeros(shape, dtype=torch.bool)
    for index in hidden:
        flat[tuple(index)] = True
    return flat


def attention():
    """Returns (type, args, tensors of the call, the call's other arguments)"""
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
    yield kind, base, {"query": q, "key": k, "value": v, "attn_mask": [4, 3, 5], "key_padding_mask": [2, 5]}, {
        "need_weights": False}
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
    some = masks(2, 3, hidden=[(0, 1), (1, 2)])
    yield kind, {**base, "batch_first": True}, {"query": [2, 3, 4], "attn_mask": causal, "key_padding_mask": some}, {
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


def others():
    ints = {"num_embeddings": 5, "embedding_dim": 3}
    lines = {"index": torch.tensor([4, 0, 4, 1, 2]), "offsets": torch.tensor([0, 2, 2])}
    yield "EmbeddingBag", ints, lines, {}
    yield "EmbeddingBag", {**ints, "mode": "max", "padding_idx": 2}, lines, {}
    yield "EmbeddingBag", {**ints, "mode": "sum", "include_last_offset": True}, {
        "index": lines["index"], "offsets": torch.tensor([0, 3, 5]), "per_sample_weights": [5]}, {}
    yield "EmbeddingBag", {**ints, "mode": "sum", "padding_idx": -5}, {
        "index": torch.tensor([[4, 0], [1, 4]]), "per_sample_weights": [2, 2]}, {}
    yield "Bilinear", {"in1_features": 2, "in2_features": 3, "out_features": 4}, {"input1": [5, 2], "input2": [5, 3]}, {}
    yield "Bilinear", {"in1_features": 2, "in2_features": 1, "out_features": 2, "bias": False}, {"input1": [2, 3, 2],
                                                                                              "input2": [2, 3, 1]}, {}
    planes = {1: [7], 2: [5, 6], 3: [4, 5, 4]}
    for d, size in planes.items():  # x is pooled first
        yield f"MaxUnpool{d}d", {"kernel_size": 2}, {"x": [2, 2, *[2 * (n // 2) for n in size]]}, {}
        yield f"MaxUnpool{d}d", {"kernel_size": 2}, {"x": [2, *size]}, {"output_size": size}
        uneven = {"kernel_size": [3, 2, 2][:d], "stride": [3, 2, 2][:d], "padding": [1, 0, 1][:d]}
        yield f"MaxUnpool{d}d", uneven, {"x": [1, 2, *size]}, {"output_size": [1, 2, *size]}
        sizes = {"in_channels": 2, "out_channels": 1, "kernel_size": 3, "stride": 3}
        yield f"ConvTranspose{d}d", sizes, {"x": [1, 2, *[2] * d]}, {"output_size": [6, 7, 8][:d]}
        yield f"ConvTranspose{d}d", {**sizes, "padding": 1, "dilation": 2}, {"x": [2, *[2] * d]}, {
            "output_size": [1, *[8, 6, 7][:d]]}
    rare = {"in_features": 8, "n_classes": 10, "cutoffs": [3, 6]}
    target = torch.tensor([0, 9, 3, 2, 5, 6])
    yield "AdaptiveLogSoftmaxWithLoss", {**rare, "div_value": 2.0}, {"input": [6, 8], "target": target}, {}
    yield "AdaptiveLogSoftmaxWithLoss", {**rare, "div_value": 2.0, "head_bias": True}, {"input": [6, 8], "target": target}, {
        "log_prob": True}
    yield "AdaptiveLogSoftmaxWithLoss", {**rare, "div_value": 2.0}, {"input": [8], "target": target[1]}, {}


def make(kind, args):
    args = dict(args)
    if kind in ("TransformerEncoder", "TransformerDecoder"):
        count, norm = args.pop("num_layers"), args.pop("norm", False)
        layer = getattr(nn, kind + "Layer")(**args)
        return getattr(nn, kind)(layer, count, nn.LayerNorm(args["d_model"]) if norm else None)
    return getattr(nn, kind)(**{k: tuple(v) if isinstance(v, list) else v for k, v in args.items()})


def call(module, kind, inputs, flags):
    if kind == "MultiheadAttention":  # a missing one is the one before
        inputs = dict(inputs)
        inputs.setdefault("key", inputs["query"])
        inputs.setdefault("value", inputs["key"])
    if kind == "TransformerEncoder":
        inputs = {n.replace("src_mask", "mask"): t for n, t in inputs.items()}
    if kind.startswith("MaxUnpool"):
        pool = getattr(torch.nn.functional, kind.lower().replace("unpool", "_pool"))
        out, indices = pool(inputs["x"], module.kernel_size, module.stride, module.padding, return_indices=True)
        out = module(out, indices, **flags)
    elif kind == "AdaptiveLogSoftmaxWithLoss" and flags:
        out = (module.log_prob(inputs["input"]), module.predict(inputs["input"]))
    elif kind in ("EmbeddingBag", "AdaptiveLogSoftmaxWithLoss") or kind.startswith("ConvTranspose"):
        positional = [inputs[n] for n in ("x", "index", "input", "offsets", "target") if n in inputs]
        out = module(*positional, **{n: t for n, t in inputs.items() if n == "per_sample_weights"}, **flags)
    else:
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
    for i, given in enumerate([*attention(), *transformers(), *others()]):
        about, parts = case(*given)
        metadata[f"{i:03d}"] = json.dumps(about)
        tensors.update({f"{i:03d}/{n}": t.contiguous().clone() for n, t in parts.items()})
    path = ROOT / "tests/layers/call_goldens.safetensors"
    save_file(tensors, path, metadata=metadata)
    print(f"{path}: {len(metadata) - 1} cases, {path.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
