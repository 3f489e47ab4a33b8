#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own test samples (torch.testing._internal.common_methods_invocations.op_db) of every op that halfstep has.

    python3 tests/parity/op_db.py --halfstep build/default/halfstep               # everything
    python3 tests/parity/op_db.py --halfstep build/default/halfstep --ops scatter --list

Needs torch, numpy, expecttest and safetensors; no test of the suite runs it. Each sample becomes one line of `halfstep op --batch`:
its arguments are matched with PyTorch's signature (aten's schemas, or a Python function's) to get tensors by position and the rest
by name. The truth is the op itself in float64, the dtype that is expected that of the op in the sample's dtypes; compare.py says
what may differ. Gradients are compared in float64 and float32. What PyTorch's error samples expect to fail must fail in halfstep,
too.

Intended differences are in KNOWN with their reasons, which docs/parity.md repeats; any other makes the exit status 1.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compare import FLOATS, compare, is_floating  # noqa: E402
from live_torch import Batch, Draw, name_of, perform, reproducer  # noqa: E402
from op_db_lines import Unbound, line_of, mapped, matching, plain  # noqa: E402

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
RANDOM = ("bernoulli", "dropout", "multinomial", "rand_like", "randn", "randn_like", "randint", "native_dropout", "rrelu", "normal",
          "randint_like", "fractional_max_pool2d", "fractional_max_pool3d")
# Intended differences: (op, text of the difference, reason), the first two patterns of re.
KNOWN = [
    (r".*", r"(must be|needs) floating( tensors)?, got (u?int|bool)", "integer tensors where halfstep takes floating ones only"),
    (r"addbmm|addmm|addmv|addr|baddbmm", r"beta and alpha must be whole numbers",
     "fractional beta and alpha of integer products, which PyTorch cuts off"),
    (r"addr", r"no product of bool", "products of bool"),
    (r"argsort|sort|topk|kthvalue|median|mode", r"out(\.1)?: \d+ of \d+ elements differ",
     "which of equal elements is named: halfstep's the first"),
    (r"multi_margin_loss|multilabel_margin_loss", r"halfstep refuses: ShapeError",
     "0-dim inputs and [1] targets of a single row in margin losses"),
    (r"hardsigmoid", r"grad\.0 \(float64\)", "hardsigmoid's gradient in PyTorch has 1/6 in float32"),
    (r"layer_norm|native_layer_norm|normalize", r"against (0|-?[\d.]+e-1\d) \(off by [\d.]+e-0[56]",
     "float32 gradients whose truth is 0"),
    (r"linspace|logspace", r"out \(b?float16\)", "linspace and logspace in 16 bits: PyTorch steps in 16 bits"),
    (r"grid_sample(r_[23]d)?", r"^grad\.1 \(float32\): \d of \d+ elements",
     "a float32 coordinate that falls on a border, where the slope jumps"),
    (r"ctc_loss", r"^grad\.0", "ctc_loss's gradient, as said in docs/parity.md"),
    (r"einsum", r"out is torch.u?int\d+, expected torch.int64",
     "einsum of integers narrower than int64 that PyTorch sums on the way"),
    (r"embedding(_bag)?", r"no sparse gradients", "sparse gradients"),
    (r"embedding_bag", r"out \(b?float16\)", "rows scaled to max_norm are rounded in place, and then added up"),
    (r"atleast_[123]d", r"must be one tensor, got a list", "lists of tensors in atleast_1d and its kin"),
    (r"cholesky_solve", r"^grad\.1 \(float\d\d\): \d+ of \d+ elements; at \[.*\] 0 against",
     "cholesky_solve's gradient of the triangle that is not read is 0"),
    (r".*_loss", r"input and target must have one shape", "losses whose target PyTorch broadcasts"),
    (r"hypot", r"^grad\.0 \(float32\): 1 of \d+ elements; at \[\d\] 0 against", "the gradient of hypot where its value overflows"),
    (r"linalg_eigh", r"^out\.1", "signs of eigenvectors, and gradients that depend on them"),
    (r"linalg_lstsq", r"^out\.1 has shape|must have the shape of out\.1", "lstsq as by the driver gelsd, with residuals by all"),
    (r"linalg_(matrix_rank|pinv)", r"no argument 'hermitian'", "hermitian of matrix_rank and pinv"),
    (r"scatter_reduce", r"no result for bool", "scatter_reduce of bool"),
    (r"tensor_split", r"'sections' is missing", "places to cut as a tensor in tensor_split"),
    (r"unravel_index", r"too many elements", "shapes of unravel_index of more than 2^63 elements"),
    (r"group_norm", r"PyTorch refuses: Expected HxW", "group_norm of no positions, which PyTorch refuses"),
]

WHOLE = {"linalg.lstsq": torch.linalg.lstsq}  # ops of which a variant of op_db returns some of the outputs


def flat(out):
    if torch.is_tensor(out):
        return [out]
    if isinstance(out, (list, tuple)):
        return [t for o in out for t in flat(o)]
    return [torch.tensor(out)] if isinstance(out, (bool, int, float)) else []


class Sample(Draw):
    def __init__(self, info, name, sample, grad):
        tensors, attrs = line_of(info, name, sample)
        ins = [None] * (1 + max([int(n.split(".")[0]) for n in tensors], default=-1))
        super().__init__({"op": name, "in": ins, "attrs": attrs}, tensors, None, grad, False)
        self.tensors = {n: t.detach().clone() for n, t in tensors.items()}
        self.info, self.sample, self.policy = info, sample, ""
        self.originals = tensors

    def expect(self, generator):
        exact = {}

        def widened(t):  # one copy of each tensor, however often the sample names it
            if id(t) not in exact:
                wide = t.detach().double() if is_floating(t) else t.detach().clone()
                exact[id(t)] = wide.clone().requires_grad_(self.grad and is_floating(t))
            return exact[id(t)]

        def run(f):
            s = self.sample
            torch.manual_seed(1)
            op = WHOLE.get(self.info.name, self.info.op)
            return flat(op(mapped(s.input, f), *mapped(s.args, f), **mapped(s.kwargs, f)))

        try:
            low = run(lambda t: t.detach().clone())
        except Exception as e:
            self.refused = str(e).splitlines()[0] if str(e) else type(e).__name__
            return
        self.dtypes = [o.dtype for o in low]
        try:
            with torch.enable_grad():
                truth = run(widened)
        except Exception:  # not in float64: the answer in its own dtype will do
            self.grad, truth = False, low
        self.compute = [t.dtype for t in self.tensors.values() if is_floating(t)]
        self.want = [o.detach() for o in truth]
        self.gradients = {}
        outputs, seeds = [], []
        for i, (o, dtype) in enumerate(zip(truth, self.dtypes)):
            if self.grad and is_floating(o) and dtype in FLOATS:
                w = (torch.rand(o.shape, dtype=torch.float64, generator=generator) * 2 - 1).to(dtype)
                self.weights["w" if len(truth) == 1 else f"w.{i}"] = w
                if o.requires_grad:
                    outputs.append(o)
                    seeds.append(w.double())
        leaves = {n: exact[id(t)] for n, t in self.originals.items() if id(t) in exact and exact[id(t)].requires_grad}
        if not outputs or not leaves or len({id(t) for t in leaves.values()}) < len(leaves):
            return
        try:
            got = torch.autograd.grad(outputs, list(leaves.values()), seeds, allow_unused=True)
            self.gradients = dict(zip(leaves, got))
        except (RuntimeError, NotImplementedError):
            pass


def known(op, text):
    for pattern, what, reason in KNOWN:
        if re.fullmatch(pattern, op) and re.search(what, text):
            return reason
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--halfstep", default="build/default/halfstep", help="the program")
    parser.add_argument("--ops", default="", help="only ops whose name contains this")
    parser.add_argument("--most", type=int, default=25, help="samples of an op in a dtype")
    parser.add_argument("--show", type=int, default=3, help="mismatches printed for each op")
    parser.add_argument("--list", action="store_true", help="a row for each op, not only totals")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "halfstep-parity",
                        help="where reproducers go")
    o = parser.parse_args()

    torch.set_num_threads(1)
    ours = {op["name"] for op in json.loads(subprocess.run([o.halfstep, "ops", "--json"], check=True, capture_output=True,
                                                           text=True).stdout)["ops"]}
    batch, generator = Batch(o.halfstep, 1), torch.Generator().manual_seed(1)
    counts, reasons, shown = collections.defaultdict(collections.Counter), collections.Counter(), collections.defaultdict(list)
    memory = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None

    def judge(draw, name, folder):
        (folder / "out.safetensors").unlink(missing_ok=True)
        line, answer = perform(draw, batch, folder, "cpu")
        if (name in RANDOM or draw.attrs.get("dropout_p")) and answer["ok"] and draw.refused is None:  # any values will do
            got = load_file(folder / "out.safetensors")
            drawn = [got.get("out" if len(draw.want) == 1 else f"out.{i}") for i in range(len(draw.want))]
            draw.want = [d if d is not None and d.shape == w.shape else w for d, w in zip(drawn, draw.want)]
        verdict, what = compare(draw, answer, folder)
        if what and (reason := known(name, what)):
            reasons[reason] += 1
            verdict = "known"
        counts[name][verdict] += 1
        if verdict in ("failed", "lenient") and what and len(shown[name]) < o.show:
            inputs = ", ".join(f"{n}: {name_of(t.dtype)} {list(t.shape)}" for n, t in draw.tensors.items())
            shown[name].append(f"{name}: {what}\n    inputs {inputs}\n    {reproducer(line, folder, o.keep, len(shown[name]))}")

    with tempfile.TemporaryDirectory(dir=memory) as place:
        folder = pathlib.Path(place)
        for info, name in matching(ours):
            if o.ops not in name:
                continue
            for dtype in DTYPES:
                if dtype not in info.supported_dtypes("cpu"):
                    continue
                torch.manual_seed(1)
                for k, sample in enumerate(info.sample_inputs("cpu", dtype, requires_grad=False)):
                    if k >= o.most:
                        break
                    if not plain(sample):
                        counts[name]["not ours"] += 1
                        continue
                    try:
                        smooth = info.supports_autograd and dtype in (torch.float64, torch.float32) and name not in RANDOM
                        draw = Sample(info, name, sample, smooth and not sample.kwargs.get("dropout_p"))
                    except (Unbound, TypeError):
                        counts[name]["unbound"] += 1
                        if len(shown[name]) < o.show:
                            shown[name].append(f"{name}: no signature for {sample.summary()}")
                        continue
                    draw.expect(generator)
                    judge(draw, name, folder)
            try:
                errors = list(info.error_inputs("cpu")) if info.error_inputs_func else []
            except Exception:
                errors = []
            for e in errors:
                try:
                    if not plain(e.sample_input):
                        raise Unbound
                    draw = Sample(info, name, e.sample_input, False)
                except Exception:  # wrong kinds of arguments have no line
                    counts[name]["no line"] += 1
                    continue
                draw.expect(generator)
                judge(draw, name, folder)
    columns = ["ok", "refused", "known", "lenient", "failed", "unbound", "not ours", "no line"]
    print(f"{'op':34}" + "".join(f"{c:>10}" for c in columns))
    total = sum((counts[op] for op in counts), collections.Counter())
    for op in sorted(counts) if o.list else []:
        print(f"{op:34}" + "".join(f"{counts[op][c] or '':>10}" for c in columns))
    print(f"{f'all {len(counts)}':34}" + "".join(f"{total[c]:>10}" for c in columns))
    print("refused: both raise; lenient: only PyTorch raises; not ours: complex numbers and the like; "
          "no line: arguments of a wrong kind")
    for reason, n in reasons.most_common():
        print(f"known {n:>6}  {reason}")
    for op in sorted(shown):
        for text in shown[op]:
            print("\n" + text)
    return 1 if total["failed"] or total["lenient"] or total["unbound"] or not total else 0


if __name__ == "__main__":
    sys.exit(main())
