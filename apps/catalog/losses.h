// SPDX-License-Identifier: Apache-2.0
// The catalogue of losses.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "apps/catalog/catalog.h"
#include "apps/catalog/modules.h"
#include "framework/data/transforms/data_form.h"
#include "layers/layers.h"

namespace halfstep::app {

// Which numbers a loss can be given as targets.
enum class TargetNumbers { any, probabilities, not_negative, signs };

struct LossRow {
  Component component;
  std::function<std::unique_ptr<Loss>(const Json& self)> make;
  Targets targets;
  TargetNumbers numbers = TargetNumbers::any;
};
Catalog<LossRow>& loss_catalog();
void add_loss_rows(Catalog<LossRow>& catalog);
inline const Family& loss_family() { return loss_catalog().family(); }

template <class L, class... Ts>
LossRow loss_row(std::string type, std::string doc, Targets targets, Arg<Ts>... args) {
  return {{std::move(type), std::move(doc), {args.field...}},
          [args...](const Json& self) -> std::unique_ptr<Loss> { return std::make_unique<L>(value_of(self, args)...); },
          targets};
}

// Returns whether some numbers are no targets for the loss.
bool limits_targets(const Json& loss);
// Returns a warning if a sample's target is such a number, with which the loss's formula computes nevertheless; empty: none is.
// Looks at 65,536 samples at most.
std::string unfit_targets(const Json& loss, const Dataset& data);
// Warns if the last layer that computes does not make what the loss takes. layers: those of the model, in the order of their calls.
void check_last_layer(const Json& loss, const std::vector<LayerRow>& layers, Issues& issues);

// What a loss or a metric compares.
struct ComparedTensors {
  Tensor output, target;
};
// Makes samples of positions: outputs [B, T, C] with classes [B, T] become [B T, C] and [B T], for any number of dimensions T.
// Returns others unchanged. All losses and metrics of classes in a config get the results.
ComparedTensors by_position(const Tensor& output, const Tensor& target);
// Returns what metrics compare: for classes the results of by_position(), for numbers the answers and the file's values (float64 if
// they were scaled, for numbers far from 0), for rows of labels both arguments.
ComparedTensors as_measured(const Tensor& output, const Tensor& target, const Json& loss, const DataForm& form);

// Constructs a loss; losses of classes get the results of by_position().
std::unique_ptr<Loss> build_loss(const Json& loss);
// Converts a model's outputs [N, ...] to answers, for everything that shows, measures or exports them. The loss decides: classes
// get probabilities by softmax (CrossEntropyLoss) or exp (NLLLoss); numbers become shares by sigmoid (BCEWithLogitsLoss) or counts
// by exp (PoissonNLLLoss with log_input). Numbers are in the units of the training data's file.
Tensor answers_of(const Tensor& outputs, const Json& loss, const DataForm& form);
// Returns the class that a loss of a config leaves out, its ignore_index; nothing for a loss without one.
std::optional<int64_t> ignored_class(const Json& loss);
// Returns whether the answers of classes are probabilities.
bool gives_probabilities(const Json& loss);
// Checks that the loss fits the model's output and the data's target, by running it on Device::meta. Adds errors to `issues`, at
// the paths "loss" and "model".
void check_loss(const Json& loss, const InferredModel& model, const DataFacts& facts, const ModelPrecision& precision,
                Issues& issues);

}  // namespace halfstep::app

// Registers a class derived from Loss: HALFSTEP_REGISTER_LOSS(MyLoss, Targets::numbers, fields...).
#define HALFSTEP_REGISTER_LOSS(Class, targets, ...) HALFSTEP_REGISTER(loss, Class, targets __VA_OPT__(, ) __VA_ARGS__)
