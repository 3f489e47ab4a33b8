#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tries halfstep on arm64, without such a machine, and times it: scripts/try_arm64.sh 12|13 [--first] [--keep]
#   --first  without the unit tests
#   --keep   leaves the root folder, and says where
# Makes an empty Debian with the libraries of arm64, clones the last commit into it, compiles that for arm64, and lets QEMU run the
# README's first command, on three CPUs; the unit tests of each level; and the packages. QEMU shows whether results are right, not
# how fast a machine is. Needs root (for chroot), debootstrap, qemu-user-static, a mirror, and a kernel that lets a user namespace
# say how foreign programs run (6.7); without them it prints "SKIPPED: try_arm64.sh: ...": scripts/debian_root.sh.
# TMPDIR: where the root is made (6 GB). HALFSTEP_JOBS=N: compilers. HALFSTEP_CCACHE: a folder with objects of earlier trials.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

me=try_arm64.sh takes="--first --keep"
source scripts/debian_root.sh
qemu=$(command -v qemu-aarch64-static) || skip "needs qemu-aarch64-static (qemu-user-static)"

# in_arm_root COMMAND...: as in_root, where programs of arm64 run like any other. $QEMU_CPU chooses their CPU.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
in_arm_root() {
  unshare --user --map-root-user --mount --pid --fork --kill-child --mount-proc="$root/proc" bash -euo pipefail -c '
    root=$1 rule=$2
    shift 2
    mount -t binfmt_misc none "$root/proc/sys/fs/binfmt_misc"
    printf %s "$rule" >"$root/proc/sys/fs/binfmt_misc/register"
    exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin \
      HALFSTEP_JOBS="$HALFSTEP_JOBS" HALFSTEP_CUDA=OFF CCACHE_DIR=/opt/ccache OMP_WAIT_POLICY=PASSIVE \
      CMAKE_TOOLCHAIN_FILE=/opt/halfstep/scripts/cmake/arm64.cmake ${QEMU_CPU:+QEMU_CPU="$QEMU_CPU"} \
      bash -c "cd /opt/halfstep; failed=0; \"\$@\" || failed=\$?; times >/tmp/times; exit \$failed" in_arm_root "$@"
  ' in_arm_root "$root" ":halfstep-arm64:M::$magic:$mask:$qemu:OCF" "$@" </dev/null
}
export HALFSTEP_JOBS=${HALFSTEP_JOBS:-$(nproc)}
unshare --user --map-root-user --mount --pid --fork --mount-proc mount -t binfmt_misc none /proc/sys/fs/binfmt_misc 2>/dev/null ||
  skip "this kernel has no binfmt_misc for user namespaces"

log=$root/log
make_root
clone_into_root
if [[ -n ${HALFSTEP_CCACHE:-} ]]; then
  mkdir -p "$HALFSTEP_CCACHE" "$root/opt/ccache"
  cp -r "$HALFSTEP_CCACHE/." "$root/opt/ccache"
fi
timed "apt (scripts/setup.sh --with arm64)" in_root scripts/setup.sh --with arm64 --with ccache --with packages
timed "scripts/run.sh train configs/digits_mlp.json" in_arm_root scripts/run.sh train configs/digits_mlp.json --threads 1
[[ -z ${HALFSTEP_CCACHE:-} ]] || cp -r "$root/opt/ccache/." "$HALFSTEP_CCACHE"
for cpu in cortex-a53 cortex-a72 max; do  # the last one has SVE and BF16
  for amp in false '{"dtype":"bfloat16"}' '{"dtype":"float16"}'; do
    QEMU_CPU=$cpu timed "$cpu, amp $amp" in_arm_root build/default/halfstep train configs/digits_mlp.json --overwrite --threads 1 \
      --set "amp=$amp" --set train.epochs=1 --set scheduler.warmup_steps=2 --set data.train.size=1280 --set data.val.size=256 \
      --set name=try
  done
done
if [[ -z $first ]]; then
  levels=(base math tensor backend comm autograd ops amp layers optim io data parallel distributions interchange)
  timed "building the tests" in_arm_root scripts/build.sh default "${levels[@]/#/test_}"
  [[ -z ${HALFSTEP_CCACHE:-} ]] || cp -r "$root/opt/ccache/." "$HALFSTEP_CCACHE"
  for level in "${levels[@]}"; do
    QEMU_CPU=cortex-a72 timed "$level, cortex-a72" in_arm_root ctest --test-dir build/default -R "^$level$" --timeout 7200 \
      --output-on-failure
  done
  QEMU_CPU=max timed "backend, max" in_arm_root ctest --test-dir build/default -R '^backend$' --timeout 7200 --output-on-failure
  timed "packages" in_arm_root scripts/build.sh default packages
  timed "dpkg --info" in_root bash -c 'for p in build/default/packages/*.deb; do
    dpkg --info "$p" | grep -E "Package|Architecture|Depends"; done'
fi

echo
echo "arm64 by QEMU on Debian $release, $(nproc) cores, commit $(git rev-parse --short HEAD)"
printf '  %s\n' "${times[@]}"
