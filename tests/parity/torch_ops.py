# SPDX-License-Identifier: Apache-2.0
"""halfstep's ops as PyTorch calls. Needs torch.

    outputs = call("conv2d", [x, weight, None], {"stride": 2})

Tensor arguments come by position in PyTorch's order, None where one is left out, a list for a list argument; all others by
PyTorch's names. Most ops are found under their name in torch.nn.functional, torch, torch.linalg, as a method or among aten's; those
whose tensors do not come first, or that have another name in torch, are in NAMES and SPECIAL.
"""
import math
import warnings

import torch
import torch.nn.functional as F

DTYPES = {n: getattr(torch, n) for n in ("float16", "bfloat16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64",
                                         "bool")}
NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
warnings.filterwarnings("ignore", module="torch")
warnings.filterwarnings("ignore", message=".*")

# The tensors' parameter names, where other parameters are between them.
NAMES = {
    "gather": (torch.gather, ["input", "index"]),
    "index_select": (torch.index_select, ["input", "index"]),
    "index_add": (torch.index_add, ["input", "index", "source"]),
    "index_copy": (torch.index_copy, ["input", "index", "source"]),
    "index_fill": (torch.index_fill, ["input", "index", "value"]),
    "narrow": (torch.narrow, ["input", "start"]),
    "diff": (torch.diff, ["input", "prepend", "append"]),
    "take_along_dim": (torch.take_along_dim, ["input", "indices"]),
    "layer_norm": (F.layer_norm, ["input", "weight", "bias"]),
    "rms_norm": (F.rms_norm, ["input", "weight"]),
    "group_norm": (F.group_norm, ["input", "weight", "bias"]),
    "native_layer_norm": (torch.ops.aten.native_layer_norm, ["input", "weight", "bias"]),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, ["input", "target", "weight", "pos_weight"]),
    "multi_margin_loss": (F.multi_margin_loss, ["input", "target", "weight"]),
    "max_unpool2d": (F.max_unpool2d, ["input", "indices"]),
    "fractional_max_pool2d": (F.fractional_max_pool2d, ["input", "_random_samples"]),
    "fractional_max_pool3d": (F.fractional_max_pool3d, ["input", "_random_samples"]),
    "slice_scatter": (torch.slice_scatter, ["input", "src"]),
    "select_scatter": (torch.select_scatter, ["input", "src"]),
}


TENSORS_ONLY = (torch.maximum, torch.minimum, torch.atan2, torch.logaddexp, torch.logaddexp2, torch.fmax, torch.fmin,
                torch.hypot, torch.heaviside, torch.logical_and, torch.logical_or, torch.logical_xor)


def one_number(function, first="input", second="other"):
    """A binary op one of whose operands may be a number with a name."""

    def run(t, a):
        a = dict(a)
        x = t[0] if len(t) > 0 and t[0] is not None else a.pop(first)
        y = t[1] if len(t) > 1 and t[1] is not None else a.pop(second)
        if not torch.is_tensor(x) and not torch.is_tensor(y):
            raise TypeError("no tensor")
        if not torch.is_tensor(x) and function not in (torch.pow, torch.remainder, torch.xlogy):
            x = wrapped(x, y)
        elif not torch.is_tensor(y) and function in TENSORS_ONLY:
            y = wrapped(y, x)
        return function(x, y, **a)

    return run


def div(t, a):
    a = dict(a)
    rest = {k: v for k, v in a.items() if k != "rounding_mode"}
    return one_number(lambda x, y: torch.div(x, y, rounding_mode=a.get("rounding_mode")))(t, rest)


def of_sum(norm):
    """A norm of the sum of the first two tensors, and the sum."""

    def run(t, a):
        names = ["weight", "bias"]
        return [norm(t[0] + t[1], **{n: x for n, x in zip(names, t[2:]) if x is not None}, **a), t[0] + t[1]]

    return run


def pad(t, a):  # torch wraps further than what negative padding left, into memory that nothing was written to
    if a.get("mode") == "circular":
        for i, n in enumerate(t[0].shape[::-1][: len(a["pad"]) // 2]):
            before, after = a["pad"][2 * i], a["pad"][2 * i + 1]
            if max(before, after) > n + min(before, 0) + min(after, 0):
                raise ValueError("wraps more than once")
    return F.pad(t[0], **a)


def wrapped(number, like):
    """A number as a 0-dim tensor that counts in promotion as the number would."""
    if like.is_floating_point():
        return torch.tensor(float(number), dtype=like.dtype)
    return torch.tensor(number)


def split(t, a):
    a = dict(a)
    size = next(a.pop(k) for k in ("split_size_or_sections", "split_size", "split_sizes", "size", "sizes") if k in a)
    return torch.split(t[0], size, **a)


def where(t, a):
    if len(t) == 1 and "input" not in a and "other" not in a:
        return torch.where(t[0])
    x = t[1] if len(t) > 1 and t[1] is not None else a["input"]
    y = t[2] if len(t) > 2 and t[2] is not None else a["other"]
    return torch.where(t[0], x, y)


def clamp(t, a):
    a = dict(a)
    for i, name in ((1, "min"), (2, "max")):
        if len(t) > i and t[i] is not None:
            a[name] = t[i]
    return torch.clamp(t[0], **a)


def third_number(function, name):
    """function(x, y, tensor-or-number called `name`)."""

    def run(t, a):
        a = dict(a)
        third = t[2] if len(t) > 2 and t[2] is not None else a.pop(name)
        return function(t[0], t[1], third, **a)

    return run


def cell(function, lists):
    """A recurrent cell: (x, h or [h, c], w_ih, w_hh, b_ih, b_hh), also flat."""

    def run(t, a):
        t = list(t)
        if lists and not isinstance(t[1], (list, tuple)):
            t = [t[0], [t[1], t[2]], *t[3:]]
        return function(*t, **a)

    return run


def sequence(function):
    """Recurrent layers: (x, h or [h, c], parameters), packed where `batch_sizes` are given."""

    def run(t, a):
        x, states, parameters = t
        a = {"has_biases": len(parameters) // (a.get("num_layers", 1) * (2 if a.get("bidirectional") else 1)) >= 4,
             "num_layers": 1, "dropout": 0.0, "train": False, "bidirectional": False, "batch_first": False, **a}
        if "batch_sizes" in a:
            x = (x, torch.tensor(a.pop("batch_sizes")))
            del a["batch_first"]
        else:
            x = (x,)
        return function(*x, states, parameters, **a)

    return run


def flat_list(function):
    return lambda t, a: function(*(t[0] if isinstance(t[0], (list, tuple)) else t), **a)


def norm(t, a):
    return torch.norm(t[0], **{"p": 2, **{k: v for k, v in a.items() if v != []}})


def einsum(t, a):
    return torch.einsum(a["equation"], *(t[0] if isinstance(t[0], (list, tuple)) else t))


def masked_fill(t, a):
    return torch.masked_fill(t[0], t[1], t[2] if len(t) > 2 else a["value"])


def with_tolerances(function):
    def call(t, a):
        return function(t[0], **{n: x for n, x in zip(("atol", "rtol"), t[1:]) if x is not None}, **a)
    return call


def no_mm(t, a):  # the difference of squares loses half of the digits that the comparison wants
    return torch.cdist(*t, **{"compute_mode": "donot_use_mm_for_euclid_dist", **a})


def hardsigmoid(t, a):  # torch's gradient has 1/6 in float32
    x = t[0]
    if not x.is_floating_point():
        return F.hardsigmoid(x)
    return torch.where(x <= -3, x.clamp(0, 0), torch.where(x >= 3, x.clamp(1, 1), x / 6 + 0.5))


def hardswish(t, a):  # 0 at -inf, where torch has NaN
    out = F.hardswish(t[0])
    return torch.where(t[0] == -math.inf, 0.0, out)


def scattered(function):
    """With a source of the index's size: torch's gradient fails for a larger one."""

    def run(t, a):
        if len(t) < 3:
            return function(input=t[0], index=t[1], **a)
        return function(input=t[0], index=t[1], src=t[2][tuple(slice(0, n) for n in t[1].shape)], **a)

    return run


def convolution(t, a):
    dims = t[1].dim() - 2

    def per_dim(name, otherwise):
        v = a.get(name, otherwise)
        return v if isinstance(v, list) else [v] * dims

    bias = t[2] if len(t) > 2 else None
    return torch.convolution(t[0], t[1], bias, per_dim("stride", 1), per_dim("padding", 0), per_dim("dilation", 1),
                             a.get("transposed", False), per_dim("output_padding", 0), a.get("groups", 1))


def topk(t, a):  # of ties the first, where torch takes any
    k, dim, largest = a["k"], a.get("dim", -1), a.get("largest", True)
    torch.topk(t[0].detach(), **a)  # for its errors
    values, indices = torch.sort(t[0], dim=dim, descending=largest, stable=True)
    return (values, indices) if t[0].dim() == 0 else (values.narrow(dim, 0, k), indices.narrow(dim, 0, k))


def celu(t, a):  # torch's gradient has 1/alpha in float32
    alpha = a.get("alpha", 1.0)
    if not t[0].is_floating_point():
        return F.celu(t[0], alpha)
    return torch.where(t[0] > 0, t[0], alpha * torch.expm1(t[0].clamp(max=0) / alpha))


def embedding_dense_backward(t, a):  # torch's own gradient forgets the frequencies
    weights, padding, by_frequency = a["num_weights"], a.get("padding_idx", -1), a.get("scale_grad_by_freq", False)
    torch.ops.aten.embedding_dense_backward(t[0].detach(), t[1], weights, padding, by_frequency)  # for its errors
    index = t[1].reshape(-1).long()
    scale = (index != padding).to(t[0].dtype)
    if by_frequency:
        scale = scale / torch.bincount(index, minlength=weights)[index]
    rows = t[0].reshape(index.numel(), -1) * scale[:, None]
    return rows.new_zeros(weights, rows.shape[1]).index_add(0, index, rows)


def embedding(t, a):
    weight, indices = t if t[0].is_floating_point() else reversed(t)
    return F.embedding(indices, weight.clone() if "max_norm" in a else weight, **a)  # which is changed in place


def embedding_bag(t, a):
    weight, index, offsets, factors = [*t, None, None][:4]
    weight = weight.clone() if "max_norm" in a else weight  # which is changed in place
    return F.embedding_bag(index, weight, offsets, per_sample_weights=factors, **a)


def ctc_loss(t, a):
    """By the definition: F.ctc_loss's gradient holds only for inputs that come out of a log_softmax."""
    blank, reduction, zero_infinity = a.get("blank", 0), a.get("reduction", "mean"), a.get("zero_infinity", False)
    F.ctc_loss(t[0].detach(), *t[1:], **a)  # for its errors
    x = t[0] if t[0].dim() == 3 else t[0].unsqueeze(1)
    losses, start = [], 0
    never = x.new_full((), -math.inf)
    for n, (steps, length) in enumerate(zip(t[2].reshape(-1).tolist(), t[3].reshape(-1).tolist())):
        labels = t[1][n, :length].tolist() if t[1].dim() == 2 else t[1][start : start + length].tolist()
        start += length
        states = [blank] + [s for label in labels for s in (label, blank)]
        before = None
        for step in range(steps):
            now = []
            for s, label in enumerate(states):
                if before is None:
                    ways = [x.new_zeros(())] if s < 2 else []
                else:
                    ways = [before[s]] + ([before[s - 1]] if s > 0 else [])
                    ways += [before[s - 2]] if s > 1 and label != blank and label != states[s - 2] else []
                ways = [w for w in ways if w.isfinite()]
                now.append(torch.logsumexp(torch.stack(ways), 0) + x[step, n, label] if ways else never)
            before = now
        ends = [w for w in (before[-2:] if before else [x.new_zeros(())] if not labels else []) if w.isfinite()]
        loss = -torch.logsumexp(torch.stack(ends), 0) if ends else x.new_full((), 0.0 if zero_infinity else math.inf)
        losses.append(loss / max(length, 1) if reduction == "mean" else loss)
    if reduction == "none":
        return torch.stack(losses) if t[0].dim() == 3 else losses[0]
    return torch.stack(losses).sum() if reduction == "sum" else torch.stack(losses).mean()


SPECIAL = {
    "ctc_loss": ctc_loss,
    "convolution": convolution,
    "embedding": embedding,
    "embedding_bag": embedding_bag,
    "embedding_dense_backward": embedding_dense_backward,
    "celu": celu,
    "topk": topk,
    "margin_ranking_loss": lambda t, a: F.margin_ranking_loss(*torch.broadcast_tensors(*t), **a),
    "scatter": scattered(torch.scatter),
    "scatter_add": scattered(torch.scatter_add),
    "scatter_reduce": scattered(torch.scatter_reduce),
    **{n: one_number(getattr(torch, n)) for n in (
        "add", "sub", "mul", "maximum", "minimum", "atan2", "remainder", "fmod", "floor_divide", "logaddexp", "xlogy",
        "fmax", "fmin", "logaddexp2", "hypot", "copysign", "heaviside",
        "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor",
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")},
    "div": div,
    "pad": pad,
    "trunc_divide": one_number(lambda x, y: torch.div(x, y, rounding_mode="trunc")),
    "pow": one_number(torch.pow, "self", "exponent"),
    "float_power": one_number(torch.float_power, "self", "exponent"),
    "where": where,
    "clamp": clamp,
    "lerp": third_number(torch.lerp, "weight"),
    "masked_fill": masked_fill,
    "gelu_tanh": lambda t, a: F.gelu(t[0], approximate="tanh"),
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "view": lambda t, a: t[0].view(a["shape"]),
    "expand": lambda t, a: t[0].expand(a["size"]),
    "repeat": lambda t, a: t[0].repeat(a["repeats"] if "repeats" in a else a["sizes"]),
    "split": split,
    "cross": lambda t, a: torch.linalg.cross(*t, **a),
    "cdist": no_mm,
    "norm": norm,
    "frobenius_norm": norm,
    "sort": lambda t, a: torch.sort(t[0], **{"stable": True, **a}),
    "msort": lambda t, a: torch.sort(t[0], dim=0, stable=True)[0],
    "argsort": lambda t, a: torch.argsort(t[0], **{"stable": True, **a}),
    "chain_matmul": flat_list(torch.chain_matmul),
    "block_diag": flat_list(torch.block_diag),
    "multi_dot": lambda t, a: torch.linalg.multi_dot(t[0] if isinstance(t[0], (list, tuple)) else t),
    "einsum": einsum,
    "index": lambda t, a: torch.ops.aten.index(t[0], t[1]),
    "index_put": lambda t, a: torch.ops.aten.index_put(t[0], t[1], t[2], **a),
    "lstm_cell": cell(torch.lstm_cell, True),
    "gru_cell": cell(torch.gru_cell, False),
    "rnn_tanh_cell": cell(torch.rnn_tanh_cell, False),
    "rnn_relu_cell": cell(torch.rnn_relu_cell, False),
    **{n: sequence(getattr(torch, n)) for n in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    "add_layer_norm": of_sum(F.layer_norm),
    "add_rms_norm": of_sum(F.rms_norm),
    "nll_loss2d": lambda t, a: F.nll_loss(*t, **a),
    "unfold_dimension": lambda t, a: t[0].unfold(a["dimension"], a["size"], a["step"]),
    "polygamma": lambda t, a: torch.polygamma(a["n"], t[0]),
    "bincount": lambda t, a: torch.bincount(*(t if len(t) > 1 and t[1] is not None else t[:1]), **a),
    "det": lambda t, a: torch.linalg.det(t[0]),
    "cholesky": lambda t, a: torch.linalg.cholesky(t[0], **a),
    # the driver that says the singular values
    "linalg_lstsq": lambda t, a: torch.linalg.lstsq(t[0], t[1], **{"driver": "gelsd", **a}),
    "linalg_pinv": with_tolerances(torch.linalg.pinv),
    "linalg_matrix_rank": with_tolerances(torch.linalg.matrix_rank),
    "searchsorted": lambda t, a: torch.searchsorted(t[0], t[1], sorter=t[2] if len(t) > 2 else None, **a),
    "movedim": lambda t, a: torch.movedim(t[0], a["source"], a["destination"]),
}


def find(op):
    for home in (F, torch, torch.linalg, torch.special):
        if callable(getattr(home, op, None)):
            return getattr(home, op)
    if op.startswith("linalg_") and callable(getattr(torch.linalg, op.removeprefix("linalg_"), None)):
        return getattr(torch.linalg, op.removeprefix("linalg_"))
    if callable(getattr(torch.Tensor, op, None)):
        return getattr(torch.Tensor, op)
    try:
        return getattr(torch.ops.aten, op)
    except AttributeError:
        return None


def known(op):
    return op in SPECIAL or op in NAMES or find(op) is not None


def value_of(v):
    if isinstance(v, str):
        return NUMBERS.get(v, DTYPES.get(v, v))
    return [value_of(x) for x in v] if isinstance(v, list) else v


def call(op, tensors, attrs):
    """The outputs, as a list of tensors."""
    a = {k: value_of(v) for k, v in attrs.items() if v is not None}
    if isinstance(a.get("normalized_shape"), int):
        a["normalized_shape"] = [a["normalized_shape"]]
    if op in SPECIAL:
        out = SPECIAL[op](tensors, a)
    elif op in NAMES:
        function, names = NAMES[op]
        out = function(**{n: t for n, t in zip(names, tensors) if t is not None}, **a)
    else:
        while tensors and tensors[-1] is None:
            tensors = tensors[:-1]
        out = find(op)(*tensors, **a)
    flat = []

    def collect(x):
        if isinstance(x, (list, tuple)):
            for y in x:
                collect(y)
        else:
            flat.append(x if torch.is_tensor(x) else torch.tensor(x))

    collect(out)
    return flat
