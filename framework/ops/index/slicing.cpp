// SPDX-License-Identifier: Apache-2.0
#include "framework/ops/index/slicing.h"

#include <limits>

#include "framework/backend/observe.h"
#include "framework/ops/ops.h"

namespace halfstep {

// The view of x that numbers, slices, Ellipsis and None make, and the tensors among the indices, each at its dimension of the view.
class Indexed {
 public:
  Indexed(std::string_view op, const Tensor& x, std::span<const TensorIndex> indices) : view(x) {
    int taken = 0, ellipses = 0;
    for (const TensorIndex& i : indices) {
      taken += dimensions(i);
      ellipses += std::holds_alternative<indexing::EllipsisType>(i.value_);
    }
    check<IndexError>(taken <= x.dim(), op, "too many indices for shape ", x.shape(), ": they are for ", taken, " dimensions");
    check<IndexError>(ellipses <= 1, op, "there may be one Ellipsis, got ", ellipses);
    const int missing = x.dim() - taken;
    for (const TensorIndex& i : indices) std::visit([&](const auto& value) { add(value, missing); }, i.value_);
  }
  bool has_tensor() const { return any_tensor_; }

  Tensor view;
  Tensors indices;  // undefined: the whole dimension

 private:
  // Returns the number of x's dimensions that an index covers; 0 for Ellipsis.
  static int dimensions(const TensorIndex& i) {
    if (const auto* t = std::get_if<Tensor>(&i.value_)) return t->defined() && t->dtype() == DType::boolean ? t->dim() : 1;
    if (const auto* n = std::get_if<TensorIndex::Number>(&i.value_)) return n->is_bool ? 0 : 1;
    return std::holds_alternative<indexing::Slice>(i.value_) || std::holds_alternative<TensorIndex::List>(i.value_) ? 1 : 0;
  }
  // Leaves the next `count` dimensions of the view whole.
  void leave_whole(int count = 1) {
    at_ += count;
    indices.insert(indices.end(), size_t(count), Tensor());
  }
  // Apply one index to the view. missing: the number of dimensions that Ellipsis covers.
  void add(TensorIndex::New, int) {
    view = view.unsqueeze(at_);
    leave_whole();
  }
  void add(indexing::EllipsisType, int missing) { leave_whole(missing); }
  void add(const indexing::Slice& s, int) {
    view = view.slice(at_, s.start.value_or(0), s.stop.value_or(std::numeric_limits<int64_t>::max()), s.step.value_or(1));
    leave_whole();
  }
  void add(TensorIndex::Number n, int) {
    if (!n.is_bool) {
      view = view.select(at_, n.value);
      return;
    }
    view = view.unsqueeze(at_);
    add_indices(zeros({n.value}, {.dtype = DType::i64, .device = view.device()}));
  }
  void add(const TensorIndex::List& list, int) {
    const Tensor t = from_vector(list.values, {int64_t(list.values.size())}, view.device());
    add_indices(list.is_mask ? t.to(DType::boolean) : t);
  }
  void add(const Tensor& t, int) {
    if (!t.defined()) return leave_whole();
    if (is_number(t)) return add(TensorIndex::Number{t.item<int64_t>(), false}, 0);
    if (t.dtype() == DType::boolean && t.dim() == 0) {
      view = view.unsqueeze(at_);
      return add_indices(t.unsqueeze(0));
    }
    add_indices(t);
  }
  // Returns whether t is a 0-dim integer, which counts as a number: but not if an observer follows values, since it may vary, nor
  // if it must be fetched from a device.
  static bool is_number(const Tensor& t) {
    const bool is_integer = t.dim() == 0 && (t.dtype() == DType::i64 || t.dtype() == DType::i32);
    return is_integer && t.device().is_cpu() && !Observing::follow_values();
  }
  void add_indices(const Tensor& t) {
    any_tensor_ = true;
    indices.push_back(t);
    at_ += t.dtype() == DType::boolean ? t.dim() : 1;
  }

  int at_ = 0;  // dimension of the view for the next index
  bool any_tensor_ = false;
};

namespace {

// Removes leading dimensions of size 1, as Python's x[...] = values does.
Tensor without_leading_ones(Tensor values, int rank) {
  while (values.defined() && values.dim() > rank && values.size(0) == 1) values = values.squeeze(0);
  return values;
}

// Returns a number to be written into x, in its dtype.
Tensor number_like(const Tensor& x, Number value, std::string_view op) {
  check_fits(op, value, x.dtype());
  return scalar(value, {.dtype = x.dtype(), .device = x.device()});
}

}  // namespace

TensorIndex::TensorIndex(const char* dots) : value_(indexing::Ellipsis) {
  check<ValueError>(std::string_view(dots) == "...", "index", "text among the indices must be \"...\", got \"", dots, '"');
}

Tensor Tensor::index(std::initializer_list<TensorIndex> list) const { return index(std::span(list.begin(), list.size())); }
Tensor Tensor::index(std::span<const TensorIndex> list) const {
  const Indexed indexed("index", *this, list);
  return indexed.has_tensor() ? indexed.view.index(indexed.indices) : indexed.view;
}

IndexedPart::IndexedPart(const Tensor& from, const TensorIndex& at) : Tensor(from.index({at})), at_(at) {
  if (Indexed("index", from, std::span(&at, 1)).has_tensor()) from_ = from;
}
IndexedPart& IndexedPart::operator=(const Tensor& other) & {
  from_ = Tensor();
  Tensor::operator=(other);
  return *this;
}
IndexedPart Tensor::operator[](const TensorIndex& one) const { return {*this, one}; }

const Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> list, const Tensor& values) const& {
  return index_put_(std::span(list.begin(), list.size()), values);
}
const Tensor& Tensor::index_put_(std::span<const TensorIndex> list, const Tensor& values) const& {
  const Indexed indexed("index_put_", *this, list);
  if (indexed.has_tensor())
    indexed.view.index_put_(indexed.indices, without_leading_ones(values, 0));
  else
    indexed.view.copy_(without_leading_ones(values, indexed.view.dim()));
  return *this;
}

const Tensor& Tensor::index_put_(std::initializer_list<TensorIndex> list, Number value) const& {
  return index_put_(std::span(list.begin(), list.size()), value);
}
const Tensor& Tensor::index_put_(std::span<const TensorIndex> list, Number value) const& {
  return index_put_(list, number_like(*this, value, "index_put_"));
}

#define HS_PUT(Indices, Values) \
  const Tensor& Tensor::index_put_(Indices indices, Values value) const&& { return kept("index_put_").index_put_(indices, value); }
HS_PUT(std::initializer_list<TensorIndex>, const Tensor&)
HS_PUT(std::initializer_list<TensorIndex>, Number)
HS_PUT(std::span<const TensorIndex>, const Tensor&)
HS_PUT(std::span<const TensorIndex>, Number)
#undef HS_PUT

const Tensor& Tensor::write(const Tensor& values) const {
  check<ValueError>(get().storage.use_count() > 1 || impl_.use_count() > 1,
                    "operator=", "the left side must be a view of another tensor, got a tensor ", shape(),
                    " that nothing else refers to", Help{"the values would be lost; index_put_ writes at indices and masks"});
  return copy_(without_leading_ones(values, dim()));
}
const Tensor& Tensor::write(Number value) const { return write(number_like(*this, value, "operator=")); }
const Tensor& Tensor::kept(const char* where) const {
  check<ValueError>(!impl_ || !impl_->selected || impl_->storage.use_count() > 1 || impl_.use_count() > 1, where,
                    "the tensor must be a variable or a view, got the elements ", impl_ ? impl_->shape : Shape(),
                    " that index() copied, to which nothing else refers",
                    Help{"the values would be lost; x[mask] += 1 and index_put_ write to x. For a changed copy, use the op that "
                         "makes a tensor, as x.index({mask}).mul(2), or a variable for the copy"});
  return *this;
}

}  // namespace halfstep
