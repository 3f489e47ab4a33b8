#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the static program where nothing else is: scripts/try_static.sh [ARCHIVE]
# ARCHIVE is by default the newest one that scripts/static.sh made in build/static; without one it runs that script. The archive is
# unpacked into a folder that has neither a C library nor a shell, which becomes the root; there the program trains, resumes,
# predicts, exports and sweeps. benchmarks/sizes.py measures its size and its start.
# Needs root (for chroot); without it the script prints "SKIPPED: try_static.sh: ...".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source scripts/try_inside.sh
skip() { echo "SKIPPED: try_static.sh: $*"; exit 0; }
fail() { echo "try_static.sh: $*"; exit 1; }
[[ $EUID -eq 0 ]] || skip "needs root, for chroot"
unshare --mount --pid --fork true 2>/dev/null || skip "this machine lets no process have mounts of its own"
archive=${1:-}
if [[ -z $archive ]]; then
  [[ -e /usr/lib/gcc/$(gcc -dumpmachine)/$(gcc -dumpversion)/libgfortran.a ]] || skip "needs gfortran, for libgfortran.a"
  scripts/static.sh >&2
  archive=$(ls -t build/static/halfstep-*.tar.xz | head -1)
fi
root=$(mktemp -d "${TMPDIR:-/var/tmp}/halfstep-static.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
mkdir "$root"/{proc,dev,tmp}
: >"$root/dev/null"
tar -C "$root" -xf "$archive"
name=$(basename "$archive" .tar.xz)
mv "$root/$name" "$root/halfstep"
write_shapes "$root/tmp"
within() {
  unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" \
    env -i OMP_WAIT_POLICY=PASSIVE "$(command -v chroot)" "$root" /halfstep/bin/halfstep "$@" </dev/null
}
in_root() { within "$@" >"$root/said" 2>&1 || { cat "$root/said"; fail "halfstep $1 ended with another code than 0"; }; }
says() { grep -qF -- "$1" "$root/said" || { cat "$root/said"; fail "nothing said: $1"; }; }

in_root --version
head -1 "$root/said"
in_root validate /halfstep/share/halfstep/configs/digits_mlp.json
in_root init /tmp/shapes.csv --out /tmp/shapes.json
in_root train /tmp/shapes.json --set output_dir=/tmp/run --set train.epochs=10
says "done: "
tail -4 "$root/said"
in_root train /tmp/shapes.json --set output_dir=/tmp/run --set train.epochs=11 --resume auto
in_root predict /tmp/run /tmp/new.csv
says "row 1: wide"
says "row 2: tall"
in_root export /tmp/run --to onnx --out /tmp/shapes.onnx
[[ -s $root/tmp/shapes.onnx ]] || fail "no shapes.onnx"
printf '{"base": "/tmp/shapes.json", "output_dir": "/tmp/sweep", "grid": {"optimizer.lr": [0.01, 0.02]}}' >"$root/tmp/sweep.json"
in_root sweep /tmp/sweep.json --set train.epochs=1
OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$root/halfstep/bin/halfstep" train "$root/tmp/shapes.json" >"$root/said" 2>&1 &&
  fail "one of two ranks trained alone"
says "linked statically and trains in one process"
echo "$name works alone"
