// SPDX-License-Identifier: Apache-2.0
#include "framework/base/generator.h"

#include <mutex>

#include "framework/base/check.h"
#include "framework/base/fork_mutex.h"

namespace halfstep {

namespace {

// Returns the mutex of all generators, which hold it for a few instructions, or for a draw of mt19937.
ForkMutex& states() {
  static auto& mutex = *new ForkMutex;
  return mutex;
}

}  // namespace

std::string_view name(GeneratorKind kind) { return kind == GeneratorKind::mt19937 ? "mt19937" : "philox"; }

GeneratorKind parse_generator_kind(std::string_view text, std::string_view where) {
  check<ValueError>(text == "philox" || text == "mt19937", where, "must be philox or mt19937, got ", text);
  return text == "mt19937" ? GeneratorKind::mt19937 : GeneratorKind::philox;
}

GeneratorKind Generator::kind() const {
  const std::lock_guard lock(states());
  return twister_ ? GeneratorKind::mt19937 : GeneratorKind::philox;
}

Generator::State Generator::reserve(int64_t count) {
  const std::lock_guard lock(states());
  check<ValueError>(!twister_, "Generator", "numbers of mt19937 cannot be reserved: each depends on those before it",
                    Help{"draw with ops, or make a Generator of kind philox"});
  const State start{seed_, offset_};
  offset_ += uint64_t(count + 3) / 4;
  return start;
}

void Generator::with_twister(const std::function<void(Twister&)>& f) {
  const std::lock_guard lock(states());
  check<ValueError>(twister_ != nullptr, "Generator", "has no Mersenne Twister: its kind is philox");
  f(*twister_);
}

Generator::State Generator::state() const {
  const std::lock_guard lock(states());
  if (!twister_) return {seed_, offset_};
  return {seed_, twister_->count(), std::make_shared<const Twister>(*twister_)};
}

void Generator::set_state(const State& s) {
  auto twister = s.twister ? std::make_unique<Twister>(*s.twister) : nullptr;
  const std::lock_guard lock(states());
  seed_ = s.seed;
  offset_ = s.offset;
  twister_.swap(twister);
}

void Generator::move_on_to(uint64_t offset) {
  const std::lock_guard lock(states());
  if (!twister_) {
    offset_ = offset;
    return;
  }
  check<ValueError>(offset >= twister_->count(), "Generator", "mt19937 moves forwards only, got offset ", offset, " after ",
                    twister_->count());
  twister_->forget_normal();
  twister_->discard(offset - twister_->count());
}

void Generator::manual_seed(uint64_t seed) { manual_seed(seed, kind()); }
void Generator::manual_seed(uint64_t seed, GeneratorKind kind) {
  set_state({seed, 0, kind == GeneratorKind::mt19937 ? std::make_shared<const Twister>(seed) : nullptr});
}

Generator& default_generator() {
  static Generator g;
  return g;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }
void manual_seed(uint64_t seed, GeneratorKind kind) { default_generator().manual_seed(seed, kind); }

}  // namespace halfstep
