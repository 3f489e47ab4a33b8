// SPDX-License-Identifier: Apache-2.0
// Exports a trained model as a Python file that builds it of PyTorch's layers.
#include <map>
#include <set>

#include "apps/catalog/rows/layer_rows.h"
#include "apps/export/exporter.h"
#include "apps/export/layer_code.h"
#include "apps/export/preparation.h"
#include "framework/autograd/grad_mode.h"
#include "framework/backend/export_error.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/printable.h"
#include "framework/io/weights/safetensors.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

// Writes a model's layers as Python.
class TorchCode {
 public:
  // Returns an expression that constructs the layer.
  std::string layer(const Json& config, int depth) {
    const std::string type = config["type"];
    if (type == "Sequential") return sequential("nn.Sequential", named_layers(config["layers"]), depth);
    if (type == "MLP") return add_class("MLP"), sequential("MLP", named_layers(unfold_mlp(config)["layers"]), depth);
    if (type == "Repeat") return sequential("nn.Sequential", layers_of_repeat(config), depth);
    if (type == "Residual") {
      add_class("Residual");
      const std::string shortcut =
          config["shortcut"].is_null() ? "" : ",\n" + indented(depth + 1, 4) + layers(config["shortcut"], depth + 1);
      return "Residual(\n" + indented(depth + 1, 4) + layers(config["body"], depth + 1) + shortcut + ")";
    }
    if (type == "Parallel") {
      add_class("combine"), add_class("Parallel");
      std::string out = "Parallel([";
      for (const Json& branch : config["branches"]) out += "\n" + indented(depth + 1, 4) + layers(branch, depth + 1) + ",";
      const Json names = branch_names(config);
      for (const Json& name : names) check_name(name.get<std::string>());
      return out + "], " + value(config["combine"]) + ", dim=" + value(config["dim"]) +
             (names.empty() ? "" : ", names=" + names.dump()) + ")";
    }
    if (type == "Graph") return graph(config, depth);
    if (type == "TransformerEncoder") return encoder(config);
    return call(type, arguments_of(config));
  }

  std::string classes() const {
    std::string out;
    for (const std::string& name : used_) out += "\n" + torch_classes().at(name);
    return out;
  }

 private:
  // Checks that a layer's name can be an attribute of a module.
  static void check_name(const std::string& name) {
    constexpr std::string_view kTaken =
        " add_module append apply bfloat16 buffers children compile cpu cuda double dump_patches eval extend extra_repr "
        "float forward get_buffer get_parameter get_submodule half insert ipu load_state_dict modules mtia "
        "named_buffers named_children named_modules named_parameters nodes parameters parts pop register_buffer "
        "register_module register_parameter requires_grad_ set_submodule share_memory state_dict to to_empty train "
        "training type xpu zero_grad ";
    check<ExportError>(kTaken.find(" " + name + " ") == kTaken.npos && !name.starts_with('_'), "export", "a layer is called \"",
                       printable(name), "\", which modules of PyTorch use themselves",
                       Help{"rename it in the config, or export to onnx"});
  }

  // Adds a class or function of torch_classes() to the file.
  void add_class(const std::string& name) {
    for (const std::string& u : used_)
      if (u == name) return;
    used_.push_back(name);
  }

  static std::string value(const Json& v) {
    if (v.is_null()) return "None";
    if (v.is_boolean()) return v.get<bool>() ? "True" : "False";
    if (!v.is_array()) return v.dump();
    std::string out = "(";
    for (const Json& element : v) out += value(element) + ", ";
    return out.substr(0, out.size() - (v.size() > 1 ? 2 : 1)) + ")";
  }

  std::string layers(const Json& layer_or_list, int depth) {
    return layer_or_list.is_array() ? sequential("nn.Sequential", named_layers(layer_or_list), depth) : layer(layer_or_list, depth);
  }

  std::string sequential(const std::string& name, const NamedLayers& parts, int depth) {
    for (const auto& part : parts) check_name(part.first);
    const bool is_unnamed = are_numbered(parts);
    std::string out = name + (is_unnamed ? "(" : "(OrderedDict([");
    for (const auto& [key, part] : parts) {
      const std::string code = layer(part, depth + 1);
      out += "\n" + indented(depth + 1, 4) + (is_unnamed ? code : "(" + Json(key).dump() + ", " + code + ")") + ",";
    }
    out.pop_back();
    return out + (is_unnamed ? ")" : "]))");
  }

  std::string call(const std::string& type, const std::vector<Argument>& arguments) {
    static const std::map<std::string, std::string> wrapped{
        {"RNN", "Recurrent"}, {"LSTM", "Recurrent"}, {"GRU", "Recurrent"}, {"TransformerEncoderLayer", "TransformerEncoder"}};
    const auto found = wrapped.find(type);
    const std::string own = found == wrapped.end() ? type : found->second;
    const bool is_own = torch_classes().contains(own);
    check<ExportError>(!module_catalog().row({{"type", type}}).component.of_program, "export", "PyTorch has no layer \"", type,
                       "\", which is of this program",
                       Help{"export to onnx, or to safetensors and write the layer in Python"});
    if (own == "TransformerEncoder" || own == "MultiheadAttention") add_class("causal_mask");
    if (is_own) add_class(own);
    std::string out = (is_own ? "" : "nn.") + type + "(";
    for (const Argument& a : arguments) {
      const bool is_tanh = a.name == "activation" && a.value == "gelu_tanh";  // PyTorch has no name for it
      if (is_tanh) add_class("gelu_tanh");
      if (!a.is_default) out += a.name + "=" + (is_tanh ? "gelu_tanh" : value(a.value)) + ", ";
    }
    if (out.ends_with(", ")) out.resize(out.size() - 2);
    return out + ")";
  }

  std::string encoder(const Json& config) {
    const std::vector<Argument> of_layer = arguments_of_encoder_layer(config);
    std::string out = "TransformerEncoder(" + call("TransformerEncoderLayer", of_layer) + ", " + value(config["num_layers"]);
    if (config["norm"] == true)
      out += ", nn.LayerNorm(" + value(config["d_model"]) + ", eps=" + value(config["layer_norm_eps"]) +
             ", bias=" + value(config["bias"]) + ")";
    return out + ")";
  }

  std::string graph(const Json& config, int depth) {
    add_class("combine"), add_class("Graph");
    std::string out = "Graph([";
    for (size_t i = 0; i < config["nodes"].size(); ++i) {
      const Json& n = config["nodes"][i];
      if (!n["name"].is_null()) check_name(n["name"]);
      const Json inputs = n["inputs"].is_string() ? Json::array({n["inputs"]})
                          : n["inputs"].is_null() ? Json::array()
                                                  : n["inputs"];
      out += "\n" + indented(depth + 1, 4) + "(" + (n["name"].is_null() ? Json(std::to_string(i)) : n["name"]).dump() + ", " +
             inputs.dump() + ", " + value(n["combine"]) + ", " + value(n["dim"]) + ", " +
             (n["layer"].is_null() ? "None" : layers(n["layer"], depth + 1)) + ", " + value(n["layer_of"]) + "),";
    }
    out += "], [";
    for (const Json& p : config["inputs"])
      out += "(" + value(p["name"]) + ", " + value(p["start"]) + ", " + value(p["end"]) + ", " + value(p["dim"]) + "), ";
    return out + "])";
  }

  std::vector<std::string> used_;
};

template <class T>
std::string numbers(const std::vector<T>& v) {
  std::string out = "[";
  for (const T x : v) out += (out.size() > 1 ? ", " : "") + (x == x ? number_code(x) : "float(\"nan\")");
  return out + "]";
}

// Writes the functions prepare(x) and answer(model, x).
std::string torch_preparation(const Predictor& model, const Preparation& p) {
  std::string out = "\n\ndef prepare(x):\n";
  std::string body;
  const std::string tensor = "torch.tensor(";
  const auto tensor_in = [&](const std::vector<double>& v, bool is_wide) {
    return tensor + numbers(v) + (is_wide ? ", dtype=torch.float64)" : ")");
  };
  if (!p.wide.empty())
    body += "    if x.is_floating_point() and x.dtype != torch.float64:\n        raise TypeError(" +
            Json("inputs must be float64: float32 does not have the digits of " + p.wide).dump() +
            ")\n    x = x.double()\n";
  if (!p.units.fill.empty())
    body += "    x = torch.where(x.isnan(), " + tensor_in(p.units.fill, !p.wide.empty()) + ", x)  # missing values\n";
  if (!p.units.mean.empty())
    body += "    mean, std = (torch.tensor(v, dtype=torch.float64) for v in (" + numbers(p.units.mean) + ", " +
            numbers(p.units.std) + "))\n    x = ((x.double() - mean) / std).float()\n";
  for (const ChannelScaling* s : p.inside) {
    const std::string view = s->mean.size() == 1 ? "" : ".view(-1, *[1] * (x.dim() - 2))";
    body += "    x = (x - " + tensor + numbers(s->mean) + ")" + view + ") / " + tensor + numbers(s->std) + ")" + view + "\n";
  }
  const char* inputs = std::holds_alternative<ImageForm>(model.form().source)    ? "pixels in [0, 1]"
                       : model.form().input_dtype == DType::i64                  ? "tokens"
                       : std::holds_alternative<TableForm>(model.form().source)  ? "columns in the units of the table"
                       : std::holds_alternative<SeriesForm>(model.form().source) ? "values in the units of the series"
                                                                                 : "inputs as the training data had them";
  out += "    \"\"\"x: " + std::string(inputs) + ".";
  for (const Json& t : p.outside) out += "\n    Done before: " + printable(transform_text(t));
  for (const std::string& line : input_lines(model.form())) out += "\n    " + printable(line);
  out += "\"\"\"\n" + body + "    return x\n";
  const std::string last = last_step_code(model);
  const bool wide_answer = answer_dtype(model.form()) == DType::f64;
  out += std::string("\n\ndef answer(model, x):\n    y = model(prepare(x))") + (wide_answer ? ".double()" : "") +
         (last.empty() ? "" : "." + last + "()") + "\n    return ";
  const ColumnScale& scale = model.form().scale;
  if (!has_scale(model.form())) return out + "y\n";
  std::string std = Json(scale.std).dump(), mean = Json(scale.mean).dump();
  if (!scale.each.empty()) {
    const auto [means, stds] = numbers_of_scale(model.form());
    std = tensor_in(stds, wide_answer), mean = tensor_in(means, wide_answer);
  }
  return out + "y * " + std + " + " + mean + "  # in the file's units\n";
}

}  // namespace

Exported export_torch(const ExportSource& source, const ExportOptions& options) {
  const NoGrad off;
  const Predictor& model = source.model;
  TorchCode code;
  const std::string expression = code.layer(model.config().model, 1);
  const Preparation prepare(model);
  std::string text =
      origin_lines("#", source.stored.path.string(), model.step()) +
      "\"\"\"A trained model in PyTorch. `python model.py` compares it with its golden samples.\"\"\"\n"
      "import os\nfrom collections import OrderedDict\n\nimport torch\nfrom safetensors.torch import load_file\n"
      "from torch import nn\nfrom torch.nn import functional as F\n\nFOLDER = os.path.dirname(os.path.abspath(__file__))\n";
  constexpr int64_t kMostClasses = 10000;  // in the file
  std::vector<std::string> classes;
  for (int64_t i = 0; i < model.form().classes && i < kMostClasses; ++i) classes.push_back(model.form().class_name(i));
  if (!classes.empty() && !model.form().names.empty()) text += "CLASSES = " + Json(classes).dump() + "\n";
  const SavedState state = saved_state(*model.parts().model);
  text += "TIED = " + Json(state.shared).dump() + "\n";
  text += code.classes() + "\n\ndef make_model():\n    return " + expression + "\n" + torch_preparation(model, prepare) + R"(

def load(folder=FOLDER):
    model = make_model()
    state = load_file(os.path.join(folder, "model.safetensors"))
    for name, first in TIED.items():  # layers that share a tensor
        state[name] = state[first]
        (to, what), (of, which) = (n.rpartition(".")[::2] for n in (name, first))
        setattr(model.get_submodule(to), what, getattr(model.get_submodule(of), which))
    model.load_state_dict(state)
    return model.eval()


def check(model, folder=FOLDER):
    """The largest deviation from the golden samples, relative to 1 + |y|."""
    proof = load_file(os.path.join(folder, "proof.safetensors"))
    with torch.no_grad():
        y = answer(model, proof["input"]).double().flatten(1)
    wanted = proof["output"].flatten(1)
    y = y[:, ::-(-y.size(1) // wanted.size(1))]  # of a large output every k-th number was kept
    return ((y - wanted).abs() / (1 + wanted.abs())).max().item()


if __name__ == "__main__":
    off = check(load())
    print(f"golden samples: within {off:.2g} of 1 + |y|")
    raise SystemExit(0 if off <= 1e-4 else "the answers differ from those of the model that was exported")
)";
  Exported out = write_code(source, options, prepare, {{"model.py", text}});
  out.use = "python " + shell_word((options.out / "model.py").string());
  return out;
}

}  // namespace halfstep::app
