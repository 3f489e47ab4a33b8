#include "framework/autograd/grad_mode.h"
#include "optim/optimizer.h"

namespace halfstep {

SGD::SGD(std::vector<ParamGroup> groups, const SGDOptions& options) : Optimizer(std::move(groups), options.lr), options_(options) {
  check<ValueError>(options.lr >= 0, "SGD", "lr must be >= 0, got ", options.lr);
  check<ValueError>(options.momentum >= 0, "SGD", "momentum must be >= 0, got ", options.momentum);
  check<ValueError>(options.weight_decay >= 0, "SGD", "weight_decay must be >= 0, got ", options.weight_decay);
  check<ValueError>(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "SGD",
                    "nesterov needs momentum > 0 and dampening 0, got momentum ", options.momentum, " and dampening ",
                    options.dampening);
}

std::optional<Tensor> SGD::step(const Closure& closure) {
  std::optional<Tensor> loss = evaluate(closure);
  NoGrad off;
  for (size_t g = 0; g < groups().size(); ++g) {
    Tensors keep;
    std::vector<std::string> moments;
    if (options_.momentum != 0) moments = {"momentum_buffer"};
    const std::vector<ParamUpdate> params = updates(g, moments, keep);
    if (params.empty()) continue;
    const math::SgdArgs args{last_known_lr(g),
                             options_.momentum,
                             options_.dampening,
                             groups()[g].weight_decay.value_or(options_.weight_decay),
                             options_.nesterov,
                             options_.maximize};
    backend_for(keep.front().device()).sgd(params, args, control(g));
    finish(g);
  }
  return loss;
}

std::vector<std::string> SGD::state_names() const {
  if (options_.momentum == 0) return {"step"};
  return {"step", "momentum_buffer"};
}

std::string SGD::describe() const {
  std::ostringstream out;
  out << "SGD(lr=" << lr();
  if (options_.momentum != 0) out << ", momentum=" << options_.momentum;
  if (options_.dampening != 0) out << ", dampening=" << options_.dampening;
  if (options_.weight_decay != 0) out << ", weight_decay=" << options_.weight_decay;
  if (options_.nesterov) out << ", nesterov=True";
  if (options_.maximize) out << ", maximize=True";
  out << ')';
  return out.str();
}

}  // namespace halfstep
