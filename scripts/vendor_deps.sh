#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches the packages a build needs, unpacked and not installed, for machines where nothing can be installed or downloaded:
#   scripts/vendor_deps.sh [FOLDER]        FOLDER: deps/ beside the sources, which git ignores and CMake finds by itself
# Runs on Debian and needs no root. The copy holds headers, libz.a and libre2.a, nothing that another distribution could not use:
# spdlog and fmt are used as headers, oneDNN is left behind (CPU matrix products then fall back to Eigen).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-$root/deps}
packages=(nlohmann-json3-dev libspdlog-dev libfmt-dev libcli11-dev libre2-dev doctest-dev libeigen3-dev zlib1g-dev)
limit_kib=$((20 * 1024))

for tool in apt-get dpkg; do
  command -v "$tool" >/dev/null || {
    echo "vendor_deps.sh: no $tool: run this on a Debian machine and copy the folder" >&2; exit 1
  }
done
if [[ -e $folder && ! -f $folder/MANIFEST ]]; then
  echo "vendor_deps.sh: $folder exists and was not made by this script: move it away or name another folder" >&2
  exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debs" "$work/tree"
download() { (cd "$work/debs" && apt-get -q -o APT::Sandbox::User=root download "${packages[@]}") >"$work/log" 2>&1; }
if ! download; then
  [[ $EUID -eq 0 ]] && apt-get update -qq >>"$work/log" 2>&1  # the package lists may be absent or old
  download || { cat "$work/log" >&2; exit 1; }
fi
for deb in "$work"/debs/*.deb; do dpkg -x "$deb" "$work/tree"; done

usr=$work/tree/usr
# Not needed, or of use on this distribution only: links to shared libraries, and the configs that name them.
rm -rf "$usr"/share/{doc,man,pkgconfig,lintian,bug} "$usr"/lib/*/{cmake,pkgconfig,*.so} "$usr/include/eigen3/unsupported"
# Out of the multiarch folders, which a compiler of another distribution may not look into.
mv "$usr"/lib/*/{libz,libre2}.a "$usr/lib/"
for multiarch in "$usr"/include/*-linux-gnu; do
  [[ -d $multiarch ]] && cp -r "$multiarch/." "$usr/include/" && rm -rf "$multiarch"
done
rmdir "$usr"/lib/*-linux-gnu
mkdir -p "$usr/lib/cmake/spdlog"
cat >"$usr/lib/cmake/spdlog/spdlogConfig.cmake" <<'CONFIG'
# spdlog and fmt as headers only, in place of Debian's config, which links its shared libraries.
get_filename_component(prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET spdlog::spdlog)
  find_package(Threads REQUIRED)
  add_library(spdlog::spdlog INTERFACE IMPORTED)
  set_target_properties(spdlog::spdlog PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${prefix}/include"
                        INTERFACE_COMPILE_DEFINITIONS "SPDLOG_FMT_EXTERNAL;SPDLOG_HEADER_ONLY;FMT_HEADER_ONLY"
                        INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
unset(prefix)
CONFIG
(cd "$work/debs" && printf '%s\n' *.deb) >"$work/tree/MANIFEST"

rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
cp -r "$work/tree" "$folder"
kib=$(du -sk "$folder" | cut -f1)
echo "vendor_deps.sh: ${#packages[@]} packages, $kib KiB in $folder" >&2
if ((kib > limit_kib)); then
  echo "vendor_deps.sh: more than $limit_kib KiB: too large to carry along" >&2
  exit 1
fi
