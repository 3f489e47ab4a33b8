// SPDX-License-Identifier: Apache-2.0
// The update of parameters, whose blocks take tickets, wait for those that check the gradients, and count themselves: with a thread
// of the host for each of the kernel's, under the thread sanitizer.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
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
  std::vector<double> scratch(cuda::kScratchBytes / sizeof(double));
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
  StepControl control{.found_inf = &found_inf, .grad_scale = &scale, .write_back = false, .check = true};
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

}  // namespace

int main() {
  update(math::SgdRule{.lr = 0.125}, 0);
  update(math::AdamRule{.lr = 0.125}, 2);
  std::puts("no race, and the right results");
}
