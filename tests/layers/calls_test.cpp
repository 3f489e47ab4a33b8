// SPDX-License-Identifier: Apache-2.0
// Modules that take more than one tensor, or give more: values, gradients, state and text against PyTorch
// (scripts/make_call_goldens.py), differences, regions, meta and copies.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "amp/autocast/autocast.h"
#include "framework/autograd/gradcheck.h"
#include "framework/io/files/json.h"
#include "framework/io/weights/safetensors.h"
#include "layers/layers.h"
#include "tests/support/source_dir.h"

using namespace halfstep;

namespace {

using Json = nlohmann::json;

struct Inputs {
  std::map<std::string, Tensor> tensors;
  Json flags;  // arguments that are no tensors
  Tensor operator[](const std::string& name) const {
    const auto found = tensors.find(name);
    return found == tensors.end() ? Tensor() : found->second;
  }
  bool flag(const char* name, bool fallback) const { return flags.value(name, fallback); }
};

struct Subject {
  std::shared_ptr<Module> module;
  std::function<Tensors(const Inputs&)> call;
};

std::optional<int64_t> size_of(const Json& args, const char* key) {
  return args.contains(key) ? std::optional<int64_t>(args[key].get<int64_t>()) : std::nullopt;
}

Subject attention(const Json& a) {
  const auto m = make<MultiheadAttention>(a["embed_dim"].get<int64_t>(), a["num_heads"].get<int64_t>(),
                                          MultiheadAttentionOptions{.bias = a.value("bias", true),
                                                                    .add_bias_kv = a.value("add_bias_kv", false),
                                                                    .add_zero_attn = a.value("add_zero_attn", false),
                                                                    .kdim = size_of(a, "kdim"),
                                                                    .vdim = size_of(a, "vdim"),
                                                                    .batch_first = a.value("batch_first", false)});
  return {m, [m](const Inputs& in) {
            const Tensor query = in["query"], key = in["key"].defined() ? in["key"] : query,
                         value = in["value"].defined() ? in["value"] : key;
            const auto [y, weights] = (*m)(query, key, value,
                                           {.key_padding_mask = in["key_padding_mask"],
                                            .attn_mask = in["attn_mask"],
                                            .need_weights = in.flag("need_weights", true),
                                            .average_attn_weights = in.flag("average_attn_weights", true),
                                            .is_causal = in.flag("is_causal", false)});
            return weights.defined() ? Tensors{y, weights} : Tensors{y};
          }};
}

TransformerLayerOptions layer_options(const Json& a) {
  return {.dim_feedforward = a["dim_feedforward"],
          .dropout = a["dropout"],
          .activation = a.value("activation", "relu"),
          .layer_norm_eps = a.value("layer_norm_eps", 1e-5),
          .batch_first = a.value("batch_first", false),
          .norm_first = a.value("norm_first", false),
          .bias = a.value("bias", true)};
}

template <class Layer>
std::shared_ptr<Layer> block(const Json& a) {
  return make<Layer>(a["d_model"].get<int64_t>(), a["nhead"].get<int64_t>(), layer_options(a));
}

template <class Stack, class Layer>
std::shared_ptr<Stack> stack_of(const Json& a) {
  const auto norm = a.value("norm", false) ? make<LayerNorm>(Sizes(a["d_model"].get<int64_t>())) : nullptr;
  return std::make_shared<Stack>(block<Layer>(a), a["num_layers"].get<int64_t>(), norm);
}

template <class M>
Subject encoding(const std::shared_ptr<M>& m) {
  return {m, [m](const Inputs& in) {
            return Tensors{(*m)(in["src"], {in["src_mask"], in["src_key_padding_mask"], in.flag("is_causal", false)})};
          }};
}

template <class M>
Subject decoding(const std::shared_ptr<M>& m) {
  return {m, [m](const Inputs& in) {
            return Tensors{(*m)(in["tgt"], in["memory"],
                                {.tgt_mask = in["tgt_mask"],
                                 .memory_mask = in["memory_mask"],
                                 .tgt_key_padding_mask = in["tgt_key_padding_mask"],
                                 .memory_key_padding_mask = in["memory_key_padding_mask"]})};
          }};
}

Subject transformer(const Json& a) {
  const TransformerLayerOptions o = layer_options(a);
  const auto m = make<Transformer>(TransformerOptions{.d_model = a["d_model"],
                                                      .nhead = a["nhead"],
                                                      .num_encoder_layers = a["num_encoder_layers"],
                                                      .num_decoder_layers = a["num_decoder_layers"],
                                                      .dim_feedforward = o.dim_feedforward,
                                                      .dropout = o.dropout,
                                                      .activation = o.activation,
                                                      .layer_norm_eps = o.layer_norm_eps,
                                                      .batch_first = o.batch_first,
                                                      .norm_first = o.norm_first,
                                                      .bias = o.bias});
  return {m, [m](const Inputs& in) {
            return Tensors{(*m)(in["src"], in["tgt"],
                                {.src_mask = in["src_mask"],
                                 .tgt_mask = in["tgt_mask"],
                                 .memory_mask = in["memory_mask"],
                                 .src_key_padding_mask = in["src_key_padding_mask"],
                                 .tgt_key_padding_mask = in["tgt_key_padding_mask"],
                                 .memory_key_padding_mask = in["memory_key_padding_mask"],
                                 .tgt_is_causal = in.flag("tgt_is_causal", false)})};
          }};
}

Subject bag(const Json& a) {
  const auto m = make<EmbeddingBag>(a["num_embeddings"].get<int64_t>(), a["embedding_dim"].get<int64_t>(),
                                    EmbeddingBagLayerOptions{.mode = a.value("mode", "mean"),
                                                             .include_last_offset = a.value("include_last_offset", false),
                                                             .padding_idx = size_of(a, "padding_idx")});
  return {m, [m](const Inputs& in) { return Tensors{(*m)(in["index"], in["offsets"], in["per_sample_weights"])}; }};
}

Sizes sizes_of(const Json& a, const char* key, const Sizes& otherwise) {
  if (!a.contains(key)) return otherwise;
  if (a[key].is_number()) return a[key].get<int64_t>();
  Dims each;
  for (const Json& v : a[key]) each.push_back(v.get<int64_t>());
  return each;
}

// What the pooling of the same window took, back where it was.
template <class Pool, class Unpool>
Subject unpooling(const Json& a) {
  const Sizes kernel = sizes_of(a, "kernel_size", {}), stride = sizes_of(a, "stride", {}), padding = sizes_of(a, "padding", 0);
  const auto pool = make<Pool>(kernel, MaxPoolLayerOptions{.stride = stride, .padding = padding});
  const auto m = make<Unpool>(kernel, MaxUnpoolLayerOptions{.stride = stride, .padding = padding});
  return {m, [pool, m](const Inputs& in) {
            const auto [y, indices] = pool->forward_with_indices(in["x"]);
            return Tensors{(*m)(y, indices, sizes_of(in.flags, "output_size", {}).values())};
          }};
}

template <class Conv>
Subject transposed(const Json& a) {
  const auto m = make<Conv>(
      a["in_channels"].get<int64_t>(), a["out_channels"].get<int64_t>(), sizes_of(a, "kernel_size", {}),
      ConvTransposeLayerOptions{
          .stride = sizes_of(a, "stride", 1), .padding = sizes_of(a, "padding", 0), .dilation = sizes_of(a, "dilation", 1)});
  return {m, [m](const Inputs& in) { return Tensors{(*m)(in["x"], sizes_of(in.flags, "output_size", {}).values())}; }};
}

Subject rare_classes(const Json& a) {
  const auto m = make<AdaptiveLogSoftmaxWithLoss>(
      a["in_features"].get<int64_t>(), a["n_classes"].get<int64_t>(), a["cutoffs"].get<std::vector<int64_t>>(),
      AdaptiveLogSoftmaxOptions{.div_value = a["div_value"], .head_bias = a.value("head_bias", false)});
  return {m, [m](const Inputs& in) {
            if (in.flag("log_prob", false)) return Tensors{m->log_prob(in["input"]), m->predict(in["input"])};
            const auto [output, loss] = (*m)(in["input"], in["target"]);
            return Tensors{output, loss};
          }};
}

Subject made(const std::string& type, const Json& a) {
  if (type == "EmbeddingBag") return bag(a);
  if (type == "MaxUnpool1d") return unpooling<MaxPool1d, MaxUnpool1d>(a);
  if (type == "MaxUnpool2d") return unpooling<MaxPool2d, MaxUnpool2d>(a);
  if (type == "MaxUnpool3d") return unpooling<MaxPool3d, MaxUnpool3d>(a);
  if (type == "ConvTranspose1d") return transposed<ConvTranspose1d>(a);
  if (type == "ConvTranspose2d") return transposed<ConvTranspose2d>(a);
  if (type == "ConvTranspose3d") return transposed<ConvTranspose3d>(a);
  if (type == "AdaptiveLogSoftmaxWithLoss") return rare_classes(a);
  if (type == "Bilinear") {
    const auto m = make<Bilinear>(a["in1_features"].get<int64_t>(), a["in2_features"].get<int64_t>(),
                                  a["out_features"].get<int64_t>(), BilinearOptions{a.value("bias", true)});
    return {m, [m](const Inputs& in) { return Tensors{(*m)(in["input1"], in["input2"])}; }};
  }
  if (type == "MultiheadAttention") return attention(a);
  if (type == "TransformerEncoderLayer") return encoding(block<TransformerEncoderLayer>(a));
  if (type == "TransformerEncoder") return encoding(stack_of<TransformerEncoder, TransformerEncoderLayer>(a));
  if (type == "TransformerDecoderLayer") return decoding(block<TransformerDecoderLayer>(a));
  if (type == "TransformerDecoder") return decoding(stack_of<TransformerDecoder, TransformerDecoderLayer>(a));
  if (type == "Transformer") return transformer(a);
  FAIL("the goldens have a type without a call here: " << type);
  return {};
}

struct Golden {
  std::string key;
  Json about;
  std::map<std::string, Tensor> tensors;  // "p.in_proj_weight", "i.query", "o.0"...

  // Those that begin with `prefix`, without it; floating ones in `dtype`.
  std::map<std::string, Tensor> all(const std::string& prefix, DType dtype) const {
    std::map<std::string, Tensor> out;
    for (const auto& [name, t] : tensors) {
      if (name.starts_with(prefix)) out[name.substr(prefix.size())] = t.is_floating_point() ? t.to(dtype) : t;
    }
    return out;
  }
  Subject subject(DType dtype) const {
    const Subject out = made(about["type"], about["args"]);
    out.module->to(dtype);
    StateDict state;
    for (const auto& [name, t] : all("p.", dtype)) state.push_back({name, t});
    out.module->load_state_dict(state);
    return out;
  }
  Inputs inputs(DType dtype) const {
    Inputs in{all("i.", dtype), about["call"]};
    for (auto& [name, t] : in.tensors) {
      if (t.is_floating_point()) t = t.clone().set_requires_grad();
    }
    return in;
  }
};

// Does the course of the call depend on values, so that meta refuses it?
bool needs_values(const Golden& g) {
  const std::string type = g.about["type"];
  return (type == "AdaptiveLogSoftmaxWithLoss" && !g.about["call"].contains("log_prob")) ||
         (type == "EmbeddingBag" && g.about["args"].value("mode", "mean") == "max");
}

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = [] {
    const TensorFile file = load_safetensors(halfstep_source_dir() + "/tests/layers/call_goldens.safetensors");
    std::vector<Golden> out;
    for (const auto& [key, text] : file.metadata) {
      if (key == "torch") continue;
      Golden g{key, Json::parse(text), {}};
      for (const auto& [name, t] : file.tensors) {
        if (name.starts_with(key + "/")) g.tensors[name.substr(key.size() + 1)] = t;
      }
      out.push_back(std::move(g));
    }
    return out;
  }();
  return all;
}

Tensor waves(const Tensor& y) {
  std::vector<double> values;
  for (int64_t i = 0; i < y.numel(); ++i) values.push_back(std::cos(double(i)));
  return tensor(values, y.shape(), {.dtype = y.dtype()});
}

void compare(const std::string& what, const Tensor& got, const Tensor& want, double tolerance) {
  CAPTURE(what);
  REQUIRE(got.defined());
  REQUIRE(got.shape() == want.shape());
  const std::vector<double> a = got.detach().to(DType::f64).to_vector<double>(), b = want.to(DType::f64).to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double off = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]) / (1 + std::abs(b[i]));
    worst = std::isnan(off) ? off : std::max(worst, off);
  }
  CHECK_MESSAGE(worst <= tolerance, "differs by " << worst);
}

}  // namespace

TEST_CASE("modules of several tensors print, hold and compute what PyTorch's do, in float64 and float32") {
  CHECK(goldens().size() > 50);
  for (const Golden& g : goldens()) {
    CAPTURE(g.about.dump());
    for (DType dtype : {DType::f64, DType::f32}) {
      const double tolerance = dtype == DType::f64 ? 1e-10 : 1e-4;
      const Subject s = g.subject(dtype);
      CHECK((s.module->children().empty() ? s.module->describe() : s.module->str()) == g.about["repr"].get<std::string>());
      Json state = Json::array();
      for (const NamedTensor& n : s.module->state_dict())
        state.push_back({n.name, std::vector<int64_t>(n.tensor.shape().begin(), n.tensor.shape().end())});
      CHECK(state == g.about["state"]);

      const Inputs in = g.inputs(dtype);
      const Tensors out = s.call(in);
      Tensor loss = zeros({}, {.dtype = dtype});
      const std::map<std::string, Tensor> want = g.all("o.", DType::f64);
      REQUIRE(out.size() == want.size());
      for (size_t i = 0; i < out.size(); ++i) {
        compare("result " + std::to_string(i), out[i], want.at(std::to_string(i)), tolerance);
        if (out[i].is_floating_point()) loss = loss + (out[i] * waves(out[i])).sum();
      }
      loss.backward();
      const std::map<std::string, Tensor> parameters = g.all("g.", DType::f64), inputs = g.all("gi.", DType::f64);
      for (const NamedTensor& p : s.module->named_parameters()) {
        CAPTURE(p.name);
        CHECK(p.tensor.grad().defined() == parameters.contains(p.name));
        if (parameters.contains(p.name)) compare(p.name + "'s gradient", p.tensor.grad(), parameters.at(p.name), tolerance);
      }
      for (const auto& [name, t] : inputs) compare(name + "'s gradient", in[name].grad(), t, tolerance);
    }
  }
}

TEST_CASE("gradients of modules of several tensors are those of differences, the second ones too" * doctest::test_suite("values")) {
  for (const Golden& g : goldens()) {
    CAPTURE(g.about.dump());
    const Subject s = g.subject(DType::f64);
    const Inputs given = g.inputs(DType::f64);
    std::vector<std::string> names;
    Tensors leaves;
    for (const auto& [name, t] : given.tensors) {
      if (t.is_floating_point()) names.push_back(name), leaves.push_back(t);
    }
    if (leaves.empty()) continue;
    const auto f = [&](const Tensors& in) {
      Inputs call = given;
      for (size_t i = 0; i < in.size(); ++i) call.tensors[names[i]] = in[i];
      Tensors out;
      for (const Tensor& y : s.call(call)) {
        if (y.is_floating_point()) out.push_back(y);
      }
      return out;
    };
    CHECK_NOTHROW(gradcheck(f, leaves));
    CHECK_NOTHROW(gradgradcheck(f, leaves));
  }
}

TEST_CASE("modules of several tensors in a region keep weights and gradients in float32; on meta they give shapes and dtypes") {
  for (const Golden& g : goldens()) {
    CAPTURE(g.about.dump());
    const Subject s = g.subject(DType::f32);
    for (DType given : {DType::f32, DType::bf16}) {
      Inputs in = g.inputs(given);
      for (auto& [name, t] : in.tensors) {
        if ((name.ends_with("mask") || name.ends_with("weights")) && t.is_floating_point())
          t = t.detach().to(DType::f32).set_requires_grad();
      }
      const Autocast region(Device::cpu, DType::bf16);
      const Tensors out = s.call(in);
      Tensor loss = zeros({});
      for (const Tensor& y : out) {
        if (y.is_floating_point()) loss = loss + y.sum();
      }
      s.module->zero_grad();
      loss.backward();
      for (const auto& golden : g.all("g.", DType::f64)) {
        CAPTURE(golden.first);
        for (const NamedTensor& p : s.module->named_parameters()) {
          if (p.name == golden.first) CHECK(p.tensor.grad().dtype() == DType::f32);
        }
      }
      for (const auto& golden : g.all("o.", DType::f64)) {
        CAPTURE(golden.first);
        compare("result", out[size_t(std::stoi(golden.first))], golden.second, 0.15);
      }
      if (g.about["type"] == "MultiheadAttention") {
        CHECK(out[0].dtype() == DType::bf16);
        if (out.size() > 1) CHECK(out[1].dtype() == DType::f32);
      }

      Subject there;
      {
        const DefaultDevice on(Device::meta);
        there = made(g.about["type"], g.about["args"]);
      }
      for (auto& [name, t] : in.tensors) t = t.detach().to(Device::meta);
      const Autocast region_there(Device::meta, DType::bf16);
      if (needs_values(g)) {
        CHECK_THROWS_AS(there.call(in), MetaError);
        continue;
      }
      const Tensors shapes = there.call(in);
      REQUIRE(shapes.size() == out.size());
      for (size_t i = 0; i < out.size(); ++i) {
        CHECK(shapes[i].device() == Device::meta);
        CHECK(shapes[i].shape() == out[i].shape());
        CHECK(shapes[i].dtype() == out[i].dtype());
      }
    }
  }
}

TEST_CASE("copies of modules of several tensors compute the same with memory of their own") {
  for (const Golden& g : goldens()) {
    CAPTURE(g.about.dump());
    const Subject s = g.subject(DType::f32);
    const std::shared_ptr<Module> copy = s.module->clone();
    const StateDict mine = s.module->state_dict(), theirs = copy->state_dict();
    REQUIRE(mine.size() == theirs.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      CHECK(mine[i].name == theirs[i].name);
      CHECK(mine[i].tensor.to_vector<float>() == theirs[i].tensor.to_vector<float>());
      CHECK_FALSE(mine[i].tensor.shares_memory_with(theirs[i].tensor));
    }
  }
}
