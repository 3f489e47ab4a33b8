# SPDX-License-Identifier: Apache-2.0
"""The program `halfstep`: where it is, and what it says. It is the file that the environment variable HALFSTEP_PROGRAM names, or
lies in this package, or is the newest one of the builds beside it, or is on PATH."""
from __future__ import annotations

import contextlib
import errno
import glob
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Union

Path = Union[str, "os.PathLike[str]"]
_MOST_CHARACTERS = 30000  # of an argument: Linux takes 128 KiB


class Error(RuntimeError):
    code: int | None = None  # with which the program ended


def find_file(name: str, variable: str, folders: list[str]) -> str | None:
    """Returns the file that a variable of the environment names, or the one in these folders of the package, or of a build."""
    here = os.path.dirname(os.path.abspath(__file__))
    built = glob.glob(os.path.join(glob.escape(os.path.dirname(os.path.dirname(here))), "build", "*", name))
    places = [os.path.join(here, folder, name) for folder in folders] + sorted(built, key=os.path.getmtime, reverse=True)
    return os.environ.get(variable) or next((place for place in places if os.path.isfile(place)), None)


def find_program() -> str:
    found = find_file("halfstep", "HALFSTEP_PROGRAM", ["bin"]) or shutil.which("halfstep")
    if found:
        return found
    raise Error("the program halfstep is not on PATH; HALFSTEP_PROGRAM can name it")


def argument(path: Path) -> str:
    """A path as an argument that is no option."""
    text = os.fsdecode(path)
    return os.path.join(".", text) if text.startswith("-") else text


@contextlib.contextmanager
def starting(command: list[str]) -> Iterator[None]:
    """Turns what may go wrong at the start of the program into an Error."""
    try:
        yield
    except OSError as e:
        remedy = ("put large overrides into a config file" if e.errno == errno.E2BIG else "HALFSTEP_PROGRAM can name the program")
        raise Error(f"{command[0]}: {e}; {remedy}") from e
    except ValueError as e:  # a zero byte, or half of a surrogate pair
        raise Error(f"{command[0]} {command[1]}: {e}") from e


def finished(command: list[str], said: str, code: int) -> Error:
    error = Error(said.strip() or f"{command[0]} {command[1]} ended with code {code}")
    error.code = code
    return error


def show(line: str) -> None:
    try:
        sys.stderr.write(line)
    except Exception:  # there is no stderr, or nobody reads it: the program must not wait for it
        pass


def generate(model: Path, prompt: str = "", **options: float) -> str:
    """Returns what a language model writes after the prompt. options: length, temperature, top_k, top_p, seed, threads."""
    command, is_long = [find_program(), "generate", argument(model), "--json"], len(prompt) > _MOST_CHARACTERS
    command += ["--prompt-file=-"] if is_long else ["--prompt=" + prompt] if prompt else []
    command += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    with starting(command):
        done = subprocess.run(command, input=prompt if is_long else "", capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise finished(command, done.stderr, done.returncode)
    for line in done.stderr.splitlines(keepends=True)[:-1]:  # the last one has the speed
        if not line.startswith("model: "):
            show(line)
    return str(json.loads(done.stdout)["text"])
