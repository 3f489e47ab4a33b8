// oneDNN's matmul behind a cache of primitives. All of oneDNN's API is in this file (2.6's descriptors are gone in 3.x).
#ifdef HALFSTEP_WITH_DNNL
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <dnnl.hpp>
#include <list>
#include <unordered_map>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/gemm.h"
#include "framework/backend/cpu/simd.h"
#include "framework/base/check.h"
#include "framework/tensor/memory.h"

namespace halfstep::cpu {
namespace {

using Memory = dnnl::memory;

constexpr size_t kCached = 1024;  // primitives a thread keeps
constexpr int64_t kFewRows = 8;   // up to here dnnl_sgemm beats the matmul primitive (2.5 times at one row)

dnnl::engine& engine() {
  static dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}

struct Key {
  int64_t batch, m, n, k, a_batch, a_row, a_column, b_batch, b_row, b_column;
  int64_t in, out, flags, threads;
  bool operator==(const Key& o) const { return std::memcmp(this, &o, sizeof(Key)) == 0; }
};
static_assert(sizeof(Key) == 14 * sizeof(int64_t), "compared as bytes: no padding");

struct KeyHash {
  size_t operator()(const Key& key) const {
    int64_t words[14];
    std::memcpy(words, &key, sizeof(Key));
    uint64_t h = 0;
    for (int64_t w : words) h = (h ^ uint64_t(w)) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return size_t(h);
  }
};

// A primitive with its arguments bound once; a call only changes the pointers.
struct Entry {
  Key key;
  dnnl::matmul primitive;
  Memory a, b, c, bias, scratch;
  size_t scratch_bytes = 0;
  std::vector<dnnl_exec_arg_t> args;
};

Memory::data_type type_of(int64_t t) { return DType(t) == DType::bf16 ? Memory::data_type::bf16 : Memory::data_type::f32; }

void build(Entry& e) {
  const Key& k = e.key;
  const bool batched = k.batch > 1;
  const auto describe = [&](int64_t rows, int64_t columns, int64_t type, int64_t batch, int64_t row, int64_t column) {
    return batched ? Memory::desc({k.batch, rows, columns}, type_of(type), {batch, row, column})
                   : Memory::desc({rows, columns}, type_of(type), {row, column});
  };
  const Memory::desc a = describe(k.m, k.k, k.in, k.a_batch, k.a_row, k.a_column);
  const Memory::desc b = describe(k.k, k.n, k.in, k.b_batch, k.b_row, k.b_column);
  const Memory::desc c = describe(k.m, k.n, k.out, k.m * k.n, k.n, 1);
  dnnl::primitive_attr attributes;
  dnnl::post_ops after;
  if (k.flags & 4) after.append_sum(1.0f);
  if (k.flags & 2) after.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
  attributes.set_post_ops(after);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const Memory::desc bias = batched ? Memory::desc({1, 1, k.n}, Memory::data_type::f32, Memory::dims{k.n, k.n, 1})
                                    : Memory::desc({1, k.n}, Memory::data_type::f32, Memory::dims{k.n, 1});
  const auto op = (k.flags & 1) ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc chosen(op, attributes, engine());
  e.primitive = dnnl::matmul(chosen);
  e.a = Memory(a, engine(), nullptr);
  e.b = Memory(b, engine(), nullptr);
  e.c = Memory(c, engine(), nullptr);
  e.args = {{DNNL_ARG_SRC, e.a.get()}, {DNNL_ARG_WEIGHTS, e.b.get()}, {DNNL_ARG_DST, e.c.get()}};
  if (k.flags & 1) {
    e.bias = Memory(bias, engine(), nullptr);
    e.args.push_back({DNNL_ARG_BIAS, e.bias.get()});
  }
  e.scratch_bytes = chosen.scratchpad_desc().get_size();
  if (e.scratch_bytes > 0) {
    e.scratch = Memory(chosen.scratchpad_desc(), engine(), nullptr);
    e.args.push_back({DNNL_ARG_SCRATCHPAD, e.scratch.get()});
  }
}

// One a host thread: no lock, and an entry's pointers may be changed freely. The compiled code is shared by oneDNN itself.
class Cache {
 public:
  Entry& find(const Key& key) {
    if (const auto it = index_.find(key); it != index_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return entries_.front();
    }
    Entry fresh;
    fresh.key = key;
    build(fresh);
    if (entries_.size() == kCached) {
      index_.erase(entries_.back().key);
      entries_.pop_back();
    }
    entries_.push_front(std::move(fresh));
    index_[key] = entries_.begin();
    return entries_.front();
  }

 private:
  std::list<Entry> entries_;  // newest use first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
};

void execute(const Product& p) {
  thread_local Cache cache;
  thread_local dnnl::stream stream(engine());
  const int64_t flags = (p.bias ? 1 : 0) | (p.relu ? 2 : 0) | (p.accumulate ? 4 : 0);
  // A primitive's schedule is made for a number of threads.
  const Key key{p.batch, p.m,        p.n,   p.k,           p.a_batch,      p.a_row, p.a_column,           p.b_batch,
                p.b_row, p.b_column, int64_t(p.in), int64_t(p.out), flags,   omp_get_max_threads()};
  Entry& e = cache.find(key);
  dnnl_memory_set_data_handle(e.a.get(), const_cast<void*>(p.a));
  dnnl_memory_set_data_handle(e.b.get(), const_cast<void*>(p.b));
  dnnl_memory_set_data_handle(e.c.get(), p.c);
  if (p.bias) dnnl_memory_set_data_handle(e.bias.get(), const_cast<float*>(p.bias));
  void* scratch = nullptr;
  if (e.scratch_bytes > 0) {
    scratch = allocator(Device::cpu).allocate(e.scratch_bytes, MemoryTag::workspace);
    dnnl_memory_set_data_handle(e.scratch.get(), scratch);
  }
  const dnnl_status_t status = dnnl_primitive_execute(e.primitive.get(), stream.get(), int(e.args.size()), e.args.data());
  if (scratch) allocator(Device::cpu).release(scratch);
  check<Error>(status == dnnl_success, "matmul", "oneDNN failed with status ", int(status));
}

// One row or a few: no packing pays. Bias and relu follow in a loop over so few elements.
void execute_few_rows(const Product& p) {
  const bool ta = p.a_column != 1, tb = p.b_column != 1;
  const int64_t lda = std::max<int64_t>(ta ? p.a_column : p.a_row, ta ? p.m : p.k);
  const int64_t ldb = std::max<int64_t>(tb ? p.b_column : p.b_row, tb ? p.k : p.n);
  float* c = static_cast<float*>(p.c);
  const dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', p.m, p.n, p.k, 1.0f, static_cast<const float*>(p.a), lda,
                                          static_cast<const float*>(p.b), ldb, p.accumulate ? 1.0f : 0.0f, c, p.n);
  check<Error>(status == dnnl_success, "matmul", "oneDNN failed with status ", int(status));
  if (!p.bias && !p.relu) return;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      const float v = c[i * p.n + j] + (p.bias ? p.bias[j] : 0.0f);
      c[i * p.n + j] = p.relu && v <= 0 ? 0.0f : v;
    }
  }
}

bool few_rows(const Product& p) { return p.batch == 1 && p.m <= kFewRows && p.in == DType::f32 && p.out == DType::f32; }

std::string chosen_bf16_code() {
  try {
    const Memory::desc square({64, 64}, Memory::data_type::bf16, Memory::format_tag::ab);
    return dnnl::matmul::primitive_desc(dnnl::matmul::desc(square, square, square), engine()).impl_info_str();
  } catch (const dnnl::error&) {
    return {};  // no bf16 code at all for this CPU
  }
}

const std::string& bf16_code() {
  static const std::string code = chosen_bf16_code();
  return code;
}

}  // namespace

bool bf16_is_native() {
  static const bool native = bf16_code().find("bf16") != std::string::npos || bf16_code().find("amx") != std::string::npos;
  return native;
}

std::string bf16_support() {
  if (!bf16_is_native()) return "widened to float32";
  return bf16_code().find("amx") != std::string::npos ? "native (AMX)" : "native (AVX512-BF16)";
}

void multiply(const Product& p) {
  const int threads = num_threads();
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
  try {
    if (few_rows(p))
      execute_few_rows(p);
    else
      execute(p);
  } catch (const dnnl::error& e) { fail<Error>("matmul", "oneDNN: ", e.what()); }
}

}  // namespace halfstep::cpu
#endif
