// SPDX-License-Identifier: Apache-2.0
#include "framework/base/generator.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>
#include <numbers>
#include <numeric>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/draw_log.h"
#include "framework/base/fork_mutex.h"
#include "framework/base/text_stream.h"

namespace halfstep {

double Twister::normal() {
  if (second_normal_) return *std::exchange(second_normal_, {});
  const double u = uniform64(), v = uniform64();
  const double radius = std::sqrt(-2.0 * std::log1p(-v)), angle = 2.0 * std::numbers::pi * u;
  second_normal_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

void Twister::discard(uint64_t words) {
  engine_.discard(words);
  count_ += words;
}

std::vector<int64_t> Twister::permutation(int64_t n) {
  std::vector<int64_t> out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), int64_t(0));
  // As in PyTorch: long lists take 64-bit numbers, because the remainder of a 32-bit number would not be uniform.
  constexpr uint64_t kShortLists = 0xffffffffu / 20;
  if (uint64_t(n) < kShortLists) {
    for (int64_t i = 0; i < n - 1; ++i) std::swap(out[size_t(i)], out[size_t(i) + random() % uint64_t(n - i)]);
    return out;
  }
  for (int64_t i = 0; i < n; ++i) std::swap(out[size_t(i)], out[random64() % uint64_t(i + 1)]);
  return out;
}

std::string Twister::text() const {
  TextWriter out;
  out << count_ << ' ' << second_normal_.has_value() << ' ' << std::bit_cast<uint64_t>(second_normal_.value_or(0)) << ' '
      << engine_;
  return out.str();
}

std::optional<Twister> Twister::from_text(const std::string& text) {
  TextReader in(text);
  Twister out(0);
  bool has_second = false;
  uint64_t bits = 0;
  in >> out.count_ >> has_second >> bits >> out.engine_;
  if (!in) return {};
  if (has_second) out.second_normal_ = std::bit_cast<double>(bits);
  return out;
}

namespace {

constinit std::atomic<uint64_t> next_number{0};

Generator::State start_of(uint64_t seed, GeneratorKind kind) {
  return {seed, 0, kind == GeneratorKind::mt19937 ? std::make_shared<const Twister>(seed) : nullptr};
}

}  // namespace

std::string_view name(GeneratorKind kind) { return kind == GeneratorKind::mt19937 ? "mt19937" : "philox"; }

GeneratorKind parse_generator_kind(std::string_view text, std::string_view where) {
  check<ValueError>(text == "philox" || text == "mt19937", where, "must be philox or mt19937, got ", text);
  return text == "mt19937" ? GeneratorKind::mt19937 : GeneratorKind::philox;
}

Generator::Generator(uint64_t seed, GeneratorKind kind) : number_(next_number++) { put(start_of(seed, kind)); }

ForkMutex& Generator::mutex() {
  static constinit ForkMutex mutex;
  return mutex;
}

uint64_t Generator::made() { return next_number; }

GeneratorKind Generator::kind() const {
  const DrawLog::Use use(const_cast<Generator&>(*this), false);
  return use.from().twister_ ? GeneratorKind::mt19937 : GeneratorKind::philox;
}

Generator::State Generator::reserve(int64_t count) {
  const DrawLog::Use use(*this);
  Generator& from = use.from();
  check<ValueError>(!from.twister_, "Generator", "numbers of mt19937 cannot be reserved: each depends on those before it",
                    Help{"draw with ops, or make a Generator of kind philox"});
  const State start{from.seed_, from.offset_};
  from.offset_ += uint64_t(count + kBlockSize - 1) / uint64_t(kBlockSize);
  return start;
}

void Generator::with_twister(const std::function<void(Twister&)>& f) {
  const DrawLog::Use use(*this);
  check<ValueError>(use.from().twister_ != nullptr, "Generator", "has no Mersenne Twister: its kind is philox");
  f(*use.from().twister_);
}

Generator::State Generator::state() const { return DrawLog::Use(const_cast<Generator&>(*this), false).from().locked_state(); }

Generator::State Generator::locked_state() const {
  if (!twister_) return {seed_, offset_};
  return {seed_, twister_->count(), std::make_shared<const Twister>(*twister_)};
}

void Generator::set_state(const State& state) { DrawLog::Use(*this, false).from().put(state); }

void Generator::put(const State& state) {
  auto twister = state.twister ? std::make_unique<Twister>(*state.twister) : nullptr;
  seed_ = state.seed;
  offset_ = state.offset;
  twister_.swap(twister);
}

void Generator::move_on_to(uint64_t offset) {
  const DrawLog::Use use(*this, false);
  Generator& from = use.from();
  if (!from.twister_) {
    from.offset_ = offset;
    return;
  }
  const uint64_t count = from.twister_->count();
  check<ValueError>(offset >= count, "Generator", "mt19937 moves forwards only, got offset ", offset, " after ", count);
  from.twister_->forget_normal();
  from.twister_->discard(offset - count);
}

void Generator::manual_seed(uint64_t seed) { manual_seed(seed, kind()); }
void Generator::manual_seed(uint64_t seed, GeneratorKind kind) { set_state(start_of(seed, kind)); }

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }
void manual_seed(uint64_t seed, GeneratorKind kind) { default_generator().manual_seed(seed, kind); }

}  // namespace halfstep
