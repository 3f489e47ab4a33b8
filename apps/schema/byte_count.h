// SPDX-License-Identifier: Apache-2.0
// Sizes in bytes: "6 GiB", "512 MB", 1e9.
#pragma once

#include <cstdint>
#include <optional>

#include "apps/schema/json.h"

namespace halfstep::app {

struct ByteCount {
  int64_t bytes = 0;
};

// Parses a number of bytes from 1 to 2^53; nothing for other values. kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB
// of 1024.
std::optional<ByteCount> parse_byte_count(const Json& value);

}  // namespace halfstep::app
