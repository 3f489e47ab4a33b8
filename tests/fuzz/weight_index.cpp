// SPDX-License-Identifier: Apache-2.0
// The index of weights in several files: it lies beside two, which have the tensors "a" and "b", and "a" and "c". What is read has
// each name once.
#include "framework/io/weights/weight_file.h"

#include <set>

#include "framework/io/weights/safetensors.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(weight_index) {
  using namespace halfstep;
  static const std::filesystem::path index = [] {
    const std::filesystem::path folder = fuzz::folder() / "weights";
    std::filesystem::create_directory(folder);
    save_safetensors(folder / "1.safetensors", {{"a", Tensor::empty({2, 3})}, {"b", Tensor::empty({0})}});
    save_safetensors(folder / "2.safetensors", {{"a", Tensor::empty({1})}, {"c", Tensor::empty({})}});
    return folder / "model.safetensors.index.json";
  }();
  fuzz::put(index, fuzz::text_of(data, size));
  fuzz::typed([&] {
    const WeightFile read = read_weight_file(index), again = read_weight_file(index.parent_path());
    std::set<std::string> names;
    for (const WeightFile::Entry& entry : read.tensors)
      if (!names.insert(entry.name).second) fuzz::found("a tensor is there twice", entry.name);
    if (again.tensors.size() != read.tensors.size()) fuzz::found("the folder has other tensors than its index");
  });
  return 0;
}
