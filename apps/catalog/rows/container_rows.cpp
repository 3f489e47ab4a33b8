// SPDX-License-Identifier: Apache-2.0
// Rows of container layers: a config spells out their children, and inference runs a batch through each.
#include <algorithm>
#include <iterator>
#include <map>

#include "apps/catalog/infer.h"
#include "apps/catalog/rows/layer_rows.h"
#include "layers/containers/graph.h"

namespace halfstep::app {
namespace {

constexpr int kMaxLayers = 1 << 20;

std::string child_name(const Json& layer, size_t index) {
  return layer.contains("name") && layer["name"].is_string() ? layer["name"].get<std::string>() : std::to_string(index);
}

// Returns the layers of a list, or one layer, at `key` of a config and below `name` of the module.
std::vector<LayerPart> parts_of(Json& layers, const std::string& key, const std::string& name) {
  if (!layers.is_array()) return {{key, name, &layers}};
  std::vector<LayerPart> out;
  for (size_t i = 0; i < layers.size(); ++i)
    out.push_back({join_path(key, i), join_path(name, child_name(layers[i], i)), &layers[i]});
  return out;
}
void append(std::vector<LayerPart>& parts, std::vector<LayerPart> more) {
  parts.insert(parts.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// Names of the layers in one place; reports invalid and duplicate names.
class LayerNames {
 public:
  explicit LayerNames(Inference& at) : at_(at) {}
  void add(const std::string& key, const std::string& own) {
    if (own.empty() || own.find('.') != std::string::npos) {
      at_.reject(join_path(key, "name"), "must not be empty or contain a dot, got \"" + own + "\"");
    } else if (std::find(names_.begin(), names_.end(), own) != names_.end()) {
      at_.reject(join_path(key, "name"), "two layers are called \"" + own + "\"");
    }
    names_.push_back(own);
  }

 private:
  Inference& at_;
  std::vector<std::string> names_;
};

// Runs x through the layers. used: a single layer's name is used by the layer around it.
Tensor follow_layers(Json& layers, const std::string& key, const std::string& name, const Tensor& x, Inference& at,
                     bool used = false) {
  Tensor y = x;
  LayerNames names(at);
  if (!layers.is_array() && !used && layers.contains("name") && layers["name"].is_string())
    at.warn(join_path(key, "name"),
            "is not used: a single layer is called \"" + name + "\"; in a list it has its name");
  for (const LayerPart& part : parts_of(layers, key, name)) {
    if (layers.is_array()) names.add(part.key, part.name.substr(name.empty() ? 0 : name.size() + 1));
    y = at.child(*part.config, part.key, part.name, y);
    if (!y.defined()) return {};
  }
  return y;
}

void add_layers(Sequential& net, const Json& layers) {
  for (size_t i = 0; i < layers.size(); ++i) net.push_back(child_name(layers[i], i), build_model(layers[i]));
}

std::shared_ptr<Module> make_layers(const Json& layers) {
  if (!layers.is_array()) return build_model(layers);
  auto net = std::make_shared<Sequential>();
  add_layers(*net, layers);
  return net;
}

Field layers_field(const Family& layers, std::string key, std::string doc) {
  return list(std::move(key), nullptr, component("", layers, "a layer"), std::move(doc)).items(1, kMaxLayers).or_one();
}

// ---- Sequential

ModuleRow sequential_row(const Family& layers) {
  Field each = layers_field(layers, "layers", "the layers, first to last").required();
  each.or_single = false;
  return {{"Sequential", "layers one after the other", {each}},
          [](const Json& self) { return make_layers(self["layers"]); },
          [](Json& self, const Tensor& x, Inference& at) { return follow_layers(self["layers"], "layers", "", x, at); },
          [](Json& self) { return parts_of(self["layers"], "layers", ""); }};
}

// ---- MLP

Tensor flat(const Tensor& x) { return x.dim() > 2 ? flatten(x, 1) : x; }

Tensor follow_mlp(Json& self, const Tensor& x, Inference& at) {
  const Tensor y = flat(x);
  if (!at.fill_widths(self, {"MLP", "", {linear_row().component.fields[0]}}, y)) return {};
  Json unfolded = unfold_mlp(self);
  return at.run_unfolded(unfolded, y);
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

ModuleRow mlp_row(const Family& layers) {
  Field activation = component("activation", layers, "between the layers");
  activation.fallback = "ReLU";
  Component linear = linear_row().component;
  Field in = class_row<Linear>("").component.fields[0], out = field_of(linear, "out_features");
  in.needed = false, in.doc += "; left out: that of the data";
  out.needed = false, out.fallback = "auto";
  return {{"MLP",
           "Linear layers with an activation between; flattens its input",
           {in, list("hidden", Json::array(), width("", "width"), "widths of the hidden layers"), out, activation,
            number("dropout", 0.0, "probability of Dropout after each activation").at_least(0).below(1),
            field_of(linear, "bias")}},
          make_mlp,
          follow_mlp};
}

// ---- Residual, Parallel

std::vector<Field> combine_fields(Json fallback) {
  std::vector<std::string> ways;
  for (int i = 0; i <= int(Combine::cosine); ++i) ways.emplace_back(name(Combine(i)));
  return {choice("combine", std::move(fallback), ways, "how the outputs are combined"),
          integer("dim", 1, "of concat, stack, dot and cosine").at_least(-kMaxDims).at_most(kMaxDims)};
}
Combine combine_in(const Json& self) { return *combine_of(self["combine"].get<std::string>()); }

ModuleRow residual_row(const Family& layers) {
  const auto has_shortcut = [](const Json& self) { return !self["shortcut"].is_null(); };
  return {{"Residual",
           "body(x) + shortcut(x)",
           {layers_field(layers, "body", "layers whose output is added to the input").required(),
            layers_field(layers, "shortcut", "layers applied to the input; left out: none")}},
          [=](const Json& self) {
            auto shortcut = has_shortcut(self) ? make_layers(self["shortcut"]) : nullptr;  // drawn first with every compiler
            return std::make_shared<Residual>(make_layers(self["body"]), std::move(shortcut));
          },
          [=](Json& self, const Tensor& x, Inference& at) -> Tensor {
            const Tensor body = follow_layers(self["body"], "body", "body", x, at);
            const Tensor across = has_shortcut(self) ? follow_layers(self["shortcut"], "shortcut", "shortcut", x, at) : x;
            if (!body.defined() || !across.defined()) return {};
            return at.infer_join("Residual", [&] { return combine(Combine::add, {body, across}); });
          },
          [=](Json& self) {
            std::vector<LayerPart> parts = parts_of(self["body"], "body", "body");
            if (has_shortcut(self)) append(parts, parts_of(self["shortcut"], "shortcut", "shortcut"));
            return parts;
          }};
}

ModuleRow parallel_row(const Family& layers) {
  Field branch = layers_field(layers, "", "a branch");
  std::vector<Field> fields{list("branches", nullptr, branch, "layers applied to the input").items(1, kMaxCopies).required()};
  for (Field& f : combine_fields("concat")) fields.push_back(std::move(f));
  const auto key = [](size_t i) { return join_path("branches", i); };
  // Returns a layer's own name, or a list's index.
  const auto own_name = [](const Json& branch, size_t i) { return branch.is_array() ? std::to_string(i) : child_name(branch, i); };
  return {{"Parallel", "several branches of one input", fields},
          [=](const Json& self) {
            std::vector<std::shared_ptr<Module>> branches;
            std::vector<std::string> names;
            for (const Json& each : self["branches"]) {
              names.push_back(own_name(each, names.size()));
              branches.push_back(make_layers(each));
            }
            return std::make_shared<Parallel>(std::move(branches), combine_in(self), self["dim"].get<int64_t>(), names);
          },
          [=](Json& self, const Tensor& x, Inference& at) -> Tensor {
            Tensors made;
            LayerNames names(at);
            for (size_t i = 0; i < self["branches"].size(); ++i) {
              const std::string own = own_name(self["branches"][i], i);
              names.add(key(i), own);
              made.push_back(follow_layers(self["branches"][i], key(i), own, x, at, /*used=*/true));
              if (!made.back().defined()) return {};
            }
            return at.infer_join("Parallel", [&] { return combine(combine_in(self), made, self["dim"].get<int64_t>()); });
          },
          [=](Json& self) {
            std::vector<LayerPart> parts;
            for (size_t i = 0; i < self["branches"].size(); ++i)
              append(parts, parts_of(self["branches"][i], key(i), own_name(self["branches"][i], i)));
            return parts;
          }};
}

// ---- Repeat

ModuleRow repeat_row(const Family& layers) {
  return {{"Repeat",
           "copies of layers one after the other, each with its own weights",
           {copies("times", "how many").required(), layers_field(layers, "layers", "layers of one copy").required()}},
          [](const Json& self) {
            auto net = std::make_shared<Sequential>();
            for (int64_t i = 0; i < self["times"].get<int64_t>(); ++i) net->push_back(make_layers(self["layers"]));
            return net;
          },
          [](Json& self, const Tensor& x, Inference& at) {
            Tensor y = follow_layers(self["layers"], "layers", "0", x, at);
            for (int64_t i = 1; i < self["times"].get<int64_t>() && y.defined(); ++i) {
              y = at.infer_again("copy " + std::to_string(i + 1), [&](Inference& copy) {
                Json layers = self["layers"];
                return follow_layers(layers, "layers", std::to_string(i), y, copy);
              });
            }
            return y;
          },
          [](Json& self) {
            std::vector<LayerPart> parts;
            for (int64_t i = 0; i < self["times"].get<int64_t>(); ++i)
              append(parts, parts_of(self["layers"], "layers", std::to_string(i)));
            return parts;
          }};
}

// ---- Graph

std::string node_name(const Json& node, size_t index) {
  return node["name"].is_null() ? std::to_string(index) : node["name"].get<std::string>();
}

// Constructs the graph of a config; `make` constructs each node's layer.
std::shared_ptr<Graph> make_graph(const Json& self, const std::function<std::shared_ptr<Module>(const Json& layers)>& make) {
  std::vector<Graph::Input> inputs;
  for (const Json& i : self["inputs"])
    inputs.push_back(
        {.name = i["name"], .start = i["start"], .end = ReadArg<std::optional<int64_t>>::from(i["end"]), .dim = i["dim"]});
  std::vector<Graph::Node> nodes;
  std::map<std::string, std::shared_ptr<Module>> made;
  for (size_t i = 0; i < self["nodes"].size(); ++i) {
    const Json& n = self["nodes"][i];
    Graph::Node node{.name = node_name(n, i), .dim = n["dim"].get<int64_t>()};
    if (n["inputs"].is_string()) node.inputs = {n["inputs"].get<std::string>()};
    if (n["inputs"].is_array()) node.inputs = n["inputs"].get<std::vector<std::string>>();
    if (!n["combine"].is_null()) node.combine = combine_in(n);
    if (!n["layer_of"].is_null()) {
      const std::string other = n["layer_of"];
      check<ValueError>(n["layer"].is_null(), "Graph", "node \"", node.name, "\" has both a layer and layer_of");
      check<ValueError>(made.contains(other), "Graph", "node \"", node.name, "\" has the layer of \"", other,
                        "\", but no node before it with a layer is called that");
      node.layer = made[other];
    }
    if (!n["layer"].is_null()) node.layer = made[node.name] = make(n["layer"]);
    nodes.push_back(std::move(node));
  }
  return std::make_shared<Graph>(std::move(nodes), std::move(inputs));
}

Tensor follow_graph(Json& self, const Tensor& x, Inference& at) {
  std::shared_ptr<Graph> plan;
  std::map<std::string, Tensor> values;
  try {
    plan = make_graph(self, [](const Json&) { return std::make_shared<Identity>(); });
    for (const Graph::Input& i : plan->inputs()) values[i.name] = i.of(x);
  } catch (const Error& e) { return at.reject("", one_line(e)); }
  Tensor y;
  for (size_t i = 0; i < plan->nodes().size(); ++i) {
    const Graph::Node& node = plan->nodes()[i];
    const std::string key = join_path("nodes", i);
    Tensors in;
    for (const std::string& input : node.inputs) in.push_back(values[input]);
    y = in[0];
    if (node.combine)
      y = at.infer_join(
          std::string(name(*node.combine)), [&] { return combine(*node.combine, in, node.dim); }, key, node.name);
    if (!y.defined()) return {};
    Json& config = self["nodes"][i];
    if (!config["layer"].is_null()) y = follow_layers(config["layer"], join_path(key, "layer"), node.name, y, at);
    if (!config["layer_of"].is_null()) {
      const auto& first = std::find_if(self["nodes"].begin(), self["nodes"].end(), [&](const Json& n) {
        return node_name(n, size_t(&n - &self["nodes"][0])) == config["layer_of"].get<std::string>();
      });
      y = at.infer_again("node \"" + node.name + "\"", [&](Inference& shared) {
        Json layers = (*first)["layer"];
        return follow_layers(layers, join_path(key, "layer_of"), config["layer_of"], y, shared);
      });
    }
    if (!y.defined()) return {};
    values[node.name] = y;
  }
  return y;
}

ModuleRow graph_row(const Family& layers) {
  static const Section input{
      "inputs",
      {text("name", nullptr, "name by which nodes refer to it").required(), integer("start", 0, "first index of the part"),
       integer("end", nullptr, "index after the last; left out: to the end"),
       integer("dim", -1, "dimension of the batch that is cut").at_least(-kMaxDims).at_most(kMaxDims)}};
  static const Section& node = *[&] {
    std::vector<Field> fields{text("name", nullptr, "name of its output, and prefix in the state_dict; left out: the index"),
                              list("inputs", nullptr, text("", nullptr, "a name"), "its inputs; left out: the node before it")
                                  .items(1, kMaxCopies)
                                  .or_one()};
    for (Field& f : combine_fields(nullptr)) fields.push_back(std::move(f));
    fields.push_back(layers_field(layers, "layer", "its layer; left out: none"));
    fields.push_back(text("layer_of", nullptr, "an earlier node whose layer it runs, with the same weights"));
    return new Section{"nodes", fields};
  }();
  return {{"Graph",
           "nodes that refer to the outputs of others by name; returns the output of the last",
           {list("nodes", nullptr, optional_section("", node, "a node"), "the nodes, each after the nodes that it reads")
                .items(1, kMaxLayers)
                .required(),
            list("inputs", Json::array(), optional_section("", input, "a part"),
                 "parts of the batch by name; left out: \"input\", the whole of it")
                .items(0, kMaxCopies)}},
          [](const Json& self) { return make_graph(self, make_layers); },
          follow_graph,
          [](Json& self) {
            std::vector<LayerPart> parts;
            for (size_t i = 0; i < self["nodes"].size(); ++i) {
              Json& n = self["nodes"][i];
              if (!n["layer"].is_null())
                append(parts, parts_of(n["layer"], join_path(join_path("nodes", i), "layer"), node_name(n, i)));
            }
            return parts;
          }};
}

}  // namespace

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

void add_container_rows(Catalog<ModuleRow>& catalog) {
  const Family& layers = catalog.family();
  catalog.add(sequential_row(layers));
  catalog.add(mlp_row(layers));
  catalog.add(residual_row(layers));
  catalog.add(parallel_row(layers));
  catalog.add(repeat_row(layers));
  catalog.add(graph_row(layers));
}

}  // namespace halfstep::app
