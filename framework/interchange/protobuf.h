// SPDX-License-Identifier: Apache-2.0
// Writes protocol buffers: the few kinds of fields in ONNX files and TensorBoard's events. Does not read them. Linking libprotobuf
// instead would put a second copy of it into programs that already have one, and two versions in one process clash. Format:
// https://protobuf.dev/programming-guides/encoding
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace halfstep {

class ProtoWriter {
 public:
  ProtoWriter& integer(int field, int64_t value) {  // int32, int64, bool and enums
    key(field, kVarint);
    varint(uint64_t(value));
    return *this;
  }
  ProtoWriter& real(int field, float value) {
    key(field, kFixed32);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);  // little-endian, like the host
    return *this;
  }
  ProtoWriter& real64(int field, double value) {
    key(field, kFixed64);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  ProtoWriter& bytes(int field, std::string_view value) {  // also strings
    length(field, value.size());
    out_.append(value);
    return *this;
  }
  ProtoWriter& message(int field, const ProtoWriter& value) { return bytes(field, value.out_); }
  // Writes the head of a field whose `size` bytes follow.
  ProtoWriter& length(int field, uint64_t size) {
    key(field, kLength);
    varint(size);
    return *this;
  }
  const std::string& str() const { return out_; }

 private:
  enum Wire : unsigned { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };
  void key(int field, Wire wire) { varint(uint64_t(field) << 3 | wire); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += char(value | 0x80);
    out_ += char(value);
  }
  std::string out_;
};

}  // namespace halfstep
