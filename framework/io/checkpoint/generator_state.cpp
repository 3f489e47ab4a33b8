// SPDX-License-Identifier: Apache-2.0
#include "framework/io/checkpoint/generator_state.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace halfstep {

nlohmann::json generator_json(const Generator::State& state) {
  nlohmann::json out = {{"seed", state.seed}, {"offset", state.offset}};
  if (!state.twister) return out;
  out["kind"] = name(state.kind());
  out["state"] = state.twister->text();
  return out;
}

Generator::State generator_state(const StoredJson& stored) {
  Generator::State out{uint64_t(stored.integer("seed", 0)), uint64_t(stored.integer("offset", 0))};
  if (!stored.has("kind")) return out;
  stored.expect(stored.get("kind") == name(GeneratorKind::mt19937), "kind", "mt19937");
  stored.expect(stored.get("state").is_string(), "state", "a text");
  const std::optional<Twister> twister = Twister::from_text(stored.get("state").get<std::string>());
  stored.expect(twister && twister->count() == out.offset, "state", "the state of a Mersenne Twister at this offset");
  out.twister = std::make_shared<const Twister>(*twister);
  return out;
}

}  // namespace halfstep
