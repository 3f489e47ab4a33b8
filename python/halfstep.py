# SPDX-License-Identifier: Apache-2.0
"""A model that halfstep has trained, in use from Python, by ctypes and NumPy.

    import halfstep
    model = halfstep.open("runs/houses")    # a run's folder or a checkpoint
    y = model(x)                            # [N, ...] or one sample: pixels in [0, 1], columns in the units of the file, tokens
    model.classes, model.form               # names of classes; what the training data taught

The library libhalfstep_predict.so.0 is the file that the environment variable HALFSTEP_LIBRARY names, or lies beside this file or
in the folder above it, or is the newest one of the builds beside it (build/default and others), or is where the loader finds it.
Threads may share a model; failures: halfstep.Error.
"""
import ctypes
import functools
import glob
import json
import os

import numpy

_NAME = "libhalfstep_predict.so.0"
_MAX_DIMS = 8


class Error(RuntimeError):
    pass


def _load():
    here = os.path.dirname(os.path.abspath(__file__))
    beside = [os.path.join(here, folder, _NAME) for folder in (".", "..")]
    built = glob.glob(os.path.join(glob.escape(os.path.dirname(here)), "build", "*", _NAME))
    named = os.environ.get("HALFSTEP_LIBRARY")
    path = named or next((p for p in beside + sorted(built, key=os.path.getmtime, reverse=True) if os.path.exists(p)), _NAME)
    try:
        return ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f"{e}; HALFSTEP_LIBRARY can name the file {_NAME}") from e


_lib = _load()
_sizes, _text, _handle = ctypes.POINTER(ctypes.c_int64), ctypes.c_char_p, ctypes.c_void_p
for _function, _result, _arguments in [
        ("hs_version", _text, []), ("hs_error", _text, []), ("hs_threads", ctypes.c_int, [ctypes.c_int]),
        ("hs_open", _handle, [_text, _text]), ("hs_close", ctypes.c_int, [_handle]), ("hs_describe", _text, [_handle]),
        ("hs_run", ctypes.c_int64, [_handle, ctypes.c_int, ctypes.c_int, _handle, _sizes, ctypes.c_int, _handle, ctypes.c_int64])]:
    getattr(_lib, _function).restype, getattr(_lib, _function).argtypes = _result, _arguments
__version__ = _lib.hs_version().decode()
_sizes_of = functools.lru_cache(64)(lambda shape: (ctypes.c_int64 * len(shape))(*shape))


def _checked(result):
    if result is None or (isinstance(result, int) and result < 0):
        raise Error(_lib.hs_error().decode(errors="replace"))
    return result


def _address(array):  # array.ctypes.data alone takes longer than some models
    return ctypes.addressof(ctypes.c_char.from_buffer(array)) if array.flags.writeable and array.size else array.ctypes.data


def threads(count=0):
    """Sets the number of threads, unless it is 0, and returns it."""
    return _checked(_lib.hs_threads(count))


class Model:
    def __init__(self, path, **options):
        """Opens a model. options: device="cpu", amp=False (use float32), averages=False (trained weights, not their average)."""
        self._open = None
        self._open = _checked(_lib.hs_open(os.fsencode(path), json.dumps(options).encode()))
        self.about = json.loads(_checked(_lib.hs_describe(self._open)))  # hs_describe in halfstep_predict.h says what is in it
        self.form, self.answers, self.step = self.about["form"], self.about["answers"], self.about["step"]
        self.input, self.output = tuple(self.about["input"]), tuple(self.about["output"])
        names, count = self.form.get("names") or [], self.form.get("classes", 0)
        self.classes = (list(names) or [str(i) for i in range(count)]) if count else []

    def __call__(self, x, raw=False):
        """Returns probabilities, or numbers in the units of the training data's file (see .answers); raw: the network's outputs."""
        x = numpy.asarray(x)
        whole, single = x.dtype.kind in "iu", x.shape == self.input
        x = numpy.ascontiguousarray(x[None] if single else x, numpy.int64 if whole else numpy.float32)
        if x.ndim == 0 or x.ndim > _MAX_DIMS:
            raise Error(f"the model takes inputs [N, ...] of shape {list(self.input)}, got {x.ndim} dimensions")
        y = numpy.empty((x.shape[0], *self.output), numpy.float32)
        _checked(_lib.hs_run(self._open, int(raw), whole, _address(x), _sizes_of(x.shape), x.ndim, _address(y), y.size))
        return y[0] if single else y

    def close(self):
        if self._open is not None:
            _lib.hs_close(self._open)
        self._open = None

    __del__ = close

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


open = Model
