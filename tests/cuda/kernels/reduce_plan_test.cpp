// SPDX-License-Identifier: Apache-2.0
// How reductions are cut and which kernels they take: a function of shapes alone, asked without a device.
#include "cuda/kernels/reduce/reduce_plan.h"

#include <doctest/doctest.h>

using namespace halfstep::cuda;

namespace {

using Kernel = ReducePlan::Kernel;
using Join = ReducePlan::Join;

// x [outputs, length] of f32, summed over its rows.
ReduceFacts rows(int64_t outputs, int64_t length) {
  ReduceFacts f;
  f.outputs = outputs;
  f.length = length;
  f.kept_dims = outputs > 1;
  f.reduced_dims = length > 1;
  f.kept_inner = outputs;
  f.kept_step = outputs > 1 ? length : 0;
  f.reduced_step = length > 1 ? 1 : 0;
  f.pack = 4;
  f.kept_steps_are_packs = length % 4 == 0;
  f.aligned = f.has_packed_rows = f.has_packed_columns = true;
  return f;
}
// x [length, outputs] of f32, summed over its columns.
ReduceFacts columns(int64_t length, int64_t outputs) {
  ReduceFacts f = rows(outputs, length);
  f.kept_step = outputs > 1 ? 1 : 0;
  f.reduced_step = length > 1 ? outputs : 0;
  f.kept_steps_are_packs = outputs <= 1;
  return f;
}

}  // namespace

TEST_CASE("reductions: rows are read in packs where they begin on 16 bytes, else one by one") {
  CHECK(plan_reduction(rows(64, 4096)).kernel == Kernel::packed_rows);
  CHECK(plan_reduction(rows(64, 4095)).kernel == Kernel::rows);  // every other row begins elsewhere
  ReduceFacts f = rows(64, 4096);
  f.aligned = false;
  CHECK(plan_reduction(f).kernel == Kernel::rows);
  f = rows(64, 4096);
  f.has_packed_rows = false;
  CHECK(plan_reduction(f).kernel == Kernel::rows);
  f = rows(64, 4096);
  f.reduced_step = 2;
  CHECK(plan_reduction(f).kernel == Kernel::rows);
}

TEST_CASE("reductions: neighbours that are kept go to threads side by side") {
  CHECK(plan_reduction(columns(4096, 512)).kernel == Kernel::packed_columns);
  CHECK(plan_reduction(columns(4096, 510)).kernel == Kernel::columns);  // not a whole number of packs
  CHECK(plan_reduction(columns(4096, 4)).kernel == Kernel::rows);       // too few to fill a warp
  ReduceFacts f = columns(4096, 512);
  f.reduced_step = 515;  // rows of a wider matrix
  CHECK(plan_reduction(f).kernel == Kernel::columns);
  f = columns(4096, 512);
  f.kept_dims = 2;
  CHECK(plan_reduction(f).kernel == Kernel::columns);
}

TEST_CASE("reductions: results of segments are joined by threads, or by blocks where they are many") {
  CHECK(plan_reduction(rows(64, 8192)).join == Join::none);
  CHECK(plan_reduction(rows(64, 8193)).join == Join::threads);
  CHECK(plan_reduction(rows(1, kSegment * kFewSegments)).join == Join::threads);
  CHECK(plan_reduction(rows(1, kSegment * kFewSegments + 1)).join == Join::blocks);
  CHECK(plan_reduction(rows(5, 0)).join == Join::none);
}

TEST_CASE("reductions: segments cover the elements, are whole packs, and their results fit in the scratch memory") {
  for (const int64_t outputs : {1, 7, 512, 5000, 131072, 200000}) {
    for (const int64_t length : {0, 1, 7, 8, 129, 513, 8191, 8192, 8193, 1 << 20, 1 << 26}) {
      for (const ReduceFacts& f : {rows(outputs, length), columns(length, outputs)}) {
        const Cut cut = plan_reduction(f).cut;
        CAPTURE(outputs);
        CAPTURE(length);
        CHECK(cut.segments >= 1);
        CHECK(cut.segments * cut.segment >= length);
        CHECK((length == 0 || (cut.segments - 1) * cut.segment < length));
        CHECK(cut.segment % 8 == 0);
        CHECK((cut.segments == 1 || cut.segments * outputs <= kScratchDoubles));
      }
    }
  }
}
