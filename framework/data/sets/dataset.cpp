// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/dataset.h"

#include <algorithm>
#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/base/check.h"
#include "framework/data/loading/sample_source.h"
#include "framework/data/transforms/data_form.h"
#include "framework/data/transforms/image_transforms.h"
#include "framework/ops/ops.h"
#include "framework/tensor/host_blocks.h"

namespace halfstep {
namespace {

constexpr int64_t kSamples = 3;  // of the batch that shows the shape of transformed samples

// Checks that a transform kept its contract.
void check_result(const Batch& result, const Batch& batch) {
  check<ShapeError>(result.input.dim() > 0 && result.input.size(0) == batch.input.size(0), "transform",
                    "must keep the batch as dimension 0, but made ", result.input.shape(), " of ", batch.input.shape());
  check<DTypeError>(result.input.dtype() == DType::f32, "transform", "must make float32 of ", batch.input.dtype(), ", got ",
                    result.input.dtype());
}

Batch apply_checked(const Transform& transform, const Batch& batch, const Draws& draws) {
  Batch out = transform.apply(batch, draws);
  check_result(out, batch);
  return out;
}

// Neighbours that run in one pass: transforms [first, moves_end) that move pixels, and a scaling after them; or a single other one.
struct Group {
  size_t first, moves_end, end;  // end: behind the scaling, if there is one
  std::vector<const MoveTransform*> moves;
  const ChannelScaling* scaling = nullptr;
};

std::vector<Group> groups_of(const Transforms& transforms) {
  std::vector<Group> out;
  size_t at = 0;
  while (at < transforms.size()) {
    Group group{at, at, at, {}};
    std::optional<float> fill;
    while (group.moves_end < transforms.size()) {
      const MoveTransform* const next = transforms[group.moves_end]->as_moves();
      if (!next || (fill && next->fill() && *fill != *next->fill())) break;
      if (next->fill()) fill = next->fill();
      group.moves.push_back(next);
      ++group.moves_end;
    }
    group.end = group.moves_end;
    if (group.end < transforms.size()) group.scaling = transforms[group.end]->as_scaling();
    if (group.scaling) ++group.end;
    if (group.end == at) group.end = at + 1;  // neither moves nor scaling
    at = group.end;
    out.push_back(std::move(group));
  }
  return out;
}

// Returns whether samples of this shape are images with as many channels as the scaling.
bool fits(const Group& group, const Shape& sample) {
  const size_t channels = group.scaling ? group.scaling->mean.size() : 1;
  return sample.size() == 3 && numel(sample) > 0 && (channels == 1 || int64_t(channels) == sample[0]);
}

class TransformedDataset : public Dataset {
 public:
  TransformedDataset(std::shared_ptr<const Dataset> base, Transforms transforms, uint64_t seed)
      : base_(std::move(base)),
        transforms_(std::move(transforms)),
        groups_(groups_of(transforms_)),
        seed_(seed),
        shape_(transformed_shape(transforms_, base_->input_shape(), base_->classes())) {}
  int64_t size() const override { return base_->size(); }
  Shape input_shape() const override { return shape_; }
  Shape target_shape() const override { return base_->target_shape(); }
  int64_t classes() const override { return base_->classes(); }
  int64_t streams() const override { return base_->streams(); }
  bool label_sequences() const override { return base_->label_sequences(); }
  ColumnScale target_scale() const override { return base_->target_scale(); }
  DataForm form() const override { return base_->form(); }
  std::vector<int64_t> lengths() const override { return base_->lengths(); }
  DataNotes notes() const override { return base_->notes(); }
  std::vector<int64_t> labels() const override { return base_->labels(); }
  Batch batch(std::span<const int64_t> indices) const override { return batch(indices, 0); }
  Batch batch(std::span<const int64_t> indices, int64_t epoch) const override { return batch(indices, epoch, {}); }
  Batch batch(std::span<const int64_t> indices, int64_t epoch, std::span<const int64_t> repeats) const override {
    const NoGrad no_grad;
    const MemoryScope scope(MemoryTag::data);
    Draws draws{.seed = seed_, .epoch = epoch, .indices = indices, .transform_index = 0, .classes = classes(), .repeats = repeats};
    Batch out = first_batch(indices, draws);
    for (const Group& group : groups_) {
      if (int(group.first) < draws.transform_index) continue;  // already applied to the bytes
      if (group.moves.empty() && !group.scaling) own_memory(out.input), own_memory(out.target);
      out = run_group(group, out, draws);
    }
    check<ShapeError>(without_batch(out.input.shape()) == shape_, "transform", "must make samples of shape ", shape_,
                      ", as it did on the device meta, got ", without_batch(out.input.shape()));
    return out;
  }
  std::string describe() const override { return joined(base_->describe(), ", transformed to ", shape_); }
  const Dataset& untransformed() const override { return base_->untransformed(); }

 private:
  // Returns the batch of the base; or, if the base has bytes, the result of the first group on them, with draws.transform_index
  // past that group.
  Batch first_batch(std::span<const int64_t> indices, Draws& draws) const {
    const Group& group = groups_[0];
    const Shape sample = base_->input_shape();
    if ((!group.moves.empty() || group.scaling) && fits(group, sample)) {
      if (const auto bytes = base_->byte_rows(indices)) {
        Batch out{move_and_scale({nullptr, &*bytes, sample}, group.moves, group.scaling, draws), bytes->target};
        draws.transform_index = int(group.end);
        draws.writable = true;
        return out;
      }
    }
    return base_->batch(indices, draws.epoch, draws.repeats);
  }

  Batch run_group(const Group& group, const Batch& batch, Draws& draws) const {
    draws.transform_index = int(group.first);
    Batch out = batch;
    if (!group.moves.empty()) check_images(group.moves[0]->name(), batch.input);
    const bool fused = !group.moves.empty() || group.scaling;
    if (fused && batch.input.device().is_cpu() && batch.input.dtype() == DType::f32 &&
        fits(group, without_batch(batch.input.shape()))) {
      out.input = move_and_scale({&batch, nullptr, without_batch(batch.input.shape())}, group.moves, group.scaling, draws);
    } else {
      for (size_t i = group.first; i < group.end; ++i) {
        draws.transform_index = int(i);
        const Batch next = apply_checked(*transforms_[i], out, draws);
        draws.writable = draws.writable || !next.input.shares_memory_with(out.input);
        out = next;
      }
    }
    draws.writable = draws.writable || !out.input.shares_memory_with(batch.input);
    return out;
  }

  std::shared_ptr<const Dataset> base_;
  Transforms transforms_;
  std::vector<Group> groups_;
  uint64_t seed_;
  Shape shape_;
};

}  // namespace

Tensor ColumnScale::in_units(const Tensor& scaled) const {
  if (*this == ColumnScale()) return scaled;
  if (!each.empty()) {
    const DType dtype = scaled.dtype() == DType::f64 ? DType::f64 : DType::f32;
    std::vector<double> means, stds;
    for (int64_t i = 0; i < scaled.size(-1); ++i) {
      const ColumnScale& column = each[size_t(i) % each.size()];
      means.push_back(column.mean), stds.push_back(column.std);
    }
    const NumberOptions options{.dtype = dtype, .device = scaled.device()};
    return scaled.to(dtype) * tensor(stds, options) + tensor(means, options);
  }
  return (scaled.dtype() == DType::f64 ? scaled : scaled.to(DType::f32)) * std + mean;
}

void own_memory(Tensor& t) {
  if (!t.defined()) return;
  const Storage& storage = *t.storage();
  const bool is_foreign = storage.is_exposed() && t.device().is_cpu() && storage.data() && !is_host_block(storage.data());
  if (is_foreign || t.impl_ptr().use_count() > 1 || t.storage().use_count() > 1) t = t.clone();
}

std::pair<Tensor, Tensor> Dataset::get(int64_t i) const {
  const Batch sample = batch(std::span<const int64_t>(&i, 1));
  return {sample.input.select(0, 0), sample.target.select(0, 0)};
}

Split parse_split(std::string_view text) {
  if (text == "train") return Split::train;
  check<ValueError>(text == "test", "split", "must be \"train\" or \"test\", got \"", text, '"');
  return Split::test;
}

std::string_view name(Split split) { return split == Split::train ? "train" : "test"; }

std::shared_ptr<Dataset> transformed(std::shared_ptr<const Dataset> base, Transforms transforms, std::optional<uint64_t> seed) {
  check<ValueError>(base != nullptr, "transformed", "needs a data set");
  check<ValueError>(!transforms.empty(), "transformed", "needs a transform");
  check<DTypeError>(base->input_dtype() == DType::f32, "transformed", "transforms are for numbers, but the inputs are ",
                    base->input_dtype(), " tokens");
  const bool draws = std::any_of(transforms.begin(), transforms.end(), [](const auto& t) { return t->is_random(); });
  if (!seed) seed = draws ? samples::drawn_seed(default_generator()) : 0;
  return std::make_shared<TransformedDataset>(std::move(base), std::move(transforms), *seed);
}

Shape transformed_shape(const Transforms& transforms, const Shape& sample, int64_t classes, DType dtype) {
  const DefaultDevice on(Device::meta);
  const NoGrad no_grad;
  Batch batch{Tensor::empty(with_batch(kSamples, sample), {.dtype = dtype}),
              Tensor::empty({kSamples}, {.dtype = classes > 0 ? DType::i64 : DType::f32})};
  Draws draws{.classes = classes};
  for (const auto& transform : transforms) {
    batch = apply_checked(*transform, batch, draws);
    ++draws.transform_index;
  }
  return without_batch(batch.input.shape());
}

}  // namespace halfstep
