// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas/product_stats.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace halfstep::cuda {
namespace {

constexpr size_t kKinds = 4096;  // most kinds; more restart the list, as plans do

bool by_columns(const TensorView& v) {
  const int r = v.shape.size();
  return v.strides[r - 1] != 1 && v.shape[r - 1] != 1;
}

int64_t alignment(const TensorView& v) {
  const auto address = reinterpret_cast<uintptr_t>(v.data);
  return address == 0 ? 256 : std::min<int64_t>(256, int64_t(address & (~address + 1)));
}

// Returns the library's name for an epilogue.
std::string epilogue_name(const GemmArgs& g) {
  std::string name;
  const auto add = [&](bool yes, const char* part) {
    if (yes) name += (name.empty() ? "" : "_") + std::string(part);
  };
  const bool relu = g.activation == Activation::relu;
  add(g.activation != Activation::none, g.derivative ? (relu ? "drelu" : "dgelu") : relu ? "relu" : "gelu");
  add(bool(g.aux) && !g.derivative, "aux");
  add(bool(g.bias), "bias");
  add(bool(g.column_sum), "bgrad");
  add(bool(g.a_row_sum), "bgradb");
  add(bool(g.b_column_sum), "bgrada");
  return name.empty() ? "default" : name;
}

ProductReport new_report(const GemmArgs& g, const ProductKey& key) {
  const bool tf32 = g.a.dtype == DType::f32 && allow_tf32();
  const char* compute = !is_floating(g.a.dtype) ? "i64" : g.a.dtype == DType::f64 ? "f64" : tf32 ? "tf32" : "f32";
  ProductReport r{.m = key.m, .n = key.n, .k = key.k, .batch = key.batch};
  r.a_transposed = by_columns(g.a);
  r.b_transposed = by_columns(g.b);
  r.in = g.a.dtype;
  r.out = g.c.dtype;
  r.compute = compute;
  r.epilogue = epilogue_name(g);
  return r;
}

struct ProductKeyHash {
  size_t operator()(const ProductKey& key) const {
    uint64_t h = 0;
    for (int64_t w : {key.m, key.n, key.k, key.batch, key.kind, key.alignment})
      h = (h ^ uint64_t(w)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return size_t(h);
  }
};
struct ProductStats {
  std::unordered_map<ProductKey, ProductRecord, ProductKeyHash> records;
  std::vector<const ProductKey*> order;
};
// Never destroyed: static objects may still multiply.
ProductStats& product_stats() {
  static ProductStats* const instance = new ProductStats;
  return *instance;
}

}  // namespace

ProductKey::ProductKey(const GemmArgs& g)
    : m(g.a.shape[g.a.shape.size() - 2]),
      n(g.b.shape.back()),
      k(g.a.shape.back()),
      batch(g.a.shape.size() == 3 ? g.a.shape[0] : 1),
      kind(0),
      alignment(256) {
  const auto add = [&](int64_t value, int bits) { kind = kind << bits | value; };
  const auto type = [&](const TensorView& v) { add(v ? int64_t(v.dtype) + 1 : 0, 5); };
  static_assert(kDTypeCount < 31);
  for (const TensorView* v : {&g.a, &g.c, &g.bias, &g.column_sum, &g.a_row_sum}) type(*v);
  const bool shared_a = batch > 1 && g.a.strides[0] == 0, shared_b = batch > 1 && g.b.strides[0] == 0;
  for (bool bit : {by_columns(g.a), by_columns(g.b), shared_a, shared_b, bool(g.aux), g.derivative, g.accumulate, allow_tf32()})
    add(bit, 1);
  add(int64_t(g.activation), 4);
  if (g.b_column_sum) type(g.b_column_sum);  // last, so that stored choices keep their meaning
  for (const TensorView* v : {&g.a, &g.b, &g.c, &g.bias, &g.aux, &g.column_sum, &g.a_row_sum, &g.b_column_sum})
    alignment = std::min(alignment, cuda::alignment(*v));
}

std::string ProductKey::text() const {
  std::string out;
  for (int64_t w : {m, n, k, batch, kind, alignment}) out += (out.empty() ? "" : " ") + std::to_string(w);
  return out;
}

ProductRecord& product_record(const GemmArgs& g, const ProductKey& key) {
  ProductStats& stats = product_stats();
  if (const auto found = stats.records.find(key); found != stats.records.end()) return found->second;
  if (stats.records.size() >= kKinds) {
    stats.order.clear();
    stats.records.clear();
  }
  const auto at = stats.records.emplace(key, ProductRecord{.report = new_report(g, key)}).first;
  stats.order.push_back(&at->first);
  return at->second;
}

std::vector<ProductReport> take_product_reports() {
  ProductStats& stats = product_stats();
  std::vector<ProductReport> out;
  for (const ProductKey* key : stats.order) {
    ProductReport& report = stats.records.at(*key).report;
    if (report.calls == 0) continue;
    out.push_back(report);
    report.calls = 0;
  }
  return out;
}

}  // namespace halfstep::cuda
