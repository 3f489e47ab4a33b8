// SPDX-License-Identifier: Apache-2.0
// A primitive of oneDNN for one pass over a number of images, with the layouts that it prefers.
#pragma once

#include "framework/backend/cpu/conv/onednn.h"

#ifdef HALFSTEP_WITH_DNNL
#include <algorithm>
#include <vector>

#include "framework/backend/cpu/onednn.h"

namespace halfstep::cpu {

struct ChosenCode;

// Its arguments are bound once; a call only changes the pointers. `inner` memory is in the library's layout.
class ConvCode {
 public:
  ConvCode(const ConvProblem& p, const ChosenCode& chosen);

  // A weight in the primitive's layout, for several calls of run. 0 bytes: it is read as it lies, or written.
  size_t laid_bytes() const { return weight_.written ? 0 : weight_.bytes; }
  void lay_weight(const void* weight, char* to);
  uint64_t weight_layout() const;  // a number of its own for each layout
  bool takes_weight_of(const ConvCode& other) const { return weight_.inner_desc == other.weight_.inner_desc; }

  // The memory of a call of run, with or without `laid`.
  size_t bytes(bool laid) const { return scratch_bytes_ + x_.bytes + y_.bytes + (laid ? 0 : weight_.bytes); }
  // `laid`: from lay_weight of a code whose layout this one takes, or nullptr.
  void run(const void* x, const void* weight, const void* y, const float* bias, const void* laid, char* memory);

 private:
  struct Side {
    dnnl::memory outer, inner;  // as the caller has it, as the primitive wants it
    dnnl::memory::desc inner_desc;
    dnnl::primitive reorder;  // between the two; none where they are the same
    size_t bytes = 0;         // of `inner`
    bool written = false;

    // The memory of a call; what the primitive reads is brought into its layout.
    void place(const void* at, void* inner_at) const;
  };
  void bind(Side& side, const dnnl::memory::desc& outside, const dnnl::memory::desc& inside, int argument, bool written);

  int threads_;
  bool leaves_stack_, used_ = false;
  dnnl::primitive primitive_;
  Side x_, weight_, y_;
  dnnl::memory bias_, scratch_;
  size_t scratch_bytes_ = 0;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// For as many of OpenMP's threads; nullptr where oneDNN has no code worth calling. Each host thread keeps the codes that it used
// last: no lock, and a code's pointers may be changed freely. A code is good until as many others have been asked for.
ConvCode* code_of(const ConvProblem& p, int threads);

// Winograd's laid weight has 36 numbers for 9. Beyond this size direct code is as fast, and takes a quarter of the memory. A weight
// that is not laid out is transformed in each call, which takes longer than direct code for very few images.
constexpr int64_t kMostWinogradBytes = 16 << 20;
bool winograd_applies(const ConvProblem& p);
// Does its code have the images in a layout of its own, so that they are copied there and back? Not asked for windows of one tap.
bool changes_layout(const ConvProblem& p);
inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }  // of the cache
inline int64_t product(const Spatial& s) { return s[0] * s[1] * s[2]; }
// Of the images on both sides, and of the weight.
inline int64_t image_elements(const ConvProblem& p) { return p.images * (p.channels * product(p.in) + p.filters * product(p.out)); }
inline int64_t taps_of(const ConvProblem& p) { return p.filters * (p.channels / p.groups) * product(p.window.size); }
// The library rounds channels up and counts taps and the elements of an image in an int: where that overflows it divides by zero.
inline bool is_countable(const ConvProblem& p) {
  constexpr int64_t kMost = int64_t(1) << 30;
  const auto fits = [](int64_t channels, const Spatial& sizes) {
    int64_t n = channels;
    for (int64_t size : sizes) {
      if (n > kMost / size) return false;
      n *= size;
    }
    return n <= kMost;
  };
  return p.images <= kMost && p.groups <= kMost && p.filters <= kMost && fits(p.channels, p.in) && fits(p.filters, p.out) &&
         fits(std::max(p.channels, p.filters), p.window.size) && taps_of(p) <= kMost;
}

}  // namespace halfstep::cpu
#endif
