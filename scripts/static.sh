#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program for every Linux with this kind of CPU: scripts/static.sh [BUILD] [CMAKE OPTION...]
# Builds `halfstep` in BUILD (build/static) with static libraries alone, glibc among them, and packs it with its manual page,
# schema, configs, completions and licences into BUILD/halfstep-VERSION-linux-MACHINE.tar.xz. The program needs no file of the
# system: any glibc will do, or none. It multiplies with halfstep's own loops, since Debian has no static oneDNN, and trains in one
# process on the CPU, as it opens no libraries. Needs the packages of scripts/setup.sh and gfortran-12, for the run time of LAPACK.
# For arm64: scripts/static.sh build/static-arm64 with CMAKE_TOOLCHAIN_FILE=$PWD/scripts/cmake/arm64.cmake in the environment, the
# packages of scripts/setup.sh --with arm64, and libgfortran-12-dev-arm64-cross.
# HALFSTEP_JOBS=N: compilers at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${1:-build/static}
(($# == 0)) || shift
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD} CCACHE_NOHASHDIR=1
mkdir -p "$build"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHALFSTEP_STATIC=ON -DHALFSTEP_ONEDNN=OFF -DHALFSTEP_CUDA=OFF \
  -DHALFSTEP_TESTS=OFF -DHALFSTEP_EXAMPLES=OFF -DHALFSTEP_BENCHMARKS=OFF "$@" >"$build/configure.log" 2>&1 ||
  { cat "$build/configure.log" >&2; exit 1; }
# The linker warns that some functions of glibc need its shared libraries: they look up names of hosts and open plugins, which only
# several processes do.
ninja -C "$build" -j "${HALFSTEP_JOBS:-$(nproc)}" halfstep_program halfstep_pages >"$build/build.log" 2>&1 ||
  { tail -30 "$build/build.log" >&2; exit 1; }
needed=$(readelf -d "$build/halfstep" | grep NEEDED || true)
[[ -z $needed ]] || { echo "static.sh: the program needs shared libraries: $needed" >&2; exit 1; }

machine=$(readelf -h "$build/halfstep" | sed -n 's/.*Machine: *//p')
case $machine in
  *X86-64*) machine=x86_64 ;;
  AArch64*) machine=aarch64 ;;
  *) machine=${machine// /-} ;;
esac
version=$(sed -n 's/^project(halfstep VERSION \([^ ]*\).*/\1/p' CMakeLists.txt)
name=halfstep-$version-linux-$machine
stage=$build/$name
rm -rf "$stage" "$stage.tar.xz"
cmake --install "$build" --prefix "$stage" --component halfstep --strip >/dev/null
rm -rf "$stage/share/zsh/vendor-completions"
mkdir "$stage/licences"
cp LICENSE NOTICE "$stage/licences"
# What is linked in or compiled in, by the Debian package that it is from.
for package in libc6-dev libstdc++-12-dev libgfortran-12-dev libeigen3-dev nlohmann-json3-dev libspdlog-dev libfmt-dev \
  libcli11-dev libre2-dev zlib1g-dev liblapack-dev libblas-dev libpng-dev libjpeg62-turbo-dev; do
  text=$(find "/usr/share/doc/$package/copyright" "/usr/share/doc/$package-arm64-cross/copyright" -print -quit 2>/dev/null || true)
  if [[ -n $text ]]; then
    cp -L "$text" "$stage/licences/$package.txt"
  else
    echo "static.sh: the licence of $package is not installed, and not in the archive" >&2
  fi
done
tar -C "$build" --owner=0 --group=0 -cJf "$stage.tar.xz" "$name"
printf '%s: %.1f MB, the program %.1f MB\n' "$stage.tar.xz" "$(stat -c %s "$stage.tar.xz" | awk '{print $1 / 1e6}')" \
  "$(stat -c %s "$stage/bin/halfstep" | awk '{print $1 / 1e6}')"
