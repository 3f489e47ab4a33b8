// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/modules.h"

#include "apps/catalog/initial.h"
#include "apps/catalog/layer_rows.h"
#include "apps/schema/pattern.h"

namespace halfstep::app {

Catalog<ModuleRow>& module_catalog() {
  static Catalog<ModuleRow>& all = *[] {
    std::vector<Field> common = initial_fields();
    common.insert(common.begin(), text("name", nullptr, "prefix in the state_dict; left out: the index"));
    auto* const made = new Catalog<ModuleRow>("layer", std::move(common));
    add_container_rows(*made);
    made->add(module_row<Linear>(
        "Linear", "y = x W^T + b",
        arg<int64_t>(width("in_features", "width of the input; left out: that of the input").from_input_dim(-1)),
        arg<int64_t>(width("out_features", "width of the output; \"auto\": classes or target width").or_target_width().required()),
        arg<bool>(boolean("bias", true, "add a bias"))));
    add_activation_rows(*made);
    add_window_rows(*made);
    add_norm_rows(*made);
    add_dropout_rows(*made);
    add_embedding_rows(*made);
    add_recurrent_rows(*made);
    add_shape_rows(*made);
    add_attention_rows(*made);
    return made;
  }();
  return all;
}

std::shared_ptr<Module> build_model(const Json& model) {
  const std::shared_ptr<Module> made = module_catalog().row(model).make(model);
  initialise(*made, model);
  return made;
}

void recompute_activations(Module& model, const Json& patterns) {
  for (const Json& text : patterns.is_array() ? patterns : Json::array({patterns})) {
    const Pattern pattern(text.get<std::string>());
    bool found = false;
    for (const auto& [name, module] : model.named_modules()) {
      if (!pattern.found_in(name)) continue;
      module->recompute_in_backward(true);
      found = true;
    }
    check<ConfigError>(found, "train.checkpoint_activations", text.dump(), " is in no module's name",
                       Help{"halfstep train --dry-run lists the layers by their names"});
  }
}

}  // namespace halfstep::app
