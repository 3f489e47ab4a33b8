// SPDX-License-Identifier: Apache-2.0
#include "framework/backend/cpu/conv/onednn.h"

#ifdef HALFSTEP_WITH_DNNL
#include <algorithm>
#include <mutex>
#include <numeric>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/backend/cpu/conv/primitive.h"
#include "framework/backend/cpu/convert/convert.h"
#include "framework/backend/cpu/kernels.h"
#include "framework/backend/cpu/parallel.h"
#include "framework/backend/cpu/team.h"
#include "framework/backend/workspace.h"
#include "framework/base/check.h"

namespace halfstep::cpu {
namespace {

constexpr int64_t kPieceBytes = 512 * 1024;  // of the images of a piece, which stay in the second-level cache

int64_t work_of(const ConvProblem& p) {
  return product_work(1, p.images * product(p.out), p.filters, taps_of(p) / p.filters, p.from == DType::bf16);
}

// Images of one piece of a plan, or filters of one part.
struct Range {
  int64_t first, count;
};
Range images_in(const ConvPlan& plan, int64_t piece) {
  const auto edge = [&](int64_t i) { return plan.problem.images * i / plan.pieces; };
  return {edge(piece), edge(piece + 1) - edge(piece)};
}

// Returns the filters of a part, if the plan has parts: whole blocks of the library's layouts.
Range filters_in(const ConvPlan& plan, int64_t part) {
  const auto edge = [&](int64_t i) {
    return i == plan.filter_parts ? plan.problem.filters : plan.problem.filters * i / plan.filter_parts / 16 * 16;
  };
  return {edge(part), edge(part + 1) - edge(part)};
}

// Returns the number of OpenMP threads for each piece. The library's split of a forward, or of the gradient of images, changes no
// bits: one thread computes each number, and adds its terms in the order of channels and taps.
int threads_of(const ConvPlan& plan) {
  const bool sums = plan.problem.pass == ConvPass::weight && threads_independent();
  return plan.pieces == 1 && !sums ? threads_for(plan.work, num_threads()) : 1;
}

// Returns the problem of one piece. A gradient of the weight is a sum over pieces, rounded once at the end.
ConvProblem problem_of(const ConvPlan& plan, int64_t piece) {
  ConvProblem p = plan.problem;
  if (plan.filter_parts > 1) {
    p.filters = filters_in(plan, piece).count;
    p.filters_in_y = plan.problem.filters;
  }
  if (plan.pieces == 1) return p;
  p.images = images_in(plan, piece).count;
  if (p.pass == ConvPass::weight) p.to = DType::f32;
  return p;
}

// Measured. A piece whose images stay in the second-level cache while their layout or dtype changes takes 0.6 to 0.9 of the time,
// and copies of few images need little memory. But each piece reads the whole weight, which Winograd's code transforms, or adds to
// its gradient: so pieces are larger the more that costs. One piece, shared by OpenMP's threads, is only for few images with a
// large weight: if another program keeps a core busy, these threads take several times as long.
int64_t pieces_of(const ConvProblem& p, int64_t threads) {
  const int64_t element = int64_t(size_of(p.from)), image_bytes = image_elements(p) * element,
                least_bytes = 4 * taps_of(p) * element;
  if (threads_independent())  // larger pieces may be more than two
    threads =
        std::min({threads, p.images, std::max(std::min<int64_t>(image_bytes / least_bytes, 2), image_bytes / (4 * least_bytes))});
  if (threads < 2 || p.images < threads || image_bytes < threads * least_bytes) return 1;
  if (!p.converts && !changes_layout(p)) return threads;
  const bool transforms = p.pass != ConvPass::weight && winograd_applies(p);
  const int64_t round_bytes = threads * std::max(kPieceBytes, (transforms ? 8 : 2) * least_bytes);  // of one piece for each thread
  return std::min(std::max<int64_t>(image_bytes / round_bytes, 1) * threads, p.images);
}

// Returns into how many parts to split the filters; each part reads all images.
int64_t filter_parts_of(const ConvProblem& p, int64_t work) {
  constexpr int64_t kLeastFilters = 32, kCopied = 16;  // work that pays for copying an element of x into the library's layout
  if (p.pass != ConvPass::weight || !threads_independent() || p.groups > 1) return 1;
  const int64_t copies = work / (kCopied * p.images * p.channels * product(p.in));
  return std::max<int64_t>(std::min({int64_t(threads_to_cut_for(work)), copies, p.filters / kLeastFilters}), 1);
}

// Memory for each thread that works on a piece, allocated at once, so that the amount does not depend on the threads' timing.
class Slots {
 public:
  Slots(int count, size_t bytes) : bytes_(bytes), work_(Device::cpu, size_t(count) * bytes), free_(size_t(count)) {
    std::iota(free_.begin(), free_.end(), size_t(0));
  }

  class Lease {
   public:
    [[nodiscard]] explicit Lease(Slots& slots) : slots_(slots) {
      const std::lock_guard lock(slots_.mutex_);
      at_ = slots_.free_.back();
      slots_.free_.pop_back();
    }
    ~Lease() {
      const std::lock_guard lock(slots_.mutex_);
      slots_.free_.push_back(at_);
    }
    Lease(const Lease&) = delete;
    char* memory() const { return slots_.work_.data() + at_ * slots_.bytes_; }

   private:
    Slots& slots_;
    size_t at_;
  };

 private:
  const size_t bytes_;
  const Workspace work_;
  std::mutex mutex_;
  std::vector<size_t> free_;
};

// The images of one side, and a piece of them in the dtype of the computation.
struct ImageSide {
  const ConvImages& images;
  DType dtype;   // of the computation
  int64_t size;  // elements of an image
  bool written;

  bool converts() const { return images.dtype != dtype; }
  size_t bytes(const Range& piece) const { return converts() ? whole_lines(size_t(piece.count * size) * size_of(dtype)) : 0; }
  TensorView stored(const Range& piece) const {
    const int64_t n = piece.count * size;
    return {static_cast<char*>(images.data) + piece.first * size * int64_t(size_of(images.dtype)), images.dtype, {n}, {1}};
  }
  // Returns the images for the code: the images themselves, or `memory` with their values.
  char* begin(const Range& piece, char* memory) const {
    const TensorView own = stored(piece);
    if (!converts()) return static_cast<char*>(own.data);
    if (!written) copy(own, TensorView{memory, dtype, own.shape, own.strides});
    return memory;
  }
  void end(const Range& piece, char* memory) const {
    const TensorView own = stored(piece);
    if (converts() && written) copy(TensorView{memory, dtype, own.shape, own.strides}, own);
  }
};

// Both sides of a pass.
struct ImageSides {
  ImageSide x, y;
  size_t bytes(const Range& images) const { return x.bytes(images) + y.bytes(images); }
  // Runs the code on some images. memory: for the code; copies: for converted images.
  void run(ConvCode& code, const Range& images, void* weight, const float* bias, const void* laid, char* memory,
           char* copies) const {
    char* const x_memory = x.begin(images, copies);
    char* const y_memory = y.begin(images, copies + x.bytes(images));
    code.run(x_memory, weight, y_memory, bias, laid, memory);
    x.end(images, x_memory);
    y.end(images, y_memory);
  }
};

// Computes the gradient of a weight in parts of its filters.
void run_filter_parts(const ConvPlan& plan, const ImageSides& sides, void* weight, float* bias) {
  const ConvProblem& p = plan.problem;
  const Range all{0, p.images};
  const Workspace copies(Device::cpu, sides.bytes(all));
  size_t most = 0;
  for (int64_t i = 0; i < plan.filter_parts; ++i) most = std::max(most, code_of(problem_of(plan, i), 1)->bytes(false));
  Slots slots(threads_for(plan.work, int(std::min<int64_t>(num_threads(), plan.filter_parts))), most);
  if (WorkspacePlan::open()) return;
  char* const x = sides.x.begin(all, copies.data());
  char* const y = sides.y.begin(all, copies.data() + sides.x.bytes(all));
  const int64_t step = p.format == MemoryFormat::channels_last ? 1 : product(p.out), taps = taps_of(p) / p.filters;
  parallel_tasks(plan.filter_parts, plan.work, [&](int64_t i) {
    ConvCode* const own = code_of(problem_of(plan, i), 1);
    check<Error>(own, "conv", "oneDNN has no code any more");  // this thread makes its own code
    const Slots::Lease slot(slots);
    const int64_t first = filters_in(plan, i).first;
    own->run(x, static_cast<char*>(weight) + first * taps * int64_t(size_of(p.to)), y + first * step * int64_t(size_of(p.from)),
             bias ? bias + first : nullptr, nullptr, slot.memory());
  });
}

// Computes sum[i] = parts[i] + parts[n + i] + ...
void add_up(const float* parts, int64_t count, int64_t n, DType to, void* sum) {
  parallel_for(n, kBlock, n * count, [&](int64_t begin, int64_t end) {
    alignas(64) float block[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t size = std::min(kBlock, end - at);
      std::copy_n(parts + at, size, block);
      for (int64_t k = 1; k < count; ++k) {
        const float* const part = parts + k * n + at;
        HS_INDEPENDENT
        for (int64_t i = 0; i < size; ++i) block[i] += part[i];
      }
      store<float>(to, block, static_cast<char*>(sum) + at * int64_t(size_of(to)), 1, size);
    }
  });
}

// Runs the plan's only piece, which the library splits among OpenMP's threads.
void run_whole(const ConvPlan& plan, const ImageSides& sides, void* weight, const float* bias) {
  const ConvProblem& p = plan.problem;
  ConvCode& code = *code_of(p, threads_of(plan));
  const Range all{0, p.images};
  const Workspace work(Device::cpu, code.bytes(p.laid)), copies(Device::cpu, sides.bytes(all));
  if (!WorkspacePlan::open()) sides.run(code, all, weight, bias, p.laid ? weight : nullptr, work.data(), copies.data());
}

// Runs each piece on one thread of the team, and adds up their gradients of the weight.
void run_pieces(const ConvPlan& plan, const ImageSides& sides, void* weight, float* bias) {
  const ConvProblem& p = plan.problem;
  const Range first = images_in(plan, 0), last = images_in(plan, plan.pieces - 1);  // fewest and most images
  ConvCode &smallest = *code_of(problem_of(plan, 0), 1), &largest = *code_of(problem_of(plan, plan.pieces - 1), 1);
  const bool lays = !p.laid && smallest.laid_bytes() > 0 && largest.takes_weight_of(smallest), sums = p.pass == ConvPass::weight;
  const Workspace laid(Device::cpu, lays ? smallest.laid_bytes() : 0);
  const int64_t taps = taps_of(p), biases = p.with_bias ? p.filters : 0;
  const Workspace parts(Device::cpu, sums ? size_t(plan.pieces * (taps + biases)) * sizeof(float) : 0);
  float *const weights = reinterpret_cast<float*>(parts.data()), *const bias_parts = sums ? weights + plan.pieces * taps : nullptr;
  Slots slots(threads_for(plan.work, int(std::min<int64_t>(num_threads(), plan.pieces))),
              std::max(smallest.bytes(lays || p.laid) + sides.bytes(first), largest.bytes(lays || p.laid) + sides.bytes(last)));
  if (WorkspacePlan::open()) return;

  if (lays) smallest.lay_weight(weight, laid.data());
  const auto run_piece = [&](int64_t i) {
    ConvCode* const own = code_of(problem_of(plan, i), 1);
    check<Error>(own, "conv", "oneDNN has no code any more");  // this thread makes its own code
    const Slots::Lease slot(slots);
    const void* const laid_weight = p.laid ? weight : laid.data();
    sides.run(*own, images_in(plan, i), sums ? weights + i * taps : weight, biases && sums ? bias_parts + i * biases : bias,
              laid_weight, slot.memory(), slot.memory() + own->bytes(laid_weight != nullptr));
  };
  parallel_tasks(plan.pieces, plan.work, run_piece);
  if (!sums) return;
  add_up(weights, plan.pieces, taps, p.to, weight);
  if (biases) add_up(bias_parts, plan.pieces, biases, DType::f32, bias);
}

}  // namespace

std::optional<ConvPlan> conv_plan(const ConvProblem& problem) {
  if (!is_countable(problem)) return {};
  ConvPlan plan{problem, 1, 1, work_of(problem)};
  plan.pieces = pieces_of(problem, threads_to_cut_for(plan.work));
  if (plan.pieces == 1) plan.filter_parts = filter_parts_of(problem, plan.work);
  for (int64_t i : {int64_t(0), plan.pieces - 1})  // the smallest and the largest
    if (!code_of(problem_of(plan, i), threads_of(plan))) return {};
  for (int64_t i = 1; i < plan.filter_parts; ++i)
    if (!code_of(problem_of(plan, i), 1)) return {};
  return plan;
}

// Measured. If a weight is small compared with its images, laying it out at each call costs next to nothing. If a laid weight is
// too large for Winograd's method, more than a few images are faster by that method with the weight unlaid.
std::optional<ConvPlan> laid_plan(const ConvProblem& problem) {
  ConvProblem own = problem;
  own.laid = false;
  constexpr int64_t kSmallWeight = 64;  // times as many elements in the images as in a small weight
  if (image_elements(problem) > kSmallWeight * taps_of(problem) || (winograd_applies(own) && !winograd_applies(problem))) return {};
  const std::optional<ConvPlan> plan = conv_plan(problem);
  return plan && laid_weight_layout(*plan).bytes > 0 ? plan : std::nullopt;
}

ConvWeightLayout laid_weight_layout(const ConvPlan& plan) {
  const ConvCode &smallest = *code_of(problem_of(plan, 0), threads_of(plan)),
                 &largest = *code_of(problem_of(plan, plan.pieces - 1), threads_of(plan));
  if (smallest.laid_bytes() == 0 || !largest.takes_weight_of(smallest)) return {};
  return {smallest.laid_bytes(), smallest.weight_layout()};
}

void lay_weight(const ConvPlan& plan, const void* weight, void* laid) {
  code_of(problem_of(plan, 0), threads_of(plan))->lay_weight(weight, static_cast<char*>(laid));
}

void run(const ConvPlan& plan, const ConvImages& x, const void* weight, const ConvImages& y, const float* bias) {
  const ConvProblem& p = plan.problem;
  const ImageSides sides{{x, p.pass == ConvPass::data ? p.to : p.from, p.channels * product(p.in), p.pass == ConvPass::data},
                         {y, p.pass == ConvPass::forward ? p.to : p.from, p.filters * product(p.out), p.pass == ConvPass::forward}};
  void* const own_weight = const_cast<void*>(weight);
  float* const own_bias = const_cast<float*>(bias);
  if (plan.filter_parts > 1) return run_filter_parts(plan, sides, own_weight, own_bias);
  plan.pieces == 1 ? run_whole(plan, sides, own_weight, bias) : run_pieces(plan, sides, own_weight, own_bias);
}

}  // namespace halfstep::cpu
#else
namespace halfstep::cpu {
std::optional<ConvPlan> conv_plan(const ConvProblem&) { return {}; }
std::optional<ConvPlan> laid_plan(const ConvProblem&) { return {}; }
ConvWeightLayout laid_weight_layout(const ConvPlan&) { return {}; }
void lay_weight(const ConvPlan&, const void*, void*) {}
void run(const ConvPlan&, const ConvImages&, const void*, const ConvImages&, const float*) {}
}  // namespace halfstep::cpu
#endif
