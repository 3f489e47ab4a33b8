// SPDX-License-Identifier: Apache-2.0
#include "cuda/dnn/attention.h"

#include <memory>

#include "cuda/dnn/library.h"
#include "cuda/runtime.h"
#include "cuda/staged.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"

namespace halfstep::cuda::dnn {
namespace {

constexpr int64_t kLargestSize = 256;

Numbers numbers(const Dims& d) { return {d.begin(), d.end()}; }

// Rows in one piece, each beginning on a multiple of 16 bytes, as the kernels read them: the strides for the library.
std::optional<Strides> readable(const TensorView& v) {
  Strides strides = contiguous_strides(v.shape);
  for (int d = 0; d < 4; ++d) {
    if (v.shape[d] == 1) continue;
    if (v.strides[d] <= 0 || (d == 3 ? v.strides[d] != 1 : v.strides[d] % 8 != 0)) return {};
    strides[d] = v.strides[d];
  }
  if (reinterpret_cast<uintptr_t>(v.data) % 16 != 0) return {};
  return strides;
}

Staged as_read(const Queue& q, const TensorView& v) {
  const std::optional<Strides> own = readable(v);
  return Staged(q, v, v.dtype, own.value_or(contiguous_strides(v.shape)), Staged::read, 16);
}

// What the library needs to know, with q, k and v as it reads them.
struct Call {
  Staged q, k, v;
  AttentionProblem problem;

  Call(const Queue& queue, const AttentionArgs& a) : q(as_read(queue, a.q)), k(as_read(queue, a.k)), v(as_read(queue, a.v)) {
    problem = {.type = a.q.dtype == DType::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
               .q = numbers(a.q.shape),
               .k = numbers(a.k.shape),
               .q_strides = numbers(q.view().strides),
               .k_strides = numbers(k.view().strides),
               .v_strides = numbers(v.view().strides),
               .causal = a.causal,
               .dropout = a.dropout_p,
               .scale = float(a.scale)};
  }
  Work work(bool backward) const {
    Work w{.name = backward ? "attention's gradient" : "attention",
           .key = problem.key(backward),
           .rules = {.workspace = dnn_options().workspace},
           .graph = [this, backward] { return backward ? attention_backward_graph(problem) : attention_graph(problem); },
           .memory = {q.view().data, k.view().data, v.view().data}};
    w.key.push_back(w.rules.workspace);
    return w;
  }
};

// What the library may be asked at all. One query makes its kernels crash (cudnn-frontend 1071, 1072).
bool is_for_the_library(const AttentionArgs& a) {
  const Shape &q = a.q.shape, &k = a.k.shape;
  if (!is_half(a.q.dtype) || a.k.dtype != a.q.dtype || a.v.dtype != a.q.dtype || capability() < 80) return false;
  if (q[0] < 1 || k[1] < 1 || k[2] < 2 || q[2] < 2 || q[1] % k[1] != 0 || a.v.shape != k || k[0] != q[0]) return false;
  return q[3] % 8 == 0 && q[3] <= kLargestSize && a.dropout_p < 1;
}

// Its backward gives NaN for these on Hopper where a row's logarithm is below -88 (cudnn 9.20, pytorch 196678).
bool backward_is_sound(const AttentionArgs& a) { return capability() < 90 || a.k.shape[2] % 128 != 64; }

// Seed and offset of the library's numbers, in device memory: below 2^53, so that a double holds them.
class Position {
 public:
  Position(const Queue& q, double dropout, Generator::State state) {
    if (dropout == 0) return;
    constexpr uint64_t mask = (uint64_t(1) << 53) - 1;
    const double seed = double((state.seed ^ state.seed >> 53) & mask), offset = double(state.offset & mask);
    space_.emplace(Device::cuda, 2 * kApart);
    arange(q, {space_->data(), DType::i64, {2}, {kApart / sizeof(int64_t)}}, seed, offset - seed);
    if (!q.random_base) return;
    const TensorView to{space_->data() + kApart, DType::i64, {1}, {1}};
    binary(q, Binary::add, to, {const_cast<uint64_t*>(q.random_base), DType::i64, {1}, {1}}, to);
  }
  void add_to(Work& work) const {
    if (space_) work.memory.insert(work.memory.end(), {space_->data(), space_->data() + kApart});
  }

 private:
  static constexpr size_t kApart = 16;  // bytes: the alignment that the graph promises
  std::optional<Workspace> space_;
};

}  // namespace

bool attention(const Queue& q, const AttentionArgs& args, Generator::State state, const TensorView& out, const TensorView& stats,
               bool differentiable) {
  if (!is_for_the_library(args)) return false;
  Library* const library = Library::find(q);
  const bool drops = args.dropout_p > 0;
  if (!library || (drops && differentiable && !backward_is_sound(args))) return false;
  try {
    const Call call(q, args);
    if (drops && differentiable && !library->prepares(q, call.work(true))) return false;
    Work work = call.work(false);
    const Position position(q, args.dropout_p, state);
    work.memory.insert(work.memory.end(), {out.data, stats.data});
    position.add_to(work);
    return library->run(q, work) == Done::yes;
  } catch (const MemoryError&) { return false; }  // for operands laid out otherwise
}

namespace {

bool differentiated(const Queue& q, const AttentionArgs& args, Generator::State state, const AttentionGradients& g) {
  if (!is_for_the_library(args) || !backward_is_sound(args)) return false;
  Library* const library = Library::find(q);
  if (!library) return false;
  const Call call(q, args);
  Work work = call.work(true);
  work.must = args.dropout_p > 0;
  if (!library->prepares(q, work)) return false;
  const auto contiguous = [&](const TensorView& v, Staged::Use use) {
    return Staged(q, v, args.q.dtype, contiguous_strides(v.shape), use, 16);
  };
  const Staged grad = contiguous(g.grad, Staged::read), dq = contiguous(g.dq, Staged::write), dk = contiguous(g.dk, Staged::write),
               dv = contiguous(g.dv, Staged::write);
  const size_t rows = size_t(g.stats.numel()) * sizeof(float);
  const bool shares = args.q.shape[1] != args.k.shape[1];
  const size_t each = shares ? size_t(args.k.numel() / args.k.shape[1] * args.q.shape[1]) * size_of(args.q.dtype) : 0;
  const Workspace sums(Device::cuda, rows), each_dk(Device::cuda, each), each_dv(Device::cuda, each);
  const Position position(q, args.dropout_p, state);
  work.memory.insert(work.memory.end(), {g.out.data, g.stats.data, grad.view().data, dq.view().data, dk.view().data, dv.view().data,
                                         static_cast<void*>(sums.data())});
  if (shares) work.memory.insert(work.memory.end(), {static_cast<void*>(each_dk.data()), static_cast<void*>(each_dv.data())});
  position.add_to(work);
  if (library->run(q, work) != Done::yes) return false;
  for (const Staged* s : {&dq, &dk, &dv}) s->deliver();
  return true;
}

}  // namespace

// What was dropped is known to the library alone: there is no other way then, and a lack of memory is an error.
bool attention_backward(const Queue& q, const AttentionArgs& args, Generator::State state, const AttentionGradients& g) {
  try {
    return differentiated(q, args, state, g);
  } catch (const MemoryError&) {
    if (args.dropout_p > 0) throw;
    return false;
  }
}

}  // namespace halfstep::cuda::dnn
