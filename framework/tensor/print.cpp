// Printing as PyTorch does: tensor([[1.0000, 2.5000], [...]], dtype=float16).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "framework/tensor/tensor.h"

namespace halfstep {
namespace {

constexpr int64_t kSummarizeAbove = 1000;  // elements
constexpr int64_t kEdgeItems = 3;
constexpr int kLineWidth = 80;

std::string printf_number(const char* format, double v) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, v);
  return buffer;
}

// One format for the whole tensor: integers with a dot, four decimals, or exponents, as the range demands.
class FloatFormat {
 public:
  explicit FloatFormat(const std::vector<double>& values) {
    double lo = INFINITY, hi = 0;
    bool whole = true;
    for (double v : values) {
      if (!std::isfinite(v) || v == 0) continue;
      const double a = std::fabs(v);
      lo = std::min(lo, a), hi = std::max(hi, a);
      whole = whole && v == std::nearbyint(v);
    }
    const bool wide = hi > 0 && (hi / lo > 1000 || hi > 1e8 || (!whole && lo < 1e-4));
    format_ = wide ? "%.4e" : whole ? "%.0f." : "%.4f";
  }
  std::string operator()(double v) const {
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
    return printf_number(format_, v);
  }

 private:
  const char* format_;
};

struct Printer {
  const Tensor& tensor;
  std::vector<std::string> cells;
  size_t width = 0;
  bool summarize;
  std::ostringstream out;

  // Positions shown along a dimension; -1 stands for the dots.
  std::vector<int64_t> shown(int64_t n) const {
    std::vector<int64_t> at;
    for (int64_t i = 0; i < n; ++i) {
      if (summarize && n > 2 * kEdgeItems && i == kEdgeItems) {
        at.push_back(-1);
        i = n - kEdgeItems - 1;
      } else {
        at.push_back(i);
      }
    }
    return at;
  }

  void row(int64_t base, int64_t n, int indent) {
    int column = indent;
    bool first = true;
    for (int64_t i : shown(n)) {
      if (!first) {
        out << ',';
        if (column + int(width) + 2 > kLineWidth) {
          out << '\n' << std::string(size_t(indent), ' ');
          column = indent;
        } else {
          out << ' ';
        }
      }
      first = false;
      const std::string cell = i < 0 ? "..." : cells[size_t(base + i)];
      if (i >= 0) out << std::string(width - std::min(width, cell.size()), ' ');
      out << cell;
      column += int(width) + 2;
    }
  }

  void block(int dim, int64_t base, int64_t stride, int indent) {
    out << '[';
    const int64_t n = tensor.shape()[dim];
    if (dim == tensor.dim() - 1) {
      row(base, n, indent + 1);
    } else {
      const int64_t inner = n ? stride / n : 0;
      bool first = true;
      for (int64_t i : shown(n)) {
        if (!first) out << ',' << std::string(size_t(tensor.dim() - dim - 1), '\n') << std::string(size_t(indent + 1), ' ');
        first = false;
        if (i < 0) out << "...";
        else block(dim + 1, base + i * inner, inner, indent + 1);
      }
    }
    out << ']';
  }
};

std::vector<std::string> format_cells(const Tensor& t) {
  std::vector<std::string> cells;
  if (t.is_floating_point()) {
    const auto values = t.to_vector<double>();
    const FloatFormat format(values);
    for (double v : values) cells.push_back(format(v));
  } else {
    for (int64_t v : t.to_vector<int64_t>())
      cells.push_back(t.dtype() == DType::boolean ? (v ? "True" : "False") : std::to_string(v));
  }
  return cells;
}

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "tensor(undefined)";
  Printer p{*this, format_cells(*this), 0, numel() > kSummarizeAbove, {}};
  for (const auto& c : p.cells) p.width = std::max(p.width, c.size());
  p.out << "tensor(";
  if (dim() == 0) p.out << p.cells[0];
  else if (numel() == 0) p.out << "[]";
  else p.block(0, 0, numel(), 7);
  if (numel() == 0 && dim() != 1) p.out << ", size=" << shape();
  if (dtype() != DType::f32 && dtype() != DType::i64 && dtype() != DType::boolean) p.out << ", dtype=" << dtype();
  if (!device().is_cpu()) p.out << ", device=" << device();
  if (requires_grad()) p.out << (is_leaf() ? ", requires_grad=True" : ", grad_fn");
  p.out << ')';
  return p.out.str();
}

}  // namespace halfstep
