#!/usr/bin/env python3
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
import json
import pathlib
import typing
import zlib

import torch
from safetensors.torch import save_file
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANDOM = {"Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout", "RReLU"}
# What halfstep has in another form, or not: places of tensors, work in place, reductions (JSON has the mean alone), old spellings.
NOT_ARGUMENTS = {"self", "inplace", "device", "dtype", "size_average", "reduce", "reduction", "return_indices", "sparse",
                 "_weight", "_freeze", "min_value", "max_value"}


def layers():
    """(type, args, shape of the input[, how it is drawn])"""
    plain = ("ReLU ReLU6 Sigmoid LogSigmoid Tanh Tanhshrink SiLU Mish SELU Hardsigmoid Hardswish Softsign Identity ELU CELU "
             "LeakyReLU Hardtanh Hardshrink Softshrink Softplus GELU PReLU RReLU GLU Dropout AlphaDropout FeatureAlphaDropout "
             "Flatten").split()
    for name in plain:
        yield name, {}, [3, 4, 2]
    for name in "ELU CELU".split():
        yield name, {"alpha": 1.5}, [2, 5]
    yield "LeakyReLU", {"negative_slope": 0.2}, [2, 5]
    yield "Hardtanh", {"min_val": -0.5, "max_val": 0.25}, [2, 6]
    yield "Hardshrink", {"lambd": 0.25}, [2, 6]
    yield "Softshrink", {"lambd": 0.25}, [2, 6]
    yield "Softplus", {"beta": 2.0, "threshold": 1.5}, [2, 6]
    yield "Threshold", {"threshold": 0.1, "value": 20.0}, [2, 6]
    yield "GELU", {"approximate": "tanh"}, [2, 6]
    yield "PReLU", {"num_parameters": 3, "init": 0.125}, [2, 3, 4]
    yield "RReLU", {"lower": 0.25, "upper": 0.5}, [2, 6]
    yield "GLU", {"dim": 1}, [2, 4, 3]
    for name in "Softmax Softmin LogSoftmax".split():
        yield name, {"dim": -1}, [2, 5]
        yield name, {"dim": 1}, [2, 3, 4]
    yield "Softmax2d", {}, [2, 3, 2, 2]
    yield "Linear", {"in_features": 4, "out_features": 3}, [2, 4]
    yield "Linear", {"in_features": 4, "out_features": 3, "bias": False}, [2, 3, 4]

    spatial = {1: [7], 2: [5, 6], 3: [4, 5, 3]}
    for d in (1, 2, 3):
        size, two = spatial[d], [2, 1, 2][:d]
        yield f"Conv{d}d", {"in_channels": 2, "out_channels": 3, "kernel_size": 3}, [2, 2, *size]
        yield f"Conv{d}d", {"in_channels": 4, "out_channels": 2, "kernel_size": [3, 2, 2][:d], "stride": two,
                            "padding": [1, 0, 1][:d], "dilation": [1, 2, 1][:d], "groups": 2, "bias": False}, [1, 4, *size]
        yield f"Conv{d}d", {"in_channels": 2, "out_channels": 1, "kernel_size": 2, "padding": "same", "dilation": 2}, [1, 2, *size]
        yield f"Conv{d}d", {"in_channels": 1, "out_channels": 2, "kernel_size": 3, "padding": "valid"}, [1, *size]
        for mode in ("reflect", "replicate", "circular"):
            yield f"Conv{d}d", {"in_channels": 1, "out_channels": 1, "kernel_size": 3, "padding": [2, 1, 1][:d] if d < 3 else 1,
                                "stride": 2, "padding_mode": mode}, [1, 1, *size]
        yield f"Conv{d}d", {"in_channels": 1, "out_channels": 1, "kernel_size": 2, "padding": "same",
                            "padding_mode": "circular"}, [1, 1, *size]
        yield f"ConvTranspose{d}d", {"in_channels": 2, "out_channels": 1, "kernel_size": 2}, [1, 2, *size]
        yield f"ConvTranspose{d}d", {"in_channels": 4, "out_channels": 2, "kernel_size": 3, "stride": 2, "padding": 1,
                                     "output_padding": 1, "groups": 2, "bias": False}, [1, 4, *[2] * d]
        yield f"ConvTranspose{d}d", {"in_channels": 1, "out_channels": 2, "kernel_size": 2, "dilation": 2,
                                     "stride": two}, [1, *[3] * d]

        x = [2, 2, *size] if d < 3 else [1, 2, *size]
        yield f"MaxPool{d}d", {"kernel_size": 2}, x
        yield f"MaxPool{d}d", {"kernel_size": [3, 2, 2][:d], "stride": two, "padding": [1, 0, 1][:d], "ceil_mode": True}, x
        yield f"MaxPool{d}d", {"kernel_size": 2, "stride": 1, "dilation": 2}, x[1:]
        yield f"AvgPool{d}d", {"kernel_size": 2}, x
        yield f"AvgPool{d}d", {"kernel_size": [3, 2, 2][:d], "stride": 2, "padding": 1, "ceil_mode": True,
                               "count_include_pad": False}, x
        yield f"AvgPool{d}d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, x
        if d > 1:
            yield f"AvgPool{d}d", {"kernel_size": 2, "divisor_override": 3}, x[1:]
        yield f"LPPool{d}d", {"norm_type": 2.0, "kernel_size": 2}, x
        yield f"LPPool{d}d", {"norm_type": 3.0, "kernel_size": 3 if d == 1 else [3, 2, 2][:d],
                              "stride": 1 if d == 1 else [1, 2, 2][:d], "ceil_mode": True}, x, "positive"
        for kind in ("Avg", "Max"):
            yield f"Adaptive{kind}Pool{d}d", {"output_size": 3}, x
            if d > 1:
                yield f"Adaptive{kind}Pool{d}d", {"output_size": [None, 2, 1][:d]}, x[1:]

        b = [3, 2, *size] if d < 3 else [2, 2, *size]
        yield f"BatchNorm{d}d", {"num_features": 2}, b
        yield f"BatchNorm{d}d", {"num_features": 2, "eps": 0.01, "momentum": 0.25, "affine": False}, b
        yield f"BatchNorm{d}d", {"num_features": 2, "momentum": "cumulative", "bias": False}, b
        yield f"BatchNorm{d}d", {"num_features": 2, "track_running_stats": False}, b
        yield f"InstanceNorm{d}d", {"num_features": 2}, b
        yield f"InstanceNorm{d}d", {"num_features": 2, "affine": True, "track_running_stats": True, "momentum": 0.3}, b
        yield f"InstanceNorm{d}d", {"num_features": 2, "affine": True, "eps": 0.1}, b[1:]

        yield f"Dropout{d}d", {"p": 0.25}, x
        around = [1, 2, 2, 1, 1, 1][:2 * d]
        for kind in ("Zero", "Reflection", "Replication", "Circular"):
            yield f"{kind}Pad{d}d", {"padding": 1}, x
            yield f"{kind}Pad{d}d", {"padding": around}, x[1:]
        yield f"ConstantPad{d}d", {"padding": 1, "value": 0.5}, x
        yield f"ConstantPad{d}d", {"padding": [1, -1, 0, 2, 1, 0][:2 * d], "value": -2.0}, x[1:]
    yield "BatchNorm1d", {"num_features": 3}, [4, 3]
    yield "Dropout1d", {}, [3, 4]
    yield "Dropout", {"p": 0.1}, [3, 4]

    yield "LayerNorm", {"normalized_shape": 4}, [3, 4]
    yield "LayerNorm", {"normalized_shape": [2, 4], "eps": 0.1, "bias": False}, [3, 2, 4]
    yield "LayerNorm", {"normalized_shape": [4], "elementwise_affine": False}, [3, 2, 4]
    yield "RMSNorm", {"normalized_shape": 4}, [3, 4]
    yield "RMSNorm", {"normalized_shape": [2, 4], "eps": 0.1, "elementwise_affine": False}, [3, 2, 4]
    yield "GroupNorm", {"num_groups": 2, "num_channels": 4}, [2, 4, 3]
    yield "GroupNorm", {"num_groups": 4, "num_channels": 4, "eps": 0.1, "bias": False}, [2, 4, 3, 2]
    yield "GroupNorm", {"num_groups": 1, "num_channels": 4, "affine": False}, [2, 4]
    yield "LocalResponseNorm", {"size": 2}, [2, 5, 3]
    yield "LocalResponseNorm", {"size": 3, "alpha": 0.1, "beta": 0.5, "k": 2.0}, [2, 5, 3, 2]

    yield "Flatten", {"start_dim": 0, "end_dim": 1}, [2, 3, 4]
    yield "Unflatten", {"dim": 1, "unflattened_size": [2, 3]}, [2, 6]
    yield "Unflatten", {"dim": -1, "unflattened_size": [2, -1]}, [2, 2, 6]
    yield "PixelShuffle", {"upscale_factor": 2}, [2, 8, 2, 3]
    yield "PixelUnshuffle", {"downscale_factor": 2}, [2, 2, 4, 6]
    yield "ChannelShuffle", {"groups": 2}, [1, 6, 2, 2]
    yield "Upsample", {"scale_factor": 2.0}, [1, 2, 3]
    yield "Upsample", {"size": [3, 5]}, [1, 2, 2, 3]
    yield "Upsample", {"size": 5, "mode": "linear"}, [1, 2, 3]
    yield "Upsample", {"scale_factor": [1.5, 2.0], "mode": "bilinear", "align_corners": True}, [1, 1, 4, 3]
    yield "Upsample", {"scale_factor": 1.6, "mode": "bicubic", "recompute_scale_factor": True}, [1, 1, 4, 5]
    yield "Upsample", {"size": [3, 2, 4], "mode": "trilinear"}, [1, 1, 2, 3, 2]
    yield "Upsample", {"size": 4, "mode": "nearest-exact"}, [1, 1, 3, 2]
    for name in ("UpsamplingNearest2d", "UpsamplingBilinear2d"):
        yield name, {"scale_factor": 2.0}, [1, 2, 2, 3]
        yield name, {"size": [3, 5]}, [1, 2, 2, 3]
    yield "Unfold", {"kernel_size": 2}, [2, 2, 3, 4]
    yield "Unfold", {"kernel_size": [2, 3], "dilation": [1, 2], "padding": 1, "stride": 2}, [1, 2, 5, 6]
    yield "Fold", {"output_size": [3, 4], "kernel_size": 2}, [2, 8, 6]
    yield "Fold", {"output_size": 5, "kernel_size": [2, 3], "padding": [1, 0], "stride": [2, 1]}, [1, 12, 9]
    for name in ("RNN", "LSTM", "GRU"):
        sizes = {"input_size": 2, "hidden_size": 3}
        yield name, {**sizes, "batch_first": True}, [2, 4, 2]
        yield name, {**sizes, "num_layers": 2, "bias": False, "batch_first": False, "bidirectional": True}, [3, 2, 2]
        yield name, {**sizes, "num_layers": 2, "batch_first": True, "dropout": 1.0, "bidirectional": True}, [2, 2, 2]
        yield name, {**sizes, "batch_first": False}, [3, 2]
    yield "RNN", {**sizes, "nonlinearity": "relu", "num_layers": 2, "batch_first": True}, [2, 3, 2]
    yield "LSTM", {**sizes, "num_layers": 2, "batch_first": True, "bidirectional": True, "proj_size": 2}, [2, 3, 2]
    yield "LSTM", {**sizes, "bias": False, "batch_first": False, "proj_size": 1}, [3, 2, 2]
    for name in ("RNNCell", "LSTMCell", "GRUCell"):
        yield name, sizes, [2, 2]
        yield name, {**sizes, "bias": False}, [2]
    yield "RNNCell", {**sizes, "nonlinearity": "relu"}, [2, 2]
    yield "Embedding", {"num_embeddings": 5, "embedding_dim": 3}, [2, 4], 5
    yield "Embedding", {"num_embeddings": 5, "embedding_dim": 3, "padding_idx": -1, "scale_grad_by_freq": True}, [2, 4], 5
    yield "Embedding", {"num_embeddings": 5, "embedding_dim": 3, "max_norm": 1.5, "norm_type": 1.0}, [6], 5

    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3}, [2, 4], 5
    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3, "mode": "sum", "padding_idx": -1}, [3, 4], 5
    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3, "mode": "max", "padding_idx": 1}, [3, 2], 5
    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3, "max_norm": 1.5, "norm_type": 1.0}, [2, 2], 5
    yield "EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 3, "scale_grad_by_freq": True}, [2, 4], 5

    yield "MultiheadAttention", {"embed_dim": 4, "num_heads": 2}, [2, 3, 4]
    yield "MultiheadAttention", {"embed_dim": 6, "num_heads": 3, "bias": False, "batch_first": False, "is_causal": True}, [3, 2, 6]
    yield "MultiheadAttention", {"embed_dim": 4, "num_heads": 1, "add_bias_kv": True, "add_zero_attn": True}, [2, 3, 4]
    yield "MultiheadAttention", {"embed_dim": 4, "num_heads": 2, "add_bias_kv": True, "is_causal": True, "dropout": 0.5}, [2, 3, 4]
    small = {"d_model": 4, "nhead": 2, "dim_feedforward": 5}
    for kind, more in (("TransformerEncoderLayer", {}), ("TransformerEncoder", {"num_layers": 2})):
        yield kind, {**small, **more, "dropout": 0.0}, [2, 3, 4]
        yield kind, {**small, **more, "activation": "gelu", "layer_norm_eps": 0.01, "norm_first": True,
                     "is_causal": True}, [2, 3, 4]
        yield kind, {**small, **more, "dropout": 0.0, "batch_first": False, "bias": False}, [3, 2, 4]
    yield "TransformerEncoder", {**small, "dropout": 0.0, "num_layers": 1, "norm": True, "norm_first": True}, [2, 3, 4]
    yield "PositionalEncoding", {"d_model": 4, "dropout": 0.0, "max_len": 7}, [2, 5, 4]
    yield "PositionalEncoding", {"d_model": 5, "max_len": 6, "batch_first": False}, [3, 2, 5]
    yield "PositionEmbedding", {"max_len": 7, "d_model": 4}, [2, 5, 4]
    yield "PositionEmbedding", {"max_len": 3, "d_model": 4, "batch_first": False}, [3, 2, 4]
    yield "RotaryEmbedding", {"dim": 4}, [2, 5, 4]
    yield "RotaryEmbedding", {"dim": 4, "base": 50.0, "interleaved": True}, [2, 5, 6]


def losses():
    """(type, args, shape of the output, how it is drawn, target: how it is drawn)"""
    yield "MSELoss", {}, [3, 4], "normal", "normal"
    yield "L1Loss", {}, [3, 4], "normal", "normal"
    yield "SmoothL1Loss", {}, [3, 4], "normal", "normal"
    yield "SmoothL1Loss", {"beta": 0.25}, [3, 4], "normal", "normal"
    yield "HuberLoss", {}, [3, 4], "normal", "normal"
    yield "HuberLoss", {"delta": 0.5}, [3, 4], "normal", "normal"
    yield "PoissonNLLLoss", {}, [3, 4], "normal", "counts"
    yield "PoissonNLLLoss", {"log_input": False, "full": True, "eps": 1e-6}, [3, 4], "positive", "counts"
    yield "KLDivLoss", {}, [3, 4], "log", "positive"
    yield "KLDivLoss", {"log_target": True}, [3, 4], "log", "log"
    yield "KLDivLoss", {"reduction": "batchmean"}, [3, 4], "log", "positive"
    yield "BCELoss", {}, [3, 4], "positive", "positive"
    yield "BCELoss", {"weight": [0.5, 1.0, 2.0, 0.25]}, [3, 4], "positive", "bits"
    yield "BCEWithLogitsLoss", {}, [3, 4], "normal", "bits"
    yield "BCEWithLogitsLoss", {"weight": [0.5, 1.0, 2.0, 0.25], "pos_weight": [3.0, 1.0, 0.5, 2.0]}, [3, 4], "normal", "bits"
    yield "SoftMarginLoss", {}, [3, 4], "normal", "signs"
    yield "HingeEmbeddingLoss", {}, [3, 4], "normal", "signs"
    yield "HingeEmbeddingLoss", {"margin": 0.5}, [3, 4], "normal", "signs"
    yield "MultiLabelMarginLoss", {}, [3, 4], "normal", "labels"
    yield "MultiLabelSoftMarginLoss", {}, [3, 4], "normal", "bits"
    yield "MultiLabelSoftMarginLoss", {"weight": [0.5, 1.0, 2.0, 0.25]}, [3, 4], "normal", "bits"
    yield "CrossEntropyLoss", {}, [5, 4], "normal", "classes"
    weights = {"weight": [0.5, 1.0, 2.0, 0.25]}
    yield "CrossEntropyLoss", {**weights, "ignore_index": 1, "label_smoothing": 0.1}, [5, 4], "normal", "classes"
    yield "CrossEntropyLoss", {"label_smoothing": 0.2}, [2, 4, 3], "normal", "classes"
    yield "NLLLoss", {}, [5, 4], "log", "classes"
    yield "NLLLoss", {"weight": [0.5, 1.0, 2.0, 0.25], "ignore_index": 2}, [5, 4], "log", "classes"
    yield "MultiMarginLoss", {}, [5, 4], "normal", "classes"
    yield "MultiMarginLoss", {"p": 2, "margin": 0.5, "weight": [0.5, 1.0, 2.0, 0.25]}, [5, 4], "normal", "classes"


def draw(how, shape, generator):
    if how == "classes":
        return torch.randint(0, shape[1], [shape[0], *shape[2:]], generator=generator)
    if how == "labels":
        return torch.tensor([[1, 3, -1, 0], [0, -1, 2, 2], [2, 1, 0, 3]])
    normal = torch.randn(shape, generator=generator)
    if isinstance(how, int):
        return torch.randint(0, how, shape, generator=generator)
    uniform = torch.rand(shape, generator=generator) * 0.9 + 0.05
    return {"normal": normal, "positive": uniform, "log": uniform.log(), "bits": (normal > 0).float(), "signs": normal.sign(),
            "counts": (uniform * 5).floor()}[how]


def python(args):
    """The arguments of a config as PyTorch's."""
    out = {}
    for key, value in args.items():
        if key in ("weight", "pos_weight"):
            value = torch.tensor(value, dtype=torch.float64)
        elif key == "momentum" and value == "cumulative":
            value = None
        out[key] = tuple(value) if isinstance(value, list) else value
    return out


class SelfAttention(nn.MultiheadAttention):
    """What a config's MultiheadAttention does: attention of x to itself."""

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
    """By complex numbers."""

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


# Types of a config that are made of PyTorch's, or whose call takes more in PyTorch.
MADE = {"MultiheadAttention": SelfAttention, "TransformerEncoderLayer": EncoderLayer, "TransformerEncoder": encoder,
        "PositionalEncoding": PositionalEncoding, "PositionEmbedding": PositionEmbedding, "RotaryEmbedding": RotaryEmbedding}


def waves(y):
    return torch.cos(torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape)


def first(outputs):
    """Of a recurrent layer, which returns its states as well."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def layer_case(kind, args, shape, how="normal"):
    text = json.dumps([kind, args, shape])
    generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
    torch.manual_seed(zlib.crc32(text.encode()))
    module = MADE.get(kind, getattr(nn, kind, None))(**python(args))
    random = kind in RANDOM or (kind in MADE and args.get("dropout", defaults(kind).get("dropout", 0)) > 0)
    for name, t in module.state_dict().items():  # other than the initial ones and zeros, and exact in float32
        if t.is_floating_point() and kind not in ("Embedding", "EmbeddingBag", "PositionalEncoding"):
            t.copy_(torch.rand(t.shape, generator=generator) + 0.5 if name.endswith(("weight", "var")) and t.dim() == 1
                    else torch.randn(t.shape, generator=generator))
    case = {"type": kind, "args": args, "repr": repr(module), "random": random,
            "state": [[n, list(t.shape), str(t.dtype).removeprefix("torch.")] for n, t in module.state_dict().items()]}
    tensors = {f"p.{n}": t.clone() for n, t in module.state_dict().items()}
    x = tensors["x"] = draw(how, shape, generator)
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


def loss_case(kind, args, shape, how, target, reduction):
    text = json.dumps([kind, args, shape, reduction])
    generator = torch.Generator().manual_seed(zlib.crc32(text.encode()))
    loss = getattr(nn, kind)(**{"reduction": reduction, **python(args)})
    x, t = draw(how, shape, generator), draw(target, shape, generator)
    tensors = {"x": x, "t": t}
    x = x.double().requires_grad_()
    y = loss(x, t.double() if t.is_floating_point() else t)
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
    tensors, metadata = {}, {"torch": torch.__version__}
    made = [("layer", layer_case(*case)) for case in layers()]
    for case in losses():
        for reduction in ("mean",) if "reduction" in case[1] else ("mean", "sum", "none"):
            made.append(("loss", loss_case(*case, reduction)))
    for i, (what, (case, parts)) in enumerate(made):
        key = f"{what} {i:03d}"
        metadata[key] = json.dumps(case)
        metadata[f"defaults {case['type']}"] = json.dumps(defaults(case["type"]))
        tensors.update({f"{key}/{n}": t.contiguous().clone() for n, t in parts.items()})
    path = ROOT / "tests/apps/catalog/layer_goldens.safetensors"
    save_file(tensors, path, metadata=metadata)
    print(f"{path}: {len(made)} cases, {path.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
