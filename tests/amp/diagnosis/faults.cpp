// SPDX-License-Identifier: Apache-2.0
#include "tests/amp/diagnosis/faults.h"

#include <algorithm>
#include <cmath>

#include "framework/autograd/autograd.h"
#include "framework/ops/ops.h"
#include "layers/layers.h"
#include "optim/optimizers.h"

namespace halfstep::faults {
namespace {

struct FunctionLoss final : Loss {
  std::function<Tensor(const Tensor&, const Tensor&)> f;
  explicit FunctionLoss(std::function<Tensor(const Tensor&, const Tensor&)> g) : f(std::move(g)) {}
  Tensor operator()(const Tensor& a, const Tensor& b) const override { return f(a, b); }
  std::string describe() const override { return "FunctionLoss"; }
};

Tensors copies(Module& m) {
  const NoGrad off;
  Tensors out;
  for (const Tensor& p : m.parameters()) out.push_back(p.detach().clone());
  return out;
}

bool broken(const Tensors& parameters) {
  return std::any_of(parameters.begin(), parameters.end(), [](const Tensor& p) { return count_values(p).any_not_finite(); });
}

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::nth_element(v.begin(), v.begin() + std::ptrdiff_t(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Trains until something is found.
class Training {
 public:
  explicit Training(Run run) : run_(std::move(run)), scaler_(run_.scaler) {
    run_.module->train();
    run_.step.keeps_states = true;
    run_.step.on_bad_loss = [this](const StepUnderTest& step) { examine(step, false); };
    step_.emplace(*run_.module, *run_.loss, *run_.optimizer, scaler_, nullptr, run_.step);
  }

  Found go() {
    for (int i = 0; i < run_.steps && found_.step < 0; ++i) {
      number_ = i;
      if (run_.before) run_.before(i);
      const auto [x, y] = run_.batch(i);
      if (step_->pending() == 0) {
        step_->keep_step(true);
        before_ = copies(*run_.module);
      }
      try {
        if (run_.observed)
          observe(x, y);
        else
          after((*step_)(x, y));
      } catch (const IndexError& e) {
        found_.diagnosis.cause = "target_index";
        found_.step = i;
      }
    }
    return found_;
  }

 private:
  void observe(const Tensor& x, const Tensor& y) {
    StepObserver observer(*run_.module, Device::cpu, scaler_.get_scale(), number_);
    observer.open();
    const StepResult r = (*step_)(x, y);
    Observation seen = observer.finish(r.outcome.applied());
    const std::string bytes = bytes_of(*run_.module);
    const std::vector<Diagnosis> quiet = quiet_.look(seen, *step_->kept_step());
    if (quiet.empty()) return;
    found_ = {quiet[0], number_, bytes == bytes_of(*run_.module)};
  }

  void after(const StepResult& r) {
    if (found_.step >= 0 || !r.stepped) return;
    const bool applied = r.outcome.applied();
    skips_ = applied ? 0 : skips_ + 1;
    if (skips_ >= run_.skips) return examine(*step_->kept_step(), false);
    if (!applied) return;
    losses_.push_back(std::abs(r.loss.item<double>()));
    const NoGrad off;
    const std::vector<Tensor> now = run_.module->parameters();
    update_ = std::max(update_, relative_change(before_, now).value_or(0));
    if (!broken(now) || broken(before_)) return;
    for (size_t i = 0; i < now.size(); ++i) now[i].copy_(before_[i]);  // as a checkpoint would
    examine(*step_->kept_step(), true);
  }

  void examine(const StepUnderTest& step, bool broke_weights) {
    if (found_.step >= 0) return;
    const std::string bytes = bytes_of(*run_.module);
    found_.diagnosis = diagnose(step, {.loss = median(losses_), .update = update_, .broke_weights = broke_weights});
    found_.untouched = bytes == bytes_of(*run_.module);
    found_.step = number_;
  }

  Run run_;
  GradScaler scaler_;
  std::optional<TrainStep> step_;
  Tensors before_;
  std::vector<double> losses_;
  double update_ = 0;
  int skips_ = 0, number_ = 0;
  SilentCauses quiet_;
  Found found_;
};

}  // namespace

std::string bytes_of(Module& m) {
  std::string out = joined(default_generator().state().offset);
  const auto add = [&](const Tensor& t) {
    if (t.defined()) out.append(static_cast<const char*>(t.contiguous().const_data_ptr()), t.nbytes());
  };
  for (const NamedTensor& t : m.state_dict()) add(t.tensor);
  for (const NamedTensor& t : kept_states(m)) add(t.tensor);
  for (const Tensor& p : m.parameters()) add(p.raw_grad());
  return out;
}

Draw draw(int number) {
  if (number == 0) return {};
  Generator g(uint64_t(9000 + number));
  const auto pick = [&](int64_t low, int64_t high) { return randint(low, high, {}, {.dtype = DType::i64}, &g).item<int64_t>(); };
  Draw d{.number = number};
  d.width = pick(6, 80), d.more = pick(0, 4), d.rows = pick(5, 40);
  d.seed = uint64_t(pick(0, 1 << 20)), d.data = uint64_t(pick(0, 1 << 20));
  const std::optional<DType> precisions[] = {DType::f16, DType::bf16, std::nullopt};
  d.low = precisions[pick(0, 3)];
  d.any_precision = true;
  d.scale = std::ldexp(1.0, int(pick(0, 12)));
  return d;
}

const std::vector<Fault>& all() {
  static const std::vector<Fault> list = [] {
    std::vector<Fault> out;
    for (const auto& part : {of_range(), of_data(), of_domains(), of_states(), of_quiet()})
      out.insert(out.end(), part.begin(), part.end());
    return out;
  }();
  return list;
}

Found run(const Fault& fault, const Draw& d) {
  manual_seed(d.seed);
  return Training(fault.make(d)).go();
}

std::shared_ptr<Module> function(const std::string& name, Function f) {
  return std::make_shared<FunctionLayer>(name, std::move(f));
}
std::shared_ptr<Sequential> layers(const Layers& list) {
  auto out = std::make_shared<Sequential>();
  for (const auto& [name, module] : list) out->push_back(name, module);
  return out;
}
std::shared_ptr<Sequential> mlp(const Draw& d, int64_t in, int64_t out) {
  Layers list{{"fc1", std::make_shared<Linear>(in, d.width)},
              {"act1", std::make_shared<ReLU>()},
              {"fc2", std::make_shared<Linear>(d.width, d.width)},
              {"act2", std::make_shared<ReLU>()}};
  for (int64_t i = 3; i < 3 + d.more; ++i) {
    list.push_back({"fc" + std::to_string(i), std::make_shared<Linear>(d.width, d.width)});
    list.push_back({"act" + std::to_string(i), std::make_shared<ReLU>()});
  }
  list.push_back({"head", std::make_shared<Linear>(d.width, out)});
  return layers(list);
}

std::shared_ptr<Loss> loss_of(std::function<Tensor(const Tensor&, const Tensor&)> f) {
  return std::make_shared<FunctionLoss>(std::move(f));
}
std::shared_ptr<Loss> mse() { return std::make_shared<MSELoss>(); }
std::shared_ptr<Loss> cross_entropy() { return std::make_shared<CrossEntropyLoss>(); }

Batches regression(const Draw& d, int64_t in, int64_t out, double scale, double targets) {
  return [=](int step) {
    Generator g(d.data + uint64_t(step));
    const Tensor x = randn({d.rows, in}, {}, &g) * scale;
    return std::pair{x, randn({d.rows, out}, {}, &g) * targets};
  };
}
Batches classes(const Draw& d, int64_t in, int64_t count) {
  return [=](int step) {
    Generator g(d.data + uint64_t(step));
    const Tensor x = randn({d.rows, in}, {}, &g);
    return std::pair{x, randint(0, count, {d.rows}, {.dtype = DType::i64}, &g)};
  };
}
Batches sequences(int64_t steps, double targets) {
  return [=](int step) {
    Generator g(uint64_t(7 + step));
    const Tensor x = randn({4, steps, 8}, {}, &g);
    return std::pair{x, randn({4, steps, 4}, {}, &g) * targets};
  };
}

void scale_parameter(Module& m, const std::string& name, double by) {
  const NoGrad off;
  for (const NamedTensor& p : m.named_parameters())
    if (name.empty() || p.name == name) p.tensor.mul_(by);
}

Run training(std::shared_ptr<Module> m, std::shared_ptr<Loss> loss, std::optional<DType> low, std::optional<double> scale,
             Batches b, double lr) {
  Run out{.module = m, .loss = std::move(loss), .optimizer = std::make_shared<SGD>(m->parameters(), SGDOptions{.lr = lr})};
  out.step.amp = low;
  out.scaler = {.init_scale = scale.value_or(1), .enabled = scale.has_value()};
  out.batch = std::move(b);
  return out;
}

}  // namespace halfstep::faults
