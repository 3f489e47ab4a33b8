// SPDX-License-Identifier: Apache-2.0
#include "layers/module/parametrize.h"

#include <algorithm>
#include <map>

#include "amp/autocast/autocast.h"
#include "framework/autograd/grad_mode.h"
#include "framework/autograd/recompute.h"
#include "framework/base/list_text.h"
#include "framework/base/process_end.h"
#include "framework/tensor/storage.h"
#include "layers/containers/containers.h"
#include "layers/feedforward/convolution.h"

namespace halfstep {
namespace {

constexpr const char* kRegister = "register_parametrization";
constexpr const char* kChild = "parametrizations";  // PyTorch's name

// Returns a copy of t in memory of parameters.
Tensor copy_of_parameter(const Tensor& t, bool requires_grad) {
  const MemoryScope tag(MemoryTag::parameters);
  Tensor copy = t.detach().clone();
  return copy.set_requires_grad(requires_grad);
}

}  // namespace

void ComputedParameters::compute(const Module& module) {
  for (const auto& slot : module.parameters_) {
    if (!slot->computed) continue;
    const Tensor value = slot->computed->value();
    before_.emplace_back(slot, slot->get());
    slot->put(value);
  }
}

ComputedParameters::~ComputedParameters() {
  for (const auto& [slot, before] : before_) slot->put(before);
}

// ---- ParametrizationList

Tensors ParametrizationList::originals() const {
  Tensors out;
  for (size_t i = 0; i < own_parameters(); ++i) out.push_back(own_parameter(i));
  return out;
}

const Tensor& ParametrizationList::original(size_t i) const {
  check<IndexError>(i < own_parameters(), "ParametrizationList", "original must be below ", own_parameters(), ", got ", i);
  return own_parameter(i);
}

Part<Module> ParametrizationList::operator[](int64_t i) const {
  const int64_t n = int64_t(size());
  check<IndexError>(-n <= i && i < n, "ParametrizationList", "index must be below ", n, ", got ", i);
  return Part<Module>(child_slots()[size_t(i < 0 ? i + n : i)]);
}

// ---- cached values

namespace {

// A parameter's value, with the state from which it was computed.
struct CachedValue {
  Tensors from{};                    // parameters and buffers of the list
  std::vector<uint64_t> versions{};  // of these
  bool with_graph = false, training = false;
  int region = 0;  // region_of()
  Tensor value{};
};
struct ValueCache {
  int depth = 0;  // open scopes of CachedParametrizations
  std::map<const ParametrizationList*, CachedValue> values;
};
ValueCache& value_cache() { return of_this_thread<ValueCache>(); }

// Returns the 16-bit dtype of the active region for t's device; -1: none.
int region_of(const Tensor& t) {
  const Device::Type type = t.device().type;
  return autocast::is_enabled(type) ? int(autocast::dtype(type)) : -1;
}

bool is_current(const CachedValue& cached, const CachedValue& wanted) {
  const auto same = [](const Tensor& a, const Tensor& b) { return a.same(b); };
  return cached.value.defined() &&
         std::equal(cached.from.begin(), cached.from.end(), wanted.from.begin(), wanted.from.end(), same) &&
         cached.versions == wanted.versions && (cached.with_graph || !wanted.with_graph) && cached.training == wanted.training &&
         cached.region == wanted.region;
}

}  // namespace

CachedParametrizations::CachedParametrizations() { ++value_cache().depth; }
CachedParametrizations::~CachedParametrizations() {
  if (--value_cache().depth == 0) value_cache().values.clear();
}

Tensor ParametrizationList::value() {
  if (value_cache().depth == 0) return compute();
  CachedValue wanted{.from = parameters(), .with_graph = grad_enabled(), .training = training()};
  wanted.region = wanted.from.empty() ? -1 : region_of(wanted.from[0]);
  for (const Tensor& t : buffers()) wanted.from.push_back(t);  // buffers too, such as the mask of a pruned weight
  const auto versions = [&] {
    std::vector<uint64_t> out;
    for (const Tensor& t : wanted.from) out.push_back(t.version());
    return out;
  };
  if (std::any_of(wanted.from.begin(), wanted.from.end(), [](const Tensor& t) { return t.storage()->is_exposed(); }))
    return compute();  // the cached value may be stale: its inputs may have been written through their memory
  wanted.versions = versions();
  if (const auto cached = value_cache().values.find(this);
      cached != value_cache().values.end() && is_current(cached->second, wanted))
    return cached->second.value;
  wanted.value = compute();
  wanted.versions = versions();  // again: a power iteration has moved some
  return (value_cache().values[this] = std::move(wanted)).value;
}

Tensor ParametrizationList::compute() {
  Tensors in = originals();
  for (size_t i = 0; i < classes_.size(); ++i) in = {classes_[i].compute(*own_child(i), in)};
  return in[0];
}

void ParametrizationList::set(const Tensor& value) {
  const NoGrad off;
  Tensors now{value.detach()};
  for (size_t i = classes_.size(); i-- > 0;) {
    check<ValueError>(classes_[i].can_invert(*own_child(i)), "Parameter", "a value cannot be assigned through ",
                      own_child(i)->describe(), ", which has no right_inverse",
                      Help{"within NoGrad: parametrizations(module, \"weight\").original().copy_(value)"});
    now = classes_[i].invert(*own_child(i), now[0]);
  }
  check<ValueError>(now.size() == own_parameters(), "Parameter", "right_inverse gave ", now.size(), " tensors for ",
                    own_parameters(), " originals");
  for (size_t i = 0; i < now.size(); ++i) own_parameter(i).copy_(now[i]);
}

void ParametrizationList::append(std::shared_ptr<Module> parametrization, const ParametrizationClass& functions) {
  register_listed(std::to_string(size()), std::move(parametrization));
  classes_.push_back(functions);
  value_cache().values.erase(this);
}

Tensor ParametrizationList::stand_in(const Shape& shape, DType dtype, const std::string& label) {
  const Tensor out = Tensor::empty(shape, {.dtype = dtype, .device = Device::meta});
  out.set_label(label);
  out.impl()->meta().replaced = true;  // optimizers then refuse it
  return out;
}

std::shared_ptr<TensorSlot> ParametrizationList::slot_of(const char* where, const Module& module, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& slot : module.parameters_) {
    if (slot->name == name && slot->get().defined()) return slot;
    if (slot->get().defined()) names.push_back(slot->name);
  }
  const std::string near = nearest_name(name, names);
  fail<ValueError>(where, module.describe(), " has no parameter \"", name, '"', near.empty() ? "" : ", did you mean " + near + '?');
}

std::shared_ptr<ParametrizationList> ParametrizationList::find(const Module& module, const std::string& name) {
  for (const auto& slot : module.parameters_) {
    if (slot->name == name) return slot->computed;
  }
  return nullptr;
}

bool ParametrizationList::any(const Module& module) {
  return std::any_of(module.parameters_.begin(), module.parameters_.end(),
                     [](const auto& slot) { return slot->computed != nullptr; });
}

Tensor ParametrizationList::value_of(const Module& module, const std::string& name) {
  const std::shared_ptr<TensorSlot> slot = slot_of(kRegister, module, name);
  return slot->computed ? slot->computed->value() : slot->get();
}

namespace {

void check_result(const Module& parametrization, const Tensor& before, const Tensor& after) {
  check<ValueError>(before.shape() == after.shape() && before.dtype() == after.dtype(), kRegister, parametrization.describe(),
                    " must give a tensor of the parameter's shape and dtype, ", before.shape(), " and ", before.dtype(), ", got ",
                    after.shape(), " and ", after.dtype());
}

}  // namespace

std::shared_ptr<ParametrizationList> ParametrizationList::make_for(const Module& module, const Tensor& original,
                                                                   std::shared_ptr<Module> first,
                                                                   const ParametrizationClass& functions, bool unsafe) {
  const auto list = make<ParametrizationList>();
  list->train(module.training());
  list->append(std::move(first), functions);
  const NoGrad off;
  Module& parametrization = *list->own_child(0);
  Tensors values{original};
  if (functions.can_invert(parametrization)) values = functions.invert(parametrization, original);
  check<ValueError>(!values.empty(), kRegister, "right_inverse of ", parametrization.describe(), " gave no tensor");
  if (!unsafe) check_result(parametrization, original, functions.compute(parametrization, values));
  const bool trained = original.requires_grad();
  if (values.size() == 1 && values[0].shape() == original.shape() && values[0].dtype() == original.dtype()) {
    if (!values[0].same(original)) original.copy_(values[0]);
    list->register_parameter("original", original);
  } else if (values.size() == 1) {
    list->register_parameter("original", copy_of_parameter(values[0], trained));
  } else {
    for (size_t i = 0; i < values.size(); ++i)
      list->register_parameter("original" + std::to_string(i), copy_of_parameter(values[i], trained));
  }
  for (size_t i = 0; i < list->own_parameters(); ++i) list->own_parameter(i).set_requires_grad(trained);
  return list;
}

void ParametrizationList::add_to(Module& module, const std::string& name, std::shared_ptr<Module> parametrization,
                                 const ParametrizationClass& functions, bool unsafe) {
  const std::shared_ptr<TensorSlot> slot = slot_of(kRegister, module, name);
  check<ValueError>(!slot->waits, kRegister, '"', slot->label, "\" has no size before the first call of ", module.describe(),
                    Help{"call the module first"});
  if (slot->computed) {
    parametrization->train(module.training());
    if (!unsafe) {
      const NoGrad off;
      const Tensor before = slot->computed->value();
      check_result(*parametrization, before, functions.compute(*parametrization, {before}));
    }
    return slot->computed->append(std::move(parametrization), functions);
  }
  const Tensor original = slot->get();
  const auto list = make_for(module, original, std::move(parametrization), functions, unsafe);
  const auto has = [&](const auto& child) { return child->name == kChild; };
  auto child = std::find_if(module.children_.begin(), module.children_.end(), has);
  if (child == module.children_.end()) {
    module.register_listed(kChild, make<ModuleDict>());
    child = module.children_.end() - 1;
  }
  auto* const lists = dynamic_cast<ModuleDict*>((*child)->module.get());
  check<ValueError>(lists != nullptr, kRegister, module.describe(), " has a child \"parametrizations\" of its own");
  lists->insert(name, list);
  leave_module(original);
  slot->computed = list;
  slot->put(stand_in(original.shape(), original.dtype(), slot->label));
  module.set_computes(true);
}

void ParametrizationList::remove_from(Module& module, const std::string& name, bool leave_parametrized) {
  const std::shared_ptr<TensorSlot> slot = slot_of("remove_parametrizations", module, name);
  const std::shared_ptr<ParametrizationList> list = slot->computed;
  check<ValueError>(list != nullptr, "remove_parametrizations", '"', name, "\" of ", module.describe(), " has none");
  const NoGrad off;
  const Tensors originals = list->originals();
  check<ValueError>(leave_parametrized || originals.size() == 1, "remove_parametrizations", '"', name, "\" has ", originals.size(),
                    " originals, of which none is its value", Help{"leave_parametrized = true"});
  Tensor parameter = originals[0];
  if (leave_parametrized) {
    const Tensor value = list->value();
    if (originals.size() == 1 && value.shape() == parameter.shape() && value.dtype() == parameter.dtype())
      parameter.copy_(value);
    else
      parameter = copy_of_parameter(value, parameter.requires_grad());
  }
  enter_module(parameter);
  for (const Tensor& t : originals) leave_module(t);
  slot->computed = nullptr;
  slot->put(parameter);
  parameter.set_label(slot->label);
  const auto drop = [](Module& from, const std::string& child) {
    std::erase_if(from.children_, [&](const auto& s) { return s->name == child; });
    from.structure_changed();
  };
  const auto lists =
      std::find_if(module.children_.begin(), module.children_.end(), [](const auto& s) { return s->name == kChild; });
  drop(*(*lists)->module, name);
  if (any(module)) return;
  drop(module, kChild);
  module.set_computes(false);
}

// ---- WeightNorm and SpectralNorm

Tensor WeightNorm::norm_of(const Tensor& v) const {
  if (!dim_) return norm(v);
  const int64_t dim = *dim_ < 0 ? *dim_ + v.dim() : *dim_;
  check<IndexError>(dim >= 0 && dim < v.dim(), "weight_norm", "dim must be one of the ", v.dim(), " of the weight, got ", *dim_);
  Dims others;
  for (int d = 0; d < v.dim(); ++d) {
    if (d != dim) others.push_back(d);
  }
  return others.empty() ? v.abs() : norm(v, 2, others, true);
}

Tensor WeightNorm::forward(const Tensor& g, const Tensor& v) { return v * (g / norm_of(v)); }

std::pair<Tensor, Tensor> WeightNorm::right_inverse(const Tensor& weight) const { return {norm_of(weight), weight}; }

SpectralNorm::SpectralNorm(const Tensor& weight, const SpectralNormOptions& o) : options_(o) {
  const int64_t rank = weight.dim(), dim = o.dim.value_or(0);
  check<ValueError>(o.n_power_iterations >= 1, "spectral_norm", "n_power_iterations must be >= 1, got ", o.n_power_iterations);
  check<IndexError>(dim >= -rank && dim < rank, "spectral_norm", "dim must be one of the ", rank, " of the weight, got ", dim);
  options_.dim = dim < 0 ? dim + rank : dim;
  if (rank < 2) return;
  const NoGrad off;
  const autocast::Off full_precision;
  const Tensor matrix = as_matrix(weight.detach());
  const auto random = [&](int64_t size) {
    const MemoryScope tag(MemoryTag::parameters);
    const Tensor t = Tensor::empty({size}, {.dtype = weight.dtype(), .device = weight.device()});
    normal_(t, 0, 1);
    return normalize(t, 2, {0}, o.eps);
  };
  u_ = register_buffer("_u", random(matrix.size(0)));
  v_ = register_buffer("_v", random(matrix.size(1)));
  constexpr int64_t kFirstIterations = 15;  // as PyTorch does, to begin near the singular vectors
  iterate(matrix, kFirstIterations);
}

Tensor SpectralNorm::as_matrix(const Tensor& weight) const {
  Dims order{*options_.dim};
  for (int d = 0; d < weight.dim(); ++d) {
    if (d != *options_.dim) order.push_back(d);
  }
  return weight.permute(order).flatten(1);
}

void SpectralNorm::iterate(const Tensor& matrix, int64_t times) {
  const NoGrad off;
  for (int64_t i = 0; i < times; ++i) {
    u_.copy_(normalize(mv(matrix, v_), 2, {0}, options_.eps));
    v_.copy_(normalize(mv(matrix.t(), u_), 2, {0}, options_.eps));
  }
}

Tensor SpectralNorm::forward(const Tensor& weight) {
  const autocast::Off full_precision;
  if (weight.dim() < 2) return normalize(weight, 2, {0}, options_.eps);
  const Tensor matrix = as_matrix(weight);
  if (training() && !TakenStates::recomputing()) iterate(matrix.detach(), options_.n_power_iterations);
  // Copy them: the next forward moves the buffers before this one's backward.
  const Tensor u = u_.detach().clone(), v = v_.detach().clone();
  return weight / sum(u * mv(matrix, v));
}

SpectralNorm spectral_norm_of(const Module& module, const std::string& name, const SpectralNormOptions& options) {
  SpectralNormOptions o = options;
  const bool transposed = dynamic_cast<const ConvTransposeNd*>(&module) != nullptr;
  if (!o.dim) o.dim = transposed ? 1 : 0;
  return SpectralNorm(ParametrizationList::value_of(module, name), o);
}

}  // namespace halfstep
