// SPDX-License-Identifier: Apache-2.0
// A trained model as a Python file that makes it of PyTorch's layers.
#include <map>
#include <set>

#include "apps/export/exporter.h"
#include "apps/export/layer_code.h"
#include "apps/export/preparation.h"
#include "framework/autograd/grad_mode.h"
#include "framework/io/atomic_file.h"
#include "framework/io/safetensors.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

// What PyTorch has no layer for, or one that gives several tensors.
const std::map<std::string, std::string>& own_classes() {
  static const auto& all = *new std::map<std::string, std::string>{{"combine", R"(
def combine(how, xs, dim=1):
    if how in ("dot", "cosine"):
        a, b = xs
        return (a * b).sum(dim, keepdim=True) if how == "dot" else F.cosine_similarity(a, b, dim).unsqueeze(dim)
    if how in ("concat", "stack"):
        return torch.cat(xs, dim) if how == "concat" else torch.stack(xs, dim)
    y = xs[0]
    for x in xs[1:]:
        y = y * x if how == "mul" else torch.maximum(y, x) if how == "max" else y + x
    return y / len(xs) if how == "mean" else y
)"},
                                                                   {"causal_mask", R"(
def causal_mask(x, batch_first):
    length = x.size(1 if batch_first else 0)
    return nn.Transformer.generate_square_subsequent_mask(length, device=x.device, dtype=x.dtype)
)"},
                                                                   {"MLP", R"(
class MLP(nn.Sequential):
    def forward(self, x):
        return super().forward(x.flatten(1) if x.dim() > 2 else x)
)"},
                                                                   {"Residual", R"(
class Residual(nn.Module):
    def __init__(self, body, shortcut=None):
        super().__init__()
        self.body = body
        if shortcut is not None:
            self.shortcut = shortcut

    def forward(self, x):
        return self.body(x) + (self.shortcut(x) if hasattr(self, "shortcut") else x)
)"},
                                                                   {"Parallel", R"(
class Parallel(nn.Module):
    def __init__(self, branches, combine, dim=1):
        super().__init__()
        for i, branch in enumerate(branches):
            self.add_module(str(i), branch)
        self.how, self.dim = combine, dim

    def forward(self, x):
        return combine(self.how, [branch(x) for branch in self.children()], self.dim)
)"},
                                                                   {"Graph", R"(
class Graph(nn.Module):
    """nodes: (name, inputs, combine, dim, layer, layer_of); inputs: (name, start, end, dim) of the batch."""
    def __init__(self, nodes, inputs):
        super().__init__()
        self.nodes, self.parts = [node[:4] + node[5:] for node in nodes], inputs
        for name, _, _, _, layer, _ in nodes:
            if layer is not None:
                self.add_module(name, layer)

    def forward(self, x):
        values, last = {}, "input"
        for name, start, end, dim in self.parts:
            index = [slice(None)] * x.dim()
            index[dim] = slice(start, end)
            values[name], last = x[tuple(index)], name
        if not self.parts:
            values["input"] = x
        for name, inputs, how, dim, layer_of in self.nodes:
            xs = [values[i] for i in inputs or [last]]
            y = combine(how, xs, dim) if how else xs[0]
            layer = getattr(self, layer_of or name, None)
            values[name] = layer(y) if isinstance(layer, nn.Module) else y
            last = name
        return values[last]
)"},
                                                                   {"Permute", R"(
class Permute(nn.Module):
    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(self.dims)
)"},
                                                                   {"Recurrent", R"(
class Recurrent:
    """The outputs of all steps, or (output="last") the state after the last one."""
    def __init__(self, *args, output="sequence", **kwargs):
        super().__init__(*args, **kwargs)
        self.output = output

    def forward(self, x):
        y, state = super().forward(x)
        if self.output == "sequence":
            return y
        h = state[0] if isinstance(state, tuple) else state
        return torch.cat([h[-2], h[-1]], -1) if self.bidirectional else h[-1]


class RNN(Recurrent, nn.RNN): pass
class LSTM(Recurrent, nn.LSTM): pass
class GRU(Recurrent, nn.GRU): pass
)"},
                                                                   {"LSTMCell", R"(
class LSTMCell(nn.LSTMCell):
    def forward(self, x):
        return super().forward(x)[0]
)"},
                                                                   {"MultiheadAttention", R"(
class MultiheadAttention(nn.MultiheadAttention):
    def __init__(self, *args, is_causal=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_causal = is_causal

    def forward(self, x):
        mask = causal_mask(x, self.batch_first) if self.is_causal else None
        return super().forward(x, x, x, attn_mask=mask, need_weights=False)[0]
)"},
                                                                   {"TransformerEncoder", R"(
class TransformerEncoderLayer(nn.TransformerEncoderLayer):
    def __init__(self, *args, is_causal=False, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_causal, self.batch_first = is_causal, kwargs.get("batch_first", False)

    def forward(self, x, src_mask=None, **kwargs):
        return super().forward(x, causal_mask(x, self.batch_first) if self.is_causal else src_mask)


class TransformerEncoder(nn.TransformerEncoder):
    def __init__(self, layer, num_layers, norm=None):
        super().__init__(layer, num_layers, norm, enable_nested_tensor=False)
)"},
                                                                   {"PositionalEncoding", R"(
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=5000, batch_first=False):
        super().__init__()
        self.dropout, self.batch_first = nn.Dropout(dropout), batch_first
        self.register_buffer("pe", torch.zeros(max_len, 1, d_model))

    def forward(self, x):
        length = x.size(-2) if self.batch_first else x.size(0)
        rows = self.pe[:length, 0] if self.batch_first else self.pe[:length]
        return self.dropout(x + rows)
)"},
                                                                   {"PositionEmbedding", R"(
class PositionEmbedding(nn.Module):
    def __init__(self, max_len, d_model, batch_first=False):
        super().__init__()
        self.weight, self.batch_first = nn.Parameter(torch.empty(max_len, d_model)), batch_first

    def forward(self, x):
        length = x.size(-2) if self.batch_first else x.size(0)
        return x + (self.weight[:length] if self.batch_first else self.weight[:length].unsqueeze(1))
)"},
                                                                   {"RotaryEmbedding", R"(
class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000.0, interleaved=False):
        super().__init__()
        self.dim, self.base, self.interleaved = dim, base, interleaved

    def forward(self, x):
        speeds = self.base ** (-torch.arange(0, self.dim, 2, dtype=torch.float64, device=x.device) / self.dim)
        angles = torch.arange(x.size(-2), dtype=torch.float64, device=x.device).unsqueeze(-1) * speeds
        c, s = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        turning, rest = x[..., :self.dim], x[..., self.dim:]
        a, b = (turning[..., 0::2], turning[..., 1::2]) if self.interleaved else turning.chunk(2, -1)
        a, b = a * c - b * s, b * c + a * s
        turned = torch.stack([a, b], -1).flatten(-2) if self.interleaved else torch.cat([a, b], -1)
        return torch.cat([turned, rest], -1)
)"}};
  return all;
}

class TorchCode {
 public:
  // An expression that makes the layer.
  std::string layer(const Json& self, int depth) {
    const std::string type = self["type"];
    if (type == "Sequential") return sequential("nn.Sequential", named_layers(self["layers"]), depth);
    if (type == "MLP") return uses("MLP"), sequential("MLP", layers_of_mlp(self), depth);
    if (type == "Repeat") {
      NamedLayers copies;
      for (int64_t i = 0; i < self["times"].get<int64_t>(); ++i)
        copies.emplace_back(std::to_string(i),
                            self["layers"].is_array() ? Json{{"type", "Sequential"}, {"layers", self["layers"]}} : self["layers"]);
      return sequential("nn.Sequential", copies, depth);
    }
    if (type == "Residual") {
      uses("Residual");
      const std::string shortcut =
          self["shortcut"].is_null() ? "" : ",\n" + indented(depth + 1, 4) + layers(self["shortcut"], depth + 1);
      return "Residual(\n" + indented(depth + 1, 4) + layers(self["body"], depth + 1) + shortcut + ")";
    }
    if (type == "Parallel") {
      uses("combine"), uses("Parallel");
      std::string out = "Parallel([";
      for (const Json& branch : self["branches"]) out += "\n" + indented(depth + 1, 4) + layers(branch, depth + 1) + ",";
      return out + "], " + value(self["combine"]) + ", dim=" + value(self["dim"]) + ")";
    }
    if (type == "Graph") return graph(self, depth);
    if (type == "TransformerEncoder") return encoder(self);
    return call(type, arguments_of(self));
  }

  std::string classes() const {
    std::string out;
    for (const std::string& name : used_) out += "\n" + own_classes().at(name);
    return out;
  }

 private:
  void uses(const std::string& name) {
    for (const std::string& u : used_)
      if (u == name) return;
    used_.push_back(name);
  }

  static std::string value(const Json& v) {
    if (v.is_null()) return "None";
    if (v.is_boolean()) return v.get<bool>() ? "True" : "False";
    if (!v.is_array()) return v.dump();
    std::string out = "(";
    for (const Json& each : v) out += value(each) + ", ";
    return out.substr(0, out.size() - (v.size() > 1 ? 2 : 1)) + ")";
  }

  std::string layers(const Json& given, int depth) {
    return given.is_array() ? sequential("nn.Sequential", named_layers(given), depth) : layer(given, depth);
  }

  std::string sequential(const std::string& name, const NamedLayers& parts, int depth) {
    const bool plain = are_numbered(parts);
    std::string out = name + (plain ? "(" : "(OrderedDict([");
    for (const auto& [key, part] : parts) {
      const std::string made = layer(part, depth + 1);
      out += "\n" + indented(depth + 1, 4) + (plain ? made : "(" + Json(key).dump() + ", " + made + ")") + ",";
    }
    out.pop_back();
    return out + (plain ? ")" : "]))");
  }

  std::string call(const std::string& type, const std::vector<Argument>& arguments) {
    static const std::map<std::string, std::string> wrapped{
        {"RNN", "Recurrent"}, {"LSTM", "Recurrent"}, {"GRU", "Recurrent"}, {"TransformerEncoderLayer", "TransformerEncoder"}};
    const auto known = wrapped.find(type);
    const std::string own = known == wrapped.end() ? type : known->second;
    const bool is_own = own_classes().contains(own);
    if (own == "TransformerEncoder" || own == "MultiheadAttention") uses("causal_mask");
    if (is_own) uses(own);
    std::string out = (is_own ? "" : "nn.") + type + "(";
    for (const Argument& a : arguments)
      if (!a.is_default) out += a.name + "=" + value(a.value) + ", ";
    if (out.ends_with(", ")) out.resize(out.size() - 2);
    return out + ")";
  }

  std::string encoder(const Json& self) {
    std::vector<Argument> of_layer;
    for (Argument& a : arguments_of(self))
      if (a.name != "num_layers" && a.name != "norm") of_layer.push_back(a);
    std::string out = "TransformerEncoder(" + call("TransformerEncoderLayer", of_layer) + ", " + value(self["num_layers"]);
    if (self["norm"] == true)
      out += ", nn.LayerNorm(" + value(self["d_model"]) + ", eps=" + value(self["layer_norm_eps"]) +
             ", bias=" + value(self["bias"]) + ")";
    return out + ")";
  }

  std::string graph(const Json& self, int depth) {
    uses("combine"), uses("Graph");
    std::string out = "Graph([";
    for (size_t i = 0; i < self["nodes"].size(); ++i) {
      const Json& n = self["nodes"][i];
      const Json inputs = n["inputs"].is_string() ? Json::array({n["inputs"]})
                          : n["inputs"].is_null() ? Json::array()
                                                  : n["inputs"];
      out += "\n" + indented(depth + 1, 4) + "(" + (n["name"].is_null() ? Json(std::to_string(i)) : n["name"]).dump() + ", " +
             inputs.dump() + ", " + value(n["combine"]) + ", " + value(n["dim"]) + ", " +
             (n["layer"].is_null() ? "None" : layers(n["layer"], depth + 1)) + ", " + value(n["layer_of"]) + "),";
    }
    out += "], [";
    for (const Json& p : self["inputs"])
      out += "(" + value(p["name"]) + ", " + value(p["start"]) + ", " + value(p["end"]) + ", " + value(p["dim"]) + "), ";
    return out + "])";
  }

  std::vector<std::string> used_;
};

template <class T>
std::string numbers(const std::vector<T>& v) {
  std::string out = "[";
  for (const T x : v) out += (out.size() > 1 ? ", " : "") + number_code(x);
  return out + "]";
}

// prepare(x) and finish(y).
std::string torch_preparation(const Predictor& model, const Preparation& p) {
  std::string out = "\n\ndef prepare(x):\n";
  std::string body;
  const std::string tensor = "torch.tensor(";
  if (!p.units.fill.empty())
    body += "    x = torch.where(x.isnan(), " + tensor + numbers(p.units.fill) + "), x)  # missing values\n";
  if (!p.units.mean.empty())
    body += "    x = (x - " + tensor + numbers(p.units.mean) + ")) / " + tensor + numbers(p.units.std) + ")\n";
  for (const ChannelScaling* s : p.inside) {
    const std::string view = s->mean.size() == 1 ? "" : ".view(-1, *[1] * (x.dim() - 2))";
    body += "    x = (x - " + tensor + numbers(s->mean) + ")" + view + ") / " + tensor + numbers(s->std) + ")" + view + "\n";
  }
  const char* what = std::holds_alternative<ImageForm>(model.form().source)    ? "pixels in [0, 1]"
                     : std::holds_alternative<TableForm>(model.form().source)  ? "columns in the units of the table"
                     : std::holds_alternative<SeriesForm>(model.form().source) ? "values in the units of the series"
                     : std::holds_alternative<TextForm>(model.form().source)   ? "tokens"
                                                                               : "inputs as the training data had them";
  out += "    \"\"\"x: " + std::string(what) + ".";
  for (const Json& t : p.outside) out += " Not done here: " + t.value("type", "a transform") + ".";
  out += "\"\"\"\n" + body + "    return x\n";
  out += "\n\ndef answer(model, x):\n    y = model(prepare(x))\n    return ";
  const TargetScale& scale = model.form().scale;
  return out +
         (has_scale(model.form()) ? "y * " + Json(scale.std).dump() + " + " + Json(scale.mean).dump() + "  # in the file's units"
                                  : std::string("y")) +
         "\n";
}

}  // namespace

Exported export_torch(const ExportSource& source, const ExportOptions& o) {
  const NoGrad off;
  const Predictor& model = source.model;
  TorchCode code;
  const std::string made = code.layer(model.config().model, 1);
  const Preparation prepare(model);
  std::string text =
      origin_lines("#", source.path.string(), model.step()) +
      "\"\"\"A trained model in PyTorch. `python model.py` compares it with its golden samples.\"\"\"\n"
      "import os\nfrom collections import OrderedDict\n\nimport torch\nfrom safetensors.torch import load_file\n"
      "from torch import nn\nfrom torch.nn import functional as F\n\nFOLDER = os.path.dirname(os.path.abspath(__file__))\n";
  std::vector<std::string> classes;
  for (int64_t i = 0; i < model.form().classes && i < 10000; ++i) classes.push_back(model.form().class_name(i));
  if (!classes.empty()) text += "CLASSES = " + Json(classes).dump() + "\n";
  text += code.classes() + "\n\ndef make_model():\n    return " + made + "\n" + torch_preparation(model, prepare) + R"(

def load(folder=FOLDER):
    model = make_model()
    model.load_state_dict(load_file(os.path.join(folder, "model.safetensors")))
    return model.eval()


def check(model, folder=FOLDER):
    """The largest deviation from the golden samples, relative to 1 + |y|."""
    proof = load_file(os.path.join(folder, "proof.safetensors"))
    with torch.no_grad():
        y = answer(model, proof["input"]).float().flatten(1)
    wanted = proof["output"].flatten(1)
    y = y[:, ::-(-y.size(1) // wanted.size(1))]  # of a large output every k-th number was kept
    return ((y - wanted).abs() / (1 + wanted.abs())).max().item()


if __name__ == "__main__":
    off = check(load())
    print(f"golden samples: within {off:.2g} of 1 + |y|")
    raise SystemExit(0 if off <= 1e-4 else "the answers differ from those of the model that was exported")
)";
  const Proof proof =
      make_proof(model, golden_inputs(model, prepare), [&](const Tensor& x) { return prepared_output(model, prepare, x); });
  fs::create_directories(o.out);
  const SavedState state = saved_state(*model.parts().model);
  save_safetensors(o.out / "model.safetensors", state.tensors, metadata_of(source.as_file(), make_proof(model)));
  save_safetensors(o.out / "proof.safetensors", {{"input", proof.input}, {"output", proof.output}});
  atomic_write(o.out / "model.py", text);
  Exported out{.path = o.out, .use = "python " + (o.out / "model.py").string()};
  for (const auto& file : fs::directory_iterator(o.out)) out.bytes += int64_t(file.file_size());
  for (const Json& t : prepare.outside) out.notes += "note: " + t.value("type", "a transform") + " is not in the code\n";
  return out;
}

}  // namespace halfstep::app
