#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A newcomer's first ten minutes, on an empty Debian: scripts/try_newcomer.sh 12|13 [--keep]
#   --keep   leaves the root folder, and says where
# Installs the program's package, and goes from a folder of pictures to a trained model, its answers, its report and an ONNX file,
# with no other command than those that the program itself names. Prints what a person would see, and the time of each command.
# Fails where a command fails, a new picture is answered wrongly, or all of it takes more than ten minutes.
# Where the package comes from: make_packages in scripts/debian_root.sh. Needs what that needs, dpkg-dev, file and python3, which
# draws the pictures; without them it prints "SKIPPED: try_newcomer.sh: ...".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

me=try_newcomer.sh takes="--keep"
source scripts/debian_root.sh
command -v python3 >/dev/null || skip "needs python3"
make_packages
make_root
mkdir -p "$root/opt/halfstep"
cp "$packages"/halfstep_*.deb "$root/opt/halfstep"
python3 scripts/draw_shapes.py "$root/opt/halfstep"

cat >"$root/opt/halfstep/try" <<'INSIDE'
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
# On a machine that does other work at the same time, threads that do not sleep wait for one another most of the time.
export OMP_WAIT_POLICY=PASSIVE
fail() { echo "try_newcomer.sh: $*"; exit 1; }
now() { date +%s%N; }
# COMMAND...: what it prints, of more than 12 lines the first and the last ones, and its time.
type_in() {
  local begin=$(now) failed=0
  printf '\n$ %s\n' "$*"
  "$@" >/tmp/said 2>&1 || failed=$?
  if (($(wc -l </tmp/said) > 12)); then
    head -4 /tmp/said
    echo "..."
    tail -4 /tmp/said
  else
    cat /tmp/said
  fi
  printf '(%d.%d s)\n' $((($(now) - begin) / 1000000000)) $((($(now) - begin) / 100000000 % 10))
  [[ $failed -eq 0 ]] || fail "$1 ${2:-} ended with $failed"
}
# It must have named the command that comes next.
names() { grep -qF -- "$1" /tmp/said || fail "nothing said: $1"; }

began=$(now)
apt-get update -qq
type_in apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends ./halfstep_*.deb
cd /root
cp -r /opt/halfstep/shapes /opt/halfstep/new .
type_in halfstep init shapes --out shapes.json
names "halfstep train shapes.json"
type_in halfstep train shapes.json
names "halfstep predict runs/shapes"
type_in halfstep predict runs/shapes new
for kind in circle cross square; do names "new/$kind.png: $kind "; done
type_in halfstep report runs/shapes
for part in "Training loss" "samples of data.val at step"; do grep -qF "$part" report.html || fail "the report lacks: $part"; done
type_in halfstep export runs/shapes --to onnx
names "shapes.onnx"
test -s shapes.onnx
seconds=$((($(now) - began) / 1000000000))
printf '\nfrom the package to the ONNX file: %d:%02d\n' $((seconds / 60)) $((seconds % 60))
((seconds <= 600)) || fail "that is more than ten minutes"
INSIDE
in_root bash try
printf 'Debian %s, %d cores, commit %s\n' "$release" "$(nproc)" "$(git describe --always --dirty)"
