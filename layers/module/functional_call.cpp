// SPDX-License-Identifier: Apache-2.0
#include "layers/module/functional_call.h"

#include <algorithm>

#include "framework/base/list_text.h"

namespace halfstep {
namespace {

constexpr const char* kCall = "functional_call";

// A tensor of the module that may be replaced.
struct Place {
  std::string name;
  std::shared_ptr<TensorSlot> slot;
  Tensor own;      // the module's
  Tensor given{};  // replaces it; undefined: none does
};

// Returns the place of this name. Throws ValueError with the nearest name.
Place& place_of(std::vector<Place>& places, const std::string& name, const Module& module) {
  std::vector<std::string> names;
  for (Place& p : places) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  const std::string near = nearest_name(name, names);
  fail<ValueError>(kCall, module.describe(), " has no parameter or buffer \"", name, '"',
                   near.empty() ? "" : ", did you mean " + near + '?');
}

}  // namespace

Substitution::Substitution(Module& module, const NamedTensors& tensors) {
  for (const auto& [name, part] : module.named_modules()) {
    check<ValueError>(!part->recomputes_in_backward(), kCall, part->describe(),
                      " recomputes in backward, where it would compute with its own tensors",
                      Help{(name.empty() ? "" : "get_submodule(\"" + name + "\").") + "recompute_in_backward(false)"});
  }
  module.check_copied();
  module.check_sizes();
  std::vector<Place> places;
  module.each_slot("", [&](const std::string& name, const std::shared_ptr<TensorSlot>& slot) {
    if (slot->get().defined() && !slot->computed) places.push_back({name, slot, slot->get()});
  });
  for (const NamedTensor& t : tensors) {
    check<ValueError>(t.tensor.defined(), kCall, '"', t.name, "\" is undefined");
    const Tensor own = place_of(places, t.name, module).own;
    for (Place& p : places) {
      if (!p.own.same(own)) continue;
      check<ValueError>(!p.given.defined() || p.given.same(t.tensor), kCall, '"', t.name, "\" and \"", p.name,
                        "\" are one tensor, for which there are two");
      p.given = t.tensor;
    }
  }
  for (const Place& p : places) {
    if (!p.given.defined()) continue;
    before_.emplace_back(p.slot, p.own);
    p.slot->put(p.given);
  }
}

Substitution::~Substitution() {
  for (const auto& [slot, own] : before_) slot->put(own);
}

}  // namespace halfstep
