// SPDX-License-Identifier: Apache-2.0
// Files of torch.save (.pt, .pth, .bin, .ckpt) that hold a state_dict, read without Python: the zip format, and the one before
// PyTorch 1.6. Nothing of the file is run: Python objects other than tensors and containers are passed over.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/base/device.h"
#include "framework/io/weights/tensor_map.h"

namespace halfstep {

struct TorchFileOptions {
  std::string key{};         // of the dictionary that is meant: "ema/state_dict"; "/" is the top; empty: there must be only one
  bool list_unread = false;  // tensors that halfstep cannot have are listed; else they are errors
};
struct TorchFile {
  TensorMap tensors;
  std::vector<std::string> names;    // in the file's order
  std::string key;                   // where in the file they are: "model_state"; "" at the top
  std::string model;                 // of a module that was pickled whole: its class
  std::vector<UnreadTensor> unread;  // with list_unread; also Python objects among the tensors
  size_t others = 0;                 // numbers, texts and containers among the tensors
};

// Does the file begin as one of torch.save? False also when it cannot be read.
bool is_torch_file(const std::filesystem::path& path);

// The tensors of a state_dict, or of the only one that a checkpoint has, under any keys (framework/io/weights/torch_state.h),
// contiguous and copied to `device`. Entries that are no tensors are left out. Tensors that are the same part of the same memory,
// as tied weights are, share memory here too; all others are independent. Dtypes float32, float64, float16, bfloat16, int64, int32,
// int16, int8, uint8 and bool. Throws IoError when the file cannot be read; DataError when it is damaged or cut off, from a
// big-endian machine, has no or several dictionaries of tensors, for complex, quantised and sparse tensors and other dtypes, and
// for tensors that together need more than twice the file and 64 MiB, which only repeated views do. Sizes are checked against the
// file before memory is allocated, and the checksums of the zip format are compared where the file has them. It must not be
// shortened meanwhile (map_safetensors).
TorchFile load_torch_file(const std::filesystem::path& path, Device device = Device::cpu, const TorchFileOptions& options = {});

// The same with the file mapped into memory (framework/io/files/mapped_file.h): tensors of the CPU that show it where it lies, if
// they are contiguous there. What is written into one stays in memory, and is seen in the tensors whose memory overlapped in
// PyTorch.
TorchFile map_torch_file(const std::filesystem::path& path, const TorchFileOptions& options = {});

}  // namespace halfstep
