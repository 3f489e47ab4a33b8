#include "framework/data/dataset.h"

#include <sstream>
#include <utility>

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
  Batch batch(std::span<const int64_t> indices) const override {
    std::vector<int64_t> mapped;
    mapped.reserve(indices.size());
    for (int64_t i : indices) {
      check<IndexError>(i >= 0 && i < size(), "Dataset", "a sample index must be in [0, ", size(), "), got ", i);
      mapped.push_back(indices_[size_t(i)]);
    }
    return base_->batch(mapped);
  }
  std::string describe() const override {
    std::ostringstream out;
    out << size() << " samples of: " << base_->describe();
    return out.str();
  }

 private:
  std::shared_ptr<const Dataset> base_;
  std::vector<int64_t> indices_;
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

}  // namespace halfstep
