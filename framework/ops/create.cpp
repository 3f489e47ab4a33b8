// New tensors, and random numbers.
#include <cmath>
#include <numeric>

#include "framework/math/random.h"
#include "framework/ops/call.h"
#include "framework/ops/ops.h"
#include "framework/ops/registry.h"

namespace halfstep {
namespace {

Tensor finish(const Tensor& t, const TensorOptions& o) {
  if (o.requires_grad) t.set_requires_grad();
  return t;
}
Tensor raw(const Shape& shape, const TensorOptions& o) { return Tensor::empty(shape, {.dtype = o.dtype, .device = o.device}); }
Generator& pick(Generator* g) { return g ? *g : default_generator(); }

struct Dropout {
  struct Attr {
    double p;
    Generator::State state;
  };
  static constexpr OpInfo info{.name = "dropout", .policy = CastPolicy::keep, .doc = "zeroes with probability p, scales the rest by 1/(1-p)"};
  static Tensor forward(OpContext&, const Attr& a, const Tensors& in) {
    const Tensor out = raw(in[0].shape(), {.dtype = in[0].dtype(), .device = in[0].device()});
    backend_for(out.device()).dropout(in[0].view(), out.view(), a.p, a.state);
    return out;
  }
  // Linear: the gradient takes the same road with the same numbers.
  static Tensors backward(const OpContext&, const Attr& a, const Tensors& grads) { return {call<Dropout>({grads[0]}, a)}; }
};

}  // namespace

Tensor empty(const Shape& shape, const TensorOptions& o) { return Tensor::empty(shape, o); }
Tensor full(const Shape& shape, double value, const TensorOptions& o) {
  const Tensor t = raw(shape, o);
  backend_for(o.device).fill(t.view(), value);
  return finish(t, o);
}
Tensor zeros(const Shape& shape, const TensorOptions& o) { return full(shape, 0, o); }
Tensor ones(const Shape& shape, const TensorOptions& o) { return full(shape, 1, o); }
Tensor scalar(double value, const TensorOptions& o) { return full({}, value, o); }
Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), {.dtype = x.dtype(), .device = x.device()}); }
Tensor ones_like(const Tensor& x) { return ones(x.shape(), {.dtype = x.dtype(), .device = x.device()}); }
Tensor empty_like(const Tensor& x) { return empty(x.shape(), {.dtype = x.dtype(), .device = x.device()}); }

Tensor arange(double start, double end, double step, const TensorOptions& o) {
  check<ValueError>(step != 0 && (end - start) / step >= 0, "arange", "step ", step, " does not lead from ", start, " to ", end);
  const Tensor t = raw({int64_t(std::ceil((end - start) / step))}, o);
  backend_for(o.device).arange(t.view(), start, step);
  return finish(t, o);
}
Tensor arange(double end, const TensorOptions& o) { return arange(0, end, 1, o); }

Tensor eye(int64_t n, const TensorOptions& o) {
  const Tensor t = zeros({n, n}, {.dtype = o.dtype, .device = o.device});
  backend_for(o.device).fill(t.alias({n}, {n + 1}).view(), 1);
  return finish(t, o);
}

Tensor tensor(const std::vector<double>& values, const Shape& shape, const TensorOptions& o) {
  return finish(from_vector(values, shape, o.device).to(o.dtype), o);
}
Tensor tensor(std::initializer_list<double> values, const TensorOptions& o) {
  return tensor(std::vector<double>(values), {int64_t(values.size())}, o);
}

void uniform_(const Tensor& x, double lo, double hi, Generator* g) {
  const Tensor t = x.is_contiguous() ? x.detach() : empty_like(x);
  backend_for(x.device()).random_uniform(t.view(), pick(g).reserve(x.numel()), lo, hi);
  if (!x.is_contiguous()) backend_for(x.device()).copy(t.view(), x.view());
  x.bump_version();
}
void normal_(const Tensor& x, double mean, double stddev, Generator* g) {
  const Tensor t = x.is_contiguous() ? x.detach() : empty_like(x);
  backend_for(x.device()).random_normal(t.view(), pick(g).reserve(x.numel()), mean, stddev);
  if (!x.is_contiguous()) backend_for(x.device()).copy(t.view(), x.view());
  x.bump_version();
}

Tensor rand(const Shape& shape, const TensorOptions& o, Generator* g) {
  const Tensor t = raw(shape, o);
  uniform_(t, 0, 1, g);
  return finish(t, o);
}
Tensor randn(const Shape& shape, const TensorOptions& o, Generator* g) {
  const Tensor t = raw(shape, o);
  normal_(t, 0, 1, g);
  return finish(t, o);
}
Tensor randint(int64_t lo, int64_t hi, const Shape& shape, const TensorOptions& o, Generator* g) {
  check<ValueError>(lo < hi, "randint", "the range [", lo, ", ", hi, ") is empty");
  const Tensor t = raw(shape, o);
  backend_for(o.device).random_integers(t.view(), pick(g).reserve(t.numel()), lo, hi);
  return finish(t, o);
}

Tensor randperm(int64_t n, Generator* g) {
  // Fisher-Yates on the host, from the same stream as everything else.
  const Generator::State state = pick(g).reserve(n);
  std::vector<int64_t> p(size_t(n), 0);
  std::iota(p.begin(), p.end(), 0);
  for (int64_t i = n - 1; i > 0; --i) {
    const uint64_t bits = math::random_bits(state.seed, state.offset, uint64_t(i));
    std::swap(p[size_t(i)], p[size_t(bits * uint64_t(i + 1) >> 32)]);
  }
  return from_vector(p, {n});
}

Tensor dropout(const Tensor& x, double p, bool training, Generator* g) {
  check<ValueError>(p >= 0 && p <= 1, "dropout", "p must lie in [0, 1], got ", p);
  check<DTypeError>(x.is_floating_point(), "dropout", "needs a floating input, got ", x.dtype());
  if (!training || p == 0) return x;
  return call<Dropout>({x}, {p, pick(g).reserve(x.numel())});
}

void add_create(OpList& list) {
  list.add(Dropout::info, [](Args& a) { return dropout(a.tensor(0), a.number("p", 0.5), a.flag("training", true)); });
}

}  // namespace halfstep
