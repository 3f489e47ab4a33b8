// SPDX-License-Identifier: Apache-2.0
#include "apps/config/config.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "apps/catalog/datasets.h"
#include "apps/config/merge.h"
#include "apps/config/rules.h"
#include "apps/schema/shell_word.h"

namespace halfstep::app {
namespace {

// Refuses a sweep's file, which would otherwise give an error about an unknown key.
void refuse_sweep(const ParsedJson& parsed, const std::filesystem::path& file) {
  for (const char* key : {"grid", "random"})
    check<ConfigError>(!parsed.json.is_object() || !parsed.json.contains(key) || parsed.json.contains("model"), "config",
                       file.string(), " must be a config, but is a sweep: it has \"", key, '"',
                       Help{"`halfstep sweep " + file.string() + "` trains its members"});
}

// Refuses data in place of a config, which would otherwise give a JSON error.
void refuse_data(const std::filesystem::path& file) {
  std::error_code none;
  const bool folder = std::filesystem::is_directory(file, none);
  if (file.extension() == ".json" || !(folder || std::filesystem::is_regular_file(file, none))) return;
  if (folder && std::filesystem::exists(file / "config.resolved.json", none)) return;
  constexpr size_t kHeadBytes = 64;
  std::string begin(kHeadBytes, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(begin.data(), std::streamsize(begin.size()));
  begin.resize(size_t(std::max<std::streamsize>(0, in.gcount())));
  const size_t first = begin.find_first_not_of(" \t\r\n\xef\xbb\xbf");  // the last three: a byte order mark
  if (!folder && first != std::string::npos && (begin[first] == '{' || begin[first] == '/')) return;  // '/': a comment
  fail<ConfigError>("config", file.string(),
                    folder ? " must be a config; it is a directory, not a file"
                           : " must be a config, an object in JSON, but does not begin with {",
                    Help{"if it is data, `halfstep init " + shell_word(file.string()) + "` writes a config for it"});
}

// Applies the options, and fills in and checks all keys.
Config complete(ParsedJson parsed, const std::filesystem::path& file, const ConfigOptions& options, Issues& issues) {
  for (const std::string& s : options.sets) apply_set(parsed, s, issues);
  const bool object = parsed.json.is_object();  // else validate() reports it
  replace_rivals(parsed, options.sets, issues);
  if (options.no_amp && object) parsed.json["amp"] = false;
  check_effective(parsed, options.sets, issues);
  if (options.device && object) {
    parsed.json["device"] = *options.device;
    parsed.origins["device"] = {options.device_from + ' ' + *options.device, {}, {}};
  }
  share_data_keys(parsed);
  expand(parsed, file, issues);
  Config config{};
  config.json = validate(Json(parsed.json), root_schema(), "", issues);
  if (!options.form) config.kept_data = std::make_shared<const KeptData>();
  RuleResult result = apply_rules(config.json, issues, options.form);
  issues.raise(file.string(), parsed.origins);
  config.json.erase("extends");  // merged already
  static_cast<Sections&>(config) = read_sections(config.json);
  static_cast<MixedPrecision&>(config) = result.precision;
  for (const Issue& issue : issues.list()) config.warnings.push_back(Issues::line(issue, parsed.origins));
  config.facts = std::move(result.facts);
  config.data_fault = std::move(result.data_fault);
  config.layers = std::move(result.layers);
  return config;
}

}  // namespace

Config load_config(const std::filesystem::path& file, const ConfigOptions& options) {
  Issues issues;
  refuse_data(file);
  ParsedJson parsed = load_with_bases(file, issues);
  refuse_sweep(parsed, file);
  return complete(std::move(parsed), file, options, issues);
}

Config resolve_config(const Json& json, const std::string& name, const ConfigOptions& options) {
  Issues issues;
  ParsedJson parsed{nlohmann::json(json), {{"", SourceLocation{name, {}, {}}}}};
  return complete(std::move(parsed), name, options, issues);
}

}  // namespace halfstep::app
