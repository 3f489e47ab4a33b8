# SPDX-License-Identifier: Apache-2.0
"""The differences that live_torch.py allows between halfstep and the truth, and the verdict on one draw."""
import math

import torch
from safetensors.torch import load_file

HALF = (torch.float16, torch.bfloat16)
FLOATS = (torch.float64, torch.float32, *HALF)
# Ops with sums in them, by parts of their names.
LOOSE = ("conv", "mm", "mv", "addr", "dot", "linear", "attention", "einsum", "bilinear", "cell", "multi_dot", "lstm", "gru", "rnn",
         "norm", "cum",
         "matmul", "prod", "upsample", "interpolate", "grid_sample", "pool", "var", "std", "sum", "mean", "loss", "entropy",
         "cdist", "pdist", "dist",
         "similarity", "tensordot", "softmax", "softmin", "logsumexp", "bag", "fold", "renorm", "scatter", "index_add", "index_put",
         "mlp", "gru")

# Ops of several products, which round between them when they run in 16 bits.
CHAINED = ("chain_matmul", "multi_dot", "einsum", "attention", "cell", "lstm", "gru", "rnn", "bilinear", "mlp")


def is_floating(t):
    return t.dtype in FLOATS


ULP = {torch.float16: (10, -24), torch.bfloat16: (7, -133)}


def spacing(t, dtype):
    """The distance to the next number of `dtype` at each value."""
    bits, least = ULP[dtype]
    _, exponent = torch.frexp(t.abs())
    return torch.ldexp(torch.ones_like(t), (exponent - 1 - bits).clamp(min=least))


def mismatch(got, want, allowed):
    """A line about the worst element, or None. All float64."""
    same = (got == want) | (got.isnan() & want.isnan())
    error = torch.where(same, torch.zeros_like(got), (got - want).abs())
    bad = ~same & ~(error <= allowed)
    if not bad.any():
        return None
    excess = torch.where(bad, torch.nan_to_num(error / allowed, math.inf, math.inf), torch.zeros_like(error))
    at = int(excess.argmax())
    place = []
    for n in reversed(got.shape):
        place.insert(0, at % n)
        at //= n
    at = tuple(place)
    a, b, off, most = (t[at].item() for t in (got, want, error, allowed))
    return (f"{int(bad.sum())} of {got.numel()} elements; at {list(at)} {a:.9g} against {b:.9g} "
            f"(off by {off:.3g}, allowed {most:.3g})")


def scale_of(t):
    finite = t[t.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def check_values(draw, got, want, dtype):
    relative = 1e-4 if any(part in draw.op for part in LOOSE) else 1e-5
    size = scale_of(want)
    if dtype == torch.float64:
        allowed = want.abs() * 1e-10 + (1e-14 if draw.elementwise else 1e-11 * size + 1e-12)
    elif dtype == torch.float32:
        want = want.float().double()  # may overflow
        allowed = want.abs() * relative + (2e-7 if draw.elementwise else 0.1 * relative * size + 1e-6)
    else:
        ulps = 1 if draw.elementwise else max(draw.case.get("ulps", 1), 2 if any(part in draw.op for part in LOOSE) else 1)
        rounded = want.to(dtype).double()
        slack = 3e-7 if draw.elementwise else 1e-6 * max(size, 1)
        if any(part in draw.op for part in CHAINED):
            slack += 2 * torch.finfo(dtype).eps * size
        allowed = ulps * spacing(rounded, dtype) + slack
        want = rounded
    return mismatch(got.double(), want.double(), allowed)


def check_gradient(draw, got, want):
    """A gradient may go through outputs that were saved in their dtype."""
    dtypes = [d for d in draw.compute + draw.dtypes if d in FLOATS] + [got.dtype]
    share = 1.0 if any(d in HALF for d in dtypes) else 0.3
    if torch.bfloat16 in dtypes:
        relative = 2**-5
    elif torch.float16 in dtypes:
        relative = 2**-7
    elif torch.float32 in dtypes:
        relative = 1e-4 if any(part in draw.op for part in LOOSE) else 1e-5
    else:
        relative = 1e-9
    if any(part in draw.op for part in CHAINED):
        relative *= 4
    got, want = got.double(), want.to(got.dtype).double() if got.dtype in HALF or want.isinf().any() else want
    least = torch.finfo(min((d for d in dtypes), key=lambda d: torch.finfo(d).max)).max  # may overflow on the way
    wild = ~got.isfinite() & (~want.isfinite() | (want.abs() > least))  # which infinity, or NaN, is nobody's business
    got, want = torch.where(wild, 0.0, got), torch.where(wild, 0.0, want)
    floor = 1e-6 if torch.float16 in dtypes else 1e-12
    return mismatch(got, want, relative * (want.abs() + share * max(scale_of(want), 0.05)) + floor)


def compare(draw, answer, folder):
    """(verdict, what is wrong)"""
    if not answer["ok"]:
        if draw.refused is not None:
            return "refused", None
        if answer["type"] in ("MemoryError", "Exception", "IoError", "ConfigError", "DataError"):
            return "failed", f"{answer['type']}: {answer['error']}"
        return "failed", f"halfstep refuses: {answer['type']}: {answer['error']}"
    if draw.refused is not None and draw.autocast and draw.policy == "banned":
        return "failed", "runs in an autocast region that bans it"
    if draw.refused is not None:
        return "lenient", f"PyTorch refuses: {draw.refused}"
    got = load_file(folder / "out.safetensors")
    wrong = []
    for i, (want, dtype) in enumerate(zip(draw.want, draw.dtypes)):
        name = "out" if len(draw.want) == 1 else f"out.{i}"
        have = got.get(name)
        if have is None:
            wrong.append(f"{name} is missing")
        elif have.shape != want.shape:
            wrong.append(f"{name} has shape {list(have.shape)}, PyTorch's {list(want.shape)}")
        elif have.dtype != dtype:
            wrong.append(f"{name} is {have.dtype}, expected {dtype}")
        elif not is_floating(want):
            if not torch.equal(have, want.to(have.dtype)):
                wrong.append(f"{name}: {int((have != want).sum())} of {have.numel()} elements differ")
        elif text := check_values(draw, have, want, dtype):
            wrong.append(f"{name} ({str(dtype)[6:]}): {text}")
    if len(draw.want) != sum(n.startswith("out") for n in got):
        wrong.append(f"{sum(n.startswith('out') for n in got)} outputs, PyTorch's {len(draw.want)}")
    for name, want in draw.gradients.items():
        have = got.get(f"grad.{name}")
        if have is None or want is None:
            if have is None and want is not None and (want != 0).any():
                wrong.append(f"grad.{name} is missing")
            continue
        if have.dtype != draw.tensors[name].dtype:
            wrong.append(f"grad.{name} is {have.dtype}, its input {draw.tensors[name].dtype}")
        elif have.shape != want.shape:
            wrong.append(f"grad.{name} has shape {list(have.shape)}, its input {list(want.shape)}")
        elif text := check_gradient(draw, have, want):
            wrong.append(f"grad.{name} ({str(have.dtype)[6:]}): {text}")
    return ("failed", "; ".join(wrong)) if wrong else ("ok", None)
