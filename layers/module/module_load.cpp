// SPDX-License-Identifier: Apache-2.0
// Module::load_state_dict: compares a state with a module, and copies its values.
#include <algorithm>
#include <set>

#include "framework/autograd/grad_mode.h"
#include "framework/base/list_text.h"
#include "framework/base/text_stream.h"
#include "layers/feedforward/normalization.h"
#include "layers/module/module.h"

namespace halfstep {
namespace {

const Tensor* find(const StateDict& state, const std::string& name) {
  for (const NamedTensor& n : state) {
    if (n.name == name) return &n.tensor;
  }
  return nullptr;
}

// Returns whether the state has the tensor of `n` under another of the module's names for it.
bool under_another_name(const StateDict& own, const StateDict& state, const NamedTensor& n) {
  return std::any_of(own.begin(), own.end(), [&](const NamedTensor& other) {
    return are_same_elements(other.tensor, n.tensor) && find(state, other.name);
  });
}

// Returns the names of batch counts that the state may lack: files from before PyTorch 0.4.1, and many converted ones, have none.
// With exponential averages they decide nothing, so they keep their values, as in PyTorch.
std::set<std::string> counts_of_batches(Module& module, const StateDict& state) {
  std::set<std::string> out;
  for (const auto& [path, below] : module.named_modules()) {
    const auto* const norm = dynamic_cast<const RunningNorm*>(below);
    const std::string prefix = path.empty() ? "" : path + ".";
    if (norm && norm->momentum() && find(state, prefix + "running_mean")) out.insert(prefix + "num_batches_tracked");
  }
  return out;
}

constexpr size_t kListed = 6;  // for each kind of problem; a state with other names has hundreds

// Prints the first lines of an error, and how many more there are.
void print_list(std::ostream& out, const char* title, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < std::min(lines.size(), kListed); ++i) out << "\n  " << title << ": " << lines[i];
  if (lines.size() > kListed) out << "\n  " << title << ": " << lines.size() - kListed << " more";
}

// Appends to each name that will be printed the nearest of the names `near`.
std::vector<std::string> with_hints(std::vector<std::string> names, const std::vector<std::string>& near) {
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) {
    if (const std::string hint = nearest_name(names[i], near); !hint.empty()) names[i] += " (did you mean " + hint + "?)";
  }
  return names;
}

}  // namespace

LoadReport Module::load_state_dict(const StateDict& state, bool strict) {
  // Write through detached handles: they share memory and version with the parameters, so that shadows notice.
  const StateDict own = state_tensors();
  const std::set<std::string> counts = counts_of_batches(*this, state);
  LoadReport report;
  std::vector<std::string> undefined, shapes, dtypes, twice;
  for (const NamedTensor& n : own) {
    const Tensor* from = find(state, n.name);
    if (!from) {
      if (!under_another_name(own, state, n) && !counts.contains(n.name)) report.missing.push_back(n.name);
    } else if (!from->defined()) {
      undefined.push_back(n.name);
    } else if (from->shape() != n.tensor.shape()) {
      shapes.push_back(joined(n.name, " must be ", n.tensor.shape(), ", got ", from->shape()));
    } else if (is_floating(n.tensor.dtype()) && !is_floating(from->dtype())) {  // such as integers of a quantised weight
      dtypes.push_back(joined(n.name, " must be floating, got ", from->dtype()));
    }
  }
  for (const NamedTensor& n : state) {
    if (!find(own, n.name)) report.unexpected.push_back(n.name);
    if (!find(state, n.name)->same(n.tensor)) twice.push_back(n.name);
  }

  TextWriter problems;
  if (strict) {
    print_list(problems, "missing", with_hints(report.missing, report.unexpected));
    print_list(problems, "unexpected", with_hints(report.unexpected, report.missing));
  }
  print_list(problems, "undefined", undefined);
  print_list(problems, "shape", shapes);
  print_list(problems, "dtype", dtypes);
  print_list(problems, "twice", twice);
  if (!problems.str().empty()) fail<ValueError>("load_state_dict", "the state does not fit ", describe(), ':', problems.str());

  NoGrad off;
  for (const NamedTensor& n : own) {
    const Tensor* from = find(state, n.name);
    if (from && from->const_data_ptr() != n.tensor.const_data_ptr()) n.tensor.copy_(from->detach());
  }
  return report;
}

}  // namespace halfstep
