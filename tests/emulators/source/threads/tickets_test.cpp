// SPDX-License-Identifier: Apache-2.0
// Kernels whose blocks meet, with a thread of the host for each of theirs, under the thread sanitizer. The update of parameters:
// its blocks take tickets, wait for those that check the gradients, and count themselves. Losses: the last block to come joins the
// sums of all.  cuda_tickets [update|losses], by default both
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "cuda/kernels/kernels.h"
#include "framework/math/update_rules.h"

using namespace halfstep;

namespace {

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  std::exit(1);
}

TensorView view(std::vector<float>& v) { return {v.data(), DType::f32, {int64_t(v.size())}, {1}}; }

// Three steps of parameters in several blocks, the first of which overflows. kept: states of the rule.
template <class Rule>
void update(const Rule& rule, size_t kept) {
  std::vector<std::vector<float>> params, grads, states[2];
  std::vector<float> steps(3, 0.0f);
  for (const size_t n : {5000, 70, 4097}) {
    params.emplace_back(n, 1.0f);
    grads.emplace_back(n, 64.0f);
    for (auto& s : states) s.emplace_back(n, 0.0f);
  }
  std::vector<double> scratch(cuda::kScratchDoubles);
  std::vector<uint32_t> counters(cuda::kCounters, 0);
  cuda::Queue q;
  q.scratch = scratch.data();
  q.counters = counters.data();
  std::vector<ParamUpdate> list;
  for (size_t i = 0; i < params.size(); ++i) {
    ParamUpdate u{};
    u.param = view(params[i]);
    u.grad = view(grads[i]);
    for (size_t k = 0; k < kept; ++k) u.state[k] = view(states[k][i]);
    u.step = &steps[i];
    list.push_back(u);
  }
  float found_inf = 0, scale = 64;
  StepControl control{.found_inf = &found_inf, .grad_scale = &scale, .write_back = false, .test_gradients = true};
  grads[2][4096] = std::numeric_limits<float>::infinity();
  cuda::update(q, list, rule, control);
  expect(found_inf == 1, "the overflow is found");
  expect(params[0][0] == 1 && params[2][4096] == 1 && steps[0] == 0, "nothing changes in a skipped step");
  grads[2][4096] = 64;
  for (int i = 0; i < 2; ++i) cuda::update(q, list, rule, control);
  expect(found_inf == 0, "no overflow is found");
  bool equal = true;
  for (const auto& p : params)
    for (const float x : p) equal = equal && x == params[0][0] && x < 1 && std::isfinite(x);
  expect(equal, "every element is updated alike");
  for (const float s : steps) expect(s == 2, "the steps are counted");
  for (const uint32_t c : counters) expect(c == 0, "the counters are zero again");
}

// Losses of several blocks, each made three times in the same memory.
void losses() {
  std::vector<double> scratch(cuda::kScratchDoubles);
  std::vector<uint32_t> counters(cuda::kCounters, 0);
  cuda::Queue q;
  q.scratch = scratch.data();
  q.counters = counters.data();
  std::vector<float> a(5000, 3.0f), b(5000, 1.0f), loss(1);
  for (int i = 0; i < 3; ++i) {
    loss[0] = 0;
    cuda::mse(q, view(a), view(b), Reduction::sum, {loss.data(), DType::f32, {}, {}}, {});
    expect(loss[0] == 4 * 5000, "the sum of all squares");
  }
  const int64_t rows = 40, classes = 4;
  std::vector<float> logits(size_t(rows * classes), 0.0f), lse(40), total(1);
  std::vector<int64_t> targets(40, 2);
  const CrossEntropyArgs args{.logits = {logits.data(), DType::f32, {rows, classes}, {classes, 1}},
                              .target = {targets.data(), DType::i64, {rows}, {1}}};
  for (int i = 0; i < 3; ++i) {
    loss[0] = 0;
    cuda::cross_entropy(q, args, {loss.data(), DType::f32, {}, {}}, view(lse), {total.data(), DType::f32, {}, {}}, {});
    expect(std::fabs(loss[0] - std::log(4.0f)) < 1e-6, "the mean over all rows");
    expect(total[0] == float(rows), "all rows count");
  }
  for (const uint32_t c : counters) expect(c == 0, "the counters are zero again");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string which = argc > 1 ? argv[1] : "";
  if (which != "losses") {
    update(math::SgdRule{.lr = 0.125}, 0);
    update(math::AdamRule{.lr = 0.125}, 2);
  }
  if (which != "update") losses();
  std::puts("no race, and the right results");
}
