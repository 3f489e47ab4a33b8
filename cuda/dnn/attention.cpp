// SPDX-License-Identifier: Apache-2.0
#include "cuda/dnn/attention.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/dnn/library.h"
#include "cuda/runtime.h"
#include "cuda/staged.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"
#include "framework/base/log.h"

namespace halfstep::cuda::dnn {
namespace {

Numbers numbers(const Dims& d) { return {d.begin(), d.end()}; }

// Returns strides for the library, or nothing unless v's rows are contiguous and begin at multiples of 16 bytes, as the kernels
// need.
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

// Returns v as the library can read it: itself, or a contiguous copy.
Staged as_read(const Queue& q, const TensorView& v) {
  const std::optional<Strides> own = readable(v);
  return Staged(q, v, v.dtype, own.value_or(contiguous_strides(v.shape)), Staged::read, 16);
}

// hidden: how many of the keys were padded (PaddedKeys).
AttentionCase case_of(const AttentionArgs& a, bool backward, int64_t hidden = 0) {
  return {.version = cudnn().cudnnGetVersion(),
          .capability = capability(),
          .queries = a.q.shape[2],
          .keys = a.k.shape[2] - hidden,
          .width = a.q.shape[3],
          .drops = a.dropout_p > 0,
          .backward = backward};
}

// The library's description of a call, with q, k and v as it reads them.
struct Call {
  Staged q, k, v;
  AttentionLayout layout;
  AttentionProblem problem;

  Call(const Queue& queue, const AttentionArgs& a, int64_t hidden = 0)
      : q(as_read(queue, a.q)), k(as_read(queue, a.k)), v(as_read(queue, a.v)), layout(layout_of(a)) {
    problem = {.type = a.q.dtype == DType::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
               .q = numbers(a.q.shape),
               .k = numbers(a.k.shape),
               .q_strides = numbers(q.view().strides),
               .k_strides = numbers(k.view().strides),
               .v_strides = numbers(v.view().strides),
               .out_strides = numbers(layout.out),
               .dq_strides = numbers(layout.dq),
               .dk_strides = numbers(layout.dk),
               .dv_strides = numbers(layout.dv),
               .causal = a.causal,
               .dropout = a.dropout_p,
               .scale = float(a.scale),
               .mask = padding_mask(case_of(a, true, hidden))};
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

// Returns whether the library has graphs for such a call on this GPU.
bool is_supported(const AttentionArgs& a) { return capability() >= 80 && is_for_library(a); }

// Warns, once for each reason, that the attention is computed by chunks instead.
void warn_of_chunks(bool backward, const std::string& why) {
  logging::warn_once("[cudnn] " + std::string(backward ? "the gradient of attention" : "attention") +
                     " is computed by chunks, which takes several times longer: " + why);
}

// Returns whether the library computes the call correctly; warns of a defect that has a remedy.
bool is_sound(const AttentionArgs& a, bool backward) {
  const AttentionDefect* const defect = defect_of(case_of(a, backward));
  if (defect && defect->remedy) warn_of_chunks(backward, cudnn_version() + ' ' + defect->what + "; " + defect->remedy);
  return !defect;
}

// Warns that the library has no plan for a call; returns false.
bool warn_of_no_plan(bool backward) {
  warn_of_chunks(backward,
                 cudnn_version() +
                     " has no plan for some of its shapes on this GPU that gives the same bits in every run, or no memory "
                     "for one; the log has them at level debug. Heads of 64 or 128 numbers have plans");
  return false;
}

// Some samples with all their heads, or some key heads of one sample with the queries that share them.
struct Piece {
  int64_t sample, samples, head, heads;

  // Returns the piece's part of v, which has `shared` heads for each key head.
  TensorView part_of(TensorView v, int64_t shared) const {
    v.data = v.as<char>() + (sample * v.strides[0] + head * shared * v.strides[1]) * int64_t(size_of(v.dtype));
    v.shape[0] = samples;
    v.shape[1] = heads * shared;
    return v;
  }
};

// Splits a call into pieces: one, if its gradient has enough workspace. With dropout, forward and backward use the same pieces,
// each with its own random numbers.
class Pieces {
 public:
  Pieces(const AttentionArgs& a, bool divided) : args_(a), shared_(a.q.shape[1] / a.k.shape[1]) {
    const int64_t samples = a.k.shape[0], heads = a.k.shape[1];
    AttentionDivision piece{samples, heads};
    if (divided) piece = attention_division(numbers(a.q.shape), numbers(a.k.shape), dnn_options().workspace);
    if (piece.samples == 0) {
      warn_of_chunks(true, "one head of " + std::to_string(a.q.shape[2]) + " queries and " + std::to_string(a.k.shape[2]) +
                               " keys needs more workspace than the " + std::to_string(dnn_options().workspace >> 20) +
                               " MiB of performance.cudnn_workspace; raise that");
      return;
    }
    for (int64_t s = 0; s < samples; s += piece.samples) {
      for (int64_t h = 0; h < heads; h += piece.key_heads)
        pieces_.push_back({s, std::min(piece.samples, samples - s), h, std::min(piece.key_heads, heads - h)});
    }
  }
  size_t size() const { return pieces_.size(); }
  AttentionArgs args(size_t i) const {
    AttentionArgs a = args_;
    a.q = of_queries(i, a.q), a.k = of_keys(i, a.k), a.v = of_keys(i, a.v);
    return a;
  }
  TensorView of_queries(size_t i, const TensorView& v) const { return pieces_[i].part_of(v, shared_); }
  TensorView of_keys(size_t i, const TensorView& v) const { return pieces_[i].part_of(v, 1); }

 private:
  const AttentionArgs& args_;
  int64_t shared_;
  std::vector<Piece> pieces_;
};

Staged contiguous(const Queue& q, const TensorView& v, DType dtype, Staged::Use use) {
  return Staged(q, v, dtype, contiguous_strides(v.shape), use, 16);
}

// Seed and offset of the library's random numbers, in device memory: below 2^53, so that a double holds them. Each piece has its
// own seed.
class RandomPosition {
 public:
  RandomPosition(const Queue& q, double dropout, Generator::State state, size_t pieces) {
    if (dropout == 0) return;
    constexpr uint64_t mask = (uint64_t(1) << 53) - 1;
    const double seed = double((state.seed ^ state.seed >> 53) & mask), offset = double(state.offset & mask);
    space_.emplace(Device::cuda, (1 + pieces) * kSlotBytes);
    arange(q, {at(0), DType::i64, {2}, {kStep}}, offset, seed - offset);
    if (pieces > 1) arange(q, {at(2), DType::i64, {int64_t(pieces) - 1}, {kStep}}, seed + 1, 1);
    if (!q.random_base) return;
    const TensorView to{at(0), DType::i64, {1}, {1}};
    binary(q, Binary::add, to, {const_cast<uint64_t*>(q.random_base), DType::i64, {1}, {1}}, to);
  }
  void add_to(Work& work, size_t piece) const {
    if (space_) work.memory.insert(work.memory.end(), {at(1 + piece), at(0)});
  }

 private:
  static constexpr size_t kSlotBytes = 16;  // the alignment that the graph promises
  static constexpr int64_t kStep = kSlotBytes / sizeof(int64_t);
  void* at(size_t i) const { return space_->data() + i * kSlotBytes; }
  std::optional<Workspace> space_;
};

// The memory to which the library writes dq, dk and dv: the tensors themselves, or a buffer in the library's layout that is then
// copied.
class GradientBuffers {
 public:
  GradientBuffers(const Queue& q, const AttentionLayout& layout, DType type, const TensorView& dq, const TensorView& dk,
                  const TensorView& dv)
      : q_(q), to_{dq, dk, dv}, at_{dq, dk, dv} {
    const Strides* const strides[] = {&layout.dq, &layout.dk, &layout.dv};
    int64_t numbers = 0;
    for (size_t i = 0; i < 3; ++i) {
      numbers += to_[i].numel();
      direct_ = direct_ && to_[i].dtype == type && same_layout(to_[i].shape, to_[i].strides, *strides[i]) &&
                reinterpret_cast<uintptr_t>(to_[i].data) % 16 == 0;
    }
    if (direct_) return;
    // Packed, a row of dk begins where that of dq ends; otherwise the tensors follow each other, each a multiple of 16 bytes.
    space_.emplace(Device::cuda, size_t(numbers) * size_of(type));
    char* next = reinterpret_cast<char*>(space_->data());
    for (size_t i = 0; i < 3; ++i) {
      at_[i] = {next, type, to_[i].shape, *strides[i]};
      next += (layout.packed ? to_[i].shape[1] * to_[i].shape[3] : to_[i].numel()) * int64_t(size_of(type));
    }
  }
  void* data(size_t i) const { return at_[i].data; }
  void deliver() const {
    for (size_t i = 0; i < 3 && !direct_; ++i) copy(q_, at_[i], to_[i]);
  }

 private:
  const Queue& q_;
  TensorView to_[3], at_[3];
  bool direct_ = true;
  std::optional<Workspace> space_;
};

// Lengths of queries and keys, for each sample, in device memory: for a padding mask.
class Lengths {
 public:
  Lengths(const Queue& q, const AttentionProblem& p, int64_t hidden) {
    if (p.mask == PaddingMask::none) return;
    const int64_t samples = p.q[0];
    apart_ = size_t(samples + kPack - 1) / kPack * kPack * sizeof(int32_t);
    space_.emplace(Device::cuda, 2 * apart_);
    fill(q, {space_->data(), DType::i32, {samples}, {1}}, double(p.q[2]));
    fill(q, {space_->data() + apart_, DType::i32, {samples}, {1}}, double(p.k[2] - hidden));
  }
  void add_to(Work& work) const {
    if (space_) work.memory.insert(work.memory.end(), {space_->data(), space_->data() + apart_});
  }

 private:
  static constexpr int64_t kPack = 4;  // int32 in 16 bytes: the alignment that the graph promises
  size_t apart_ = 0;
  std::optional<Workspace> space_;
};

// Keys and values with zeros behind them, which a padding mask hides, and memory for their gradients (padded_keys).
class PaddedKeys {
 public:
  PaddedKeys(const Queue& q, const AttentionArgs& args, const AttentionGradients& gradients)
      : q_(q), given_(gradients), args_(args), gradients_(gradients) {
    hidden_ = padded_keys(case_of(args, true)) - args.k.shape[2];
    if (hidden_ == 0) return;
    Shape shape = args.k.shape;
    shape[2] += hidden_;
    const size_t each = size_t(numel(shape)) * size_of(args.q.dtype);  // of rows of 16 bytes and more
    space_.emplace(Device::cuda, 4 * each);
    TensorView* const padded[] = {&args_.k, &args_.v, &gradients_.dk, &gradients_.dv};
    for (size_t i = 0; i < 4; ++i) *padded[i] = {space_->data() + i * each, args.q.dtype, shape, contiguous_strides(shape)};
    for (const auto& [from, to] : {std::pair(args.k, args_.k), {args.v, args_.v}}) {
      fill(q, to, 0);
      copy(q, from, without_padding(to));
    }
  }
  const AttentionArgs& args() const { return args_; }
  const AttentionGradients& gradients() const { return gradients_; }
  int64_t hidden() const { return hidden_; }
  void deliver() const {
    if (hidden_ == 0) return;
    copy(q_, without_padding(gradients_.dk), given_.dk);
    copy(q_, without_padding(gradients_.dv), given_.dv);
  }

 private:
  TensorView without_padding(TensorView v) const {
    v.shape[2] -= hidden_;
    return v;
  }
  const Queue& q_;
  AttentionGradients given_;
  AttentionArgs args_;
  AttentionGradients gradients_;
  int64_t hidden_ = 0;
  std::optional<Workspace> space_;
};

}  // namespace

bool attention(const Queue& q, const AttentionArgs& args, Generator::State state, const TensorView& out, const TensorView& stats,
               bool differentiable) {
  if (!is_supported(args)) return false;
  Library* const library = Library::find(q);
  const bool drops = args.dropout_p > 0, needs_backward = drops && differentiable;
  if (!library || !is_sound(args, false) || (needs_backward && !is_sound(args, true))) return false;
  try {
    const Pieces pieces(args, drops);
    if (pieces.size() == 0) return false;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (needs_backward && !library->prepares(q, Call(q, pieces.args(i)).work(true))) return warn_of_no_plan(true);
    }
    const RandomPosition position(q, args.dropout_p, state, pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Call call(q, pieces.args(i));
      Work work = call.work(false);
      const Staged rows = contiguous(q, pieces.of_queries(i, stats), DType::f32, Staged::write),
                   result(q, pieces.of_queries(i, out), args.q.dtype, call.layout.out, Staged::write, 16);
      work.memory.insert(work.memory.end(), {result.view().data, rows.view().data});
      position.add_to(work, i);
      if (library->run(q, work) != Outcome::computed) return warn_of_no_plan(false);
      for (const Staged* s : {&rows, &result}) s->deliver();
    }
    return true;
  } catch (const MemoryError&) { return false; }  // for copies of operands with another layout
}

namespace {

// Computes the gradients of piece i. Returns false if the library declines.
bool differentiate_piece(const Queue& q, Library& library, const Pieces& pieces, size_t i, const PaddedKeys& padded,
                         const RandomPosition& position) {
  const AttentionArgs args = pieces.args(i);
  const AttentionGradients& g = padded.gradients();
  const Call call(q, args, padded.hidden());
  Work work = call.work(true);
  const Lengths lengths(q, call.problem, padded.hidden());
  work.is_only_way = args.dropout_p > 0;
  const DType type = args.q.dtype;
  const Staged grad(q, pieces.of_queries(i, g.grad), type, call.layout.out, Staged::read, 16),
      out(q, pieces.of_queries(i, g.out), type, call.layout.out, Staged::read, 16),
      stats = contiguous(q, pieces.of_queries(i, g.stats), DType::f32, Staged::read);
  const GradientBuffers buffers(q, call.layout, type, pieces.of_queries(i, g.dq), pieces.of_keys(i, g.dk), pieces.of_keys(i, g.dv));
  const size_t rows = size_t(stats.view().numel()) * sizeof(float);
  const bool shares = args.q.shape[1] != args.k.shape[1];
  const size_t each = shares ? size_t(args.k.numel() / args.k.shape[1] * args.q.shape[1]) * size_of(type) : 0;
  const Workspace sums(Device::cuda, rows), each_dk(Device::cuda, each), each_dv(Device::cuda, each);
  work.memory.insert(work.memory.end(), {out.view().data, stats.view().data, grad.view().data, buffers.data(0), buffers.data(1),
                                         buffers.data(2), static_cast<void*>(sums.data())});
  lengths.add_to(work);
  if (shares) work.memory.insert(work.memory.end(), {static_cast<void*>(each_dk.data()), static_cast<void*>(each_dv.data())});
  position.add_to(work, i);
  if (library.run(q, work) != Outcome::computed) return false;
  buffers.deliver();
  return true;
}

// Computes the gradients of a call. Returns false if the library declines.
bool differentiate(const Queue& q, const AttentionArgs& args, Generator::State state, const AttentionGradients& g) {
  if (!is_supported(args)) return false;
  Library* const library = Library::find(q);
  if (!library || !is_sound(args, true)) return false;
  const PaddedKeys padded(q, args, g);
  const Pieces pieces(padded.args(), true);
  if (pieces.size() == 0) return false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!library->prepares(q, Call(q, pieces.args(i), padded.hidden()).work(true))) return warn_of_no_plan(true);
  }
  const RandomPosition position(q, args.dropout_p, state, pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!differentiate_piece(q, *library, pieces, i, padded, position)) return warn_of_no_plan(true);
  }
  padded.deliver();
  return true;
}

}  // namespace

// Throws for a lack of memory if there is dropout, because only the library can recompute what its forward dropped.
bool attention_backward(const Queue& q, const AttentionArgs& args, Generator::State state, const AttentionGradients& g) {
  try {
    return differentiate(q, args, state, g);
  } catch (const MemoryError&) {
    if (args.dropout_p > 0) throw;
    return false;
  }
}

}  // namespace halfstep::cuda::dnn
