// SPDX-License-Identifier: Apache-2.0
// torch::Tensor: a halfstep tensor with libtorch's methods.
#pragma once

#include "framework/ops/ops.h"
#include "framework/ops/reduce/embedding_bag.h"
#include "torch/base/options.h"

namespace torch {

class Tensor;
namespace detail {
struct StorageView {  // what Tensor::storage() gives
  std::shared_ptr<hs::Storage> storage;
  void* first;
  void* data() const { return first; }
  template <class T>
  T* data() const {
    return static_cast<T*>(first);
  }
  bool is_alias_of(const StorageView& o) const { return storage == o.storage; }
};
}  // namespace detail
using TensorList = ArrayRef<Tensor>;
namespace detail {
template <class T, size_t n>
class Accessor;
hs::Tensors H(TensorList list);
std::vector<Tensor> V(const hs::Tensors& list);
Tensor& store(const char* op, const Tensor& to, const hs::Tensor& value);  // stores the value of an op, as `op`_ does
std::pair<hs::Tensor, hs::Tensor> sign_and_log(const hs::Tensor& x);  // of the determinant
hs::Tensor quotient(const hs::Tensor& x, const hs::Tensor& o, std::optional<std::string_view> mode);
hs::Tensor quotient(const hs::Tensor& x, hs::Number o, std::optional<std::string_view> mode);
hs::Tensor gelu(const hs::Tensor& x, std::string_view approximate);  // "none" or "tanh"; throws for others
int64_t first_of_three(const hs::Tensor& x);  // the first dimension of size 3, over which libtorch's cross goes; throws without one
hs::Tensors equal_parts(const hs::Tensor& x, int64_t n, int64_t d);  // throws if n does not divide the size
inline hs::Dims dims_of(std::optional<int64_t> d) { return d ? hs::Dims{*d} : hs::Dims{}; }
}  // namespace detail

// ---- indices
namespace indexing {
inline constexpr int64_t INDEX_MIN = std::numeric_limits<int64_t>::min(), INDEX_MAX = std::numeric_limits<int64_t>::max();
inline constexpr std::nullopt_t None = std::nullopt;
enum class EllipsisIndexType { Ellipsis };
inline constexpr EllipsisIndexType Ellipsis = EllipsisIndexType::Ellipsis;
struct Slice {
  Slice(std::optional<int64_t> start = {}, std::optional<int64_t> stop = {}, std::optional<int64_t> step = {})
      : step_(step.value_or(1)) {
    if (step_ == 0) detail::fail("slice step cannot be zero");
    start_ = start.value_or(step_ < 0 ? INDEX_MAX : 0);
    stop_ = stop.value_or(step_ < 0 ? INDEX_MIN : INDEX_MAX);
  }
  int64_t start() const { return start_; }
  int64_t stop() const { return stop_; }
  int64_t step() const { return step_; }

 private:
  int64_t start_, stop_, step_;
};
inline std::ostream& operator<<(std::ostream& out, const Slice& s) {
  return out << s.start() << ":" << s.stop() << ":" << s.step();
}
class TensorIndex;
}  // namespace indexing
using indexing::TensorIndex;

namespace autograd {
struct Node;
}
class GradReference;

class Tensor {
 public:
  Tensor() = default;
  Tensor(hs::Tensor t) : h_(std::move(t)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  Tensor& operator=(const Tensor& v) && { return copy_(v); }
  Tensor& operator=(Tensor&& v) && { return copy_(v); }
  Tensor& operator=(Scalar v) && { return fill_(v); }
  operator const hs::Tensor&() const { return h_; }
  const hs::Tensor& h() const { return h_; }

  // ---- geometry
  bool defined() const { return h_.defined(); }
  void reset() { h_ = hs::Tensor(); }
  int64_t dim() const { return h_.dim(); }
  int64_t ndimension() const { return h_.dim(); }
  int64_t size(int64_t d) const { return h_.size(d); }
  IntArrayRef sizes() const { return {h_.shape().begin(), size_t(h_.shape().size())}; }
  IntArrayRef strides() const { return {h_.strides().begin(), size_t(h_.strides().size())}; }
  int64_t stride(int64_t d) const { return h_.strides()[hs::wrap_dim(d, h_.dim(), "stride")]; }
  int64_t numel() const { return h_.numel(); }
  size_t nbytes() const { return h_.nbytes(); }
  int64_t itemsize() const { return int64_t(hs::size_of(h_.dtype())); }
  int64_t element_size() const { return itemsize(); }
  int64_t storage_offset() const { return impl().offset; }
  TypeMeta dtype() const { return detail::from_hs(h_.dtype()); }
  ScalarType scalar_type() const { return detail::from_hs(h_.dtype()); }
  Device device() const { return h_.device(); }
  int64_t get_device() const { return device().index(); }
  Layout layout() const { return kStrided; }
  TensorOptions options() const { return TensorOptions().dtype(scalar_type()).device(device()).layout(kStrided); }
  DeprecatedTypeProperties type() const { return {options()}; }
  bool is_cuda() const { return h_.device().is_cuda(); }
  bool is_cpu() const { return h_.device().is_cpu(); }
  bool is_meta() const { return h_.device().is_meta(); }
  bool is_sparse() const { return false; }
  bool is_floating_point() const { return h_.is_floating_point(); }
  bool is_complex() const { return false; }
  bool is_signed() const { return h_.dtype() != hs::DType::u8 && h_.dtype() != hs::DType::boolean; }
  bool is_contiguous() const { return h_.is_contiguous(); }
  bool is_contiguous(MemoryFormat f) const {
    return f == MemoryFormat::Contiguous ? h_.is_contiguous() : h_.is_contiguous(hs::MemoryFormat::channels_last);
  }
  bool is_same(const Tensor& o) const { return h_.same(o.h_); }
  hs::TensorImpl* unsafeGetTensorImpl() const { return h_.impl(); }  // names the tensor: key of an optimizer's state()
  bool is_same_size(const Tensor& o) const { return sizes() == o.sizes(); }
  bool is_view() const { return impl().is_view; }
  int64_t use_count() const { return h_.impl_ptr().use_count(); }
  explicit operator bool() const = delete;

  // ---- memory
  void* data_ptr() const { return h_.data_ptr(); }
  template <class T>
  T* data_ptr() const {
    return h_.template data_ptr<T>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  T* data() const {
    return data_ptr<T>();
  }
  template <class T, size_t n>
  detail::Accessor<T, n> accessor() const;
  int64_t _version() const { return int64_t(h_.version()); }
  template <class T>
  T item() const {
    if (numel() != 1) detail::fail("a Tensor with ", numel(), " elements cannot be converted to Scalar");
    return h_.template item<T>();
  }
  Scalar item() const {
    if (numel() != 1) detail::fail("a Tensor with ", numel(), " elements cannot be converted to Scalar");
    if (scalar_type() == kBool) return h_.item<bool>();
    if (is_floating_point()) return h_.item<double>();
    return h_.item<int64_t>();
  }
  bool is_nonzero() const {
    if (numel() != 1)
      detail::fail("Boolean value of Tensor with ", numel() == 0 ? "no values" : "more than one value", " is ambiguous");
    return h_.item<double>() != 0;
  }
  std::string toString() const { return type().toString(); }
  void print() const { std::cerr << "[" << toString() << " " << sizes() << "]\n"; }

  // ---- autograd
  bool requires_grad() const { return h_.requires_grad(); }
  const Tensor& set_requires_grad(bool on) const {
    h_.set_requires_grad(on);
    return *this;
  }
  const Tensor& requires_grad_(bool on = true) const {
    h_.set_requires_grad(on);
    return *this;
  }
  bool is_leaf() const { return h_.is_leaf(); }
  Tensor grad() const;                 // a handle: x.grad().zero_() changes the gradient
  GradReference mutable_grad() const;  // x.mutable_grad() = g replaces it
  void backward(const Tensor& gradient = {}, std::optional<bool> retain_graph = {}, bool create_graph = false,
                std::optional<TensorList> inputs = {}) const;
  Tensor detach() const { return h_.detach(); }
  Tensor& detach_() const {
    h_.detach_();
    return self();
  }
  Tensor data() const { return variable_data(); }
  Tensor variable_data() const {  // shares memory, counts versions by itself
    return hs::Tensor(h_.detach());
  }
  Tensor tensor_data() const { return h_.detach(); }
  void set_data(const Tensor& o) const { h_.set_data(o.h_); }  // shares the memory of o from now on
  void retain_grad() const {
    if (!h_.is_leaf()) h_.retain_grad();
  }
  bool retains_grad() const { return impl().autograd && impl().autograd->retains_grad; }
  int64_t output_nr() const { return h_.impl()->autograd ? h_.impl()->autograd->output_index : 0; }
  std::shared_ptr<autograd::Node> grad_fn() const;
  template <class F>
  unsigned register_hook(F hook) const {
    return unsigned(h_.register_hook([hook = std::move(hook)](const hs::Tensor& g) -> hs::Tensor {
      if constexpr (std::is_void_v<decltype(hook(Tensor(g)))>) {
        hook(Tensor(g));
        return {};
      } else
        return hook(Tensor(g)).h();
    }));
  }
  void remove_hook(unsigned key) const { h_.remove_hook(key); }
  std::string name() const { return h_.label(); }
  detail::StorageView storage() const { return {h_.storage(), static_cast<char*>(h_.data_ptr()) - storage_offset() * itemsize()}; }

  // ---- elementwise rows
#define HS_UNARY(name, ...)                 \
  Tensor name() const { return h_.name(); } \
  Tensor& name##_() const {                 \
    h_.name##_();                           \
    return self();                          \
  }
#define HS_BINARY(name, ...)                                        \
  Tensor name(const Tensor& o) const { return h_.name(o.h_); }      \
  Tensor name(Scalar o) const { return for_number(o).name(o.n()); } \
  Tensor& name##_(const Tensor& o) const {                          \
    h_.name##_(o.h_);                                               \
    return self();                                                  \
  }                                                                 \
  Tensor& name##_(Scalar o) const {                                 \
    h_.name##_(o.n());                                              \
    return self();                                                  \
  }
#define HS_TEST(name, ...)                                                     \
  Tensor name(const Tensor& o) const { return h_.name(o.h_); }                 \
  Tensor name(Scalar o) const { return h_.name(o.n()); }                       \
  Tensor& name##_(const Tensor& o) const { return stored(#name, name(o).h_); } \
  Tensor& name##_(Scalar o) const { return stored(#name, name(o).h_); }
#include "generated/elementwise_names.def"

#define HS_VALUE(name, value, ...) \
  Tensor name(__VA_ARGS__) const { \
    const hs::Tensor& x = h_;      \
    return value;                  \
  }
#define HS_STORE(name, value, ...)     \
  Tensor& name##_(__VA_ARGS__) const { \
    const hs::Tensor& x = h_;          \
    return stored(#name, value);       \
  }
#define HS_BOTH(name, ...)    \
  HS_VALUE(name, __VA_ARGS__) \
  HS_STORE(name, __VA_ARGS__)
#define HS_PAIR(name, value, ...)                      \
  std::tuple<Tensor, Tensor> name(__VA_ARGS__) const { \
    const hs::Tensor& x = h_;                          \
    return pair(value);                                \
  }
#define HS_LIST(name, value, ...)               \
  std::vector<Tensor> name(__VA_ARGS__) const { \
    const hs::Tensor& x = h_;                   \
    return detail::V(value);                    \
  }
#define HS_ALIAS(alias, name)            \
  template <class... A>                  \
  decltype(auto) alias(A&&... a) const { \
    return name(std::forward<A>(a)...);  \
  }
#define HS_ALIAS_(alias, name) HS_ALIAS(alias, name) HS_ALIAS(alias##_, name##_)
#include "torch/tensor/methods.def"
  Tensor add(const Tensor& o, Scalar alpha) const { return h_.add(o.h_, alpha.toDouble()); }
  Tensor sub(const Tensor& o, Scalar alpha) const { return h_.sub(o.h_, alpha.toDouble()); }
  Tensor& add_(const Tensor& o, Scalar alpha) const {
    h_.add_(o.h_, alpha.toDouble());
    return self();
  }
  Tensor& sub_(const Tensor& o, Scalar alpha) const {
    h_.sub_(o.h_, alpha.toDouble());
    return self();
  }
  Tensor operator-() const { return h_.neg(); }
  Tensor operator~() const { return h_.bitwise_not(); }
  Tensor& operator+=(const Tensor& o) const { return add_(o); }
  Tensor& operator-=(const Tensor& o) const { return sub_(o); }
  Tensor& operator*=(const Tensor& o) const { return mul_(o); }
  Tensor& operator/=(const Tensor& o) const { return div_(o); }
  Tensor& operator+=(Scalar o) const { return add_(o); }
  Tensor& operator-=(Scalar o) const { return sub_(o); }
  Tensor& operator*=(Scalar o) const { return mul_(o); }
  Tensor& operator/=(Scalar o) const { return div_(o); }
  Tensor clamp(std::optional<Scalar> lo = {}, std::optional<Scalar> hi = {}) const { return h_.clamp(N(lo), N(hi)); }
  Tensor& clamp_(std::optional<Scalar> lo = {}, std::optional<Scalar> hi = {}) const {
    h_.clamp_(N(lo), N(hi));
    return self();
  }
  Tensor& clamp_min_(Scalar lo) const {
    h_.clamp_(lo.n());
    return self();
  }
  Tensor& clamp_max_(Scalar hi) const {
    h_.clamp_({}, hi.n());
    return self();
  }

  // ---- memory and dtype
  Tensor to(const TensorOptions& o = {}, bool non_blocking = false, bool copy = false, std::optional<MemoryFormat> f = {}) const;
  Tensor to(ScalarType t, bool = false, bool copy = false) const {
    const Tensor out = h_.to(detail::to_hs(t));
    return copy && out.is_same(*this) ? out.clone() : out;
  }
  Tensor to(TypeMeta t, bool = false, bool copy = false) const { return to(t.toScalarType(), false, copy); }
  Tensor to(Device d, TypeMeta t, bool = false, bool copy = false) const { return to(d, t.toScalarType(), false, copy); }
  Tensor to(Device d, ScalarType t, bool = false, bool copy = false) const { return to(TensorOptions(d).dtype(t), false, copy); }
  Tensor to(const Tensor& o, bool = false, bool copy = false) const { return to(o.options(), false, copy); }
  Tensor toType(ScalarType t) const { return to(t); }
  Tensor type_as(const Tensor& o) const { return to(o.options()); }
  Tensor cpu() const { return h_.to(hs::Device::cpu); }
  Tensor cuda() const { return h_.to(hs::Device::cuda); }
  Tensor clone(std::optional<MemoryFormat> f = {}) const;
  Tensor contiguous(MemoryFormat f = MemoryFormat::Contiguous) const;
  Tensor& copy_(const Tensor& o, bool = false) const {
    h_.copy_(o.h_);
    return self();
  }
  Tensor& fill_(Scalar v) const {
    h_.fill_(v.n());
    return self();
  }
  Tensor& fill_(const Tensor& v) const {
    h_.copy_(v.h_);
    return self();
  }
  Tensor& zero_() const {
    h_.zero_();
    return self();
  }
  Tensor& uniform_(double lo = 0, double hi = 1) const {
    h_.uniform_(lo, hi);
    return self();
  }
  Tensor& normal_(double mean = 0, double stddev = 1) const {
    h_.normal_(mean, stddev);
    return self();
  }
  Tensor& bernoulli_(double p = 0.5) const {
    h_.copy_(hs::bernoulli(hs::full(h_.shape(), p)).to(h_.dtype()));
    return self();
  }
  Tensor& random_(int64_t lo, int64_t hi) const {
    h_.copy_(hs::randint(lo, hi, h_.shape()).to(h_.dtype()));
    return self();
  }
  Tensor& random_(int64_t hi) const { return random_(0, hi); }
  Tensor& exponential_(double rate = 1) const {
    hs::exponential_(h_, rate);
    return self();
  }
  Tensor& resize_(IntArrayRef sizes) const;
  Tensor& resize_as_(const Tensor& o) const { return resize_(o.sizes()); }
  Tensor new_empty(IntArrayRef s, const TensorOptions& o = {}) const;
  Tensor new_zeros(IntArrayRef s, const TensorOptions& o = {}) const;
  Tensor new_ones(IntArrayRef s, const TensorOptions& o = {}) const;
  Tensor new_full(IntArrayRef s, Scalar v, const TensorOptions& o = {}) const;

  // ---- views
  Tensor view(IntArrayRef s) const { return h_.view(detail::D(s)); }
  Tensor expand(IntArrayRef s, bool = false) const { return h_.expand(detail::D(s)); }
  Tensor repeat(IntArrayRef s) const { return h_.repeat(detail::D(s)); }
  Tensor& transpose_(int64_t a, int64_t b) const { return reshaped_as(h_.detach().transpose(a, b)); }
  Tensor& t_() const { return reshaped_as(h_.detach().t()); }
  Tensor& squeeze_() const { return reshaped_as(h_.detach().squeeze()); }
  Tensor& squeeze_(int64_t d) const { return reshaped_as(h_.detach().squeeze(d)); }
  Tensor& unsqueeze_(int64_t d) const { return reshaped_as(h_.detach().unsqueeze(d)); }
  Tensor slice(int64_t d = 0, std::optional<int64_t> from = 0, std::optional<int64_t> to = indexing::INDEX_MAX,
               int64_t step = 1) const {
    return h_.slice(d, from.value_or(0), to.value_or(indexing::INDEX_MAX), step);
  }
  Tensor operator[](int64_t i) const { return pick(i); }
  Tensor operator[](Scalar i) const {
    if (!i.isIntegral(false)) detail::fail("Can only index tensors with integral scalars");
    return pick(i.toLong());
  }
  Tensor operator[](const Tensor& i) const {
    if (!i.defined()) detail::fail("Can only index with tensors that are defined");
    if (i.dim() != 0) detail::fail("Can only index with tensors that are scalars (zero-dim)");
    return (*this)[i.item()];
  }
  Tensor view_as(const Tensor& o) const { return view(o.sizes()); }
  Tensor reshape_as(const Tensor& o) const { return reshape(o.sizes()); }
  Tensor expand_as(const Tensor& o) const { return expand(o.sizes()); }
  std::vector<Tensor> split(int64_t n, int64_t d = 0) const { return detail::V(h_.split(n, d)); }
  std::vector<Tensor> split(IntArrayRef s, int64_t d = 0) const { return split_with_sizes(s, d); }
  std::vector<Tensor> split_with_sizes(IntArrayRef s, int64_t d = 0) const { return detail::V(hs::split(h_, s.vec(), d)); }
  std::vector<Tensor> chunk(int64_t n, int64_t d = 0) const { return detail::V(h_.chunk(n, d)); }
  std::vector<Tensor> unbind(int64_t d = 0) const { return detail::V(h_.unbind(d)); }
  Tensor unfold(int64_t d, int64_t n, int64_t s) const { return h_.unfold(d, n, s); }

  // ---- products
  Tensor addmm(const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1) const {
    return h_.addmm(a.h_, b.h_, beta.toDouble(), alpha.toDouble());
  }
  std::tuple<Tensor, Tensor, Tensor> svd(bool some = true, bool compute_uv = true) const;  // U, S, V
  Tensor& addcmul_(const Tensor& a, const Tensor& b, Scalar v = 1) const {
    h_.addcmul_(a.h_, b.h_, v.toDouble());
    return self();
  }
  Tensor& addcdiv_(const Tensor& a, const Tensor& b, Scalar v = 1) const {
    h_.addcdiv_(a.h_, b.h_, v.toDouble());
    return self();
  }

  // ---- reductions
  Tensor sum(std::optional<ScalarType> t = {}) const { return h_.sum({}, false, D(t)); }
  Tensor sum(IntArrayRef d, bool keep = false, std::optional<ScalarType> t = {}) const { return h_.sum(detail::D(d), keep, D(t)); }
  Tensor mean(std::optional<ScalarType> t = {}) const { return h_.mean({}, false, D(t)); }
  Tensor mean(IntArrayRef d, bool keep = false, std::optional<ScalarType> t = {}) const {
    return h_.mean(detail::D(d), keep, D(t));
  }
  Tensor prod(std::optional<ScalarType> t = {}) const { return h_.prod({}, false, D(t)); }
  Tensor prod(int64_t d, bool keep = false) const { return h_.prod(d, keep); }
  Tensor var(int d) const { return h_.var(d); }
  Tensor std(int d) const { return h_.std(d); }
  Tensor var(bool unbiased = true) const { return h_.var({}, unbiased ? 1 : 0); }
  Tensor var(IntArrayRef d, bool unbiased = true, bool keep = false) const { return h_.var(detail::D(d), unbiased ? 1 : 0, keep); }
  Tensor std(bool unbiased = true) const { return h_.std({}, unbiased ? 1 : 0); }
  Tensor std(IntArrayRef d, bool unbiased = true, bool keep = false) const { return h_.std(detail::D(d), unbiased ? 1 : 0, keep); }
  Tensor norm(Scalar p = 2) const { return h_.norm(p.toDouble()); }
  Tensor norm(std::optional<Scalar> p, IntArrayRef d, bool keep = false) const {
    return h_.norm(p ? p->toDouble() : 2, detail::D(d), keep);
  }
  Tensor norm(std::optional<Scalar> p, int64_t d, bool keep = false) const { return norm(p, IntArrayRef(d), keep); }
  Tensor max() const { return h_.max(); }
  Tensor min() const { return h_.min(); }
  std::tuple<Tensor, Tensor> max(int64_t d, bool keep = false) const { return pair(h_.max(d, keep)); }
  std::tuple<Tensor, Tensor> min(int64_t d, bool keep = false) const { return pair(h_.min(d, keep)); }
  Tensor max(const Tensor& o) const { return h_.maximum(o.h_); }
  Tensor min(const Tensor& o) const { return h_.minimum(o.h_); }
  Tensor argmax(std::optional<int64_t> d = {}, bool keep = false) const { return h_.argmax(d, keep); }
  Tensor argmin(std::optional<int64_t> d = {}, bool keep = false) const { return h_.argmin(d, keep); }
  Tensor any() const { return h_.any(); }
  Tensor all() const { return h_.all(); }
  Tensor any(int64_t d, bool keep = false) const { return h_.any(d, keep); }
  Tensor all(int64_t d, bool keep = false) const { return h_.all(d, keep); }
  std::tuple<Tensor, Tensor> sort(int64_t d = -1, bool desc = false) const { return pair(h_.sort(d, desc)); }
  std::tuple<Tensor, Tensor> sort(std::optional<bool>, int64_t d = -1, bool desc = false) const {  // always stable
    return sort(d, desc);
  }
  std::tuple<Tensor, Tensor> topk(int64_t k, int64_t d = -1, bool largest = true, bool = true) const {
    return pair(h_.topk(k, d, largest));
  }
  Tensor median() const { return h_.median(); }
  Tensor softmax(int64_t d, std::optional<ScalarType> t = {}) const { return h_.softmax(d, D(t)); }
  Tensor log_softmax(int64_t d, std::optional<ScalarType> t = {}) const { return h_.log_softmax(d, D(t)); }
  bool equal(const Tensor& o) const { return h_.equal(o.h_); }
  bool allclose(const Tensor& o, double rtol = 1e-5, double atol = 1e-8, bool nan = false) const {
    return h_.allclose(o.h_, rtol, atol, nan);
  }
  Tensor isclose(const Tensor& o, double rtol = 1e-5, double atol = 1e-8, bool nan = false) const {
    return h_.isclose(o.h_, rtol, atol, nan);
  }

  // ---- indexing
  Tensor& scatter_(int64_t d, const Tensor& i, const Tensor& v) const {
    h_.scatter_(d, i.h_, v.h_);
    return self();
  }
  Tensor& scatter_(int64_t d, const Tensor& i, Scalar v) const {
    h_.scatter_(d, i.h_, v.n());
    return self();
  }
  Tensor& scatter_add_(int64_t d, const Tensor& i, const Tensor& v) const {
    h_.scatter_add_(d, i.h_, v.h_);
    return self();
  }
  Tensor& index_fill_(int64_t d, const Tensor& i, Scalar v) const {
    h_.index_fill_(d, i.h_, v.n());
    return self();
  }
  Tensor& index_add_(int64_t d, const Tensor& i, const Tensor& v) const {
    h_.index_add_(d, i.h_, v.h_);
    return self();
  }
  Tensor& masked_fill_(const Tensor& m, Scalar v) const {
    h_.masked_fill_(m.h_, v.n());
    return self();
  }
  Tensor& fill_diagonal_(Scalar v, bool wrap = false) const {
    if (dim() != 2 || wrap) detail::fail("fill_diagonal_ takes a matrix, without wrap, got ", dim(), " dimensions");
    h_.diagonal().fill_(v.n());
    return self();
  }
  Tensor roll(IntArrayRef s, IntArrayRef d = {}) const { return h_.roll(detail::D(s), detail::D(d)); }
  Tensor where(const Tensor& c, const Tensor& o) const { return h_.where(c.h_, o.h_); }
  Tensor index(ArrayRef<TensorIndex> i) const;
  Tensor index(std::initializer_list<TensorIndex> i) const;
  Tensor& index_put_(ArrayRef<TensorIndex> i, const Tensor& v) const;
  Tensor& index_put_(ArrayRef<TensorIndex> i, const Scalar& v) const;
  Tensor& index_put_(std::initializer_list<TensorIndex> i, const Tensor& v) const;
  Tensor& index_put_(std::initializer_list<TensorIndex> i, const Scalar& v) const;
  Tensor& index_put_(const std::vector<Tensor>& i, const Tensor& v, bool accumulate = false) const;

 private:
  const hs::TensorImpl& impl() const { return *h_.impl(); }
  Tensor& self() const { return const_cast<Tensor&>(*this); }
  Tensor pick(int64_t i) const {
    if (dim() == 0) throw hs::IndexError("invalid index of a 0-dim tensor. Use tensor.item() to convert it to a number");
    return h_.select(0, i);
  }
  friend Tensor& detail::store(const char* op, const Tensor& to, const hs::Tensor& value);
  Tensor& stored(const char* op, const hs::Tensor& value) const;
  Tensor& reshaped_as(const hs::Tensor& v) const {
    h_.impl()->shape = v.shape();
    h_.impl()->strides = v.strides();
    return self();
  }
  // Integers meet a number with a point as numbers of the default dtype.
  hs::Tensor for_number(const Scalar& s) const {
    if (detail::default_dtype() != kFloat && s.isFloatingPoint() && !h_.is_floating_point())
      return h_.to(detail::to_hs(detail::default_dtype()));
    return h_;
  }
  static std::optional<hs::Number> N(const std::optional<Scalar>& s) { return s ? std::optional(s->n()) : std::nullopt; }
  static std::optional<hs::DType> D(const std::optional<ScalarType>& t) {
    return t ? std::optional(detail::to_hs(*t)) : std::nullopt;
  }
  static std::tuple<Tensor, Tensor> pair(const std::pair<hs::Tensor, hs::Tensor>& p) { return {p.first, p.second}; }
  hs::Tensor h_;
};

// Gives Tensor::mutable_grad(): the gradient, and a place to assign another one to.
class GradReference : public Tensor {
 public:
  explicit GradReference(hs::Tensor owner) : Tensor(owner.grad()), owner_(std::move(owner)) {}
  GradReference(const GradReference&) = default;
  const GradReference& operator=(const Tensor& g) const {
    owner_.set_grad(g.h());
    return *this;
  }
  const GradReference& operator=(const GradReference& g) const { return *this = static_cast<const Tensor&>(g); }
  void reset() const { owner_.set_grad({}); }

 private:
  hs::Tensor owner_;
};
inline GradReference Tensor::mutable_grad() const { return GradReference(h_); }

}  // namespace torch
