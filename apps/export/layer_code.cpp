// SPDX-License-Identifier: Apache-2.0
#include "apps/export/layer_code.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <set>
#include <system_error>

#include "apps/catalog/modules.h"
#include "framework/base/number_text.h"
#include "framework/io/files/printable.h"
#include "generated/halfstep_release.h"

namespace halfstep::app {

std::vector<Argument> arguments_of(const Json& layer) {
  // Written also where they have a config's default, which may not be PyTorch's.
  static const std::set<std::string> always_written{"batch_first", "dim"}, never_written{"sync", "stateful"};
  std::vector<Argument> out;
  for (const Field& f : module_catalog().row(layer).component.fields) {
    const auto given = layer.find(f.key);
    if (given == layer.end() || never_written.contains(f.key)) continue;
    const bool is_default = !f.needed && f.from_input == 0 && !always_written.contains(f.key) && *given == f.fallback;
    out.push_back({f.key, *given == "cumulative" ? Json() : *given, is_default});
  }
  return out;
}

NamedLayers named_layers(const Json& layers) {
  NamedLayers out;
  for (const Json& layer : layers) {
    const bool has_name = layer.contains("name") && layer["name"].is_string();
    out.emplace_back(has_name ? layer["name"].get<std::string>() : std::to_string(out.size()), layer);
  }
  return out;
}

bool are_numbered(const NamedLayers& layers) {
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i].first != std::to_string(i)) return false;
  return true;
}

NamedLayers layers_of_repeat(const Json& repeat) {
  const Json& layers = repeat["layers"];
  const Json copy = layers.is_array() ? Json{{"type", "Sequential"}, {"layers", layers}} : layers;
  NamedLayers out;
  for (int64_t i = 0; i < repeat["times"].get<int64_t>(); ++i) out.emplace_back(std::to_string(i), copy);
  return out;
}

std::vector<Argument> arguments_of_encoder_layer(const Json& encoder) {
  std::vector<Argument> out = arguments_of(encoder);
  std::erase_if(out, [](const Argument& a) { return a.name == "num_layers" || a.name == "norm"; });
  return out;
}

std::string indented(int depth, int width) { return std::string(size_t(width * depth), ' '); }

Json branch_names(const Json& parallel) {
  NamedLayers branches;
  for (size_t i = 0; i < parallel["branches"].size(); ++i) {
    const Json& branch = parallel["branches"][i];
    const bool has_name = branch.is_object() && branch.contains("name") && branch["name"].is_string();
    branches.emplace_back(has_name ? branch["name"].get<std::string>() : std::to_string(i), Json());
  }
  Json out = Json::array();
  if (!are_numbered(branches))
    for (const auto& branch : branches) out.push_back(branch.first);
  return out;
}

std::string number_code(double v) { return Json(v).dump(); }
std::string number_code(float v) {
  std::array<char, 64> text;
  const auto [end, fault] = std::to_chars(text.data(), text.data() + text.size(), v);
  return number_code(number_of({text.data(), size_t(end - text.data())}).value_or(double(v)));
}

std::string origin_lines(const std::string& comment, const std::string& from, int64_t step) {
  return comment + " Written by halfstep " + HALFSTEP_VERSION + " from " + printable(from) + " (step " + std::to_string(step) +
         ").\n" + comment + " This file is yours: change it as you like.\n";
}

}  // namespace halfstep::app
