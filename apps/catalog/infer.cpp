// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/infer.h"

#include <algorithm>
#include <array>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

constexpr int64_t kSamples = 7;  // in the meta batch: a number that is seldom a width
// Most layers and parameter tensors of a model: nested copies multiply, and a check must end within seconds.
constexpr int64_t kMaxBuilt = 100'000;

}  // namespace

std::string one_line(const Error& e) {
  std::string text = e.what();
  if (const size_t layer = text.find("\nlayer: "); layer != std::string::npos) text.resize(layer);
  for (size_t at; (at = text.find("\nhelp: ")) != std::string::npos;) text.replace(at, 7, "; ");
  return text;
}

Tensor Inference::reject(const std::string& key, const std::string& message) {
  run_.issues.error(key.empty() ? path_ : join_path(path_, key), message);
  return {};
}

void Inference::warn(const std::string& key, const std::string& message) { run_.issues.warn(join_path(path_, key), message); }

bool Inference::fill_widths(Json& self, const Component& component, const Tensor& x) {
  for (const Field& f : component.fields) {
    if (f.from_target && self[f.key] == "auto") {
      const DataFacts& facts = run_.facts;
      if (facts.classes == 0 && facts.target.size() != 1) {
        reject(f.key, "\"auto\" needs data with classes or with a target of one dimension, got target " + joined(facts.target));
        return false;
      }
      self[f.key] = facts.classes > 0 ? facts.classes : facts.target[0];
    }
    if (f.from_tokens && self[f.key] == "auto") {
      if (run_.facts.vocabulary == 0) {
        reject(f.key, "\"auto\" needs data of tokens, such as Text; the inputs of data.train are " +
                          joined(run_.facts.input_dtype) + " of any value");
        return false;
      }
      self[f.key] = run_.facts.vocabulary;
    }
    if (f.from_streams && !fill_stateful(self, f.key)) return false;
    if (f.from_input == 0 || self[f.key].is_array()) continue;  // the layer itself checks a list
    if (!fill_from_input(self, component.type, f, x)) return false;
  }
  return true;
}

bool Inference::fill_from_input(Json& self, const std::string& type, const Field& f, const Tensor& x) {
  const int64_t d = f.from_input < 0 ? x.dim() + f.from_input : f.from_input;
  const Shape sample = without_batch(x.shape());
  if (d < 1 || d >= x.dim()) {
    const int needed = f.from_input < 0 ? -f.from_input : f.from_input;  // dimensions of a sample
    reject("", type + " needs an input of at least " +
                   (needed == 1 ? std::string("one dimension") : std::to_string(needed) + " dimensions") + ", got " +
                   joined(sample));
    return false;
  }
  const int64_t width = x.size(d);
  Json& given = self[f.key];
  if (given.is_null()) {
    if (width < 1) {
      reject(f.key, "cannot be taken from an input of shape " + joined(sample) + ", which is empty");
      return false;
    }
    given = width;
  } else if (given.get<int64_t>() != width) {
    const bool flat = sample.size() > 1 && given.get<int64_t>() == numel(sample);
    reject(f.key, "must be " + std::to_string(width) + " for an input of shape " + joined(sample) + ", got " + given.dump() +
                      (flat ? "; put \"Flatten\" before it" : ""));
    return false;
  }
  return true;
}

bool Inference::fill_stateful(Json& self, const std::string& key) {
  const bool streams = run_.facts.streams > 0, both_ways = self.contains("bidirectional") && self["bidirectional"] == true;
  if (self[key] == "auto") self[key] = streams && !both_ways;
  if (self[key] == true && !streams) {
    reject(key, "needs data that is read in streams, such as Text with \"data.loader.stateful\": true");
    return false;
  }
  return true;
}

// Appends a row with the output of run(), called in the region, if there is one. `of`: its input, for messages.
Tensor Inference::record(const std::function<Tensor(LayerRow&)>& run, const std::string& of) {
  Tensor out;
  LayerRow layer;
  layer.name = name_.empty() ? "model" : name_;
  layer.path = run_.unfolded_at.empty() ? path_ : run_.unfolded_at;
  try {
    const Autocast region(Device::meta, run_.precision.region());
    std::optional<autocast::ModuleRegion> around;
    if (const auto dtype = inherited()) around.emplace(*dtype, kept_forever(name_));
    const OpLogScope log;
    out = run(layer);
    layer.calls = log.calls();
    layer.samples = kSamples;
  } catch (const Error& e) { return reject("", one_line(e)); }
  if (run_.built > kMaxBuilt)
    return reject("", "the model may have " + std::to_string(kMaxBuilt) + " layers and parameter tensors up to here, got more");
  if (out.dim() == 0 || out.size(0) != kSamples)
    return reject("", "must keep the batch as dimension 0, but made " + joined(out.shape()) + " of " + of);
  layer.output = without_batch(out.shape());
  layer.dtype = out.dtype();
  if (numel(layer.output) > kMaxSample)
    return reject("", "makes more than " + std::to_string(kMaxSample) + " values of a sample, of " + of);
  run_.rows.push_back(std::move(layer));
  return out;
}

// Returns the dtype that modules around this place set for it: the innermost one's.
std::optional<DType> Inference::inherited() const {
  for (size_t end = name_.rfind('.'); !name_.empty(); end = name_.rfind('.', end - 1)) {
    const std::string around = end == std::string::npos ? "" : name_.substr(0, end);
    if (const auto dtype = dtype_for(around, run_.precision)) return dtype;
    if (around.empty()) break;
  }
  return {};
}

Tensor Inference::run_leaf(const Json& self, const ModuleRow& row, const Tensor& x) {
  return record(
      [&](LayerRow& layer) {
        const std::shared_ptr<Module> module = row.make(self);
        layer.what = module->describe();
        run_.built += 1 + std::ssize(module->parameters());
        layer.parameters = module->parameter_count();
        set_precisions(*module, run_.precision, name_);
        Tensor in = x;
        if (!module->precision() && inherited() == DType::f32 && run_.precision.low && is_half(x.dtype())) in = x.to(DType::f32);
        return (*module)(in);
      },
      joined(x.shape()));
}

Tensor Inference::infer_join(const std::string& what, const std::function<Tensor()>& join, const std::string& key,
                       const std::string& name) {
  Inference at(run_, key.empty() ? path_ : join_path(path_, key), name.empty() ? name_ : join_path(name_, name));
  return at.record(
      [&](LayerRow& layer) {
        layer.what = what;
        return join();
      },
      "its inputs");
}

Tensor Inference::layer(Json& self, const Tensor& x) {
  const ModuleRow& row = module_catalog().row(self);
  if (!fill_widths(self, row.component, x)) return {};
  const Tensor y = row.follow ? row.follow(self, x, *this) : run_leaf(self, row, x);
  if (y.defined() && run_.unfolded_at.empty()) check_initial(self);
  return y;
}

// Checks that `init`, `tie`, `freeze` and `freeze_statistics` fit the layer.
void Inference::check_initial(const Json& self) {
  constexpr std::array kKeys{"init", "tie", "freeze", "freeze_statistics"};
  const auto given = [&](const char* key) {
    return self.contains(key) && !self[key].is_null() && !module_catalog().has_own_field(self, key);
  };
  for (const std::string_view key : kKeys) {
    if (!given(key.data())) continue;
    Json alone = self;
    for (const char* other : kKeys) {
      if (key != other && given(other)) alone[other] = nullptr;
    }
    try {
      build_model(alone);
    } catch (const Error& e) { reject(std::string(key), one_line(e)); }
  }
}

Tensor Inference::child(Json& self, const std::string& key, const std::string& name, const Tensor& x) {
  return Inference(run_, join_path(path_, key), join_path(name_, name)).layer(self, x);
}

Tensor Inference::run_unfolded(Json& self, const Tensor& x) {
  return report_here([&](Inference& at) { return at.layer(self, x); }, [](const Issue& issue) { return issue.message; });
}

Tensor Inference::infer_again(const std::string& which, const std::function<Tensor(Inference&)>& follow) {
  return report_here(follow, [&](const Issue& issue) {
    return which + " does not fit: " + issue.path.substr(std::min(issue.path.size(), path_.size() + 1)) + ": " + issue.message;
  });
}

Tensor Inference::report_here(const std::function<Tensor(Inference&)>& follow,
                              const std::function<std::string(const Issue&)>& text_of) {
  Issues found;
  Run run{run_.facts, run_.precision, found, run_.rows, run_.built, path_};
  Inference at(run, path_, name_);
  const Tensor out = follow(at);
  return found.errors() > 0 ? reject("", text_of(found.list()[0])) : out;
}

InferredModel infer_model(const Json& model, const DataFacts& facts, const ModelPrecision& precision, const std::string& path,
                          Issues& issues) {
  InferredModel out{.model = model, .output = {}, .layers = {}};
  const SavedGenerator generator;
  const DefaultDevice on(Device::meta);
  const NoGrad off;
  int64_t built = 0;
  Inference::Run run{facts, precision, issues, out.layers, built};
  const int64_t before = issues.errors();
  try {
    const Tensor result =
        Inference(run, path, "").layer(out.model, empty(with_batch(kSamples, facts.input), {.dtype = facts.input_dtype}));
    if (issues.errors() > before || !result.defined()) return out;
    out.output = without_batch(result.shape());
    out.dtype = result.dtype();
  } catch (const Error& e) { issues.error(path, one_line(e)); }
  return out;
}

}  // namespace halfstep::app
