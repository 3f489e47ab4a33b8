// SPDX-License-Identifier: Apache-2.0
#include "apps/config/sections.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "apps/catalog/option_fields.h"
#include "framework/backend/backend.h"
#include "framework/base/check.h"

namespace halfstep::app {

template <>
struct ReadArg<Interval> {
  static Interval from(const Json& value) { return *parse_interval(value); }
};
template <>
struct ReadArg<std::optional<ByteCount>> {
  static std::optional<ByteCount> from(const Json& value) { return parse_byte_count(value); }
};
template <>
struct ReadArg<std::optional<DType>> {
  static std::optional<DType> from(const Json& value) { return parse_dtype(value.get<std::string>()); }  // "auto": unset
};

namespace {

// Builds the schema: keys() calls one of these functions for every key of a section.

class SchemaOf {
 public:
  template <class S>
  static const Section& section_of(const std::string& name) {
    static const Section made = [&] {
      S values{};
      SchemaOf schema;
      values.keys(schema);
      return Section{name, std::move(schema.fields_)};
    }();
    return made;
  }

  template <class T>
  void operator()(T&, Field field) {
    unread(std::move(field));
  }
  // Adds these options of a class.
  template <class O>
  void options(O& values, std::initializer_list<std::string_view> names) {
    for (const Option<O>& o : O::list())
      if (std::find(names.begin(), names.end(), o.name) != names.end())
        unread(field_of(o, o.get(values), {.most = kMaxCount}));
  }
  void unread(Field field) { fields_.push_back(std::move(field)); }
  template <class S>
  void section(S&, const std::string& key, const std::string& doc) {
    unread(app::section(key, section_of<S>(key), doc));
  }
  // Adds a section that may also be `true` or `false`; `false` if omitted.
  template <class S>
  void switched(S&, const std::string& key, const std::string& doc) {
    Field f = optional_section(key, section_of<S>(key), doc);
    f.fallback = false;
    f.switchable = true;
    unread(std::move(f));
  }

 private:
  std::vector<Field> fields_;
};

class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}
  template <class S>
  static S read(const Json& json) {
    S out{};
    Reader reader(json);
    out.keys(reader);
    return out;
  }

  template <class T>
  void operator()(T& value, const Field& field) {
    value = ReadArg<T>::from(json_.at(field.key));
  }
  template <class O>
  void options(O& values, std::initializer_list<std::string_view>) {
    read_options(json_, values);
  }
  void unread(const Field&) {}
  template <class S>
  void section(S& values, const std::string& key, const std::string&) {
    values = read<S>(json_.at(key));
  }
  template <class S>
  void switched(S& values, const std::string& key, const std::string& doc) {
    section(values, key, doc);
  }

 private:
  const Json& json_;
};

}  // namespace

const Section& sampler_section() {
  static const Section section{
      "sampler",
      {choice("type", nullptr, {"weighted", "bucket"},
              "\"weighted\": samples drawn by the weight of their class; \"bucket\": batches of samples of nearly one length")
           .required(),
       list("weights", "balanced", number("", nullptr, "weight").at_least(0),
            "of weighted: one weight for each class; \"balanced\": all classes are drawn equally often")
           .or_word("balanced"),
       integer("num_samples", nullptr, "of weighted: number of draws in an epoch; default: the size of data.train")
           .at_least(1)
           .at_most(kMaxCount),
       boolean("replacement", true, "of weighted: a sample may be drawn again"),
       integer("window", 100, "of bucket: number of batches within which samples are sorted by length")
           .at_least(1)
           .at_most(kMaxCount)}};
  return section;
}

const Section& early_stopping_section() {
  static const Section section{
      "early_stopping",
      {text("monitor", nullptr, "as checkpoint.monitor, which is its default"),
       choice("mode", nullptr, {"min", "max"}, "as checkpoint.mode; default: that one, or as the given monitor's metric defines"),
       integer("patience", 3, "evaluations in a row without improvement after which training ends").at_least(1).at_most(kMaxCount),
       number("min_delta", 0.0, "only an improvement larger than this counts").at_least(0)}};
  return section;
}

const Section& root_schema() { return SchemaOf::section_of<Sections>(""); }

Sections read_sections(const Json& config) { return Reader::read<Sections>(config); }

Device named_device(const std::string& device) {
  if (device == "auto") return has_backend(Device::Type::cuda) ? Device::cuda : Device::cpu;
  try {
    return parse_device(device);
  } catch (const DeviceError& e) { throw ConfigError(e.what()); }
}

MixedPrecision mixed_precision(const Json& config) {
  const AmpSection amp = Reader::read<AmpSection>(config["amp"]);
  MixedPrecision out;
  out.device = named_device(config["device"]);
  if (amp.enabled) out.low = amp.dtype.value_or(out.device.is_cuda() ? DType::f16 : DType::bf16);
  OpPolicies::ByName policies;
  for (const auto& [op, policy] : amp.policy.items()) policies[op] = *parse_policy(policy.get<std::string>());
  out.policies = policies;
  for (const auto& [pattern, dtype] : amp.modules.items())
    out.modules.emplace_back(pattern, *parse_dtype(dtype.get<std::string>()));
  const bool any_f16 = out.low == DType::f16 ||
                       std::any_of(out.modules.begin(), out.modules.end(), [](const auto& m) { return m.second == DType::f16; });
  const double default_scale =
      std::clamp(GradScalerOptions().init_scale, amp.scaler.min_scale, std::max(amp.scaler.min_scale, amp.scaler.max_scale));
  out.scaler = {.init_scale = amp.scaler.init_scale.value_or(default_scale),
                .growth_factor = amp.scaler.growth.growth_factor,
                .backoff_factor = amp.scaler.growth.backoff_factor,
                .growth_interval = amp.scaler.growth.growth_interval,
                .enabled = out.low && amp.scaler.enabled.value_or(any_f16),
                .min_scale = amp.scaler.min_scale,
                .max_scale = amp.scaler.max_scale};
  out.calibrates_scale = out.scaler.enabled && !amp.scaler.init_scale;
  const Json train = config.value("train", Json());
  const bool guard = train.is_object() && train.contains("guard") && train["guard"] == true;
  if (guard && !out.scaler.enabled) out.scaler = {.init_scale = 1, .enabled = true, .fixed = true};
  return out;
}

}  // namespace halfstep::app
