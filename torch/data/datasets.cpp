// SPDX-License-Identifier: Apache-2.0
#include "torch/data/datasets.h"

#include <fstream>

namespace torch::data::datasets {
namespace {

// Reads a file of bytes in the IDX format.
Tensor read_bytes(const std::string& path, int rank) {
  std::ifstream in(path, std::ios::binary);
  TORCH_CHECK(in, "Error opening images file at ", path);
  auto number = [&] {
    unsigned char b[4] = {};
    in.read(reinterpret_cast<char*>(b), 4);
    return int64_t(b[0]) << 24 | int64_t(b[1]) << 16 | int64_t(b[2]) << 8 | int64_t(b[3]);
  };
  TORCH_CHECK(number() == 0x800 + rank, "not a file of MNIST: ", path);
  std::vector<int64_t> sizes;
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    sizes.push_back(number());
    count *= sizes.back();
    TORCH_CHECK(sizes.back() <= 1 << 20 && count <= int64_t(1) << 32, "a size in ", path, " is not one of MNIST");
  }
  const Tensor t = torch::empty(sizes, kByte);
  in.read(static_cast<char*>(t.data_ptr()), std::streamsize(t.nbytes()));
  TORCH_CHECK(in, "the file is cut off: ", path);
  return t;
}

}  // namespace

MNIST::MNIST(const std::string& root, Mode mode) : is_train_(mode == Mode::kTrain) {
  const std::string name = root + (is_train_ ? "/train" : "/t10k");
  images_ = read_bytes(name + "-images-idx3-ubyte", 3).to(kFloat).div(255).unsqueeze(1);
  targets_ = read_bytes(name + "-labels-idx1-ubyte", 1).to(kLong);
  TORCH_CHECK(images_.size(0) == targets_.size(0), "MNIST has ", images_.size(0), " images and ", targets_.size(0), " labels");
}

}  // namespace torch::data::datasets
