// SPDX-License-Identifier: Apache-2.0
// Exports a trained model as a C++ program that builds it of halfstep's layers and compiles against the installed package.
#include <algorithm>
#include <set>

#include "apps/catalog/rows/layer_rows.h"
#include "apps/export/exporter.h"
#include "apps/export/layer_code.h"
#include "apps/export/preparation.h"
#include "framework/autograd/grad_mode.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/printable.h"
#include "framework/io/weights/safetensors.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

// Writes a model's layers as C++.
class CppCode {
 public:
  // Returns an expression that constructs the layer.
  std::string layer(const Json& config, int depth) {
    const std::string type = config["type"];
    if (type == "Sequential") return sequential("Sequential", named_layers(config["layers"]), depth);
    if (type == "MLP") {
      flattens_ = true;
      return sequential("Mlp", named_layers(unfold_mlp(config)["layers"]), depth);
    }
    if (type == "Repeat") return sequential("Sequential", layers_of_repeat(config), depth);
    if (type == "Residual") {
      const std::string shortcut =
          config["shortcut"].is_null() ? "" : ",\n" + indented(depth + 1) + shared(config["shortcut"], depth + 1);
      return "Residual(" + shared(config["body"], depth + 1) + shortcut + ")";
    }
    if (type == "Parallel") {
      std::string out = "Parallel({";
      for (const Json& branch : config["branches"]) out += "\n" + indented(depth + 1) + shared(branch, depth + 1) + ",";
      out.back() = '}';
      const Json names = branch_names(config);
      return out + ", Combine::" + config["combine"].get<std::string>() + ", " + config["dim"].dump() +
             (names.empty() ? "" : ", " + value(names)) + ")";
    }
    if (type == "Graph") return graph(config, depth);
    if (type == "TransformerEncoder") return encoder(config);
    return call(type, arguments_of(config));
  }

  // Return the lines before the expression, and the classes that it uses.
  std::string statements() const { return statements_; }
  std::string classes() const {
    return flattens_ ? R"(
// Layers one after the other; flattens its input.
class Mlp : public Sequential {
 public:
  using Sequential::Sequential;
  Tensor forward(const Tensor& x) override { return Sequential::forward(x.dim() > 2 ? flatten(x, 1) : x); }
};
)"
                     : "";
  }

 private:
  static std::string value(const Json& v) {
    if (v.is_null()) return "std::nullopt";
    if (!v.is_array()) return v.dump();
    std::string out = "{";
    for (const Json& element : v) out += (out.size() > 1 ? ", " : "") + value(element);
    return out + "}";
  }

  std::string layers(const Json& layer_or_list, int depth) {
    return layer_or_list.is_array() ? sequential("Sequential", named_layers(layer_or_list), depth) : layer(layer_or_list, depth);
  }
  std::string shared(const Json& layer_or_list, int depth) { return "as_shared(" + layers(layer_or_list, depth) + ")"; }

  std::string sequential(const std::string& name, const NamedLayers& parts, int depth) {
    // Braces with one Sequential would copy it instead of containing it.
    const bool is_unnamed = are_numbered(parts) && parts.size() > 1;
    std::string out = name + (is_unnamed ? "{" : "({");
    for (const auto& [key, part] : parts) {
      const std::string code = layer(part, depth + 1);
      out += "\n" + indented(depth + 1) + (is_unnamed ? code : "{" + Json(key).dump() + ", " + code + "}") + ",";
    }
    out.pop_back();
    return out + (is_unnamed ? "}" : "})");
  }

  // Formats a call, with the first arguments by position and the others by name in braces.
  static std::string call(const std::string& type, const std::vector<Argument>& arguments) {
    const ModuleRow& row = module_catalog().row({{"type", type}});
    std::string first, options;
    for (const Argument& a : arguments) {
      const auto end = row.component.fields.begin() + int64_t(std::min(row.positional, row.component.fields.size()));
      const bool by_position = std::any_of(row.component.fields.begin(), end, [&](const Field& f) { return f.key == a.name; });
      if (by_position) first += (first.empty() ? "" : ", ") + value(a.value);
      if (!by_position && !a.is_default) options += (options.empty() ? "." : ", .") + a.name + " = " + value(a.value);
    }
    if (!options.empty()) first += (first.empty() ? "{" : ", {") + options + "}";
    return type + "(" + first + ")";
  }

  std::string encoder(const Json& config) {
    const std::vector<Argument> of_layer = arguments_of_encoder_layer(config);
    std::string out =
        "TransformerEncoder(as_shared(" + call("TransformerEncoderLayer", of_layer) + "), " + config["num_layers"].dump();
    if (config["norm"] == true)
      out += ", as_shared(LayerNorm(" + config["d_model"].dump() + ", {.eps = " + config["layer_norm_eps"].dump() +
             ", .bias = " + config["bias"].dump() + "}))";
    return out + ")";
  }

  std::string graph(const Json& config, int depth) {
    std::string nodes, inputs;
    std::set<std::string> reused;  // nodes whose layer another node runs too
    for (const Json& n : config["nodes"])
      if (!n["layer_of"].is_null()) reused.insert(n["layer_of"].get<std::string>());
    for (size_t i = 0; i < config["nodes"].size(); ++i) {
      const Json& n = config["nodes"][i];
      const std::string name = n["name"].is_null() ? std::to_string(i) : n["name"].get<std::string>();
      nodes += (i ? ",\n" : "\n") + indented(depth + 1) + "{.name = " + Json(name).dump();
      const Json reads = n["inputs"].is_string() ? Json::array({n["inputs"]}) : n["inputs"];
      if (!reads.is_null()) nodes += ", .inputs = " + value(reads);
      if (!n["combine"].is_null())
        nodes += ", .combine = Combine::" + n["combine"].get<std::string>() + ", .dim = " + n["dim"].dump();
      if (!n["layer"].is_null() && reused.contains(name)) {
        const std::string variable = "layer_" + std::to_string(variables_++);
        statements_ += "  const std::shared_ptr<Module> " + variable + " = " + shared(n["layer"], 1) + ";\n";
        variable_of_node_[name] = variable;
        nodes += ", .layer = " + variable;
      } else if (!n["layer"].is_null()) {
        nodes += ", .layer = " + shared(n["layer"], depth + 1);
      }
      if (!n["layer_of"].is_null()) nodes += ", .layer = " + variable_of_node_[n["layer_of"].get<std::string>()];
      nodes += "}";
    }
    for (const Json& p : config["inputs"]) {
      inputs += (inputs.empty() ? "{.name = " : ", {.name = ") + p["name"].dump() + ", .start = " + p["start"].dump() +
                (p["end"].is_null() ? "" : ", .end = " + p["end"].dump()) + ", .dim = " + p["dim"].dump() + "}";
    }
    return "Graph({" + nodes + "}" + (inputs.empty() ? "" : ", {" + inputs + "}") + ")";
  }

  bool flattens_ = false;  // whether the class Mlp is needed
  std::string statements_;
  int variables_ = 0;  // of statements_ so far
  std::map<std::string, std::string> variable_of_node_;
};

template <class T>
std::string tensor_of(const std::vector<T>& numbers, const std::string& dtype = "f32") {
  std::string out;
  for (const T v : numbers) out += (out.empty() ? "" : ", ") + (v == v ? number_code(v) : "NAN");
  return "tensor({" + out + "}, {.dtype = DType::" + dtype + "})";
}

std::string cpp_preparation(const Predictor& model, const Preparation& p) {
  std::string body;
  if (!p.wide.empty())
    body += "  check<ValueError>(x.dtype() != DType::f32, \"prepare\", " +
            Json("inputs must be float64: float32 does not have the digits of " + p.wide).dump() +
            ");\n  x = x.to(DType::f64);\n";
  if (!p.units.fill.empty())
    body += "  x = where(eq(x, x), x, " + tensor_of(p.units.fill, p.wide.empty() ? "f32" : "f64") + ");  // missing values\n";
  if (!p.units.mean.empty()) {
    const std::string mean = tensor_of(p.units.mean, "f64"), std = tensor_of(p.units.std, "f64");
    body += "  x = ((x.to(DType::f64) - " + mean + ") / " + std + ").to(DType::f32);\n";
  }
  for (const ChannelScaling* s : p.inside) {
    const std::string view = s->mean.size() == 1 ? "" : ".reshape({-1, 1, 1})";
    body += "  x = (x - " + tensor_of(s->mean) + view + ") / " + tensor_of(s->std) + view + ";\n";
  }
  std::vector<std::string> scaled;  // std and mean
  const bool wide_answer = answer_dtype(model.form()) == DType::f64;
  if (const ColumnScale& scale = model.form().scale; !scale.each.empty()) {
    const auto [mean, std] = numbers_of_scale(model.form());
    const std::string dtype = wide_answer ? "f64" : "f32";
    scaled = {tensor_of(std, dtype), tensor_of(mean, dtype)};
  } else if (has_scale(model.form())) {
    scaled = {Json(scale.std).dump(), Json(scale.mean).dump()};
  }
  std::string out = "\n// Inputs as the training data had them, in the units of its files.";
  for (const Json& t : p.outside) out += "\n// Done before: " + printable(transform_text(t));
  for (const std::string& line : input_lines(model.form())) out += "\n// " + printable(line);
  const std::string last = last_step_code(model), y = wide_answer ? "model(prepare(x)).to(DType::f64)" : "model(prepare(x))",
                    begin = last.empty() ? y : last + "(" + y + ")";
  return out + "\nTensor prepare(Tensor x) {\n" + body +
         "  return x;\n}\n\nTensor answer(Module& model, const Tensor& x) {\n  return " +
         (scaled.empty() ? begin : begin + " * " + scaled[0] + " + " + scaled[1]) + ";\n}\n";
}

}  // namespace

Exported export_cpp(const ExportSource& source, const ExportOptions& options) {
  const NoGrad off;
  const Predictor& model = source.model;
  CppCode code;
  const std::string expression = code.layer(model.config().model, 1);
  const Preparation prepare(model);
  const SavedState state = saved_state(*model.parts().model);
  std::string loading = "  load(*model, folder + \"/model.safetensors\");\n";
  if (!state.shared.empty()) {
    loading = "  TensorMap tensors = load_safetensors(folder + \"/model.safetensors\").tensors;\n";
    for (const auto& [name, first] : state.shared)  // one tensor in the model, two in the code
      loading += "  tensors.emplace(" + Json(name).dump() + ", tensors.at(" + Json(first).dump() + "));\n";
    loading +=
        "  StateDict state;\n  for (const auto& [name, tensor] : tensors) state.push_back({name, tensor});\n"
        "  model->load_state_dict(state);\n";
  }
  const std::string text = origin_lines("//", source.stored.path.string(), model.step()) +
                           "#include <cmath>\n#include <iostream>\n\n#include \"halfstep.h\"\n\nusing namespace halfstep;\n" +
                           code.classes() + "\nstd::shared_ptr<Module> make_model() {\n" + code.statements() +
                           "  return as_shared(" + expression + ");\n}\n" + cpp_preparation(model, prepare) + R"(
int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  const NoGrad off;
  const std::shared_ptr<Module> model = make_model();
)" + loading + R"(  model->eval();

  // Its answers for the golden samples must be those of the model that was exported.
  const TensorMap proof = load_safetensors(folder + "/proof.safetensors").tensors;
  const Tensor wanted = flatten(proof.at("output"), 1), all = flatten(answer(*model, proof.at("input")), 1);
  const int64_t step = (all.size(1) + wanted.size(1) - 1) / wanted.size(1);  // of a large output every step-th number was kept
  const Tensor y = index_select(all, 1, arange(0, all.size(1), step));
  const double off_by = (abs(y - wanted) / (abs(wanted) + 1)).max().item<double>();
  std::cout << "golden samples: within " << off_by << " of 1 + |y|\n";
  return off_by <= 1e-4 ? 0 : 1;
}
)";
  constexpr const char* kBuild = R"(cmake_minimum_required(VERSION 3.25)
project(model LANGUAGES CXX)
find_package(halfstep REQUIRED)
add_executable(model main.cpp)
target_link_libraries(model PRIVATE halfstep::halfstep)
)";
  const std::string build = origin_lines("#", source.stored.path.string(), model.step()) + kBuild,
                    folder = shell_word(options.out.string());
  Exported out = write_code(source, options, prepare, {{"main.cpp", text}, {"CMakeLists.txt", build}});
  out.use = "cmake -S " + folder + " -B " + folder + "/build && cmake --build " + folder + "/build && " + folder + "/build/model " +
            folder;
  return out;
}

}  // namespace halfstep::app
