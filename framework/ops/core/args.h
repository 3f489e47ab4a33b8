// SPDX-License-Identifier: Apache-2.0
// Arguments of an op that is called by name: tensors by position, everything else by PyTorch's names.
//
//   list.add(Linear::info, [](Args& a) { return linear(a.tensor(0), a.tensor(1), a.tensor_or_none(2)); });
//
// Positions count the tensor arguments of PyTorch's signature. An argument that may be a tensor or a number also has a position,
// and a name for the number. Each getter throws ValueError or DTypeError, with op and argument, for an unsuitable value. Arguments
// that no getter requested are an error of the call (invoke in registry.h).
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

// One tensor argument: a tensor, a list of tensors if `is_list`, or (undefined) omitted.
struct TensorArgument {
  Tensor one = {};
  Tensors many = {};
  bool is_list = false;
};

// The arguments of one call. Getters mark what they read as used.
class Args {
 public:
  Args(std::string_view op, std::vector<TensorArgument> tensors, const nlohmann::json& attributes);

  bool has_tensor(size_t position) const;  // or a list
  Tensor tensor(size_t position);          // required
  Tensor tensor_or_none(size_t position);  // undefined if omitted
  Tensors list(size_t position);           // required

  bool has(std::string_view name) const;  // whether it is given and not null; does not mark it
  // Return an attribute, which is required without `otherwise`.
  double number(std::string_view name, std::optional<double> otherwise = {});  // also "inf", "-inf", "nan"
  Number scalar(std::string_view name, std::optional<Number> otherwise = {});  // as written: 2, 2.0 or true
  int64_t integer(std::string_view name, std::optional<int64_t> otherwise = {});
  bool flag(std::string_view name, std::optional<bool> otherwise = {});
  std::string text(std::string_view name, std::optional<std::string> otherwise = {});
  Dims ints(std::string_view name, std::optional<Dims> otherwise = {});  // accepts a number as a list of one
  std::vector<double> numbers(std::string_view name, std::optional<std::vector<double>> otherwise = {});
  // Returns nothing for an omitted or null attribute.
  std::optional<double> number_or_none(std::string_view name);
  std::optional<Number> scalar_or_none(std::string_view name);
  std::optional<int64_t> integer_or_none(std::string_view name);
  std::optional<DType> dtype(std::string_view name = "dtype");
  Reduction reduction();  // "mean" by default
  // Returns all options but tensors by their names; omitted ones have the struct's own values.
  template <HasOptionList O>
  O options() {
    O out;
    for (const Option<O>& o : O::list())
      if (o.kind != OptionKind::tensor && raw(o.name)) o.put(out, option(o));
    return out;
  }

  // Returns the value of an option by the getter for its kind; empty for tensors and lists of texts.
  OptionValue option(const OptionFacts& facts);

  std::string_view op() const { return op_; }
  // Returns the value as JSON, for values without a getter; null if omitted. Marks it.
  const nlohmann::json* raw(std::string_view name);
  // Returns the unused given name nearest to the missing `name`; empty if none is near.
  std::string misspelt(std::string_view name) const;
  // Throws ValueError if some argument was not requested by a getter.
  void check_all_used() const;

 private:
  std::string_view op_;
  std::vector<TensorArgument> tensors_;
  std::vector<bool> tensor_used_;
  const nlohmann::json& attributes_;
  std::vector<std::string> requested_;  // names that getters have read
};

}  // namespace halfstep
