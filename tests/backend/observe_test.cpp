// SPDX-License-Identifier: Apache-2.0
// A fifth observer: everything that a thread computes is reported to it, and no other file knows of it.
#include "framework/backend/observe.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "amp/autocast/autocast.h"
#include "framework/backend/backend.h"
#include "framework/backend/op_log.h"
#include "framework/ops/ops.h"
#include "halfstep.h"

using namespace halfstep;

namespace {

struct Notes : OpObserver {
  explicit Notes(std::optional<Kernels> kernels = {}) : kernels_(kernels) {}
  void begin(const ObservedCall& c) override {
    lines.push_back(joined(depth++, c.is_backward ? " backward " : " ", c.name, " of ", c.inputs.size()));
    attributes.push_back(text(c.attributes()));
  }
  void end(const ObservedCall& c, const CallResult& r) override {
    lines.push_back(joined(--depth, " end of ", c.name, r.failed ? " by an error" : joined(" with ", r.outputs.size())));
  }
  void autocast(const AutocastChoice& choice, std::span<const Tensor>) override {
    lines.push_back(joined("autocast chooses ", name(choice.policy)));
  }
  void cast(const Tensor& from, const Tensor& to, bool kept) override {
    lines.push_back(joined("cast ", from.dtype(), " to ", to.dtype(), kept ? ", kept" : ""));
  }
  void host_read(const Tensor& t) override { lines.push_back(joined("read ", t.shape())); }
  void kernel(const ObservedKernel& k) override {
    lines.push_back(joined("kernel ", k.name, ' ', k.reads.size(), ' ', k.writes.size(), ' ', k.bytes_written));
  }
  std::optional<Kernels> observes_kernels() const override { return kernels_; }

  std::vector<std::string> lines, attributes;
  int depth = 0;
  std::optional<Kernels> kernels_;
};
std::string text(const Notes& notes) {
  std::string out;
  for (const std::string& line : notes.lines) out += joined(line, '\n');
  return out;
}

}  // namespace

TEST_CASE("an observer gets calls of both passes with what they have, and casts") {
  const Tensor x = ones({2, 3}), w = ones({4, 3}).set_requires_grad();
  Notes notes;
  {
    const Observing on(notes);
    Tensor y;
    {
      const Autocast region(Device::cpu, DType::bf16);
      linear(x, w);
      notes.lines.clear();
      y = linear(x, w);
    }
    CHECK(text(notes) ==
              "autocast chooses low\n"
              "0 autocast of 1\n"
              "0 end of autocast with 0\n"
              "cast float32 to bfloat16\n"
              "cast float32 to bfloat16, kept\n"
              "0 linear of 3\n"
              "1 permute of 1\n"
              "1 end of permute with 1\n"
              "0 end of linear with 1\n");
    notes.lines.clear();
    const Tensor s = sum(y, 1, true);
    CHECK(notes.attributes.back() == "dims=[1] keepdim=true");
    notes.lines.clear();
    s.sum().item<double>();
    CHECK(text(notes) ==
              "0 sum of 1\n"
              "0 end of sum with 1\n"
              "read []\n");
    notes.lines.clear();
    CHECK_THROWS_AS(matmul(x, x), ShapeError);
    exp(x);
    CHECK(notes.depth == 0);
    notes.lines.clear();
    y.backward(ones({2, 4}).to(DType::bf16));
    CHECK(std::count(notes.lines.begin(), notes.lines.end(), "1 backward linear of 1") == 1);
    CHECK(notes.depth == 0);
  }
  notes.lines.clear();
  exp(x);
  CHECK(notes.lines.empty());
}

TEST_CASE("an observer gets the kernels of the device that it asks for, and the bits are the same") {
  const Tensor x = rand({3, 3});
  const Tensor plain = exp(x) * 2;
  Notes notes(OpObserver::Kernels{Device::cpu});
  std::optional<Observing> on(notes);
  CHECK(equal(exp(x) * 2, plain));
  CHECK(std::count(notes.lines.begin(), notes.lines.end(), "kernel exp 1 1 0") >= 1);
  CHECK(std::count(notes.lines.begin(), notes.lines.end(), "kernel mul 2 1 0") >= 1);
  on.reset();
  Notes calls;
  const Observing again(calls);
  exp(x);
  CHECK(text(calls) ==
              "0 exp of 1\n"
              "0 end of exp with 1\n");
  exp(ones({4}, {.device = Device::meta}));
  CHECK(calls.lines.back() == "0 end of exp with 1");
  CHECK(std::count(calls.lines.begin(), calls.lines.end(), "kernel unary 0 0 16") == 1);
}

TEST_CASE("observers are of one thread, nest, and end in any order; one that begins within a call has not its end") {
  const Tensor x = ones({2});
  Notes first, second;
  std::optional<Observing> a(first), b(second);
  exp(x);
  CHECK(first.lines == second.lines);
  a.reset();
  exp(x);
  CHECK(second.lines.size() == 2 * first.lines.size());
  std::thread([&] {
    CHECK_FALSE(Observing::any());
    exp(x);
  }).join();
  CHECK(second.lines.size() == 2 * first.lines.size());
  b.reset();
  CHECK_FALSE(Observing::any());
  Notes late;
  {
    a.emplace(first);
    const CallScope outer(SpanKind::task, "outer");
    b.emplace(late);
    exp(x);
  }
  CHECK(text(late) ==
              "0 exp of 1\n"
              "0 end of exp with 1\n");
  CHECK(first.lines.back() == "0 end of outer with 0");
}

TEST_CASE("a log of calls beside an observer has what it has alone") {
  const Tensor x = ones({4, 3}, {.device = Device::meta});
  const auto bytes = [&] {
    const OpLogScope log;
    exp(x);
    return log.calls().at(0).bytes_written;
  };
  const double alone = bytes();
  Notes notes;
  const Observing on(notes);
  CHECK(bytes() == alone);
  CHECK(Observing::find<Notes>() == &notes);
  CHECK(Observing::find<OpLogScope>() == nullptr);
}

TEST_CASE("a step gives its loss the tensor that backward begins with, unless an observer wants each kernel") {
  struct Seen : MSELoss {
    using MSELoss::MSELoss;
    Tensor with_seed(const Tensor& output, const Tensor& target, const Tensor& seed) const override {
      seeded = seed.defined();
      return MSELoss::with_seed(output, target, seed);
    }
    mutable bool seeded = false;
  };
  Linear model(3, 2);
  const Seen loss;
  SGD optimizer(model.parameters(), {.lr = 0.1});
  GradScaler scaler({.enabled = false});
  TrainStep step(model, loss, optimizer, scaler, nullptr, {.device = Device::cpu});
  const Tensor x = rand({4, 3}), y = rand({4, 2});
  step(x, y);
  CHECK(loss.seeded);
  Notes calls;
  {
    const Observing on(calls);
    step(x, y);
    CHECK(loss.seeded);
  }
  Notes kernels(OpObserver::Kernels{Device::cpu});
  const Observing on(kernels);
  step(x, y);
  CHECK_FALSE(loss.seeded);
}

TEST_CASE("the pass of a step is known to observers that begin within it") {
  const StepPassScope update(StepPass::update);
  Notes notes;
  const Observing on(notes);
  CHECK(Observing::pass() == StepPass::update);
  {
    const StepPassScope forward(StepPass::forward);
    CHECK(text(notes) ==
              "0 forward of 0\n");
  }
  CHECK(Observing::pass() == StepPass::update);
}
