# SPDX-License-Identifier: Apache-2.0
# Empty roots of Debian. A script sets `me` (its name) and `takes` (its options besides 12 and 13), and sources this file. That
# sets `release` and `suite`, and `first` and `keep` to not empty where --first and --keep were given; with --keep the root is left.
# Then make_root makes $root, and in_root COMMAND... runs a command inside. Needs root (for chroot), debootstrap and a mirror;
# without them it prints "SKIPPED: ..." and ends the script. The mirror is that of the host's sources, or deb.debian.org.
# TMPDIR: where roots are made (3 GB).

release='' first='' keep=''
for argument in "$@"; do
  case " 12 13 $takes " in
    *" $argument "*) ;;
    *) release='' && break ;;
  esac
  case $argument in
    --first) first=1 ;;
    --keep) keep=1 ;;
    *) release=$argument ;;
  esac
done
case $release in
  12) suite=bookworm ;;
  13) suite=trixie ;;
  *) echo "$me: takes 12 or 13, and ${takes// / and }, got ${*:-nothing}" >&2; exit 2 ;;
esac

skip() { echo "SKIPPED: $me: $*"; exit 0; }
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

root=$(mktemp -d "${TMPDIR:-/var/tmp}/halfstep-${me%.sh}.XXXXXX")
# What runs inside has its own mounts and processes, which end with it: nothing is left but the folder.
cleanup() {
  if [[ -n $keep ]]; then echo "kept: $root (log: $root/log)"; else rm -rf --one-file-system "$root"; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

make_root() {
  chmod 755 "$root"  # apt reads lists as a user of its own
  if ! debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root/log" 2>&1; then
    tail -5 "$root/log"
    echo "$me: debootstrap failed"
    exit 1
  fi
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  : >"$root/log"
}
# What the command took is in $root/tmp/times, as bash's `times` prints it. It begins in /opt/halfstep.
in_root() {
  unshare --mount --pid --fork --kill-child --mount-proc="$root/proc" chroot "$root" /usr/bin/env -i \
    HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin http_proxy="${http_proxy:-}" \
    HALFSTEP_JOBS="${HALFSTEP_JOBS:-$(nproc)}" \
    bash -c 'cd /opt/halfstep; failed=0; "$@" || failed=$?; times >/tmp/times; exit $failed' in_root "$@" </dev/null
}
# timed WHAT COMMAND...: what it prints goes to $log as well, and how long it took to $times.
timed() {
  local what=$1 began=$SECONDS failed=0
  shift
  "$@" > >(tee -a "$log") 2>&1 || failed=$?
  wait $!  # for tee
  local user  # of the command's processes, from the second line of bash's `times`
  user=$(sed -n '2s/ .*//p' "$root/tmp/times" 2>/dev/null || echo unknown)
  times+=("$(printf '%-48s %d:%02d, user %s' "$what" $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60)) "$user")")
  [[ $failed -eq 0 ]] || { printf '%s\n' "${times[@]}"; echo "$me: Debian $release: $what: failed with $failed"; exit 1; }
}

times=()
# The last commit, in /opt/halfstep.
clone_into_root() {
  [[ -z $(git status --porcelain --untracked-files=no) ]] || echo "$me: changes that are not committed are not tried" >&2
  git clone -q --no-hardlinks . "$root/opt/halfstep"
  git -C "$root/opt/halfstep" checkout -q --detach "$(git rev-parse HEAD)"
}
# The Debian packages for this release, in $packages, a folder that goes with the script. On a host of the same release they are
# those of build/default, which are built first; for another one the last commit is built in a root of that release.
make_packages() {
  local host program
  for program in dpkg-shlibdeps file; do command -v "$program" >/dev/null || skip "needs $program (dpkg-dev, file)"; done
  host=$(. /etc/os-release && echo "$ID $VERSION_ID")
  packages=$root.packages
  mkdir "$packages"
  trap 'rm -rf "$packages"; cleanup' EXIT
  if [[ $host == "debian $release" ]]; then
    scripts/build.sh default packages
    cp build/default/packages/*.deb "$packages"
    return
  fi
  make_root
  clone_into_root
  in_root scripts/setup.sh
  in_root apt-get install -y -qq --no-install-recommends dpkg-dev file
  in_root scripts/build.sh default packages
  cp "$root"/opt/halfstep/build/default/packages/*.deb "$packages"
  rm -rf --one-file-system "$root"
  mkdir "$root"
}
