#include "apps/catalog/modules.h"

#include <algorithm>

#include "apps/catalog/infer.h"
#include "apps/catalog/layer_rows.h"
#include "layers/layers.h"

namespace halfstep::app {
namespace {

// ---- layers made of layers

std::string child_name(const Json& layer, size_t index) {
  return layer.contains("name") && layer["name"].is_string() ? layer["name"].get<std::string>() : std::to_string(index);
}

Tensor follow_sequential(Json& self, const Tensor& x, Inference& at) {
  Tensor y = x;
  std::vector<std::string> names;
  for (size_t i = 0; i < self["layers"].size() && y.defined(); ++i) {
    Json& layer = self["layers"][i];
    const std::string name = child_name(layer, i), key = join_path("layers", i);
    if (name.empty() || name.find('.') != std::string::npos) {
      at.reject(join_path(key, "name"), "must not be empty or contain a dot, got \"" + name + "\"");
    } else if (std::find(names.begin(), names.end(), name) != names.end()) {
      at.reject(join_path(key, "name"), "two layers are called \"" + name + "\"");
    }
    names.push_back(name);
    y = at.child(layer, key, name, y);
  }
  return y;
}

void add_layers(Sequential& net, const Json& layers) {
  for (size_t i = 0; i < layers.size(); ++i) net.push_back(child_name(layers[i], i), build_model(layers[i]));
}

std::shared_ptr<Module> make_sequential(const Json& self) {
  auto net = std::make_shared<Sequential>();
  add_layers(*net, self["layers"]);
  return net;
}

// The Sequential that an MLP stands for: Linear, activation, Dropout... Its fields are all known by now.
Json unfold_mlp(const Json& self) {
  Json layers = Json::array();
  const auto linear = [&](const Json& in, const Json& out) {
    layers.push_back({{"type", "Linear"}, {"in_features", in}, {"out_features", out}, {"bias", self["bias"]}});
  };
  Json in = self["in_features"];
  for (const Json& hidden : self["hidden"]) {
    linear(in, hidden);
    layers.push_back(self["activation"]);
    if (self["dropout"] != 0) layers.push_back({{"type", "Dropout"}, {"p", self["dropout"]}});
    in = hidden;
  }
  linear(in, self["out_features"]);
  return {{"type", "Sequential"}, {"layers", layers}};
}

Tensor flat(const Tensor& x) { return x.dim() > 2 ? flatten(x, 1) : x; }

Tensor follow_mlp(Json& self, const Tensor& x, Inference& at) {
  const Tensor y = flat(x);
  if (!at.fill_widths(self, {"MLP", "", {width("in_features", "").from_input_dim(-1)}}, y)) return {};
  Json unfolded = unfold_mlp(self);
  return at.unfolded(unfolded, y);
}

class FlatMlp : public Sequential {
 public:
  Tensor forward(const Tensor& x) override { return Sequential::forward(flat(x)); }
};

std::shared_ptr<Module> make_mlp(const Json& self) {
  auto net = std::make_shared<FlatMlp>();
  add_layers(*net, unfold_mlp(self)["layers"]);
  return net;
}

Field activation(const Family& layers) {
  Field f = component("activation", layers, "between the layers");
  f.fallback = "ReLU";
  return f;
}

// ---- the rows

void add_rows(Catalog<ModuleRow>& all) {
  const Family& layers = all.family();
  all.add({{"Sequential",
            "layers one after the other",
            {list("layers", nullptr, component("", layers, "a layer"), "the layers, first to last").items(1, 1 << 20).required()}},
           make_sequential,
           follow_sequential});
  all.add({{"MLP",
            "Linear layers with an activation between; flattens its input",
            {width("in_features", "width of the input; left out: that of the data"),
             list("hidden", Json::array(), width("", "width"), "widths of the hidden layers"),
             integer("out_features", "auto", "width of the output; \"auto\": classes or target width")
                 .at_least(1)
                 .at_most(kMaxSample)
                 .or_target_width(),
             activation(layers), number("dropout", 0.0, "probability of Dropout after each activation").at_least(0).below(1),
             boolean("bias", true, "add a bias")}},
           make_mlp,
           follow_mlp});
  all.add(module_row<Linear>(
      "Linear", "y = x W^T + b",
      arg<int64_t>(width("in_features", "width of the input; left out: what comes in").from_input_dim(-1)),
      arg<int64_t>(width("out_features", "width of the output; \"auto\": classes or target width").or_target_width().required()),
      arg<bool>(boolean("bias", true, "add a bias"))));
  add_activation_rows(all);
  add_window_rows(all);
  add_norm_rows(all);
  add_shape_rows(all);
}

}  // namespace

Catalog<ModuleRow>& module_catalog() {
  static Catalog<ModuleRow>& all = *[] {
    auto* const made = new Catalog<ModuleRow>(
        "layer", {text("name", nullptr, "prefix in the state_dict; left out: the index"), not_yet("init", nullptr, "init"),
                  not_yet("weights", nullptr, "weights"), not_yet("freeze", nullptr, "freeze")});
    add_rows(*made);
    return made;
  }();
  return all;
}

}  // namespace halfstep::app
