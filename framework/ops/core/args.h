// SPDX-License-Identifier: Apache-2.0
// The arguments of an op that is called by its name: tensors by position, everything else by PyTorch's names.
//
//   list.add(Linear::info, [](Args& a) { return linear(a.tensor(0), a.tensor(1), a.tensor_or_none(2)); });
//
// Positions count the tensor arguments of PyTorch's signature; one that may be a tensor or a number is a position, too, and
// has a name for the number. Each getter throws ValueError or DTypeError, naming op and argument, when what was given does
// not fit. What no getter asked for is an error of the call (invoke in registry.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/backend/backend.h"
#include "framework/base/options.h"
#include "framework/tensor/tensor.h"

namespace halfstep {

// One tensor argument: a tensor, a list of tensors, or (both empty) left out.
struct TensorArgument {
  Tensor one = {};
  Tensors many = {};
  bool is_list = false;
};

class Args {
 public:
  Args(std::string_view op, std::vector<TensorArgument> tensors, const nlohmann::json& attributes);

  bool has_tensor(size_t position) const;
  Tensor tensor(size_t position);
  Tensor tensor_or_none(size_t position);
  Tensors list(size_t position);

  bool has(std::string_view name) const;  // and is not null
  // Without `otherwise` the attribute must be given.
  double number(std::string_view name, std::optional<double> otherwise = {});  // also "inf", "-inf", "nan"
  Number scalar(std::string_view name, std::optional<Number> otherwise = {});  // as written: 2, 2.0 or true
  int64_t integer(std::string_view name, std::optional<int64_t> otherwise = {});
  bool flag(std::string_view name, std::optional<bool> otherwise = {});
  std::string text(std::string_view name, std::optional<std::string> otherwise = {});
  Dims ints(std::string_view name, std::optional<Dims> otherwise = {});  // a number is a list of one
  std::vector<double> numbers(std::string_view name, std::optional<std::vector<double>> otherwise = {});
  // Unset when left out or null.
  std::optional<double> number_or_none(std::string_view name);
  std::optional<Number> scalar_or_none(std::string_view name);
  std::optional<int64_t> integer_or_none(std::string_view name);
  std::optional<DType> dtype(std::string_view name = "dtype");
  Reduction reduction();  // "mean" unless given
  // All options but tensors by their names; those that are left out are the struct's own.
  template <HasOptionList O>
  O options() {
    O out;
    for (const Option<O>& o : O::list())
      if (o.kind != OptionKind::tensor && asks_for(o.name)) o.put(out, option(o));
    return out;
  }

  bool asks_for(std::string_view name);  // has(name), and notes that it was asked for
  OptionValue option(const OptionFacts& option);

  std::string_view op() const { return op_; }
  const nlohmann::json* raw(std::string_view name);  // null when left out; for values without a getter
  // The name given, and not asked for so far, that comes nearest to the missing `name`; empty if none is near.
  std::string misspelt(std::string_view name) const;
  // Throws ValueError when something was given that no getter asked for.
  void check_all_used() const;

 private:
  std::string_view op_;
  std::vector<TensorArgument> tensors_;
  std::vector<bool> tensor_used_;
  const nlohmann::json& attributes_;
  std::vector<std::string> asked_;
};

}  // namespace halfstep
