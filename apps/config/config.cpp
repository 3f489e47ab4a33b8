#include "apps/config/config.h"

#include "apps/config/merge.h"
#include "apps/config/root_schema.h"
#include "apps/config/rules.h"
#include "framework/backend/backend.h"
#include "framework/base/check.h"

namespace halfstep::app {
namespace {

Config finish(ParsedJson parsed, const std::filesystem::path& file, const ConfigOptions& options, Issues& issues) {
  for (const std::string& s : options.sets) apply_set(parsed, s, issues);
  const bool object = parsed.json.is_object();  // else validate() says so
  if (options.no_amp && object) parsed.json["amp"] = false;
  if (options.device && object) {
    parsed.json["device"] = *options.device;
    parsed.origins["device"] = {"--device " + *options.device, {}, {}};
  }
  expand(parsed, file, issues);
  Config config;
  config.json = validate(Json(parsed.json), root_schema(), "", issues);
  RuleResult result = apply_rules(config.json, issues);
  issues.raise(file.string(), parsed.origins);
  config.json.erase("extends");  // already merged in
  for (const Issue& issue : issues.list()) config.warnings.push_back(Issues::line(issue, parsed.origins));
  config.facts = std::move(result.facts);
  config.layers = std::move(result.layers);
  return config;
}

}  // namespace

Config load_config(const std::filesystem::path& file, const ConfigOptions& options) {
  Issues issues;
  return finish(load_with_bases(file, issues), file, options, issues);
}

Config resolve_config(const Json& json, const std::string& name, const ConfigOptions& options) {
  Issues issues;
  ParsedJson parsed{nlohmann::json(json), {{"", Origin{name, {}, {}}}}};
  return finish(std::move(parsed), name, options, issues);
}

Device config_device(const Json& config) {
  const std::string text = config["device"];
  if (text == "auto") return has_backend(Device::Type::cuda) ? Device::cuda : Device::cpu;
  try {
    return parse_device(text);
  } catch (const DeviceError& e) { throw ConfigError(e.what()); }
}

std::optional<DType> amp_dtype(const Json& config) {
  const Json& amp = config["amp"];
  if (amp["enabled"] != true) return {};
  if (amp["dtype"] == "auto") return config_device(config).is_cuda() ? DType::f16 : DType::bf16;
  return parse_dtype(amp["dtype"].get<std::string>());
}

bool scaler_enabled(const Json& config) {
  const Json& enabled = config["amp"]["scaler"]["enabled"];
  return enabled == "auto" ? amp_dtype(config) == DType::f16 : enabled == true && amp_dtype(config).has_value();
}

}  // namespace halfstep::app
