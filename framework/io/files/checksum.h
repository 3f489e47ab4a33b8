// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) of bytes, files and tensors, in lower-case hexadecimal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "framework/io/weights/tensor_map.h"

namespace halfstep {

class Sha256 {
 public:
  void update(const void* data, size_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  // Ends the message and returns its hash; call it once.
  std::string hex();

 private:
  static constexpr size_t kBlock = 64;  // bytes

  // At first the first 32 fractional bits of the square roots of the first 8 primes.
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, kBlock> buffer_{};  // an incomplete block
  uint64_t bytes_ = 0;                    // of the message so far
};

std::string sha256(std::string_view bytes);
std::string sha256_file(const std::filesystem::path& path);  // throws IoError
// Hashes dtype, shape and row-major bytes: equal for equal tensors on any device and with any strides.
std::string sha256(const Tensor& t);
// Hashes all names and tensors, in the order of the names.
std::string sha256(const TensorMap& tensors);

}  // namespace halfstep
