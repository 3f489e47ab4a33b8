#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds halfstep's ops against PyTorch on random inputs: values, dtypes, gradients and errors, with and without autocast.

    python3 tests/parity/live_torch.py --halfstep build/default/halfstep                   # everything, 20 draws a case
    python3 tests/parity/live_torch.py --halfstep build/default/halfstep --ops conv --cases 200 --seed 3

Needs torch, numpy and safetensors; no test of the suite runs it. Draws come from tests/ops/cases/*.json (new values, other sizes
where the shapes allow it) and from the rows of elementwise.def (broadcast shapes, integers, bool, NaN, infinities, ties). Every
draw is one line of `halfstep op --batch`. The truth is PyTorch in float64 on the very inputs, cast as the op's autocast policy says
(PyTorch's own CPU autocast has other lists); the dtype that is expected is the one PyTorch gives when run in the inputs' dtypes.

Allowed: float64 1e-10; float32 1e-5 (1e-4 for convolutions, products and long sums); float16 and bfloat16 one ulp from the rounded
truth, two for reductions and products, or the case's "ulps". A draw that both refuse counts as agreement on the error.
"""
import argparse
import collections
import json
import math
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cases as C  # noqa: E402
import torch_ops as T  # noqa: E402
from compare import FLOATS, HALF, compare, is_floating  # noqa: E402


class Draw:
    """One call: the op, its tensors by name, attributes, autocast dtype; and what is expected of it."""

    def __init__(self, case, tensors, autocast, grad, exact):
        self.case, self.op, self.attrs = case, case["op"], case.get("attrs", {})
        self.tensors, self.autocast, self.grad, self.elementwise = tensors, autocast, grad, exact
        self.weights = {}
        self.refused = None  # PyTorch's error


# ---- drawing


def jittered(case, rng):
    """A map of sizes, the same for all tensors of the case, so that shapes which fit still do."""
    if any(isinstance(s, dict) and "values" in s for _, s in C.specs_of(case)):
        return lambda shape: shape
    sizes = {}

    def other(n):
        if n <= 1:
            return n
        if n not in sizes:
            sizes[n] = rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17, 31, 33])
        return sizes[n]

    def change(shape):
        new = [other(n) for n in shape]
        return new if math.prod(new) <= 30000 else shape

    return change


def low_mix(rng, tensors, names, mixed):
    """Casts the floating tensors, all to one dtype or each to its own."""
    one = rng.choice([torch.float32, torch.float32, torch.float16, torch.bfloat16])
    for n in names:
        if is_floating(tensors[n]):
            tensors[n] = tensors[n].to(rng.choice([torch.float32, torch.float16, torch.bfloat16]) if mixed else one)


def from_case(case, policy, rng, generator, jitter):
    change = jittered(case, rng) if jitter and rng.random() < 0.6 else (lambda shape: shape)
    tensors = {name: C.draw(spec, generator, change) for name, spec in C.specs_of(case)}
    autocast = rng.choice([None, None, torch.float16, torch.bfloat16])
    if "dtype" in case.get("attrs", {}):  # an explicit dtype is not touched, and fixes what it computes in
        autocast = None
    if autocast:
        low_mix(rng, tensors, tensors, policy in ("lower", "fp32", "promote") and rng.random() < 0.5)
    else:
        dtype = rng.choice(FLOATS)
        for name, t in tensors.items():
            if is_floating(t):
                tensors[name] = t.to(dtype)
    return Draw(case, tensors, autocast, case.get("gradient", True), False)


TIES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 2.0, -2.0, 3.0, -3.0, 6.0]
INTEGERS = [torch.int64, torch.int32, torch.uint8, torch.int8, torch.int16, torch.bool]
WILD = TIES + [math.nan, math.inf, -math.inf, 100.0]  # for values only: which gradient a NaN has is nobody's business


def broadcast_shapes(count, rng):
    rank = rng.randint(0, 4)
    shape = [rng.choice([1, 2, 3, 4, 5, 7, 8]) for _ in range(rank)]
    if rank and rng.random() < 0.15:
        shape[rng.randrange(rank)] = rng.choice([0, 31, 33, 257, 1000])
    out = [list(shape) for _ in range(count)]
    for s in out[1:]:
        if rng.random() < 0.5:
            del s[: rng.randint(0, len(s))]
            for i in range(len(s)):
                if rng.random() < 0.3:
                    s[i] = 1
    rng.shuffle(out)
    return out


def from_row(op, rng, generator):
    count, lo, hi = C.rows()[op]
    shapes = broadcast_shapes(count, rng)
    autocast = rng.choice([None, None, None, torch.float16, torch.bfloat16])
    wide, special = rng.random() < 0.2, rng.choice([None] * 6 + [TIES, WILD])
    dtype = rng.choice(FLOATS)
    tensors = {}
    for i, shape in enumerate(shapes):
        if wide:
            lo, hi = -10.0, 10.0  # e^10 is a float16
        t = torch.rand(shape, dtype=torch.float64, generator=generator) * (hi - lo) + lo
        if special and t.numel():
            for _ in range(rng.randint(1, 4)):
                t.view(-1)[rng.randrange(t.numel())] = rng.choice(special)
        if rng.random() < 0.15:
            t = (t * 2).round().nan_to_num(1, 2, -2).to(rng.choice(INTEGERS))
            if i == 1 and op in ("remainder", "fmod", "floor_divide", "trunc_divide", "div"):
                t = torch.where(t == 0, torch.ones_like(t), t)
        else:
            t = t.to(dtype)
        tensors[str(i)] = t
    if any(t.dtype == torch.uint8 for t in tensors.values()):  # to which torch turns a negative 0-dim operand
        tensors = {n: t if is_floating(t) or t.dtype == torch.bool else t.abs() for n, t in tensors.items()}
    if autocast or rng.random() < 0.3:
        for n in [n for n, t in tensors.items() if is_floating(t)]:
            tensors[n] = tensors[n].to(rng.choice(FLOATS if not autocast else FLOATS[1:]))
    case = {"op": op, "in": [[]] * count, "gradient": special is not WILD}
    return Draw(case, tensors, autocast, case["gradient"], True)


# ---- the truth


def policy_of(case, policies):
    """The op's, or, for one that is on no list but calls one that is, that one's."""
    if case["op"] == "interpolate" and case.get("attrs", {}).get("mode") != "area":
        return "fp32"
    return policies.get(case["op"])



def cast_by_policy(draw):
    policy = draw.policy
    tensors = dict(draw.tensors)
    if draw.autocast is None or policy not in ("lower", "fp32", "promote"):
        return tensors
    eligible = [n for n, t in tensors.items() if t.dtype in (torch.float32, *HALF)]
    widest = any(tensors[n].dtype != draw.autocast for n in eligible)
    target = {"lower": draw.autocast, "fp32": torch.float32, "promote": torch.float32 if widest else draw.autocast}[policy]
    for n in eligible:
        tensors[n] = tensors[n].to(target)
    return tensors


def run_torch(draw, tensors):
    return T.call(draw.op, C.arguments(draw.case, tensors), draw.attrs)


def expected_dtypes(draw, tensors, truth):
    """The outputs' dtypes: PyTorch's when it can run in these dtypes, else the widest of the inputs."""
    try:
        return [o.dtype for o in run_torch(draw, {n: t.clone() for n, t in tensors.items()})]
    except Exception:
        floating = [t.dtype for t in tensors.values() if is_floating(t)]
        widest = floating[0] if floating else torch.float32
        for d in floating:
            widest = torch.promote_types(widest, d)
        return [widest if is_floating(o) else o.dtype for o in truth]


def expect(draw, generator):
    """Fills in draw.want, .dtypes, .gradients and .weights; draw.refused when PyTorch raises."""
    cast = cast_by_policy(draw)
    wanted, exact = C.differentiated(draw.case), {}
    for n, t in cast.items():
        exact[n] = t.detach().double().requires_grad_(draw.grad and n in wanted) if is_floating(t) else t.clone()
    if draw.elementwise and any(is_floating(t) for t in cast.values()):  # torch squares integers as integers in some gradients
        exact = {n: t if is_floating(t) else t.double() for n, t in exact.items()}
    try:
        with torch.enable_grad():
            truth = run_torch(draw, exact)
    except Exception as e:
        draw.refused = str(e).splitlines()[0] if str(e) else type(e).__name__
        return
    draw.want = [o.detach() for o in truth]
    draw.dtypes = expected_dtypes(draw, cast, truth)
    draw.compute = [t.dtype for t in cast.values() if is_floating(t)]
    draw.gradients = {}
    if not draw.grad:
        return
    outputs, seeds = [], []
    for i, (o, dtype) in enumerate(zip(truth, draw.dtypes)):
        if not is_floating(o) or dtype not in FLOATS:
            continue
        w = (torch.rand(o.shape, dtype=torch.float64, generator=generator) * 2 - 1).to(dtype)
        draw.weights["w" if len(truth) == 1 else f"w.{i}"] = w
        if o.requires_grad:
            outputs.append(o)
            seeds.append(w.double())
    names = [n for n, t in exact.items() if t.requires_grad]
    if outputs and names:
        try:
            got = torch.autograd.grad(outputs, [exact[n] for n in names], seeds, allow_unused=True)
        except (RuntimeError, NotImplementedError):  # scatter_add's own fault for a source larger than the index, for one
            return
        draw.gradients = dict(zip(names, got))


# ---- running


class Batch:
    """halfstep op --batch as a child; restarted when it dies."""

    def __init__(self, program, threads):
        self.command = [program, "op", "--batch", "-", "--threads", str(threads)]
        self.child = None

    def ask(self, line):
        if self.child is None:
            self.child = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self.child.stdin.write(json.dumps(line) + "\n")
            self.child.stdin.flush()
            reply = self.child.stdout.readline()
        except BrokenPipeError:
            reply = ""
        if reply:
            return json.loads(reply)
        code = self.child.wait()
        self.child = None
        return {"ok": False, "type": "Exception", "error": f"the program died with code {code}"}


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def perform(draw, batch, folder, device):
    file = {n: t.detach().contiguous() for n, t in draw.tensors.items()}
    file.update({n: t.contiguous() for n, t in draw.weights.items()})
    save_file(file, folder / "in.safetensors")
    line = {"op": draw.op, "in": str(folder / "in.safetensors"), "attrs": draw.attrs, "device": device, "grad": draw.grad,
            "autocast": draw.autocast and name_of(draw.autocast), "out": str(folder / "out.safetensors")}
    if not file:
        del line["in"]
    return line, batch.ask(line)


def reproducer(line, folder, keep, number):
    kept = keep / f"{line['op']}.{number}.safetensors"
    keep.mkdir(parents=True, exist_ok=True)
    if (folder / "in.safetensors").exists():
        shutil.copy(folder / "in.safetensors", kept)
    text = f"halfstep op {line['op']} --in {kept} --attrs '{json.dumps(line['attrs'])}'"
    text += f" --autocast {line['autocast']}" if line["autocast"] else ""
    text += f" --device {line['device']}" if line["device"] != "cpu" else ""
    return text + (" --grad" if line["grad"] else "")


def sources(policies, wanted):
    """(op, function that makes a draw)"""
    out = []
    for case in C.cases():
        if wanted in case["op"]:
            out.append((case["op"], lambda rng, g, jitter, case=case: from_case(case, policy_of(case, policies), rng, g, jitter)))
    for op in C.rows():
        if wanted in op and op in policies:
            out += [(op, lambda rng, g, jitter, op=op: from_row(op, rng, g))] * 4
    return out


def attempt(make, rng, generator, policies):
    """A draw with its expectation. One that PyTorch refuses is mostly replaced by one of the case's own sizes."""
    for jitter in (True, False):
        draw = make(rng, generator, jitter)
        draw.policy = policy_of(draw.case, policies)
        if draw.policy == "banned" and draw.autocast:
            draw.refused = "banned in autocast"
            break
        expect(draw, generator)
        if draw.refused is None or rng.random() < 0.2:
            break
    return draw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--halfstep", default="build/default/halfstep", help="the program")
    parser.add_argument("--ops", default="", help="only ops whose name contains this")
    parser.add_argument("--cases", type=int, default=20, help="draws a case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--show", type=int, default=3, help="mismatches printed for each op")
    kept = pathlib.Path(tempfile.gettempdir()) / "halfstep-parity"
    parser.add_argument("--keep", type=pathlib.Path, default=kept, help="where reproducers go")
    parser.add_argument("--lenient", action="store_true", help="also print what only PyTorch refuses")
    o = parser.parse_args()

    torch.set_num_threads(1)
    listed = json.loads(subprocess.run([o.halfstep, "ops", "--json"], check=True, capture_output=True, text=True).stdout)["ops"]
    policies = {op["name"]: op["policy"] for op in listed}
    batch = Batch(o.halfstep, o.threads)
    counts = collections.defaultdict(collections.Counter)
    shown = collections.defaultdict(list)
    memory = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None  # the program syncs each file that it writes
    with tempfile.TemporaryDirectory(dir=memory) as name:
        folder = pathlib.Path(name)
        for index, (op, make) in enumerate(sources(policies, o.ops)):
            if op not in policies or not T.known(op):
                counts[op]["not registered" if op not in policies else "not in torch"] += 1
                continue
            rng, generator = random.Random(f"{o.seed} {index}"), torch.Generator().manual_seed(o.seed * 100003 + index)
            for _ in range(o.cases):
                draw = attempt(make, rng, generator, policies)
                (folder / "out.safetensors").unlink(missing_ok=True)
                line, answer = perform(draw, batch, folder, o.device)
                verdict, what = compare(draw, answer, folder)
                counts[op][verdict] += 1
                if what and (verdict == "failed" or o.lenient) and len(shown[op]) < o.show:
                    inputs = ", ".join(f"{n}: {name_of(t.dtype)} {list(t.shape)}" for n, t in draw.tensors.items())
                    label = f" ({draw.case['name']})" if "name" in draw.case else ""
                    command = reproducer(line, folder, o.keep, f"{o.seed}.{sum(counts[op].values())}")
                    shown[op].append(f"{op}{label}: {what}\n    inputs {inputs}\n    {command}")
    columns = ["ok", "refused", "lenient", "failed"]
    print(f"{'op':34}" + "".join(f"{c:>9}" for c in columns))
    for op in sorted(counts):
        rest = [f"{k}" for k in counts[op] if k not in columns]
        print(f"{op:34}" + "".join(f"{counts[op][c] or '':>9}" for c in columns) + "  " + ", ".join(rest))
    total = sum((counts[op] for op in counts), collections.Counter())
    print(f"{'all':34}" + "".join(f"{total[c]:>9}" for c in columns))
    print("refused: both raise; lenient: only PyTorch raises (--lenient shows them)")
    for op in sorted(shown):
        for text in shown[op]:
            print("\n" + text)
    return 1 if total["failed"] or not total else 0


if __name__ == "__main__":
    sys.exit(main())
