#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a site of README.md, docs/ and the public headers with Doxygen: scripts/docs.sh [FOLDER], by default build/site
# Begin reading at FOLDER/html/index.html. A link or a reference that leads nowhere is an error. Needs doxygen; without it the
# script prints "SKIPPED: docs.sh: ...".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=$(realpath -m "${1:-build/site}")
command -v doxygen >/dev/null || { echo "SKIPPED: docs.sh: needs doxygen"; exit 0; }

rm -rf "$out/html"
mkdir -p "$out"
doxygen - <<CONFIG
PROJECT_NAME = halfstep
PROJECT_NUMBER = $(sed -nE 's/^project\(halfstep VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
INPUT = README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs framework layers optim amp halfstep.h apps/capi
FILE_PATTERNS = *.h *.md
EXCLUDE_PATTERNS = */backend/cpu/*
RECURSIVE = YES
USE_MDFILE_AS_MAINPAGE = README.md
IMAGE_PATH = docs
OUTPUT_DIRECTORY = $out
GENERATE_LATEX = NO
GENERATE_TREEVIEW = YES
EXTRACT_ALL = YES
JAVADOC_AUTOBRIEF = YES
STRIP_FROM_PATH = .
FILTER_PATTERNS = *.h="sed -Ef scripts/docs_header.sed" *.md=scripts/docs_filter.py
VERBATIM_HEADERS = NO
HAVE_DOT = NO
CLASS_GRAPH = NO
INCLUDE_GRAPH = NO
INCLUDED_BY_GRAPH = NO
COLLABORATION_GRAPH = NO
SEARCH_INCLUDES = NO
QUIET = YES
WARN_LOGFILE = $out/warnings.txt
CONFIG

# Generated headers are not there; all else is an error, and so are links into the site that lead nowhere.
faults=$(
  grep -v 'include file generated/' "$out/warnings.txt" || true
  cd "$out/html"
  comm -23 <(grep -oh 'href="[^"#:]\+["#]' -- *.html | sed 's/href="//; s/.$//' | sort -u) <(find . -type f | sed 's#^./##' | sort)
)
[[ -z $faults ]] || { printf '%s\n' "docs.sh: faults:" "$faults"; exit 1; }
echo "$out/html/index.html: $(find "$out/html" -name '*.html' | wc -l) pages, $(du -sm "$out/html" | cut -f 1) MB"
