// SPDX-License-Identifier: Apache-2.0
// Parts of safetensors.h for other code that handles such files: the names of dtypes, a reader of the JSON header that takes
// untrusted bytes, and a writer.
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/io/files/atomic_file.h"
#include "framework/io/weights/safetensors.h"

namespace halfstep {

// Largest header in bytes; longer ones are refused, as by the reference reader.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// The dtype in the file and the dtype in memory.
struct SafetensorsType {
  std::string_view name;
  uint64_t bytes;  // of an element in the file
  DType dtype;
};
// Returns the type of that name; null if halfstep lacks it.
const SafetensorsType* find_safetensors_type(std::string_view name);
// Returns the name of a dtype in files.
std::string_view safetensors_name(DType dtype);

// Parses `json` and checks it against `data_bytes`, the number of bytes behind it. Errors name `file`. Entries are sorted by
// begin; data_offset stays 0. Throws IoError.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, const std::string& file);

// Writes a file as save_safetensors does; `waits`: whether it waits for the disk.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata, Waits waits);

}  // namespace halfstep
