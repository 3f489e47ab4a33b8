#include "framework/data/dataset.h"

#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/base/check.h"

namespace halfstep {
namespace {

class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> base, std::vector<int64_t> indices) : base_(std::move(base)), indices_(std::move(indices)) {
    for (int64_t i : indices_) {
      check<IndexError>(i >= 0 && i < base_->size(), "subset", "indices must be in [0, ", base_->size(), "), got ", i);
    }
  }
  int64_t size() const override { return int64_t(indices_.size()); }
  Shape input_shape() const override { return base_->input_shape(); }
  Shape target_shape() const override { return base_->target_shape(); }
  int64_t classes() const override { return base_->classes(); }
  DType input_dtype() const override { return base_->input_dtype(); }
  int64_t vocabulary() const override { return base_->vocabulary(); }
  bool label_sequences() const override { return base_->label_sequences(); }
  TargetScale target_scale() const override { return base_->target_scale(); }
  Batch batch(std::span<const int64_t> indices) const override {
    std::vector<int64_t> mapped;
    mapped.reserve(indices.size());
    for (int64_t i : indices) {
      check<IndexError>(i >= 0 && i < size(), "Dataset", "a sample index must be in [0, ", size(), "), got ", i);
      mapped.push_back(indices_[size_t(i)]);
    }
    return base_->batch(mapped);
  }
  std::string describe() const override { return joined(size(), " samples of: ", base_->describe()); }

 private:
  std::shared_ptr<const Dataset> base_;
  std::vector<int64_t> indices_;
};

constexpr int64_t kSamples = 3;  // of the batch that shapes are learnt from

Tensor run(const Transforms& transforms, Tensor input) {
  const NoGrad no_grad;
  const int64_t samples = input.size(0);
  for (const auto& transform : transforms) {
    const Tensor out = (*transform)(input);
    check<ShapeError>(out.dim() > 0 && out.size(0) == samples, "transform", "must keep the batch as dimension 0, but made ",
                      out.shape(), " of ", input.shape());
    check<DTypeError>(out.dtype() == DType::f32, "transform", "must make float32 of ", input.dtype(), ", got ", out.dtype());
    input = out;
  }
  return input;
}

class Transformed : public Dataset {
 public:
  Transformed(std::shared_ptr<const Dataset> base, Transforms transforms)
      : base_(std::move(base)), transforms_(std::move(transforms)), shape_(transformed_shape(transforms_, base_->input_shape())) {}
  int64_t size() const override { return base_->size(); }
  Shape input_shape() const override { return shape_; }
  Shape target_shape() const override { return base_->target_shape(); }
  int64_t classes() const override { return base_->classes(); }
  int64_t streams() const override { return base_->streams(); }
  bool label_sequences() const override { return base_->label_sequences(); }
  TargetScale target_scale() const override { return base_->target_scale(); }
  Batch batch(std::span<const int64_t> indices) const override {
    Batch out = base_->batch(indices);
    const MemoryScope scope(MemoryTag::data);
    out.input = run(transforms_, out.input);
    check<ShapeError>(without_batch(out.input.shape()) == shape_, "transform", "must make samples of shape ", shape_,
                      ", as it did on the device meta, got ", without_batch(out.input.shape()));
    return out;
  }
  std::string describe() const override { return joined(base_->describe(), ", transformed to ", shape_); }

 private:
  std::shared_ptr<const Dataset> base_;
  Transforms transforms_;
  Shape shape_;
};

}  // namespace

Split parse_split(std::string_view text) {
  if (text == "train") return Split::train;
  check<ValueError>(text == "test", "split", "must be \"train\" or \"test\", got \"", text, '"');
  return Split::test;
}

std::string_view name(Split split) { return split == Split::train ? "train" : "test"; }

std::shared_ptr<Dataset> subset(std::shared_ptr<const Dataset> base, std::vector<int64_t> indices) {
  check<ValueError>(base != nullptr, "subset", "needs a data set");
  return std::make_shared<Subset>(std::move(base), std::move(indices));
}

std::shared_ptr<Dataset> transformed(std::shared_ptr<const Dataset> base, Transforms transforms) {
  check<ValueError>(base != nullptr, "transformed", "needs a data set");
  check<DTypeError>(base->input_dtype() == DType::f32, "transformed", "transforms are for numbers, but the inputs are ",
                    base->input_dtype(), " tokens");
  return std::make_shared<Transformed>(std::move(base), std::move(transforms));
}

Shape transformed_shape(const Transforms& transforms, const Shape& sample) {
  const DefaultDevice on(Device::meta);
  return without_batch(run(transforms, Tensor::empty(with_batch(kSamples, sample))).shape());
}

}  // namespace halfstep
