# SPDX-License-Identifier: Apache-2.0
# The part that try_packages.sh and try_wheel.sh have in common: they copy this file into the empty system, and source it there.
# try_static.sh, whose system has no shell, takes write_shapes alone.
set -euo pipefail

step() { printf '\n== %s\n' "$*"; }
quietly() { "$@" >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }; }
# Writes a table of 300 shapes, and two new ones, into a folder.
write_shapes() {
  awk 'BEGIN { print "width,height,kind"; for (i = 0; i < 300; ++i) { w = i * 7 % 100; h = i * 13 % 100;
    print w "," h "," (w > h ? "wide" : "tall") } }' >"$1/shapes.csv"
  printf 'width,height\n90,10\n10,90\n' >"$1/new.csv"
}
# Looks at what is installed beside the program below a prefix.
check_share() {
  test -s "$1/share/man/man1/halfstep.1"
  grep -q '"\$schema"' "$1/share/halfstep/halfstep.schema.json"
  bash -n "$1/share/bash-completion/completions/halfstep"
  halfstep validate "$1/share/halfstep/configs/digits_mlp.json"
}
# Trains runs/shapes in /tmp/trial and predicts with it.
train_shapes() {
  mkdir /tmp/trial
  cd /tmp/trial
  write_shapes .
  halfstep init shapes.csv --out shapes.json
  halfstep train shapes.json --quiet
  halfstep predict runs/shapes new.csv | tee answers
  grep -q 'row 1: wide' answers
  grep -q 'row 2: tall' answers
}
# Asks runs/shapes from Python, whose interpreter and environment variables are the arguments of env.
ask_in_python() {
  cd /tmp/trial
  env PYTHONDONTWRITEBYTECODE=1 "$@" -c '
import halfstep
model = halfstep.open("runs/shapes")
answers = [model.classes[row.argmax()] for row in model([[90, 10], [10, 90]])]
print("halfstep", halfstep.__version__, "in Python:", *answers)
assert answers == ["wide", "tall"]'
}
# Fails if a folder has files of halfstep.
nothing_left() {
  local left
  left=$(find "$1" -iname '*halfstep*')
  [[ -z $left ]] || { echo "left: $left"; exit 1; }
}
