// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/synthetic.h"

#include "framework/backend/backend.h"
#include "framework/base/check.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

constexpr const char* kRandom = "Random";

TensorDataset<> make(const RandomOptions& o) {
  check_options(kRandom, o);
  check<ValueError>(o.batch_size >= 1, kRandom, "batch_size must be >= 1, got ", o.batch_size);
  const auto rows = [&](const Shape& sample) {
    Shape shape{o.num_batches * o.batch_size};
    for (int64_t n : sample) shape.push_back(n);
    return shape;
  };
  const MemoryScope scope(MemoryTag::data);
  Backend& backend = backend_for(o.device);
  Generator generator(o.seed);
  const Tensor input = Tensor::empty(rows(o.input_shape), {.device = o.device});
  backend.random_normal(input.view(), generator.reserve(input.numel()), 0, 1);
  const bool has_classes = o.classes > 0;
  const Tensor target = Tensor::empty(rows(has_classes ? Shape() : o.target_shape),
                                      {.dtype = has_classes ? DType::i64 : DType::f32, .device = o.device});
  const Generator::State state = generator.reserve(target.numel());
  if (has_classes) {
    backend.random_integers(target.view(), state, 0, o.classes);
  } else {
    backend.random_normal(target.view(), state, 0, 1);
  }
  return TensorDataset(input, target, o.classes, {}, kRandom);
}

}  // namespace

HALFSTEP_OPTIONS(RandomOptions, option("num_batches", &O::num_batches, "batches").at_least(1),
                 option("classes", &O::classes, "classes; 0: regression").at_least(0))

RandomDataset::RandomDataset(const RandomOptions& options) : TensorDataset(make(options)) {}

}  // namespace halfstep
