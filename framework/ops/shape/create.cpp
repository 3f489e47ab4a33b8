// SPDX-License-Identifier: Apache-2.0
// New tensors, and random numbers.
#include "framework/ops/shape/create.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "framework/base/draws.h"
#include "framework/base/exact_text.h"
#include "framework/math/random.h"
#include "framework/ops/core/call.h"
#include "framework/ops/core/in_place.h"
#include "framework/ops/core/promotion.h"
#include "framework/ops/core/registry.h"
#include "framework/ops/ops.h"
#include "framework/ops/shape/class_draws.h"
#include "framework/ops/shape/twister_draws.h"
#include "framework/ops/shape/views.h"

namespace halfstep {
namespace {

// Sets requires_grad if the options have it, and returns t.
Tensor with_grad(const Tensor& t, const TensorOptions& options) {
  if (options.requires_grad) t.set_requires_grad();
  return t;
}
Tensor uninitialised(const Shape& shape, const TensorOptions& options) {
  return Tensor::empty(shape, {.dtype = options.dtype, .device = options.device, .format = options.format});
}
void check_floating_dtype(std::string_view op, DType dtype) {
  check<DTypeError>(is_floating(dtype), op, "needs a floating dtype, got ", dtype);
}
Generator& generator_or_default(Generator* generator) { return generator ? *generator : default_generator(); }
// Returns the generator of a draw if it draws PyTorch's numbers, else null.
Generator* twister_of(Generator* generator) {
  return generator_or_default(generator).kind() == GeneratorKind::mt19937 ? &generator_or_default(generator) : nullptr;
}

// Fills t with the numbers of a draw; fill(view, state) writes those from the block at `state` on. If the draw begins inside its
// block, because earlier rows have the first numbers, those are generated as well, and left out.
template <class F>
void fill_drawn(const Tensor& t, const Draw& from, const F& fill) {
  if (from.skip == 0) return fill(t.view(), from.state);
  const Tensor all = uninitialised({from.skip + t.numel()}, {.dtype = t.dtype(), .device = t.device()});
  fill(all.view(), from.state);
  backend_for(t.device()).copy(all.alias(t.shape(), contiguous_strides(t.shape()), from.skip).view(), t.view());
}

// y = x f, where f is 0 with probability p, else 1 / (1 - p): dx = g f.
struct Dropout {
  struct Attr {
    double p;
    Draw from;
    Tensor factors;  // f, if a generator of kind mt19937 drew it; else undefined, and kernels compute it from `from`
  };
  static constexpr OpInfo info{
      .name = "dropout", .policy = CastPolicy::keep, .doc = "zeroes with probability p, scales the rest by 1/(1-p)"};
  static Attributes describe(const Attr& attr) { return {{"p", attr.p}}; }
  // Gives elements their numbers in row-major order, whatever their order in memory.
  static Tensor forward(OpContext&, const Attr& attr, const Tensors& in) {
    if (attr.factors.defined()) return mul(in[0], attr.factors.to(in[0].dtype()));
    const Tensor out = uninitialised(in[0].shape(), {.dtype = in[0].dtype(), .device = in[0].device()});
    Backend& backend = backend_for(out.device());
    if (attr.from.skip == 0) {
      backend.dropout(in[0].view(), out.view(), attr.p, attr.from.state);
      return out.to(in[0].format());
    }
    const Tensor padded = zeros({attr.from.skip + out.numel()}, {.dtype = out.dtype(), .device = out.device()});
    const Tensor part = padded.alias(out.shape(), contiguous_strides(out.shape()), attr.from.skip);
    backend.copy(in[0].view(), part.view());
    backend.dropout(padded.view(), padded.view(), attr.p, attr.from.state);
    backend.copy(part.view(), out.view());
    return out.to(in[0].format());
  }
  // Multiplies by the same factors, from the same numbers.
  static Tensors backward(const BackwardContext&, const Attr& attr, const Tensors& grads) {
    return {call<Dropout>({grads[0]}, attr)};
  }
};

constexpr OpInfo creation_info(std::string_view name, std::string_view doc, DTypeSet dtypes = DTypeSet::any) {
  return {.name = name, .doc = doc, .differentiable = false, .dtypes = dtypes};
}
constexpr OpInfo kZeros = creation_info("zeros", "a tensor of zeros"), kOnes = creation_info("ones", "a tensor of ones");
constexpr OpInfo kFull = creation_info("full", "a tensor of one value"),
                 kFullLike = creation_info("full_like", "full of x's shape, dtype and device");
constexpr OpInfo kZerosLike = creation_info("zeros_like", "zeros of x's shape, dtype and device");
constexpr OpInfo kOnesLike = creation_info("ones_like", "ones of x's shape, dtype and device");
constexpr OpInfo kArange = creation_info("arange", "start + i step, below end"),
                 kEye = creation_info("eye", "ones on the diagonal, else zeros");
constexpr OpInfo kLinspace = creation_info("linspace", "evenly spaced numbers from start to end");
constexpr OpInfo kLogspace = creation_info("logspace", "base to the power of linspace");
constexpr OpInfo kRand = creation_info("rand", "uniform in [0, 1)"),
                 kRandLike = creation_info("rand_like", "rand of x's shape, dtype and device", DTypeSet::floating);
constexpr OpInfo kRandn = creation_info("randn", "standard normal"),
                 kRandnLike = creation_info("randn_like", "randn of x's shape, dtype and device", DTypeSet::floating);
constexpr OpInfo kRandint = creation_info("randint", "integers in [low, high)"),
                 kRandperm = creation_info("randperm", "the numbers below n in random order");
constexpr OpInfo kNormal = creation_info("normal", "normal with this mean and standard deviation");
constexpr OpInfo kBernoulli = creation_info("bernoulli", "1 with probability p, else 0", DTypeSet::floating);
constexpr OpInfo kMultinomial = creation_info("multinomial", "classes drawn by their weights", DTypeSet::floating);

Shape sizes(Args& a) {
  const Shape shape = a.ints("size");
  check_size(a.op(), shape);
  return shape;
}

Tensor filled(const Shape& shape, Number value, const TensorOptions& options, std::string_view op = kFull.name) {
  check_fits(op, value, options.dtype);
  const Tensor t = uninitialised(shape, options);
  fill(t, value);
  return with_grad(t, options);
}

// Reads a number by its name, or from the 0-dim tensor at `position`, whose value the host reads.
double number_at(Args& a, size_t position, std::string_view name) {
  if (!a.has_tensor(position)) return a.number(name);
  const Tensor t = a.tensor(position);
  check<ShapeError>(t.dim() == 0, a.op(), "'", name, "' must be a number or a 0-dim tensor, got ", t.shape());
  check_has_values(a.op(), {t});
  return t.item<double>();
}

}  // namespace

Tensor empty(const Shape& shape, const TensorOptions& options) { return Tensor::empty(shape, options); }
Tensor full(const Shape& shape, Number value, const NumberOptions& options) {
  return filled(
      shape, value,
      {.dtype = options.dtype.value_or(value.natural_dtype()), .device = options.device, .requires_grad = options.requires_grad});
}
Tensor zeros(const Shape& shape, const TensorOptions& options) { return filled(shape, 0, options); }
Tensor ones(const Shape& shape, const TensorOptions& options) { return filled(shape, 1, options); }
Tensor scalar(Number value, const TensorOptions& options) { return filled({}, value, options); }
Tensor zeros_like(const Tensor& x) { return zeros_like(x, x.dtype()); }
Tensor ones_like(const Tensor& x) { return ones_like(x, x.dtype()); }
Tensor empty_like(const Tensor& x) { return empty_like(x, x.dtype()); }

Tensor from_blob(void* data, const Shape& shape, DType dtype) {
  check<ValueError>(data || numel(shape) == 0, "from_blob", "the memory is a null pointer");
  check_size("from_blob", shape);
  return Tensor::from_blob(data, shape, dtype, nullptr);
}

Tensor zeros_like(const Tensor& x, DType dtype) {
  return zeros(x.shape(), {.dtype = dtype, .device = x.device(), .format = x.format()});
}
Tensor ones_like(const Tensor& x, DType dtype) {
  return ones(x.shape(), {.dtype = dtype, .device = x.device(), .format = x.format()});
}
Tensor empty_like(const Tensor& x, DType dtype) {
  return empty(x.shape(), {.dtype = dtype, .device = x.device(), .format = x.format()});
}
Tensor full_like(const Tensor& x, Number value, std::optional<DType> dtype) {
  return filled(x.shape(), value, {.dtype = dtype.value_or(x.dtype()), .device = x.device(), .format = x.format()}, kFullLike.name);
}

Tensor arange(Number first, Number last, Number by, const NumberOptions& options) {
  const double start = first.floating(), end = last.floating(), step = by.floating();
  const double count = std::ceil((end - start) / step);
  check<ValueError>(step != 0 && (end - start) / step >= 0 && std::isfinite(start) && std::isfinite(end), "arange", "step ",
                    exact_text(step), " does not lead from ", exact_text(start), " to ", exact_text(end));
  check<ValueError>(count < 0x1p53, "arange", "too many elements from ", start, " to ", end, " in steps of ", step);
  const bool integers = !first.is_floating() && !last.is_floating() && !by.is_floating();
  const TensorOptions chosen{.dtype = options.dtype.value_or(integers ? DType::i64 : DType::f32),
                             .device = options.device,
                             .requires_grad = options.requires_grad};
  // For integers, PyTorch truncates start and step, not each element.
  const bool to_integers = !is_floating(chosen.dtype);
  if (integers && to_integers &&
      std::max({std::fabs(start), std::fabs(end), std::fabs(step)}) > 0x1p53) {  // double would round these
    using Wide = __int128;
    const Wide span = Wide(last.whole()) - first.whole(), stride = by.whole(), round_up = stride > 0 ? stride - 1 : stride + 1;
    const NumberOptions exact{.dtype = DType::i64, .device = options.device};
    return (arange(0, int64_t((span + round_up) / stride), 1, exact) * by + first).to(chosen.dtype);
  }
  const Tensor t = uninitialised({int64_t(count)}, chosen);
  backend_for(options.device).arange(t.view(), to_integers ? std::trunc(start) : start, to_integers ? std::trunc(step) : step);
  return with_grad(t, chosen);
}

Tensor linspace(double start, double end, int64_t steps, const TensorOptions& options) {
  check_size("linspace", {steps});
  for (const double end_point : {start, end}) check_fits("linspace", end_point, options.dtype);
  if (!is_floating(options.dtype))
    start = std::trunc(start), end = std::trunc(end);  // as in PyTorch; each element is truncated, too
  const Tensor index = arange(double(steps), {.dtype = DType::f64, .device = options.device});
  const double step = steps > 1 ? (end - start) / double(steps - 1) : 0;
  // Computes from both ends, so that both are exact.
  const Tensor t =
      where(lt(index, double(steps / 2)), add(mul(index, step), start), sub(end, mul(sub(double(steps - 1), index), step)));
  return with_grad(steps == 1 ? full({1}, start, {.dtype = options.dtype, .device = options.device}) : t.to(options.dtype),
                   options);
}
Tensor logspace(double start, double end, int64_t steps, double base, const TensorOptions& options) {
  check_size("logspace", {steps});
  const autocast::Off off;
  return with_grad(pow(base, linspace(start, end, steps, {.dtype = DType::f64, .device = options.device})).to(options.dtype),
                   options);
}

Tensor eye(int64_t n, int64_t m, const TensorOptions& options) {
  check_size("eye", {n, m});
  const Tensor t = zeros({n, m}, {.dtype = options.dtype, .device = options.device});
  const int64_t ones = std::min(n, m);
  backend_for(options.device).fill(t.alias({ones}, {m + 1}).view(), 1);
  return with_grad(t, options);
}
Tensor eye(int64_t n, const TensorOptions& options) { return eye(n, n, options); }

Tensor tensor(const std::vector<double>& values, const Shape& shape, const TensorOptions& options) {
  if (!is_floating(options.dtype))
    for (const double v : values) check_fits("tensor", v, options.dtype);
  return with_grad(from_vector(values, shape, options.device).to(options.dtype), options);
}

namespace {

// Checks the numbers of a draw into x, and that its elements have memory each.
void check_uniform(const Tensor& x, double lo, double hi) {
  constexpr std::string_view op = "uniform_";
  check_floating_dtype(op, x.dtype());
  check<ValueError>(std::isfinite(lo) && std::isfinite(hi) && lo <= hi, op,
                    "the bounds must be finite, and the first not above the second, got ", exact_text(lo), " and ", exact_text(hi));
  for (const double bound : {lo, hi}) check_fits(op, bound, x.dtype());
  check<ValueError>(std::isfinite(hi - lo) && fits(hi - lo, widened(x.dtype())), op, "the bounds are too far apart, got ", lo,
                    " and ", hi);
  check_apart(x, op);
}
void check_normal(const Tensor& x, double stddev) {
  constexpr std::string_view op = "normal_";
  check_floating_dtype(op, x.dtype());
  check<ValueError>(stddev >= 0, op, "the standard deviation must not be negative, got ", stddev);
  check_apart(x, op);
}

}  // namespace

void uniform_(const Tensor& x, double lo, double hi, Generator* generator) {
  check_uniform(x, lo, hi);
  if (Generator* mt19937 = twister_of(generator)) return twister::uniform(*mt19937, x, lo, hi);
  const Tensor t = x.is_contiguous() ? x.detach() : uninitialised(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  fill_drawn(t, draw(generator_or_default(generator), x.numel()),
             [&](const TensorView& v, Generator::State s) { backend_for(x.device()).random_uniform(v, s, lo, hi); });
  if (!x.is_contiguous()) backend_for(x.device()).copy(t.view(), x.view());
  x.bump_version();
}
void normal_(const Tensor& x, double mean, double stddev, Generator* generator) {
  check_normal(x, stddev);
  if (Generator* mt19937 = twister_of(generator)) return twister::normal(*mt19937, x, mean, stddev);
  const Tensor t = x.is_contiguous() ? x.detach() : uninitialised(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  fill_drawn(t, draw(generator_or_default(generator), x.numel()),
             [&](const TensorView& v, Generator::State s) { backend_for(x.device()).random_normal(v, s, mean, stddev); });
  if (!x.is_contiguous()) backend_for(x.device()).copy(t.view(), x.view());
  x.bump_version();
}
const Tensor& Tensor::uniform_(double lo, double hi, Generator* generator) const& {
  halfstep::uniform_(*this, lo, hi, generator);
  return *this;
}
const Tensor& Tensor::normal_(double mean, double stddev, Generator* generator) const& {
  halfstep::normal_(*this, mean, stddev, generator);
  return *this;
}

namespace {

// Returns the exponential time of rate 1 for a uniform number of 0, which rand() draws once in 2^24 numbers, or 2^53 in float64:
// the middle of the times below the next one. With a time of 0 the least likely class would win.
double least_time(DType dtype) { return dtype == DType::f64 ? 0x1p-54 : 0x1p-25; }

}  // namespace

void exponential_(const Tensor& x, double rate, Generator* generator) {
  check_floating_dtype("exponential_", x.dtype());
  check<ValueError>(rate > 0 && std::isfinite(rate), "exponential_", "the rate must be above 0, got ", rate);
  check_apart(x, "exponential_");
  if (Generator* mt19937 = twister_of(generator)) return twister::exponential(*mt19937, x, rate);
  const NoGrad quiet;
  const autocast::Off off;
  const Tensor u = rand(x.shape(), {.dtype = x.dtype() == DType::f64 ? x.dtype() : DType::f32, .device = x.device()}, generator);
  x.detach().copy_(clamp_max(log1p(neg(u)), -least_time(u.dtype())) * (-1 / rate));
}
void random_(const Tensor& x, Generator* generator) {
  check_apart(x, "random_");
  if (Generator* mt19937 = twister_of(generator)) return twister::any_integers(*mt19937, x);
  const auto count = int64_t(std::min(twister::count_of_integers(x.dtype()), (uint64_t(1) << 63) - 1));
  x.detach().copy_(randint(0, count, x.shape(), {.dtype = x.dtype(), .device = x.device()}, generator));
}

Tensor rand(const Shape& shape, const TensorOptions& options, Generator* generator) {
  check_floating_dtype("rand", options.dtype);
  const Tensor t = uninitialised(shape, options);
  uniform_(t, 0, 1, generator);
  return with_grad(t, options);
}
Tensor randn(const Shape& shape, const TensorOptions& options, Generator* generator) {
  check_floating_dtype("randn", options.dtype);
  const Tensor t = uninitialised(shape, options);
  normal_(t, 0, 1, generator);
  return with_grad(t, options);
}
Tensor randint(int64_t lo, int64_t hi, const Shape& shape, const TensorOptions& options, Generator* generator) {
  check<ValueError>(lo < hi, "randint", "the range [", lo, ", ", hi, ") is empty");
  const bool is_bool = options.dtype == DType::boolean;  // fits() lets it take every number, and uint8 negative ones
  check<ValueError>((!is_bool && options.dtype != DType::u8) || (lo >= 0 && hi <= (is_bool ? 2 : 256)), "randint",
                    "the range must lie in that of ", options.dtype, ", got [", lo, ", ", hi, ')');
  for (const int64_t number : {lo, hi - 1}) check_fits("randint", number, options.dtype);
  const Tensor t = uninitialised(shape, options);
  if (Generator* mt19937 = twister_of(generator)) {
    twister::integers(*mt19937, t, lo, hi);
    return with_grad(t, options);
  }
  fill_drawn(t, draw(generator_or_default(generator), t.numel()),
             [&](const TensorView& v, Generator::State s) { backend_for(options.device).random_integers(v, s, lo, hi); });
  return with_grad(t, options);
}
Tensor randint(int64_t hi, const Shape& shape, const TensorOptions& options, Generator* generator) {
  return randint(0, hi, shape, options, generator);
}

Tensor rand_like(const Tensor& x, std::optional<DType> dtype, Generator* generator) {
  check_floating_dtype("rand_like", dtype.value_or(x.dtype()));
  return rand(x.shape(), {.dtype = dtype.value_or(x.dtype()), .device = x.device()}, generator);
}
Tensor randn_like(const Tensor& x, std::optional<DType> dtype, Generator* generator) {
  check_floating_dtype("randn_like", dtype.value_or(x.dtype()));
  return randn(x.shape(), {.dtype = dtype.value_or(x.dtype()), .device = x.device()}, generator);
}

Tensor normal(double mean, double stddev, const Shape& shape, const TensorOptions& options, Generator* generator) {
  check<ValueError>(stddev >= 0, "normal", "the standard deviation must not be negative, got ", stddev);
  check_floating_dtype("normal", options.dtype);
  const Tensor t = uninitialised(shape, options);
  normal_(t, mean, stddev, generator);
  return with_grad(t, options);
}

Tensor bernoulli(const Tensor& p, Generator* generator) {
  check_floating_dtype("bernoulli", p.dtype());
  const NoGrad quiet;
  // Also rejects NaN. On a GPU the check would wait for the device.
  check<ValueError>(!p.device().is_cpu() || all(logical_and(ge(p, 0), le(p, 1))).item<bool>(), "bernoulli",
                    "probabilities must lie in [0, 1]");
  if (Generator* mt19937 = twister_of(generator)) return twister::bernoulli(*mt19937, p);
  const Tensor u = rand(p.shape(), {.device = p.device()}, generator);
  return lt(u, p.detach()).to(p.dtype());
}
Tensor bernoulli(const Tensor& x, double p, Generator* generator) {
  check<ValueError>(p >= 0 && p <= 1, "bernoulli", "p must lie in [0, 1], got ", p);
  const NoGrad quiet;
  if (Generator* mt19937 = twister_of(generator)) {
    const Tensor out = uninitialised(x.shape(), {.dtype = x.dtype(), .device = x.device(), .format = x.format()});
    twister::bernoulli(*mt19937, out, p);
    return out;
  }
  return lt(rand(x.shape(), {.device = x.device()}, generator), p).to(x.dtype());
}

const Tensor& Tensor::bernoulli_(double p, Generator* generator) const& {
  const NoGrad quiet;
  return copy_(halfstep::bernoulli(*this, p, generator));
}

namespace {

// Draws classes with replacement: those whose running sum of weights first exceeds a random share of the whole sum.
Tensor drawn_by_sums(const Tensor& w, int64_t samples, Generator* generator) {
  const int64_t classes = w.size(-1);
  Shape shape = w.shape();
  shape[-1] = samples;
  check_size("multinomial", shape);
  const Tensor parts = rand(shape, {.dtype = DType::f64, .device = w.device()}, generator);
  if (w.device().is_cpu()) return classes_at(w, parts);
  const Tensor sums = cumsum(w.to(DType::f64), -1), shares = parts * sums.narrow(-1, classes - 1, 1);
  const Tensor places = clamp_max(searchsorted(sums, shares, {.right = true}), classes - 1);
  // Sums of parts, joined in another order, may grow by a rounding at a class of weight 0: takes the class before.
  const Tensor order = arange(classes, {.device = w.device()}), possible = where(gt(w, 0), order, 0);
  return gather(cummax(possible, -1).first, -1, places);
}

}  // namespace

Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement, Generator* generator) {
  constexpr std::string_view op = "multinomial";
  check_floating_dtype(op, weights.dtype());
  check<ShapeError>((weights.dim() == 1 || weights.dim() == 2) && weights.shape().back() > 0, op,
                    "weights must be [C] or [N, C], got ", weights.shape());
  const int64_t classes = weights.shape().back();
  check<ValueError>(samples > 0 && (replacement || samples <= classes), op, "cannot draw ", samples, " of ", classes,
                    replacement ? "" : " without replacement");
  const NoGrad quiet;
  const autocast::Off off;
  const Tensor w = weights.detach().to(weights.dtype() == DType::f64 ? DType::f64 : DType::f32);
  if (w.device().is_cpu()) check_weights(op, w, replacement ? 1 : samples, samples);  // on a GPU this would wait for the device
  if (Generator* mt19937 = twister_of(generator)) {
    if (replacement && samples > 1) {
      const Tensor out = twister::multinomial(*mt19937, w.dim() == 1 ? w.unsqueeze(0) : w, samples);
      return w.dim() == 1 ? out.squeeze(0) : out;
    }
    const Tensor times = empty_like(w);
    twister::exponential(*mt19937, times, 1);
    return samples == 1 ? div(w, times).argmax(-1, true) : div(w, times).topk(samples).second;
  }
  if (replacement && samples > 1) return drawn_by_sums(w, samples, generator);
  // Draws an exponential time of rate w for each class: the classes in the order of their times have the required probabilities.
  const Tensor times =
      clamp_min(neg(log(sub(1.0, rand(w.shape(), {.dtype = w.dtype(), .device = w.device()}, generator)))), least_time(w.dtype()));
  const Tensor earliness = div(w, times);  // times of rate 1, so times of rate w are 1 / this
  return samples == 1 ? earliness.argmax(-1, true) : earliness.topk(samples).second;
}

Tensor randperm(int64_t n, Generator* generator) {
  check<ValueError>(n >= 0 && n <= (int64_t(1) << 31), "randperm", "n must lie in [0, 2^31], got ", n);
  if (Generator* mt19937 = twister_of(generator)) {
    std::vector<int64_t> order;
    mt19937->with_twister([&](Twister& numbers) { order = numbers.permutation(n); });
    return from_vector(order, {n}, Device::cpu);
  }
  // Fisher-Yates on the host, from the same stream as everything else.
  const Generator::State state = generator_or_default(generator).reserve(n);
  const Tensor out = Tensor::empty({n}, {.dtype = DType::i64, .device = Device::cpu});
  int64_t* order = out.data_ptr<int64_t>();
  std::iota(order, order + n, 0);
  for (int64_t i = n - 1; i > 0; --i) {
    const uint64_t bits = math::random_bits(state.seed, state.offset, uint64_t(i));
    std::swap(order[i], order[bits * uint64_t(i + 1) >> 32]);  // 32 random bits, scaled to [0, i]
  }
  return out;
}

Tensor dropout(const Tensor& x, double p, bool training, Generator* generator) {
  check<ValueError>(p >= 0 && p <= 1, "dropout", "p must lie in [0, 1], got ", p);
  check<DTypeError>(x.is_floating_point(), "dropout", "needs a floating input, got ", x.dtype());
  if (!training || p == 0) return x;
  if (const Tensor factors = dropout_factors(x, p, generator); factors.defined()) return call<Dropout>({x}, {p, {}, factors});
  return call<Dropout>({x}, {p, draw(generator_or_default(generator), x.numel()), {}});
}
Tensor dropout_factors(const Tensor& x, double p, Generator* generator) {
  Generator* mt19937 = twister_of(generator);
  return mt19937 ? twister::dropout_factors(*mt19937, x, p) : Tensor();
}

namespace {

// Adds the ops that draw random numbers.
void add_draws(OpList& list) {
  list.add(Dropout::info, [](Args& a) { return dropout(a.tensor(0), a.number("p", 0.5), a.flag("training", true)); });
  list.add(kRand, [](Args& a) { return rand(sizes(a), {.dtype = a.dtype().value_or(DType::f32)}); });
  list.add(kRandn, [](Args& a) { return randn(sizes(a), {.dtype = a.dtype().value_or(DType::f32)}); });
  list.add(kRandLike, [](Args& a) { return rand_like(a.tensor(0), a.dtype()); });
  list.add(kRandnLike, [](Args& a) { return randn_like(a.tensor(0), a.dtype()); });
  list.add(kRandint, [](Args& a) {
    const int64_t low = a.integer("low", 0), high = a.integer("high");
    return randint(low, high, sizes(a), {.dtype = a.dtype().value_or(DType::i64)});
  });
  list.add(kRandperm, [](Args& a) { return randperm(a.integer("n")); });
  list.add(kNormal, [](Args& a) {
    const double mean = a.number("mean", 0), stddev = a.number("std", 1);
    return normal(mean, stddev, sizes(a), {.dtype = a.dtype().value_or(DType::f32)});
  });
  list.add(kBernoulli, [](Args& a) {
    const Tensor x = a.tensor(0);
    const auto p = a.number_or_none("p");
    return p ? bernoulli(x, *p) : bernoulli(x);
  });
  list.add(kMultinomial, [](Args& a) {
    const Tensor weights = a.tensor(0);
    const int64_t samples = a.integer("num_samples");
    return multinomial(weights, samples, a.flag("replacement", false));
  });
}

}  // namespace

void add_create(OpList& list) {
  list.add(kZeros, [](Args& a) { return zeros(sizes(a), {.dtype = a.dtype().value_or(DType::f32)}); });
  list.add(kOnes, [](Args& a) { return ones(sizes(a), {.dtype = a.dtype().value_or(DType::f32)}); });
  list.add(kFull, [](Args& a) { return full(sizes(a), a.scalar("fill_value"), {.dtype = a.dtype()}); });
  list.add(kZerosLike, [](Args& a) { return full_like(a.tensor(0), 0, a.dtype()); });
  list.add(kOnesLike, [](Args& a) { return full_like(a.tensor(0), 1, a.dtype()); });
  list.add(kFullLike, [](Args& a) {
    const Tensor x = a.tensor(0);
    return full_like(x, a.scalar("fill_value"), a.dtype());
  });
  list.add(kArange, [](Args& a) {
    const Number start = a.scalar("start", 0), end = a.scalar("end"), step = a.scalar("step", 1);
    return arange(start, end, step, {.dtype = a.dtype()});
  });
  list.add(kEye, [](Args& a) {
    const int64_t n = a.integer("n");
    return eye(n, a.integer("m", n), {.dtype = a.dtype().value_or(DType::f32)});
  });
  list.add(kLinspace, [](Args& a) {
    const double start = number_at(a, 0, "start"), end = number_at(a, 1, "end");
    return linspace(start, end, a.integer("steps"), {.dtype = a.dtype().value_or(DType::f32)});
  });
  list.add(kLogspace, [](Args& a) {
    const double start = number_at(a, 0, "start"), end = number_at(a, 1, "end");
    const int64_t steps = a.integer("steps");
    return logspace(start, end, steps, a.number("base", 10), {.dtype = a.dtype().value_or(DType::f32)});
  });
  add_draws(list);
}

Tensor Tensor::bernoulli(Generator* generator) const { return halfstep::bernoulli(*this, generator); }
Tensor Tensor::multinomial(int64_t samples, bool replacement, Generator* generator) const {
  return halfstep::multinomial(*this, samples, replacement, generator);
}

}  // namespace halfstep
