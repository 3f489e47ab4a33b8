// SPDX-License-Identifier: Apache-2.0
#include "amp/step/data_parallel.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "framework/autograd/grad_mode.h"
#include "framework/base/draws.h"

namespace halfstep {

// Runs the reducer when the engine reports that a backward of this module has ended.
class DistributedDataParallel::Exchange : public LeafListener {
 public:
  Exchange(const Module& module, ProcessGroup& group, const ReducerOptions& options)
      : reducer_(module.parameters(), group, options), listen_(*this, module.parameters()) {}
  void arm() { reducer_.arm(); }
  void accumulated(const Tensor&, const Tensor&) override {}
  void backward_done() override {
    if (!reducer_.armed() || !reducer_.begun()) return;  // a backward of something else
    reducer_.send_rest();
    reducer_.take();
  }

 private:
  GradientReducer reducer_;
  ListenToLeaves listen_;
};

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<Module> module, ProcessGroup& group, const ReducerOptions& options)
    : module_(this, "module", std::move(module)), group_(group) {
  broadcast_state(*module_, group);
  ReducerOptions mean = options;
  mean.scale /= double(group.size());
  exchange_ = std::make_shared<Exchange>(*module_, group, mean);
}

Tensor DistributedDataParallel::forward(const Tensor& x) {
  const bool trains = training() && grad_enabled();
  if (trains && sync_) exchange_->arm();
  const int64_t rows = x.dim() > 0 ? x.size(0) : 1;
  std::optional<BatchRows> part;
  if (trains) part = {group_.rank() * rows, rows, group_.size() * rows};
  const DrawsOf draws(part);
  const GroupScope scope(&group_);
  return module_(x);
}

void average_buffers(Module& module, ProcessGroup& group, double samples) {
  check<ValueError>(samples >= 0 && std::isfinite(samples), "average_buffers", "samples must be a number >= 0, got ", samples);
  const NoGrad off;
  std::vector<double> weights;
  for (const std::vector<double>& of_rank : group.gather(std::vector<double>{samples})) weights.push_back(of_rank[0]);
  const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
  const double weight = *least == *most ? 1 : samples;  // 1: the same bits as the mean of all
  const double total = *least == *most ? double(group.size()) : std::accumulate(weights.begin(), weights.end(), 0.0);
  for (const NamedTensor& b : module.named_buffers()) {
    if (!b.tensor.defined()) continue;
    // Use float64, so that values that agree on all ranks stay equal bit for bit, also with three ranks.
    const bool is_mean = is_floating(b.tensor.dtype());
    const Tensor own = b.tensor.detach().contiguous(), whole = is_mean ? own.to(DType::f64) : own;
    if (is_mean && weight == 0) whole.fill_(0);  // also what is not finite
    if (is_mean && weight != 1) whole.mul_(weight);
    group.wait(group.all_reduce({whole}, is_mean ? ReduceOp::sum : ReduceOp::max));
    if (is_mean) whole.div_(total);
    if (!whole.shares_memory_with(b.tensor)) b.tensor.detach().copy_(whole);
  }
}

void broadcast_state(Module& module, ProcessGroup& group, int root) {
  const NoGrad off;
  for (const NamedTensor& t : module.state_tensors()) {
    const Tensor contiguous = t.tensor.detach().contiguous();
    group.wait(group.broadcast({contiguous}, root));
    if (!contiguous.shares_memory_with(t.tensor)) t.tensor.copy_(contiguous);
  }
}

}  // namespace halfstep
