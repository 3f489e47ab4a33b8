# SPDX-License-Identifier: Apache-2.0
"""A model that halfstep has trained, in use from Python, by ctypes and NumPy.

    import halfstep
    model = halfstep.open("runs/houses")    # a run's folder or a checkpoint
    y = model(x)                            # [N, ...] or one sample: pixels in [0, 1], columns in the units of the file, tokens
    model.classes, model.form               # names of classes; what the training data taught
    for line in halfstep.train("config.json", {"train.epochs": 3}): ...     # and Run: runs.py; generate: program.py

The library libhalfstep_predict.so.0 is the file that the environment variable HALFSTEP_LIBRARY names, or lies beside this file or
in one of two folders above it, or is the newest one of the builds beside them (build/default and others), or is where the loader
finds it.
Threads may share a model; failures: halfstep.Error.
"""
from __future__ import annotations

import copy
import ctypes
import functools
import io
import json
import operator
import os
from typing import Any, cast

import numpy
import numpy.typing

from .inputs import Inputs
from .program import Error, Path, find_file, generate
from .runs import Array, Run, Training, train

__all__ = ["Error", "Model", "Run", "Training", "generate", "open", "threads", "train"]
_NAME = "libhalfstep_predict.so.0"
_MAX_DIMS = 8


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(find_file(_NAME, "HALFSTEP_LIBRARY", [".", "..", "../.."]) or _NAME)
    except OSError as e:
        raise ImportError(f"{e}; HALFSTEP_LIBRARY can name the file {_NAME}") from e


_lib = _load()
_INT64, _FLOAT64, _MOST_INT = 1, 2, 2**31 - 1
_sizes, _text, _handle = ctypes.POINTER(ctypes.c_int64), ctypes.c_char_p, ctypes.c_void_p
for _function, _result, _arguments in [
        ("hs_version", _text, []), ("hs_error", _text, []), ("hs_threads", ctypes.c_int, [ctypes.c_int]),
        ("hs_open", _handle, [_text, _text]), ("hs_close", ctypes.c_int, [_handle]), ("hs_describe", _text, [_handle]),
        ("hs_run", ctypes.c_int64, [_handle, ctypes.c_int, ctypes.c_int, _handle, _sizes, ctypes.c_int, _handle, ctypes.c_int64])]:
    getattr(_lib, _function).restype, getattr(_lib, _function).argtypes = _result, _arguments
__version__: str = _lib.hs_version().decode()


@functools.lru_cache(64)
def _sizes_of(shape: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(shape))(*shape)


def _checked(result: Any) -> Any:
    if result is None or (isinstance(result, int) and result < 0):
        raise Error(_lib.hs_error().decode(errors="replace"))
    return result


def _address(array: Any) -> int:  # array.ctypes.data alone takes longer than some models
    return ctypes.addressof(ctypes.c_char.from_buffer(array)) if array.flags.writeable and array.size else array.ctypes.data


def threads(count: int = 0) -> int:
    """Sets the number of threads, unless it is 0, and returns it."""
    try:
        is_int = -_MOST_INT <= operator.index(count) <= _MOST_INT  # ctypes would take the lowest 32 bits
    except TypeError:
        is_int = False
    if not is_int:
        raise Error(f"threads: a whole number up to {_MOST_INT}, got {count!r}")
    return cast(int, _checked(_lib.hs_threads(count)))


def _code_of(x: Any) -> tuple[Any, int]:
    """The dtype in which the library gets an array, and its number there."""
    kind, size = x.dtype.kind, x.dtype.itemsize
    if kind == "f":
        return (numpy.float64, _FLOAT64) if size > 4 else (numpy.float32, 0)
    if kind == "u" and size == 8 and x.size and x.max() > 2**63 - 1:
        raise Error(f"whole numbers must be below 2**63, got {x.max()}")
    if kind not in "iub":
        raise Error(f"inputs must be numbers, got an array of {x.dtype}; convert them, as the training data's file has them")
    return (numpy.float32, 0) if kind == "b" else (numpy.int64, _INT64)


class _Handle:
    """An open model, which copies share: it is closed with the last of them."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Any = _lib.hs_close) -> None:
        close(self.number)


def _mark(checkpoint: str) -> Any:
    """The digests of a run's checkpoint, so that another one in its place is found; None for other files."""
    try:
        with io.open(os.path.join(checkpoint, "manifest.json"), encoding="utf-8") as file:
            files = json.load(file)["files"]
            return [files[name]["sha256"] for name in ("model.safetensors", "data.json")]
    except (OSError, ValueError, KeyError, TypeError):
        return None


class Model:
    def __init__(self, path: Path, **options: Any) -> None:
        """Opens a model. options: device="cpu", amp=False (use float32), averages=False (trained weights, not their average)."""
        self._open: _Handle | None = None
        if b"\0" in os.fsencode(path):
            raise Error(f"a path has no zero bytes, got {os.fsdecode(path)!r}")
        self._open = _Handle(_checked(_lib.hs_open(os.fsencode(path), json.dumps(options).encode())))
        self._options = options
        self.about: dict[str, Any] = json.loads(_checked(_lib.hs_describe(self._open.number)))  # halfstep_predict.h: what is in it
        self.form, self.answers, self.step = self.about["form"], self.about["answers"], self.about["step"]
        self.input: tuple[int, ...] = tuple(self.about["input"])
        self.output: tuple[int, ...] = tuple(self.about["output"])
        names, count = self.form.get("names") or [], self.form.get("classes", 0)
        self.classes: list[str] = (list(names) or [str(i) for i in range(count)]) if count else []
        self._takes = Inputs(self.form, self.input)
        found = os.path.abspath(self.about["checkpoint"])  # a name that is not UTF-8 is another one there
        self._file = found if os.path.exists(found) else os.path.abspath(os.fsdecode(path))
        self._file_mark = _mark(self._file)

    def __call__(self, x: numpy.typing.ArrayLike, raw: bool = False) -> Array:
        """Returns probabilities, or numbers in the units of the training data's file (see .answers); raw: the network's outputs. A
        frame must have the training data's columns in their order; what a masked array hides is missing; bytes of pixels are
        divided by 255."""
        x = self._takes.array(x)
        if x.ndim == 0 or x.ndim > _MAX_DIMS:
            raise Error(f"the model takes inputs [N, ...] of shape {list(self.input)}, got {x.ndim} dimensions")
        single, (dtype, code) = x.shape == self.input, _code_of(x)
        x = numpy.ascontiguousarray(x[None] if single else x, dtype)
        y, model = numpy.empty((x.shape[0], *self.output), numpy.float32), self._open
        _checked(_lib.hs_run(model.number if model else None, int(raw), code, _address(x), _sizes_of(x.shape), x.ndim, _address(y),
                             y.size))
        return y[0] if single else y

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        """A copy uses the same open model, also when its run was continued; close() closes one of them."""
        out = object.__new__(type(self))
        out.__dict__.update({k: v if k == "_open" else copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
        return out

    def __copy__(self) -> Model:
        out = object.__new__(type(self))
        out.__dict__.update(self.__dict__)
        return out

    def __reduce__(self) -> Any:  # another process opens the checkpoint again
        return _reopen, (self._file, self._options, self.step, self._file_mark)

    def close(self) -> None:
        self._open = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reopen(path: str, options: dict[str, Any], step: int | None = None, mark: Any = None) -> Model:
    model = Model(path, **options)
    if step is not None and (model.step, model._file_mark) != (step, mark):
        raise Error(f"{path}: the model of step {step} that was pickled has made room for another one, of step {model.step}")
    return model


open = Model
