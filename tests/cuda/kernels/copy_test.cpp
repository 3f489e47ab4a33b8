// SPDX-License-Identifier: Apache-2.0
// Copies, casts, fills and random numbers against the CPU backend, bit for bit.
#include <deque>

#include "device.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("copies between all dtypes and layouts") {
  for (DType from : kAll) {
    for (DType to : kAll) {
      for (Layout layout : kLayouts) {
        const Buffer x = uniform(from, {3, 4, 11}, 1, from == DType::u8 ? 0 : -9, 9, layout);
        const Buffer y = poisoned(to, {3, 4, 11}), want = make(to, {3, 4, 11});
        cpu().copy(x, want);
        const OnDevice dev_x(x), dev_y(y);
        cuda::copy(queue(), dev_x, dev_y);
        dev_y.fetch();
        CHECK_MESSAGE(y.values() == want.values(), name(from), " to ", name(to));
      }
    }
  }
}

TEST_CASE("dense casts at the sizes where loops end, aligned and not") {
  for (DType half : {DType::f16, DType::bf16}) {
    for (int64_t n : kSizes) {
      for (int64_t shift : {0, 1}) {
        for (bool narrow : {false, true}) {
          const DType from = narrow ? DType::f32 : half, to = narrow ? half : DType::f32;
          const Buffer x = uniform(from, {n}, unsigned(n), -70000, 70000), y = poisoned(to, {n}), want = make(to, {n});
          cpu().copy(x, want);
          const OnDevice dev_x(x, shift), dev_y(y, shift);
          cuda::copy(queue(), dev_x, dev_y);
          dev_y.fetch();
          CHECK(y.values() == want.values());
        }
      }
    }
  }
}

TEST_CASE("dense casts between the 16-bit floats, and more packs than one launch has threads") {
  for (DType from : kStored) {
    for (DType to : kStored) {
      for (int64_t n : {int64_t(7), int64_t(2049), from == DType::f32 && to == DType::f16 ? int64_t(140003) : int64_t(64)}) {
        const Buffer x = uniform(from, {n}, unsigned(n), -9, 9), y = poisoned(to, {n}), want = make(to, {n});
        cpu().copy(x, want);
        const OnDevice dev_x(x), dev_y(y);
        cuda::copy(queue(), dev_x, dev_y);
        dev_y.fetch();
        CHECK(y.values() == want.values());
      }
    }
  }
}

TEST_CASE("many copies at once, where a flag says so") {
  struct Flag {
    bool given;
    double value;
  };
  for (const Flag& f : {Flag{false, 0}, Flag{true, 1}, Flag{true, 0}}) {
    std::deque<Buffer> from, to, want;
    std::deque<OnDevice> dev_from, dev_to;
    std::vector<TensorView> reads, writes, cpu_reads, cpu_writes;
    for (int k = 0; k < 210; ++k) {  // more than one launch takes, also of several parts
      const DType t = kAll[size_t(k) % std::size(kAll)];
      const Shape shape = k == 100 ? Shape{1, 40001} : k % 11 == 7 ? Shape{3, 4, 5} : Shape{k % 9};
      const Layout layout = k % 11 == 7 ? kLayouts[k % 3] : Layout::dense;  // what is written is not repeated
      const Buffer& source = from.emplace_back(uniform(t, shape, unsigned(k), 0, 9));
      for (auto* copies : {&to, &want}) copies->push_back(uniform(t, shape, unsigned(k + 1), 0, 9, layout));
      cpu_reads.push_back(source.view);
      cpu_writes.push_back(want.back().view);
      reads.push_back(dev_from.emplace_back(source, k % 7 == 3).view);
      writes.push_back(dev_to.emplace_back(to.back(), k % 5 == 3).view);
    }
    const Buffer flag = make(DType::f32, {}, {f.value});
    const OnDevice dev_flag(flag);
    cpu().copy_all(cpu_reads, cpu_writes, f.given ? flag.view.as<float>() : nullptr);
    cuda::copy_all(queue(), reads, writes, f.given ? dev_flag.as<float>() : nullptr);
    const bool copies = !f.given || f.value != 0;
    for (size_t k = 0; k < writes.size(); ++k) {
      dev_to[k].fetch();
      const bool same = to[k].values() == want[k].values(), taken = want[k].values() == from[k].values();
      CHECK_MESSAGE(same, k);
      if (want[k].numel() > 8) CHECK(taken == copies);
    }
  }
}

TEST_CASE("the copies of dense tensors are one launch") {
  const Buffer a = uniform(DType::f32, {40}, 1), b = uniform(DType::i64, {}, 2);
  const OnDevice from(a), to(make(DType::f32, {40})), number(b), copy(make(DType::i64, {}));
  CHECK(launches_of([&] {
          cuda::copy_all(queue(), std::vector{from.view, number.view}, std::vector{to.view, copy.view}, nullptr);
        }) == 1);
}

TEST_CASE("transposed copies, with and without a batch") {
  for (DType t : {DType::u8, DType::f16, DType::bf16, DType::f32, DType::i32, DType::f64}) {
    for (const Shape& shape : {Shape{33, 65}, Shape{8, 8}, Shape{7, 40}, Shape{64, 32}, Shape{3, 9, 70}, Shape{2, 3, 9, 33}}) {
      for (bool reads : {true, false}) {  // the dense side: the output or the input
        const Layout other = Layout::transposed;
        const Buffer x = uniform(t, shape, 1, 0, 99, reads ? other : Layout::dense);
        Buffer y = make_layout(t, shape, reads ? Layout::dense : other);
        std::memset(y.view.data, 0x7F, size_t(y.numel()) * size_of(t));
        const OnDevice dev_x(x, 1), dev_y(y, 1);
        cuda::copy(queue(), dev_x, dev_y);
        dev_y.fetch();
        CHECK_MESSAGE(y.values() == x.values(), name(t), " ", reads);
      }
    }
  }
}

TEST_CASE("copies of slices, in the widest pieces that fit") {
  for (DType t : {DType::u8, DType::f16, DType::f32, DType::f64}) {
    for (int64_t columns : {1, 6, 12, 16, 48}) {
      for (int64_t pitch : {48, 50, 56, 64}) {
        for (int64_t shift : {0, 1, 2, 4, 8}) {
          const Buffer x = pitched(t, 5, columns, pitch, 3, 0, 99), y = poisoned(t, {5, columns});
          const OnDevice dev_x(x, shift), dev_y(y);
          cuda::copy(queue(), dev_x, dev_y);
          dev_y.fetch();
          CHECK_MESSAGE(y.values() == x.values(), name(t), " ", columns, " of ", pitch, " from ", shift);
        }
      }
    }
  }
  for (DType t : {DType::u8, DType::f16, DType::f32}) {  // long rows: between packs, of packs, whole parts of them and more
    for (int64_t columns : {257, 2048, 2049, 2052, 4500, 4512, 5120}) {
      const int64_t gap = columns == 2052 ? 4 : columns % 32 == 0 ? 16 : 3;
      const Buffer x = pitched(t, 5, columns, columns + gap, 3, 0, 99), y = poisoned(t, {5, columns});
      const OnDevice dev_x(x, gap == 3 ? 1 : 0), dev_y(y);
      cuda::copy(queue(), dev_x, dev_y);
      dev_y.fetch();
      CHECK_MESSAGE(y.values() == x.values(), name(t), " ", columns);
    }
  }
  // Columns of both are dense: no element is looked for by itself.
  const Buffer tall = operand(DType::f16, {300, 9}, true, 4, 3), short_y = operand(DType::f16, {300, 9}, true, 5, 4);
  const OnDevice dev_tall(tall), dev_short(short_y);
  struct Blocks final : cuda::LaunchWatcher {
    unsigned blocks = 0;
    void launched(const cuda::KernelLaunch& l) override { blocks += l.grid.x; }
    void uses_fixed(const void*) override {}
  } counted;
  cuda::launch_watcher = &counted;
  cuda::copy(queue(), dev_tall, dev_short);
  cuda::launch_watcher = nullptr;
  CHECK(counted.blocks <= 9);  // at most one for each column
  dev_short.fetch();
  CHECK(short_y.values() == tall.values());
  // Into a slice: elements between the rows are unchanged.
  const Buffer x = uniform(DType::f16, {5, 16}, 1), y = pitched(DType::f16, 5, 16, 24, 2),
               before = pitched(DType::f16, 5, 16, 24, 2);
  Buffer all = y, all_before = before;
  all.view.shape[1] = all_before.view.shape[1] = 24;
  const OnDevice dev_x(x), dev_all(all);
  TensorView slice = dev_all.view;
  slice.shape[1] = 16;
  cuda::copy(queue(), dev_x, slice);
  dev_all.fetch();
  for (int64_t i = 0; i < all.numel(); ++i) CHECK(all[i] == (i % 24 < 16 ? x[i / 24 * 16 + i % 24] : all_before[i]));
}

TEST_CASE("casts round once") {
  for (DType half : {DType::f16, DType::bf16}) {
    // Halfway cases that a detour over float would round twice, overflow, subnormals, integers past 2^53.
    const Buffer x = make(DType::f64, {6}, {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 - 0x1p-45, 65519.999, 65520, 3e-8, -1e300});
    const Buffer y = poisoned(half, {6}), want = make(half, {6});
    cpu().copy(x, want);
    const OnDevice dev_x(x), dev_y(y);
    cuda::copy(queue(), dev_x, dev_y);
    dev_y.fetch();
    CHECK(y.values() == want.values());
  }
}

TEST_CASE("fill and arange") {
  for (DType t : kAll) {
    const Buffer y = poisoned(t, {3, 700}), z = poisoned(t, {1200}), want = make(t, {1200});
    const OnDevice dev_y(y), dev_z(z);
    cuda::fill(queue(), dev_y, 1);
    const double by = t == DType::u8 || t == DType::i8 ? 0.0625 : 0.5;
    cuda::arange(queue(), dev_z, 3, by);
    cpu().arange(want, 3, by);
    dev_y.fetch();
    dev_z.fetch();
    CHECK(y.values() == std::vector<double>(2100, 1.0));
    CHECK(z.values() == want.values());
  }
}

TEST_CASE("fill with zeros of either sign, dense and in a slice") {
  for (DType t : kAll) {
    for (double zero : {0.0, -0.0}) {
      const Buffer y = poisoned(t, {70}), z = pitched(t, 4, 5, 9, 1, 1, 9);
      const OnDevice dev_y(y), dev_z(z);
      cuda::fill(queue(), dev_y, zero);
      cuda::fill(queue(), dev_z, zero);
      dev_y.fetch();
      dev_z.fetch();
      CHECK(y.values() == std::vector<double>(70, 0.0));
      CHECK(std::signbit(y[69]) == (is_floating(t) && std::signbit(zero)));
      CHECK(z.values() == std::vector<double>(20, 0.0));
    }
  }
}

TEST_CASE("random numbers are the CPU's") {
  const Generator::State state{12345678901234u, 7};
  for (DType t : kFloating) {
    for (int64_t n : kSizes) {
      const Buffer u = poisoned(t, {n}), z = poisoned(t, {n}), d = poisoned(t, {n}), x = uniform(t, {n}, 3);
      const Buffer want_u = make(t, {n}), want_z = make(t, {n}), want_d = make(t, {n});
      cpu().random_uniform(want_u, state, -1, 3);
      cpu().random_normal(want_z, state, 1, 2);
      cpu().dropout(x, want_d, 0.3, state);
      const OnDevice dev_u(u, 1), dev_z(z), dev_d(d), dev_x(x);
      cuda::random_uniform(queue(), dev_u, state, -1, 3);
      cuda::random_normal(queue(), dev_z, state, 1, 2);
      cuda::dropout(queue(), dev_x, dev_d, 0.3, state);
      dev_u.fetch();
      dev_z.fetch();
      dev_d.fetch();
      CHECK(u.values() == want_u.values());
      CHECK(d.values() == want_d.values());
      check_close(z, want_z, 4, 4e-6, "normal");
    }
  }
}
