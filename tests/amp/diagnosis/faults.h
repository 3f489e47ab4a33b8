// SPDX-License-Identifier: Apache-2.0
// Training runs with one planted fault each, and the cause that a diagnosis must find. A draw varies everything irrelevant:
// widths, depths, batches, seeds, and, if irrelevant too, dtype and scale.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "amp/diagnosis/diagnose.h"
#include "amp/diagnosis/silent_causes.h"
#include "amp/step/train_step.h"

namespace halfstep::faults {

inline constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr std::optional<DType> kSingle;  // float32

struct Draw {
  int number = 0;  // 0: as written
  int64_t width = 32, more = 0, rows = 16;
  uint64_t seed = 11, data = 100;
  std::optional<DType> low = DType::f16;  // drawn for faults that do not depend on it
  bool any_precision = false;             // such faults use `low` and `scale`
  double scale = 256;
};
Draw draw(int number);

using Batches = std::function<std::pair<Tensor, Tensor>(int step)>;

struct Run {
  std::shared_ptr<Module> module;
  std::shared_ptr<Loss> loss;
  std::shared_ptr<Optimizer> optimizer;
  TrainStepOptions step = {};
  GradScalerOptions scaler = {};
  Batches batch;
  std::function<void(int step)> before = nullptr;
  int steps = 80;
  int skips = 3;          // number of skips in a row that are examined
  bool observed = false;  // observe each step, for causes that break none
};

struct Fault {
  std::string name, cause;  // no cause: nothing may be found
  std::function<Run(const Draw&)> make;
};
const std::vector<Fault>& all();  // of range, scale and data; of functions' domains; of optimizers and states; silent ones
std::vector<Fault> of_range();
std::vector<Fault> of_data();
std::vector<Fault> of_domains();
std::vector<Fault> of_states();
std::vector<Fault> of_quiet();

// The first diagnosis of the run; no cause if there was none.
struct Found {
  Diagnosis diagnosis;
  int step = -1;
  bool untouched = true;  // the diagnosis changed no byte of model, gradients and generator
};
Found run(const Fault& fault, const Draw& d);

// Returns everything that examining a model might change.
std::string bytes_of(Module& m);

// ---- parts of the runs
std::shared_ptr<Sequential> mlp(const Draw& d, int64_t in = 16, int64_t out = 4);
using Function = std::function<Tensor(const Tensor&)>;
std::shared_ptr<Module> function(const std::string& name, Function f);
using Layers = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;
std::shared_ptr<Sequential> layers(const Layers& list);
std::shared_ptr<Loss> loss_of(std::function<Tensor(const Tensor&, const Tensor&)> f);
std::shared_ptr<Loss> mse();
std::shared_ptr<Loss> cross_entropy();
Batches regression(const Draw& d, int64_t in, int64_t out, double scale = 1, double targets = 1);
Batches classes(const Draw& d, int64_t in, int64_t count);
Batches sequences(int64_t steps, double targets = 1);  // [4, steps, 8] -> [4, steps, 4]
void scale_parameter(Module& m, const std::string& name, double by);

// Makes a run with SGD. Without a scale it has no scaler.
Run training(std::shared_ptr<Module> m, std::shared_ptr<Loss> loss, std::optional<DType> low, std::optional<double> scale,
             Batches b, double lr = 0.01);

}  // namespace halfstep::faults
