// SPDX-License-Identifier: Apache-2.0
#include "framework/data/arrays.h"

#include <algorithm>

#include "framework/base/check.h"
#include "framework/data/npy.h"
#include "framework/io/safetensors.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;

bool whole(const Tensor& t) { return is_integral(t.dtype()); }

Tensor input_of(const std::string& label, const Tensor& t, bool tokens) {
  const MemoryScope scope(MemoryTag::data);
  check<DataError>(t.dim() >= 1 && t.size(0) >= 1, label, "the input must have a row for each sample, got shape ", t.shape());
  check<DataError>(!tokens || whole(t), label, "tokens must be whole numbers, got ", t.dtype());
  if (tokens) return t.to(DType::i64).contiguous();
  return (t.dtype() == DType::u8 ? t : t.to(DType::f32)).contiguous();
}

Tensor read_target(const std::string& label, const Tensor& t, bool classes) {
  const MemoryScope scope(MemoryTag::data);
  check<DataError>(!classes || whole(t), label, "classes must be whole numbers, got ", t.dtype());
  if (classes) return t.to(DType::i64).contiguous();
  const Tensor numbers = t.to(DType::f32).contiguous();
  return numbers.dim() == 1 ? numbers.view({numbers.size(0), 1}) : numbers;
}

int64_t largest(const Tensor& t) {
  const int64_t* const p = t.data_ptr<int64_t>();
  return t.numel() == 0 ? -1 : *std::max_element(p, p + t.numel());
}

const Tensor& checked_rows(const std::string& label, const Tensor& input, const Tensor& target) {
  check<DataError>(target.dim() >= 1 && input.dim() >= 1 && input.size(0) == target.size(0), label,
                   "input and target must have a row for each sample, got shapes ", input.shape(), " and ", target.shape());
  return input;
}

bool has_classes(const Tensor& target, const ArrayOptions& o) { return o.classification.value_or(whole(target)); }
int64_t classes_of(const Tensor& target, const ArrayOptions& o) {
  if (!has_classes(target, o) || !whole(target)) return 0;
  return o.classes > 0 ? o.classes : std::max<int64_t>(1, largest(target.to(DType::i64).contiguous()) + 1);
}

}  // namespace

ArrayDataset::ArrayDataset(const std::string& label, const Tensor& input, const Tensor& target, const ArrayOptions& o)
    : TensorDataset(input_of(label, checked_rows(label, input, target), o.tokens),
                    read_target(label, target, has_classes(target, o)), classes_of(target, o), {}, label) {
  if (o.tokens && o.vocabulary > 0) set_vocabulary(o.vocabulary);
}

ArrayDataset ArrayDataset::npy(const fs::path& input, const fs::path& target, const ArrayOptions& options) {
  return ArrayDataset("NPY " + input.string(), map_npy(input), map_npy(target), options);
}

ArrayDataset ArrayDataset::npz(const fs::path& path, const ArrayOptions& options) {
  return ArrayDataset("NPZ " + path.string(), read_npz(path, options.input), read_npz(path, options.target), options);
}

ArrayDataset ArrayDataset::safetensors(const fs::path& path, const ArrayOptions& options) {
  const std::string label = "Safetensors " + path.string();
  const TensorFile file = map_safetensors(path);
  const auto named = [&](const std::string& name) {
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      std::string all;
      for (const auto& [n, t] : file.tensors) all += (all.empty() ? "" : ", ") + n;
      fail<DataError>(label, "there is no tensor \"", name, "\"; there are ", all.empty() ? "none" : all.substr(0, 500));
    }
    return found->second;
  };
  return ArrayDataset(label, named(options.input), named(options.target), options);
}

}  // namespace halfstep
