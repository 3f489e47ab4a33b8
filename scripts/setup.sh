#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that a build and its tests need, where they are missing. Returns at once when none is.
# Not installed, but used when present: mold, the CUDA toolkit (nvcc on PATH).
#
#   scripts/setup.sh [--with mpi] [--with gloo] [--with clang] [--with ccache] [--with packages]
#                    [--with arm64]
#       mpi, gloo: training on several ranks, and its tests (docs/distributed.md); gloo: for ranks that torchrun or something else
#       than MPI starts; clang: what the preset `asan` is built with; ccache: a compiler cache, so that what a clone has compiled is
#       not compiled again, in this clone or in another one; packages: what finds the libraries that a .deb depends on; arm64: to
#       compile for arm64 (scripts/cmake/arm64.cmake), with the libraries of arm64 in place of this machine's
set -euo pipefail

packages=(g++ cmake ninja-build git python3
          libdnnl-dev libeigen3-dev nlohmann-json3-dev libspdlog-dev libcli11-dev libre2-dev doctest-dev zlib1g-dev
          liblapack-dev libpng-dev libjpeg62-turbo-dev)
arm64=''
while [[ $# -gt 0 ]]; do
  case "$1 ${2-}" in
    "--with mpi") packages+=(libopenmpi-dev openmpi-bin); shift 2 ;;
    "--with gloo") packages+=(libgloo-dev); shift 2 ;;
    "--with clang") packages+=(clang libclang-rt-dev libomp-dev); shift 2 ;;
    "--with ccache") packages+=(ccache); shift 2 ;;
    "--with packages") packages+=(dpkg-dev file); shift 2 ;;
    "--with arm64") arm64=1; shift 2 ;;
    *) echo "setup.sh: takes --with mpi, gloo, clang, ccache, packages or arm64, got $*" >&2; exit 2 ;;
  esac
done
if [[ -n $arm64 ]]; then
  for i in "${!packages[@]}"; do  # those that are not the same for all architectures
    case ${packages[i]} in
      libdnnl* | libspdlog* | libre2* | zlib1g* | liblapack* | libpng* | libjpeg* | libgloo* | libopenmpi*) packages[i]+=:arm64 ;;
    esac
  done
  packages+=(g++-aarch64-linux-gnu qemu-user-static)
fi

if ! command -v dpkg-query >/dev/null; then
  echo "setup.sh: not a Debian system, so nothing was installed. Needed, by their Debian names: ${packages[*]}" >&2
  exit 0
fi

# "missing" are those whose state is not "installed"; dpkg-query also fails for names it never heard of.
form='${db:Status-Status} ${Package}\n${db:Status-Status} ${Package}:${Architecture}\n'
installed=$(dpkg-query -W -f "$form" "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

if [[ $EUID -eq 0 ]]; then
  as_root=(env)
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n env)
else
  echo "setup.sh: missing packages, and no right to install them. Run this, then try again:" >&2
  echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

install() { "${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2; }
echo "setup.sh: installing ${missing[*]}" >&2
[[ -z $arm64 ]] || "${as_root[@]}" dpkg --add-architecture arm64
# The package lists may be absent or old: fetch them only when the first try fails.
install 2>/dev/null || { "${as_root[@]}" apt-get update -qq >&2 && install; }
# Builds that were configured without them look for them again.
rm -f "$(dirname "${BASH_SOURCE[0]}")"/../build/*/build.ninja
