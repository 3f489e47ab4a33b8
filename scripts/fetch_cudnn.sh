#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches versions of cuDNN from PyPI for the test cudnn_plans.versions: scripts/fetch_cudnn.sh FOLDER [PACKAGE==VERSION...]
#   scripts/fetch_cudnn.sh ~/cudnn
#   HALFSTEP_CUDNN_VERSIONS=~/cudnn ctest --test-dir build/default -R cudnn_plans.versions
# FOLDER/<version> then holds a version's libraries, with the NVRTC that compiles its kernels (0.5 to 1.2 GB each). What is there
# already is left alone. Packages: nvidia-cudnn-cu12, nvidia-cudnn-cu13. Downloads are bound by NVIDIA's licence of cuDNN.
set -euo pipefail

folder=${1:?usage: fetch_cudnn.sh FOLDER [PACKAGE==VERSION...]}
shift
# For each way in which cuda/dnn/attention_soundness.cpp has attention computed: with two padding masks, not by cuDNN, with one
# mask, the first version that needs none, and a recent one.
[[ $# -gt 0 ]] || set -- nvidia-cudnn-cu12==9.8.0.87 nvidia-cudnn-cu12==9.10.1.4 nvidia-cudnn-cu13==9.12.0.46 \
  nvidia-cudnn-cu13==9.15.1.9 nvidia-cudnn-cu13==9.28.1.4
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

# unpack INTO PACKAGE...: the libraries of wheels, in one folder.
unpack() {
  local into=$1
  shift
  python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work/wheels" "$@"
  python3 - "$work/wheels" "$into" <<'PY'
import pathlib, shutil, sys, zipfile
wheels, into = map(pathlib.Path, sys.argv[1:])
into.mkdir(parents=True, exist_ok=True)
for wheel in wheels.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if ".so" in pathlib.PurePath(name).name:
                with archive.open(name) as source, open(into / pathlib.PurePath(name).name, "wb") as target:
                    shutil.copyfileobj(source, target)
    wheel.unlink()
PY
}

for package in "$@"; do
  [[ $package =~ ^nvidia-cudnn-cu(12|13)==([0-9.]+)$ ]] || {
    echo "fetch_cudnn.sh: takes nvidia-cudnn-cu12==VERSION or nvidia-cudnn-cu13==VERSION, got $package" >&2
    exit 2
  }
  toolkit=${BASH_REMATCH[1]} version=${BASH_REMATCH[2]}
  [[ -d $folder/$version ]] && continue
  echo "fetch_cudnn.sh: $package"
  nvrtc="nvidia-cuda-nvrtc-cu12"
  [[ $toolkit == 13 ]] && nvrtc="nvidia-cuda-nvrtc<14"
  unpack "$work/$version" "$package" "$nvrtc"
  mv "$work/$version" "$folder/$version"
done
