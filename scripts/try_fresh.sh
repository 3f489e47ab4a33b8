#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the README's two commands on an empty Debian, and times them: scripts/try_fresh.sh 12|13 [--first] [--keep]
#   --first  the first command only, with what README promises after it: an installation, a program by find_package, and Python
#   --keep   leaves the root folder, and says where
# Makes the root with debootstrap, clones the last commit into it, and fails if a compiler or CMake warns or a test fails. The time
# of apt is shown apart; "user" is processor time, which other programs on the machine change less than the time by the clock.
# Needs root (for chroot), debootstrap and a mirror; without them it prints "SKIPPED: try_fresh.sh: ...": scripts/debian_root.sh.
# TMPDIR: where the root is made (3 GB). HALFSTEP_JOBS=N: compilers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

me=try_fresh.sh takes="--first --keep"
source scripts/debian_root.sh
log=$root/log

make_root
clone_into_root
timed "apt (scripts/setup.sh)" in_root scripts/setup.sh
timed "scripts/run.sh train configs/digits_mlp.json" in_root scripts/run.sh train configs/digits_mlp.json
timed "installation, find_package, import halfstep" in_root bash -euo pipefail -c '
  cmake --install build/default --prefix /tmp/prefix >/tmp/installed
  cmake -G Ninja -S tests/consumer -B /tmp/consumer -DCMAKE_PREFIX_PATH=/tmp/prefix -DCMAKE_BUILD_TYPE=Release >/tmp/configured
  cmake --build /tmp/consumer -j "$HALFSTEP_JOBS"
  (cd /tmp && consumer/consumer && consumer/consumer_app)
  apt-get install -y -qq --no-install-recommends python3-numpy >/tmp/apt 2>&1
  for python in python /tmp/prefix/lib/halfstep; do
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$python python3 -c "
import halfstep
model = halfstep.open(\"runs/digits_mlp\")
print(halfstep.__file__, halfstep.__version__, model.form[\"source\"])"
  done
  git status --porcelain | (! grep .)'
[[ -n $first ]] || timed "scripts/test.sh" in_root scripts/test.sh

echo
echo "Debian $release, $(nproc) cores, commit $(git rev-parse --short HEAD)"
printf '  %s\n' "${times[@]}"
if grep -E '(^|[^a-z-])warning: |CMake Warning' "$log"; then
  echo "try_fresh.sh: the build has the warnings above"
  exit 1
fi
