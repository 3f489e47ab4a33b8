// SPDX-License-Identifier: Apache-2.0
// Products of many tensors and over chosen dimensions: matrix products of permuted and reshaped operands.
#include "framework/ops/linalg/contractions.h"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/einsum.h"
#include "framework/ops/linalg/products.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr OpInfo kChainInfo{.name = "chain_matmul",
                            .policy = CastPolicy::low,
                            .doc = "a chain of matrix products in the cheapest order",
                            .dtypes = DTypeSet::numbers};
constexpr OpInfo kMultiDotInfo{.name = "multi_dot",
                               .policy = CastPolicy::low,
                               .doc = "a chain of matrix products in the cheapest order; vectors at its ends",
                               .dtypes = DTypeSet::numbers};
constexpr OpInfo kTensordotInfo{.name = "tensordot",
                                .policy = CastPolicy::promote,
                                .doc = "sum of products over pairs of dimensions",
                                .dtypes = DTypeSet::numbers};
constexpr OpInfo kBilinearInfo{
    .name = "bilinear", .policy = CastPolicy::promote, .doc = "x1^T W[o] x2 + b[o]", .dtypes = DTypeSet::numbers};
constexpr OpInfo kCrossInfo{.name = "cross",
                            .policy = CastPolicy::promote,
                            .doc = "vector product along a dimension of size 3",
                            .dtypes = DTypeSet::numbers};

// split[i][j]: where the cheapest order splits the product of matrices i to j.
using Splits = std::vector<std::vector<size_t>>;

// Finds the order with the fewest multiplications. Matrix i is [size[i], size[i + 1]]; the product of matrices i to j costs
//
//   cost[i][j] = min over k of cost[i][k] + cost[k + 1][j] + size[i] size[k + 1] size[j + 1]
Splits cheapest_order(const Tensors& matrices) {
  const size_t n = matrices.size();
  std::vector<double> size{double(matrices[0].size(0))};
  for (const Tensor& t : matrices) size.push_back(double(t.size(1)));
  std::vector<std::vector<double>> cost(n, std::vector<double>(n));
  Splits split(n, std::vector<size_t>(n));
  for (size_t length = 1; length < n; ++length) {
    for (size_t i = 0; i + length < n; ++i) {
      const size_t j = i + length;
      cost[i][j] = std::numeric_limits<double>::infinity();
      for (size_t k = i; k < j; ++k) {
        const double c = cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1];
        if (c < cost[i][j]) cost[i][j] = c, split[i][j] = k;
      }
    }
  }
  return split;
}

// Returns the product of matrices i to j.
Tensor multiply_chain(const Tensors& matrices, const Splits& split, size_t i, size_t j) {
  if (i == j) return matrices[i];
  const size_t k = split[i][j];
  return mm(multiply_chain(matrices, split, i, k), multiply_chain(matrices, split, k + 1, j));
}

// Checks and multiplies; vectors: whether the first and the last may be vectors.
Tensor chain(const OpInfo& info, Tensors matrices, bool vectors) {
  const std::string_view name = info.name;
  check_same_device(name, matrices);
  for (size_t i = 0; i < matrices.size(); ++i) {
    const bool end = vectors && (i == 0 || i + 1 == matrices.size());
    check<ShapeError>(matrices[i].dim() == 2 || (end && matrices[i].dim() == 1), name, "tensor ", i, " must have ",
                      end ? "1 or 2 dimensions" : "2 dimensions", ", got ", matrices[i].shape());
    check<ShapeError>(i == 0 || matrices[i - 1].size(-1) == matrices[i].size(0), name, "inner sizes must match, got ",
                      matrices[i - (i > 0)].shape(), " and ", matrices[i].shape(), " for tensors ", i - (i > 0), " and ", i);
  }
  apply_policy(info, matrices);
  check_product_dtypes(name, matrices);
  const autocast::Off off;
  const bool row = matrices.front().dim() == 1, column = matrices.back().dim() == 1;
  if (row) matrices.front() = matrices.front().unsqueeze(0);
  if (column) matrices.back() = matrices.back().unsqueeze(1);
  Tensor y = multiply_chain(matrices, cheapest_order(matrices), 0, matrices.size() - 1);
  if (column) y = y.squeeze(1);
  return row ? y.squeeze(0) : y;
}

// Returns a mask of the dimensions in dims.
std::array<bool, kMaxDims> marked(const std::vector<int64_t>& dims, const Tensor& t) {
  std::array<bool, kMaxDims> mask{};
  for (int64_t d : dims) {
    check<IndexError>(t.dim() > 0, "tensordot", "dimension ", d, " is outside a tensor of shape ", t.shape());
    const auto w = size_t(wrap_dim(d, t.dim(), "tensordot"));
    check<ValueError>(!mask[w], "tensordot", "dimension ", d, " of ", t.shape(), " appears twice");
    mask[w] = true;
  }
  return mask;
}

}  // namespace

Tensor chain_matmul(const Tensors& matrices) {
  check<ValueError>(!matrices.empty(), "chain_matmul", "needs at least one matrix");
  return chain(kChainInfo, matrices, false);
}
Tensor multi_dot(const Tensors& tensors) {
  check<ValueError>(tensors.size() >= 2, "multi_dot", "needs at least two tensors, got ", tensors.size());
  return chain(kMultiDotInfo, tensors, true);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int64_t>& a_dims, const std::vector<int64_t>& b_dims) {
  check_same_device("tensordot", {a, b});
  check<ValueError>(a_dims.size() == b_dims.size(), "tensordot", "needs as many dimensions of one tensor as of the other, got ",
                    a_dims.size(), " and ", b_dims.size());
  const auto of_a = marked(a_dims, a), of_b = marked(b_dims, b);
  std::array<Tensor, 2> in{a, b};
  apply_policy(kTensordotInfo, in);
  check_product_dtypes("tensordot", {in[0], in[1]});
  const autocast::Off off;
  Shape a_full = a.shape(), b_full = b.shape(), out;
  Dims a_order, b_order;
  for (int d = 0; d < a.dim(); ++d)
    if (!of_a[size_t(d)]) a_order.push_back(d), out.push_back(a.size(d));
  int64_t inner = 1;
  for (size_t i = 0; i < a_dims.size(); ++i) {
    const int x = wrap_dim(a_dims[i], a.dim(), "tensordot"), y = wrap_dim(b_dims[i], b.dim(), "tensordot");
    const int64_t m = a.size(x), n = b.size(y);
    check<ShapeError>(m == n || m == 1 || n == 1, "tensordot", "sizes of paired dimensions must match, got ", m, " and ", n,
                      " for dimensions ", a_dims[i], " of ", a.shape(), " and ", b_dims[i], " of ", b.shape());
    a_full[x] = b_full[y] = m == 1 ? n : m;
    inner *= a_full[x];
    a_order.push_back(x);
    b_order.push_back(y);
  }
  for (int d = 0; d < b.dim(); ++d)
    if (!of_b[size_t(d)]) b_order.push_back(d), out.push_back(b.size(d));
  int64_t rows = 1, columns = 1;
  for (int i = 0; i < a.dim() - int(a_dims.size()); ++i) rows *= out[i];
  for (int i = a.dim() - int(a_dims.size()); i < out.size(); ++i) columns *= out[i];
  return mm(in[0].expand(a_full).permute(a_order).reshape({rows, inner}),
            in[1].expand(b_full).permute(b_order).reshape({inner, columns}))
      .reshape(out);
}

Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims) {
  check_same_device("tensordot", {a, b});
  check<ValueError>(dims >= 0 && dims <= a.dim() && dims <= b.dim(), "tensordot",
                    "dims must lie between 0 and the rank of both tensors, got ", dims, " for ", a.shape(), " and ", b.shape());
  std::vector<int64_t> a_dims, b_dims;
  for (int64_t i = 0; i < dims; ++i) {
    a_dims.push_back(a.dim() - dims + i);
    b_dims.push_back(i);
  }
  return tensordot(a, b, a_dims, b_dims);
}

Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias) {
  check_same_device("bilinear", {x1, x2, weight, bias});
  check<ShapeError>(weight.dim() == 3, "bilinear", "weight must be [out, in1, in2], got ", weight.shape());
  Shape batch1 = x1.shape(), batch2 = x2.shape();
  const bool ranks = x1.dim() >= 1 && x2.dim() == x1.dim();
  if (ranks) batch1.erase(x1.dim() - 1), batch2.erase(x2.dim() - 1);
  check<ShapeError>(ranks && batch1 == batch2 && x1.size(-1) == weight.size(1) && x2.size(-1) == weight.size(2), "bilinear",
                    "inputs must be [..., ", weight.size(1), "] and [..., ", weight.size(2), "] to match weight ", weight.shape(),
                    ", got ", x1.shape(), " and ", x2.shape());
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{weight.size(0)}, "bilinear", "bias must be [", weight.size(0),
                    "] to match weight ", weight.shape(), ", got ", bias.defined() ? bias.shape() : Shape{});
  const Tensors in{x1, x2, weight, bias};
  if (!autocast::is_enabled(x1.device().type)) check_product_dtypes("bilinear", in);
  return composite(kBilinearInfo, in, [&](const Tensors& t) {
    const int64_t rows = numel(batch1), outputs = weight.size(0), in1 = weight.size(1), in2 = weight.size(2);
    const Tensor x1_weight =
        mm(t[0].reshape({rows, in1}), t[2].permute({1, 0, 2}).reshape({in1, outputs * in2})).reshape({rows, outputs, in2});
    const Tensor y = bmm(x1_weight, t[1].reshape({rows, in2, 1})).reshape({rows, outputs});
    Shape out = batch1;
    out.push_back(outputs);
    return (t[3].defined() ? y + t[3] : y).reshape(out);
  });
}

Tensor cross(const Tensor& a, const Tensor& b, int64_t dim) {
  check_same_device("cross", {a, b});
  check<ShapeError>(a.dim() == b.dim() && a.dim() >= 1, "cross", "both inputs must have one number of dimensions, got ", a.shape(),
                    " and ", b.shape());
  const int d = wrap_dim(dim, a.dim(), "cross");
  check<ShapeError>(a.size(d) == 3 && b.size(d) == 3, "cross", "dimension ", dim, " must have size 3, got ", a.shape(), " and ",
                    b.shape());
  broadcast(a.shape(), b.shape(), "cross");
  if (!autocast::is_enabled(a.device().type)) check_product_dtypes("cross", {a, b});
  return composite(kCrossInfo, {a, b}, [d](const Tensors& t) {
    const Tensor x = t[0].transpose(0, d).contiguous(), y = t[1].transpose(0, d).contiguous();
    // Returns the components in the order n, n + 1, ...
    const auto from = [](const Tensor& v, int64_t n) { return cat({v.narrow(0, n, 3 - n), v.narrow(0, 0, n)}); };
    return (from(x, 1) * from(y, 2) - from(x, 2) * from(y, 1)).transpose(0, d).contiguous();
  });
}
Tensor Tensor::cross(const Tensor& other, int64_t dim) const { return halfstep::cross(*this, other, dim); }

void add_contractions(OpList& list) {
  list.add(kChainInfo, [](Args& a) { return chain_matmul(a.list(0)); });
  list.add(kMultiDotInfo, [](Args& a) { return multi_dot(a.list(0)); });
  list.add(kTensordotInfo, [](Args& a) {
    const Tensor x = a.tensor(0), y = a.tensor(1);
    const nlohmann::json* dims = a.raw("dims");
    if (!dims || !dims->is_array()) return tensordot(x, y, a.integer("dims", 2));
    const auto list_of = [&](size_t i) {
      const bool good = dims->size() == 2 && dims->at(i).is_array();
      check<ValueError>(good, "tensordot", "dims must be a number or a pair of lists, got ", dims->dump());
      std::vector<int64_t> out;
      for (const auto& d : dims->at(i)) {
        check<ValueError>(d.is_number_integer(), "tensordot", "dims must be a number or a pair of lists, got ", dims->dump());
        out.push_back(d.get<int64_t>());
      }
      return out;
    };
    return tensordot(x, y, list_of(0), list_of(1));
  });
  list.add(kEinsumInfo, [](Args& a) { return einsum(a.text("equation"), a.list(0)); });
  list.add(kBilinearInfo, [](Args& a) { return bilinear(a.tensor(0), a.tensor(1), a.tensor(2), a.tensor_or_none(3)); });
  list.add(kCrossInfo, [](Args& a) { return cross(a.tensor(0), a.tensor(1), a.integer("dim", -1)); });
  list.alias("linalg_multi_dot", "multi_dot");
  list.alias("linalg_cross", "cross");
}

}  // namespace halfstep
