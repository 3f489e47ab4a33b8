# SPDX-License-Identifier: Apache-2.0
"""What has numbers, as an array of a model's inputs: frames whose columns have names, masked arrays, bytes of pixels."""
from __future__ import annotations

import warnings
from typing import Any

import numpy
import numpy.typing

from .program import Error

Array = numpy.typing.NDArray[Any]
_NO_CATEGORY = ("", "nan", "na", "<na>", "n/a", "none", "null", "missing")  # what others call the category of missing values
_MOST_EXACT = 2**53  # float64 has all whole numbers up to it
_SHOWN = 30


class Inputs:
    """What a model takes, from the form of its training data."""

    def __init__(self, form: dict[str, Any], shape: tuple[int, ...]) -> None:
        self.shape, source = shape, form["source"]
        self.names = _names(form)
        self.fills = bool(source.get("fills"))  # NaN is a missing value
        self.pixels = form["input_dtype"] == "float32" and (source["kind"] == "image" or source.get("bytes") == "pixels")

    def array(self, x: Any) -> Array:
        """Returns an array of numbers. Error: columns with other names, masked numbers for a model without missing values."""
        if type(x) is not numpy.ndarray:
            self._check_names(x)
            x = self._unmasked(x)
        if x.dtype.kind == "O":
            x = _of_objects(x)
        return self._pixels_of(x) if self.pixels and x.dtype == numpy.uint8 else x

    def _check_names(self, x: Any) -> None:
        given = _columns_of(x, self.shape) if self.names else []
        if not given:
            return
        if len(given) == len(self.names) and all(_fits(g, *name) for g, name in zip(given, self.names)):
            return
        places = [[g for g in given if _fits(g, *name)] for name in self.names]
        lacking = ["_".join(part for part in name if part) for name, found in zip(self.names, places) if len(found) != 1]
        if lacking:
            raise Error(f"the columns must be the inputs of the training data, but {_list(lacking)} "
                        f"{'is' if len(lacking) == 1 else 'are'} not among {_list(given)}; x.to_numpy() goes by their order alone")
        raise Error(f"the columns must be those of the training data in its order, got {_list(given)}; "
                    f"take x[{[found[0] for found in places]}]")

    def _unmasked(self, x: Any) -> Array:
        if isinstance(x, (list, tuple)) and _has_masked(x):
            x = numpy.ma.array(x)
        if not (hasattr(x, "filled") and hasattr(x, "mask")):
            return numpy.asarray(x)
        count = int(numpy.count_nonzero(x.mask))
        if count == 0:
            return numpy.asarray(x)
        if not self.fills:
            raise Error(f"{count} of {x.size} inputs are masked, and the model has no rule for missing values; replace them, "
                        "as by x.filled(0)")
        return numpy.asarray((x if x.dtype.kind == "f" else x.astype(numpy.float64)).filled(numpy.nan))

    def _pixels_of(self, x: Array) -> Array:  # as halfstep predict does
        most = x.max() if x.size else 0
        if most > 1:
            return x.astype(numpy.float32) * (numpy.float32(1) / numpy.float32(255))
        if most == 1:
            warnings.warn("bytes of 0 and 1 are read as they are, not divided by 255 as pixels up to 255 are", stacklevel=4)
        return x.astype(numpy.float32)


def _names(form: dict[str, Any]) -> list[tuple[str, str | None]]:
    """The column of each input, or of each number in a row of a series, and what of it: a category, or a part of a date."""
    source = form["source"]
    if source["kind"] == "series":
        return [(name, None) for name in source.get("columns") or form["names"][:1]]
    if source["kind"] != "table" or source.get("texts") or not source["header"]:
        return []
    out: list[tuple[str, str | None]] = []
    for column in source["columns"]:
        parts = column["categories"] if source["one_hot"] else []
        if column["date"] and column["date"] != ["days"]:
            parts = column["date"]
        out += [(column["name"], part) for part in parts or [None]]
    return out


def _columns_of(x: Any, shape: tuple[int, ...]) -> list[str]:
    """The names of the columns of a frame (pandas, polars, pyarrow), or of the entries of its row; empty: none."""
    names = getattr(x, "column_names", None)
    if names is None:
        names = getattr(x, "columns", None)
    if names is None and hasattr(x, "to_numpy") and getattr(x, "shape", None) == shape:
        names = getattr(x, "index", None)
    try:
        given = list(names) if names is not None else []
    except TypeError:
        return []
    return [str(name) for name in given] if any(isinstance(name, str) for name in given) else []


def _fits(given: str, name: str, part: str | None) -> bool:
    """Whether a name is that of an input: of a category also as get_dummies, OneHotEncoder and halfstep write it, or it alone.
    ColumnTransformer puts its own name and "__" before it."""
    wanted, texts = name.strip().casefold(), [given.strip().casefold()]
    if "__" in given:
        texts.append(texts[0].partition("__")[2])
    if part is None:
        return wanted in texts
    for text in texts:
        for end in (part.strip().casefold(),) if part else _NO_CATEGORY:
            between = text[len(wanted):len(text) - len(end)]
            is_joined = text.startswith(wanted) and text.endswith(end) and len(text) >= len(wanted) + len(end)
            if text == end or (is_joined and not any(c.isalnum() for c in between)):
                return True
    return False


def _has_masked(x: Any) -> bool:
    return any(_has_masked(item) if isinstance(item, (list, tuple)) else isinstance(item, numpy.ma.MaskedArray) for item in x)


def _of_objects(x: Array) -> Array:
    """Numbers of several types, as of a frame with columns of booleans, as float64."""
    numbers = (bool, int, float, numpy.bool_, numpy.integer, numpy.floating)
    others = {type(value) for value in x.flat} - set(numbers)
    wrong = sorted(kind.__name__ for kind in others if not issubclass(kind, numbers))
    if wrong:
        raise Error(f"inputs must be numbers, got an array of object with {_list(wrong)}; convert them, as the training data's "
                    "file has them; .astype(float) makes NaN of the missing numbers of a frame")
    if any(isinstance(value, (int, numpy.integer)) and abs(int(value)) > _MOST_EXACT for value in x.flat):
        raise Error("whole numbers among others must be at most 2**53, so that float64 has them")
    return x.astype(numpy.float64)


def _list(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
