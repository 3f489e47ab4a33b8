// SPDX-License-Identifier: Apache-2.0
// Reads files of torch.save (.pt, .pth, .bin, .ckpt) with a state_dict, without Python: the zip format, and the one before PyTorch
// 1.6. Runs nothing from the file: Python objects other than tensors and containers are skipped.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/device.h"
#include "framework/io/weights/tensor_map.h"

namespace halfstep {

struct TorchFileOptions {
  std::string key{};         // path of the dictionary: "ema/state_dict"; "/" is the top; empty: there must be only one
  bool list_unread = false;  // whether tensors that halfstep lacks are listed instead of being errors
};
struct TorchFile {
  TensorMap tensors;
  std::vector<std::string> names;    // in the file's order
  std::string key;                   // path in the file: "model_state"; "" at the top
  std::string model;                 // class of a module that was pickled whole
  std::vector<UnreadTensor> unread;  // with list_unread; also Python objects among the tensors
  size_t others = 0;                 // numbers, texts and containers among the tensors
};

// Returns whether the file begins like one of torch.save. False also if it cannot be read.
bool is_torch_file(const std::filesystem::path& path);

// Reads the tensors of a state_dict, or of the only one in a checkpoint, under any keys (framework/io/weights/torch_state.h),
// contiguous and copied to `device`. Skips entries that are not tensors. Tensors that are the same part of the same memory, such
// as tied weights, share memory here too; all others are independent. Dtypes: float32, float64, float16, bfloat16, int64, int32,
// int16, int8, uint8 and bool. Throws IoError if the file cannot be read. Throws DataError if it is damaged, cut off, or from a
// big-endian machine; if it has no or several dictionaries of tensors; for complex, quantised and sparse tensors and other dtypes;
// and for tensors that together need more than twice the file and 64 MiB, which only repeated views do. Compares sizes with the
// file before it allocates memory, and the checksums of the zip format if present. The file must not be shortened meanwhile
// (map_safetensors).
TorchFile load_torch_file(const std::filesystem::path& path, Device device = Device::cpu, const TorchFileOptions& options = {});

// Returns the same with the file mapped into memory (framework/io/files/mapped_file.h): tensors that are contiguous there show the
// file. Writes stay in memory, and are visible in tensors whose memory overlapped in PyTorch.
TorchFile map_torch_file(const std::filesystem::path& path, const TorchFileOptions& options = {});

}  // namespace halfstep
