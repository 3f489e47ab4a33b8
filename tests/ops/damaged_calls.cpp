// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/damaged_calls.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "framework/base/sanitizers.h"
#include "framework/tensor/memory.h"
#include "tests/support/source_dir.h"

namespace halfstep::testing {
namespace {

using Json = nlohmann::json;
using Make = std::function<void(const Call&, bool)>;

constexpr size_t kMore = size_t(1) << 30;

// ---- the cases

double number(const Json& j) {
  return j.is_number() ? j.get<double>() : j == "nan" ? std::nan("") : j == "-inf" ? -INFINITY : INFINITY;
}
void collect(const Json& j, std::vector<double>& out) {
  if (!j.is_array()) return out.push_back(number(j));
  for (const Json& x : j) collect(x, out);
}
Tensor drawn(const Shape& shape, double lo, double hi) {
  const Tensor t = empty(shape);
  uniform_(t, lo, hi);
  return t;
}
Tensor tensor_of(const Json& spec) {
  if (spec.is_null()) return {};
  const auto shape_of = [](const Json& j) { return Shape(std::span<const int64_t>(j.get<std::vector<int64_t>>())); };
  if (spec.is_array()) return drawn(shape_of(spec), -2, 2);
  if (!spec.contains("values")) return drawn(shape_of(spec.at("shape")), spec.value("lo", -2.0), spec.value("hi", 2.0));
  std::vector<double> values;
  collect(spec.at("values"), values);
  const DType dtype = parse_dtype(spec.value("dtype", "float32")).value();
  return tensor(values, spec.contains("shape") ? shape_of(spec.at("shape")) : Shape{int64_t(values.size())},
                {.dtype = dtype == DType::f64 ? DType::f32 : dtype});
}

// The calls that cases make, by op; at most a handful of each.
std::map<std::string, std::vector<Call>> calls() {
  std::map<std::string, std::vector<Call>> out;
  const char* wanted = std::getenv("HALFSTEP_OP");
  const auto add = [&](const Call& c) {
    if (!wanted || c.op.find(wanted) != std::string::npos) out[c.op].push_back(c);
  };
  const Tensor x = drawn({2, 3}, 0.1, 0.9), y = drawn({3}, 0.1, 0.9);
#define HS_UNARY(name, ...) add({#name, {{.one = x}}});
#define HS_BINARY(name, ...) add({#name, {{.one = x}, {.one = y}}});
#define HS_TEST HS_BINARY
#include "framework/math/elementwise.def"
  for (const auto& entry : std::filesystem::directory_iterator(halfstep_source_dir() + "/tests/ops/cases")) {
    if (entry.path().extension() != ".json" || entry.path().stem() == "elementwise") continue;
    std::ifstream file(entry.path());
    for (const Json& j : Json::parse(file)) {
      Call c{j.at("op"), {}, j.value("attrs", Json::object())};
      for (const Json& spec : j.at("in")) {
        TensorArgument a;
        a.is_list = spec.is_object() && spec.contains("list");
        if (a.is_list)
          for (const Json& s : spec["list"]) a.many.push_back(tensor_of(s));
        else
          a.one = tensor_of(spec);
        c.tensors.push_back(a);
      }
      add(c);
    }
  }
  return out;
}

// ---- damage

constexpr int64_t kHuge = int64_t(1) << 62;

// Numbers at the ends of their types, of the wrong kind, lists of the wrong length.
const Json& bad_values() {
  static const Json values = Json::parse(R"([
      null, true, false, "text", "", "inf", "-inf", "nan", "float16", "int64", "sum",
      0, 1, 2, 3, -1, -2, -7, 7, 0.5, -0.5, 1e308, 1e-320, 2147483648, 2147483647,
      4611686018427387904, -4611686018427387904, 9223372036854775807, -9223372036854775808, 18446744073709551615,
      [], {}, [0], [1], [-1], [0, 0], [0, 1], [1, 0], [2, 2], [-1, -1], [3, 0, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9], [1.5], ["x"],
      [null],
      [4611686018427387904], [4611686018427387904, 4611686018427387904], [4611686018427387904, 4], [9223372036854775807, 2],
      [-9223372036854775808], [-1, 4611686018427387904], [0, 4611686018427387904, 4611686018427387904], [4294967296, 4294967296],
      [[0], [1]], [[0, 1], [0]]])");
  return values;
}

// What cases leave out is tried, too; most ops refuse most of these by name.
const char* const kCommon[] = {"dim",  "keepdim", "dtype",   "p",      "reduction", "eps",  "value",
                               "size", "stride",  "padding", "groups", "weight",    "alpha"};

// Casts: an integer dtype wraps numbers that it does not have.
Tensor filled(const Tensor& t, double value) { return full(t.shape(), value, {.dtype = DType::f64}).to(t.dtype()); }

std::vector<Tensor> bad_tensors(const Tensor& t) {
  std::vector<Tensor> out = {Tensor()};
  const auto attempt = [&](auto make) {
    try {
      out.push_back(make());
    } catch (const Error&) {}  // the damage itself is impossible here
  };
  for (const DType d : {DType::boolean, DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f64})
    attempt([&] { return zeros({0}, {.dtype = d}); });
  attempt([&] { return empty({0, kHuge, kHuge}); });
  attempt([&] { return empty({1 << 20, 0, 1 << 20, 1 << 20}); });
  if (!t.defined()) return out;
  for (const DType d : {DType::boolean, DType::u8, DType::i32, DType::i64, DType::f16, DType::bf16, DType::f64})
    attempt([&] { return t.to(d); });
  attempt([&] { return full({}, 1, {.dtype = t.dtype()}); });
  attempt([&] { return t.unsqueeze(0); });
  attempt([&] { return t.unsqueeze(-1); });
  attempt([&] { return t.reshape({-1}); });
  attempt([&] { return t.reshape({1, 1, 1, 1, 1, 1, 1, -1}); });
  attempt([&] { return t.select(0, 0); });
  attempt([&] { return t.select(-1, 0); });
  for (int d = 0; d < t.dim(); ++d) {
    attempt([&] { return t.narrow(d, 0, 0); });
    attempt([&] { return t.narrow(d, 0, 1); });
    attempt([&] { return cat({t, t}, d); });
    attempt([&] { return cat({t, t.narrow(d, 0, 1)}, d); });
  }
  Dims order;
  for (int d = t.dim() - 1; d >= 0; --d) order.push_back(d);
  attempt([&] { return t.permute(order); });
  if (is_floating(t.dtype()))
    for (const double v : {0.0, -1.0, std::nan(""), double(INFINITY)}) out.push_back(filled(t, v));
  else
    for (const double v : {-1.0, -100.0, 0.0, 100.0, double(kHuge), -9.2e18}) out.push_back(filled(t, v));
  return out;
}

void one_by_one(const Call& base, const std::vector<std::string>& attributes, const Make& make) {
  Call c = base;
  for (const bool gradient : {false, true}) {
    make(c, gradient);
    for (Tensor* slot : slots(c)) {
      const Tensor good = *slot;
      for (const Tensor& bad : bad_tensors(good)) {
        *slot = bad;
        make(c, gradient);
      }
      *slot = good;
    }
  }
  for (size_t i = 0; i < base.tensors.size(); ++i) {
    TensorArgument& a = c.tensors[i];
    for (const Tensors& many : {Tensors{}, Tensors{Tensor()}, Tensors{a.one}, Tensors(20, base.tensors[0].one)}) {
      a = {.many = many, .is_list = true};
      make(c, false);
    }
    a = {.one = a.is_list && !base.tensors[i].many.empty() ? base.tensors[i].many[0] : Tensor()};
    make(c, false);
    a = base.tensors[i];
  }
  c.tensors.push_back({.one = ones({2})});
  make(c, false);
  while (!c.tensors.empty()) {
    c.tensors.pop_back();
    make(c, false);
  }
  c = base;
  const Json& values = bad_values();
  for (const std::string& name : attributes) {
    // Of what no case gives, most are refused by name: a few values do.
    for (size_t i = 0; i < values.size(); i += base.attrs.contains(name) ? 1 : 6) {
      c.attrs[name] = values[i];
      make(c, true);
    }
    c.attrs = base.attrs;
  }
}

void at_random(const std::vector<Call>& bases, const std::vector<std::string>& attributes, int count, const Make& make) {
  std::mt19937_64 random(17);
  const auto below = [&](size_t n) { return size_t(random() % n); };
  const Json& values = bad_values();
  std::vector<std::vector<std::vector<Tensor>>> bad;  // of each case, for each of its tensors
  for (Call c : bases) {
    bad.emplace_back();
    for (const Tensor* t : slots(c)) bad.back().push_back(bad_tensors(*t));
  }
  for (int i = 0; i < count; ++i) {
    const size_t base = below(bases.size());
    Call c = bases[base];
    const auto all = slots(c);
    for (size_t changes = 1 + below(3); changes > 0; --changes) {
      if (!all.empty() && below(2)) {
        const size_t at = below(all.size());
        *all[at] = bad[base][at][below(bad[base][at].size())];
      } else {
        c.attrs[attributes[below(attributes.size())]] = values[below(values.size())];
      }
    }
    make(c, below(2));
  }
}

}  // namespace

std::string Call::str() const {
  std::ostringstream out;
  const auto show = [&](const Tensor& t) {
    if (t.defined())
      out << t.dtype() << t.shape();
    else
      out << "none";
  };
  out << op << '(';
  for (const TensorArgument& a : tensors) {
    if (a.is_list) {
      out << '[';
      for (const Tensor& t : a.many) show(t), out << ' ';
      out << "], ";
    } else {
      show(a.one), out << ", ";
    }
  }
  out << attrs.dump() << ')';
  return out.str();
}

std::vector<Tensor*> slots(Call& c) {
  std::vector<Tensor*> out;
  for (TensorArgument& a : c.tensors) {
    if (!a.is_list) out.push_back(&a.one);
    for (Tensor& t : a.many) out.push_back(&t);
  }
  return out;
}

void for_damaged_calls(const Make& make) {
  manual_seed(3);
  const char* random = std::getenv("HALFSTEP_FUZZ_RANDOM");
  for (const auto& [op, bases] : calls()) {
    if (!find_op(op)) continue;  // op_table_test.cpp reports it
    std::vector<std::string> own, attributes;
    for (const Call& c : bases)
      for (const auto& [name, value] : c.attrs.items())
        if (std::find(own.begin(), own.end(), name) == own.end()) own.push_back(name);
    attributes = own;
    for (const char* name : kCommon)
      if (std::find(own.begin(), own.end(), name) == own.end()) attributes.emplace_back(name);
    for (size_t i = 0; i < bases.size() && i < 2; ++i) one_by_one(bases[i], i == 0 ? attributes : own, make);
    at_random(bases, own.empty() ? attributes : own, random ? std::atoi(random) : 30, make);
  }
}

void for_empty_calls(const std::function<void(const Call&)>& make) {
  manual_seed(3);
  for (const auto& [op, bases] : calls()) {
    if (!find_op(op)) continue;
    for (Call base : bases) {
      const std::vector<Tensor*> full = slots(base);
      const auto without = [&](const auto& chosen) {  // of dimension d of input i
        Call c = base;
        const std::vector<Tensor*> all = slots(c);
        for (size_t i = 0; i < all.size(); ++i)
          for (int d = 0; full[i]->defined() && d < full[i]->dim(); ++d)
            if (chosen(i, d)) *all[i] = all[i]->narrow(d, 0, 0);
        make(c);
      };
      for (size_t k = 0; k < full.size(); ++k) {
        for (int at = 0; full[k]->defined() && at < full[k]->dim(); ++at) {
          without([&](size_t i, int d) { return i == k && d == at; });
          without([&](size_t, int d) { return d == at; });
          without([&](size_t i, int d) { return full[i]->size(d) == full[k]->size(at); });
        }
      }
    }
  }
}

Tensors run(const Call& c, bool with_gradient) {
  Call own = c;
  Tensors leaves;
  if (with_gradient) {
    for (Tensor* t : slots(own)) {
      if (!t->defined() || !t->is_floating_point()) continue;
      *t = t->detach().set_requires_grad();
      leaves.push_back(*t);
    }
  }
  Tensors out = invoke(own.op, own.tensors, own.attrs), of, weights;
  for (const Tensor& t : out)
    if (t.defined() && t.requires_grad()) of.push_back(t), weights.push_back(ones_like(t));
  if (!of.empty()) backward(of, weights);
  for (const Tensor& t : leaves) out.push_back(t.grad());
  return out;
}

MemoryLimit::MemoryLimit() {
  sum(ones({1 << 20}));  // the threads' stacks exist
  allocator(Device::cpu).empty_cache();
  limit_host_memory(allocator(Device::cpu).stats().reserved + kMore);
  getrlimit(RLIMIT_AS, &saved_);
#if !defined(HALFSTEP_ADDRESS_SANITIZER) && !defined(HALFSTEP_THREAD_SANITIZER)
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit = saved_;
  limit.rlim_cur = std::min<rlim_t>(saved_.rlim_max, pages * 4096 + kMore);
  setrlimit(RLIMIT_AS, &limit);
  rlimit now = saved_;
  getrlimit(RLIMIT_AS, &now);
  bounds_all_ = now.rlim_cur == limit.rlim_cur;
#endif
}
MemoryLimit::~MemoryLimit() {
  setrlimit(RLIMIT_AS, &saved_);
  limit_host_memory(0);
}

}  // namespace halfstep::testing
