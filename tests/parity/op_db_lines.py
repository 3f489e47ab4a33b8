# SPDX-License-Identifier: Apache-2.0
"""PyTorch's op_db as lines of `halfstep op`: which of its ops halfstep has, and a sample's arguments as tensors by position and the
rest by name. They are matched with PyTorch's signature: aten's schemas, or a Python function's parameters. Needs torch and
expecttest.
"""
import collections
import inspect

import torch
import torch.nn.functional as F
from compare import FLOATS
from live_torch import name_of
from torch.testing._internal.common_methods_invocations import op_db

# Names that differ from aten's schema: op -> {their name: ours}.
RENAMED = collections.defaultdict(dict, {
    "where": {"self": "input"},
    "view": {"size": "shape"},
    "slice": {"self": "input"},
})
# Arguments of PyTorch's that say nothing about values.
MUTE = ("out", "layout", "device", "requires_grad", "pin_memory", "memory_format", "generator", "inplace", "_stacklevel",
        "cudnn_enable",
        "cudnn_enabled", "non_blocking", "copy")
# Entries whose name halfstep has for another op, or that are no calls.
OTHERS = ("unfold", "unfold_copy", "normal", "linalg.norm", "__rdiv__", "__rpow__", "__rmatmul__")


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
        found.append([(a.name, str(a.type), a.kwarg_only, a.has_default_value() or "Optional" in str(a.type))
                      for a in schema.arguments])
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
        kind = positional[-1][1] if positional else ""
        if kind.startswith("List[") and "int" in kind.lower() and len(given) > len(positional):
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


def of_list(sample):
    """A sample whose tensors come one after the other where halfstep takes a list."""
    tensors = sample.input if isinstance(sample.input, (list, tuple)) else [sample.input,
                                                                            *[a for a in sample.args if torch.is_tensor(a)]]
    return [("tensors", list(tensors))], {"tensors"}


def plain_arguments(sample, names):
    values = [sample.input, *sample.args]
    return [*zip(names, values), *sample.kwargs.items()], set()


def ctc_arguments(sample):
    parameters, tensors = plain_arguments(sample, ["log_probs", "targets", "input_lengths", "target_lengths"])
    return [(n, torch.tensor(v) if isinstance(v, (list, tuple)) else v) for n, v in parameters], tensors


def to_arguments(sample):
    """to(dtype), to(device, dtype) and to(tensor), which has both."""
    given = [getattr(a, "dtype", a) for a in [*sample.args, sample.kwargs.get("dtype")]]
    return [("input", sample.input), ("dtype", next((a for a in given if isinstance(a, torch.dtype)), sample.input.dtype))], set()


def where_arguments(sample):
    if sample.args:  # op_db calls torch.where(args[0], input, args[1])
        return [("condition", sample.args[0]), ("input", sample.input), ("other", sample.args[1])], {"input", "other"}
    return plain_arguments(sample, ["condition"])


SPECIAL = {
    "where": where_arguments,
    "to": to_arguments,
    "meshgrid": lambda s: (of_list(s)[0] + list(s.kwargs.items()), {"tensors"}),
    "einsum": lambda s: (of_list(s)[0] + [("equation", s.args[0])], {"tensors"}),
    "nonzero": lambda s: plain_arguments(s, ["input"]),
    "block_diag": of_list,
    "polygamma": lambda s: plain_arguments(s, ["input", "n"]),
    "unique": lambda s: plain_arguments(s, ["input"]),
    "ctc_loss": ctc_arguments,
}


def line_of(info, name, sample):
    """(tensors by name, attributes)."""
    if sample.kwargs.get("out") is not None:
        raise Unbound
    if name in SPECIAL:
        parameters, tensor_names = SPECIAL[name](sample)
    else:
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
        for name in our_names(info) if info.name not in OTHERS else ():
            if name in ours:
                key = (info.name, info.variant_test_name)
                if key not in seen and key != ("linalg.pinv", "singular"):  # whose samples are factors of the argument
                    seen.add(key)
                    out.append((info, name))
                break
    return out
