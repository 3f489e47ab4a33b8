// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/arrays.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/formats/npy.h"
#include "framework/data/loading/equal_floats.h"
#include "framework/data/transforms/data_form.h"
#include "framework/io/weights/safetensors.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;

bool holds_integers(const Tensor& t) { return is_integral(t.dtype()); }

constexpr float kPixelScale = 1.f / 255;

// Returns inputs in the dtype in which the data set stores them. Throws DataError.
Tensor input_of(const std::string& label, const Tensor& t, bool tokens) {
  check<DataError>(t.dim() >= 1 && t.size(0) >= 1, label, "the input must have a row for each sample, got shape ", t.shape());
  check<DataError>(!tokens || holds_integers(t), label, "tokens must be whole numbers, got ", t.dtype());
  if (tokens) return t.to(DType::i64).contiguous();
  return (t.dtype() == DType::u8 ? t : t.to(DType::f32)).contiguous();
}

// Returns "inputs have 3 of 60 values beyond float32's range, such as 1e+300, which become infinite"; "" if there are none.
std::string beyond_float(const Tensor& t, const char* what) {
  if (t.dtype() != DType::f64) return "";
  const Tensor dense = t.contiguous();
  const double* const values = dense.const_data_ptr<double>();
  const auto is_beyond = [](double v) { return std::isfinite(v) && !std::isfinite(float(v)); };
  const int64_t count = std::count_if(values, values + dense.numel(), is_beyond);
  if (count == 0) return "";
  return joined(what, " have ", count, " of ", dense.numel(), " values beyond float32's range, such as ",
                *std::find_if(values, values + dense.numel(), is_beyond), ", which become infinite");
}

// Returns "inputs, column 2: 200 different numbers become 3 in float32; ..." for the first column of a table of numbers, or for all
// numbers of others, that become equal in float32; "" if there is none. Examines the first rows of a large array.
std::string equal_numbers(const Tensor& t, const char* what) {
  constexpr int64_t kMostNumbers = int64_t(1) << 22;  // that are examined
  constexpr int kNarrowBits = 16;                     // whose numbers float32 has
  const bool is_wide = t.dtype() == DType::f64 || (is_integral(t.dtype()) && 8 * int(size_of(t.dtype())) > kNarrowBits);
  if (!is_wide || t.dim() < 1 || t.numel() == 0) return "";
  const int64_t row = t.numel() / t.size(0), rows = std::clamp<int64_t>(kMostNumbers / row, 1, t.size(0));
  const Tensor some = t.narrow(0, 0, rows).to(DType::f64).contiguous();
  const double* const p = some.const_data_ptr<double>();
  const int64_t columns = t.dim() == 2 ? row : 1, count = some.numel() / columns;
  for (int64_t c = 0; c < columns; ++c) {
    const std::string text = equal_in_float(count, [&](int64_t i) { return p[i * columns + c]; });
    if (!text.empty())
      return joined(what, columns > 1 ? joined(", column ", c) : std::string(), ": ", text,
                    "; subtract their least value from them before they are saved");
  }
  return "";
}

ByteMeaning meaning_of_bytes(const Tensor& input, const ArrayOptions& o) {
  if (input.dtype() != DType::u8) return ByteMeaning::automatic;
  if (o.bytes != ByteMeaning::automatic) return o.bytes;
  return input.dim() > 2 && !are_zeros_and_ones(input) ? ByteMeaning::pixels : ByteMeaning::numbers;
}

// Returns whether each row [classes] has one 1, and 0 elsewhere.
bool is_one_hot(const Tensor& t) {
  if (t.dim() != 2 || t.size(0) < 2 || t.size(1) < 2) return false;
  const Tensor values = t.to(DType::f64).contiguous();
  const double* p = values.const_data_ptr<double>();
  for (int64_t i = 0; i < t.size(0); ++i, p += t.size(1))
    if (std::count(p, p + t.size(1), 1.0) != 1 || std::count(p, p + t.size(1), 0.0) != t.size(1) - 1) return false;
  return true;
}

// Returns the position of the 1 in each one-hot row.
Tensor positions_of_ones(const Tensor& t) {
  const Tensor values = t.to(DType::f64).contiguous();
  Tensor out = Tensor::empty({t.size(0)}, {.dtype = DType::i64, .device = Device::cpu});
  const double* p = values.const_data_ptr<double>();
  for (int64_t i = 0; i < t.size(0); ++i, p += t.size(1)) out.data_ptr<int64_t>()[i] = std::find(p, p + t.size(1), 1.0) - p;
  return out;
}

// Returns whether all values are whole numbers >= 0, or the ignored label.
bool is_whole(const Tensor& t, std::optional<int64_t> ignored) {
  constexpr double kMostLabel = 1e15;  // far more than classes, and exact in float64
  if (!is_floating(t.dtype())) return true;
  const Tensor values = t.to(DType::f64).contiguous();
  const double* const p = values.const_data_ptr<double>();
  return std::all_of(p, p + values.numel(), [&](double v) {
    return v == std::floor(v) && v < kMostLabel && (v >= 0 || (ignored && v == double(*ignored)));
  });
}

struct Targets {
  Tensor values;
  int64_t classes = 0;  // 0: regression
  std::string note{};   // conversions, for notes()
};

// Decides whether targets are classes, and converts them. Throws DataError.
Targets read_target(const std::string& label, const Tensor& input, const Tensor& t, const ArrayOptions& o) {
  const auto as_classes = [&](const Tensor& values, int64_t classes, std::string note) {
    const Tensor made = values.to(DType::i64).contiguous();
    if (classes == 0) classes = o.classes > 0 ? o.classes : std::max<int64_t>(1, classes_in(made, o.ignored));
    check<DataError>(o.classes == 0 || o.classes == classes, label, "targets must have ", o.classes, " classes, got ", t.shape(),
                     ", one-hot");
    return Targets{made, classes, std::move(note)};
  };
  const bool must_be_classes = o.classification == true, may_be_classes = o.classification.value_or(true);
  const bool has_class_dtype = !is_floating(t.dtype());
  const Shape x = input.shape();
  // Keeps integers that may be a class for each position of the input.
  const bool is_per_position =
      t.dim() == 2 && holds_integers(t) &&
      ((o.tokens && x.size() > 1 && x[1] == t.size(1)) || (x.size() > 2 && (x[1] == t.size(1) || x[2] == t.size(1))));
  if (may_be_classes && !is_per_position && is_one_hot(t))
    return as_classes(positions_of_ones(t), t.size(1),
                      joined("targets ", t.shape(), " are one-hot, read as ", t.size(1), " classes"));
  const bool is_column = t.dim() == 2 && t.size(1) == 1 && !is_per_position;
  if (may_be_classes && (must_be_classes ? is_whole(t, o.ignored) : has_class_dtype) && (t.dim() == 1 || is_column)) {
    std::string note;
    if (is_column) note = joined("targets ", t.shape(), " are read as [", t.size(0), ']');
    if (t.dtype() == DType::boolean) note += joined(note.empty() ? "" : "; ", "targets are booleans, read as classes 0 and 1");
    if (!has_class_dtype) note += joined(note.empty() ? "" : "; ", "targets are ", t.dtype(), ", all whole, read as classes");
    return as_classes(t.to(DType::i64).reshape({t.size(0)}), 0, note);
  }
  check<DataError>(!must_be_classes || holds_integers(t), label, "classes must be whole numbers, got ", t.dtype());
  if (may_be_classes && holds_integers(t)) return as_classes(t, 0, "");
  const Tensor numbers = t.to(DType::f32).contiguous();
  return {numbers.dim() == 1 ? numbers.view({numbers.size(0), 1}) : numbers};
}

}  // namespace

bool are_zeros_and_ones(const Tensor& bytes) {
  constexpr int64_t kPiece = 1 << 16;
  const Tensor dense = bytes.contiguous();
  const uint8_t* const p = dense.const_data_ptr<uint8_t>();
  for (int64_t at = 0; at < dense.numel(); at += kPiece)  // most pictures have larger bytes in the first piece
    if (*std::max_element(p + at, p + std::min(at + kPiece, dense.numel())) > 1) return false;
  return true;
}

bool looks_channels_last(const Shape& sample) {
  constexpr int64_t kMostChannels = 4;  // red, green, blue and alpha
  if (sample.size() != 3 || sample[0] <= kMostChannels || sample[1] <= kMostChannels) return false;
  return sample[2] == 1 || sample[2] == 3 || sample[2] == kMostChannels;
}

HALFSTEP_OPTIONS(
    ArrayOptions, option("input", &O::input, "name of the array of inputs"),
    option("target", &O::target, "name of the array of targets"),
    option("tokens", &O::tokens, "integer inputs are tokens, for Embedding"),
    in_words("task", &O::classification, "auto", "classification", "regression",
             "\"auto\": whole numbers, booleans and one-hot rows are classes"),
    option("bytes", &O::bytes,
           "of uint8 inputs: \"pixels\": 0 to 255 become 0 to 1; \"numbers\": they stay what they are; \"auto\": pixels where a "
           "sample has two dimensions or more and some byte is above 1, which a line says"),
    option(
        "channels_last", &O::channels_last,
        "inputs [N, H, W, C] or [N, T, C] are read, into memory, as [N, C, H, W] and [N, C, T], which layers and transforms take"),
    option("classes", &O::classes, "left out: one more than the largest of the training data, without loss.ignore_index")
        .at_least(1)
        .or_zero(),
    option("vocab_size", &O::vocabulary, "of tokens; left out: one more than the largest of the training data")
        .at_least(1)
        .or_zero())

struct ArrayDataset::Parts {
  Tensor input;
  Targets target;
  ByteMeaning bytes;
  std::vector<std::string> warnings{};

  static Parts of(const std::string& label, const Tensor& input, const Tensor& target, const ArrayOptions& o) {
    check_options(label, o);
    check<DataError>(target.dim() >= 1 && input.dim() >= 1 && input.size(0) == target.size(0), label,
                     "input and target must have a row for each sample, got shapes ", input.shape(), " and ", target.shape());
    const MemoryScope scope(MemoryTag::data);
    check<DataError>(!o.channels_last || input.dim() > 2, label,
                     "channels_last is for inputs [N, ..., channels] of three dimensions ", "or more, got ", input.shape());
    const Tensor given = input_of(label, input, o.tokens);
    const Tensor made = o.channels_last ? given.movedim(-1, 1).contiguous() : given;
    Parts out{made, read_target(label, made, target, o), meaning_of_bytes(made, o)};
    const bool has_numbers = out.target.classes == 0;
    for (const std::string& lost :
         {beyond_float(input, "inputs"), has_numbers ? beyond_float(target, "targets") : "",
          o.tokens ? "" : equal_numbers(input, "inputs"), has_numbers ? equal_numbers(target, "targets") : ""})
      if (!lost.empty()) out.warnings.push_back(lost);
    return out;
  }
};

ArrayDataset::ArrayDataset(const std::string& label, Parts p, const ArrayOptions& o)
    : TensorDataset(p.input, p.target.values, p.target.classes, p.bytes == ByteMeaning::pixels ? Affine{kPixelScale, 0} : Affine{},
                    label, o.ignored),
      notes_(std::move(p.target.note)),
      warnings_(std::move(p.warnings)),
      channels_last_(o.channels_last),
      bytes_(p.bytes) {
  if (channels_last_)
    notes_ = joined("inputs have their channels last, read as ", p.input.shape(), notes_.empty() ? "" : "; ", notes_);
  if (o.tokens && o.vocabulary > 0) set_vocabulary(o.vocabulary);
  if (bytes_ == ByteMeaning::automatic) return;
  const bool are_pixels = bytes_ == ByteMeaning::pixels, is_guess = o.bytes == ByteMeaning::automatic;
  const bool are_bits = !are_pixels && are_zeros_and_ones(p.input);
  notes_ = joined("inputs are bytes", are_bits ? " of 0 and 1" : "", ", read as ",
                  are_pixels ? "pixels in [0, 1]"
                  : are_bits ? "these numbers"
                             : "numbers from 0 to 255",
                  !is_guess    ? ""
                  : are_pixels ? " (\"bytes\": \"numbers\" leaves them as they are)"
                               : " (\"bytes\": \"pixels\" divides them by 255)",
                  notes_.empty() ? "" : "; ", notes_);
}

ArrayDataset::ArrayDataset(const std::string& label, const Tensor& input, const Tensor& target, const ArrayOptions& o)
    : ArrayDataset(label, Parts::of(label, input, target, o), o) {}

DataForm ArrayDataset::form() const {
  constexpr int64_t kMostValues = int64_t(1) << 22;  // that are examined for the range
  constexpr size_t kBatch = 64;                      // samples
  DataForm out = Dataset::form();
  TensorForm form{.bytes = bytes_, .channels_last = channels_last_};
  if (input().dtype() != DType::i64) {  // over some samples, spread evenly
    const int64_t row = std::max<int64_t>(1, numel(input_shape())), n = std::clamp<int64_t>(kMostValues / row, 1, size());
    std::vector<int64_t> rows(size_t(n), 0);
    for (int64_t i = 0; i < n; ++i) rows[size_t(i)] = i * size() / n;
    for (size_t from = 0; from < rows.size(); from += kBatch) {
      const Batch part = batch(std::span(rows).subspan(from, std::min(kBatch, rows.size() - from)));
      const Tensor values = part.input.contiguous();
      const float* const p = values.const_data_ptr<float>();
      for (int64_t i = 0; i < values.numel(); ++i)
        if (std::isfinite(p[i])) form.low = std::min<double>(form.low, p[i]), form.high = std::max<double>(form.high, p[i]);
    }
  }
  out.source = form;
  return out;
}

ArrayDataset ArrayDataset::npy(const fs::path& input, const fs::path& target, const ArrayOptions& options) {
  return ArrayDataset("NPY " + input.string(), map_npy(input), map_npy(target), options);
}

ArrayDataset ArrayDataset::npz(const fs::path& path, const ArrayOptions& options) {
  return ArrayDataset("NPZ " + path.string(), read_npz(path, options.input), read_npz(path, options.target), options);
}

ArrayDataset ArrayDataset::safetensors(const fs::path& path, const ArrayOptions& options) {
  const std::string label = "Safetensors " + path.string();
  const TensorFile file = map_safetensors(path);
  const auto tensor_named = [&](const std::string& name) {
    constexpr size_t kMostListed = 500;  // characters
    const auto found = file.tensors.find(name);
    if (found == file.tensors.end()) {
      std::string names;
      for (const auto& [existing, tensor] : file.tensors) names += (names.empty() ? "" : ", ") + existing;
      fail<DataError>(label, "there is no tensor \"", name, "\"; there are ",
                      names.empty() ? "none" : names.substr(0, kMostListed));
    }
    return found->second;
  };
  return ArrayDataset(label, tensor_named(options.input), tensor_named(options.target), options);
}

}  // namespace halfstep
