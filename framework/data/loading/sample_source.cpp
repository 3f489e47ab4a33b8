// SPDX-License-Identifier: Apache-2.0
#include "framework/data/loading/sample_source.h"

#include <exception>

#include "framework/base/check.h"
#include "framework/math/random.h"

namespace halfstep::samples {
namespace {

// Separates these draws from those of an order with the same seed.
constexpr uint64_t kGetSalt = 0x676574000000u;

class DatasetSource : public TypedSource<Batch> {
 public:
  explicit DatasetSource(std::shared_ptr<const Dataset> set) : set_(std::move(set)) {}
  int64_t size() const override { return set_->size(); }
  int64_t parallel_streams() const override { return set_->streams(); }
  bool may_give_views() const override { return true; }
  std::shared_ptr<void> make(std::span<const int64_t> indices, const Draw& draw) const override {
    return std::make_shared<Batch>(set_->batch(indices, draw.epoch, draw.repeats));
  }

 private:
  std::shared_ptr<const Dataset> set_;
};

}  // namespace

uint64_t seed_of(uint64_t seed, int64_t epoch, int64_t i, int64_t before) {
  math::Random4 key = math::philox(seed ^ kGetSalt, uint64_t(epoch));
  if (before > 0) key = math::philox((uint64_t(key.v[0]) << 32 | key.v[1]) ^ kGetSalt, uint64_t(before));
  const math::Random4 r = math::philox(uint64_t(key.v[0]) << 32 | key.v[1], uint64_t(i));
  return uint64_t(r.v[0]) << 32 | r.v[1];
}

uint64_t drawn_seed(Generator& generator) {
  if (generator.kind() == GeneratorKind::mt19937) {  // as PyTorch's samplers do
    uint64_t seed = 0;
    generator.with_twister([&](Twister& t) { seed = t.random64() & ~(uint64_t(1) << 63); });
    return seed;
  }
  const Generator::State at = generator.reserve(4);
  const math::Random4 r = math::philox(at.seed, at.offset);
  return uint64_t(r.v[0]) << 32 | r.v[1];
}

void sample_failed(const char* call, int64_t i, int64_t epoch) {
  const bool is_stream = std::string_view(call) == "next";
  const std::string where = is_stream ? joined("sample ", i, " of the stream") : joined("get(", i, ")");
  try {
    throw;
  } catch (Error& e) {
    e.add_line(joined("sample: ", where, ", epoch ", epoch));
    throw;
  } catch (const std::exception& e) {
    std::throw_with_nested(DataError(joined("[DataLoader] ", where, " of epoch ", epoch, " threw: ", e.what(),
                                            Help{is_stream ? "read the stream without the loader to see it alone"
                                                           : joined("call get(", i, ") without the loader to see it alone")})));
  }
}

void check_set(bool is_given) { check<ValueError>(is_given, "DataLoader", "needs a data set"); }

std::shared_ptr<const BatchSource> source_of_dataset(std::shared_ptr<const Dataset> set) {
  check_set(set != nullptr);
  return std::make_shared<DatasetSource>(std::move(set));
}

}  // namespace halfstep::samples
