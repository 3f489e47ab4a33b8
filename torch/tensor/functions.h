// SPDX-License-Identifier: Apache-2.0
// torch::relu, torch::cat and so on: the methods of Tensor, and more.
#pragma once

#include "torch/tensor/creation.h"

namespace torch {

// ---- elementwise rows
#define HS_UNARY(name, ...)                                \
  inline Tensor name(const Tensor& x) { return x.name(); } \
  inline Tensor& name##_(Tensor& x) { return x.name##_(); }
#define HS_BINARY(name, ...)                                                 \
  inline Tensor name(const Tensor& a, const Tensor& b) { return a.name(b); } \
  inline Tensor name(const Tensor& a, Scalar b) { return a.name(b); }
#define HS_TEST(name, ...)                                                   \
  inline Tensor name(const Tensor& a, const Tensor& b) { return a.name(b); } \
  inline Tensor name(const Tensor& a, Scalar b) { return a.name(b); }
#include "generated/elementwise_names.def"

#define HS_VALUE(name, value, ...)                                    \
  inline Tensor name(const Tensor& self __VA_OPT__(, ) __VA_ARGS__) { \
    const hs::Tensor& x = self.h();                                   \
    return value;                                                     \
  }
#define HS_STORE(name, value, ...)                                  \
  inline Tensor& name##_(Tensor& self __VA_OPT__(, ) __VA_ARGS__) { \
    const hs::Tensor& x = self.h();                                 \
    return detail::store(#name, self, value);                       \
  }
#define HS_BOTH(name, ...)    \
  HS_VALUE(name, __VA_ARGS__) \
  HS_STORE(name, __VA_ARGS__)
#define HS_PAIR(name, value, ...)                                                         \
  inline std::tuple<Tensor, Tensor> name(const Tensor& self __VA_OPT__(, ) __VA_ARGS__) { \
    const hs::Tensor& x = self.h();                                                       \
    return detail::two(value);                                                            \
  }
#define HS_LIST(name, value, ...)                                                  \
  inline std::vector<Tensor> name(const Tensor& self __VA_OPT__(, ) __VA_ARGS__) { \
    const hs::Tensor& x = self.h();                                                \
    return detail::V(value);                                                       \
  }
#define HS_ALIAS(alias, name)                          \
  template <class... A>                                \
  decltype(auto) alias(const Tensor& self, A&&... a) { \
    return self.name(std::forward<A>(a)...);           \
  }
#define HS_ALIAS_(alias, name) HS_ALIAS(alias, name) HS_ALIAS(alias##_, name##_)
#include "torch/tensor/methods.def"

// ---- methods whose arguments a function passes on
#define HS_TORCH_METHOD(name)                      \
  template <class... A>                            \
  decltype(auto) name(const Tensor& x, A&&... a) { \
    return x.name(std::forward<A>(a)...);          \
  }
HS_TORCH_METHOD(clamp_)
HS_TORCH_METHOD(clamp_min_)
HS_TORCH_METHOD(clamp_max_)
HS_TORCH_METHOD(detach)
HS_TORCH_METHOD(detach_)
HS_TORCH_METHOD(fill_)
HS_TORCH_METHOD(is_nonzero)
HS_TORCH_METHOD(is_same_size)
HS_TORCH_METHOD(resize_as_)
HS_TORCH_METHOD(slice)
HS_TORCH_METHOD(zero_)
#undef HS_TORCH_METHOD
inline std::vector<Tensor> split(const Tensor& x, IntArrayRef s, int64_t d = 0) { return x.split(s, d); }
inline std::vector<Tensor> split_with_sizes(const Tensor& x, IntArrayRef s, int64_t d = 0) { return x.split(s, d); }
inline Tensor pow(Scalar a, const Tensor& b) { return hs::pow(a.toDouble(), b.h()); }
inline Tensor add(const Tensor& a, const Tensor& b, Scalar alpha) { return a.add(b, alpha); }
inline Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha) { return a.sub(b, alpha); }
inline Tensor& mul_out(Tensor& out, const Tensor& a, const Tensor& b) { return out.copy_(a.mul(b)); }
inline Tensor& add_out(Tensor& out, const Tensor& a, const Tensor& b) { return out.copy_(a.add(b)); }
inline Tensor clamp(const Tensor& x, std::optional<Scalar> lo = {}, std::optional<Scalar> hi = {}) { return x.clamp(lo, hi); }
inline Tensor where(const Tensor& c, const Tensor& a, const Tensor& b) { return hs::where(c.h(), a.h(), b.h()); }
inline bool equal(const Tensor& a, const Tensor& b) { return a.equal(b); }
inline bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool nan = false) {
  return a.allclose(b, rtol, atol, nan);
}
inline Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool nan = false) {
  return a.isclose(b, rtol, atol, nan);
}
inline Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1) {
  return x.addmm(a, b, beta, alpha);
}

// ---- shapes
inline Tensor cat(TensorList xs, int64_t d = 0) { return hs::cat(detail::H(xs), d); }
inline Tensor concat(TensorList xs, int64_t d = 0) { return cat(xs, d); }
inline Tensor stack(TensorList xs, int64_t d = 0) { return hs::stack(detail::H(xs), d); }
inline Tensor hstack(TensorList xs) { return hs::hstack(detail::H(xs)); }
inline Tensor vstack(TensorList xs) { return hs::vstack(detail::H(xs)); }
inline Tensor row_stack(TensorList xs) { return vstack(xs); }
inline Tensor dstack(TensorList xs) { return hs::dstack(detail::H(xs)); }
inline Tensor column_stack(TensorList xs) { return hs::column_stack(detail::H(xs)); }
inline Tensor block_diag(TensorList xs) { return hs::block_diag(detail::H(xs)); }
inline Tensor concatenate(TensorList xs, int64_t d = 0) { return cat(xs, d); }
inline Tensor atleast_1d(const Tensor& x) { return hs::atleast_1d(x.h()); }
inline Tensor atleast_2d(const Tensor& x) { return hs::atleast_2d(x.h()); }
inline Tensor atleast_3d(const Tensor& x) { return hs::atleast_3d(x.h()); }
inline Tensor tril_indices(int64_t rows, int64_t columns, int64_t d = 0, const TensorOptions& o = {}) {
  return hs::tril_indices(rows, columns, d, o.device().h());
}
inline Tensor triu_indices(int64_t rows, int64_t columns, int64_t d = 0, const TensorOptions& o = {}) {
  return hs::triu_indices(rows, columns, d, o.device().h());
}
inline std::vector<Tensor> split(const Tensor& x, int64_t n, int64_t d = 0) { return x.split(n, d); }
inline std::vector<Tensor> chunk(const Tensor& x, int64_t n, int64_t d = 0) { return x.chunk(n, d); }
inline std::vector<Tensor> unbind(const Tensor& x, int64_t d = 0) { return x.unbind(d); }
inline int64_t numel(const Tensor& x) { return x.numel(); }
Tensor cartesian_prod(TensorList xs);
Tensor combinations(const Tensor& x, int64_t r = 2, bool with_replacement = false);
inline std::vector<Tensor> meshgrid(TensorList xs) { return detail::V(hs::meshgrid(detail::H(xs))); }
inline Tensor roll(const Tensor& x, IntArrayRef s, IntArrayRef d = {}) { return x.roll(s, d); }
inline Tensor constant_pad_nd(const Tensor& x, IntArrayRef p, Scalar v = 0) {
  return hs::pad(x.h(), detail::D(p), "constant", v.toDouble());
}

inline int64_t size(const Tensor& x, int64_t d) { return x.size(d); }
inline Tensor _unsafe_view(const Tensor& x, IntArrayRef s) { return x.view(s); }
inline Tensor clone(const Tensor& x) { return x.clone(); }

// ---- products
inline Tensor cdist(const Tensor& a, const Tensor& b, double p = 2) { return hs::cdist(a.h(), b.h(), p); }
inline Tensor chain_matmul(TensorList xs) { return hs::chain_matmul(detail::H(xs)); }
inline std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& x, bool some = true, bool compute_uv = true) {
  return x.svd(some, compute_uv);
}
inline Tensor einsum(const std::string& e, TensorList xs) { return hs::einsum(e, detail::H(xs)); }
inline Tensor tensordot(const Tensor& a, const Tensor& b, IntArrayRef da, IntArrayRef db) {
  return hs::tensordot(a.h(), b.h(), da.vec(), db.vec());
}

// ---- reductions
inline Tensor sum(const Tensor& x, std::optional<ScalarType> t = {}) { return x.sum(t); }
inline Tensor sum(const Tensor& x, IntArrayRef d, bool keep = false, std::optional<ScalarType> t = {}) { return x.sum(d, keep, t); }
inline Tensor mean(const Tensor& x, std::optional<ScalarType> t = {}) { return x.mean(t); }
inline Tensor mean(const Tensor& x, IntArrayRef d, bool keep = false, std::optional<ScalarType> t = {}) {
  return x.mean(d, keep, t);
}
inline Tensor prod(const Tensor& x) { return x.prod(); }
inline Tensor var(const Tensor& x, int d) { return x.var(d); }
inline Tensor std(const Tensor& x, int d) { return x.std(d); }
inline Tensor var(const Tensor& x, bool unbiased = true) { return x.var(unbiased); }
inline Tensor var(const Tensor& x, IntArrayRef d, bool unbiased = true, bool keep = false) { return x.var(d, unbiased, keep); }
inline Tensor std(const Tensor& x, bool unbiased = true) { return x.std(unbiased); }
inline Tensor std(const Tensor& x, IntArrayRef d, bool unbiased = true, bool keep = false) { return x.std(d, unbiased, keep); }
inline std::tuple<Tensor, Tensor> var_mean(const Tensor& x, IntArrayRef d, bool unbiased = true, bool keep = false) {
  return detail::two(hs::var_mean(x.h(), detail::D(d), unbiased ? 1 : 0, keep));
}
inline std::tuple<Tensor, Tensor> std_mean(const Tensor& x, IntArrayRef d, bool unbiased = true, bool keep = false) {
  return detail::two(hs::std_mean(x.h(), detail::D(d), unbiased ? 1 : 0, keep));
}
inline std::tuple<Tensor, Tensor> var_mean(const Tensor& x, int d) { return detail::two(hs::var_mean(x.h(), {d})); }
inline std::tuple<Tensor, Tensor> std_mean(const Tensor& x, int d) { return detail::two(hs::std_mean(x.h(), {d})); }
inline std::tuple<Tensor, Tensor> var_mean(const Tensor& x, bool unbiased = true) { return var_mean(x, IntArrayRef(), unbiased); }
inline std::tuple<Tensor, Tensor> std_mean(const Tensor& x, bool unbiased = true) { return std_mean(x, IntArrayRef(), unbiased); }
inline Tensor norm(const Tensor& x, Scalar p = 2) { return x.norm(p); }
inline Tensor norm(const Tensor& x, std::optional<Scalar> p, IntArrayRef d, bool keep = false) { return x.norm(p, d, keep); }
inline Tensor max(const Tensor& x) { return x.max(); }
inline Tensor min(const Tensor& x) { return x.min(); }
inline std::tuple<Tensor, Tensor> max(const Tensor& x, int64_t d, bool keep = false) { return x.max(d, keep); }
inline std::tuple<Tensor, Tensor> min(const Tensor& x, int64_t d, bool keep = false) { return x.min(d, keep); }
inline Tensor max(const Tensor& a, const Tensor& b) { return a.max(b); }
inline Tensor min(const Tensor& a, const Tensor& b) { return a.min(b); }
inline Tensor argmax(const Tensor& x, std::optional<int64_t> d = {}, bool keep = false) { return x.argmax(d, keep); }
inline Tensor argmin(const Tensor& x, std::optional<int64_t> d = {}, bool keep = false) { return x.argmin(d, keep); }
inline Tensor any(const Tensor& x) { return x.any(); }
inline Tensor all(const Tensor& x) { return x.all(); }
inline std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t d = -1, bool desc = false) { return x.sort(d, desc); }
inline std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t d = -1, bool largest = true, bool sorted = true) {
  return x.topk(k, d, largest, sorted);
}
inline Tensor softmax(const Tensor& x, int64_t d, std::optional<ScalarType> t = {}) { return x.softmax(d, t); }
inline Tensor log_softmax(const Tensor& x, int64_t d, std::optional<ScalarType> t = {}) { return x.log_softmax(d, t); }
inline Tensor bernoulli(const Tensor& p) { return hs::bernoulli(p.h()); }

// ---- indexing
inline Tensor index(const Tensor& x, const std::vector<Tensor>& i) { return hs::index(x.h(), detail::H(i)); }
inline Tensor& index_put_(Tensor& x, const std::vector<Tensor>& i, const Tensor& v, bool accumulate = false) {
  return x.index_put_(i, v, accumulate);
}
namespace utils {
Tensor flatten_dense_tensors(TensorList tensors);
std::vector<Tensor> unflatten_dense_tensors(const Tensor& flat, TensorList shapes);
}  // namespace utils
inline Tensor one_hot(const Tensor& x, int64_t n = -1) { return hs::one_hot(x.h(), n); }
inline Tensor searchsorted(const Tensor& sorted, const Tensor& x, bool out_int32 = false, bool right = false) {
  return hs::searchsorted(sorted.h(), x.h(), {.right = right, .out_int32 = out_int32, .sorter = {}});
}
inline Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool out_int32 = false, bool right = false) {
  return hs::bucketize(x.h(), boundaries.h(), right, out_int32);
}
inline Tensor isin(const Tensor& x, const Tensor& values, bool = false, bool invert = false) {
  return hs::isin(x.h(), values.h(), invert);
}
namespace detail {
inline std::tuple<Tensor, Tensor, Tensor> three(const hs::Unique& u, bool inverse, bool counts) {
  return {u.values, inverse ? Tensor(u.inverse) : Tensor(), counts ? Tensor(u.counts) : Tensor()};
}
}  // namespace detail
// values, and their inverse and counts if asked for; values are always sorted.
inline std::tuple<Tensor, Tensor, Tensor> _unique2(const Tensor& x, bool = true, bool inverse = false, bool counts = false) {
  return detail::three(hs::unique(x.h()), inverse, counts);
}
inline std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor& x, int64_t d, bool = true, bool inverse = false,
                                                     bool counts = false) {
  return detail::three(hs::unique(x.h(), d), inverse, counts);
}
inline std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& x, bool inverse = false, bool counts = false,
                                                             std::optional<int64_t> d = {}) {
  return detail::three(hs::unique_consecutive(x.h(), d), inverse, counts);
}

}  // namespace torch
