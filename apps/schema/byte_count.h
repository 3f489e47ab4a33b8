// SPDX-License-Identifier: Apache-2.0
// "6 GiB", "512 MB", 1e9: sizes in bytes.
#pragma once

#include <cstdint>
#include <optional>

#include "apps/schema/json.h"

namespace halfstep::app {

struct ByteCount {
  int64_t bytes = 0;
};

// Nothing when the value is no number of bytes from 1 to 2^53: kB, MB, GB and TB count in thousands, KiB, MiB, GiB and TiB in 1024.
std::optional<ByteCount> parse_byte_count(const Json& value);

}  // namespace halfstep::app
