// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/dataset.h"

#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/base/check.h"
#include "framework/data/transforms/data_form.h"
#include "framework/data/transforms/image_transforms.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr int64_t kSamples = 3;  // in the batch from which shapes are learnt

void check_made(const Batch& made, const Batch& of) {
  check<ShapeError>(made.input.dim() > 0 && made.input.size(0) == of.input.size(0), "transform",
                    "must keep the batch as dimension 0, but made ", made.input.shape(), " of ", of.input.shape());
  check<DTypeError>(made.input.dtype() == DType::f32, "transform", "must make float32 of ", of.input.dtype(), ", got ",
                    made.input.dtype());
}

Batch run_one(const Transform& transform, const Batch& batch, const Draws& draws) {
  Batch out = transform.apply(batch, draws);
  check_made(out, batch);
  return out;
}

// Neighbours that run in one pass: transforms [first, last) that move pixels, and a scaling after them.
struct Group {
  size_t first, last, end;  // end: past the scaling, if there is one
  std::vector<const MoveTransform*> moves;
  const ChannelScaling* scaling = nullptr;
};

std::vector<Group> grouped(const Transforms& transforms) {
  std::vector<Group> out;
  size_t at = 0;
  while (at < transforms.size()) {
    Group g{at, at, at, {}};
    std::optional<float> fill;
    while (g.last < transforms.size()) {
      const MoveTransform* const next = transforms[g.last]->as_moves();
      if (!next || (fill && next->fill() && *fill != *next->fill())) break;
      if (next->fill()) fill = next->fill();
      g.moves.push_back(next);
      ++g.last;
    }
    g.end = g.last;
    if (g.end < transforms.size()) g.scaling = transforms[g.end]->as_scaling();
    if (g.scaling) ++g.end;
    if (g.end == at) g.end = at + 1;  // neither moves nor scaling
    at = g.end;
    out.push_back(std::move(g));
  }
  return out;
}

bool scales(const Group& group, const Shape& sample) {
  const size_t channels = group.scaling ? group.scaling->mean.size() : 1;
  return sample.size() == 3 && numel(sample) > 0 && (channels == 1 || int64_t(channels) == sample[0]);
}

class Transformed : public Dataset {
 public:
  Transformed(std::shared_ptr<const Dataset> base, Transforms transforms, uint64_t seed)
      : base_(std::move(base)),
        transforms_(std::move(transforms)),
        groups_(grouped(transforms_)),
        seed_(seed),
        shape_(transformed_shape(transforms_, base_->input_shape(), base_->classes())) {}
  int64_t size() const override { return base_->size(); }
  Shape input_shape() const override { return shape_; }
  Shape target_shape() const override { return base_->target_shape(); }
  int64_t classes() const override { return base_->classes(); }
  int64_t streams() const override { return base_->streams(); }
  bool label_sequences() const override { return base_->label_sequences(); }
  TargetScale target_scale() const override { return base_->target_scale(); }
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
    Batch out = first(indices, draws);
    for (const Group& g : groups_) {
      if (int(g.first) < draws.transform_index) continue;  // already applied to the bytes
      out = run_group(g, out, draws);
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
  Batch first(std::span<const int64_t> indices, Draws& draws) const {
    const Group& g = groups_[0];
    const Shape sample = base_->input_shape();
    if ((!g.moves.empty() || g.scaling) && scales(g, sample)) {
      if (const auto bytes = base_->byte_rows(indices)) {
        Batch out{move_and_scale({nullptr, &*bytes, sample}, g.moves, g.scaling, draws), bytes->target};
        draws.transform_index = int(g.end);
        draws.writable = true;
        return out;
      }
    }
    return base_->batch(indices, draws.epoch, draws.repeats);
  }

  Batch run_group(const Group& g, const Batch& batch, Draws& draws) const {
    draws.transform_index = int(g.first);
    Batch out = batch;
    if (!g.moves.empty()) check_images(g.moves[0]->name(), batch.input);
    const bool fused = !g.moves.empty() || g.scaling;
    if (fused && batch.input.device().is_cpu() && batch.input.dtype() == DType::f32 &&
        scales(g, without_batch(batch.input.shape()))) {
      out.input = move_and_scale({&batch, nullptr, without_batch(batch.input.shape())}, g.moves, g.scaling, draws);
    } else {
      for (size_t i = g.first; i < g.end; ++i) {
        draws.transform_index = int(i);
        const Batch next = run_one(*transforms_[i], out, draws);
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

Tensor TargetScale::in_units(const Tensor& scaled) const {
  if (*this == TargetScale()) return scaled;
  if (!each.empty()) {
    const DType dtype = scaled.dtype() == DType::f64 ? DType::f64 : DType::f32;
    std::vector<double> means, stds;
    for (int64_t i = 0; i < scaled.size(-1); ++i) {
      const TargetScale& of = each[size_t(i) % each.size()];
      means.push_back(of.mean), stds.push_back(of.std);
    }
    const NumberOptions as{.dtype = dtype, .device = scaled.device()};
    return scaled.to(dtype) * tensor(stds, as) + tensor(means, as);
  }
  return (scaled.dtype() == DType::f64 ? scaled : scaled.to(DType::f32)) * std + mean;
}

std::pair<Tensor, Tensor> Dataset::get(int64_t i) const {
  const Batch one = batch(std::span<const int64_t>(&i, 1));
  return {one.input.select(0, 0), one.target.select(0, 0)};
}

Split parse_split(std::string_view text) {
  if (text == "train") return Split::train;
  check<ValueError>(text == "test", "split", "must be \"train\" or \"test\", got \"", text, '"');
  return Split::test;
}

std::string_view name(Split split) { return split == Split::train ? "train" : "test"; }

std::shared_ptr<Dataset> transformed(std::shared_ptr<const Dataset> base, Transforms transforms, uint64_t seed) {
  check<ValueError>(base != nullptr, "transformed", "needs a data set");
  check<ValueError>(!transforms.empty(), "transformed", "needs a transform");
  check<DTypeError>(base->input_dtype() == DType::f32, "transformed", "transforms are for numbers, but the inputs are ",
                    base->input_dtype(), " tokens");
  return std::make_shared<Transformed>(std::move(base), std::move(transforms), seed);
}

Shape transformed_shape(const Transforms& transforms, const Shape& sample, int64_t classes, DType dtype) {
  const DefaultDevice on(Device::meta);
  const NoGrad no_grad;
  Batch batch{Tensor::empty(with_batch(kSamples, sample), {.dtype = dtype}),
              Tensor::empty({kSamples}, {.dtype = classes > 0 ? DType::i64 : DType::f32})};
  Draws draws{.classes = classes};
  for (const auto& transform : transforms) {
    batch = run_one(*transform, batch, draws);
    ++draws.transform_index;
  }
  return without_batch(batch.input.shape());
}

}  // namespace halfstep
