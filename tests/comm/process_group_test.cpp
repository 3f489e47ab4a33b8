// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/process_group.h"

#include <doctest/doctest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>

#include "framework/ops/ops.h"
#include "tests/comm/local_ranks.h"

using namespace halfstep;
using halfstep::testing::on_ranks;

namespace {

// The data of rank r: numbers whose sum depends on the order of the additions.
float given(int rank, int64_t i) { return std::ldexp(float((i * 7919 + rank * 104729) % 4096 - 2048), int((i + 3 * rank) % 17)); }

Tensor of_rank(int rank, int64_t n) {
  const Tensor t = empty({n});
  for (int64_t i = 0; i < n; ++i) t.data_ptr<float>()[i] = given(rank, i);
  return t;
}

}  // namespace

TEST_CASE("process group: sums are taken in the order of the ranks, in float32, and are the same everywhere") {
  for (const int ranks : {2, 3, 4}) {
    for (const int64_t n : {int64_t(1), int64_t(2), int64_t(1000), int64_t(5003)}) {
      std::atomic<int> wrong{0};
      on_ranks(ranks, [&](ProcessGroup& group) {
        const Tensor t = of_rank(group.rank(), n);
        group.wait(group.all_reduce({t}));
        for (int64_t i = 0; i < n; ++i) {
          float sum = given(0, i);
          for (int r = 1; r < ranks; ++r) sum += given(r, i);
          wrong += std::bit_cast<uint32_t>(sum) != std::bit_cast<uint32_t>(t.data_ptr<float>()[i]);
        }
      });
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("process group: a list is reduced as one, and 16-bit numbers are rounded once") {
  std::atomic<int> wrong{0};
  on_ranks(3, [&](ProcessGroup& group) {
    const int64_t n = 301;
    const Tensor a = of_rank(group.rank(), n), b = of_rank(group.rank() + 1, n), wire = of_rank(group.rank(), n),
                 half = of_rank(group.rank(), n).mul(0x1p-12).to(DType::f16);
    const Ticket list = group.all_reduce({a, b});
    group.wait(group.all_reduce({wire}, ReduceOp::sum, Wire::bf16));
    group.wait(list);  // one that ended long ago
    group.wait(group.all_reduce({half}));
    for (int64_t i = 0; i < n; ++i) {
      float low = float(bf16(given(0, i))), narrow = float(f16(given(0, i) * 0x1p-12f));
      for (int r = 1; r < 3; ++r) low += float(bf16(given(r, i))), narrow += float(f16(given(r, i) * 0x1p-12f));
      wrong += a.data_ptr<float>()[i] != given(0, i) + given(1, i) + given(2, i);
      wrong += b.data_ptr<float>()[i] != given(1, i) + given(2, i) + given(3, i);
      wrong += wire.data_ptr<float>()[i] != float(bf16(low));
      wrong += half.data_ptr<f16>()[i].bits != f16(narrow).bits;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("process group: largest, smallest, parts, broadcast, numbers and texts") {
  std::atomic<int> wrong{0};
  on_ranks(3, [&](ProcessGroup& group) {
    const int me = group.rank();
    const Tensor most = full({4}, me, {.dtype = DType::i64}), least = full({4}, me, {.dtype = DType::i64});
    group.wait(group.all_reduce({most}, ReduceOp::max));
    group.wait(group.all_reduce({least}, ReduceOp::min));
    wrong += most.to_vector<double>() != std::vector<double>(4, 2) || least.to_vector<double>() != std::vector<double>(4, 0);

    const Tensor parts = arange(6.0).to(DType::f32).add(double(me)), part = empty({2});
    group.wait(group.reduce_scatter(parts, part));
    wrong += part.to_vector<double>() != std::vector<double>{3 * 2.0 * me + 3, 3 * (2.0 * me + 1) + 3};
    const Tensor all = empty({6});
    group.wait(group.all_gather(part, all));
    wrong += all.to_vector<double>() != std::vector<double>{3, 6, 9, 12, 15, 18};
    const Tensor said = full({3}, double(me));
    group.wait(group.broadcast({said}, 1));
    wrong += said.to_vector<double>() != std::vector<double>(3, 1);
    group.wait(group.barrier());
    wrong += group.gather(std::vector<double>{1.0 * me, 5}) != std::vector<std::vector<double>>{{0, 5}, {1, 5}, {2, 5}};
    wrong += group.gather(std::string(size_t(me), 'x')) != std::vector<std::string>{"", "x", "xx"};
  });
  CHECK(wrong == 0);
}

TEST_CASE("process group: infinities and NaN of one rank reach all") {
  std::atomic<int> wrong{0};
  on_ranks(2, [&](ProcessGroup& group) {
    const Tensor t = tensor({group.rank() == 1 ? INFINITY : 1.0, group.rank() == 0 ? NAN : 1.0});
    group.wait(group.all_reduce({t}));
    wrong += !std::isinf(t.data_ptr<float>()[0]) || !std::isnan(t.data_ptr<float>()[1]);
  });
  CHECK(wrong == 0);
}

TEST_CASE("process group: a rank that does not come is named when the time is over") {
  std::string said;
  const auto start = std::chrono::steady_clock::now();
  try {
    on_ranks(3,
             [&](ProcessGroup& group) {
               if (group.rank() == 2) return;
               const Tensor t = ones({8});
               group.wait(group.all_reduce({t}));
             },
             {.timeout_s = 0.3});
  } catch (const PeerLostError& e) { said = e.what(); }
  CHECK(said.find("[distributed] all_reduce on rank 0 did not end within 0.3 s: rank 2 does not answer") == 0);
  CHECK(said.find("help: ") != std::string::npos);
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 2.3);
}

TEST_CASE("process group: a rank that only computes is not called lost") {
  std::string said;
  std::atomic<bool> ended{false};
  on_ranks(2,
           [&](ProcessGroup& group) {
             if (group.rank() == 1) {  // lives until the other one has its answer, however busy the machine is
               const auto began = std::chrono::steady_clock::now();
               while (!ended && std::chrono::steady_clock::now() - began < std::chrono::seconds(30))
                 std::this_thread::sleep_for(std::chrono::milliseconds(10));
               return;
             }
             const Tensor t = ones({8});
             try {
               group.wait(group.all_reduce({t}));
             } catch (const PeerLostError& e) { said = e.what(); }
             ended = true;
           },
           {.timeout_s = 0.1});
  CHECK(said.find("did not end within 0.1 s: all ranks live, but one of them is late") != std::string::npos);
}

TEST_CASE("process group: nothing continues after a failure") {
  std::atomic<int> failures{0};
  on_ranks(2,
           [&](ProcessGroup& group) {
             if (group.rank() == 1) return;
             const Tensor t = ones({8});
             const Ticket first = group.all_reduce({t});
             for (int i = 0; i < 2; ++i) {
               try {
                 group.wait(first);
               } catch (const PeerLostError&) { ++failures; }
             }
             try {
               group.barrier();
             } catch (const PeerLostError&) { ++failures; }
           },
           {.timeout_s = 0.1});
  CHECK(failures == 3);
}

TEST_CASE("process group: what cannot be exchanged is refused") {
  on_ranks(2, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    const Tensor t = zeros({4, 4});
    CHECK_THROWS_WITH_AS(group.all_reduce({}), doctest::Contains("there must be a tensor"), ValueError);
    CHECK_THROWS_WITH_AS(group.all_reduce({t.t()[0].detach()}), doctest::Contains("must be contiguous"), ValueError);
    CHECK_THROWS_WITH_AS(group.all_reduce({t, t.to(DType::f64)}), doctest::Contains("one dtype, got float32 and float64"),
                         DTypeError);
    CHECK_THROWS_WITH_AS(group.all_gather(t, t), doctest::Contains("`to` must be 2 times `from`"), ShapeError);
    CHECK_THROWS_WITH_AS(group.broadcast({t}, 2), doctest::Contains("root must be a rank below 2, got 2"), ValueError);
  });
}
