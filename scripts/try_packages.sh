#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the Debian packages on an empty Debian: scripts/try_packages.sh 12|13 [--keep]
#   --keep   leaves the root folder, and says where
# Installs the program's package alone and trains and predicts with it; then the C library, for Python; then the C++ library, with
# which it builds tests/consumer by find_package and by pkg-config. Where the packages come from: make_packages in
# scripts/debian_root.sh. Needs what that needs, dpkg-dev and file; without them it prints "SKIPPED: try_packages.sh: ...".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

me=try_packages.sh takes="--keep"
source scripts/debian_root.sh
make_packages
make_root
mkdir -p "$root/opt/halfstep"
cp "$packages"/*.deb "$root/opt/halfstep"
cp -r tests/consumer "$root/opt/halfstep/consumer"
cp scripts/try_inside.sh "$root/opt/halfstep"
cat >"$root/opt/halfstep/try" <<'INSIDE'
source ./try_inside.sh
export DEBIAN_FRONTEND=noninteractive
install() {
  apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >/tmp/apt 2>&1 || { cat /tmp/apt; exit 1; }
  echo "apt installed $(grep -c '^Setting up' /tmp/apt) packages for $1"
}

step the program alone
apt-get update -qq
install ./halfstep_*.deb
halfstep --version
check_share /usr
train_shapes
halfstep export runs/shapes --to safetensors --out shapes.safetensors
halfstep predict shapes.safetensors --check

step the C library, from Python
cd /opt/halfstep
install ./libhalfstep-predict0_*.deb python3-numpy
ask_in_python PYTHONPATH=/usr/lib/halfstep python3

step the C++ library
if ! halfstep --version | grep -q 'CUDA not built in'; then
  echo "left out: these packages were built with CUDA, whose toolkit the library needs"
  exit 0
fi
cd /opt/halfstep
install ./libhalfstep-dev_*.deb g++ cmake make pkg-config
cmake -S consumer -B /tmp/by_cmake -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build /tmp/by_cmake -j "$HALFSTEP_JOBS"
cd /tmp/trial
/tmp/by_cmake/consumer
/tmp/by_cmake/consumer_app
halfstep train /opt/halfstep/consumer/plain.json --quiet --set output_dir=/tmp/trial/plain
/tmp/by_cmake/consumer_predict plain
pkg-config --modversion halfstep
g++ -O2 $(pkg-config --cflags halfstep) /opt/halfstep/consumer/main.cpp $(pkg-config --static --libs halfstep) -o by_pkg_config
./by_pkg_config

step every file is removed with its package
apt-get purge -y -qq -o Dpkg::Use-Pty=0 halfstep libhalfstep-dev libhalfstep-predict0 >/dev/null
nothing_left /usr
INSIDE
in_root bash try

printf '\nDebian %s, commit %s\n' "$release" "$(git describe --always --dirty)"
for package in "$packages"/*.deb; do
  printf '  %-44s %5d kB, installed %6d kB, needs %d packages\n' "${package##*/}" $(($(stat -c %s "$package") / 1000)) \
    "$(dpkg-deb -f "$package" Installed-Size)" "$(dpkg-deb -f "$package" Depends | tr ',' '\n' | wc -l)"
done
