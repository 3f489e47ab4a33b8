// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/answer_arrays.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "apps/terminal/terminal.h"
#include "apps/use/answer_text.h"
#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/formats/npy.h"
#include "framework/io/files/atomic_file.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

std::string ending_of(const std::filesystem::path& file) { return lower_case(file.extension().string()); }

// Returns the shape of an array of `rows` answers of this shape.
Shape with_rows(int64_t rows, const Shape& answer) {
  Shape out{rows};
  for (const int64_t size : answer) out.push_back(size);
  return out;
}

template <class T>
Tensor array_of(const std::vector<T>& values, const Shape& shape, DType dtype) {
  const Tensor out = Tensor::empty(shape, {.dtype = dtype, .device = Device::cpu});
  std::copy(values.begin(), values.end(), out.data_ptr<T>());
  return out;
}

}  // namespace

bool is_array_file(const std::string& file) { return ending_of(file) == ".npy" || ending_of(file) == ".npz"; }

AnswerArrays::AnswerArrays(std::filesystem::path file, const DataForm& form, bool probabilities)
    : file_(std::move(file)), form_(form), is_npz_(ending_of(file_) == ".npz"), has_probabilities_(probabilities) {
  check<ConfigError>(!form.label_sequences, "predict",
                     "answers are rows of labels, of different lengths, which are no array: ", file_.string(),
                     Help{"--json --out answers.jsonl"});
  const std::filesystem::path folder = file_.has_parent_path() ? file_.parent_path() : std::filesystem::path(".");
  check<IoError>(std::filesystem::is_directory(folder), "predict", file_.string(), " cannot be written: there is no folder ",
                 folder.string());
  for (int64_t c = 0; c < form.classes; ++c) class_numbers_.emplace(form.class_name(c), c);
}

void AnswerArrays::add(const Prediction& p) {
  if (!p.fault.empty() && p.rows == 0) whole_files_ += (whole_files_.empty() ? "" : ", ") + in_line(p.input);
  for (int64_t row = 0; row < std::max<int64_t>(p.rows, 1); ++row) add_row(p);
}

void AnswerArrays::add_row(const Prediction& p) {
  ++rows_;
  if (!p.fault.empty()) ++faults_;
  const size_t width = std::max(p.numbers.size(), p.labels.size());
  if (width_ == 0 && width > 0) {  // earlier inputs had no answer: fill their rows now
    width_ = width;
    const size_t missing = size_t(rows_ - 1) * width_;
    form_.classes > 0 ? classes_.assign(missing, -1) : numbers_.assign(missing, std::numeric_limits<double>::quiet_NaN());
  }
  if (form_.classes == 0) {
    numbers_.insert(numbers_.end(), p.numbers.begin(), p.numbers.end());
    numbers_.resize(size_t(rows_) * width_, std::numeric_limits<double>::quiet_NaN());
  } else if (form_.target.empty()) {
    classes_.push_back(p.top.empty() ? -1 : p.top[0].number);
    for (const double v : p.probabilities) shares_.push_back(float(v));
    if (has_probabilities_) shares_.resize(size_t(rows_ * form_.classes), std::numeric_limits<float>::quiet_NaN());
  } else {
    for (const std::string& label : p.labels) classes_.push_back(class_numbers_.at(label));
    classes_.resize(size_t(rows_) * width_, -1);
  }
}

void AnswerArrays::write(std::ostream& messages) const {
  // Without any answer rows have the size of a target.
  const int64_t width = width_ == 0 && rows_ > 0 ? numel(form_.target) : int64_t(width_);
  std::vector<int64_t> classes = classes_;
  std::vector<double> numbers = numbers_;
  if (form_.classes == 0) numbers.resize(size_t(rows_ * width), std::numeric_limits<double>::quiet_NaN());
  if (form_.classes > 0 && !form_.target.empty()) classes.resize(size_t(rows_ * width), -1);
  // Give each sample the targets' shape, if the count of numbers agrees.
  const bool is_column = std::holds_alternative<TableForm>(form_.source) && width == 1;
  const Shape shape = is_column || (form_.classes > 0 && form_.target.empty()) ? Shape{}
                      : numel(form_.target) == width                           ? form_.target
                                                                               : Shape{width};
  const DType dtype = needs_double(form_) ? DType::f64 : DType::f32;
  const Tensor answers = form_.classes > 0 ? array_of(classes, with_rows(rows_, shape), DType::i64)
                                           : array_of(numbers, with_rows(rows_, shape), DType::f64).to(dtype);
  std::vector<std::pair<std::string, Tensor>> arrays = {{"prediction", answers}};
  if (has_probabilities_) arrays.emplace_back("probabilities", array_of(shares_, Shape{rows_, form_.classes}, DType::f32));
  if (is_npz_)
    write_npz(file_, arrays);
  else
    atomic_write(file_, npy_bytes(arrays.back().second));
  messages << file_.string() << ": ";
  for (size_t i = is_npz_ ? 0 : arrays.size() - 1; i < arrays.size(); ++i)
    messages << (is_npz_ ? arrays[i].first + " " : "") << arrays[i].second.dtype() << ' ' << arrays[i].second.shape()
             << (i + 1 < arrays.size() ? ", " : "");
  if (form_.classes > 0) {
    constexpr int64_t kShown = 10;
    messages << "; classes by number:";
    for (int64_t c = 0; c < std::min(kShown, form_.classes); ++c)
      messages << (c ? ", " : " ") << c << ' ' << in_line(form_.class_name(c));
    if (form_.classes > kShown) messages << ", ...";
  }
  messages << '\n';
  if (faults_ > 0)
    messages << faults_ << (faults_ == 1 ? " row is " : " rows are ")
             << (form_.classes > 0 && !(has_probabilities_ && !is_npz_) ? "-1" : "NaN") << ": the input could not be read\n";
  if (!whole_files_.empty())
    messages << "each of these files, of which no row could be read, has a single row in the array: " << whole_files_ << '\n';
}

}  // namespace halfstep::app
