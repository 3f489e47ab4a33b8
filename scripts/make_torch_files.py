#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/io/torch/: small files of torch.save, and seeds of the fuzz harness for them.

Run by hand where torch is installed, after cases were added or changed; tests only read the files:
    python3 scripts/make_torch_files.py
NAME.pt is in the zip format, NAME.old.pt in the one before PyTorch 1.6. tests/io/torch_file_test.cpp has the values: a tensor of n
elements holds 0, 1, ..., n - 1, in the order of its memory.
"""
import argparse
import collections
import datetime
import io
import os
import pathlib
import pickle

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/io/torch"
CORPUS = ROOT / "tests/fuzz/corpus/torch_file"
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


class RunsCommand:
    """What an attacker would save: unpickling it creates a file."""

    def __reduce__(self):
        return os.system, ("touch halfstep-was-here",)


class Settings(dict):
    """A dictionary of a class of its own, as trainers have for hyper-parameters."""


def objects():
    """Returns objects that trainers save beside the weights."""
    settings = Settings(lr=0.1)
    settings.note = "kept as an attribute"
    return {"args": argparse.Namespace(lr=0.1, data=pathlib.PurePosixPath("/data")), "best": np.float64(0.93),
            "history": np.arange(3), "log": collections.defaultdict(list, {"loss": [1.0]}), "seen": {1, 2},
            "when": datetime.datetime(2024, 1, 1), "bytes": b"abc", "frozen": frozenset([3]), "complex": 1 + 2j,
            "settings": settings, "counter": collections.Counter("aab"), "queue": collections.deque([1, 2], 5)}


def loop():
    """Returns an object that holds itself."""
    out = argparse.Namespace()
    out.me = (out, [out])
    return out


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
        self.again = self.body[0]
        self.scale = torch.nn.Parameter(numbers(2))
        self.register_parameter("none", None)
        self.register_buffer("kept", numbers(1))
        self.register_buffer("left_out", numbers(3), persistent=False)

    def forward(self, x):
        return self.body(x) * self.kept


class PythonTwoDict:
    """An OrderedDict as Python 2 pickled it: made of a list of pairs."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __reduce__(self):
        return collections.OrderedDict, ([[k, v] for k, v in self.pairs],)


def numbers(*shape, dtype=torch.float32):
    count = 1
    for n in shape:
        count *= n
    return torch.arange(count).reshape(shape).to(dtype)


def layer():
    made = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    with torch.no_grad():
        for tensor in made.state_dict().values():
            tensor.copy_(numbers(*tensor.shape, dtype=tensor.dtype))
    return made


def cases():
    torch.manual_seed(1)
    yield "layer", layer().state_dict()
    yield "dtypes", {name: numbers(2, 2, dtype=getattr(torch, name)) for name in DTYPES}
    base = numbers(4, 6)
    yield "views", collections.OrderedDict(
        base=base, tied=base, transposed=base.t(), row=base[2], column=base[:, 1], block=base[1:3, 2:5], steps=base[::2, ::3],
        expanded=base[0:1, 0:2].expand(3, 2), scalar=base[1, 1], empty=torch.zeros(0, 3),
        channels_last=numbers(1, 2, 2, 2).to(memory_format=torch.channels_last))
    best = torch.tensor(76.5)
    yield "checkpoint", {"epoch": 3, "state_dict": layer().state_dict(), "best": best, "lr": 0.1, "big": 2**70, "none": None,
                         "optimizer": torch.optim.Adam(layer().parameters()).state_dict(), "shape": torch.Size([2, 3]),
                         "dtype": torch.float32, "device": torch.device("cpu")}
    yield "two_models", {"model": layer().state_dict(), "state_dict": layer().state_dict()}
    # The second one is of the model of the tests.
    yield "two_unlike", {"maler": torch.nn.Linear(4, 4).state_dict(), "pr\u00fcfer": layer().state_dict()}
    yield "student", {"epoch": 3, "student": layer().state_dict()}
    yield "parameter", {"w": torch.nn.Parameter(numbers(2)), "count": 4, "nested": {"w": numbers(1)}}
    rows = numbers(60, 2)
    yield "many", {f"layer.{i}": rows[i] for i in range(60)}  # more than 256 values in the memo
    yield "command", {"w": RunsCommand()}
    yield "complex", {"w": torch.zeros(2, dtype=torch.complex64)}
    yield "sparse", {"w": torch.eye(2).to_sparse()}
    yield "uint16", {"w": torch.zeros(2, dtype=torch.uint16)}
    yield "python2", PythonTwoDict([("b", numbers(2)), ("a", numbers(3))])
    yield "tensor", numbers(2)
    yield "objects", {"epoch": 3, "model_state": layer().state_dict(), **objects(), "loop": loop()}
    marked = numbers(3)
    marked.note = "a tensor with an attribute"
    yield "mixed", {"w": marked, "array": np.arange(3.0), "z": torch.zeros(2, dtype=torch.complex64), "lr": 0.1}
    yield "module", {"model": Net(), "epoch": 3}
    yield "nested", {"models": {"ema": {"w": numbers(2), "b": numbers(1)}, "net": Settings(w=numbers(3))},
                     "optim": torch.optim.Adam(layer().parameters()).state_dict(), "best": {"score": torch.tensor(0.5)}}


def save(state, path, zipped, **options):
    torch.save(state, path, _use_new_zipfile_serialization=zipped, **options)


def main():
    for folder in (OUT, CORPUS):
        folder.mkdir(parents=True, exist_ok=True)
    for name, state in cases():
        save(state, OUT / f"{name}.pt", True)
        save(state, OUT / f"{name}.old.pt", False)
    save(layer().state_dict(), OUT / "protocol4.pt", True, pickle_protocol=4)
    save(layer().state_dict(), OUT / "protocol4.old.pt", False, pickle_protocol=4)
    for name, zipped in (("objects4.pt", True), ("objects4.old.pt", False)):
        save({"model_state": layer().state_dict(), **objects()}, OUT / name, zipped, pickle_protocol=4)
    torch.serialization.set_crc32_options(False)
    save(layer().state_dict(), OUT / "no_checksums.pt", True)
    torch.serialization.set_crc32_options(True)
    save(torch.nn.Sequential(torch.nn.Linear(5, 5)).state_dict(), OUT / "linear.pt", True)  # of tests/docs
    save(layer(), OUT / "whole_model.pt", True)
    torch.jit.save(torch.jit.script(torch.nn.ReLU()), str(OUT / "script.pt"))
    torch.jit.save(torch.jit.script(layer()), str(OUT / "script_layer.pt"))
    torch.jit.save(torch.jit.script(Net()), str(OUT / "script_net.pt"))
    (OUT / "plain_pickle.pt").write_bytes(pickle.dumps({"w": [1.0, 2.0]}, protocol=2))

    # Seeds: 0 and a file, or 1, the length of a pickle in two bytes, the pickle and the bytes of storage "0".
    for name in ("layer", "views", "checkpoint", "many", "python2", "parameter", "objects", "objects4", "mixed", "nested",
                 "module"):
        (CORPUS / f"old_{name}").write_bytes(b"\0" + (OUT / f"{name}.old.pt").read_bytes())
    for name in ("layer", "views", "protocol4", "dtypes"):
        (CORPUS / f"zip_{name}").write_bytes(b"\0" + (OUT / f"{name}.pt").read_bytes())
    base = numbers(4, 6)
    parts = {"base": base, "tied": base, "t": base.t(), "block": base[1:3, 2:5], "expanded": base[0:1].expand(3, 6)}
    for kind, more in (("", {}), ("objects_", {"log": objects()})):
        for protocol in (2, 4):
            file = io.BytesIO()
            torch.save({"model": parts, "epoch": 3, **more}, file, pickle_protocol=protocol)
            file.seek(0)
            reader = torch._C.PyTorchFileReader(file)
            data = reader.get_record("data.pkl")
            seed = b"\1" + len(data).to_bytes(2, "little") + data + reader.get_record("data/0")
            (CORPUS / f"rebuilt_{kind}{protocol}").write_bytes(seed)


if __name__ == "__main__":
    main()
