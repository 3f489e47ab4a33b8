// SPDX-License-Identifier: Apache-2.0
// Prints tensors as PyTorch does: tensor([[1.0000, 2.5000], [...]], dtype=float16).
#include <algorithm>
#include <cmath>

#include "framework/base/number_text.h"
#include "framework/base/text_stream.h"
#include "framework/tensor/tensor.h"

namespace halfstep {
namespace {

constexpr int64_t kSummarizeAbove = 1000;  // elements
constexpr int64_t kEdgeItems = 3;          // shown at each end of a dimension that is not shown whole
constexpr size_t kLineWidth = 80;
constexpr std::string_view kPrefix = "tensor(";

// One format for all shown elements: integers with a dot, four decimals, or exponents, depending on the range; the bounds are
// PyTorch's. Zeros and non-finite values do not influence the choice or the width.
class FloatFormat {
 public:
  explicit FloatFormat(const std::vector<double>& values) {
    double lo = INFINITY, hi = 0;
    bool all_integers = true;
    for (double v : values) {
      if (!counts_for_format(v)) continue;
      lo = std::min(lo, std::fabs(v)), hi = std::max(hi, std::fabs(v));
      all_integers = all_integers && v == std::nearbyint(v);
    }
    const bool wide = hi > 0 && (hi / lo > 1000 || hi > 1e8 || (!all_integers && lo < 1e-4));
    form_ = wide ? Form::exponent : all_integers ? Form::whole : Form::fixed;
    for (double v : values)
      if (counts_for_format(v)) width = std::max(width, (*this)(v).size());
  }
  std::string operator()(double v) const {
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
    return form_ == Form::exponent ? exponent_text(v, 4) : form_ == Form::whole ? fixed_text(v, 0) + '.' : fixed_text(v, 4);
  }
  size_t width = 1;

 private:
  static bool counts_for_format(double v) { return std::isfinite(v) && v != 0; }
  enum class Form : uint8_t { exponent, whole, fixed } form_;
};

class Printer {
 public:
  explicit Printer(const Tensor& t) : shape_(t.shape()), summarize_(t.numel() > kSummarizeAbove) {
    collect(0, 0, t.numel());
    if (t.is_floating_point()) {
      const auto all = t.to_vector<double>();
      std::vector<double> values;
      for (int64_t i : positions_) values.push_back(all[size_t(i)]);
      const FloatFormat format(values);
      width_ = format.width;
      for (double v : values) cells_.push_back(format(v));
    } else {
      const auto all = t.to_vector<int64_t>();
      for (int64_t i : positions_) {
        const int64_t v = all[size_t(i)];
        cells_.push_back(t.dtype() != DType::boolean ? std::to_string(v) : v ? "True" : "False");
        width_ = std::max(width_, cells_.back().size());
      }
    }
    for (std::string& c : cells_) c.insert(0, width_ - std::min(width_, c.size()), ' ');
  }

  std::string text() {
    print_block(0, kPrefix.size());
    return out_.str();
  }

 private:
  bool is_cut(int64_t n) const { return summarize_ && n > 2 * kEdgeItems; }

  // Calls f with each shown index of a dimension of n, and with -1 for the dots.
  template <class F>
  void for_shown(int64_t n, F f) const {
    for (int64_t i = 0; i < n; ++i) {
      if (is_cut(n) && i == kEdgeItems) {
        f(int64_t(-1));
        i = n - kEdgeItems;
      }
      f(i);
    }
  }

  // Collects the row-major positions of the shown elements.
  void collect(int dim, int64_t base, int64_t count) {
    if (dim == shape_.size()) return positions_.push_back(base);
    const int64_t inner = shape_[dim] ? count / shape_[dim] : 0;
    for_shown(shape_[dim], [&](int64_t i) {
      if (i >= 0) collect(dim + 1, base + i * inner, inner);
    });
  }

  // Prints a block whose opening bracket is at column `indent`.
  void print_block(int dim, size_t indent) {
    if (dim == shape_.size()) {
      out_ << cells_[next_++];
      return;
    }
    const bool is_row = dim == shape_.size() - 1;
    const std::string next_line = std::string(is_row ? 1 : size_t(shape_.size() - 1 - dim), '\n') + std::string(indent + 1, ' ');
    const size_t per_line = is_row ? std::max<size_t>(1, (kLineWidth - std::min(indent, kLineWidth)) / (width_ + 2)) : 1;
    size_t count = 0;
    out_ << '[';
    for_shown(shape_[dim], [&](int64_t i) {
      if (count > 0) out_ << ',' << (count % per_line == 0 ? next_line : " ");
      ++count;
      if (i < 0)
        out_ << (is_row ? " ..." : "...");
      else
        print_block(dim + 1, indent + 1);
    });
    out_ << ']';
  }

  Shape shape_;
  bool summarize_;
  std::vector<int64_t> positions_;
  std::vector<std::string> cells_;  // one per position, padded
  size_t width_ = 1;                // of each cell
  size_t next_ = 0;                 // cell to print next
  TextWriter out_;
};

// Returns a shape as a tuple: (2, 0).
std::string as_tuple(const Shape& shape) {
  std::string s = joined(shape);
  s.front() = '(', s.back() = ')';
  return s;
}

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "tensor(undefined)";
  const bool empty = numel() == 0;
  std::vector<std::string> suffixes;
  if (!device().is_cpu()) suffixes.push_back(joined("device='", device(), "'"));
  const bool hidden = device().is_meta();  // no values
  if (hidden || (empty && dim() != 1)) suffixes.push_back("size=" + as_tuple(shape()));
  // Nonempty output shows whether it is int64 or bool.
  const bool dtype_is_evident =
      dtype() == DType::f32 || (!empty && !hidden && (dtype() == DType::i64 || dtype() == DType::boolean));
  if (!dtype_is_evident) suffixes.push_back(joined("dtype=", dtype()));
  if (requires_grad()) suffixes.push_back(is_leaf() ? "requires_grad=True" : "grad_fn");

  std::string text = std::string(kPrefix) + (hidden ? "..." : empty ? "[]" : Printer(*this).text());
  const size_t line_start = text.rfind('\n') + 1;
  size_t column = text.size() - line_start + 2;
  for (const std::string& s : suffixes) {
    const bool fits = column + s.size() + 2 <= kLineWidth;
    text += fits ? ", " : ",\n" + std::string(kPrefix.size(), ' ');
    text += s;
    column = fits ? column + s.size() + 2 : kPrefix.size() + s.size();
  }
  return text + ")";
}

}  // namespace halfstep
