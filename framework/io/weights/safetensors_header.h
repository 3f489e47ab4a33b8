// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file, read from untrusted bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/io/files/atomic_file.h"
#include "framework/io/weights/safetensors.h"

namespace halfstep {

// Longer headers are refused, as by the reference reader.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// The dtype of elements in the file, and in memory.
struct SafetensorsType {
  std::string_view name;
  uint64_t bytes;
  DType dtype;
};
const SafetensorsType* find_safetensors_type(std::string_view name);  // null when unknown
std::string_view safetensors_name(DType dtype);

// Parses `json` and checks it against `data_bytes`, the bytes that follow it. `file` is named in errors. Entries by begin;
// data_offset is left 0. Throws IoError.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& file);

// save_safetensors, which may not wait for the disk.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata, Waits waits);

}  // namespace halfstep
