// SPDX-License-Identifier: Apache-2.0
// A oneDNN primitive for one pass over a number of images, with the layouts that it prefers.
#pragma once

#include "framework/backend/cpu/conv/onednn.h"

#ifdef HALFSTEP_WITH_DNNL
#include <algorithm>
#include <vector>

#include "framework/backend/cpu/onednn.h"

namespace halfstep::cpu {

struct ChosenCode;

// Its arguments are bound once; a call only changes the pointers. `inner` memory has the library's layout.
class ConvCode {
 public:
  ConvCode(const ConvProblem& p, const ChosenCode& chosen);

  // Lay out a weight for several calls of run. 0 bytes: the weight is read as it is, or written.
  size_t laid_bytes() const { return weight_.written ? 0 : weight_.bytes; }
  void lay_weight(const void* weight, char* to);
  uint64_t weight_layout() const;  // unique for each layout
  bool takes_weight_of(const ConvCode& other) const { return weight_.inner_desc == other.weight_.inner_desc; }

  // Returns the bytes of `memory` for a call of run, with or without `laid`.
  size_t bytes(bool laid) const { return scratch_bytes_ + x_.bytes + y_.bytes + (laid ? 0 : weight_.bytes); }
  // Runs the primitive. `laid`: from lay_weight of code whose layout this one accepts, or nullptr.
  void run(const void* x, const void* weight, const void* y, const float* bias, const void* laid, char* memory);

 private:
  struct Side {
    dnnl::memory outer, inner;  // memory as the caller has it, and as the primitive needs it
    dnnl::memory::desc inner_desc;
    dnnl::primitive reorder;  // between the two; empty if they are equal
    size_t bytes = 0;         // of `inner`
    bool written = false;

    // Sets the memory of a call, and copies what the primitive reads into its layout.
    void set_memory(const void* at, void* inner_at) const;
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

// Returns the code for `threads` OpenMP threads, or nullptr if oneDNN has none worth calling. Each host thread caches the codes
// that it used last, so no lock is needed and a code's pointers may be changed. The pointer is valid until the cache evicts it.
ConvCode* code_of(const ConvProblem& p, int threads);

// Bound for Winograd's laid weight, which has 36 numbers for 9. For larger weights direct code is as fast and takes a quarter of
// the memory. An unlaid weight is transformed in each call, which takes longer than direct code for very few images.
constexpr int64_t kMostWinogradBytes = 16 << 20;
bool winograd_applies(const ConvProblem& p);
// Returns whether the code needs images in its own layout, copied there and back. Not for windows of one tap.
bool changes_layout(const ConvProblem& p);
inline size_t whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }  // rounds up to cache lines
inline int64_t product(const Spatial& s) { return s[0] * s[1] * s[2]; }
// Return the number of elements of the images on both sides, and of the weight.
inline int64_t image_elements(const ConvProblem& p) { return p.images * (p.channels * product(p.in) + p.filters * product(p.out)); }
inline int64_t taps_of(const ConvProblem& p) { return p.filters * (p.channels / p.groups) * product(p.window.size); }
// Returns whether oneDNN can count the problem: it rounds channels up and counts taps and elements of an image in an int, and
// would divide by zero after an overflow.
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
