# SPDX-License-Identifier: Apache-2.0
"""A model that halfstep has trained, in use from Python, by ctypes and NumPy.

    import halfstep
    model = halfstep.open("runs/houses")    # a run's folder or a checkpoint
    y = model(x)                            # [N, ...] or one sample: pixels in [0, 1], columns in the units of the file, tokens
    model.classes, model.form               # names of classes; what the training data taught
    for line in halfstep.train("config.json", {"train.epochs": 3}): ...     # and Run, generate: halfstep/runs.py

The library libhalfstep_predict.so.0 is the file that the environment variable HALFSTEP_LIBRARY names, or lies beside this file or
in one of two folders above it, or is the newest one of the builds beside them (build/default and others), or is where the loader
finds it.
Threads may share a model; failures: halfstep.Error.
"""
from __future__ import annotations

import ctypes
import functools
import json
import os
from typing import Any, cast

import numpy
import numpy.typing

from .runs import Array, Error, Path, Run, Training, find_file, generate, train

__all__ = ["Error", "Model", "Run", "Training", "generate", "open", "threads", "train"]
_NAME = "libhalfstep_predict.so.0"
_MAX_DIMS = 8


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(find_file(_NAME, "HALFSTEP_LIBRARY", [".", "..", "../.."]) or _NAME)
    except OSError as e:
        raise ImportError(f"{e}; HALFSTEP_LIBRARY can name the file {_NAME}") from e


_lib = _load()
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
    return cast(int, _checked(_lib.hs_threads(count)))


class Model:
    def __init__(self, path: Path, **options: Any) -> None:
        """Opens a model. options: device="cpu", amp=False (use float32), averages=False (trained weights, not their average)."""
        self._open: int | None = None
        self._open = _checked(_lib.hs_open(os.fsencode(path), json.dumps(options).encode()))
        self.about: dict[str, Any] = json.loads(_checked(_lib.hs_describe(self._open)))  # halfstep_predict.h: what is in it
        self.form, self.answers, self.step = self.about["form"], self.about["answers"], self.about["step"]
        self.input: tuple[int, ...] = tuple(self.about["input"])
        self.output: tuple[int, ...] = tuple(self.about["output"])
        names, count = self.form.get("names") or [], self.form.get("classes", 0)
        self.classes: list[str] = (list(names) or [str(i) for i in range(count)]) if count else []

    def __call__(self, x: numpy.typing.ArrayLike, raw: bool = False) -> Array:
        """Returns probabilities, or numbers in the units of the training data's file (see .answers); raw: the network's outputs."""
        x = numpy.asarray(x)
        whole, single = x.dtype.kind in "iu", x.shape == self.input
        x = numpy.ascontiguousarray(x[None] if single else x, numpy.int64 if whole else numpy.float32)
        if x.ndim == 0 or x.ndim > _MAX_DIMS:
            raise Error(f"the model takes inputs [N, ...] of shape {list(self.input)}, got {x.ndim} dimensions")
        y = numpy.empty((x.shape[0], *self.output), numpy.float32)
        _checked(_lib.hs_run(self._open, int(raw), whole, _address(x), _sizes_of(x.shape), x.ndim, _address(y), y.size))
        return y[0] if single else y

    def close(self) -> None:
        if self._open is not None:
            _lib.hs_close(self._open)
        self._open = None

    __del__ = close

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


open = Model
