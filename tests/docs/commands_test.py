#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of the pages, and compares what they print: commands_test.py PROGRAM SOURCE_DIR [--slow] [--page NAME] [-v]

Each page has a temporary folder with configs/ and python/ of the source, the files of page_files.py, and PROGRAM as `halfstep` on
PATH, on two threads of the CPU. Everything is run in the order of the page:

- A ``` block without a language. If lines begin with "$ ", these are commands, and the lines below a command are the output that
  the page promises. Otherwise, if a line begins with a known command, every line is a command. Other blocks are output only, and
  are not run. Each command has a shell of its own.
- A command must end with code 0, or with N if it ends with the comment "# exit N".
- A ```json block that is a whole config (it has "version") is written to NAME.json, NAME being its "name". It must be valid, and
  must train for an epoch. A ```python block is run by a Python with NumPy. A block below <!-- file: NAME --> is written to NAME.
- A row of a table with `halfstep init ... --out FILE.json`: this command, training for an epoch, then the row's other commands. The
  runs are removed after it.

Outputs are compared line by line. A number, with its unit, may be any other; blanks and curves do not count. A line "..." may be
any lines, and ... in a line any text. A command with no lines below it promises nothing about its output.

A block that is not run has a comment above it: <!-- not run: REASON -->, with a REASON of the list below. <!-- slow --> is run only
with --slow. Blocks that need HALFSTEP_DATA or NumPy are skipped where that is missing. Before the pages the test tries itself on
pages with faults.
"""
import argparse
import collections
import contextlib
import glob
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import page_files

PAGES = ["README.md", "docs/your_data.md", "docs/after_training.md", "docs/fine_tuning.md", "docs/diagnostics.md"]
REASONS = ["builds the project", "downloads weights", "needs a GPU", "needs PyTorch"]
KNOWN = re.compile(r"(halfstep|scripts/|build/|cmake|ctest|python3?|export|cat|cd|mkdir|rm|du|bash|sh|git|apt|docker|mpirun)\b"
                   r"|[A-Z_]+=\w")
PLACEHOLDER = re.compile(r"(?<![\w$-])(FILE|RUN|CONFIG|CAPSULE|FOLDER|DIR|DATE|N|PATH|TEXT)\b(?!=)")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![A-Za-z_\d])[-+]?\d+(?:[.,:^]\d+)*(?:e[-+]?\d+)?"
                    r"(?:\s?(?:%|k|M|us|ms|s|min|h|B|[kMG]i?B)(?![A-Za-z]))?")
SECONDS = 1200  # for one command

Block = collections.namedtuple("Block", "line language text mark")


class Fault(Exception):
    pass


def blocks_of(page):
    """Lists the fenced blocks and the rows of tables with `halfstep init`, each with the comment in the line above it."""
    found = []
    for match in FENCE.finditer(page):
        above = page[:match.start()].rstrip("\n").rsplit("\n", 1)[-1].strip()
        mark = re.fullmatch(r"<!--\s*(not run:.*?|file:.*?|slow)\s*-->", above)
        found.append(Block(page.count("\n", 0, match.start()) + 1, match[1].strip(), match[2], mark[1] if mark else ""))
    for match in re.finditer(r"^\|.*`halfstep init .*$", page, re.MULTILINE):
        commands = re.findall(r"`(halfstep [^`]+)`", match[0])
        found.append(Block(page.count("\n", 0, match.start()) + 1, "row", "\n".join(commands), ""))
    return sorted(found)


def commands_of(block):
    """Lists pairs of a command and the lines that it promises, None if it promises nothing."""
    text = re.sub(r"\\\n\s*", "", block.text)
    lines = text.rstrip("\n").split("\n")
    if any(line.startswith("$ ") for line in lines):
        if not lines[0].startswith("$ "):
            raise Fault("a block of commands with output begins with \"$ \"")
        parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
        split = [part.rstrip("\n").split("\n", 1) for part in parts]
        return [(part[0], part[1].split("\n") if len(part) > 1 else None) for part in split]
    if any(KNOWN.match(line) for line in lines):
        return [(line.strip(), None) for line in lines if line.strip() and not line.startswith("#")]
    return []


def words_of(line):
    """Gives a line without what may differ between two runs: numbers, digests, curves and blanks."""
    line = re.sub(r"\b[0-9a-f]{16,}\b", "0", line)
    line = re.sub(r"[▁▂▃▄▅▆▇█]+", "0", line)
    return " ".join(NUMBER.sub("#", line).split())


def difference(promised, printed):
    """Says where the printed lines leave the promised ones; None: nowhere."""
    promised = [words_of(line) for line in promised if line.strip()]
    printed = [line for line in printed if line.strip()]
    words = [words_of(line) for line in printed]
    far, at_far = 0, 0
    reached = {0}  # how many printed lines are used up
    for i, line in enumerate(promised):
        if line == "...":
            reached = set(range(min(reached), len(words) + 1))
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("...")))
        far, at_far = i, min(reached)
        reached = {n + 1 for n in reached if n < len(words) and pattern.fullmatch(words[n])}
        if not reached:
            near = next((n for n in range(at_far, len(words)) if words[n][:12] == line[:12]), at_far)
            got = printed[near] if near < len(printed) else "(the end)"
            return f"promised: {promised[far]}\nprinted:  {words_of(got)}"
    if len(words) not in reached:
        return f"promised: (the end)\nprinted:  {printed[max(reached)]}"
    return None


class Page:
    """A page in its own folder."""

    def __init__(self, program, source, name, options):
        self.source, self.name, self.options = source, name, options
        self.temp = tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)  # no waits for a disk
        self.folder, tools = self.temp.name + "/page", self.temp.name + "/bin"
        os.makedirs(tools)
        os.makedirs(self.folder)
        os.symlink(program, tools + "/halfstep")
        for part in ("configs", "python"):
            if os.path.isdir(f"{source}/{part}"):
                os.symlink(f"{source}/{part}", f"{self.folder}/{part}")
        self.environment = dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}", NO_COLOR="1", PYTHONDONTWRITEBYTECODE="1",
                                OMP_NUM_THREADS="2", OMP_WAIT_POLICY="PASSIVE", CUDA_VISIBLE_DEVICES="",
                                HALFSTEP_LIBRARY=os.path.dirname(program) + "/libhalfstep_predict.so.0")
        self.ran, self.commands, self.left_out = 0, 0, collections.Counter()

    def run(self, command, promised=None):
        if PLACEHOLDER.search(command):
            raise Fault(f"{command}\na name that the reader has to replace")
        code = re.search(r"#.*\bexit (\d+)$", command)
        began = time.monotonic()
        done = subprocess.run(["timeout", str(SECONDS), "bash", "-c", command], cwd=self.folder, env=self.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.commands += 1
        printed = done.stdout.decode(errors="replace")
        if self.options.verbose:
            print(f"$ {command}   [{time.monotonic() - began:.1f} s, code {done.returncode}]\n{printed}")
        if done.returncode != (int(code[1]) if code else 0):
            raise Fault(f"{command}\nended with code {done.returncode}:\n{printed[-2000:]}")
        if promised is not None:
            differs = difference(promised, printed.split("\n"))
            if differs:
                raise Fault(f"{command}\n{differs}")

    def needs_data(self, text):
        """Says if a command names a config, or a run of one, that reads files of HALFSTEP_DATA."""
        for name in re.findall(r"(?:configs/[\w/]+/|configs/|runs/)(\w+)", text):
            for path in glob.glob(f"{self.source}/configs/**/{name}.json", recursive=True):
                with open(path, encoding="utf-8") as file:
                    config = file.read()
                base = re.search(r'"extends": "(\w+)', config)
                if "env:HALFSTEP_DATA" in config or (base and self.needs_data(f"configs/{base[1]}")):
                    return True
        return False

    def reason_not_to_run(self, block):
        if block.mark.startswith("not run:"):
            reason = block.mark.partition(":")[2].strip()
            if reason not in REASONS:
                raise Fault(f"unknown reason: {reason}; the reasons are {', '.join(REASONS)}")
            return "not run: " + reason
        if block.mark == "slow" and not self.options.slow:
            return "slow"
        if block.language == "python" and not has_numpy():
            return "SKIPPED: needs NumPy"
        if block.language == "" and "HALFSTEP_DATA" not in os.environ and self.needs_data(block.text):
            return "SKIPPED: needs HALFSTEP_DATA"
        return ""

    def steps(self, block):
        """Lists the commands of a block, and writes the files that they need."""
        if block.mark.startswith("file:"):
            page_files.write(f"{self.folder}/{block.mark[5:].strip()}", block.text)
            return []
        if block.language == "json" and '"version"' in block.text:
            name = (re.search(r'"name": "([\w-]+)"', block.text) or ["", "config"])[1]
            page_files.write(f"{self.folder}/{name}.json", block.text)
            return [(f"halfstep validate {name}.json", None),
                    (f"halfstep train {name}.json --overwrite --quiet --set train.epochs=1", None)]
        if block.language == "python":
            page_files.write(f"{self.folder}/block.py", block.text)
            return [(f"PYTHONPATH=python {numpy_python()} block.py", None)]
        if block.language == "row":
            first, *rest = commands_of(block)
            config = re.search(r"--out (\S+\.json)", first[0])
            if not config:
                raise Fault(f"{first[0]}\nthe row's first command needs --out FILE.json")
            return [first, (f"halfstep train {config[1]} --quiet --set train.epochs=1", None), *rest]
        return commands_of(block) if block.language == "" else []

    def check(self):
        """Runs the page. Returns its faults, each with the line of its block."""
        faults = []
        with open(f"{self.source}/{self.name}", encoding="utf-8") as file:
            blocks = blocks_of(file.read())
        for block in blocks:
            try:
                reason = self.reason_not_to_run(block)
                if reason:
                    self.left_out[reason] += 1
                    if not reason.startswith("not run"):
                        print(f"{self.name}:{block.line}: {reason}")
                    continue
                steps = self.steps(block)
                self.ran += bool(steps)
                for command, promised in steps:
                    self.run(command, promised)
                if block.language == "row":
                    shutil.rmtree(self.folder + "/runs", ignore_errors=True)
            except Fault as fault:
                faults.append(f"{self.name}:{block.line}: {fault}")
        return faults


def numpy_python():
    return os.environ.get("HALFSTEP_TEST_PYTHON", sys.executable)


def has_numpy():
    return subprocess.run([numpy_python(), "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0


WRONG = [  # a page, and a word of the fault that it must have; "": none
    ("```\nhalfstep good\n$ in the middle\n```\n", "begins with"),
    ("```\nhalfstep good\n```\n", ""),
    ("```\nhalfstep fail\n```\n", "code 3"),
    ("```\nhalfstep fail # it cannot: exit 3\n```\n", ""),
    ("```\nhalfstep good # exit 3\n```\n", "code 0"),
    ("```\n$ halfstep say step 12 took 3 ms\nstep 7   took 0.25 s\n```\n", ""),
    ("```\n$ halfstep say step 12 took 3 ms\nstep 7 needed 3 ms\n```\n", "promised: step # needed #"),
    ("```\n$ halfstep say float16\nfloat32\n```\n", "promised: float32"),
    ("```\n$ printf 'a\\nb\\nc\\n'\na\n...\nc\n```\n", ""),
    ("```\n$ printf 'a\\nb\\nc\\n'\na\n...\nd\n```\n", "promised: d"),
    ("```\n$ printf 'a\\nb\\nc\\n'\na\nb\n```\n", "(the end)"),
    ("```\ncat missing.txt\n```\n", "missing.txt"),
    ("```\nhalfstep predict FILE\n```\n", "has to replace"),
    ("<!-- not run: needs a GPU -->\n```\nhalfstep fail\n```\n", ""),
    ("<!-- not run: too hard -->\n```\nhalfstep fail\n```\n", "unknown reason"),
    ("<!-- slow -->\n\n```\nhalfstep fail\n```\n", ""),
    ("<!-- file: a.json -->\n```json\n{\"version\": 1}\n```\n```\ncat a.json\n```\n", ""),
    ("```\nsome output of fail\n```\n", ""),
    ("```json\n{\"version\": 1, \"name\": \"fail\"}\n```\n", "validate fail.json"),
    ("| `halfstep init a.csv --out fail.json` | `halfstep good` |\n", "train fail.json"),
    ("| `halfstep init a.csv` | `halfstep good` |\n", "needs --out"),
]


def self_test(options):
    with tempfile.TemporaryDirectory() as root, contextlib.redirect_stdout(io.StringIO()):
        program = root + "/fake"
        page_files.write(program, '#!/bin/sh\ncase "$*" in say*) shift; echo "$*";; init*) ;; *fail*) exit 3;; esac\n')
        os.chmod(program, 0o755)
        quiet = argparse.Namespace(**dict(vars(options), slow=False, verbose=False))
        for text, expected in WRONG:
            page_files.write(root + "/page.md", text)
            faults = "\n".join(Page(program, root, "page.md", quiet).check())
            assert (expected in faults) if expected else not faults, f"of the page\n{text}\nthe test says: {faults or 'nothing'}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("source", type=os.path.abspath)
    parser.add_argument("--slow", action="store_true", help="run blocks that are marked as slow, too")
    parser.add_argument("--page", action="append", help="only this page, such as README.md")
    parser.add_argument("-v", "--verbose", action="store_true", help="print commands, times and outputs")
    options = parser.parse_args()
    self_test(options)
    faults, ran, left_out = [], 0, collections.Counter()
    for name in options.page or PAGES:
        began = time.monotonic()
        page = Page(options.program, options.source, name, options)
        page_files.write_all(page.folder, options.source)
        faults += page.check()
        ran += page.ran
        left_out += page.left_out
        print(f"{name}: {page.ran} blocks with {page.commands} commands in {time.monotonic() - began:.1f} s", flush=True)
    print("\n".join(f"{reason}: {count} blocks" for reason, count in sorted(left_out.items())))
    print("\n\n".join(faults) or ("commands_test: the pages do what they say" if ran else "SKIPPED: docs: nothing can be run here"))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
