// SPDX-License-Identifier: Apache-2.0
// Random numbers against the CPU backend: whole packs, ends, unaligned memory, and the offset in device memory.
#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

namespace {

// Runs a draw on both backends from `state` and compares; on the device part of the offset is in random_base.
template <class Cpu, class Gpu>
void check_draw(DType t, int64_t n, int64_t shift, double absolute, const char* what, const Cpu& on_cpu, const Gpu& on_device) {
  const Buffer want = make(t, {n}), got = poisoned(t, {n});
  on_cpu(want, Generator::State{99, 1000});
  const Buffer base = make(DType::i64, {}, {997});
  const OnDevice dev_base(base), dev_got(got, shift);
  cuda::Queue q = queue();
  q.random_base = dev_base.as<const uint64_t>();
  on_device(q, dev_got, Generator::State{99, 3});
  dev_got.fetch();
  check_close(got, want, absolute == 0 ? 0 : 4, absolute, what);
}

}  // namespace

TEST_CASE("uniform and normal numbers in every dtype") {
  for (DType t : kAll) {
    for (int64_t n : kSizes) {
      check_draw(
          t, n, n % 2, 0, "uniform", [&](const Buffer& b, Generator::State s) { cpu().random_uniform(b, s, -1, 1.001); },
          [&](const cuda::Queue& q, const OnDevice& d, Generator::State s) { cuda::random_uniform(q, d, s, -1, 1.001); });
      if (!is_floating(t)) continue;
      check_draw(
          t, n, n % 2, 4e-6, "normal", [&](const Buffer& b, Generator::State s) { cpu().random_normal(b, s, 1, 2); },
          [&](const cuda::Queue& q, const OnDevice& d, Generator::State s) { cuda::random_normal(q, d, s, 1, 2); });
    }
  }
}

TEST_CASE("integers in every dtype, of ranges up to 64 bits") {
  struct Range {
    int64_t lo, hi;
  };
  for (DType t : kAll) {
    for (int64_t n : kSizes) {
      for (const Range& r : {Range{0, 2}, Range{3, 100}, Range{INT64_MIN, INT64_MAX}, Range{-5, (int64_t(1) << 32) - 5},
                             Range{0, (int64_t(1) << 40) + 1}}) {
        check_draw(
            t, n, n % 2, 0, "integers", [&](const Buffer& b, Generator::State s) { cpu().random_integers(b, s, r.lo, r.hi); },
            [&](const cuda::Queue& q, const OnDevice& d, Generator::State s) { cuda::random_integers(q, d, s, r.lo, r.hi); });
      }
    }
  }
}

TEST_CASE("dropout: dense, in place, strided and between dtypes") {
  for (DType t : kFloating) {
    for (int64_t n : kSizes) {
      for (DType from : {t, DType::f32}) {
        const Buffer x = uniform(from, {n}, 1);
        const OnDevice dev_x(x);
        check_draw(
            t, n, n % 2, 0, "dropout", [&](const Buffer& b, Generator::State s) { cpu().dropout(x, b, 0.3, s); },
            [&](const cuda::Queue& q, const OnDevice& d, Generator::State s) { cuda::dropout(q, dev_x, d, 0.3, s); });
      }
      const Buffer x = uniform(t, {n}, 1);
      check_draw(
          t, n, 0, 0, "dropout in place", [&](const Buffer& b, Generator::State s) { cpu().dropout(x, b, 0.3, s); },
          [&](const cuda::Queue& q, const OnDevice& d, Generator::State s) {
            REQUIRE(cudaMemcpy(d.view.data, x.view.data, size_t(n) * size_of(t), cudaMemcpyHostToDevice) == cudaSuccess);
            cuda::dropout(q, d, d, 0.3, s);
          });
    }
    for (Layout layout : kLayouts) {
      const Buffer x = uniform(t, {4, 9, 33}, 1, -2, 2, layout), want = make(t, {4, 9, 33}), got = poisoned(t, {4, 9, 33});
      const OnDevice dev_x(x), dev_got(got);
      cpu().dropout(x, want, 0.5, {7, 1});
      cuda::dropout(queue(), dev_x, dev_got, 0.5, {7, 1});
      dev_got.fetch();
      check_close(got, want, 0, 0, "dropout strided");
    }
  }
}

TEST_CASE("nothing is drawn for empty tensors") {
  const Buffer empty = make(DType::f32, {0});
  const OnDevice dev(empty);
  cuda::random_uniform(queue(), dev, {1, 0}, 0, 1);
  cuda::random_normal(queue(), dev, {1, 0}, 0, 1);
  cuda::random_integers(queue(), dev, {1, 0}, 0, 9);
  cuda::dropout(queue(), dev, dev, 0.5, {1, 0});
}
