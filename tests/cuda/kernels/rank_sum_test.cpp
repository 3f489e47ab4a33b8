// SPDX-License-Identifier: Apache-2.0
// Sums over ranks against plain loops in their order, bit for bit.
#include "cuda/kernels/rank_sum.h"

#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

enum class Out { apart, own, place };  // place: this rank's among the others

// What the ranks have, and NaN in this rank's place among the others, between the places and behind the last one: nobody may read
// it. `want` is what the device's memory at `out` becomes: the sums, and NaN behind them.
struct Ranks {
  Ranks(DType t, int64_t count, int64_t stride, int ranks, int me)
      : own(uniform(t, {count}, unsigned(count + me))), others(poisoned(t, {ranks + 1, stride})), want(poisoned(t, {stride})) {
    set(own.view, 0, -0.0);
    for (int r = 0; r < ranks; ++r) {
      if (r == me) continue;
      const Buffer x = uniform(t, {count}, unsigned(100 * r) + unsigned(count));
      for (int64_t i = 0; i < count; ++i) set(others.view, r * stride + i, i == 0 ? -0.0 : x[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int r = 0; r < ranks; ++r) {
        const double x = r == me ? own[i] : others[r * stride + i];
        sum = r == 0 ? x : t == DType::f64 ? sum + x : double(float(sum) + float(x));
      }
      set(want.view, i, sum);
    }
  }
  Buffer own, others, want;
};

void check_sum(DType t, int64_t count, int64_t stride, int ranks, int me, int64_t shift, Out out) {
  const Ranks host(t, count, stride, ranks, me);
  const Buffer result = poisoned(t, {stride});
  const OnDevice own(host.own, shift), others(host.others), apart(result);
  const auto place = static_cast<char*>(others.view.data) + size_t(me * stride) * size_of(t);
  void* const to = out == Out::apart ? apart.view.data : out == Out::own ? own.view.data : place;
  cuda::sum_ranks(queue().stream, t, own.view.data, others.view.data, to, count, stride, ranks, me);

  const Buffer want_own = make(t, {count}), want_others = make(t, host.others.view.shape);
  std::memcpy(want_own.view.data, (out == Out::own ? host.want : host.own).view.data, size_t(count) * size_of(t));
  std::memcpy(want_others.view.data, host.others.view.data, size_t((ranks + 1) * stride) * size_of(t));
  if (out == Out::place)
    for (int64_t i = 0; i < count; ++i) set(want_others.view, me * stride + i, host.want[i]);
  for (const OnDevice* d : {&own, &others, &apart}) d->fetch();
  const auto same = [](const Buffer& a, const Buffer& b) {
    return std::memcmp(a.view.data, b.view.data, size_t(a.numel()) * size_of(a.view.dtype)) == 0;
  };
  const std::string what = std::string(name(t)) + "[" + std::to_string(count) + "] of " + std::to_string(ranks) + " ranks at " +
                           std::to_string(me) + ", out " + std::to_string(int(out));
  CHECK_MESSAGE(same(result, out == Out::apart ? host.want : poisoned(t, {stride})), what);
  CHECK_MESSAGE(same(host.own, want_own), what, ": own");
  CHECK_MESSAGE(same(host.others, want_others), what, ": others");
}

}  // namespace

TEST_CASE("sums over ranks, in their order") {
  for (DType t : kFloating) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      const int me = ranks * 3 / 5;
      check_sum(t, 1, 8, ranks, me, 0, Out::apart);
      check_sum(t, 43, 48, ranks, me, 0, Out::own);    // packs and a rest
      check_sum(t, 64, 64, ranks, me, 0, Out::place);  // packs only
      check_sum(t, 43, 43, ranks, me, 0, Out::place);  // no packs: places on odd addresses
      check_sum(t, 64, 72, ranks, me, 1, Out::apart);  // nor here
    }
    check_sum(t, 9003, 9008, 2, 1, 0, Out::apart);  // more packs than a small device's threads
    check_sum(t, 1300, 1304, 3, 2, 1, Out::own);    // and more elements
  }
}
