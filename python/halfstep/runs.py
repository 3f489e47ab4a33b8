# SPDX-License-Identifier: Apache-2.0
"""Training and its results: the program `halfstep train`, and the files of a run."""
from __future__ import annotations

import collections
import json
import os
import pathlib
import queue
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy.typing

from .program import Error, Path, argument, find_program, finished, show, starting

Array = numpy.typing.NDArray[Any]


def _plain(value: Any) -> Any:
    """For json: NumPy's numbers and arrays as Python's, and paths as texts."""
    return value.tolist() if hasattr(value, "tolist") else os.fsdecode(value)


def _assignment(key: str, value: Any) -> str:
    """An override as --set takes it. What is no JSON would be a text there."""
    if "=" in key:
        raise Error(f"a key of a config has no \"=\", got {key!r}")
    try:
        text = f"{key}={json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False)}"
        text.encode()
    except (TypeError, ValueError, RecursionError) as e:
        rule = "texts must be UTF-8" if isinstance(e, UnicodeError) else "values must be those of JSON, without NaN and infinity"
        raise Error(f"{key}: {rule}, got {value!r:.200}: {e}") from e
    return text


def _read(path: pathlib.Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise Error(f"{path}: not a file of a run: {e}") from e


class Run:
    """The folder of a run, also of one that is still training. halfstep.open(run) opens its model."""

    def __init__(self, folder: Path) -> None:
        self.folder = pathlib.Path(folder)
        self.config: dict[str, Any] = _read(self.folder / "config.resolved.json")  # with all defaults

    def __fspath__(self) -> str:
        return str(self.folder)

    def record(self) -> dict[str, Any]:
        """run.json as it is now: "starts", "ending" ("running", "finished", "interrupted", "requeue", "failed"), "summary"."""
        return dict(_read(self.folder / "run.json"))

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl that are there now."""
        try:
            lines = (self.folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]  # the last line may not be whole yet
            return [json.loads(line) for line in lines if line]
        except (OSError, ValueError) as e:
            raise Error(f"{self.folder}/metrics.jsonl: {e}") from e

    def values(self, name: str) -> tuple[Array, Array]:
        """The steps at which a number was written, and its values; NaN where it was not finite."""
        found = [(line["step"], line[name]) for line in self.metrics() if name in line and "step" in line]
        if not found:
            names = ", ".join(sorted({name for line in self.metrics() for name in line}))
            raise Error(f"{self.folder}: no line of metrics.jsonl has {name!r}; they have {names}")
        other = [value for _, value in found if value is not None and not isinstance(value, (int, float))]
        if other:
            raise Error(f"{self.folder}: {name!r} is no number, but {other[0]!r:.200}; metrics() has it")
        return numpy.array([step for step, _ in found], numpy.int64), numpy.array([value for _, value in found], numpy.float64)

    def confusion(self) -> Array:
        """How often class i (row) was taken for class j (column) in the last evaluation; "metrics" must have confusion_matrix."""
        for line in reversed(self.metrics()):
            for name, value in line.items():
                if name.startswith("val/") and isinstance(value, list) and value and isinstance(value[0], list):
                    return numpy.array(value, numpy.int64)
        raise Error(f'{self.folder}: metrics.jsonl has no confusion matrix; train with "metrics": ["confusion_matrix"]')


def _hear(stream: Any, said: collections.deque[str]) -> None:
    for line in stream:
        said.append(line)
        show(line)


def _take(stream: Any, lines: queue.SimpleQueue[str], hearer: threading.Thread) -> None:
    for line in stream:
        lines.put(line)
    hearer.join()
    lines.put("")


def _stop(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)  # which does nothing when it has ended
    process.wait()


class Training(Iterator["dict[str, Any]"]):
    """A run that is under way: an iterator of the lines of metrics.jsonl, each when it is written. It trains on while nobody
    iterates. Ctrl-C meanwhile lets the program save and end, then raises KeyboardInterrupt; a second one ends it at once. close(),
    the end of a `with` block and of the object's life (after a `break`) let it save and end too: resume="auto" continues it.
    Error: it has ended with another code than 0 for another reason."""

    def __init__(self, command: list[str]) -> None:
        self.result: dict[str, Any] | None = None  # what `halfstep train --json` prints
        self._run: Run | None = None
        self._command, self._begun = command, time.gmtime()
        # In a session of its own: Ctrl-C in a terminal reaches the program once, from here.
        with starting(command):
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                             encoding="utf-8", errors="replace", start_new_session=True)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._said: collections.deque[str] = collections.deque(maxlen=40)
        hearer = threading.Thread(target=_hear, args=(self._process.stderr, self._said), daemon=True)
        hearer.start()
        threading.Thread(target=_take, args=(self._process.stdout, self._lines, hearer), daemon=True).start()
        self._end = weakref.finalize(self, _stop, self._process, signal.SIGTERM)  # also at Python's end

    @property
    def code(self) -> int | None:
        """The program's exit code, once it has ended."""
        return self._process.poll()

    @property
    def run(self) -> Run | None:
        """The run, once it has ended, also with an error, and if it has come to write into its folder."""
        if self._run is None and self.result is None and self.code not in (None, 2):  # 2: the config is wrong, or the folder taken
            self._run = self._failed_run()
        return self._run

    def _failed_run(self) -> Run | None:  # which has not said where it is
        sets = [word for pair in zip(self._command, self._command[1:]) if pair[0] == "--set" for word in pair]
        command = [self._command[0], "validate", self._command[2], "--json", *sets]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        try:
            run = Run(json.loads(done.stdout)["config"]["output_dir"])
            begun = run.record()["starts"][-1]["time"]
        except (Error, KeyError, IndexError, TypeError, ValueError):
            return None
        return run if begun >= time.strftime("%Y-%m-%dT%H:%M:%SZ", self._begun) else None

    def __next__(self) -> dict[str, Any]:
        try:
            line = self._lines.get()
        except KeyboardInterrupt:
            self._stop(signal.SIGINT)
            raise
        if not line:
            self._lines.put("")
            if (code := self._process.wait()) != 0 and self._end.detach():
                raise finished(self._command, "".join(self._said), code)
            raise StopIteration
        entry: dict[str, Any] = json.loads(line)
        if "step" not in entry:
            begun = os.path.isfile(os.path.join(entry["output_dir"], "config.resolved.json"))  # else it was stopped before
            self.result, self._run = entry, Run(entry["output_dir"]) if begun else None
        return entry if "step" in entry else next(self)

    def _stop(self, number: int) -> None:
        self._end.detach()
        try:
            _stop(self._process, number)
        except KeyboardInterrupt:
            _stop(self._process, number)
            raise
        collections.deque(self, 0)  # what was not read is in the folder

    def close(self) -> None:
        """Lets the run save and end, as SIGTERM does; what it writes until then is in its folder."""
        self._stop(signal.SIGTERM)

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def train(config: Path, overrides: Mapping[str, Any] | None = None, *, resume: Path | None = None, overwrite: bool = False,
          device: str | None = None, threads: int | None = None, progress: bool = False) -> Training:
    """Starts `halfstep train`. overrides: values by dotted keys, as --set has them; resume: "auto" or a checkpoint; progress: show
    on stderr what the program prints for people. Its warnings and errors are shown in any case."""
    command = [find_program(), "train", argument(config), "--lines", "--no-color"] + ([] if progress else ["--quiet"])
    for key, value in (overrides or {}).items():
        command += ["--set", _assignment(key, value)]
    for option, given in (("--resume", resume and argument(resume)), ("--device", device), ("--threads", threads)):
        command += [option, str(given)] if given is not None else []
    return Training(command + (["--overwrite"] if overwrite else []))
