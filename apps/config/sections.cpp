// SPDX-License-Identifier: Apache-2.0
#include "apps/config/sections.h"

#include "framework/backend/backend.h"
#include "framework/base/check.h"

namespace halfstep::app {

template <>
struct ReadArg<Interval> {
  static Interval from(const Json& value) { return *parse_interval(value); }
};

namespace {

// Each of these is called with every key of a section.

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
  void unread(Field field) { fields_.push_back(std::move(field)); }
  template <class S>
  void section(S&, const std::string& key, const std::string& doc) {
    unread(app::section(key, section_of<S>(key), doc));
  }
  // A section that may also be `true` or `false`; left out, it is `false`.
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

const Section& root_schema() { return SchemaOf::section_of<Sections>(""); }

Sections read_sections(const Json& config) { return Reader::read<Sections>(config); }
AmpSection read_amp(const Json& amp) { return Reader::read<AmpSection>(amp); }

Device named_device(const std::string& device) {
  if (device == "auto") return has_backend(Device::Type::cuda) ? Device::cuda : Device::cpu;
  try {
    return parse_device(device);
  } catch (const DeviceError& e) { throw ConfigError(e.what()); }
}

std::optional<DType> amp_dtype(const AmpSection& amp, Device device) {
  if (!amp.enabled) return {};
  if (amp.dtype == "auto") return device.is_cuda() ? DType::f16 : DType::bf16;
  return parse_dtype(amp.dtype);
}

GradScalerOptions scaler_options(const AmpSection& amp, Device device) {
  const std::optional<DType> dtype = amp_dtype(amp, device);
  const ScalerSection& s = amp.scaler;
  return {.init_scale = s.init_scale,
          .growth_factor = s.growth_factor,
          .backoff_factor = s.backoff_factor,
          .growth_interval = s.growth_interval,
          .enabled = dtype && s.enabled.value_or(dtype == DType::f16)};
}

}  // namespace halfstep::app
