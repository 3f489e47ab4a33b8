#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do ONNX files that halfstep wrote pass ONNX's checker, and does onnxruntime give their answers, for any number of samples?

    onnx_check.py PROGRAM...    what these test programs export: golden cases of all layers, models of several layers, examples
    onnx_check.py --folder DIR  files that are there: NAME.onnx, and NAME.safetensors with x2, y2, x3, y3 ...

Needs the packages onnx, onnxruntime, safetensors and numpy; prints SKIPPED and why where they are missing.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter

TOLERANCE = {"float32": 2e-5, "float16": 1e-2}  # relative to 1 + |wanted|


def deviation(np, got, want):
    g, w = got.astype(np.float64), want.astype(np.float64)
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0, np.abs(g - w) / (1 + np.abs(w)))
    return float("inf") if np.isnan(off).any() else float(np.max(off, initial=0))


def check(folder, tolerance):
    import numpy as np
    import onnx
    import onnxruntime as ort
    from safetensors.numpy import load_file
    ort.set_default_logger_severity(3)
    index = {}
    if os.path.exists(folder + "/index.json"):
        with open(folder + "/index.json") as f:
            index = json.load(f)
    good, worst, faults, ops = 0, 0.0, [], Counter()
    paths = sorted(glob.glob(folder + "/*.onnx"))
    for path in paths:
        name = os.path.basename(path)[:-5]
        try:
            model = onnx.load(path)
            onnx.checker.check_model(path, full_check=True)
            ops.update(n.op_type for n in model.graph.node)
            session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
            io = load_file(path[:-5] + ".safetensors")
            off = 0.0
            for key in sorted(k for k in io if k.startswith("x")):
                got, want = session.run(None, {session.get_inputs()[0].name: io[key]})[0], io["y" + key[1:]]
                if got.shape != want.shape or got.dtype != want.dtype:
                    raise ValueError(f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}")
                off = max(off, deviation(np, got, want))
            if off > tolerance:
                faults.append((name, index.get(name, ""), f"differs by {off:.2g}"))
            else:
                good, worst = good + 1, max(worst, off)
        except Exception as e:  # of the checker, of the runtime, of a shape
            faults.append((name, index.get(name, ""), str(e)[:400].replace("\n", " ")))
    for fault in faults:
        print(*fault)
    print(f"{good} of {len(paths)} files agree, largest deviation {worst:.2g}; {len(ops)} kinds of ONNX ops: "
          + " ".join(sorted(ops)))
    return 1 if faults or not paths else 0


def main(arguments):
    try:
        import numpy, onnx, onnxruntime, safetensors  # noqa: F401, E401
    except ImportError as e:
        print(f"SKIPPED: {e}: pip install onnx onnxruntime safetensors numpy")
        return 0
    if arguments[:1] == ["--folder"]:
        return check(arguments[1], TOLERANCE[arguments[2] if len(arguments) > 2 else "float32"])
    with tempfile.TemporaryDirectory() as folder:
        for program in arguments:
            cases = "-tc=every layer's golden case has a form in ONNX*,models of several layers*,ResNet-18*"
            subprocess.run([program, cases], check=True, env=dict(os.environ, HALFSTEP_ONNX_FOLDER=folder))
        return check(folder, TOLERANCE["float32"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
