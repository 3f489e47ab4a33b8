#include "framework/autograd/grad_mode.h"
#include "optim/optimizer.h"

namespace halfstep {

Adam::Adam(std::vector<ParamGroup> groups, const AdamOptions& options, bool decoupled)
    : Optimizer(std::move(groups), options.lr), options_(options), decoupled_(decoupled) {
  const char* where = decoupled ? "AdamW" : "Adam";
  if (!options_.weight_decay) options_.weight_decay = decoupled ? 0.01 : 0.0;
  check<ValueError>(options.lr >= 0, where, "lr must be >= 0, got ", options.lr);
  check<ValueError>(options.eps >= 0, where, "eps must be >= 0, got ", options.eps);
  check<ValueError>(options.beta1 >= 0 && options.beta1 < 1, where, "beta1 must be in [0, 1), got ", options.beta1);
  check<ValueError>(options.beta2 >= 0 && options.beta2 < 1, where, "beta2 must be in [0, 1), got ", options.beta2);
  check<ValueError>(*options_.weight_decay >= 0, where, "weight_decay must be >= 0, got ", *options_.weight_decay);
}

std::optional<Tensor> Adam::step(const Closure& closure) {
  std::optional<Tensor> loss = evaluate(closure);
  NoGrad off;
  for (size_t g = 0; g < groups().size(); ++g) {
    Tensors keep;
    std::vector<std::string> moments{"exp_avg", "exp_avg_sq"};
    if (options_.amsgrad) moments.push_back("max_exp_avg_sq");
    const std::vector<ParamUpdate> params = updates(g, moments, keep);
    if (params.empty()) continue;
    const math::AdamArgs args{
        last_known_lr(g),      options_.beta1,   options_.beta2,   options_.eps, groups()[g].weight_decay.value_or(*options_.weight_decay),
        decoupled_, options_.amsgrad, options_.maximize};
    backend_for(keep.front().device()).adam(params, args, control(g));
    finish(g);
  }
  return loss;
}

std::vector<std::string> Adam::state_names() const {
  std::vector<std::string> names{"step", "exp_avg", "exp_avg_sq"};
  if (options_.amsgrad) names.push_back("max_exp_avg_sq");
  return names;
}

std::string Adam::describe() const {
  std::ostringstream out;
  out << (decoupled_ ? "AdamW" : "Adam") << "(lr=" << lr() << ", betas=(" << options_.beta1 << ", " << options_.beta2
      << "), eps=" << options_.eps << ", weight_decay=" << *options_.weight_decay;
  if (options_.amsgrad) out << ", amsgrad=True";
  if (options_.maximize) out << ", maximize=True";
  out << ')';
  return out.str();
}

}  // namespace halfstep
