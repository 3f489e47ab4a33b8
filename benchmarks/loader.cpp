// SPDX-License-Identifier: Apache-2.0
// How fast batches of augmented images are made: compare_torch_loader.py asks it.
//   loader FILE SAMPLES BATCH WORKERS EPOCHS     FILE: CIFAR-10's binary format, repeated as needed; or - for random bytes
// Prints one JSON object: the seconds of each epoch, after one that is not counted, and a sum over the batches.
#include "framework/data/loading/loader.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "framework/base/check.h"
#include "framework/data/sets/tensor_dataset.h"
#include "framework/data/transforms/image_transforms.h"

using namespace halfstep;

namespace {

std::shared_ptr<Dataset> images(const std::string& path, int64_t samples) {
  constexpr int64_t kImage = 3 * 32 * 32;
  const Tensor x = Tensor::empty({samples, 3, 32, 32}, {.dtype = DType::u8}), y = Tensor::empty({samples}, {.dtype = DType::u8});
  std::string bytes;
  if (path != "-") {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
    check<DataError>(bytes.size() >= size_t(kImage + 1), path, "must hold images of CIFAR-10, got ", bytes.size(), " bytes");
  }
  const int64_t there = int64_t(bytes.size()) / (kImage + 1);
  uint32_t state = 1;
  for (int64_t i = 0; i < samples; ++i) {
    const char* const record = there > 0 ? bytes.data() + i % there * (kImage + 1) : nullptr;
    y.data_ptr<uint8_t>()[i] = record ? uint8_t(record[0]) : uint8_t(i % 10);
    for (int64_t j = 0; j < kImage; ++j) {
      state = state * 1664525u + 1013904223u;
      x.data_ptr<uint8_t>()[i * kImage + j] = record ? uint8_t(record[1 + j]) : uint8_t(state >> 24);
    }
  }
  const auto data = std::make_shared<TensorDataset<>>(x, y, 10, Affine{1 / 255.f, 0});
  return transformed(data, {std::make_shared<RandomCrop>(ImageSize{32, 32}, RandomCropOptions{.padding = {4, 4, 4, 4}}),
                            std::make_shared<RandomHorizontalFlip>(),
                            std::make_shared<NormalizeTransform>(NormalizeTransform::preset("cifar10"))});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: loader FILE SAMPLES BATCH WORKERS EPOCHS\n");
    return 2;
  }
  try {
    DataLoader loader(images(argv[1], std::atoll(argv[2])),
                      {.batch_size = std::atoll(argv[3]), .shuffle = true, .num_workers = std::atoi(argv[4])});
    double sum = 0;
    std::string seconds;
    for (int epoch = 0; epoch <= std::atoi(argv[5]); ++epoch) {
      const auto start = std::chrono::steady_clock::now();
      for (auto& [x, y] : loader) sum += double(x.data_ptr<float>()[0]) + double(y.data_ptr<int64_t>()[0]);
      const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (epoch > 0) seconds += (seconds.empty() ? "" : ", ") + std::to_string(spent);
    }
    std::printf("{\"seconds\": [%s], \"sum\": %.6g}\n", seconds.c_str(), sum);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
