// SPDX-License-Identifier: Apache-2.0
// Chooses the kernels of a reduction and splits its elements into segments: a pure function of shapes, strides and alignment, so
// the bits of the result do not depend on the device. Plain C++: tests call it without a GPU.
#pragma once

#include <cstdint>

#include "cuda/kernels/kernels.h"

namespace halfstep::cuda {

inline constexpr int64_t kSegment = 32 * 256;     // elements of a row per group of threads
inline constexpr int64_t kColumnSegment = 512;    // rows of a column per block
inline constexpr int64_t kPackedSegment = 128;    // the same if threads read packs
inline constexpr int64_t kFewSegments = 64;       // up to here one thread per output joins them
inline constexpr int64_t kLeastColumns = 8;       // outputs side by side from which a thread takes a column

// How `length` elements of each output are split into segments of about `wanted`.
struct Cut {
  int64_t segments, segment;  // the last one may be shorter

  Cut(int64_t length, int64_t outputs, int64_t wanted) {
    // Makes segments longer if their results would not fit into the scratch memory, and multiples of 8: whole packs.
    const int64_t fit = kScratchDoubles / (outputs > 0 ? outputs : 1), most = (length + wanted - 1) / wanted;
    const int64_t parts = most < 1 || fit < 1 ? 1 : most < fit ? most : fit;
    segment = (((length + parts - 1) / parts) + 7) / 8 * 8;
    segments = length > 0 ? (length + segment - 1) / segment : 1;
  }
};

// Facts about a reduction, with adjacent dimensions merged. The innermost steps are 0 if there is no dimension.
struct ReduceFacts {
  int64_t outputs = 1, length = 1;             // results, and elements per result
  int kept_dims = 0, reduced_dims = 0;
  int64_t kept_inner = 1;                      // size of the innermost kept dimension
  int64_t kept_step = 0, reduced_step = 0;     // strides of the innermost dimensions
  bool kept_steps_are_packs = true;            // whether every stride of a kept dimension is a whole number of packs
  int64_t pack = 1;                            // elements in 16 bytes
  bool aligned = false;                        // whether the input begins at 16 bytes
  bool has_packed_rows = false, has_packed_columns = false;  // whether this op and type have such kernels
};

struct ReducePlan {
  // rows: a group of threads reduces a segment. columns: kept elements are side by side, one thread per column. packed: 16 bytes
  // at a time.
  enum class Kernel : uint8_t { rows, packed_rows, columns, packed_columns };
  // How segments' results are joined, in order: not needed, by one thread per output, by one block per output.
  enum class Join : uint8_t { none, threads, blocks };
  Kernel kernel;
  Cut cut;
  Join join;
};

// Returns the kernel, the segments, and the way to join their results.
inline ReducePlan plan_reduction(const ReduceFacts& f) {
  using Kernel = ReducePlan::Kernel;
  using Join = ReducePlan::Join;
  const auto magnitude = [](int64_t v) { return v < 0 ? -v : v; };
  Kernel kernel = Kernel::rows;
  if (f.kept_dims > 0 && f.reduced_dims > 0 && f.kept_inner >= kLeastColumns && f.length > 1 &&
      magnitude(f.kept_step) < magnitude(f.reduced_step)) {
    const bool packed = f.has_packed_columns && f.aligned && f.kept_dims == 1 && f.kept_step == 1 && f.reduced_dims == 1 &&
                        f.outputs % f.pack == 0 && f.reduced_step % f.pack == 0;
    kernel = packed ? Kernel::packed_columns : Kernel::columns;
  } else if (f.has_packed_rows && f.aligned && f.reduced_dims == 1 && f.reduced_step == 1 && f.kept_steps_are_packs) {
    kernel = Kernel::packed_rows;
  }
  const Cut cut(f.length, f.outputs,
                kernel == Kernel::columns ? kColumnSegment : kernel == Kernel::packed_columns ? kPackedSegment : kSegment);
  return {kernel, cut, cut.segments > kFewSegments ? Join::blocks : cut.segments > 1 ? Join::threads : Join::none};
}

}  // namespace halfstep::cuda
