// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/linalg/distances.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/ops/core/composite.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/decompositions.h"
#include "framework/ops/ops.h"
#include "framework/ops/reduce/reductions.h"

namespace halfstep {
namespace {

void check_p(std::string_view op, double p) { check<ValueError>(p >= 0, op, "p must be at least 0, got ", p); }

// Computes the norm in ops. Differentiable wherever the norm is, but not where it is 0.
Tensor norm_formula(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  if (p == 0) return sum(ne(x, 0.0).to(x.dtype()), dims, keepdim);
  if (p == 1) return sum(abs(x), dims, keepdim);
  if (p == 2) return sqrt(sum(square(x), dims, keepdim));
  if (std::isinf(p)) return p > 0 ? amax(abs(x), dims, keepdim) : amin(abs(x), dims, keepdim);
  return pow(sum(pow(abs(x), p), dims, keepdim), 1 / p);
}

struct Norm {
  struct Attr {
    double p;
    Dims dims;
    bool keepdim;
    std::optional<DType> dtype;
  };
  enum Saved : size_t { kX, kNorm };
  static constexpr OpInfo info{
      .name = "norm", .policy = CastPolicy::f32_output, .doc = "(sum |x|^p)^(1/p) over dimensions", .takes_dtype = true};

  static void check(const Attr& attr, const Tensors& in) {
    check_floating("norm", in);
    halfstep::check<ValueError>(attr.p == attr.p, "norm", "p must be a number, got nan");
    halfstep::check<DTypeError>(!attr.dtype || is_floating(*attr.dtype), "norm", "dtype must be floating, got ",
                                attr.dtype.value_or(DType::f32));
  }
  static Attributes describe(const Attr& attr) { return {{"p", attr.p}, {"dims", attr.dims}, {"keepdim", attr.keepdim}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const DType dtype = attr.dtype.value_or(in[0].dtype());
    const DType wide = promote(in[0].dtype(), dtype == DType::f64 ? DType::f64 : DType::f32);
    Tensor y;
    if (attr.p == 1 || attr.p == 2) {  // in one pass over x
      const Tensor x = wide == DType::f64 ? in[0].to(wide) : in[0];
      y = run_reduce(attr.p == 1 ? Reduce::sum_abs : Reduce::sum_squares, x, reduced(x.shape(), attr.dims, "norm"), true, wide);
      if (attr.p == 2) y.sqrt_();
    } else {
      y = norm_formula(in[0].to(wide), attr.p, attr.dims, true);
    }
    ctx.save(in[0]);
    ctx.save(y.detach());  // y may be the output itself, which its own node must not hold
    return (attr.keepdim ? y : y.reshape(reduced(in[0].shape(), attr.dims, "norm").dropped)).to(dtype);
  }
  static Tensor in_simpler_ops(const Attr& attr, const Tensors& in) {
    return norm_formula(in[0], attr.p, attr.dims, attr.keepdim).to(attr.dtype.value_or(in[0].dtype()));
  }
  // Returns sign(x) (|x| / y)^(p - 1) g, 0 where x or y is 0. For p of inf and -inf the n elements with |x| = y share the gradient:
  // sign(x) g / n.
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const bool recorded = grad_enabled();
    const Tensor saved = ctx.saved(kX), y0 = ctx.saved(kNorm);
    const Tensor x = saved.to(y0.dtype());
    const Tensor g = grads[0].to(y0.dtype()).reshape(y0.shape());
    if (attr.p == 0) return {zeros_like(saved)};
    const Tensor y = recorded ? safe_norm(x, attr) : y0;
    if (attr.p == 1) return {sign(x) * g};
    if (std::isinf(attr.p)) {
      const Tensor hit = eq(abs(x.detach()), y.detach()).to(x.dtype());
      return {sign(x) * hit * (g / sum(hit, attr.dims, true))};
    }
    const Tensor is_zero = eq(y.detach(), 0.0);
    const Tensor inverse = where(is_zero, 0.0, div(1.0, where(is_zero, 1.0, y)));
    if (attr.p == 2) return {x * (g * inverse)};
    const Tensor x_is_zero = eq(x.detach(), 0.0), size = where(x_is_zero, 1.0, abs(x));
    return {where(x_is_zero, 0.0, sign(x) * pow(size * inverse, attr.p - 1) * g)};
  }

 private:
  // Computes the norm as a function of x that stays differentiable where it is 0.
  static Tensor safe_norm(const Tensor& x, const Attr& attr) {
    if (attr.p == 1 || std::isinf(attr.p)) return norm_formula(x, attr.p, attr.dims, true);
    return norm(x, attr.p, attr.dims, true);
  }
};

// Returns the distances of all pairs by differences: [..., P, R].
Tensor all_distances(const Tensor& a, const Tensor& b, double p) { return norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, {-1}); }

// a: [B, P, M], b: [B, R, M] -> [B, P, R]; inputs f32 or f64.
struct Cdist {
  struct Attr {
    double p;
    CdistMode mode;
  };
  static constexpr OpInfo info{
      .name = "cdist", .policy = CastPolicy::f32, .doc = "distances between all rows of a [P, M] and b [R, M]"};
  static constexpr int64_t kProductRows = 25;                // more rows use a matrix product, as in PyTorch
  static constexpr int64_t kDifferences = int64_t(1) << 22;  // elements of differences at a time

  enum Saved : size_t { kA, kB, kDistances };
  static Attributes describe(const Attr& attr) { return {{"p", attr.p}}; }
  static Tensor forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const Tensor &a = in[0], &b = in[1];
    const int64_t batch = a.size(0), rows = a.size(1), columns = b.size(1), width = a.size(2);
    Tensor out;
    const bool product =
        attr.mode == CdistMode::mm || (attr.mode == CdistMode::mm_if_necessary && std::max(rows, columns) > kProductRows);
    if (attr.p == 2 && product) {
      const Tensor squares = sum(square(a), {2}, true) + sum(square(b), {2}, true).transpose(1, 2);
      out = sqrt(relu(squares - bmm(a, b.transpose(1, 2)) * 2.0));
    } else {
      out = Tensor::empty({batch, rows, columns}, {.dtype = a.dtype(), .device = a.device()});
      const int64_t step = std::max<int64_t>(1, kDifferences / std::max<int64_t>(1, batch * columns * width));
      for (int64_t r = 0; r < rows; r += step) {
        const int64_t n = std::min(step, rows - r);
        out.narrow(1, r, n).copy_(all_distances(a.narrow(1, r, n), b, attr.p));
      }
    }
    ctx.save(a);
    ctx.save(b);
    ctx.save_output(out);
    return out;
  }
  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const Tensor a = ctx.saved(kA), b = ctx.saved(kB), y = ctx.saved(kDistances);
    Tensors result(2);
    if (attr.p == 2) {  // da = sum_j g_ij (a_i - b_j) / y_ij
      const Tensor is_zero = eq(y, 0.0), w = where(is_zero, 0.0, grads[0] / where(is_zero, 1.0, y));
      if (ctx.needs(0)) result[0] = a * sum(w, {2}).unsqueeze(2) - bmm(w, b);
      if (ctx.needs(1)) result[1] = b * sum(w, {1}).unsqueeze(2) - bmm(w.transpose(1, 2), a);
      return result;
    }
    if (std::isinf(attr.p)) {  // each of several largest differences gets the whole gradient, as in PyTorch
      const Tensor d = a.unsqueeze(2) - b.unsqueeze(1), w = where(eq(abs(d), y.unsqueeze(3)), sign(d), 0.0) * grads[0].unsqueeze(3);
      return {sum(w, {2}), neg(sum(w, {1}))};
    }
    const EnableGrad on;
    const Tensor x = a.detach(), z = b.detach();
    x.set_requires_grad();
    z.set_requires_grad();
    const Tensors got = grad({all_distances(x, z, attr.p)}, {x, z}, {grads[0]});
    for (size_t i = 0; i < 2; ++i) result[i] = got[i];
    return result;
  }
  static Tensor composite(const Attr& attr, const Tensors& in) { return all_distances(in[0], in[1], attr.p); }
};

constexpr OpInfo kNormalize{.name = "normalize", .policy = CastPolicy::f32, .doc = "x / max(|x|_p, eps) along a dimension"};
constexpr OpInfo kDist{.name = "dist", .policy = CastPolicy::f32, .doc = "|a - b|_p over all elements"};
constexpr OpInfo kPairwise{
    .name = "pairwise_distance", .policy = CastPolicy::f32, .doc = "|a - b + eps|_p along the last dimension"};
constexpr OpInfo kPdist{.name = "pdist", .policy = CastPolicy::f32, .doc = "distances between all pairs of rows"};
constexpr OpInfo kCosine{.name = "cosine_similarity", .policy = CastPolicy::f32, .doc = "a b / (|a| |b|) along a dimension"};
constexpr OpInfo kRenorm{.name = "renorm", .policy = CastPolicy::f32, .doc = "slices scaled down to a largest norm"};

}  // namespace

Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  return call<Norm>({x}, {p, dims, keepdim, dtype});
}

Tensor normalize(const Tensor& x, double p, const Dims& dims, double eps) {
  check_floating("normalize", {x});
  return composite(kNormalize, {x}, [&](const Tensors& in) {
    const Tensor size = norm(in[0], p, dims, true);
    return in[0] / where(lt(size, eps), eps, size);
  });
}

Tensor dist(const Tensor& a, const Tensor& b, double p) {
  check_floating("dist", {a, b});
  broadcast(a.shape(), b.shape(), "dist");
  return composite(kDist, {a, b}, [&](const Tensors& in) { return norm(in[0] - in[1], p); });
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p, double eps, bool keepdim) {
  check<ShapeError>(broadcast(a.shape(), b.shape(), "pairwise_distance").size() > 0, "pairwise_distance",
                    "needs at least 1 dimension, got ", a.shape(), " and ", b.shape());
  return composite(kPairwise, {in_floats(a), in_floats(b)},
                   [&](const Tensors& in) { return norm(in[0] - in[1] + eps, p, {-1}, keepdim); });
}

Tensor cdist(const Tensor& a, const Tensor& b, double p, CdistMode mode) {
  check_floating("cdist", {a, b});
  check_p("cdist", p);
  check<ShapeError>(a.dim() >= 2 && b.dim() >= 2, "cdist", "both inputs must have at least 2 dimensions, got ", a.shape(), " and ",
                    b.shape());
  check<ShapeError>(a.size(-1) == b.size(-1), "cdist", "rows must have one length, got ", a.shape(), " and ", b.shape());
  Shape a_batch = a.shape(), b_batch = b.shape();
  for (Shape* s : {&a_batch, &b_batch}) s->erase(s->size() - 1), s->erase(s->size() - 1);
  const Shape batch = broadcast(a_batch, b_batch, "cdist");
  const auto with = [&](int64_t rows, int64_t columns) {
    Shape s = batch;
    s.push_back(rows), s.push_back(columns);
    return s;
  };
  const int64_t n = numel(batch), rows = a.size(-2), columns = b.size(-2), width = a.size(-1);
  return composite(Cdist::info, {a, b}, [&](const Tensors& in) {
    check_same_dtype("cdist", in);
    const Tensor x = in[0].expand(with(rows, width)).reshape({n, rows, width});
    const Tensor y = in[1].expand(with(columns, width)).reshape({n, columns, width});
    return call<Cdist>({x, y}, {p, mode}).reshape(with(rows, columns));
  });
}

Tensor pdist(const Tensor& x, double p) {
  check_floating("pdist", {x});
  check_p("pdist", p);
  check<ShapeError>(x.dim() == 2, "pdist", "input must be [N, M], got ", x.shape());
  const int64_t n = x.size(0);
  constexpr int64_t kMostRows = 65536;  // 2^31 pairs
  check<ShapeError>(n <= kMostRows, "pdist", "takes at most ", kMostRows, " rows, got ", x.shape());
  const int64_t pairs = n * (n - 1) / 2;
  std::vector<int64_t> first, second;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n; ++j) first.push_back(i), second.push_back(j);
  const Tensor left = from_vector(first, {pairs}, x.device()), right = from_vector(second, {pairs}, x.device());
  return composite(kPdist, {x}, [&](const Tensors& in) {
    const auto rows = [&](const Tensor& index) { return in[0].gather(0, index.unsqueeze(1).expand({pairs, in[0].size(1)})); };
    return norm(rows(left) - rows(right), p, {1});
  });
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim, double eps) {
  check_floating("cosine_similarity", {a, b});
  check<ValueError>(eps >= 0, "cosine_similarity", "eps must be at least 0, got ", eps);
  const Shape shape = broadcast(a.shape(), b.shape(), "cosine_similarity");
  wrap_dim(dim, shape.size(), "cosine_similarity");
  return composite(kCosine, {a, b}, [&](const Tensors& in) {
    const Tensor x = in[0].expand(shape), y = in[1].expand(shape);
    // Clamps the divisor outside of the graph, as PyTorch does: below eps its value is constant, but its gradient still counts.
    const auto unit = [&](const Tensor& t) {
      const Tensor size = norm(t, 2, {dim}, true);
      return t / where(lt(size, eps), eps, size);
    };
    return sum(unit(x) * unit(y), {dim});
  });
}

Tensor renorm(const Tensor& x, double p, int64_t dim, double maxnorm) {
  check_floating("renorm", {x});
  check<ValueError>(p > 0, "renorm", "p must be greater than 0, got ", p);
  check<ValueError>(maxnorm >= 0, "renorm", "maxnorm must be at least 0, got ", maxnorm);
  check<ShapeError>(x.dim() >= 2, "renorm", "input must have at least 2 dimensions, got ", x.shape());
  const int kept = wrap_dim(dim, x.dim(), "renorm");
  Dims dims;
  for (int i = 0; i < x.dim(); ++i)
    if (i != kept) dims.push_back(i);
  return composite(kRenorm, {x}, [&](const Tensors& in) {
    constexpr double kEps = 1e-7;  // as in PyTorch
    const Tensor size = norm(in[0], p, dims, true), large = gt(size, maxnorm);
    return in[0] * where(large, div(maxnorm, where(large, size, 1.0) + kEps), 1.0);
  });
}

Tensor Tensor::norm(double p, const Dims& dims, bool keepdim, std::optional<DType> dtype) const {
  return halfstep::norm(*this, p, dims, keepdim, dtype);
}
Tensor Tensor::dist(const Tensor& other, double p) const { return halfstep::dist(*this, other, p); }
Tensor Tensor::renorm(double p, int64_t dim, double maxnorm) const { return halfstep::renorm(*this, p, dim, maxnorm); }

namespace {

// Returns the sum of a matrix's singular values.
Tensor nuclear_norm(std::string_view op, const Tensor& given, Dims dims, bool keepdim, std::optional<DType> dtype) {
  check<ValueError>(given.defined(), op, "the input is undefined");
  if (dims.empty()) dims = {-2, -1};
  check<ShapeError>(dims.size() == 2 && given.dim() >= 2, op, "the norm nuc needs a matrix, or two dimensions of one, got dims ",
                    dims, " of ", given.shape());
  const int rows = wrap_dim(dims[0], given.dim(), op), columns = wrap_dim(dims[1], given.dim(), op);
  check<ValueError>(rows != columns, op, "the norm nuc needs two dimensions that differ, got ", dims);
  const Tensor x = dtype ? given.to(*dtype) : given;
  const Tensor matrices =
      x.movedim(rows, -1).movedim(columns - (rows < columns ? 1 : 0), -1);  // the transpose has the same singular values
  const Tensor sum = under_name(op, [&] { return linalg::svdvals(matrices).sum(-1); });
  return keepdim ? sum.unsqueeze(std::min(rows, columns)).unsqueeze(std::max(rows, columns)) : sum;
}

}  // namespace

void add_distances(OpList& list) {
  const auto by_name = [](Args& a) {
    const nlohmann::json* p = a.raw("p");
    const std::string name = p && p->is_string() ? p->get<std::string>() : "";
    const bool is_number = name.empty() || name == "fro" || name == "inf" || name == "-inf";
    check<ValueError>(is_number || name == "nuc", a.op(), "'p' must be a number, \"inf\", \"-inf\", \"fro\" or \"nuc\", got \"",
                      name, '"');
    if (name == "nuc") return nuclear_norm(a.op(), a.tensor(0), a.ints("dim", Dims()), a.flag("keepdim", false), a.dtype());
    return norm(a.tensor(0), name == "fro" ? 2 : a.number("p", 2), a.ints("dim", Dims()), a.flag("keepdim", false), a.dtype());
  };
  list.add(Norm::info, by_name);
  list.add(kNormalize,
           [](Args& a) { return normalize(a.tensor(0), a.number("p", 2), a.ints("dim", Dims{1}), a.number("eps", 1e-12)); });
  list.add(kDist, [](Args& a) { return dist(a.tensor(0), a.tensor(1), a.number("p", 2)); });
  list.add(kPairwise, [](Args& a) {
    return pairwise_distance(a.tensor(0), a.tensor(1), a.number("p", 2), a.number("eps", 1e-6), a.flag("keepdim", false));
  });
  list.add(Cdist::info, [](Args& a) {
    constexpr std::string_view kModes[] = {"use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist",
                                           "donot_use_mm_for_euclid_dist"};
    const std::string mode = a.text("compute_mode", std::string(kModes[0]));
    const auto found = std::find(std::begin(kModes), std::end(kModes), mode);
    check<ValueError>(found != std::end(kModes), "cdist", "'compute_mode' must be ", kModes[0], ", ", kModes[1], " or ", kModes[2],
                      ", got '", mode, "'");
    return cdist(a.tensor(0), a.tensor(1), a.number("p", 2), CdistMode(found - std::begin(kModes)));
  });
  list.add(kPdist, [](Args& a) { return pdist(a.tensor(0), a.number("p", 2)); });
  list.add(kCosine,
           [](Args& a) { return cosine_similarity(a.tensor(0), a.tensor(1), a.integer("dim", 1), a.number("eps", 1e-8)); });
  list.add(kRenorm, [](Args& a) { return renorm(a.tensor(0), a.number("p"), a.integer("dim"), a.number("maxnorm")); });
  list.alias("linalg_vector_norm", "norm", [](Args& a) -> Tensors {
    return {norm(a.tensor(0), a.number("ord", 2), a.ints("dim", Dims()), a.flag("keepdim", false), a.dtype())};
  });
  list.alias("frobenius_norm", "norm");
}

}  // namespace halfstep
