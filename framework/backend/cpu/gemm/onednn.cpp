// SPDX-License-Identifier: Apache-2.0
// c = relu?(a b + bias) (+ c if accumulate) by oneDNN's matmul (shapes in gemm.h), with a cache of primitives, and the choice
// between its code and ours by the CPU. Each primitive runs on one thread: larger products are split into pieces for the
// team of team.h, because OpenMP's teams wait for every member, even if another program occupies its core.
#ifdef HALFSTEP_WITH_DNNL
#include "framework/backend/cpu/onednn.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/convert/convert.h"
#include "framework/backend/cpu/gemm/gemm.h"
#include "framework/backend/cpu/held_signals.h"
#include "framework/backend/cpu/parallel.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"
#include "framework/base/fork_mutex.h"

namespace halfstep::cpu {
namespace {

using Memory = dnnl::memory;

constexpr size_t kCached = 1024;                        // primitives a thread keeps
constexpr int64_t kFewRows = 8;                         // up to here dnnl_sgemm beats the matmul primitive (2.5 times at one row)
constexpr int64_t kPieceRows = 64, kPieceColumns = 64;  // least size of a piece of c: smaller pieces cost more than a thread gains
constexpr int kFewMatrices = 4;                         // least batch split by shape; smaller ones: each matrix is split
constexpr int64_t kHalfRows = 16, kWide = 1024;         // least rows of each of two pieces by shape, and most columns
constexpr int64_t kStackDepth = 64;                     // up to this k no gemm code of oneDNN leaves the thread's stack
constexpr int64_t kMostCopied = 512 * 1024;             // most elements of a that a piece may have to copy

// A product, or a part of one whose rows of c are c_row elements apart.
struct Piece : GemmProblem {
  int64_t c_row;
  bool packed = false;  // b has the layout packed_desc
};

// Bits of Key::flags.
constexpr int64_t kHasBias = 1, kAccumulates = 4, kIsPacked = 8;
struct Key {
  int64_t batch, m, n, k, a_batch, a_row, a_column, b_batch, b_row, b_column;
  int64_t c_row, in, out, flags;
  bool operator==(const Key& o) const { return std::memcmp(this, &o, sizeof(Key)) == 0; }
};
static_assert(sizeof(Key) == 14 * sizeof(int64_t), "compared as bytes: no padding");

struct KeyHash {
  size_t operator()(const Key& key) const { return hash_of_words(&key, sizeof(Key)); }
};

// A primitive with bound arguments; a call only changes the pointers.
struct Entry {
  Key key;
  dnnl::matmul primitive;
  Memory a, b, c, bias, scratch;
  size_t scratch_bytes = 0;
  bool leaves_stack = false, used = false;
  std::vector<dnnl_exec_arg_t> args;
};

// Returns oneDNN's preferred layout of b [k, n] for products with a few rows of a, found once for each size. Without AVX-512 its
// float32 code reads b as plain rows. If these are a multiple of 4 kB apart, they share few sets of the first-level cache and the
// product takes twice as long, so a gap is put between them.
Memory::desc packed_desc(int64_t k, int64_t n, DType in) {
  constexpr int64_t kSomeRows = 16, kCrowded = 4096 / sizeof(float), kGap = 32;
  static constinit ForkMutex guard;
  const std::lock_guard lock(guard);
  static auto& layouts = *new std::map<std::array<int64_t, 3>, Memory::desc>;
  const auto [found, is_new] = layouts.try_emplace({k, n, int64_t(in)});
  if (is_new) {
    const Memory::desc a({kSomeRows, k}, type_of(in), Memory::format_tag::ab);
    const Memory::desc c({kSomeRows, n}, Memory::data_type::f32, Memory::format_tag::ab);
    const Memory::desc any({k, n}, type_of(in), Memory::format_tag::any);
    found->second = describe<dnnl::matmul>({}, a, any, c).weights_desc();
    const bool plain = in == DType::f32 && found->second == Memory::desc({k, n}, type_of(in), Memory::format_tag::ab);
    if (plain && n % kCrowded == 0) found->second = Memory::desc({k, n}, type_of(in), {n + kGap, 1});
  }
  return found->second;
}

// Makes the primitive and the arguments for the entry's key.
void build(Entry& e) {
  const Key& key = e.key;
  const bool batched = key.batch > 1;
  const DType in = DType(key.in);
  const auto matrix = [&](int64_t rows, int64_t columns, DType type, int64_t batch, int64_t row, int64_t column) {
    return batched ? Memory::desc({key.batch, rows, columns}, type_of(type), {batch, row, column})
                   : Memory::desc({rows, columns}, type_of(type), {row, column});
  };
  const Memory::desc a = matrix(key.m, key.k, in, key.a_batch, key.a_row, key.a_column);
  const Memory::desc b =
      key.flags & kIsPacked ? packed_desc(key.k, key.n, in) : matrix(key.k, key.n, in, key.b_batch, key.b_row, key.b_column);
  const Memory::desc c = matrix(key.m, key.n, DType(key.out), key.m * key.c_row, key.c_row, 1);
  dnnl::primitive_attr attributes;
  dnnl::post_ops after;
  if (key.flags & kAccumulates) after.append_sum(1.0f);
  attributes.set_post_ops(after);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const Memory::desc bias = batched ? Memory::desc({1, 1, key.n}, Memory::data_type::f32, Memory::dims{key.n, key.n, 1})
                                    : Memory::desc({1, key.n}, Memory::data_type::f32, Memory::dims{key.n, 1});
  const dnnl::matmul::primitive_desc chosen =
      (key.flags & kHasBias) ? describe<dnnl::matmul>(attributes, a, b, bias, c) : describe<dnnl::matmul>(attributes, a, b, c);
  e.primitive = dnnl::matmul(chosen);
  e.leaves_stack = key.k > kStackDepth && moves_stack_pointer(chosen.impl_info_str());
  e.a = Memory(a, engine(), nullptr);
  e.b = Memory(b, engine(), nullptr);
  e.c = Memory(c, engine(), nullptr);
  e.args = {{DNNL_ARG_SRC, e.a.get()}, {DNNL_ARG_WEIGHTS, e.b.get()}, {DNNL_ARG_DST, e.c.get()}};
  if (key.flags & kHasBias) {
    e.bias = Memory(bias, engine(), nullptr);
    e.args.push_back({DNNL_ARG_BIAS, e.bias.get()});
  }
  FirstUse::watch_end_after("made " + code_name(e.primitive));
  e.scratch_bytes = chosen.scratchpad_desc().get_size();
  if (e.scratch_bytes > 0) {
    e.scratch = Memory(chosen.scratchpad_desc(), engine(), nullptr);
    e.args.push_back({DNNL_ARG_SCRATCHPAD, e.scratch.get()});
  }
}

// A cache for each host thread, so no lock is needed and an entry's pointers may be changed. oneDNN itself shares the compiled
// code.
class Cache {
 public:
  Entry& find(const Key& key) {
    if (const auto it = index_.find(key); it != index_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      return entries_.front();
    }
    const FirstUse first;
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
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
};

void execute(const Piece& p) {
  const int64_t flags = (p.bias ? kHasBias : 0) | (p.accumulate ? kAccumulates : 0) | (p.packed ? kIsPacked : 0);
  const Key key{p.batch,   p.m,     p.n,        p.k,     p.a_batch,     p.a_row,        p.a_column,
                p.b_batch, p.b_row, p.b_column, p.c_row, int64_t(p.in), int64_t(p.out), flags};
  Entry& e = of_this_thread<Cache>().find(key);
  dnnl_memory_set_data_handle(e.a.get(), const_cast<void*>(p.a));
  dnnl_memory_set_data_handle(e.b.get(), const_cast<void*>(p.b));
  dnnl_memory_set_data_handle(e.c.get(), p.c);
  if (p.bias) dnnl_memory_set_data_handle(e.bias.get(), const_cast<float*>(p.bias));
  const Workspace scratch(Device::cpu, e.scratch_bytes);
  if (scratch.data()) dnnl_memory_set_data_handle(e.scratch.get(), scratch.data());
  if (WorkspacePlan::open()) return;
  const HeldSignals held(e.leaves_stack);
  const FirstUse first(!e.used);
  const dnnl_status_t status = dnnl_primitive_execute(e.primitive.get(), stream().get(), int(e.args.size()), e.args.data());
  if (!e.used) FirstUse::watch_end_after(joined(code_name(e.primitive), ' ', p.in, ' ', p.out)), e.used = true;
  check_success("matmul", status);
  // The library's own ReLU turns NaN into 0, which would hide a failed step. The output is still in the cache.
  if (p.relu) relu_rows(p.out, p.c, p.batch * p.m, p.n, p.c_row);
}

// Computes one row or a few, without packing. Bias and relu follow in a loop over the few elements.
void execute_few_rows(const Piece& p) {
  if (WorkspacePlan::open()) return;
  const bool ta = p.a_column != 1, tb = p.b_column != 1;
  const int64_t lda = std::max<int64_t>(ta ? p.a_column : p.a_row, ta ? p.m : p.k);
  const int64_t ldb = std::max<int64_t>(tb ? p.b_column : p.b_row, tb ? p.k : p.n);
  float* c = static_cast<float*>(p.c);
  // The library's code for a row times the rows of a matrix stays on the stack; two system calls take as long as a small product.
  const HeldSignals held(p.k > kStackDepth && (p.m > 1 || ta || !tb));
  // The library makes code of its own for vectors, narrow results, transposed operands and sums.
  static constinit std::array<std::atomic<bool>, 64> used{};
  const int kind = ta | tb << 1 | (p.m == 1) << 2 | (p.n == 1) << 3 | (p.n < 32) << 4 | p.accumulate << 5;
  const FirstUse first(!used[size_t(kind)].load(std::memory_order_relaxed));
  const dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', p.m, p.n, p.k, 1.0f, static_cast<const float*>(p.a), lda,
                                          static_cast<const float*>(p.b), ldb, p.accumulate ? 1.0f : 0.0f, c, p.c_row);
  if (first.is_first()) FirstUse::watch_end_after(joined("sgemm ", kind)), used[size_t(kind)] = true;
  check_success("matmul", status);
  if (!p.bias && !p.relu) return;
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t j = 0; j < p.n; ++j) {
      const float v = c[i * p.c_row + j] + (p.bias ? p.bias[j] : 0.0f);
      c[i * p.c_row + j] = p.relu && v <= 0 ? 0.0f : v;
    }
  }
}

bool has_few_rows(const Piece& p) {
  return !p.packed && p.batch == 1 && p.m <= kFewRows && p.in == DType::f32 && p.out == DType::f32;
}

enum class Along : uint8_t { batch, rows, columns };  // of c

// Returns part i of n of a product, along its batch, rows or columns. The cuts depend only on the shape and n.
Piece piece_of(const GemmProblem& p, Along along, int64_t i, int64_t n) {
  const int64_t extent = along == Along::batch ? p.batch : along == Along::rows ? p.m : p.n;
  const int64_t grain = along == Along::batch ? 1 : 16;  // whole cache lines of c, and of oneDNN's packed operands
  const auto edge = [&](int64_t k) { return k == n ? extent : extent * k / n / grain * grain; };
  const int64_t from = edge(i), size = edge(i + 1) - from;
  const auto step = [&](const void* x, int64_t by, DType t) {
    return static_cast<const char*>(x) + from * by * int64_t(size_of(t));
  };
  Piece piece{p, p.n};
  const auto move = [&](int64_t a, int64_t b, int64_t c) {
    piece.a = step(p.a, a, p.in);
    piece.b = step(p.b, b, p.in);
    piece.c = const_cast<char*>(step(p.c, c, p.out));
  };
  if (along == Along::batch) {
    move(p.a_batch, p.b_batch, p.m * p.n);
    piece.batch = size;
    if (size == 1) piece.a_batch = p.m * p.k, piece.b_batch = p.k * p.n;
  } else if (along == Along::rows) {
    move(p.a_row, 0, p.n);
    piece.m = size;
  } else {
    move(0, p.b_column, 1);
    piece.n = size;
    if (p.bias) piece.bias = p.bias + from;
  }
  return piece;
}

// Returns whether the piece's part of a must be copied first. Rows of a transposed a are far apart, and oneDNN has good 16-bit
// code, with little memory, only for a dense a. A single row with elements far apart must be copied too: version 3 reads it as if
// it were dense, in all dtypes.
bool needs_dense_a(const Piece& p) {
  if (p.m == 1) return p.a_column != 1 && !has_few_rows(p);
  return p.in != DType::f32 && p.batch == 1 && p.a_row == 1 && p.a_column != p.m;
}

// Computes a piece on this thread.
void run_piece(const Piece& p) {
  const OpenMpThreads one_thread(1);
  if (needs_dense_a(p)) {
    const size_t element = size_of(p.in), column = size_t(p.m) * element;
    const Workspace dense(Device::cpu, size_t(p.batch * p.k) * column);
    for (int64_t i = 0; i < p.batch && !WorkspacePlan::open(); ++i) {
      for (int64_t k = 0; k < p.k; ++k)
        std::memcpy(dense.data() + size_t(i * p.k + k) * column,
                    static_cast<const char*>(p.a) + (i * p.a_batch + k * p.a_column) * int64_t(element), column);
    }
    Piece copied = p;
    copied.a = dense.data();
    copied.a_column = p.m;
    if (p.m == 1) copied.a_row = copied.a_batch = p.k;
    return run_piece(copied);
  }
  try {
    if (has_few_rows(p))
      execute_few_rows(p);
    else
      execute(p);
  } catch (const dnnl::error& e) { fail<Error>("matmul", "oneDNN: ", e.what()); }
}

// Divides a product into n pieces, changes each by change(piece), and computes them on several threads if that pays.
template <class F>
void run_in_pieces(const GemmProblem& p, Along along, int64_t n, int64_t work, const F& change) {
  if (WorkspacePlan* const plan = WorkspacePlan::open()) {  // allocates what its threads hold at once
    const int threads = threads_for(work, num_threads());
    const WorkspacePlan::AtOnce held(*plan);
    for (int64_t i = 0; i < std::min<int64_t>(threads, n); ++i) run_piece(change(piece_of(p, along, i, n)));
    return;
  }
  parallel_tasks(n, work, [&](int64_t i) { run_piece(change(piece_of(p, along, i, n))); });
}

// Returns the name of the library's code for products of `t`; empty if it has none for this CPU. It has float16 code only for the
// newest CPUs, and none in version 2.
const std::string& code_for(DType t) {
  const auto chosen = [](DType type) -> std::string {
    try {
      const Memory::desc square({64, 64}, type_of(type), Memory::format_tag::ab);
      return describe<dnnl::matmul>({}, square, square, square).impl_info_str();
    } catch (const dnnl::error&) { return {}; }
  };
  using Codes = std::array<std::string, 3>;
  const Codes& codes = made_once([&] { return Codes{chosen(DType::bf16), chosen(DType::f16), chosen(DType::f32)}; });
  return codes[t == DType::bf16 ? 0 : t == DType::f16 ? 1 : 2];
}
bool contains(const std::string& code, std::string_view part) { return code.find(part) != std::string::npos; }
// Returns whether the code is AMX for this dtype. All CPUs with AVX10 have pairs of bf16 and arithmetic of float16.
bool is_amx(DType t) { return contains(code_for(t), t == DType::bf16 ? "amx" : "amx_fp16"); }

// Returns whether AVX-512's instruction for pairs of bf16 is as fast as the one for single floats, and so does twice the work. It
// is on AMD's CPUs and Cooper Lake. Intel's later cores have AMX for bf16 and take four times as long for a pair: if a virtual
// machine hides AMX, floats are twice as fast. Recognises CPUs by name, because a choice by timing could differ between processes.
bool pairs_are_fast() {
#if defined(__x86_64__) && defined(__GNUC__)
  return !__builtin_cpu_is("intel") || __builtin_cpu_is("cooperlake");
#else
  return true;
#endif
}

}  // namespace

// Returns whether the library multiplies float32 by plain loops, which take several times as long as ours: version 2 does on every
// aarch64, version 3 where vectors have 128 bits. "gemm:jit" names them there. By name, as a choice by timing could differ between
// processes, and with it the bits of results.
static bool float_code_is_plain() {
#if defined(__x86_64__)
  return false;
#else
  return made_once([] { return contains(code_for(DType::f32), "gemm:jit") || contains(code_for(DType::f32), "ref"); });
#endif
}

// On aarch64 the library calls plain loops "gemm:jit:bf16" too. They take several times as long as its float32 code.
bool has_bf16_code() {
#if !defined(__x86_64__)
  return false;
#endif
  const std::string& code = code_for(DType::bf16);
  return contains(code, "bf16") || contains(code, "amx") || contains(code, "avx10");
}

bool is_native(DType t) {
  if (t == DType::bf16) return made_once([] { return has_bf16_code() && (pairs_are_fast() || is_amx(DType::bf16)); });
  if (t != DType::f16) return true;
  return made_once([] { return contains(code_for(DType::f16), "fp16") || contains(code_for(DType::f16), "avx10"); });
}

std::string product_support(DType t) {
  if (!is_native(t)) return t == DType::bf16 && own_bf16_code() ? "native (BFMMLA)" : "widened to float32";
  return is_amx(t) ? "native (AMX)" : t == DType::bf16 ? "native (AVX512-BF16)" : "native (AVX512-FP16)";
}

bool library_has_avx512() {
#if !defined(__x86_64__)
  return false;  // the names of other architectures' instructions have the same values
#endif
  using Isa = dnnl::cpu_isa;
  const Isa isa = made_once([] { return dnnl::get_effective_cpu_isa(); });
#if DNNL_VERSION_MAJOR >= 3
  if (isa == Isa::avx2_vnni_2) return false;
#endif
  return isa != Isa::sse41 && isa != Isa::avx && isa != Isa::avx2 && isa != Isa::avx2_vnni;
}

std::string product_library() {
  const dnnl_version_t* v = dnnl_version();
  return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

void run_gemm(const GemmProblem& p) {
  if (process_ends()) [[unlikely]]
    return run_gemm_blocks(p);
  if (float_code_is_plain()) return run_gemm_alone(p);
  const int64_t work = product_work(p.batch, p.m, p.n, p.k, p.in != DType::f32);
  const int threads = threads_to_cut_for(work);
  const bool by_shape = threads_independent();
  if (threads == 1) return run_piece({p, p.n});
  if (p.batch > 1 && p.batch < (by_shape ? std::min(threads, kFewMatrices) : threads)) {
    GemmProblem product = p;
    product.batch = 1;
    for (int64_t i = 0; i < p.batch; ++i) {
      const Piece piece = piece_of(p, Along::batch, i, p.batch);
      product.a = piece.a, product.b = piece.b, product.c = piece.c;
      run_gemm(product);
    }
    return;
  }
  const int64_t wanted = pieces_for(work, threads);
  // Other code of oneDNN computes pieces of columns, whose rows are not dense; it allocates memory in each call.
  const bool halves = by_shape && p.m >= 2 * kHalfRows && p.n <= kWide;
  const int64_t least_rows = halves ? 2 * kHalfRows : (by_shape ? 2 : wanted) * kPieceRows;
  // Pieces of whole rows cost least: each packed part of b serves all rows.
  const Along along = p.batch > 1 ? Along::batch : p.m >= least_rows || p.m >= p.n ? Along::rows : Along::columns;
  const auto most_of = [&](int64_t n, int64_t least) { return by_shape ? pieces_by_shape(n, least) : n / least; };
  int64_t most = along == Along::batch ? p.batch : along == Along::rows ? most_of(p.m, kPieceRows) : most_of(p.n, kPieceColumns);
  if (along == Along::rows && halves) most = std::max<int64_t>(most, 2);
  const int64_t copied = along == Along::rows && p.in != DType::f32 && p.a_row == 1 ? p.m * p.k / kMostCopied : 0;
  const int64_t pieces = std::max({std::min(wanted, most), std::min(copied, p.m / kPieceRows), int64_t(1)});
  run_in_pieces(p, along, pieces, work, [](const Piece& piece) { return piece; });
}

size_t packed_bytes(int64_t k, int64_t n, DType in) {
  if (float_code_is_plain() || (in == DType::bf16 && own_bf16_code())) return 0;  // so no caller packs
  return packed_desc(k, n, is_native(in) ? in : DType::f32).get_size();
}

void pack_matrix(const GemmProblem& p, void* to) {
  const bool widens = !is_native(p.in);
  const Workspace wide(Device::cpu, widens ? sizeof(float) * size_t(p.k * p.n) : 0);
  const void* from = p.b;
  const DType in = widens ? DType::f32 : p.in;
  Memory::dims strides{p.b_row, p.b_column};
  if (widens) {
    for (int64_t i = 0; i < p.k; ++i)
      load<float>(p.in, static_cast<const char*>(p.b) + i * p.b_row * int64_t(size_of(p.in)), p.b_column,
                  reinterpret_cast<float*>(wide.data()) + i * p.n, p.n);
    from = wide.data();
    strides = {p.n, 1};
  }
  const OpenMpThreads one_thread(1);
  const FirstUse first;
  Memory source(Memory::desc({p.k, p.n}, type_of(in), strides), engine(), const_cast<void*>(from));
  Memory packed(packed_desc(p.k, p.n, in), engine(), to);
  dnnl::reorder reorder(source, packed);
  reorder.execute(stream(), source, packed);
  FirstUse::watch_end_after(code_name(reorder));
}

void run_gemm_packed(const GemmProblem& p, bool shared) {
  const auto as_packed = [](Piece piece) {
    piece.packed = true;
    piece.b_row = piece.b_column = piece.b_batch = piece.a_batch = 0;
    return piece;
  };
  const int64_t work = product_work(1, p.m, p.n, p.k, p.in != DType::f32);
  const int threads = shared ? threads_to_cut_for(work) : 1;
  const int64_t most = threads_independent() ? pieces_by_shape(p.m, kPackedRows) : p.m / kPackedRows;
  const int64_t pieces = std::min<int64_t>(pieces_for(work, threads), most);
  if (pieces <= 1) return run_piece(as_packed({p, p.n}));
  run_in_pieces(p, Along::rows, pieces, work, as_packed);
}

}  // namespace halfstep::cpu
#endif
