// SPDX-License-Identifier: Apache-2.0
// Tensor: a strided view of typed memory on one device, and a place in the autograd graph.
//
// A Tensor is a handle; copies share everything. Views share memory and the version counter. Operations named as in PyTorch
// are free functions in framework/ops/ops.h (documented there) and, for the common ones, methods here.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/base/device.h"
#include "framework/base/dtype.h"
#include "framework/base/narrow.h"
#include "framework/base/shape.h"
#include "framework/tensor/storage.h"
#include "framework/tensor/view.h"

namespace halfstep {

class Node;          // framework/autograd/node.h
class TensorIndex;   // framework/ops/index/slicing.h
class IndexedPart;   // framework/ops/index/slicing.h
class TensorLiteral; // framework/ops/shape/literal.h
class Generator;     // framework/base/generator.h
struct TensorImpl;   // below
struct ValuesIndices;  // framework/tensor/results.h
struct MinMax;         // framework/tensor/results.h
class Tensor;

using Tensors = std::vector<Tensor>;
using TensorHook = std::function<Tensor(const Tensor& grad)>;  // returns a replacement, or an undefined Tensor to keep it
using HookList = std::vector<std::pair<uint64_t, TensorHook>>;  // key, hook

// Like TensorOptions, but without a dtype the call's numbers choose it: arange(0, 1, 0.25) is float32.
struct NumberOptions {
  std::optional<DType> dtype = {};
  Device device = default_device();
  bool requires_grad = false;
};

// Options of a new tensor: zeros({2, 3}, {.dtype = DType::f16, .requires_grad = true}).
struct TensorOptions {
  DType dtype = DType::f32;
  Device device = default_device();
  bool requires_grad = false;
  MemoryFormat format = MemoryFormat::contiguous;  // channels_last for tensors of 4 or 5 dimensions; others are contiguous
  operator NumberOptions() const { return {dtype, device, requires_grad}; }
};

// Declares a method that writes into the tensor. For a temporary copy of selected elements, as in x.index({mask}).fill_(1), it
// throws ValueError: the values would be lost.
#define HS_IN_PLACE(name, parameters, arguments) \
  const Tensor& name parameters const&;          \
  const Tensor& name parameters const&& { return kept(#name).name arguments; }

// A size or dimension in a call like x.view(2, -1): an integer, but not a bool.
template <class T>
concept SizeNumber = std::integral<T> && !std::same_as<T, bool>;

class Tensor {
 public:
  Tensor() = default;  // undefined
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  // Assigning to a variable changes its handle; assigning to a temporary writes into it: `x[0] = y` changes x, like
  // `x[0].copy_(y)` and `.fill_(y)`. Throws ValueError for a temporary that is not a view: `x.index({mask}) = y` would be lost,
  // use index_put_.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  const Tensor& operator=(const Tensor& values) && { return write(values); }
  const Tensor& operator=(Number value) && { return write(value); }

  // Makes a tensor of uninitialised memory.
  static Tensor empty(const Shape& shape, const TensorOptions& options = {});
  // Views memory that `owner` keeps alive, without a copy.
  static Tensor from_blob(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner, Device device = Device::cpu);
  // Make tensors with this tensor's dtype and device.
  Tensor new_empty(const Shape& shape) const { return empty(shape, {.dtype = dtype(), .device = device()}); }
  Tensor new_full(const Shape& shape, Number value) const {
    const Tensor out = new_empty(shape);
    out.fill_(value);
    return out;
  }
  Tensor new_zeros(const Shape& shape) const { return new_full(shape, 0); }
  Tensor new_ones(const Shape& shape) const { return new_full(shape, 1); }
  Tensor new_tensor(const TensorLiteral& values) const;  // values as tensor() takes them
  // Returns a view with other geometry and without autograd. `offset` counts elements from this tensor's first.
  Tensor alias(const Shape& shape, const Strides& strides, int64_t offset = 0) const;

  // ---- geometry
  bool defined() const { return impl_ != nullptr; }
  explicit operator bool() const = delete;  // ambiguous: use defined() or item<bool>()
  const Shape& shape() const;
  const Shape& sizes() const { return shape(); }
  // Returns the sizes: auto [n, c, h, w] = x.sizes<4>(). Throws ShapeError for another rank.
  template <size_t rank>
  std::array<int64_t, rank> sizes() const {
    check<ShapeError>(dim() == int(rank), "sizes", "asked for ", rank, " sizes, got ", shape());
    std::array<int64_t, rank> out;
    for (size_t d = 0; d < rank; ++d) out[d] = size(int64_t(d));
    return out;
  }
  const Strides& strides() const;
  int dim() const;                 // rank
  int ndim() const { return dim(); }
  int64_t size(int64_t d) const;   // d may be negative
  int64_t numel() const;
  DType dtype() const;
  Device device() const;
  bool is_contiguous() const;
  bool is_contiguous(MemoryFormat format) const;
  MemoryFormat format() const;     // channels_last if the elements lie so and are not contiguous as well
  bool is_floating_point() const { return is_floating(dtype()); }
  size_t nbytes() const { return size_t(numel()) * size_of(dtype()); }

  // ---- other spellings of PyTorch's (framework/ops/spellings.h has those of functions)
  TensorOptions options() const { return {.dtype = dtype(), .device = device()}; }  // zeros({2}, x.options())
  DType scalar_type() const { return dtype(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_cuda() const { return device().is_cuda(); }
  size_t element_size() const { return size_of(dtype()); }
  const Strides& stride() const { return strides(); }
  int64_t stride(int64_t d) const { return strides()[d]; }  // d may be negative
  int64_t storage_offset() const;                           // in elements
  bool is_same(const Tensor& o) const { return same(o); }
  Tensor to(const Tensor& o) const { return type_as(o); }
  Tensor to(Device device, DType dtype) const { return to(device).to(dtype); }
  Tensor max(const Tensor& o) const { return maximum(o); }
  Tensor min(const Tensor& o) const { return minimum(o); }
  Tensor adjoint() const { return mT(); }
  IndexedPart operator[](const TensorIndex& index) const;  // x[mask], x[rows], x[Slice(1, 3)]: x.index({mask})
  HS_IN_PLACE(bernoulli_, (double p = 0.5, Generator* generator = nullptr), (p, generator))  // not recorded
  const std::shared_ptr<Node>& grad_fn() const { return node(); }
  struct BackwardOptions {
    bool retain_graph = false, create_graph = false;
  };
  template <int = 0>  // so that backward({}) takes no gradient
  void backward(const BackwardOptions& o) const {
    backward(Tensor(), o.retain_graph, o.create_graph);
  }
  TensorView view() const;         // for kernels

  // ---- memory
  // Returns a pointer to the first element, on device(), for writing. Later calls see what is written, also through a pointer that
  // is kept. So a weight then keeps no 16-bit copy (amp/autocast/autocast.h); for reading, const_data_ptr costs nothing.
  void* data_ptr() const;
  template <class T> T* data_ptr() const;  // throws DTypeError if T is not the dtype
  const void* const_data_ptr() const { return first_element(); }
  template <class T>
  const T* const_data_ptr() const {
    check<DTypeError>(dtype() == dtype_of<T>, "data_ptr", "asked for ", dtype_of<T>, " but the tensor is ", dtype());
    return static_cast<const T*>(first_element());
  }
  uint64_t version() const;                // in-place writes so far to the memory, through any view
  void bump_version() const;
  const std::shared_ptr<Storage>& storage() const;
  bool shares_memory_with(const Tensor& o) const { return storage() == o.storage(); }
  bool same(const Tensor& o) const { return impl_ == o.impl_; }  // whether both handles have the same target

  // Copy values to the host (and synchronise a GPU). Throw ValueError for a number that T, an integer type, does not have.
  template <class T = double> T item() const;         // numel() == 1, converted to T
  template <class T> std::vector<T> to_vector() const;  // row-major, converted to T
  std::string str() const;                            // as PyTorch prints it
  const std::string& label() const;                   // e.g. a parameter's name; shown in errors
  const Tensor& set_label(std::string label) const;

  // ---- autograd
  bool requires_grad() const;
  const Tensor& set_requires_grad(bool value = true) const;  // leaves only
  const Tensor& requires_grad_(bool value = true) const { return set_requires_grad(value); }
  bool is_leaf() const;
  const Tensor& grad() const;              // undefined until backward
  const Tensor& raw_grad() const;          // as backward left it: 16-bit if made under LowGradients
  void set_grad(const Tensor& g) const;    // undefined clears it
  void zero_grad() const { set_grad(Tensor()); }
  void backward(const Tensor& gradient = Tensor(), bool retain_graph = false, bool create_graph = false) const;
  void backward(const Tensor& gradient, bool retain_graph, bool create_graph, const Tensors& inputs) const;  // to theirs only
  Tensor detach() const;                   // a view without history
  Tensor data() const { return detach(); }  // so w.data().normal_() is not recorded
  // Gives a leaf the memory, shape, dtype and device of `values`, as x.data = values does in PyTorch. Keeps .grad and hooks.
  void set_data(const Tensor& values) const;
  const Tensor& detach_() const;           // drops the history and requires_grad; not for views
  void retain_grad() const;                // keep .grad of a non-leaf
  uint64_t register_hook(TensorHook hook) const;  // called with each gradient of this tensor; returns a key for remove_hook
  void remove_hook(uint64_t key) const;
  const std::shared_ptr<Node>& node() const;  // the node that computed this tensor; null for leaves

  // ---- elementwise: one method per row of elementwise.def
#define HS_UNARY(name, ...) \
  Tensor name() const;      \
  HS_IN_PLACE(name##_, (), ())
#define HS_BINARY(name, ...)                                       \
  Tensor name(const Tensor& o) const; Tensor name(Number o) const; \
  HS_IN_PLACE(name##_, (const Tensor& o), (o))                     \
  HS_IN_PLACE(name##_, (Number o), (o))
#define HS_TEST(name, ...) Tensor name(const Tensor& o) const; Tensor name(Number o) const;
#include "generated/elementwise_names.def"
  // Return this + alpha o and this - alpha o; for 16-bit tensors the product is not rounded before the sum.
  Tensor add(const Tensor& o, double alpha) const;
  Tensor sub(const Tensor& o, double alpha) const;
  HS_IN_PLACE(add_, (const Tensor& o, double alpha), (o, alpha))
  HS_IN_PLACE(sub_, (const Tensor& o, double alpha), (o, alpha))
  Tensor operator-() const { return neg(); }
#define HS_ASSIGNED(sign, name)                                                                   \
  const Tensor& operator sign(const Tensor& o) const& { return name(o); }                         \
  const Tensor& operator sign(const Tensor& o) const&& { return kept("operator" #sign).name(o); } \
  const Tensor& operator sign(Number o) const& { return name(o); }                                \
  const Tensor& operator sign(Number o) const&& { return kept("operator" #sign).name(o); }
  HS_ASSIGNED(+=, add_)
  HS_ASSIGNED(-=, sub_)
  HS_ASSIGNED(*=, mul_)
  HS_ASSIGNED(/=, div_)
  HS_ASSIGNED(%=, remainder_)
#undef HS_ASSIGNED
  Tensor logical_not() const;
  Tensor bitwise_not() const;
#define HS_BITS(name)                 \
  Tensor name(const Tensor& o) const; \
  template <std::integral Number>     \
  Tensor name(Number o) const;        \
  HS_IN_PLACE(name##_, (const Tensor& o), (o))
  HS_BITS(bitwise_and)
  HS_BITS(bitwise_or)
  HS_BITS(bitwise_xor)
  HS_BITS(bitwise_left_shift)
  HS_BITS(bitwise_right_shift)
#undef HS_BITS
  Tensor clamp(std::optional<Number> lo, std::optional<Number> hi = {}) const;
  Tensor clip(std::optional<Number> lo, std::optional<Number> hi = {}) const { return clamp(lo, hi); }

  // ---- memory and dtype
  Tensor to(DType dtype) const;            // differentiable; returns this tensor if nothing changes
  Tensor to(Device device) const;
  Tensor cpu() const { return to(Device::cpu); }
  Tensor cuda(int index = 0) const { return to(Device{Device::Type::cuda, int8_t(index)}); }
  Tensor type_as(const Tensor& o) const { return to(o.device()).to(o.dtype()); }
  Tensor half() const { return to(DType::f16); }
  Tensor bfloat16() const { return to(DType::bf16); }
  Tensor to(MemoryFormat format) const;    // the same values in another memory order; channels_last needs 4 or 5 dimensions
  Tensor clone() const;                    // differentiable dense copy; keeps channels_last
  Tensor clone(MemoryFormat format) const;
  Tensor contiguous() const;
  Tensor contiguous(MemoryFormat format) const { return to(format); }
  HS_IN_PLACE(copy_, (const Tensor& src), (src))
  HS_IN_PLACE(fill_, (Number value), (value))
  const Tensor& zero_() const& { return fill_(0); }
  const Tensor& zero_() const&& { return kept("zero_").fill_(0); }
  // These two are not recorded.
  HS_IN_PLACE(uniform_, (double lo = 0, double hi = 1, Generator* generator = nullptr), (lo, hi, generator))
  HS_IN_PLACE(normal_, (double mean = 0, double stddev = 1, Generator* generator = nullptr), (mean, stddev, generator))

  // ---- views
  Tensor reshape(const Shape& shape) const;  // one size may be -1; a view when the strides allow
  Tensor view(const Shape& shape) const;     // throws where reshape would copy
  // Accept sizes without braces: x.view(n, -1) is x.view({n, -1}).
  template <SizeNumber... Sizes>
    requires(sizeof...(Sizes) > 1)
  Tensor reshape(Sizes... sizes) const {
    return reshape(Shape{int64_t(sizes)...});
  }
  template <SizeNumber... Sizes>
    requires(sizeof...(Sizes) > 1)
  Tensor view(Sizes... sizes) const {
    return view(Shape{int64_t(sizes)...});
  }
  template <SizeNumber... Sizes>
    requires(sizeof...(Sizes) > 1)
  Tensor expand(Sizes... sizes) const {
    return expand(Shape{int64_t(sizes)...});
  }
  template <SizeNumber... Sizes>
    requires(sizeof...(Sizes) > 1)
  Tensor repeat(Sizes... sizes) const {
    return repeat(Shape{int64_t(sizes)...});
  }
  template <SizeNumber... Sizes>
    requires(sizeof...(Sizes) > 1)
  Tensor permute(Sizes... sizes) const {
    return permute(Dims{int64_t(sizes)...});
  }
  Tensor flatten(int64_t start = 0, int64_t end = -1) const;
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor t() const;                          // at most 2 dimensions
  Tensor T() const { return t(); }
  Tensor permute(const Dims& order) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor expand(const Shape& shape) const;   // -1 keeps a size
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor slice(int64_t dim, int64_t start, int64_t end, int64_t step = 1) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor operator[](int64_t index) const { return select(0, index); }

  Tensor swapaxes(int64_t a, int64_t b) const { return transpose(a, b); }
  Tensor movedim(int64_t from, int64_t to) const;
  Tensor mT() const { return transpose(-2, -1); }  // transposes the last two dimensions
  Tensor view_as(const Tensor& o) const { return view(o.shape()); }
  Tensor reshape_as(const Tensor& o) const { return reshape(o.shape()); }
  Tensor expand_as(const Tensor& o) const { return expand(o.shape()); }
  Tensor ravel() const { return reshape({-1}); }
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
  Tensors split(int64_t size, int64_t dim = 0) const;
  Tensors split(std::initializer_list<int64_t> sizes, int64_t dim = 0) const;
  Tensors chunk(int64_t chunks, int64_t dim = 0) const;
  // Return a fixed number of parts: auto [q, k, v] = x.chunk<3>(-1), x.split<3>(size, -1). Throw ShapeError if the number differs.
  template <size_t count>
  std::array<Tensor, count> chunk(int64_t dim = 0) const {
    return parts<count>("chunk", chunk(int64_t(count), dim), dim);
  }
  template <size_t count>
  std::array<Tensor, count> split(int64_t size, int64_t dim = 0) const {
    return parts<count>("split", split(size, dim), dim);
  }
  Tensors tensor_split(int64_t sections, int64_t dim = 0) const;
  Tensors tensor_split(const std::vector<int64_t>& indices, int64_t dim = 0) const;
  Tensors tensor_split(std::initializer_list<int64_t> indices, int64_t dim = 0) const;
  Tensors unbind(int64_t dim = 0) const;
  Tensor unfold(int64_t dim, int64_t size, int64_t step) const;

  // ---- products
  Tensor matmul(const Tensor& o) const;
  Tensor mm(const Tensor& o) const;
  Tensor bmm(const Tensor& o) const;
  Tensor mv(const Tensor& vec) const;
  Tensor dot(const Tensor& o) const;
  Tensor vdot(const Tensor& o) const;
  Tensor outer(const Tensor& o) const;
  Tensor kron(const Tensor& o) const;
  Tensor addmm(const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1) const;
  Tensor addmv(const Tensor& mat, const Tensor& vec, double beta = 1, double alpha = 1) const;
  Tensor addr(const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1) const;
  Tensor addbmm(const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1) const;
  Tensor baddbmm(const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1) const;
  HS_IN_PLACE(addmm_, (const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1), (a, b, beta, alpha))
  HS_IN_PLACE(baddbmm_, (const Tensor& a, const Tensor& b, double beta = 1, double alpha = 1), (a, b, beta, alpha))
  Tensor cross(const Tensor& o, int64_t dim = -1) const;
  Tensor trace() const;
  Tensor det() const;
  Tensor inverse() const;
  Tensor pinverse() const;
  Tensor logdet() const;
  Tensor cholesky(bool upper = false) const;
  Tensor matrix_exp() const;
  Tensor matrix_power(int64_t n) const;

  // ---- elementwise of three tensors
  Tensor addcmul(const Tensor& a, const Tensor& b, double value = 1) const;  // this + value a b
  Tensor addcdiv(const Tensor& a, const Tensor& b, double value = 1) const;  // this + value a / b
  Tensor lerp(const Tensor& end, const Tensor& weight) const;                // this + weight (end - this)
  Tensor lerp(const Tensor& end, double weight) const;
  Tensor isclose(const Tensor& o, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  Tensor float_power(const Tensor& exponent) const;
  Tensor float_power(Number exponent) const;
  HS_IN_PLACE(addcmul_, (const Tensor& a, const Tensor& b, double value = 1), (a, b, value))
  HS_IN_PLACE(addcdiv_, (const Tensor& a, const Tensor& b, double value = 1), (a, b, value))
  HS_IN_PLACE(lerp_, (const Tensor& end, double weight), (end, weight))
  HS_IN_PLACE(clamp_, (std::optional<Number> lo, std::optional<Number> hi = {}), (lo, hi))
  Tensor prelu(const Tensor& weight) const;

  // ---- reductions, scans, order
  Tensor sum(const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor mean(const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor prod(std::optional<int64_t> dim = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor var(const Dims& dims = {}, double correction = 1, bool keepdim = false) const;
  Tensor std(const Dims& dims = {}, double correction = 1, bool keepdim = false) const;
  Tensor norm(double p = 2, const Dims& dims = {}, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor dist(const Tensor& o, double p = 2) const;
  Tensor renorm(double p, int64_t dim, double maxnorm) const;
  Tensor logsumexp(const Dims& dims, bool keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  ValuesIndices max(int64_t dim, bool keepdim = false) const;  // values, indices
  ValuesIndices min(int64_t dim, bool keepdim = false) const;
  Tensor amax(const Dims& dims = {}, bool keepdim = false) const;
  Tensor amin(const Dims& dims = {}, bool keepdim = false) const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor any(const Dims& dims = {}, bool keepdim = false) const;
  Tensor all(const Dims& dims = {}, bool keepdim = false) const;
  Tensor cumsum(int64_t dim, std::optional<DType> dtype = {}) const;
  Tensor cumprod(int64_t dim, std::optional<DType> dtype = {}) const;
  ValuesIndices sort(int64_t dim = -1, bool descending = false) const;  // values, indices; stable
  Tensor argsort(int64_t dim = -1, bool descending = false) const;
  Tensor median() const;
  ValuesIndices median(int64_t dim, bool keepdim = false) const;
  Tensor nanmedian() const;
  ValuesIndices nanmedian(int64_t dim, bool keepdim = false) const;
  ValuesIndices mode(int64_t dim = -1, bool keepdim = false) const;
  ValuesIndices topk(int64_t k, int64_t dim = -1, bool largest = true) const;
  Tensor softmax(int64_t dim, std::optional<DType> dtype = {}) const;
  Tensor log_softmax(int64_t dim, std::optional<DType> dtype = {}) const;

  // ---- indexing
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor take_along_dim(const Tensor& index, std::optional<int64_t> dim = {}) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Tensor& src) const;
  Tensor scatter(int64_t dim, const Tensor& index, Number value) const;
  Tensor scatter_add(int64_t dim, const Tensor& index, const Tensor& src) const;
  Tensor scatter_reduce(int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                        bool include_self = true) const;
  Tensor index_select(int64_t dim, const Tensor& index) const;
  Tensor index_add(int64_t dim, const Tensor& index, const Tensor& src, double alpha = 1) const;
  Tensor index_copy(int64_t dim, const Tensor& index, const Tensor& src) const;
  Tensor index(const Tensors& indices) const;  // undefined entries mean ':'
  // Indexes with x.index({Slice(0, 3), None, Ellipsis, mask}); returns a view unless an index is a tensor.
  Tensor index(std::initializer_list<TensorIndex> indices) const;
  Tensor index(std::span<const TensorIndex> indices) const;  // of a std::vector<TensorIndex>, made at run time
  Tensor index_put(const Tensors& indices, const Tensor& values, bool accumulate = false) const;
  Tensor masked_fill(const Tensor& mask, Number value) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;
  Tensor masked_select(const Tensor& mask) const;
  Tensor tril(int64_t diagonal = 0) const;
  Tensor triu(int64_t diagonal = 0) const;
  Tensor flip(const Dims& dims) const;
  Tensor roll(const Dims& shifts, const Dims& dims = {}) const;
  Tensor repeat(const Shape& repeats) const;
  Tensor bernoulli(Generator* generator = nullptr) const;
  Tensor bincount(const Tensor& weights = Tensor(), int64_t minlength = 0) const;
  Tensor broadcast_to(const Shape& shape) const;
  Tensor clamp_min(Number lo) const;
  Tensor clamp_min(const Tensor& lo) const;
  Tensor clamp_max(Number hi) const;
  Tensor clamp_max(const Tensor& hi) const;
  Tensor count_nonzero(const Dims& dims = {}) const;
  MinMax aminmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  ValuesIndices cummax(int64_t dim) const;
  ValuesIndices cummin(int64_t dim) const;
  Tensor logcumsumexp(int64_t dim) const;
  Tensor diag(int64_t diagonal = 0) const;
  Tensor diag_embed(int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1) const;
  Tensor diff(int64_t n = 1, int64_t dim = -1) const;
  bool equal(const Tensor& o) const;
  bool allclose(const Tensor& o, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  Tensor hardshrink(double lambd = 0.5) const;
  Tensor index_fill(int64_t dim, const Tensor& index, Number value) const;
  Tensor isfinite() const;
  Tensor isinf() const;
  Tensor isnan() const;
  ValuesIndices kthvalue(int64_t k, int64_t dim = -1, bool keepdim = false) const;
  Tensor logit(std::optional<double> eps = {}) const;
  Tensor masked_scatter(const Tensor& mask, const Tensor& src) const;
  Tensor msort() const;
  Tensor multinomial(int64_t samples, bool replacement = false, Generator* generator = nullptr) const;
  Tensor nan_to_num(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {}) const;
  Tensor nanmean(const Dims& dims = {}, bool keepdim = false) const;
  Tensor nansum(const Dims& dims = {}, bool keepdim = false) const;
  Tensor nonzero() const;
  Tensor quantile(double q, std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor nanquantile(double q, std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}) const;
  Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim = {}) const;
  Tensor rot90(int64_t k = 1, const Dims& dims = {0, 1}) const;
  Tensor take(const Tensor& index) const;
  Tensor tile(const Shape& repeats) const;
  Tensor unflatten(int64_t dim, const Shape& sizes) const;
  Tensor where(const Tensor& cond, const Tensor& o) const;
  Tensor where(const Tensor& cond, Number o) const;
  HS_IN_PLACE(scatter_, (int64_t dim, const Tensor& index, const Tensor& src), (dim, index, src))
  HS_IN_PLACE(scatter_, (int64_t dim, const Tensor& index, Number value), (dim, index, value))
  HS_IN_PLACE(scatter_add_, (int64_t dim, const Tensor& index, const Tensor& src), (dim, index, src))
  HS_IN_PLACE(index_add_, (int64_t dim, const Tensor& index, const Tensor& src, double alpha = 1), (dim, index, src, alpha))
  HS_IN_PLACE(index_copy_, (int64_t dim, const Tensor& index, const Tensor& src), (dim, index, src))
  HS_IN_PLACE(index_put_, (const Tensors& indices, const Tensor& values, bool accumulate = false), (indices, values, accumulate))
#define HS_PUT(Indices, Values)                                   \
  const Tensor& index_put_(Indices indices, Values value) const&; \
  const Tensor& index_put_(Indices indices, Values value) const&&;
  HS_PUT(std::initializer_list<TensorIndex>, const Tensor&)
  HS_PUT(std::initializer_list<TensorIndex>, Number)
  HS_PUT(std::span<const TensorIndex>, const Tensor&)
  HS_PUT(std::span<const TensorIndex>, Number)
#undef HS_PUT
  HS_IN_PLACE(masked_fill_, (const Tensor& mask, Number value), (mask, value))
  HS_IN_PLACE(index_fill_, (int64_t dim, const Tensor& index, Number value), (dim, index, value))
  HS_IN_PLACE(tril_, (int64_t diagonal = 0), (diagonal))
  HS_IN_PLACE(triu_, (int64_t diagonal = 0), (diagonal))

  TensorImpl* impl() const { return impl_.get(); }
  const std::shared_ptr<TensorImpl>& impl_ptr() const { return impl_; }

 private:
  TensorImpl& get() const {  // throws ValueError when undefined
    if (!impl_) [[unlikely]]
      fail_undefined();
    return *impl_;
  }
  [[noreturn]] static void fail_undefined();
  void* first_element() const;
  const Tensor& write(const Tensor& values) const;
  const Tensor& write(Number value) const;
  const Tensor& kept(const char* where) const;  // this tensor; throws for a copy of selected elements that nothing else refers to
  template <size_t count>
  std::array<Tensor, count> parts(const char* where, Tensors made, int64_t dim) const {
    check<ShapeError>(made.size() == count, where, "asked for ", count, " parts along dimension ", dim, " of ", shape(), ", got ",
                      made.size());
    std::array<Tensor, count> out;
    for (size_t i = 0; i < count; ++i) out[i] = std::move(made[i]);
    return out;
  }
  void read_host(std::vector<double>* floats, std::vector<int64_t>* integers) const;
  template <class T> std::vector<T> read(const char* where) const;
  std::shared_ptr<TensorImpl> impl_;
};

#undef HS_IN_PLACE

std::ostream& operator<<(std::ostream& out, const Tensor& t);

// The low-precision copy of a parameter, current while `version` equals the parameter's. See amp/autocast/autocast.h.
struct Shadow {
  Tensor low;
  uint64_t version = 0;
};

// The sums of a gradient's columns, current while `version` equals the gradient's. See framework/autograd/column_sums.h.
struct ColumnSums {
  Tensor sums;
  uint64_t version = 0;
};

// A tensor's place in the graph, created when needed.
struct AutogradMeta {
  bool requires_grad = false;   // leaves; others require grad because they have a node
  bool retains_grad = false;
  bool replaced = false;        // whether it was a parameter of a module that now has another in its place
  bool scaled = false;          // whether grad is multiplied by a GradScaler's scale; for an argument of backward(): itself
  bool mixed = false;           // whether grad is a sum of scaled and unscaled gradients
  uint32_t modules = 0;         // number of modules that have it as a parameter
  Tensor grad;
  std::shared_ptr<Node> node;   // the node that computed the tensor
  uint32_t output_index = 0;    // which of the node's outputs it is
  std::weak_ptr<Node> accumulator;  // AccumulateGrad of a leaf
  std::shared_ptr<HookList> hooks;
  Shadow shadow;
  ColumnSums column_sums;
};

struct TensorImpl {
  std::shared_ptr<Storage> storage;
  int64_t offset = 0;  // elements
  Shape shape;
  Strides strides;
  DType dtype = DType::f32;
  bool wrapped_number = false;           // holds a C++ number: on the CPU, but an operand of any device; see promotion.h
  bool is_view = false;                  // a differentiable view; see Storage::recorded_writes
  bool selected = false;                 // a copy of the elements that a mask or tensor selected in index()
  std::weak_ptr<TensorImpl> base;        // the viewed tensor, itself not a view; expired if nobody holds it
  uint64_t recorded_writes_seen = 0;
  std::unique_ptr<AutogradMeta> autograd;
  std::string label;

  AutogradMeta& meta() {
    if (!autograd) autograd = std::make_unique<AutogradMeta>();
    return *autograd;
  }
};

inline const Shape& Tensor::shape() const { return get().shape; }
inline int Tensor::dim() const { return get().shape.size(); }
inline DType Tensor::dtype() const { return get().dtype; }
inline int64_t Tensor::storage_offset() const { return get().offset; }

template <class T>
T* Tensor::data_ptr() const {
  check<DTypeError>(dtype() == dtype_of<T>, "data_ptr", "asked for ", dtype_of<T>, " but the tensor is ", dtype());
  return static_cast<T*>(data_ptr());
}

template <class T>
std::vector<T> Tensor::read(const char* where) const {
  std::vector<T> out;
  out.reserve(size_t(numel()));
  if (is_floating_point()) {
    std::vector<double> v;
    read_host(&v, nullptr);
    for (double x : v) out.push_back(number_as<T>(x, where));
  } else {
    std::vector<int64_t> v;
    read_host(nullptr, &v);
    for (int64_t x : v) out.push_back(number_as<T>(x, where));
  }
  return out;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  return read<T>("to_vector");
}

template <class T>
T Tensor::item() const {
  check<ShapeError>(numel() == 1, "item", "the tensor must have one element, got ", shape());
  if constexpr (std::is_same_v<T, float>) {
    const double value = read<double>("item").front();
    check_fits("item", value, DType::f32);
    return float(value);
  } else {
    return read<T>("item").front();
  }
}

}  // namespace halfstep
