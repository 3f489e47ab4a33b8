#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles the CUDA backend with the oldest toolkit that Debian has and halfstep takes: scripts/try_toolkit.sh 13 [--first] [--keep]
#   --first  the files of the host alone, without the kernels
#   --keep   leaves the root folder, and says where
# Makes an empty Debian 13, installs its nvcc (12.4) and its NCCL from non-free, and the headers of cuDNN 9.1 from PyPI, clones the
# last commit into it, and compiles every file of cuda/ and of tests/cuda for one GPU; then configures for all GPUs. Nothing is
# run on a GPU. Downloads 3 GB. Needs what scripts/debian_root.sh needs, python3 with pip, and a mirror of non-free; without them
# it prints "SKIPPED: try_toolkit.sh: ...". HALFSTEP_DOWNLOADS: a folder with packages of earlier trials.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

me=try_toolkit.sh takes="--first --keep"
source scripts/debian_root.sh
[[ $release == 13 ]] || skip "Debian $release has CUDA 11.8, which halfstep does not take"
python3 -m pip --version >/dev/null 2>&1 || skip "needs python3 with pip"
wget -q -T 20 -t 2 -O /dev/null "${mirror%/}/dists/$suite/non-free/binary-amd64/Release" || skip "the mirror has no non-free"
cudnn=9.1.0.70

log=$root/log
make_root
echo "deb $mirror $suite main contrib non-free" >"$root/etc/apt/sources.list"
# Nothing is linked: of the libraries only that which CMake tries nvcc with.
cat >"$root/etc/dpkg/dpkg.cfg.d/no-libraries" <<'INSIDE'
path-exclude=/usr/lib/x86_64-linux-gnu/lib*_static*.a
path-exclude=/usr/lib/x86_64-linux-gnu/libcublas*
path-exclude=/usr/lib/x86_64-linux-gnu/libcufft*
path-exclude=/usr/lib/x86_64-linux-gnu/libcusolver*
path-exclude=/usr/lib/x86_64-linux-gnu/libcusparse*
path-exclude=/usr/lib/x86_64-linux-gnu/libcurand*
path-exclude=/usr/lib/x86_64-linux-gnu/libnpp*
path-exclude=/usr/lib/x86_64-linux-gnu/libnccl*
path-exclude=/usr/share/doc/*
path-include=/usr/lib/x86_64-linux-gnu/libcudart*
INSIDE
downloads=${HALFSTEP_DOWNLOADS:-$root/var/cache/halfstep}
mkdir -p "$downloads" "$root/opt"
[[ -z ${HALFSTEP_DOWNLOADS:-} ]] || cp -n "$downloads"/*.deb "$root/var/cache/apt/archives/" 2>/dev/null || true
clone_into_root
timed "apt (scripts/setup.sh)" in_root bash -c 'apt-get update -qq && scripts/setup.sh 2>&1'
timed "apt (nvidia-cuda-toolkit, libcupti-dev, libnccl-dev)" in_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
  -o Dpkg::Use-Pty=0 -o APT::Keep-Downloaded-Packages=true --no-install-recommends \
  g++-13 nvidia-cuda-toolkit libcupti-dev libnccl-dev
[[ -z ${HALFSTEP_DOWNLOADS:-} ]] || cp -n "$root"/var/cache/apt/archives/*.deb "$downloads" 2>/dev/null || true
rm -f "$root"/var/cache/apt/archives/*.deb
ls "$downloads"/nvidia_cudnn_cu12-$cudnn-*.whl >/dev/null 2>&1 ||
  python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$downloads" nvidia-cudnn-cu12==$cudnn
python3 - "$downloads"/nvidia_cudnn_cu12-$cudnn-*.whl "$root/usr/local/include" <<'PY'
import pathlib, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    for name in wheel.namelist():
        if name.endswith(".h"):
            pathlib.Path(sys.argv[2], pathlib.PurePath(name).name).write_bytes(wheel.read(name))
PY

# cmake OPTION...: configures as users do, and prints what halfstep says.
configure() {
  in_root bash -c 'set -o pipefail
    cmake --preset default "$@" 2>&1 | grep -E "halfstep: (CUDA|cu|NCCL|sm_)|rror"' configure -DHALFSTEP_CUDA=ON "$@"
}
# compile WHAT PATTERN: the objects of cuda/ and of its tests whose names match.
compile() {
  in_root ninja -C build/default -t targets all | sed -nE 's/^([^:]*\.dir\/[^:]*\.(cpp|cxx|cu)\.o): .*/\1/p' |
    grep -E 'CMakeFiles/(halfstep_cuda|cuda_\w+_tests|test_cuda\w*|test_cudnn_plans)\.dir' | grep -E "$2" >"$root/tmp/objects"
  timed "$(wc -l <"$root/tmp/objects") $1" in_root bash -c 'xargs ninja -C build/default -j "$HALFSTEP_JOBS" </tmp/objects'
}
timed "cmake, one GPU" configure -DHALFSTEP_GPUS=9.0
compile "files of the host" '\.(cpp|cxx)\.o$'
[[ -n $first ]] || compile "files of kernels" '\.cu\.o$'
timed "cmake, all GPUs" configure -DHALFSTEP_GPUS=all

echo
echo "CUDA of Debian $release, cuDNN $cudnn, $(nproc) cores, commit $(git rev-parse --short HEAD)"
printf '  %s\n' "${times[@]}"
