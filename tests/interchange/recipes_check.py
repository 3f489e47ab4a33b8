#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does what `halfstep export` writes of every recipe give the model's answers elsewhere?

    recipes_check.py PROGRAM SOURCE PREFIX [RECIPE...]   PREFIX: where halfstep is installed; "-" leaves C++ out

Each recipe of configs/recipes is trained for three steps. Its ONNX files (float32 and float16) answer their golden samples in
onnxruntime, `model.py` does in PyTorch, and `main.cpp`, built against the installed package, in C++. Needs HALFSTEP_DATA and the
packages onnx, onnxruntime, torch, safetensors and numpy; prints SKIPPED and why where something is missing.
"""
import base64
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
BOUND = {"float32": 1e-4, "float16": 3e-2}  # relative to 1 + |y|


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def onnx_deviation(path):
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx_check import deviation
    ort.set_default_logger_severity(3)
    onnx.checker.check_model(path, full_check=True)
    proof = json.loads({e.key: e.value for e in onnx.load(path).metadata_props}["halfstep.proof"])

    def tensor(j):
        return np.frombuffer(base64.b64decode(j["base64"]), j["dtype"]).reshape(j["shape"])
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    got, want = session.run(None, {"input": tensor(proof["input"])})[0], tensor(proof["output"])
    got, want = got.reshape(len(got), -1), want.reshape(len(want), -1)
    return deviation(np, got[:, ::-(-got.shape[1] // want.shape[1])], want)


def check(recipe, program, source, prefix, folder):
    at = os.path.join(folder, recipe)
    steps = ["--set", "train.epochs=null", "--set", "train.max_steps=3"]
    run(program, "train", os.path.join(source, "configs", "recipes", recipe + ".json"), "--quiet", "--set", f'output_dir="{at}"',
        "--set", "scheduler=null", *steps)
    said = []
    for dtype, bound in BOUND.items():
        path = f"{at}-{dtype}.onnx"
        run(program, "export", at, "--to", "onnx", "--dtype", dtype, "--out", path)
        off = onnx_deviation(path)
        said.append(f"ONNX {dtype} {off:.1e}")
        if not off <= bound:
            raise RuntimeError(f"{path} differs by {off:.2g}")
    run(program, "export", at, "--to", "torch", "--out", at + "-torch")
    said.append("PyTorch " + run(sys.executable, at + "-torch/model.py").split("within ")[1].split(" ")[0])
    if prefix != "-":
        run(program, "export", at, "--to", "cpp", "--out", at + "-cpp")
        run("cmake", "-S", at + "-cpp", "-B", at + "-cpp/build", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", at + "-cpp/build")
        said.append("C++ " + run(at + "-cpp/build/model", at + "-cpp").split("within ")[1].split(" ")[0])
    run(program, "export", at, "--to", "safetensors", "--out", at + ".safetensors")
    checked = subprocess.run([program, "predict", at + ".safetensors", "--check"], capture_output=True, text=True)
    if "to the bit" not in checked.stderr:
        raise RuntimeError(recipe + ".safetensors does not prove itself")
    print(f"{recipe}: {', '.join(said)}", flush=True)


def main(arguments):
    try:
        import numpy, onnx, onnxruntime, safetensors, torch  # noqa: F401, E401
    except ImportError as e:
        print(f"SKIPPED: {e}: pip install onnx onnxruntime safetensors numpy torch")
        return 0
    if not os.environ.get("HALFSTEP_DATA"):
        print("SKIPPED: HALFSTEP_DATA is unset: the recipes train on real data")
        return 0
    program, source, prefix = arguments[:3]
    there = os.listdir(os.path.join(source, "configs", "recipes"))
    recipes = arguments[3:] or sorted(f[:-5] for f in there if f.endswith(".json"))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for recipe in recipes:
            try:
                check(recipe, os.path.abspath(program), source, prefix, folder)
            except Exception as e:  # the others are checked as well
                failed += 1
                print(f"{recipe}: {e}", flush=True)
    print(f"{len(recipes) - failed} of {len(recipes)} recipes agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
