// SPDX-License-Identifier: Apache-2.0
// einsum: parses the equation into one label per dimension, then joins the operands pair by pair as batches of matrices.
#include "framework/ops/linalg/einsum.h"

#include <algorithm>
#include <array>
#include <map>

#include "framework/ops/core/registry.h"
#include "framework/ops/linalg/contractions.h"
#include "framework/ops/linalg/products.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

// Letters are character codes. The dimensions of "..." count from the last, so that operands of different rank align.
using Labels = std::vector<int>;
constexpr int kEllipsis = 256;

bool contains(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }

// The part of the equation for one tensor.
struct Term {
  Labels letters;
  int ellipsis = -1;  // number of letters before "...", or -1
};

// Parses one side of the equation: terms between commas.
std::vector<Term> read_terms(std::string_view text, std::string_view equation) {
  std::vector<Term> terms(1);
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    Term& term = terms.back();
    if (letter == ' ') continue;
    if (letter == ',') {
      terms.emplace_back();
    } else if (letter == '.') {
      check<ValueError>(text.substr(i, 3) == "...", "einsum", "a dot must be part of '...', got '", equation, "'");
      check<ValueError>(term.ellipsis < 0, "einsum", "a term has at most one '...', got '", equation, "'");
      term.ellipsis = int(term.letters.size());
      i += 2;
    } else {
      check<ValueError>((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'), "einsum",
                        "subscripts must be letters, got '", letter, "' in '", equation, "'");
      term.letters.push_back(letter);
    }
  }
  return terms;
}

// An operand, or the product of several.
struct Factor {
  Tensor x;
  Labels labels;  // one per dimension, each once
};

// Replaces dimensions i < j of x, of one size, by their diagonal as the last dimension.
Tensor diagonal_last(const Tensor& x, int i, int j) {
  const int64_t n = x.size(i);
  Dims order;
  Shape shape;
  for (int d = 0; d < x.dim(); ++d)
    if (d != i && d != j) order.push_back(d), shape.push_back(x.size(d));
  order.push_back(i);
  order.push_back(j);
  shape.push_back(n * n);
  return x.permute(order).reshape(shape).slice(-1, 0, n * n, n + 1);
}

// Returns the operand's labels, including those of "...".
Labels label_dimensions(const Term& term, const Tensor& x, size_t operand, std::string_view equation) {
  const int letters = int(term.letters.size()), rest = x.dim() - letters;
  check<ShapeError>(term.ellipsis >= 0 ? rest >= 0 : rest == 0, "einsum", "operand ", operand, " must have ",
                    term.ellipsis >= 0 ? "at least " : "", letters, " dimensions for '", equation, "', got ", x.shape());
  Labels labels = term.letters;
  for (int k = 0; k < rest; ++k) labels.insert(labels.begin() + term.ellipsis + k, kEllipsis + rest - 1 - k);
  return labels;
}

// Takes the diagonal of dimensions with one label.
Factor without_repeats(Factor factor, size_t operand, std::string_view equation) {
  for (size_t i = 0; i < factor.labels.size(); ++i) {
    for (size_t j = i + 1; j < factor.labels.size(); ++j) {
      if (factor.labels[i] != factor.labels[j]) continue;
      const int64_t m = factor.x.size(int(i)), n = factor.x.size(int(j));
      check<ShapeError>(m == n, "einsum", "subscript '", char(factor.labels[i]), "' repeats in operand ", operand, " of shape ",
                        factor.x.shape(), " for '", equation, "', so its sizes must match");
      factor.x = diagonal_last(factor.x, int(i), int(j));
      factor.labels.push_back(factor.labels[i]);
      factor.labels.erase(factor.labels.begin() + long(j));
      factor.labels.erase(factor.labels.begin() + long(i));
      i = size_t(-1);  // restart, because positions have moved
      break;
    }
  }
  return factor;
}

// Sums over the labels that are not in `keep`; sums of integers are int64.
Factor sum_out(Factor factor, const Labels& keep) {
  Dims dims;
  Labels left;
  for (size_t i = 0; i < factor.labels.size(); ++i) {
    if (contains(keep, factor.labels[i]))
      left.push_back(factor.labels[i]);
    else
      dims.push_back(int64_t(i));
  }
  if (dims.empty()) return factor;
  return {factor.x.sum(dims), left};
}

// Returns x with the labels' dimensions in the order of `groups`, joined to one dimension per group.
Tensor grouped(const Factor& factor, std::initializer_list<const Labels*> groups, const std::map<int, int64_t>& sizes) {
  Dims order;
  Shape shape;
  for (const Labels* group : groups) {
    int64_t n = 1;
    for (int label : *group) {
      order.push_back(std::find(factor.labels.begin(), factor.labels.end(), label) - factor.labels.begin());
      n *= sizes.at(label);
    }
    shape.push_back(n);
  }
  return factor.x.permute(order).reshape(shape);
}

// Multiplies two factors and sums over labels that are not in `needed`: as a batch of matrix products, [batch, left, inner] [batch,
// inner, right].
Factor join(Factor a, Factor b, const Labels& needed, const std::map<int, int64_t>& sizes) {
  const auto kept_by = [&](const Labels& other) {
    Labels keep = needed;
    keep.insert(keep.end(), other.begin(), other.end());
    return keep;
  };
  const DType dtype = a.x.dtype();
  a = sum_out(a, kept_by(b.labels));
  b = sum_out(b, kept_by(a.labels));
  a.x = a.x.to(dtype);  // a sum of integers is int64
  b.x = b.x.to(dtype);
  Labels batch, left, right, inner;
  for (int label : a.labels) (!contains(b.labels, label) ? left : contains(needed, label) ? batch : inner).push_back(label);
  for (int label : b.labels)
    if (!contains(a.labels, label)) right.push_back(label);

  const Labels none;
  Labels labels;
  Shape shape;
  for (const Labels* group : {&batch, &left, &right}) {
    for (int label : *group) {
      labels.push_back(label);
      shape.push_back(sizes.at(label));
    }
  }
  const auto matrices = [&] {
    return std::pair{grouped(a, {&batch, &left, &inner}, sizes), grouped(b, {&batch, &inner, &right}, sizes)};
  };
  Tensor y;
  if (inner.empty()) {
    const auto [x, z] = matrices();
    y = mul(x.reshape({x.size(0), x.size(1), 1}), z);
  } else if (left.empty() && right.empty()) {
    y = dot_rows(grouped(a, {&batch, &inner}, sizes), grouped(b, {&batch, &inner}, sizes));
  } else if (batch.empty()) {
    y = mm(grouped(a, {&left, &inner}, sizes), grouped(b, {&inner, &right}, sizes));
  } else {
    const auto [x, z] = matrices();
    y = bmm(x, z);
  }
  return {y.reshape(shape), labels};
}

// Returns the labels of the result: those of `text`, the part behind "->", or by default those that occur once, in order. ellipsis:
// the number of dimensions that "..." has.
Labels output_labels(const std::optional<std::string_view>& text, const std::vector<Labels>& inputs, int ellipsis,
                     std::string_view equation) {
  Labels out;
  const auto add_ellipsis = [&] {
    for (int k = ellipsis; k-- > 0;) out.push_back(kEllipsis + k);
  };
  std::map<int, int> count;
  for (const Labels& labels : inputs)
    for (int label : labels) ++count[label];
  if (!text) {
    add_ellipsis();
    for (const auto& [label, times] : count)  // alphabetical order, capitals first
      if (label < kEllipsis && times == 1) out.push_back(label);
    return out;
  }
  const std::vector<Term> terms = read_terms(*text, equation);
  check<ValueError>(terms.size() == 1, "einsum", "the output must be one term, got '", equation, "'");
  const Term& term = terms[0];
  for (size_t i = 0; i <= term.letters.size(); ++i) {
    if (int(i) == term.ellipsis) add_ellipsis();
    if (i == term.letters.size()) break;
    const int label = term.letters[i];
    check<ValueError>(count.contains(label), "einsum", "output subscript '", char(label), "' must appear in an operand, got '",
                      equation, "'");
    check<ValueError>(!contains(out, label), "einsum", "output subscript '", char(label), "' must appear once, got '", equation,
                      "'");
    out.push_back(label);
  }
  return out;
}

// The labels of each operand's dimensions, and the sizes of the labels.
struct Labelling {
  std::vector<Labels> inputs;
  std::map<int, int64_t> sizes;  // the larger one where a size of 1 broadcasts
  int ellipsis = 0;              // number of dimensions that "..." has

  // Throws ShapeError unless the operands fit the terms and each other.
  Labelling(const std::vector<Term>& terms, const Tensors& operands, std::string_view equation) {
    for (size_t i = 0; i < operands.size(); ++i) {
      const Tensor& x = operands[i];
      inputs.push_back(label_dimensions(terms[i], x, i, equation));
      if (terms[i].ellipsis >= 0) ellipsis = std::max(ellipsis, x.dim() - int(terms[i].letters.size()));
      for (int d = 0; d < x.dim(); ++d) {
        const int label = inputs[i][size_t(d)];
        int64_t& size = sizes.try_emplace(label, x.size(d)).first->second;
        check<ShapeError>(size == x.size(d) || size == 1 || x.size(d) == 1, "einsum", "sizes of ",
                          label < kEllipsis ? std::string("subscript '") + char(label) + "'" : std::string("'...'"),
                          " must match in '", equation, "', got ", size, " and ", x.size(d), " of operand ", i, " of shape ",
                          x.shape());
        if (size == 1) size = x.size(d);
      }
    }
  }
};

}  // namespace

Tensor einsum(std::string_view equation, const Tensors& operands) {
  check<ValueError>(!operands.empty(), "einsum", "needs at least one operand");
  check_same_device("einsum", operands);
  const size_t arrow = equation.find("->");
  const std::vector<Term> terms = read_terms(equation.substr(0, arrow), equation);
  check<ValueError>(terms.size() == operands.size(), "einsum", "'", equation, "' has ", terms.size(), " operands, got ",
                    operands.size());

  const Labelling labelling(terms, operands, equation);
  const std::map<int, int64_t>& sizes = labelling.sizes;
  std::optional<std::string_view> output;
  if (arrow != std::string_view::npos) output = equation.substr(arrow + 2);
  const Labels out = output_labels(output, labelling.inputs, labelling.ellipsis, equation);

  Tensors in = operands;
  apply_policy(kEinsumInfo, in);
  if (in.size() > 1) check_product_dtypes("einsum", in);
  const autocast::Off off;
  std::vector<Factor> factors;
  for (size_t i = 0; i < in.size(); ++i) {
    Factor factor = without_repeats({in[i], labelling.inputs[i]}, i, equation);
    // A broadcast dimension of size 1 is dropped: the other factors have it.
    for (int d = factor.x.dim(); d-- > 0;) {
      if (factor.x.size(d) == sizes.at(factor.labels[size_t(d)])) continue;
      factor.x = factor.x.squeeze(d);
      factor.labels.erase(factor.labels.begin() + d);
    }
    factors.push_back(factor);
  }
  Factor result = factors[0];
  for (size_t i = 1; i < factors.size(); ++i) {
    Labels needed = out;
    for (size_t k = i + 1; k < factors.size(); ++k) needed.insert(needed.end(), factors[k].labels.begin(), factors[k].labels.end());
    result = join(result, factors[i], needed, sizes);
  }
  result = sum_out(result, out);
  Dims order;
  for (int label : out) order.push_back(std::find(result.labels.begin(), result.labels.end(), label) - result.labels.begin());
  return result.x.permute(order);
}

}  // namespace halfstep
