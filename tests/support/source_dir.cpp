// SPDX-License-Identifier: Apache-2.0
#include "tests/support/source_dir.h"

const std::string& halfstep_source_dir() {
  static const std::string path = HALFSTEP_SOURCE_DIR;
  return path;
}
