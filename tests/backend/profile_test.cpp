// SPDX-License-Identifier: Apache-2.0
// A profile has a span for each call, where the log of calls has it, and the bits of a step are the same with it.
#include "framework/backend/profile.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "halfstep.h"

using namespace halfstep;

namespace {

struct SmallStep {
  explicit SmallStep(Device device) : on(device) {
    manual_seed(3);
    model = std::make_unique<Sequential>(Sequential{Linear(6, 8), ReLU(), Linear(8, 2)});
    x = randn({5, 6}), y = randn({5, 2});
    optimizer = std::make_unique<SGD>(model->parameters(), SGDOptions{.lr = 0.1});
    step = std::make_unique<TrainStep>(*model, loss, *optimizer, scaler, nullptr,
                                       TrainStepOptions{.device = device, .amp = DType::bf16, .clip_grad_norm = 1});
  }
  void run() { (*step)(x, y); }

  DefaultDevice on;
  std::unique_ptr<Sequential> model;
  MSELoss loss;
  Tensor x, y;
  std::unique_ptr<SGD> optimizer;
  GradScaler scaler{GradScalerOptions{.enabled = false}};
  std::unique_ptr<TrainStep> step;
};

// "backward linear of 2", of ops that are inside of no other.
std::vector<std::string> calls(const std::vector<ProfileSpan>& spans) {
  std::vector<std::string> out;
  for (const ProfileSpan& s : spans)
    if (s.kind == SpanKind::op && s.depth == 0 && s.pass != StepPass::update)
      out.push_back(joined(name(s.pass), " ", s.name, " of ", s.layer ? *s.layer : "nothing"));
  return out;
}

}  // namespace

TEST_CASE("a profile has the calls of a plan, in order, within their passes") {
  std::vector<std::string> planned;
  {
    SmallStep on_meta(Device::meta);
    on_meta.run();
    const OpLogScope log;
    on_meta.run();
    for (const LoggedCall& c : log.calls())
      if (c.pass != StepPass::update)
        planned.push_back(joined(name(c.pass), " ", c.op, " of ", c.layer.empty() ? "nothing" : c.layer));
  }
  SmallStep s(Device::cpu);
  s.run();
  ProfileScope profile(Device::cpu);
  s.run();
  const std::vector<ProfileSpan>& spans = profile.spans();
  CHECK(calls(spans) == planned);
  CHECK(profile.left_out() == 0);

  std::vector<std::string> parts, update;
  for (const ProfileSpan& span : spans) {
    CHECK(span.begin <= span.end);
    CHECK(span.device_end == 0);
    if (span.kind == SpanKind::part) parts.push_back(span.name);
    if (span.pass == StepPass::update && span.kind == SpanKind::op && span.depth == 0) update.push_back(span.name);
  }
  CHECK(parts == std::vector<std::string>{"forward", "backward", "update"});
  CHECK(update == std::vector<std::string>{"grad_norm", "optimizer"});
  // Spans lie one after the other or one inside the other.
  for (size_t i = 1; i < spans.size(); ++i) {
    const ProfileSpan &a = spans[i - 1], &b = spans[i];
    CHECK(a.begin <= b.begin);
    const bool apart = a.end <= b.begin, inside = b.end <= a.end;
    CHECK((apart || inside));
  }
  const auto cast = std::ranges::find(spans, SpanKind::cast, &ProfileSpan::kind);
  REQUIRE(cast != spans.end());
  CHECK(cast->name == "autocast");
  REQUIRE(cast->inputs.size() == 1);
  CHECK(cast->inputs[0].dtype == DType::f32);
}

TEST_CASE("a profile changes no bit") {
  SmallStep plain(Device::cpu), watched(Device::cpu);
  for (int i = 0; i < 3; ++i) {
    plain.run();
    const ProfileScope profile(Device::cpu);
    watched.run();
  }
  const Tensors a = plain.model->parameters(), b = watched.model->parameters();
  for (size_t i = 0; i < a.size(); ++i) CHECK(equal(a[i], b[i]));
}

TEST_CASE("spans end when an op throws, and those beyond the limit are counted") {
  const Tensor x = ones({2, 3});
  {
    ProfileScope profile(Device::cpu);
    CHECK_THROWS_AS(matmul(x, x), ShapeError);
    exp(x);
    CHECK(profile.spans().back().name == "exp");
    CHECK(profile.spans().back().depth == 0);
    CHECK(profile.spans().back().layer == nullptr);
  }
  ProfileScope few(Device::cpu, 2);
  for (int i = 0; i < 5; ++i) exp(x);
  CHECK(few.spans().size() == 2);
  CHECK(few.left_out() == 3);
}

TEST_CASE("a profile is of one thread") {
  ProfileScope profile(Device::cpu);
  CHECK_THROWS_AS(static_cast<void>(ProfileScope(Device::cpu)), ValueError);
  CHECK(Observing::any());
  std::thread([] {
    CHECK_FALSE(Observing::any());
    exp(ones({2}));
  }).join();
  CHECK(profile.spans().empty());
  const CallScope inside(SpanKind::task, "mine");
  CHECK_THROWS_AS(profile.spans(), ValueError);
  CHECK_THROWS_AS(static_cast<void>(ProfileScope(Device::meta)), ValueError);
}
