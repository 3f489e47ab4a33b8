// SPDX-License-Identifier: Apache-2.0
// Enums as types, torch::kSum, and arrays of one number for all dimensions.
#pragma once

#include "torch/tensor/creation.h"

namespace torch {

// ---- enums: a type and a value of each
namespace enumtype {
#define HS_TORCH_ENUMS(E)                                                                                                    \
  E(Linear)                                                                                                                  \
  E(Conv1D) E(Conv2D) E(Conv3D) E(ConvTranspose1D) E(ConvTranspose2D) E(ConvTranspose3D) E(Sigmoid) E(Tanh) E(ReLU) E(GELU)  \
      E(SiLU) E(Mish) E(LeakyReLU) E(FanIn) E(FanOut) E(Constant) E(Reflect) E(Replicate) E(Circular) E(Nearest) E(Bilinear) \
          E(Bicubic) E(Trilinear) E(Area) E(NearestExact) E(Sum) E(Mean) E(Max) E(None) E(BatchMean) E(Zeros) E(Border)      \
              E(Reflection) E(RNN_TANH) E(RNN_RELU) E(LSTM) E(GRU) E(Valid) E(Same)
#define E(name)                                    \
  struct k##name {                                 \
    static constexpr const char* text = "k" #name; \
  };
HS_TORCH_ENUMS(E)
#undef E
template <class V>
std::string get_enum_name(const V& v) {
  return std::visit([](const auto& e) { return std::string(e.text); }, v);
}
template <class V>
Reduction::Reduction reduction_get_enum(const V& v) {
  const std::string n = get_enum_name(v);
  return n == "kNone" ? Reduction::None : n == "kMean" ? Reduction::Mean : Reduction::Sum;
}
}  // namespace enumtype
#define E(name) inline constexpr enumtype::k##name k##name{};
HS_TORCH_ENUMS(E)
#undef E

// ---- one number for all dimensions, or one each
template <size_t D, class T = int64_t>
class ExpandingArray {
 public:
  ExpandingArray(std::initializer_list<T> list) : ExpandingArray(ArrayRef<T>(list)) {}
  ExpandingArray(std::vector<T> v) : ExpandingArray(ArrayRef<T>(v)) {}
  ExpandingArray(ArrayRef<T> v) {
    TORCH_CHECK(v.size() == D, "Expected ", D, " values, but instead got ", v.size());
    std::copy(v.begin(), v.end(), values_.begin());
  }
  ExpandingArray(T one) { values_.fill(one); }
  ExpandingArray(const std::array<T, D>& v) : values_(v) {}
  std::array<T, D>& operator*() { return values_; }
  const std::array<T, D>& operator*() const { return values_; }
  std::array<T, D>* operator->() { return &values_; }
  const std::array<T, D>* operator->() const { return &values_; }
  operator ArrayRef<T>() const { return values_; }
  size_t size() const { return D; }
  hs::Dims d() const requires std::is_same_v<T, int64_t> { return detail::D(IntArrayRef(values_)); }

 protected:
  std::array<T, D> values_;
};
template <size_t D, class T>
std::ostream& operator<<(std::ostream& out, const ExpandingArray<D, T>& a) {
  if (a.size() == 1) return out << (*a)[0];
  return out << static_cast<ArrayRef<T>>(a);
}
template <size_t D, class T = int64_t>
class ExpandingArrayWithOptionalElem : public ExpandingArray<D, std::optional<T>> {
 public:
  using ExpandingArray<D, std::optional<T>>::ExpandingArray;
  ExpandingArrayWithOptionalElem(std::initializer_list<T> list) : ExpandingArrayWithOptionalElem(ArrayRef<T>(list)) {}
  ExpandingArrayWithOptionalElem(std::vector<T> v) : ExpandingArrayWithOptionalElem(ArrayRef<T>(v)) {}
  ExpandingArrayWithOptionalElem(ArrayRef<T> v) : ExpandingArray<D, std::optional<T>>(std::optional<T>()) {
    TORCH_CHECK(v.size() == D, "Expected ", D, " values, but instead got ", v.size());
    for (size_t i = 0; i < D; ++i) this->values_[i] = v[i];
  }
  ExpandingArrayWithOptionalElem(T one) : ExpandingArray<D, std::optional<T>>(std::optional<T>(one)) {}
  hs::OutputSize h() const { return hs::OutputSize(this->values_.begin(), this->values_.end()); }
};
template <size_t D, class T>
std::ostream& operator<<(std::ostream& out, const ExpandingArrayWithOptionalElem<D, T>& a) {
  auto one = [&](const std::optional<T>& v) -> std::string { return v ? str(*v) : "None"; };
  if (D == 1) return out << one((*a)[0]);
  out << "[";
  for (size_t i = 0; i < D; ++i) out << (i ? ", " : "") << one((*a)[i]);
  return out << "]";
}

#define HS_TORCH_ARG(T, name, ...) TORCH_ARG(T, name) = __VA_ARGS__

}  // namespace torch
