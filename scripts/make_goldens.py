#!/usr/bin/env python3
"""Writes tests/ops/goldens.safetensors: outputs and gradients of PyTorch for the ops of the table.

Run by hand where torch, numpy and safetensors are installed; the tests only read the file.
    python3 scripts/make_goldens.py
Case "<op>.<n>" holds in.0, in.1... and out.0..., and grad.0... of sum(out.0 * w) for the inputs that require it.
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
torch.manual_seed(7)
tensors = {}


def uniform(shape, lo=-2.0, hi=2.0):
    return (torch.rand(shape, dtype=torch.float64) * (hi - lo) + lo).requires_grad_()


counts = {}


def case(name, run, *inputs):
    """Runs in float64 and stores float64: the C++ side compares in float64 to 1e-10 and, rounded, in float32."""
    number = counts.get(name, 0)
    counts[name] = number + 1
    key = f"{name}.{number}"
    out = run(*inputs)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    w = torch.cos(torch.arange(outs[0].numel(), dtype=torch.float64)).reshape(outs[0].shape)
    needs = [t for t in inputs if t.requires_grad]
    if needs and outs[0].is_floating_point():
        grads = iter(torch.autograd.grad((outs[0] * w).sum(), needs))
    for i, t in enumerate(inputs):
        tensors[f"{key}.in.{i}"] = t.detach().clone().contiguous()
        if t.requires_grad and outs[0].is_floating_point():
            tensors[f"{key}.grad.{i}"] = next(grads).detach().clone().contiguous()
    for i, t in enumerate(outs):
        tensors[f"{key}.out.{i}"] = t.detach().clone().contiguous()


UNARY = {
    "neg": 2, "abs": 2, "sign": 2, "square": 2, "relu": 2, "floor": 2, "ceil": 2, "round": 2, "trunc": 2, "exp": 2, "exp2": 2,
    "expm1": 2, "sin": 3, "cos": 3, "tan": 1, "asin": .9, "acos": .9, "atan": 3, "sinh": 2, "cosh": 2, "tanh": 3, "erf": 2,
    "erfc": 2, "sigmoid": 6,
}
for name, bound in UNARY.items():
    case(name, getattr(torch, name), uniform((3, 5), -bound, bound))
for name in ["reciprocal", "sqrt", "rsqrt", "log", "log2", "log10", "log1p"]:
    case(name, getattr(torch, name), uniform((3, 5), 0.1, 4))
case("relu6", F.relu6, uniform((3, 5), -2, 8))
case("logsigmoid", F.logsigmoid, uniform((3, 5), -8, 8))
case("softplus", F.softplus, uniform((3, 5), -8, 8))
case("silu", F.silu, uniform((3, 5), -6, 6))
case("gelu", F.gelu, uniform((3, 5), -4, 4))
case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), uniform((3, 5), -4, 4))
case("softsign", F.softsign, uniform((3, 5)))
for name in ["add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum"]:
    lo = 0.3 if name in ("div", "pow", "atan2") else -2
    case(name, getattr(torch, name), uniform((3, 5), lo, 2), uniform((3, 5), lo, 2))
    case(name, getattr(torch, name), uniform((2, 1, 4), lo, 2), uniform((3, 1), lo, 2))
for name in ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"]:
    a = torch.tensor([0., 1., 2., 2., float("nan"), -1.], dtype=torch.float64)
    b = torch.tensor([0., 0., 2., 3., 1., -1.], dtype=torch.float64)
    case(name, getattr(torch, name), a, b)

case("mm", torch.mm, uniform((3, 4)), uniform((4, 2)))
case("bmm", torch.bmm, uniform((2, 3, 4)), uniform((2, 4, 2)))
case("matmul", torch.matmul, uniform((2, 1, 3, 4)), uniform((5, 4, 2)))
case("matmul", torch.matmul, uniform((4,)), uniform((2, 4, 3)))
case("linear", F.linear, uniform((5, 3)), uniform((4, 3)), uniform((4,)))
case("addmm", lambda i, a, b: torch.addmm(i, a, b, beta=0.5, alpha=-2), uniform((2,)), uniform((3, 4)), uniform((4, 2)))
case("sum", lambda x: x.sum((0, 2)), uniform((2, 3, 4)))
case("mean", lambda x: x.mean(1, keepdim=True), uniform((2, 3, 4)))
case("amax", lambda x: x.amax(1), torch.tensor([[1., 3., 3.], [2., 2., 2.]], dtype=torch.float64).requires_grad_())
case("amin", lambda x: x.amin(), torch.tensor([[1., 3., 3.], [2., 1., 2.]], dtype=torch.float64).requires_grad_())
case("max", lambda x: x.max(1), uniform((3, 5)))
case("argmax", lambda x: x.argmax(0), uniform((3, 5)).detach())
case("softmax", lambda x: x.softmax(0), uniform((3, 4)))
case("log_softmax", lambda x: x.log_softmax(-1), uniform((3, 4)))
target = torch.tensor([1, 3, -100, 0])
weight = torch.tensor([.5, 1.5, 1, 2], dtype=torch.float64)
for reduction in ["mean", "sum", "none"]:
    case("cross_entropy", lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction, label_smoothing=0.2), uniform((4, 4)), target, weight)
    case("nll_loss", lambda x, t, w: F.nll_loss(x, t, w, reduction=reduction), uniform((4, 4)), target, weight)
    case("mse_loss", lambda x, y: F.mse_loss(x, y, reduction=reduction), uniform((3, 4)), uniform((3, 4)))
case("cross_entropy_images", F.cross_entropy, uniform((2, 3, 3)), torch.tensor([[0, 1, 2], [1, 1, 0]]))
case("cross_entropy_probabilities", lambda x, p: F.cross_entropy(x, p, label_smoothing=0.1), uniform((3, 4)), uniform((3, 4), .1, .5))
case("gather", lambda x, i: x.gather(1, i), uniform((2, 3)), torch.tensor([[0, 2, 1], [1, 0, 2]]))
case("scatter_add", lambda x, i, s: x.scatter_add(0, i, s), uniform((3, 3)), torch.tensor([[0, 2, 1], [1, 0, 2]]), uniform((2, 3)))
case("cat", lambda a, b: torch.cat([a, b], 1), uniform((2, 3)), uniform((2, 1)))
case("stack", lambda a, b: torch.stack([a, b], -1), uniform((2, 3)), uniform((2, 3)))
case("where", lambda a, b: torch.where(a > 0, a * b, b), uniform((3, 4)), uniform((3, 4)))
case("clamp", lambda x: x.clamp(-0.5, 1), torch.tensor([-1., -.5, 0., 1., 2.], dtype=torch.float64).requires_grad_())

path = ROOT / "tests/ops/goldens.safetensors"
save_file(tensors, path, metadata={"torch": torch.__version__, "cases": str(sum(counts.values()))})
print(f"{path}: {sum(counts.values())} cases, {path.stat().st_size} bytes, torch {torch.__version__}")
