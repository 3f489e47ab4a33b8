// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/class_weights.h"

#include "apps/catalog/losses.h"
#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/base/number_text.h"
#include "framework/data/transforms/statistics.h"

namespace halfstep::app {
namespace {

// Returns the weights of the classes in a sampler that draws all equally often; a class without samples is never drawn.
Json balanced_draws(const Dataset& data, const Json& loss) {
  const std::vector<int64_t> counts = class_counts(data, ignored_class(loss).value_or(kIgnoredClass));
  std::vector<double> out = balanced_class_weights(counts);
  for (size_t i = 0; i < out.size(); ++i)
    if (counts[i] == 0) out[i] = 0;
  return out;
}

// Appends a line for weights that are a number for each class.
void add_line(const char* what, const Json& weights, const std::vector<std::string>& names, std::vector<std::string>& out) {
  constexpr size_t kMostShown = 20;
  if (!weights.is_array() || weights.empty() || weights.size() != names.size()) return;
  std::vector<std::string> all;
  for (size_t i = 0; i < names.size(); ++i)
    if (weights[i].is_number()) all.push_back(names[i] + ' ' + general_text(weights[i].get<double>(), 4));
  out.push_back(joined(what, ": ", list_text(all, kMostShown)));
}

}  // namespace

std::vector<std::string> class_weight_lines(const Json& config, const std::vector<std::string>& names, const Dataset* data) {
  std::vector<std::string> out;
  const Json loss = config.value("loss", Json()), sampler = config["data"]["loader"].value("sampler", Json());
  if (loss.is_object()) add_line("class weights of the loss", loss.value("weight", Json()), names, out);
  if (!sampler.is_object() || sampler.value("type", Json()) != "weighted") return out;
  const Json weights = sampler.value("weights", Json());
  if (weights == "balanced" && data && data->classes() > 0)
    add_line("class weights of the sampler, balanced", balanced_draws(*data, loss), names, out);
  add_line("class weights of the sampler", weights, names, out);
  return out;
}

}  // namespace halfstep::app
