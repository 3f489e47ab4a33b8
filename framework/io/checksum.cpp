// SPDX-License-Identifier: Apache-2.0
#include "framework/io/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <vector>

#include "framework/base/check.h"

namespace halfstep {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
                                 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
                                 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
                                 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
                                 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
                                 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
                                 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
                                 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void add(Sha256& hash, const Tensor& t) {
  std::string head(name(t.dtype()));
  for (int64_t n : t.shape()) head += ' ' + std::to_string(n);
  hash.update(head + '\n');
  const Tensor host = host_contiguous(t);
  if (host.nbytes() > 0) hash.update(host.data_ptr(), host.nbytes());
}

}  // namespace

void Sha256::block(const uint8_t* p) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = uint32_t(p[4 * i]) << 24 | uint32_t(p[4 * i + 1]) << 16 | uint32_t(p[4 * i + 2]) << 8 | p[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t now[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += now[i];
}

void Sha256::update(const void* data, size_t bytes) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  size_t used = size_t(bytes_ % 64);
  bytes_ += bytes;
  while (bytes > 0) {
    if (used == 0 && bytes >= 64) {
      block(p);
      p += 64, bytes -= 64;
      continue;
    }
    const size_t n = std::min(bytes, 64 - used);
    std::memcpy(buffer_.data() + used, p, n);
    p += n, bytes -= n, used += n;
    if (used == 64) block(buffer_.data()), used = 0;
  }
}

std::string Sha256::hex() {
  const uint64_t bits = bytes_ * 8;
  uint8_t tail[72] = {0x80};
  const size_t zeros = (119 - bytes_ % 64) % 64;  // so that the message with its length fills whole blocks
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
