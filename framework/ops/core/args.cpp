// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/core/args.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/ops/core/loss_reduction.h"

namespace halfstep {

using Json = nlohmann::json;

Args::Args(std::string_view op, std::vector<TensorArgument> tensors, const Json& attributes)
    : op_(op), tensors_(std::move(tensors)), tensor_used_(tensors_.size()), attributes_(attributes) {
  check<ValueError>(attributes.is_object() || attributes.is_null(), op, "attributes must be an object of names and values, got ",
                    attributes.dump());
}

bool Args::has_tensor(size_t i) const { return i < tensors_.size() && (tensors_[i].is_list || tensors_[i].one.defined()); }

Tensor Args::tensor(size_t i) {
  check<ValueError>(has_tensor(i), op_, "tensor ", i, " is missing: ", tensors_.size(), " were given");
  return tensor_or_none(i);
}

Tensor Args::tensor_or_none(size_t i) {
  if (i >= tensors_.size()) return {};
  check<ValueError>(!tensors_[i].is_list, op_, "argument ", i, " must be one tensor, got a list of ", tensors_[i].many.size());
  tensor_used_[i] = true;
  return tensors_[i].one;
}

Tensors Args::list(size_t i) {
  check<ValueError>(i < tensors_.size() && tensors_[i].is_list, op_, "argument ", i, " must be a list of tensors",
                    Help{"name them " + std::to_string(i) + ".0, " + std::to_string(i) + ".1, ..."});
  tensor_used_[i] = true;
  return tensors_[i].many;
}

const Json* Args::raw(std::string_view name) {
  requested_.emplace_back(name);
  return has(name) ? &attributes_.at(std::string(name)) : nullptr;
}

std::string Args::misspelt(std::string_view name) const {
  if (!attributes_.is_object()) return {};
  std::vector<std::string> unused;
  for (const auto& [given, value] : attributes_.items())
    if (std::find(requested_.begin(), requested_.end(), given) == requested_.end()) unused.push_back(given);
  return nearest_name(name, unused);
}

bool Args::has(std::string_view name) const {
  const auto found = attributes_.is_object() ? attributes_.find(std::string(name)) : attributes_.end();
  return found != attributes_.end() && !found->is_null();
}

namespace {

[[noreturn]] void refuse(std::string_view op, std::string_view name, const char* wanted, const Json& got) {
  fail<ValueError>(op, "'", name, "' must be ", wanted, ", got ", got.dump());
}

// Returns the attribute, or `otherwise`; throws if neither exists.
template <class T, class Read>
T get(Args& args, std::string_view name, const std::optional<T>& otherwise, Read read) {
  if (const Json* value = args.raw(name)) return read(*value);
  if (otherwise) return *otherwise;
  const std::string near = args.misspelt(name);
  if (near.empty()) fail<ValueError>(args.op(), "argument '", name, "' is missing");
  fail<ValueError>(args.op(), "argument '", name, "' is missing",
                   Help{"'" + near + "' is given: did you mean '" + std::string(name) + "'?"});
}

double to_number(std::string_view op, std::string_view name, const Json& value) {
  if (value.is_number() || value.is_boolean()) return value.is_boolean() ? double(value.get<bool>()) : value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::nan("");
  refuse(op, name, value.is_string() ? R"(a number, "inf", "-inf" or "nan")" : "a number", value);
}

int64_t to_integer(std::string_view op, std::string_view name, const Json& value) {
  const bool fits = value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()));
  if (!fits) refuse(op, name, "an integer", value);
  return value.get<int64_t>();
}

Number to_scalar(std::string_view op, std::string_view name, const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  return value.is_number_integer() ? Number(value.get<int64_t>()) : Number(to_number(op, name, value));
}

}  // namespace

double Args::number(std::string_view name, std::optional<double> otherwise) {
  return get(*this, name, otherwise, [&](const Json& value) { return to_number(op_, name, value); });
}
Number Args::scalar(std::string_view name, std::optional<Number> otherwise) {
  return get(*this, name, otherwise, [&](const Json& value) { return to_scalar(op_, name, value); });
}
int64_t Args::integer(std::string_view name, std::optional<int64_t> otherwise) {
  return get(*this, name, otherwise, [&](const Json& value) { return to_integer(op_, name, value); });
}
bool Args::flag(std::string_view name, std::optional<bool> otherwise) {
  return get(*this, name, otherwise, [&](const Json& value) {
    if (!value.is_boolean()) refuse(op_, name, "true or false", value);
    return value.get<bool>();
  });
}
std::string Args::text(std::string_view name, std::optional<std::string> otherwise) {
  return get(*this, name, otherwise, [&](const Json& value) {
    if (!value.is_string()) refuse(op_, name, "a string", value);
    return value.get<std::string>();
  });
}
Dims Args::ints(std::string_view name, std::optional<Dims> otherwise) {
  return get(*this, name, otherwise, [&](const Json& value) {
    if (!value.is_array() && !value.is_number()) refuse(op_, name, "an integer or a list of integers", value);
    Dims d;
    if (value.is_array()) {
      check<ShapeError>(value.size() <= size_t(kMaxDims), op_, "'", name, "' must have at most ", kMaxDims, " entries, got ",
                        value.size());
      for (const Json& x : value) d.push_back(to_integer(op_, name, x));
    } else {
      d.push_back(to_integer(op_, name, value));
    }
    return d;
  });
}
std::vector<double> Args::numbers(std::string_view name, std::optional<std::vector<double>> otherwise) {
  return get(*this, name, otherwise, [&](const Json& value) {
    std::vector<double> out;
    if (!value.is_array()) return std::vector<double>{to_number(op_, name, value)};
    for (const Json& x : value) out.push_back(to_number(op_, name, x));
    return out;
  });
}

std::optional<double> Args::number_or_none(std::string_view name) {
  const Json* value = raw(name);
  return value ? std::optional(to_number(op_, name, *value)) : std::nullopt;
}
std::optional<Number> Args::scalar_or_none(std::string_view name) {
  const Json* value = raw(name);
  return value ? std::optional(to_scalar(op_, name, *value)) : std::nullopt;
}
std::optional<int64_t> Args::integer_or_none(std::string_view name) {
  const Json* value = raw(name);
  return value ? std::optional(to_integer(op_, name, *value)) : std::nullopt;
}
std::optional<DType> Args::dtype(std::string_view name) {
  const Json* value = raw(name);
  if (!value) return {};
  if (!value->is_string()) refuse(op_, name, "the name of a dtype", *value);
  const auto dtype = parse_dtype(value->get<std::string>());
  if (!dtype) refuse(op_, name, "the name of a dtype", *value);
  return dtype;
}
OptionValue Args::option(const OptionFacts& facts) {
  switch (facts.kind) {
    case OptionKind::flag: return flag(facts.name);
    case OptionKind::whole: return integer(facts.name);
    case OptionKind::number: return number(facts.name);
    case OptionKind::text: return text(facts.name);
    case OptionKind::sizes: return Sizes(ints(facts.name));
    case OptionKind::numbers: return numbers(facts.name);
    case OptionKind::tensor:
    case OptionKind::texts: break;
  }
  return {};
}

Reduction Args::reduction() { return parse_reduction(text("reduction", "mean"), op_); }

void Args::check_all_used() const {
  for (size_t i = 0; i < tensors_.size(); ++i)
    check<ValueError>(tensor_used_[i] || !has_tensor(i), op_, "tensor ", i, " is one more than the op takes");
  if (!attributes_.is_object()) return;
  for (const auto& [name, value] : attributes_.items()) {
    if (std::find(requested_.begin(), requested_.end(), name) != requested_.end()) continue;
    const std::string near = nearest_name(name, requested_);
    const std::set<std::string> sorted(requested_.begin(), requested_.end());
    std::string takes;
    for (const std::string& requested : sorted) takes += (takes.empty() ? "" : ", ") + requested;
    const std::string help = "besides tensors, which are given by place, it takes " + (takes.empty() ? "nothing" : takes);
    fail<ValueError>(op_, "has no argument '", name, "'", Help{near.empty() ? help : "did you mean '" + near + "'?"});
  }
}

}  // namespace halfstep
