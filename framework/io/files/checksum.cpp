// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/checksum.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include "framework/base/check.h"
#include "framework/io/files/sha256_blocks.h"

namespace halfstep {
namespace {

// Adds dtype, shape and values of a tensor to the message.
void add(Sha256& hash, const Tensor& t) {
  std::string head(name(t.dtype()));
  for (int64_t n : t.shape()) head += ' ' + std::to_string(n);
  hash.update(head + '\n');
  const Tensor host = host_contiguous(t);
  if (host.nbytes() > 0) hash.update(host.const_data_ptr(), host.nbytes());
}

}  // namespace

void Sha256::update(const void* data, size_t bytes) {
  const uint8_t* next = static_cast<const uint8_t*>(data);
  size_t used = size_t(bytes_ % kBlock);
  bytes_ += bytes;
  while (bytes > 0) {
    if (used == 0 && bytes >= kBlock) {
      sha256_blocks(state_, next, bytes / kBlock);
      next += bytes / kBlock * kBlock, bytes %= kBlock;
      continue;
    }
    const size_t n = std::min(bytes, kBlock - used);
    std::memcpy(buffer_.data() + used, next, n);
    next += n, bytes -= n, used += n;
    if (used == kBlock) sha256_blocks(state_, buffer_.data(), 1), used = 0;
  }
}

std::string Sha256::hex() {
  const uint64_t bits = bytes_ * 8;
  // A bit 1, zeros, and the length in 8 bytes, so that all fills whole blocks.
  uint8_t tail[kBlock + 8] = {0x80};
  const size_t zeros = (2 * kBlock - 9 - bytes_ % kBlock) % kBlock;
  for (size_t i = 0; i < 8; ++i) tail[1 + zeros + i] = uint8_t(bits >> (56 - 8 * i));
  update(tail, 9 + zeros);
  std::string out;
  for (uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[(word >> shift) & 15];
  }
  return out;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  check<IoError>(in.is_open(), "sha256", "cannot read ", path.string());
  Sha256 hash;
  std::vector<char> buffer(1 << 18);
  while (in) {
    in.read(buffer.data(), std::streamsize(buffer.size()));
    hash.update(buffer.data(), size_t(in.gcount()));
  }
  check<IoError>(in.eof(), "sha256", "reading failed: ", path.string());
  return hash.hex();
}

std::string sha256(const Tensor& t) {
  Sha256 hash;
  add(hash, t);
  return hash.hex();
}

std::string sha256(const TensorMap& tensors) {
  Sha256 hash;
  for (const auto& [key, t] : tensors) {
    hash.update(key);
    hash.update(std::string_view("\0", 1));
    add(hash, t);
  }
  return hash.hex();
}

}  // namespace halfstep
