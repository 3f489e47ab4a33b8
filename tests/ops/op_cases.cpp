// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/op_cases.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/ops/core/registry.h"
#include "tests/support/source_dir.h"

namespace halfstep::testing {
namespace {

using Json = nlohmann::json;
using Cases = std::vector<OpCase>;

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
// All values at least 0.05 apart, so that maxima are no ties and differences stay on one side.
Tensor distinct(const Shape& shape) {
  const Tensor order = randperm(numel(shape), &numbers());
  return here((order.to(DType::f64) * 0.05 - 0.97).reshape(shape)).set_requires_grad();
}

Shape shape_of(const Json& j) { return Shape(std::span<const int64_t>(j.get<std::vector<int64_t>>())); }

void flatten_into(const Json& j, std::vector<double>& out) {
  if (j.is_array()) {
    for (const Json& x : j) flatten_into(x, out);
  } else {
    out.push_back(j == "inf"    ? std::numeric_limits<double>::infinity()
                  : j == "-inf" ? -std::numeric_limits<double>::infinity()
                  : j == "nan"  ? std::nan("")
                                : j.get<double>());
  }
}

Tensor tensor_of(const Json& spec) {
  if (spec.is_array()) return in(shape_of(spec));
  Tensor t;
  if (spec.contains("values")) {
    std::vector<double> values;
    flatten_into(spec.at("values"), values);
    const Shape shape = spec.contains("shape") ? shape_of(spec.at("shape")) : Shape{int64_t(values.size())};
    t = here(tensor(values, shape, {.dtype = parse_dtype(spec.value("dtype", "float64")).value()}));
    if (spec.value("grad", false)) t.set_requires_grad();
    return t;
  }
  const Shape shape = shape_of(spec.at("shape"));
  t = spec.value("distinct", false) ? distinct(shape) : in(shape, spec.value("lo", -2.0), spec.value("hi", 2.0));
  return spec.value("grad", true) ? t : t.detach();
}

// The arguments of a case, with tensors to be filled in from the flat list of inputs, or (constant) from here.
struct Slot {
  Tensor constant;
  int input = -1;
};
struct Argument {
  std::vector<Slot> slots;
  bool is_list = false;
};

OpCase from_json(const Json& j) {
  numbers().manual_seed(std::hash<std::string>()(j.value("op", "") + j.value("name", "")));  // whatever cases come before
  OpCase c{.op = j.at("op"), .variant = j.value("name", ""), .run = {}, .inputs = {}};
  c.gradient = j.value("gradient", true);
  c.second_gradient = !j.value("slow_gradient", false);
  c.ulps = j.value("ulps", 1.0);
  c.always_f64 = j.value("float64", false);
  std::vector<Argument> arguments;
  const auto slot = [&](const Json& spec) -> Slot {
    const Tensor t = tensor_of(spec);
    if (spec.is_object() && spec.value("constant", false)) {
      c.constants = true;
      return {t.detach(), -1};
    }
    c.inputs.push_back(c.gradient ? t : t.detach());
    return {{}, int(c.inputs.size()) - 1};
  };
  for (const Json& spec : j.at("in")) {
    Argument a;
    a.is_list = spec.is_object() && spec.contains("list");
    if (a.is_list) {
      for (const Json& s : spec.at("list")) a.slots.push_back(s.is_null() ? Slot{} : slot(s));
    } else if (!spec.is_null()) {
      a.slots.push_back(slot(spec));
    }
    arguments.push_back(a);
  }
  const Json attrs = j.value("attrs", Json::object());
  const bool sampled = j.value("sampled", false);
  c.run = [op = c.op, arguments, attrs, sampled](const Tensors& inputs) {
    if (sampled) manual_seed(5);
    std::vector<TensorArgument> given;
    for (const Argument& a : arguments) {
      TensorArgument g{.is_list = a.is_list};
      for (const Slot& s : a.slots) {
        const Tensor t = s.input < 0 ? s.constant : inputs[size_t(s.input)];
        if (a.is_list)
          g.many.push_back(t);
        else
          g.one = t;
      }
      given.push_back(g);
    }
    return invoke(op, given, attrs);
  };
  return c;
}

void elementwise(Cases& c) {
#define HS_UNARY(name, policy, kind, saves, forward, derivative, lo, hi, doc)                                         \
  c.push_back({#name, "", [](const Tensors& t) -> Tensors { return {halfstep::name(t[0])}; }, {in({3, 4}, lo, hi)}}); \
  c.push_back({#name, "0-dim", [](const Tensors& t) -> Tensors { return {t[0].name()}; }, {in({}, lo, hi)}});
#define HS_BINARY(name, policy, kind, forward, da, db, lo, hi, doc)                      \
  c.push_back({#name,                                                                    \
               "",                                                                       \
               [](const Tensors& t) -> Tensors { return {halfstep::name(t[0], t[1])}; }, \
               {in({3, 4}, lo, hi), in({3, 4}, lo, hi)}});                               \
  c.push_back({#name,                                                                    \
               "broadcast",                                                              \
               [](const Tensors& t) -> Tensors { return {t[0].name(t[1])}; },            \
               {in({2, 1, 4}, lo, hi), in({3, 1}, lo, hi)}});                            \
  c.push_back({#name,                                                                    \
               "number",                                                                 \
               [](const Tensors& t) -> Tensors {                                         \
                 return {t[0].name(1.25), halfstep::name(1.25, t[0])};                   \
               },                                                                        \
               {in({5}, lo, hi)}});
#define HS_TEST(name, forward, doc)                                   \
  c.push_back({#name,                                                 \
               "",                                                    \
               [](const Tensors& t) -> Tensors {                      \
                 return {halfstep::name(t[0], t[1]), t[0].name(0.5)}; \
               },                                                     \
               {in({3, 4}).detach(), in({4}).detach()},               \
               false});
#include "framework/math/elementwise.def"
}

}  // namespace

std::vector<OpCase> op_cases(Device at) {
  numbers().manual_seed(20);
  device = at;
  Cases c;
  elementwise(c);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(halfstep_source_dir() + "/tests/ops/cases"))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream file(path);
    for (const Json& j : Json::parse(file)) c.push_back(from_json(j));
  }
  if (const char* wanted = std::getenv("HALFSTEP_OP"))
    std::erase_if(c, [&](const OpCase& x) { return x.op.find(wanted) == std::string::npos; });
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
  const Tensor view = t.detach().permute(order).clone(MemoryFormat::contiguous).permute(order).detach();
  if (t.requires_grad()) view.set_requires_grad();
  return view;
}

Tensor channels_last(const Tensor& t) {
  if (t.dim() != 4 && t.dim() != 5) return t;
  const Tensor copy = t.detach().clone(MemoryFormat::channels_last);
  if (t.requires_grad()) copy.set_requires_grad();
  return copy;
}

std::string title(const OpCase& c) { return c.op + (c.variant.empty() ? "" : ", " + c.variant); }

Tensors in_dtype(const Tensors& in, DType dtype) {
  Tensors out;
  for (const Tensor& t : in) {
    Tensor copy = t.is_floating_point() ? t.detach().to(dtype).detach() : t;
    if (t.requires_grad()) copy.set_requires_grad();
    out.push_back(copy);
  }
  return out;
}

}  // namespace halfstep::testing
