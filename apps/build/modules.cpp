#include "apps/build/modules.h"

#include <algorithm>
#include <sstream>

#include "layers/layers.h"

namespace halfstep::app {
namespace {

template <class... Parts>
std::string cat_text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// A place in the model while shapes are followed through it.
struct Walk {
  const DataFacts& facts;
  Issues& issues;
  std::vector<LayerRow>& rows;
  std::string path;  // "model.layers.2"
  std::string name;  // "2"; "" for the model itself

  std::optional<Shape> reject(const std::string& key, const std::string& message) {
    issues.error(key.empty() ? path : join_path(path, key), message);
    return {};
  }
  Shape row(std::string what, const Shape& output, int64_t parameters = 0, char precision = '=') {
    rows.push_back({name.empty() ? "model" : name, std::move(what), output, parameters, precision});
    return output;
  }
};

using Infer = std::optional<Shape> (*)(Json& self, const Shape& in, Walk& walk);
using Make = std::shared_ptr<Module> (*)(const Json& self);
struct Row {
  Component component;
  Infer infer;
  Make make;
};

const Row& row_of(const Json& self);
std::optional<Shape> infer(Json& self, const Shape& in, Walk& walk) { return row_of(self).infer(self, in, walk); }
std::shared_ptr<Module> make(const Json& self) { return row_of(self).make(self); }

template <class M>
std::shared_ptr<Module> make_plain(const Json&) {
  return std::make_shared<M>();
}
std::optional<Shape> same_shape(Json& self, const Shape& in, Walk& walk) {
  return walk.row(self["type"].get<std::string>() + "()", in);
}

// ---- Linear

// "auto": one output a class, or one a target number.
std::optional<int64_t> auto_features(const Json& value, Walk& walk, const std::string& key) {
  if (!value.is_string()) return value.get<int64_t>();
  if (walk.facts.classes > 0) return walk.facts.classes;
  if (walk.facts.target.size() == 1) return walk.facts.target[0];
  walk.reject(key, cat_text("\"auto\" needs data with classes or with a target of one dimension, got target ", walk.facts.target));
  return {};
}

bool set_in_features(Json& self, int64_t width, const Shape& in, Walk& walk) {
  Json& given = self["in_features"];
  if (!given.is_null() && given.get<int64_t>() != width) {
    const bool flat = given.get<int64_t>() == numel(in);
    walk.reject("in_features", cat_text("must be ", width, " for an input of shape ", in, ", got ", given.get<int64_t>(),
                                        flat ? "; put \"Flatten\" before it" : ""));
    return false;
  }
  given = width;
  return true;
}

std::optional<Shape> infer_linear(Json& self, const Shape& in, Walk& walk) {
  if (in.empty()) return walk.reject("", "Linear needs an input of at least one dimension, got []");
  if (in.size() > 1 && self["in_features"].is_null()) {
    return walk.reject("", cat_text("Linear works on the last dimension, but its input has shape ", in,
                                    ": put \"Flatten\" before it, or give in_features if that is meant"));
  }
  if (!set_in_features(self, in.back(), in, walk)) return {};
  const auto width = auto_features(self["out_features"], walk, "out_features");
  if (!width) return {};
  if (*width > kMaxSample / std::max<int64_t>(1, numel(in) / std::max<int64_t>(1, in.back()))) {
    return walk.reject("out_features", cat_text("makes more than ", kMaxSample, " values of a sample of shape ", in));
  }
  self["out_features"] = *width;
  Shape out = in;
  out[out.size() - 1] = *width;
  return walk.row(cat_text("Linear(", in.back(), ", ", *width, ")"), out, *width * (in.back() + (self["bias"] == true ? 1 : 0)),
                  'l');
}

std::shared_ptr<Module> make_linear(const Json& self) {
  return std::make_shared<Linear>(LinearOptions{self["in_features"], self["out_features"], self["bias"]});
}

// ---- containers

std::string child_name(const Json& layer, size_t index) {
  return layer.contains("name") && layer["name"].is_string() ? layer["name"].get<std::string>() : std::to_string(index);
}

std::optional<Shape> infer_sequential(Json& self, const Shape& in, Walk& walk) {
  std::optional<Shape> shape = in;
  std::vector<std::string> names;
  for (size_t i = 0; i < self["layers"].size() && shape; ++i) {
    Json& layer = self["layers"][i];
    const std::string name = child_name(layer, i), path = join_path(join_path(walk.path, "layers"), i);
    if (name.empty() || name.find('.') != std::string::npos) {
      walk.issues.error(join_path(path, "name"), "must not be empty or contain a dot, got \"" + name + "\"");
    } else if (std::find(names.begin(), names.end(), name) != names.end()) {
      walk.issues.error(join_path(path, "name"), "two layers are called \"" + name + "\"");
    }
    names.push_back(name);
    Walk inner{walk.facts, walk.issues, walk.rows, path, join_path(walk.name, name)};
    shape = infer(layer, *shape, inner);
  }
  return shape;
}

std::shared_ptr<Module> make_sequential(const Json& self) {
  auto net = std::make_shared<Sequential>();
  for (size_t i = 0; i < self["layers"].size(); ++i) net->push_back(child_name(self["layers"][i], i), make(self["layers"][i]));
  return net;
}

// The Sequential that an MLP stands for: Linear, activation, Dropout... Only inputs with several dimensions get a Flatten.
Json unfold_mlp(const Json& self) {
  Json layers = Json::array();
  const auto linear = [&](const Json& in, const Json& out) {
    layers.push_back({{"type", "Linear"}, {"in_features", in}, {"out_features", out}, {"bias", self["bias"]}});
  };
  Json width = self["in_features"];
  for (const Json& hidden : self["hidden"]) {
    linear(width, hidden);
    layers.push_back(self["activation"]);
    if (self["dropout"] != 0) layers.push_back({{"type", "Dropout"}, {"p", self["dropout"]}});
    width = hidden;
  }
  linear(width, self["out_features"]);
  return {{"type", "Sequential"}, {"layers", layers}};
}

std::optional<Shape> infer_mlp(Json& self, const Shape& in, Walk& walk) {
  const Shape flat{numel(in)};
  if (!set_in_features(self, flat[0], in, walk)) return {};
  const auto width = auto_features(self["out_features"], walk, "out_features");
  if (!width) return {};
  self["out_features"] = *width;
  if (in.size() > 1) walk.row("Flatten()", flat);
  Json unfolded = unfold_mlp(self);
  Issues none;  // what could be wrong was checked above
  Walk inner{walk.facts, none, walk.rows, walk.path, walk.name};
  return infer_sequential(unfolded, flat, inner);
}

class FlatMlp : public Sequential {
 public:
  Tensor forward(const Tensor& x) override { return Sequential::forward(x.dim() > 2 ? flatten(x, 1) : x); }
};

std::shared_ptr<Module> make_mlp(const Json& self) {
  auto net = std::make_shared<FlatMlp>();
  const Json layers = unfold_mlp(self)["layers"];
  for (size_t i = 0; i < layers.size(); ++i) net->push_back(std::to_string(i), make(layers[i]));
  return net;
}

// ---- shapes

// start_dim and end_dim count the batch as dimension 0.
std::optional<Shape> infer_flatten(Json& self, const Shape& in, Walk& walk) {
  const int64_t rank = in.size() + 1;
  int64_t start = self["start_dim"], end = self["end_dim"];
  if (start < 0) start += rank;
  if (end < 0) end += rank;
  if (start < 1 || end < start || end >= rank) {
    if (in.empty()) return walk.reject("", "Flatten needs an input of at least one dimension, got []");
    return walk.reject("",
                       cat_text("start_dim and end_dim must name dimensions 1 to ", rank - 1, ", in order (0 is the batch), got ",
                                self["start_dim"].get<int64_t>(), " and ", self["end_dim"].get<int64_t>()));
  }
  Shape out;
  for (int64_t d = 1; d < rank; ++d) {
    if (d > start && d <= end) {
      out[out.size() - 1] *= in[int(d - 1)];
    } else {
      out.push_back(in[int(d - 1)]);
    }
  }
  return walk.row("Flatten()", out);
}

std::optional<Shape> infer_softmax(Json& self, const Shape& in, Walk& walk) {
  const int64_t dim = self["dim"], rank = in.size() + 1;
  if (dim < -rank || dim >= rank)
    return walk.reject("dim", cat_text("must name a dimension of an input of shape ", in, ", got ", dim));
  return walk.row(cat_text("Softmax(dim=", dim, ")"), in, 0, 'f');
}

// ---- the catalogue

Family g_family;

const std::vector<Row>& rows() {
  static const std::vector<Row> all = [] {
    const Field layer = component("", g_family, "a layer");
    std::vector<Row> r;
    r.push_back({{"Sequential",
                  "layers one after the other",
                  {list("layers", nullptr, layer, "the layers, first to last").items(1, 1 << 20).required()}},
                 infer_sequential,
                 make_sequential});
    r.push_back(
        {{"MLP",
          "Linear layers with an activation between; flattens its input",
          {integer("in_features", nullptr, "width of the input; left out: that of the data").at_least(1).at_most(kMaxSample),
           list("hidden", Json::array(), integer("", nullptr, "width").at_least(1).at_most(kMaxSample),
                "widths of the hidden layers"),
           integer("out_features", "auto", "width of the output; \"auto\": classes or target width")
               .at_least(1)
               .at_most(kMaxSample)
               .or_word("auto"),
           [] {
             Field f = component("activation", g_family, "between the layers");
             f.fallback = "ReLU";
             return f;
           }(),
           number("dropout", 0.0, "probability of Dropout after each activation").at_least(0).below(1),
           boolean("bias", true, "add a bias")}},
         infer_mlp,
         make_mlp});
    r.push_back({{"Linear",
                  "y = x W^T + b",
                  {integer("in_features", nullptr, "width of the input; left out: what comes in").at_least(1).at_most(kMaxSample),
                   integer("out_features", nullptr, "width of the output; \"auto\": classes or target width")
                       .at_least(1)
                       .at_most(kMaxSample)
                       .or_word("auto")
                       .required(),
                   boolean("bias", true, "add a bias")}},
                 infer_linear,
                 make_linear});
    r.push_back({{"ReLU", "max(x, 0)", {}}, same_shape, make_plain<ReLU>});
    r.push_back({{"GELU",
                  "x times the normal distribution function of x",
                  {choice("approximate", "none", {"none", "tanh"}, "\"none\": by erf")}},
                 same_shape,
                 [](const Json& self) -> std::shared_ptr<Module> {
                   return std::make_shared<GELU>(self["approximate"].get<std::string>());
                 }});
    r.push_back({{"Tanh", "hyperbolic tangent", {}}, same_shape, make_plain<Tanh>});
    r.push_back({{"Sigmoid", "1 / (1 + exp(-x))", {}}, same_shape, make_plain<Sigmoid>});
    r.push_back({{"SiLU", "x sigmoid(x)", {}}, same_shape, make_plain<SiLU>});
    r.push_back({{"Identity", "x", {}}, same_shape, make_plain<Identity>});
    r.push_back(
        {{"Softmax", "exp(x) over its sum", {integer("dim", -1, "dimension; 0 is the batch")}},
         infer_softmax,
         [](const Json& self) -> std::shared_ptr<Module> { return std::make_shared<Softmax>(self["dim"].get<int64_t>()); }});
    r.push_back({{"Flatten",
                  "joins dimensions",
                  {integer("start_dim", 1, "first dimension; 0 is the batch"), integer("end_dim", -1, "last dimension")}},
                 infer_flatten,
                 [](const Json& self) -> std::shared_ptr<Module> {
                   return std::make_shared<Flatten>(self["start_dim"].get<int64_t>(), self["end_dim"].get<int64_t>());
                 }});
    r.push_back(
        {{"Dropout", "zeroes inputs with probability p while training", {number("p", 0.5, "probability").at_least(0).below(1)}},
         same_shape,
         [](const Json& self) -> std::shared_ptr<Module> { return std::make_shared<Dropout>(self["p"].get<double>()); }});
    return r;
  }();
  return all;
}

const Row& row_of(const Json& self) {
  const std::string type = self["type"];
  const auto it = std::find_if(rows().begin(), rows().end(), [&](const Row& r) { return r.component.type == type; });
  check<ConfigError>(it != rows().end(), "model", "unknown layer \"", type, "\"");
  return *it;
}

}  // namespace

const Family& module_family() {
  static const bool filled = [] {
    g_family.what = "layer";
    for (const Row& r : rows()) g_family.components.push_back(r.component);
    g_family.common = {text("name", nullptr, "prefix in the state_dict; left out: the index"), not_yet("init", nullptr, "init"),
                       not_yet("weights", nullptr, "weights"), not_yet("freeze", nullptr, "freeze")};
    g_family.planned = {"Conv1d",
                        "Conv2d",
                        "Conv3d",
                        "ConvTranspose2d",
                        "MaxPool2d",
                        "AvgPool2d",
                        "AdaptiveAvgPool2d",
                        "BatchNorm1d",
                        "BatchNorm2d",
                        "LayerNorm",
                        "GroupNorm",
                        "RMSNorm",
                        "Embedding",
                        "RNN",
                        "LSTM",
                        "GRU",
                        "LSTMCell",
                        "GRUCell",
                        "MultiheadAttention",
                        "TransformerEncoderLayer",
                        "Residual",
                        "Parallel",
                        "Repeat",
                        "LeakyReLU",
                        "ELU",
                        "SELU",
                        "Mish",
                        "Hardswish",
                        "Softplus",
                        "PReLU",
                        "LogSoftmax",
                        "Dropout2d",
                        "Bilinear",
                        "Unflatten"};
    return true;
  }();
  (void)filled;
  return g_family;
}

InferredModel infer_model(const Json& model, const DataFacts& facts, const std::string& path, Issues& issues) {
  InferredModel out{model, {}, {}};
  Walk walk{facts, issues, out.layers, path, ""};
  const int before = issues.errors();
  out.output = infer(out.model, facts.input, walk);
  if (issues.errors() > before) out.output.reset();
  return out;
}

std::shared_ptr<Module> build_model(const Json& model) { return make(model); }

}  // namespace halfstep::app
