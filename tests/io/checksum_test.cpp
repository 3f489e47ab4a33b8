// SPDX-License-Identifier: Apache-2.0
#include "framework/io/files/checksum.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "framework/base/check.h"
#include "framework/io/files/sha256_blocks.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("sha256: the vectors of FIPS 180-4") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("sha256: pieces of any size give the digest of the whole") {
  std::string text;
  for (int i = 0; i < 300; ++i) text += char(i * 7);
  for (size_t length : {54u, 55u, 56u, 63u, 64u, 65u, 119u, 120u, 300u}) {
    for (size_t piece : {1u, 3u, 63u, 64u, 65u}) {
      Sha256 hash;
      for (size_t at = 0; at < length; at += piece) hash.update(text.data() + at, std::min(piece, length - at));
      CHECK(hash.hex() == sha256(text.substr(0, length)));
    }
  }
}

TEST_CASE("sha256: the CPU's instructions compute what the portable code computes") {
  std::string bytes;
  for (uint32_t i = 0, x = 1; i < 64 * 9; ++i, x = x * 1664525 + 1013904223) bytes += char(x >> 24);
  const auto* const p = reinterpret_cast<const uint8_t*>(bytes.data());
  for (const size_t count : {0u, 1u, 2u, 9u}) {
    Sha256State fast{1, 20, 300, 4000, 50000, 600000, 7000000, 0xffffffff}, portable = fast;
    sha256_blocks(fast, p, count);
    sha256_blocks_portable(portable, p, count);
    CHECK(fast == portable);
  }
}

TEST_CASE("sha256 of a file and of a missing one") {
  const TempDir dir;
  write_bytes(dir / "f", "abc");
  CHECK(sha256_file(dir / "f") == sha256("abc"));
  CHECK(contains(message_of<IoError>([&] { sha256_file(dir / "missing"); }), "missing"));
}

TEST_CASE("sha256 of tensors sees values, dtype, shape and names, not strides") {
  const Tensor a = Tensor::empty({2, 3});
  for (int i = 0; i < 6; ++i) a.data_ptr<float>()[i] = float(i);
  const Tensor flat = a.alias({6}, {1});
  const Tensor turned = Tensor::empty({3, 2});  // a's transpose, so that a view of it reads as a
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 2; ++j) turned.data_ptr<float>()[i * 2 + j] = float(j * 3 + i);
  }
  CHECK(sha256(turned.alias({2, 3}, {1, 2})) == sha256(a));
  CHECK(sha256(flat) != sha256(a));
  CHECK(sha256(TensorMap{{"a", a}}) != sha256(TensorMap{{"b", a}}));
  const std::string before = sha256(TensorMap{{"a", a}});
  a.data_ptr<float>()[5] = 7;
  CHECK(sha256(TensorMap{{"a", a}}) != before);
}
