#include "tests/ops/op_cases.h"

namespace halfstep::testing {
namespace {

Generator& numbers() {
  static Generator g(20);
  return g;
}

// Where the cases' tensors are. Their values are made on the CPU: the same ones everywhere.
Device device = Device::cpu;
Tensor here(const Tensor& t) { return t.to(device).detach(); }

// Uniform in [lo, hi], float64, requires grad.
Tensor in(const Shape& shape, double lo = -2, double hi = 2) {
  const Tensor t = empty(shape, {.dtype = DType::f64});
  uniform_(t, lo, hi, &numbers());
  return here(t).set_requires_grad();
}
Tensor fixed(const Shape& shape, double lo = -2, double hi = 2) { return in(shape, lo, hi).detach(); }
// All values at least 0.05 apart, so that maxima are no ties and differences stay on one side.
Tensor distinct(const Shape& shape) {
  const Tensor order = randperm(numel(shape), &numbers());
  return here((order.to(DType::f64) * 0.05 - 0.97).reshape(shape)).set_requires_grad();
}
Tensor ints(std::vector<int64_t> v, const Shape& shape) { return here(from_vector(v, shape)); }

using Cases = std::vector<OpCase>;

void elementwise(Cases& c) {
#define HS_UNARY(name, policy, kind, saves, forward, derivative, lo, hi, doc)                                          \
  c.push_back({#name, "", [](const Tensors& t) -> Tensors { return {halfstep::name(t[0])}; }, {in({3, 4}, lo, hi)}}); \
  c.push_back({#name, "0-dim", [](const Tensors& t) -> Tensors { return {t[0].name()}; }, {in({}, lo, hi)}});
#define HS_BINARY(name, policy, kind, forward, da, db, lo, hi, doc)                                                                           \
  c.push_back({#name, "", [](const Tensors& t) -> Tensors { return {halfstep::name(t[0], t[1])}; }, {in({3, 4}, lo, hi), in({3, 4}, lo, hi)}}); \
  c.push_back({#name, "broadcast", [](const Tensors& t) -> Tensors { return {t[0].name(t[1])}; }, {in({2, 1, 4}, lo, hi), in({3, 1}, lo, hi)}}); \
  c.push_back({#name, "number", [](const Tensors& t) -> Tensors { return {t[0].name(1.25), halfstep::name(1.25, t[0])}; }, {in({5}, lo, hi)}});
#define HS_TEST(name, forward, doc) \
  c.push_back({#name, "", [](const Tensors& t) -> Tensors { return {halfstep::name(t[0], t[1]), t[0].name(0.5)}; }, {fixed({3, 4}), fixed({4})}, false});
#include "framework/math/elementwise.def"
#undef HS_UNARY
#undef HS_BINARY
#undef HS_TEST
  c.push_back({"pow", "zero base and exponent", [](const Tensors& t) -> Tensors { return {pow(t[0], 2.0), pow(t[0], 3.0)}; }, {in({4})}});
  const Tensor mask = here(tensor({1, 0, 1, 0}, {.dtype = DType::boolean}));
  c.push_back({"where", "", [mask](const Tensors& t) -> Tensors { return {where(mask, t[0], t[1]), where(mask, t[0], 0.5)}; }, {in({3, 4}), in({1, 4})}});
  c.push_back({"where", "clamp", [](const Tensors& t) -> Tensors { return {clamp(t[0], -0.5, 0.75), clamp(t[0], {}, 0.1)}; }, {distinct({4, 5})}});
}

void memory(Cases& c) {
  c.push_back({"to", "", [](const Tensors& t) -> Tensors { return {clone(t[0]), contiguous(t[0].t())}; }, {in({3, 4})}});
  c.push_back({"view", "", [](const Tensors& t) -> Tensors { return {reshape(t[0], {4, -1}), flatten(t[0], 1), unsqueeze(t[0], -1), t[0].unsqueeze(1).squeeze(1)}; }, {in({2, 3, 4})}});
  c.push_back({"view", "of a transposed tensor", [](const Tensors& t) -> Tensors { return {reshape(t[0].t(), {2, 6})}; }, {in({3, 4})}});
  c.push_back({"permute", "", [](const Tensors& t) -> Tensors { return {permute(t[0], {2, 0, 1}), transpose(t[0], 0, -1)}; }, {in({2, 3, 4})}});
  c.push_back({"expand", "", [](const Tensors& t) -> Tensors { return {expand(t[0], {5, 3, 4}), expand(t[1], {-1, 4})}; }, {in({3, 4}), in({3, 1})}});
  c.push_back({"slice", "", [](const Tensors& t) -> Tensors { return {slice(t[0], 1, 1, 7, 3), narrow(t[0], 0, 1, 2), select(t[0], 1, -2), slice(t[0], 0, 2, 2)}; }, {in({3, 8})}});
  c.push_back({"slice_backward", "", [](const Tensors& t) -> Tensors {
                 const EnableGrad on;
                 const Tensor x = zeros({2, 5}, {.dtype = t[0].dtype(), .device = t[0].device(), .requires_grad = true});
                 return {grad({slice(x, 1, 0, 5, 2)}, {x}, {t[0]}, {.create_graph = true})[0]};
               }, {in({2, 3})}});
  c.push_back({"cat", "", [](const Tensors& t) -> Tensors { return {cat({t[0], t[1], t[0]}, 1)}; }, {in({2, 3}), in({2, 1})}});
  c.push_back({"stack", "", [](const Tensors& t) -> Tensors { return {stack({t[0], t[1]}, -1)}; }, {in({2, 3}), in({2, 3})}});
  const Tensor index = ints({0, 2, 1, 1, 0, 2}, {2, 3});
  c.push_back({"gather", "", [index](const Tensors& t) -> Tensors { return {gather(t[0], 1, index), gather(t[0], 0, index.narrow(1, 0, 1) * 0.0)}; }, {in({2, 3})}});
  c.push_back({"scatter_add", "", [index](const Tensors& t) -> Tensors { return {scatter_add(t[0], 0, index, t[1])}; }, {in({3, 3}), in({2, 4})}});
  c.push_back({"dropout", "", [](const Tensors& t) -> Tensors {
                 Generator g(5);
                 return {dropout(t[0], 0.4, true, &g)};
               }, {in({4, 5})}});
}

void products(Cases& c) {
  c.push_back({"mm", "", [](const Tensors& t) -> Tensors { return {mm(t[0], t[1])}; }, {in({3, 4}), in({4, 2})}});
  c.push_back({"mm", "transposed", [](const Tensors& t) -> Tensors { return {mm(t[0].t(), t[1].t())}; }, {in({4, 3}), in({2, 4})}});
  c.push_back({"mm", "empty inner size", [](const Tensors& t) -> Tensors { return {mm(t[0], t[1])}; }, {in({3, 0}), in({0, 2})}});
  c.push_back({"bmm", "", [](const Tensors& t) -> Tensors { return {bmm(t[0], t[1])}; }, {in({2, 3, 4}), in({2, 4, 2})}});
  c.push_back({"matmul", "batches", [](const Tensors& t) -> Tensors { return {matmul(t[0], t[1]), matmul(t[0], t[2])}; }, {in({2, 1, 3, 4}), in({5, 4, 2}), in({4, 3})}});
  c.push_back({"matmul", "vectors", [](const Tensors& t) -> Tensors { return {matmul(t[0], t[0]), matmul(t[1], t[0]), matmul(t[0], t[1].t())}; }, {in({4}), in({3, 4})}});
  c.push_back({"linear", "", [](const Tensors& t) -> Tensors { return {linear(t[0], t[1], t[2])}; }, {in({5, 3}), in({4, 3}), in({4})}});
  c.push_back({"linear", "3-D, no bias", [](const Tensors& t) -> Tensors { return {linear(t[0], t[1])}; }, {in({2, 3, 3}), in({4, 3})}});
  c.push_back({"linear", "relu", [](const Tensors& t) -> Tensors { return {linear(t[0], t[1], t[2], true)}; }, {in({5, 3}), in({4, 3}), in({4})}});
  c.push_back({"mlp", "", [](const Tensors& t) -> Tensors { return {mlp(t[0], {{t[1], t[2]}, {t[3], t[4]}})}; },
               {in({5, 3}, 0.1), in({4, 3}, 0.1), in({4}, 0.1), in({2, 4}, 0.1), in({2}, 0.1)}, true, false, 4});
  c.push_back({"mlp", "one layer, relu", [](const Tensors& t) -> Tensors { return {mlp(t[0], {{t[1], t[2], Activation::relu}})}; }, {in({5, 3}), in({4, 3}), in({4})}});
  c.push_back({"mlp", "relu", [](const Tensors& t) -> Tensors {
                 return {mlp(t[0], {{t[1], t[2], Activation::relu}, {t[3], t[4], Activation::relu}, {t[5], t[6]}})};
               }, {in({5, 3}), in({4, 3}), in({4}), in({6, 4}), in({6}), in({2, 6}), in({2})}, true, false, 16});
  c.push_back({"mlp", "gelu, 3-D, some biases", [](const Tensors& t) -> Tensors {
                 return {mlp(t[0], {{t[1], {}, Activation::gelu}, {t[2], t[3], Activation::gelu}})};
               }, {in({2, 3, 3}), in({4, 3}), in({2, 4}), in({2})}, true, false, 16});
  c.push_back({"addmm", "", [](const Tensors& t) -> Tensors { return {addmm(t[0], t[1], t[2]), addmm(t[0], t[1], t[2], 0.5, -2.0), addmm(t[3], t[1], t[2], 2.0)}; },
               {in({2}), in({3, 4}), in({4, 2}), in({3, 1})}, true, false, 2});
}

void reductions(Cases& c) {
  c.push_back({"sum", "", [](const Tensors& t) -> Tensors { return {sum(t[0]), sum(t[0], {1}), sum(t[0], {0, -1}, true)}; }, {in({2, 3, 4})}, true, false, 2});
  c.push_back({"mean", "", [](const Tensors& t) -> Tensors { return {mean(t[0]), mean(t[0], {-1}, true)}; }, {in({2, 3, 4})}, true, false, 2});
  c.push_back({"amax", "", [](const Tensors& t) -> Tensors { return {amax(t[0]), amax(t[0], {1}), max(t[0], 0).first}; }, {distinct({3, 4})}});
  c.push_back({"amin", "", [](const Tensors& t) -> Tensors { return {amin(t[0]), amin(t[0], {0}, true), min(t[0], -1, true).first}; }, {distinct({3, 4})}});
  c.push_back({"argmax", "", [](const Tensors& t) -> Tensors { return {argmax(t[0]), argmax(t[0], 1), max(t[0], 0).second}; }, {distinct({3, 4}).detach()}, false});
  c.push_back({"argmin", "", [](const Tensors& t) -> Tensors { return {argmin(t[0]), argmin(t[0], 0, true)}; }, {distinct({3, 4}).detach()}, false});
  c.push_back({"any", "", [](const Tensors& t) -> Tensors { return {any(t[0] > t[0]), any(t[0])}; }, {fixed({3})}, false});
  c.push_back({"all", "", [](const Tensors& t) -> Tensors { return {all(t[0] == t[0]), all(t[0] > t[0])}; }, {fixed({3})}, false});
}

void losses(Cases& c) {
  c.push_back({"softmax", "", [](const Tensors& t) -> Tensors { return {softmax(t[0], -1), softmax(t[0], 0)}; }, {in({3, 4})}});
  c.push_back({"log_softmax", "", [](const Tensors& t) -> Tensors { return {log_softmax(t[0], 1), log_softmax(t[0], 0)}; }, {in({3, 4, 2})}});
  const Tensor target = ints({1, 3, -100, 0}, {4}), pixels = ints({0, 1, 2, 1, 1, 0}, {2, 3}), one = ints({2}, {});
  const Tensor weight = here(tensor({0.5, 1.5, 1, 2}, {.dtype = DType::f64}));
  for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
    c.push_back({"cross_entropy", "", [=](const Tensors& t) -> Tensors { return {cross_entropy(t[0], target, {.reduction = r})}; }, {in({4, 4})}, true, false, 2});
    c.push_back({"cross_entropy", "weights and smoothing", [=](const Tensors& t) -> Tensors {
                   return {cross_entropy(t[0], target, {.weight = weight, .reduction = r, .label_smoothing = 0.2})};
                 }, {in({4, 4})}, true, false, 2});
    c.push_back({"nll_loss", "", [=](const Tensors& t) -> Tensors { return {nll_loss(t[0], target, {.weight = weight, .reduction = r})}; }, {in({4, 4}, -3, -0.1)}, true, false, 3});
    c.push_back({"mse_loss", "", [=](const Tensors& t) -> Tensors { return {mse_loss(t[0], t[1], r)}; }, {in({3, 4}), in({3, 4})}, true, false, 2});
  }
  c.push_back({"cross_entropy", "images", [=](const Tensors& t) -> Tensors { return {cross_entropy(t[0], pixels)}; }, {in({2, 3, 3})}, true, false, 2});
  c.push_back({"cross_entropy", "one vector", [one](const Tensors& t) -> Tensors { return {cross_entropy(t[0], one)}; }, {in({4})}, true, false, 2});
  c.push_back({"cross_entropy", "probabilities", [=](const Tensors& t) -> Tensors {
                 return {cross_entropy(t[0], t[1], {.label_smoothing = 0.1}), cross_entropy(t[0], t[1], {.weight = weight, .reduction = Reduction::sum})};
               }, {in({3, 4}), in({3, 4}, 0.1, 0.5)}, true, false, 6});
}

}  // namespace

std::vector<OpCase> op_cases(Device at) {
  numbers().manual_seed(20);
  device = at;
  Cases c;
  elementwise(c);
  memory(c);
  products(c);
  reductions(c);
  losses(c);
  c.push_back({"to_device", "", [](const Tensors& t) -> Tensors { return {to(t[0], Device::cpu)}; }, {in({3})}});
  return c;
}

Tensor spread_out(const Tensor& t) {
  if (t.dim() == 0) return t;
  Shape wide = t.shape();
  Strides strides;
  for (int i = 0; i < wide.size(); ++i) wide[i] *= 2;
  const Tensor big = full(wide, 7, {.dtype = t.dtype(), .device = t.device()});
  for (int i = 0; i < wide.size(); ++i) strides.push_back(big.strides()[i] * 2);
  const Tensor view = big.alias(t.shape(), strides);
  view.copy_(t.detach());
  if (t.requires_grad()) view.set_requires_grad();
  return view;
}

Tensor reversed(const Tensor& t) {
  Dims order;
  for (int i = t.dim() - 1; i >= 0; --i) order.push_back(i);
  const Tensor view = t.detach().permute(order).clone().permute(order).detach();
  if (t.requires_grad()) view.set_requires_grad();
  return view;
}

}  // namespace halfstep::testing
