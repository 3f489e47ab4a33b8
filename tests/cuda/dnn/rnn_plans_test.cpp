// SPDX-License-Identifier: Apache-2.0
// The adapter's recurrent networks in the real library: the descriptors that it takes or refuses, for which it needs no device.
// It reports the memory that a network needs, and the places of its parameters, on a device only.
#include "cuda/dnn/rnn_descriptor.h"
#include "tests/cuda/dnn/plans.h"

using namespace halfstep;
using namespace halfstep::testing;
using namespace halfstep::cuda::dnn;

namespace {

using Layout = RecurrentArgs::Layout;

RnnProblem problem(Cell cell, DType dtype = DType::f16) {
  return {.args = {.cell = cell,
                   .dtype = dtype,
                   .layers = 2,
                   .directions = 1,
                   .features = 512,
                   .units = 1024,
                   .width = 1024,
                   .biased = true,
                   .projected = false,
                   .layout = Layout::steps_first,
                   .steps = 100,
                   .batch = 4}};
}

// Empty, or why it is refused.
std::string refusal(const RnnProblem& p) {
  try {
    const RnnPlan plan(p, nullptr);
    return "";
  } catch (const DeviceError& e) { return e.what(); }
}

constexpr Cell kCells[] = {Cell::lstm, Cell::gru, Cell::rnn_tanh, Cell::rnn_relu};

}  // namespace

TEST_CASE("recurrent networks of all cells, dtypes and options are taken") {
  if (!cudnn_is_here()) return;
  REQUIRE(cuda::cudnn().has_rnn);
  for (Cell cell : kCells) {
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (int options = 0; options < 8; ++options) {
        for (Layout layout : {Layout::steps_first, Layout::batch_first, Layout::packed}) {
          RnnProblem p = problem(cell, dtype);
          p.args.directions = options & 1 ? 2 : 1;
          p.args.biased = (options & 2) != 0;
          p.args.layers = options & 4 ? 3 : 1;
          p.args.layout = layout;
          if (layout == Layout::packed) p.args.lengths = {100, 100, 3, 1};
          CAPTURE(int(cell));
          CAPTURE(name(dtype));
          CAPTURE(options);
          CHECK(p.is_for_the_library());
          CHECK(refusal(p) == "");
          p.tf32 = dtype == DType::f32;
          CHECK(refusal(p) == "");
        }
      }
    }
  }
}

TEST_CASE("projections are an LSTM's") {
  if (!cudnn_is_here()) return;
  for (Cell cell : kCells) {
    for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      RnnProblem p = problem(cell, dtype);
      p.args.projected = true;
      p.args.width = 128;
      CHECK((refusal(p) == "") == (cell == Cell::lstm));
    }
  }
}

TEST_CASE("packed sequences come with the longest first, and have a step each") {
  if (!cudnn_is_here()) return;
  RnnProblem p = problem(Cell::lstm);
  p.args.layout = Layout::packed;
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{3, 100, 100, 100}, {100, 5, 6, 1}}) {
    p.args.lengths = lengths;
    CHECK(refusal(p) != "");
  }
}

TEST_CASE("what is not for the library") {
  const RnnProblem base = problem(Cell::lstm);
  CHECK(base.is_for_the_library());
  const auto not_with = [&](const auto& change) {
    RnnProblem p = base;
    change(p.args);
    CHECK_FALSE(p.is_for_the_library());
  };
  not_with([](RecurrentArgs& a) { a.dtype = DType::f64; });
  not_with([](RecurrentArgs& a) { a.projected = true; });
  not_with([](RecurrentArgs& a) { a.batch = int64_t(1) << 31; });
  not_with([](RecurrentArgs& a) { a.steps = int64_t(1) << 32; });
  not_with([](RecurrentArgs& a) { a.batch = 0; });
  not_with([](RecurrentArgs& a) { a.features = 0; });
}

TEST_CASE("what a recurrent network's preparation depends on is in its key") {
  const RnnProblem base = problem(Cell::lstm);
  CHECK(base.key() == problem(Cell::lstm).key());
  const auto differs = [&](const auto& change, bool network) {
    RnnProblem other = base;
    change(other);
    CHECK(other.key() != base.key());
    CHECK((other.network_key() != base.network_key()) == network);
  };
  differs([](RnnProblem& p) { p.args.cell = Cell::gru; }, true);
  differs([](RnnProblem& p) { p.args.dtype = DType::bf16; }, true);
  differs([](RnnProblem& p) { p.tf32 = true; }, true);
  differs([](RnnProblem& p) { p.args.biased = false; }, true);
  differs([](RnnProblem& p) { p.args.projected = true; }, true);
  for (int64_t RecurrentArgs::*part :
       {&RecurrentArgs::layers, &RecurrentArgs::directions, &RecurrentArgs::features, &RecurrentArgs::units, &RecurrentArgs::width})
    differs([&](RnnProblem& p) { ++(p.args.*part); }, true);
  differs([](RnnProblem& p) { p.args.layout = Layout::batch_first; }, false);
  differs([](RnnProblem& p) { p.args.layout = Layout::packed; }, false);
  differs([](RnnProblem& p) { ++p.args.steps; }, false);
  differs([](RnnProblem& p) { ++p.args.batch; }, false);
  differs([](RnnProblem& p) { p.args.lengths = {100, 100, 100, 99}; }, false);
}
