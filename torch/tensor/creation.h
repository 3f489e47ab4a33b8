// SPDX-License-Identifier: Apache-2.0
// torch::zeros, torch::tensor and so on.
#pragma once

#include "torch/tensor/index.h"

namespace torch {

namespace detail {
inline hs::NumberOptions number_options(const TensorOptions& o) {
  return {.dtype = o.has_dtype() ? std::optional(to_hs(o.dtype().toScalarType())) : std::nullopt,
          .device = o.device().h(),
          .requires_grad = o.requires_grad()};
}
inline std::optional<hs::DType> maybe(const std::optional<ScalarType>& t) { return t ? std::optional(to_hs(*t)) : std::nullopt; }
inline std::tuple<Tensor, Tensor> two(const std::pair<hs::Tensor, hs::Tensor>& p) { return {p.first, p.second}; }
inline hs::Reduction reduction(int64_t r) {
  return r == 0 ? hs::Reduction::none : r == 1 ? hs::Reduction::mean : hs::Reduction::sum;
}
// Returns the options, completed by those of a tensor.
inline TensorOptions like(const Tensor& x, const TensorOptions& o) { return x.options().merge_in(o); }
}  // namespace detail

// ---- creation
#define HS_TORCH_FILL(name)                                                                                   \
  inline Tensor name(IntArrayRef s, const TensorOptions& o = {}, std::optional<MemoryFormat> f = {}) {        \
    return hs::name(detail::D(s), o.merge_memory_format(f).h());                                              \
  }                                                                                                           \
  inline Tensor name##_like(const Tensor& x, const TensorOptions& o = {}, std::optional<MemoryFormat> = {}) { \
    hs::TensorOptions h = detail::like(x, o).h();                                                             \
    h.format = x.h().format();                                                                                \
    return hs::name(x.h().shape(), h);                                                                        \
  }
HS_TORCH_FILL(empty)
HS_TORCH_FILL(zeros)
HS_TORCH_FILL(ones) HS_TORCH_FILL(rand) HS_TORCH_FILL(randn)
#undef HS_TORCH_FILL
    Tensor full(IntArrayRef s, Scalar v, const TensorOptions& o = {});
inline Tensor full_like(const Tensor& x, Scalar v, const TensorOptions& o = {}) { return full(x.sizes(), v, detail::like(x, o)); }
Tensor scalar_tensor(Scalar v, const TensorOptions& o = {});
Tensor randint(int64_t lo, int64_t hi, IntArrayRef s, const TensorOptions& o = {});
inline Tensor randint(int64_t hi, IntArrayRef s, const TensorOptions& o = {}) { return randint(0, hi, s, o); }
Tensor randperm(int64_t n, const TensorOptions& o = {});
Tensor arange(Scalar from, Scalar to, Scalar step, const TensorOptions& o = {});
inline Tensor arange(Scalar from, Scalar to, const TensorOptions& o = {}) { return arange(from, to, 1, o); }
inline Tensor arange(Scalar to, const TensorOptions& o = {}) { return arange(0, to, 1, o); }
inline Tensor linspace(Scalar from, Scalar to, int64_t n, const TensorOptions& o = {}) {
  return hs::linspace(from.toDouble(), to.toDouble(), n, o.h());
}
inline Tensor linspace(Scalar from, Scalar to, const TensorOptions& o = {}) { return linspace(from, to, 100, o); }
inline Tensor logspace(Scalar from, Scalar to, int64_t n, double base = 10, const TensorOptions& o = {}) {
  return hs::logspace(from.toDouble(), to.toDouble(), n, base, o.h());
}
inline Tensor eye(int64_t n, const TensorOptions& o = {}) { return hs::eye(n, o.h()); }
inline Tensor eye(int64_t n, int64_t m, const TensorOptions& o = {}) { return hs::eye(n, m, o.h()); }
inline Tensor normal(double mean, double stddev, IntArrayRef s, const TensorOptions& o = {}) {
  return hs::normal(mean, stddev, detail::D(s), o.h());
}
// Draws an element for each mean or deviation; no gradients.
Tensor normal(const Tensor& mean, const Tensor& stddev);
Tensor normal(const Tensor& mean, double stddev = 1);
Tensor normal(double mean, const Tensor& stddev);
namespace detail {
inline void check_blob(const TensorOptions& o) {
  TORCH_CHECK(o.device().is_cpu() && !o.requires_grad(),
              "from_blob views memory of the host, without requires_grad; call to() and requires_grad_() on the result");
}
}  // namespace detail
inline Tensor from_blob(void* data, IntArrayRef s, const TensorOptions& o = {}) {
  detail::check_blob(o);
  return hs::from_blob(data, detail::D(s), detail::to_hs(o.dtype().toScalarType()));
}
inline Tensor from_blob(void* data, IntArrayRef s, IntArrayRef strides, const TensorOptions& o = {}) {
  detail::check_blob(o);
  int64_t last = 1;
  for (size_t d = 0; d < s.size(); ++d) last += (s[d] - 1) * strides[d];
  return hs::from_blob(data, {last}, detail::to_hs(o.dtype().toScalarType())).alias(detail::D(s), detail::D(strides));
}
template <class Deleter>
requires std::invocable<Deleter, void*> Tensor from_blob(void* data, IntArrayRef s, Deleter deleter, const TensorOptions& o = {}) {
  detail::check_blob(o);
  return hs::Tensor::from_blob(data, detail::D(s), detail::to_hs(o.dtype().toScalarType()), std::shared_ptr<void>(data, deleter));
}
inline Tensor Tensor::new_empty(IntArrayRef s, const TensorOptions& o) const { return torch::empty(s, detail::like(*this, o)); }
inline Tensor Tensor::new_zeros(IntArrayRef s, const TensorOptions& o) const { return torch::zeros(s, detail::like(*this, o)); }
inline Tensor Tensor::new_ones(IntArrayRef s, const TensorOptions& o) const { return torch::ones(s, detail::like(*this, o)); }
inline Tensor Tensor::new_full(IntArrayRef s, Scalar v, const TensorOptions& o) const {
  return torch::full(s, v, detail::like(*this, o));
}
// Draws libtorch's numbers from now on, to the bit on a CPU (docs/random_numbers.md).
inline void manual_seed(uint64_t seed) { hs::manual_seed(seed, hs::GeneratorKind::mt19937); }

namespace detail {
// What torch::tensor() takes: a number, braces of numbers, a list.
class TensorDataContainer {
 public:
  TensorDataContainer() : sizes_{0}, type_(default_dtype()), kind_(Kind::list) {}
  template <class T>
  requires std::is_arithmetic_v<T> TensorDataContainer(T v) : scalar_(v), type_(scalar_type_of<T>()), kind_(Kind::scalar) {}
  TensorDataContainer(Half v) : scalar_(v), type_(kHalf), kind_(Kind::scalar) {}
  TensorDataContainer(BFloat16 v) : scalar_(v), type_(kBFloat16), kind_(Kind::scalar) {}
  TensorDataContainer(std::initializer_list<TensorDataContainer> parts) : parts_(parts), kind_(Kind::list) {
    const TensorDataContainer& first = *parts.begin();
    type_ = first.type_;
    sizes_ = {int64_t(parts.size())};
    sizes_.insert(sizes_.end(), first.sizes_.begin(), first.sizes_.end());
    for (const auto& p : parts) {
      TORCH_CHECK(p.sizes_ == first.sizes_, "Expected all sub-lists to have sizes: ", Join(" ", first.sizes_), " (e.g. ", first,
                  "), but got sub-list ", p, " with sizes: ", Join(" ", p.sizes_));
      TORCH_CHECK(p.type_ == first.type_, "Expected all elements of the tensor to have the same scalar type: ", first.type_,
                  ", but got element of scalar type: ", p.type_);
    }
  }
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) TensorDataContainer(ArrayRef<T> v)
      : sizes_{int64_t(v.size())}, type_(natural(scalar_type_of<T>())), kind_(Kind::tensor) {
    from_list(v.begin(), v.end());
  }
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      TensorDataContainer(const std::vector<T>& v)
      : sizes_{int64_t(v.size())}, type_(natural(scalar_type_of<T>())), kind_(Kind::tensor) {
    from_list(v.begin(), v.end());
  }
  bool is_scalar() const { return kind_ == Kind::scalar; }
  bool is_init_list() const { return kind_ == Kind::list; }
  bool is_tensor() const { return kind_ == Kind::tensor; }
  const Scalar& scalar() const {
    TORCH_CHECK(is_scalar(), "Can only call `scalar()` on a TensorDataContainer that has `is_scalar() == true`");
    return scalar_;
  }
  const std::vector<TensorDataContainer>& init_list() const {
    TORCH_CHECK(is_init_list(), "Can only call `init_list()` on a TensorDataContainer that has `is_init_list() == true`");
    return parts_;
  }
  const Tensor& tensor() const {
    TORCH_CHECK(is_tensor(), "Can only call `tensor()` on a TensorDataContainer that has `is_tensor() == true`");
    return tensor_;
  }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  ScalarType scalar_type() const { return type_; }

  Tensor convert_to_tensor(TensorOptions o) const {
    if (!o.has_dtype()) o = o.dtype(natural(type_));
    Tensor out;
    if (is_tensor()) {
      out = tensor_.to(o.requires_grad(std::optional<bool>()));
      if (out.is_same(tensor_)) out = out.clone();
    } else {
      const ScalarType t = o.dtype().toScalarType();
      if (isIntegralType(type_, true)) {
        std::vector<int64_t> v;
        whole(v);
        out = hs::from_vector(v, D(sizes_));
      } else {
        std::vector<double> v;
        fractions(v);
        out = hs::from_vector(v, D(sizes_));
      }
      out = out.to(t);
      if (!o.device().is_cpu()) out = out.to(TensorOptions(o.device()));
    }
    return o.requires_grad() ? out.requires_grad_() : out;
  }
  friend std::ostream& operator<<(std::ostream& out, const TensorDataContainer& c) {
    if (c.is_scalar()) return out << c.scalar_;
    out << "{";
    if (c.is_init_list()) {
      for (size_t i = 0; i < c.parts_.size(); ++i) out << (i ? ", " : "") << c.parts_[i];
    } else {
      for (int64_t i = 0; i < c.tensor_.numel(); ++i) out << (i ? ", " : "") << c.tensor_[i].item();
    }
    return out << "}";
  }

 private:
  enum class Kind { scalar, list, tensor };
  static ScalarType natural(ScalarType t) {
    if (t == kFloat || t == kDouble) return default_dtype();
    return isIntegralType(t) ? kLong : t;
  }
  template <class It>
  void from_list(It a, It b) {
    using T = std::iter_value_t<It>;
    if constexpr (std::is_integral_v<T>) {
      std::vector<int64_t> v;
      for (; a != b; ++a) v.push_back(int64_t(*a));
      tensor_ = Tensor(hs::from_vector(v, {int64_t(v.size())})).to(type_);
    } else {
      std::vector<double> v;
      for (; a != b; ++a) v.push_back(double(*a));
      tensor_ = Tensor(hs::from_vector(v, {int64_t(v.size())})).to(type_);
    }
  }
  void whole(std::vector<int64_t>& v) const {
    if (is_scalar())
      v.push_back(scalar_.toLong());
    else
      for (const auto& p : parts_) p.whole(v);
  }
  void fractions(std::vector<double>& v) const {
    if (is_scalar())
      v.push_back(scalar_.toDouble());
    else
      for (const auto& p : parts_) p.fractions(v);
  }
  Scalar scalar_;
  std::vector<TensorDataContainer> parts_;
  Tensor tensor_;
  std::vector<int64_t> sizes_;
  ScalarType type_;
  Kind kind_;
};
}  // namespace detail
inline Tensor tensor(detail::TensorDataContainer data, const TensorOptions& o = {}) { return data.convert_to_tensor(o); }

}  // namespace torch
