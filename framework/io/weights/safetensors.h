// SPDX-License-Identifier: Apache-2.0
// The safetensors file format: 8 bytes little-endian header length, a JSON header, the tensors' bytes without gaps.
// Files are exchanged with Python's safetensors.torch.load_file and save_file.
// Format: https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "framework/io/weights/tensor_map.h"

namespace halfstep {

struct TensorFile {
  TensorMap tensors;
  std::map<std::string, std::string> metadata;  // the header's __metadata__
  std::vector<UnreadTensor> unread;             // with Unread::list: tensors of dtypes that halfstep lacks
};

// Whether tensors of dtypes that halfstep lacks are an error, or are listed.
enum class Unread : uint8_t { refuse, list };

// One entry of a header.
struct TensorEntry {
  std::string name;
  std::string dtype;  // as in the file: "F16", "I64"
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, counted from the end of the header
};
struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // by begin
  std::map<std::string, std::string> metadata;
  uint64_t data_offset = 0;  // bytes from the start of the file
};

// Returns whether the file begins like a safetensors file: with a plausible length and '{'. False also if it cannot be read.
bool is_safetensors(const std::filesystem::path& path);

// Reads and checks only the header. Throws IoError like load_safetensors. Accepts any dtypes.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

// Reads all tensors of a file to `device`. Dtypes F16 BF16 F32 F64 U8 I8 I16 I32 I64 BOOL keep their kind; halfstep has no larger
// unsigned types, so U16 is read as i32, U32 and U64 as i64 (IoError if a value does not fit). Throws IoError for every malformed
// file (header length, JSON, UTF-8, duplicate names, unknown dtype, sizes that overflow, overlaps, gaps, missing or trailing
// bytes), before it allocates memory for a tensor.
TensorFile load_safetensors(const std::filesystem::path& path, Device device = Device::cpu);

// Maps the file: returns CPU tensors whose memory is the file's pages, which are loaded on access and may be unloaded again. Writes
// stay in memory. Tensors that need a conversion, or do not begin at a multiple of their dtype's size, are read. The file may be
// replaced or removed meanwhile, but not shortened: the system ends a program that accesses a missing part.
TensorFile map_safetensors(const std::filesystem::path& path, Unread unread = Unread::refuse);

// Writes atomically. Tensors are sorted by descending size of their dtype, then by name, so all are aligned; a view or a GPU
// tensor is copied first. Throws IoError if writing fails, ValueError for an undefined tensor or a tensor named "__metadata__".
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace halfstep
