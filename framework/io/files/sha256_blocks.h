// SPDX-License-Identifier: Apache-2.0
// The compression function of SHA-256 (FIPS 180-4, 6.2.2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace halfstep {

using Sha256State = std::array<uint32_t, 8>;

// Adds `count` blocks of 64 bytes to the state, with the CPU's SHA instructions if it has them.
void sha256_blocks(Sha256State& state, const uint8_t* blocks, size_t count);
// Does the same without these instructions.
void sha256_blocks_portable(Sha256State& state, const uint8_t* blocks, size_t count);

}  // namespace halfstep
