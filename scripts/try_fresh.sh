#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries the README's two commands on an empty Debian, and times them: scripts/try_fresh.sh 12|13 [--first] [--keep]
#   --first  the first command only
#   --keep   leaves the root folder, and says where
# Makes the root with debootstrap, clones the last commit into it, and fails if a compiler or CMake warns or a test fails. The time
# of apt is shown apart; "user" is processor time, which other programs on the machine change less than the time by the clock.
# Needs root (for chroot), debootstrap and a mirror; without them it prints "SKIPPED: try_fresh.sh: ...".
# The mirror is that of the host's sources, or deb.debian.org. TMPDIR: where the root is made (3 GB). HALFSTEP_JOBS=N: compilers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() { echo "try_fresh.sh: takes 12 or 13, --first and --keep, got ${*:-nothing}" >&2; exit 2; }
release='' first='' keep=''
for argument in "$@"; do
  case $argument in
    12 | 13) release=$argument ;;
    --first) first=1 ;;
    --keep) keep=1 ;;
    *) usage "$@" ;;
  esac
done
case $release in 12) suite=bookworm ;; 13) suite=trixie ;; *) usage "$@" ;; esac

skip() { echo "SKIPPED: try_fresh.sh: $*"; exit 0; }
[[ $EUID -eq 0 ]] || skip "needs root, for chroot"
for program in debootstrap unshare chroot wget; do command -v "$program" >/dev/null || skip "needs $program"; done
unshare --mount --pid --fork true 2>/dev/null || skip "this machine lets no process have mounts of its own"

# The address in the host's own list of sources that ends in /debian.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null | sed 's/#.*//' |
  grep -oE 'https?://[^ ]+/debian/?( |$)' | head -1 | tr -d ' ' || true)
mirror=${mirror:-http://deb.debian.org/debian}
proxy=$(apt-config dump --format '%v' Acquire::http::Proxy 2>/dev/null || true)
[[ -n $proxy ]] && export http_proxy=$proxy
wget -q -T 20 -t 2 -O /dev/null "${mirror%/}/dists/$suite/Release" || skip "no mirror of Debian can be reached"
[[ -z $(git status --porcelain --untracked-files=no) ]] || echo "try_fresh.sh: changes that are not committed are not tried" >&2

root=$(mktemp -d "${TMPDIR:-/var/tmp}/halfstep-fresh-$release.XXXXXX")
log=$root/log
# What runs inside has its own mounts and processes, which end with it: nothing is left but the folder.
cleanup() {
  if [[ -n $keep ]]; then echo "kept: $root (log: $log)"; else rm -rf --one-file-system "$root"; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM
in_root() {
  unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" chroot "$root" /usr/bin/env -i \
    HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin http_proxy="${http_proxy:-}" \
    HALFSTEP_JOBS="${HALFSTEP_JOBS:-$(nproc)}" \
    bash -c 'cd /opt/halfstep; failed=0; "$@" || failed=$?; times >/tmp/times; exit $failed' in_root "$@" </dev/null
}
# timed WHAT COMMAND...: what it prints goes to the log as well.
timed() {
  local what=$1 began=$SECONDS failed=0
  shift
  "$@" > >(tee -a "$log") 2>&1 || failed=$?
  wait $!  # for tee
  local user  # of the command's processes, from the second line of bash's `times`
  user=$(sed -n '2s/ .*//p' "$root/tmp/times" 2>/dev/null || echo unknown)
  times+=("$(printf '%-48s %d:%02d, user %s' "$what" $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60)) "$user")")
  [[ $failed -eq 0 ]] || { printf '%s\n' "${times[@]}"; echo "try_fresh.sh: Debian $release: $what: failed with $failed"; exit 1; }
}

times=()
if ! debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$log" 2>&1; then
  tail -5 "$log"
  echo "try_fresh.sh: debootstrap failed"
  exit 1
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
git clone -q --no-hardlinks . "$root/opt/halfstep"
git -C "$root/opt/halfstep" checkout -q --detach "$(git rev-parse HEAD)"
: >"$log"
timed "apt (scripts/setup.sh)" in_root scripts/setup.sh
timed "scripts/run.sh train configs/digits_mlp.json" in_root scripts/run.sh train configs/digits_mlp.json
[[ -n $first ]] || timed "scripts/test.sh" in_root scripts/test.sh

echo
echo "Debian $release, $(nproc) cores, commit $(git rev-parse --short HEAD)"
printf '  %s\n' "${times[@]}"
if grep -E '(^|[^a-z-])warning: |CMake Warning' "$log"; then
  echo "try_fresh.sh: the build has the warnings above"
  exit 1
fi
