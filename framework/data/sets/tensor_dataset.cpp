// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/tensor_dataset.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/base/text_stream.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

bool are_consecutive(std::span<const int64_t> indices) {
  for (size_t i = 1; i < indices.size(); ++i) {
    if (indices[i] != indices[i - 1] + 1) return false;
  }
  return !indices.empty();
}

// Returns rows of `t` in its own dtype: a view of consecutive ones, else a copy.
Tensor rows_of(const Tensor& t, std::span<const int64_t> indices) {
  const Shape sample = without_batch(t.shape()), shape = with_batch(int64_t(indices.size()), sample);
  const int64_t row = numel(sample);
  if (are_consecutive(indices)) return t.alias(shape, contiguous_strides(shape), indices[0] * row);
  const Tensor out = Tensor::empty(shape, {.dtype = t.dtype(), .device = t.device()});
  const size_t bytes = size_t(row) * size_of(t.dtype());
  if (bytes == 0) return out;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (t.device().is_cpu()) {
      std::memcpy(static_cast<char*>(out.data_ptr()) + i * bytes,
                  static_cast<const char*>(t.data_ptr()) + size_t(indices[i]) * bytes, bytes);
    } else {
      const Strides strides = contiguous_strides(sample);
      backend_for(t.device())
          .copy(t.alias(sample, strides, indices[i] * row).view(), out.alias(sample, strides, int64_t(i) * row).view());
    }
  }
  return out;
}

// Returns rows of bytes, converted by `affine`.
Tensor rows_as_f32(const Tensor& t, std::span<const int64_t> indices, Affine affine) {
  std::array<float, 256> value_of_byte;
  for (size_t i = 0; i < value_of_byte.size(); ++i) value_of_byte[i] = affine.of(float(i));
  const Shape sample = without_batch(t.shape());
  const int64_t row = numel(sample);
  const Tensor out = Tensor::empty(with_batch(int64_t(indices.size()), sample), {.device = Device::cpu});
  float* to = out.data_ptr<float>();
  for (int64_t index : indices) {
    const uint8_t* from = t.const_data_ptr<uint8_t>() + index * row;
    for (int64_t j = 0; j < row; ++j) *to++ = value_of_byte[from[j]];
  }
  return out;
}

Tensor rows_as_i64(const Tensor& t, std::span<const int64_t> indices) {
  const Shape sample = without_batch(t.shape());
  const int64_t row = numel(sample);
  const Tensor out = Tensor::empty(with_batch(int64_t(indices.size()), sample), {.dtype = DType::i64, .device = Device::cpu});
  int64_t* to = out.data_ptr<int64_t>();
  for (int64_t index : indices) to = std::copy_n(t.const_data_ptr<uint8_t>() + index * row, row, to);
  return out;
}

// Checks that labels are in [0, classes) or `ignored`; returns the number of the latter.
template <class T>
int64_t check_classes(const Tensor& target, int64_t classes, std::optional<int64_t> ignored, const std::string& label) {
  const T* p = target.const_data_ptr<T>();
  int64_t out = 0;
  for (int64_t i = 0; i < target.numel(); ++i) {
    const auto c = int64_t(p[i]);
    out += c == ignored;
    if (c == ignored || (c >= 0 && c < classes)) continue;
    const bool may_mean_ignored = ignored && (c < 0 || *ignored >= 0);
    fail<DataError>(label, "labels must be in 0..", classes - 1,
                    may_mean_ignored ? joined(", or ", *ignored, ", which is ignored") : "", ", but label ", i, " is ", c);
  }
  return out;
}

// Returns the number of classes of a target; 0: the target has numbers.
int64_t classes_of_target(const Tensor& target) {
  if (!target.defined() || target.dtype() != DType::i64 || target.numel() == 0) return 0;
  const std::vector<int64_t> labels = target.to_vector<int64_t>();
  const bool has_negative = std::any_of(labels.begin(), labels.end(), [](int64_t c) { return c < 0 && c != kIgnoredClass; });
  return has_negative ? 0 : classes_in(target, kIgnoredClass);
}

// Returns what makes a target of this dtype fit, which has no number of classes.
std::string_view remedy_for_target(const Tensor& target) {
  constexpr std::string_view kCounted =
      "their number, the third argument, makes classes of it: TensorDataset(x, y, 10); y.to(kFloat32) makes numbers of it";
  if (is_floating(target.dtype())) return "TensorDataset(x, y.to(kFloat32))";
  if (target.dtype() == DType::u8) return kCounted;
  if (target.dtype() != DType::i64) return "y.to(kInt64) makes classes of it, y.to(kFloat32) numbers";
  if (target.numel() == 0 || classes_of_target(target) > 0) return kCounted;
  return "y.to(kFloat32) makes numbers of it; classes are 0, 1 and so on, and -100 for those that losses leave out";
}

}  // namespace

int64_t classes_in(const Tensor& labels, std::optional<int64_t> ignored) {
  int64_t largest = -1;
  bool has_ignored = false;
  for (const int64_t c : labels.to_vector<int64_t>())
    c == ignored ? void(has_ignored = true) : void(largest = std::max(largest, c));
  return std::max<int64_t>(largest, has_ignored && *ignored <= largest + 1 ? *ignored : -1) + 1;
}

namespace samples {

void check_rows(std::span<Tensor> tensors) {
  for (Tensor& t : tensors) {
    check<ValueError>(t.defined(), "TensorDataset", "needs defined tensors");
    if (t.dim() < 1 || t.size(0) != tensors[0].size(0)) {
      fail<ShapeError>("TensorDataset", "tensors must have one row a sample, got ", tensors[0].shape(), " and ", t.shape());
    }
    t = t.detach().contiguous();
  }
}

Tensor row(const Tensor& t, int64_t i) {
  check<IndexError>(i >= 0 && i < t.size(0), "TensorDataset", "a sample index must be in [0, ", t.size(0), "), got ", i);
  return t.select(0, i);
}

Tensor rows(const Tensor& t, std::span<const int64_t> indices) {
  for (const int64_t i : indices) {
    check<IndexError>(i >= 0 && i < t.size(0), "TensorDataset", "a sample index must be in [0, ", t.size(0), "), got ", i);
  }
  const MemoryScope scope(MemoryTag::data);
  return rows_of(t, indices);
}

}  // namespace samples

TensorDataset<2>::TensorDataset(Tensor input, Tensor target) : TensorDataset(std::move(input), target, classes_of_target(target)) {}

TensorDataset<2>::TensorDataset(Tensor input, Tensor target, int64_t classes, Affine affine, std::string label,
                                std::optional<int64_t> ignored)
    : input_(std::move(input)), target_(std::move(target)), classes_(classes), affine_(affine), label_(std::move(label)) {
  check<ValueError>(input_.defined() && target_.defined(), label_, "needs an input and a target");
  check<ValueError>(classes_ >= 0, label_, "classes must not be negative, got ", classes_);
  check<ShapeError>(input_.dim() >= 1 && target_.dim() >= 1 && input_.size(0) == target_.size(0), label_,
                    "input and target must have one row a sample, got ", input_.shape(), " and ", target_.shape());
  check<ShapeError>(input_.is_contiguous() && target_.is_contiguous(), label_, "input and target must be contiguous");
  check<DeviceError>(input_.device() == target_.device(), label_, "input and target must be on one device, got ", input_.device(),
                     " and ", target_.device());
  const bool has_tokens = input_.dtype() == DType::i64;
  check<DTypeError>(input_.dtype() == DType::f32 || input_.dtype() == DType::u8 || has_tokens, label_,
                    "input must be float32, uint8 or int64, got ", input_.dtype(),
                    Help{"x.to(kFloat32), or for tokens x.to(kInt64)"});
  const bool is_on_host = input_.device().is_cpu();
  check<ValueError>(is_on_host || (input_.dtype() != DType::u8 && target_.dtype() != DType::u8 && !has_tokens), label_,
                    "bytes and tokens must be on the host");
  for (int64_t i = 0; has_tokens && i < input_.numel(); ++i) {
    const int64_t token = input_.const_data_ptr<int64_t>()[i];
    check<DataError>(token >= 0, label_, "tokens must not be negative, but token ", i, " is ", token);
    vocabulary_ = std::max(vocabulary_, token + 1);
  }
  if (classes_ == 0) {
    if (target_.dtype() != DType::f32)
      fail<DTypeError>(label_, "a regression target must be float32, got ", target_.dtype(), Help{remedy_for_target(target_)});
    return;
  }
  check<DTypeError>(target_.dtype() == DType::i64 || target_.dtype() == DType::u8, label_, "classes must be int64 or uint8, got ",
                    target_.dtype(), Help{"give them as y.to(kInt64)"});
  if (!is_on_host) return;
  const auto check_labels = target_.dtype() == DType::u8 ? check_classes<uint8_t> : check_classes<int64_t>;
  const int64_t left_out = check_labels(target_, classes_, ignored, label_);
  if (left_out > 0)
    ignored_text_ = joined(left_out, " of ", target_.numel(), " labels are ", *ignored, ", which loss and metrics leave out");
}

void TensorDataset<2>::set_vocabulary(int64_t tokens) {
  check<DataError>(tokens >= vocabulary_, label_, "tokens must be below ", tokens, ", but the largest is ", vocabulary_ - 1);
  vocabulary_ = tokens;
}

Shape TensorDataset<2>::input_shape() const { return without_batch(input_.shape()); }
Shape TensorDataset<2>::target_shape() const { return without_batch(target_.shape()); }

void TensorDataset<2>::check_indices(std::span<const int64_t> indices) const {
  for (int64_t i : indices) check<IndexError>(i >= 0 && i < size(), label_, "a sample index must be in [0, ", size(), "), got ", i);
}

Tensor TensorDataset<2>::target_of(std::span<const int64_t> indices) const {
  return target_.dtype() == DType::u8 ? rows_as_i64(target_, indices) : rows_of(target_, indices);
}

Batch TensorDataset<2>::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  const MemoryScope scope(MemoryTag::data);
  Batch out;
  out.input = input_.dtype() == DType::u8 ? rows_as_f32(input_, indices, affine_) : rows_of(input_, indices);
  out.target = target_of(indices);
  return out;
}

std::optional<ByteRows> TensorDataset<2>::byte_rows(std::span<const int64_t> indices) const {
  if (input_.dtype() != DType::u8) return {};
  check_indices(indices);
  const MemoryScope scope(MemoryTag::data);
  ByteRows out{{}, affine_, target_of(indices)};
  const int64_t row = numel(input_shape());
  for (int64_t i : indices) out.rows.push_back(input_.data_ptr<uint8_t>() + i * row);
  return out;
}

std::vector<int64_t> TensorDataset<2>::labels() const {
  if (classes_ == 0 || target_.dim() != 1 || !target_.device().is_cpu()) return {};
  return target_.to_vector<int64_t>();
}

std::string TensorDataset<2>::describe() const {
  TextWriter out;
  out << label_ << ": " << size() << " samples, input " << input_shape();
  if (vocabulary_ > 0) out << " of " << vocabulary_ << " tokens";
  if (classes_ == 0 || !target_shape().empty()) out << ", target " << target_shape();
  if (classes_ > 0) out << (target_shape().empty() ? ", " : " of ") << classes_ << " classes";
  return out.str();
}

}  // namespace halfstep
