#!/usr/bin/env python3
"""Runs PyTorch's own test samples (torch.testing._internal.common_methods_invocations.op_db) of every op that halfstep has.

    python3 tests/parity/op_db.py --halfstep build/cpu/halfstep               # everything
    python3 tests/parity/op_db.py --halfstep build/cpu/halfstep --ops scatter --list

Needs torch, numpy, expecttest and safetensors; no test of the suite runs it. Each sample becomes one line of `halfstep op --batch`: its
arguments are matched with PyTorch's signature (aten's schemas, or a Python function's) to get tensors by position and the rest by
name. The truth is the op itself in float64, the dtype that is expected that of the op in the sample's dtypes; compare.py says what may
differ. Gradients are compared in float64 and float32. What PyTorch's error samples expect to fail must fail in halfstep, too.

Differences that are meant stand in KNOWN with their reasons, which docs/parity.md repeats; any other makes the exit status 1.
"""
import argparse
import collections
import inspect
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from compare import FLOATS, compare, is_floating  # noqa: E402
from live_torch import Batch, Draw, name_of, perform, reproducer  # noqa: E402
from op_db_known import KNOWN  # noqa: E402

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool)
RANDOM = ("bernoulli", "dropout", "multinomial", "rand_like", "randn", "randn_like", "randint", "native_dropout", "rrelu", "normal", "randint_like")

# What halfstep calls otherwise than aten's schema: op -> {their name: ours}.
RENAMED = collections.defaultdict(dict, {
    "where": {"self": "input"},
    "reshape": {"shape": "shape"},
    "expand": {"size": "size"},
})
# Arguments of PyTorch's that say nothing about values.
MUTE = ("out", "layout", "device", "requires_grad", "pin_memory", "memory_format", "generator", "inplace", "_stacklevel", "cudnn_enable",
        "cudnn_enabled", "non_blocking")


def our_names(info):
    """The names under which halfstep may have an op of op_db."""
    name = info.name
    short = name.removeprefix("nn.functional.").removeprefix("special.")
    out = [short, short.replace("linalg.", "linalg_"), short.removeprefix("linalg.")]
    out += [str(getattr(a, "name", a)).rsplit(".", 1)[-1] for a in info.aliases]
    return out


class Unbound(Exception):
    """No signature fits the sample."""


def is_tensor_type(text):
    return "Tensor" in text


def schema_parameters(name):
    """For each overload of aten::name: [(parameter, type, keyword only)]."""
    found = []
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        if any(a.is_out for a in schema.arguments) or not schema.arguments:
            continue
        found.append([(a.name, str(a.type), a.kwarg_only, a.has_default_value() or "Optional" in str(a.type)) for a in schema.arguments])
    return found


def fits(value, kind):
    """Whether an argument may be of a schema's type."""
    if kind.startswith("Optional["):
        return value is None or fits(value, kind[len("Optional["):-1])
    if kind.startswith("List["):
        inner = kind[len("List["):-1]
        if isinstance(value, (list, tuple, torch.Size)):
            return all(fits(v, inner) for v in value)
        return inner in ("int", "SymInt") and fits(value, inner)
    if kind == "Tensor":
        return torch.is_tensor(value)
    if kind in ("int", "SymInt"):
        return isinstance(value, (int, torch.dtype)) and (not isinstance(value, bool))
    if kind == "float":
        return isinstance(value, (int, float))
    if kind == "bool":
        return isinstance(value, bool)
    if kind in ("number", "Scalar"):
        return isinstance(value, (int, float, bool))
    if kind == "str":
        return isinstance(value, str)
    return not torch.is_tensor(value)


def by_schema(name, args, kwargs):
    """[(parameter, value)] by the first overload that fits, and the parameters that are tensors in any overload."""
    overloads = schema_parameters(name)
    tensors = {p for o in overloads for p, kind, _, _ in o if is_tensor_type(kind)}
    for overload in overloads:
        names = [p for p, _, _, _ in overload]
        # a list argument may also come as several integers
        positional = [p for p in overload if not p[2]]
        given = list(args)
        if positional and positional[-1][1].startswith("List[") and "int" in positional[-1][1].lower() and len(given) > len(positional):
            given = given[: len(positional) - 1] + [given[len(positional) - 1:]]
        if len(given) > len(positional):
            continue
        renamed = {"self" if k == "input" and "self" in names else k: v for k, v in kwargs.items()}
        bound = dict(zip((p[0] for p in positional), given))
        if set(bound) & set(renamed) or not set(renamed) <= set(names) | set(MUTE):
            continue
        bound.update({k: v for k, v in renamed.items() if k in names})
        if any(p not in bound and not optional for p, _, _, optional in overload):
            continue
        if all(p not in bound or fits(bound[p], kind) for p, kind, _, _ in overload):
            return [(p, bound.get(p)) for p in names], tensors
    raise Unbound


def by_signature(function, args, kwargs):
    signature = inspect.signature(function)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    tensors = {p.name for p in signature.parameters.values() if "Tensor" in str(p.annotation)}
    given = set(signature.bind(*args, **kwargs).arguments)
    return [(p, v if p in given else None) for p, v in bound.arguments.items()], tensors


def function_for(info, name):
    """A Python function whose signature has the names, where there is one."""
    for candidate in (getattr(F, f"_{name}", None), getattr(F, name, None), info.op):
        if inspect.isfunction(candidate):
            parameters = inspect.signature(candidate).parameters.values()
            if not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters) and candidate.__name__ != "<lambda>":
                return candidate
    return None


def bind(info, name, args, kwargs):
    function = function_for(info, name)
    if function is not None:
        try:
            return by_signature(function, args, kwargs)
        except TypeError:
            pass
    aten = info.aten_name or name
    for candidate in dict.fromkeys([aten, name, info.name.replace(".", "_"), info.name.rsplit(".", 1)[-1]]):
        try:
            return by_schema(candidate, args, kwargs)
        except Unbound:
            continue
    raise Unbound


def is_tensors(v):
    return isinstance(v, (list, tuple)) and len(v) > 0 and all(t is None or torch.is_tensor(t) for t in v)


def attribute(v):
    if isinstance(v, torch.dtype):
        return name_of(v)
    if isinstance(v, float) and v != v:
        return "nan"
    if v in (float("inf"), float("-inf")):
        return "inf" if v > 0 else "-inf"
    if isinstance(v, (list, tuple, torch.Size)):
        return [attribute(x) for x in v]
    if isinstance(v, (bool, int, float, str)) or v is None:
        return v
    raise Unbound


def line_of(info, name, sample):
    """(tensors by name, attributes, names of the tensors in the order of the sample's own)."""
    parameters, tensor_names = bind(info, name, [sample.input, *sample.args], sample.kwargs)
    tensors, attrs, position = {}, {}, 0
    for parameter, value in parameters:
        if parameter in MUTE:
            continue
        ours = RENAMED[name].get(parameter, parameter)
        if torch.is_tensor(value):
            tensors[str(position)] = value
            position += 1
        elif is_tensors(value) and (parameter in tensor_names or any(torch.is_tensor(t) for t in value)):
            tensors.update({f"{position}.{k}": t for k, t in enumerate(value) if t is not None})
            position += 1
        else:
            if parameter in tensor_names:
                position += 1
            if value is not None:
                attrs[ours] = attribute(value)
    return tensors, attrs


def mapped(value, f):
    if torch.is_tensor(value):
        return f(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(mapped(v, f) for v in value) if not hasattr(value, "_fields") else [mapped(v, f) for v in value]
    if isinstance(value, dict):
        return {k: mapped(v, f) for k, v in value.items()}
    return value


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
            return flat(self.info.op(mapped(s.input, f), *mapped(s.args, f), **mapped(s.kwargs, f)))

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


def plain(sample):
    """Whether halfstep's tensors can hold the sample."""
    ok = True

    def look(t):
        nonlocal ok
        dtypes = (*FLOATS, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
        ok = ok and t.dtype in dtypes and t.layout == torch.strided and t.device.type == "cpu" and not t.is_nested
        return t

    mapped([sample.input, list(sample.args), dict(sample.kwargs)], look)
    return ok


def matching(ours):
    """[(OpInfo, halfstep's name)] for each entry of op_db that halfstep has."""
    out, seen = [], set()
    for info in op_db:
        for name in our_names(info):
            if name in ours:
                key = (info.name, info.variant_test_name)
                if key not in seen:
                    seen.add(key)
                    out.append((info, name))
                break
    return out


def known(op, text):
    for pattern, what, reason in KNOWN:
        if re.fullmatch(pattern, op) and re.search(what, text):
            return reason
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--halfstep", default="build/cpu/halfstep", help="the program")
    parser.add_argument("--ops", default="", help="only ops whose name contains this")
    parser.add_argument("--most", type=int, default=200, help="samples of an op in a dtype")
    parser.add_argument("--show", type=int, default=3, help="mismatches printed for each op")
    parser.add_argument("--list", action="store_true", help="a row for each op, not only totals")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "halfstep-parity", help="where reproducers go")
    o = parser.parse_args()

    torch.set_num_threads(1)
    ours = {op["name"] for op in json.loads(subprocess.run([o.halfstep, "ops", "--json"], check=True, capture_output=True, text=True).stdout)["ops"]}
    batch, generator = Batch(o.halfstep, 1), torch.Generator().manual_seed(1)
    counts, reasons, told = collections.defaultdict(collections.Counter), collections.Counter(), collections.defaultdict(list)
    memory = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None

    def judge(draw, name, folder):
        (folder / "out.safetensors").unlink(missing_ok=True)
        line, answer = perform(draw, batch, folder, "cpu")
        if name in RANDOM and answer["ok"] and draw.refused is None:  # any values will do
            got = load_file(folder / "out.safetensors")
            drawn = [got.get("out" if len(draw.want) == 1 else f"out.{i}") for i in range(len(draw.want))]
            draw.want = [d if d is not None and d.shape == w.shape else w for d, w in zip(drawn, draw.want)]
        verdict, what = compare(draw, answer, folder)
        if what and (reason := known(name, what)):
            reasons[reason] += 1
            verdict = "known"
        counts[name][verdict] += 1
        if verdict in ("failed", "lenient") and what and len(told[name]) < o.show:
            inputs = ", ".join(f"{n}: {name_of(t.dtype)} {list(t.shape)}" for n, t in draw.tensors.items())
            told[name].append(f"{name}: {what}\n    inputs {inputs}\n    {reproducer(line, folder, o.keep, len(told[name]))}")

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
                        draw = Sample(info, name, sample, info.supports_autograd and dtype in (torch.float64, torch.float32) and name not in RANDOM)
                    except (Unbound, TypeError):
                        counts[name]["unbound"] += 1
                        if len(told[name]) < o.show:
                            told[name].append(f"{name}: no signature for {sample.summary()}")
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
    print("refused: both raise; lenient: only PyTorch raises; not ours: complex numbers and the like; no line: arguments of a wrong kind")
    for reason, n in reasons.most_common():
        print(f"known {n:>6}  {reason}")
    for op in sorted(told):
        for text in told[op]:
            print("\n" + text)
    return 1 if total["failed"] or total["lenient"] or total["unbound"] or not total else 0


if __name__ == "__main__":
    sys.exit(main())
