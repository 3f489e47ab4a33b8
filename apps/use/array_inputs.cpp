// SPDX-License-Identifier: Apache-2.0
#include "apps/use/array_inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/catalog/pixel_range.h"
#include "apps/use/array_categories.h"
#include "apps/use/predictor.h"
#include "apps/use/wide_inputs.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/data/formats/npy.h"
#include "framework/data/loading/far_values.h"
#include "framework/io/files/zip.h"
#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

constexpr double kFarFactor = 10;  // above the training data's largest number, if that is 1

// Returns whether the model was trained on pixels in [0, 1].
bool takes_pixels(const DataForm& form) {
  const auto* const array = std::get_if<TensorForm>(&form.source);
  return std::holds_alternative<ImageForm>(form.source) || (array && array->bytes == ByteMeaning::pixels);
}

// Returns the smallest and the largest number; NaN is neither. It is a loop, because two ops take longer than some models, and
// keeps the extremes of each of 32 lanes, which compilers put into vectors.
std::pair<float, float> range_of(const Tensor& numbers) {
  const Tensor rows = numbers.contiguous();
  const std::span<const float> all(rows.data_ptr<float>(), size_t(rows.numel()));
  std::array<float, 32> low, high;
  low.fill(std::numeric_limits<float>::infinity());
  high.fill(-std::numeric_limits<float>::infinity());
  const auto update = [&](size_t lane, float x) {
    low[lane] = x < low[lane] ? x : low[lane];
    high[lane] = x > high[lane] ? x : high[lane];
  };
  const size_t whole = all.size() / low.size() * low.size();
  for (size_t i = 0; i < whole; i += low.size()) {
    for (size_t lane = 0; lane < low.size(); ++lane) update(lane, all[i + lane]);
  }
  for (size_t i = whole; i < all.size(); ++i) update(i - whole, all[i]);
  return {*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
}

}  // namespace

void check_range(const Tensor& x, const DataForm& form, const std::string& what) {
  if (x.numel() == 0 || form.input_dtype != DType::f32) return;
  const auto* const array = std::get_if<TensorForm>(&form.source);
  const bool has_pixels = takes_pixels(form);
  if (!has_pixels && !(array && array->low <= array->high)) return;
  const Tensor numbers = x.to(DType::f32);
  const auto [low, high] = range_of(numbers);
  if (has_pixels) {
    const double most = is_floating(x.dtype()) ? kMostPixel : 1;
    check<DataError>(!(high > most), what, "the model takes pixels in [0, 1], got ", x.dtype(), " from ", low, " to ", high,
                     Help{joined("divide them by the value of white, such as ", white_of(high),
                                 "; halfstep predict and Python do so themselves with bytes (uint8)")});
    check<DataError>(!(low < kLeastPixel), what, "the model takes pixels in [0, 1], got ", x.dtype(), " from ", low, " to ", high,
                     Help{"give them as they were before any Normalize, which the model does itself"});
    return;
  }
  const bool is_unit_range = array->low >= 0 && array->high <= 1 && array->high > 0;
  check<DataError>(!is_unit_range || !(high > kFarFactor), what, "the training data had numbers from ", array->low, " to ",
                   array->high, ", got ", x.dtype(), " from ", low, " to ", high,
                   Help{"prepare them as the training data was: for bytes of pixels, x / 255"});
  if (array->bytes != ByteMeaning::numbers || array->high <= kFarFactor || low < 0 || high > 1 || !is_floating(x.dtype())) return;
  check<DataError>(ne(numbers, floor(numbers)).sum().item<int64_t>() == 0, what, "the training data had whole numbers from ",
                   array->low, " to ", array->high, ", got ", x.dtype(), " from ", low, " to ", high,
                   Help{"prepare them as the training data was: for pixels in [0, 1], x * 255"});
}

// Warns of samples that are not finite; the model answers them anyway. NaN that takes the place of missing values is counted.
void warn_of_not_finite(const Tensor& x, bool fills, const std::string& what) {
  if (x.numel() == 0 || !is_floating(x.dtype())) return;
  const Tensor numbers = x.to(DType::f32).reshape({x.size(0), -1});
  const int64_t missing = fills ? isnan(numbers).sum().item<int64_t>() : 0;
  if (missing > 0)
    logging::warn(joined(what, ": ", missing, missing == 1 ? " number is" : " numbers are",
                         " NaN, filled in as missing values of the training data were"));
  const Tensor known = fills ? logical_or(isfinite(numbers), isnan(numbers)) : isfinite(numbers);
  const std::vector<float> finite = amin(known.to(DType::f32), {1}).to_vector<float>();
  const auto first = std::find(finite.begin(), finite.end(), 0);
  if (first == finite.end()) return;
  logging::warn(joined(what, ": ", std::count(finite.begin(), finite.end(), 0), " of ", x.size(0), " samples hold ",
                       fills ? "" : "NaN or ", "infinity, the first is [", first - finite.begin(),
                       "]: their predictions mean nothing"));
}

// Warns of numbers far outside the training data's range.
void warn_of_far_numbers(const Tensor& x, const DataForm& form, const std::string& what) {
  const auto* const array = std::get_if<TensorForm>(&form.source);
  const auto* const table = std::get_if<TableForm>(&form.source);
  std::vector<double> low, high;  // of each column, or one of all
  if (array && array->low <= array->high) low = {array->low}, high = {array->high};
  if (table && table->options.encoding) low = table->options.encoding->low, high = table->options.encoding->high;
  const auto rows = x.size(0), width = rows > 0 ? x.numel() / rows : 0;  // width: numbers of a sample
  if (low.empty() || width == 0 || (low.size() > 1 && int64_t(low.size()) != width)) return;
  const Tensor numbers = x.to(DType::f32).contiguous();
  const float* number = numbers.const_data_ptr<float>();
  int64_t samples = 0, first = 0;
  double least = INFINITY, most = -INFINITY;
  size_t column = 0;
  for (int64_t i = 0; i < rows; ++i) {
    bool found_far = false;
    for (int64_t k = 0; k < width; ++k, ++number) {
      const size_t at = low.size() > 1 ? size_t(k) : 0;
      if (!is_far(*number, low[at], high[at]) || (samples + found_far > 0 && at != column)) continue;
      column = at, found_far = true;
      least = std::min<double>(least, *number), most = std::max<double>(most, *number);
    }
    if (found_far && samples++ == 0) first = i;
  }
  if (samples == 0) return;
  const std::string place = low.size() > 1 ? joined(" in column ", column) : "";
  logging::warn(joined(what, ": ", samples, " of ", rows, " samples, the first is [", first, "], have numbers far outside of the ",
                       "training data's", place, ", which go from ", low[column], " to ", high[column], ": ",
                       least == most ? joined(most) : joined("from ", least, " to ", most),
                       "; their predictions may mean nothing"));
}

namespace {

// Adds a batch dimension, and moves channels where the model has them.
Tensor with_channels_first(const Tensor& x, const DataForm& form) {
  const auto* const array = std::get_if<TensorForm>(&form.source);
  if (!array || !array->channels_last || form.input.empty()) return x.shape() == form.input ? x.unsqueeze(0) : x;
  Shape last;
  for (size_t i = 1; i < size_t(form.input.size()); ++i) last.push_back(form.input[i]);
  last.push_back(form.input[0]);
  const Tensor batch = x.shape() == last ? x.unsqueeze(0) : x;
  return batch.dim() == last.size() + 1 && without_batch(batch.shape()) == last ? batch.movedim(-1, 1).contiguous() : batch;
}

}  // namespace

Tensor array_inputs(const Tensor& given, const DataForm& form, const std::string& what, ArrayUnits in) {
  Tensor x = with_channels_first(given, form);
  const auto* const array = std::get_if<TensorForm>(&form.source);
  check<DataError>(x.dim() == form.input.size() + 1 && without_batch(x.shape()) == form.input, "predict", what,
                   ": the model takes inputs [N, ...] of shape ", form.input,
                   array && array->channels_last ? ", or with their channels last" : "", ", got ", given.shape());
  if (form.input_dtype == DType::f32) {
    if (takes_pixels(form) && x.dtype() == DType::u8) {
      const bool is_binary = are_zeros_and_ones(x);  // not pixels, as in the training data
      logging::warn(what + (is_binary ? ": bytes of 0 and 1 are read as they are, not divided by 255 as pixels up to 255 are"
                                      : ": bytes are read as pixels, divided by 255"));
      return is_binary ? x.to(DType::f32) : x.to(DType::f32) * double(1.f / 255);  // as the training data was
    }
    const InputUnits units = in == ArrayUnits::file ? input_units(form) : InputUnits();
    if (in == ArrayUnits::file) check_categories(x, form, what);
    warn_of_not_finite(x, !units.fill.empty(), what);
    check_range(x, form, what);
    if (in == ArrayUnits::file) warn_of_far_numbers(x, form, what);
    if (const std::string narrow = narrow_inputs_warning(form, x.dtype()); in == ArrayUnits::file && !narrow.empty())
      logging::warn(what + ": " + narrow);
    return x;
  }
  check<DataError>(!x.is_floating_point(), "predict", what, ": the model takes whole numbers, got ", given.dtype());
  x = x.to(DType::i64);
  const bool fits = x.numel() == 0 || (amin(x).item<int64_t>() >= 0 && amax(x).item<int64_t>() < form.vocabulary);
  check<DataError>(fits, "predict", what, ": tokens must be in 0..", form.vocabulary - 1);
  return x;
}

namespace {

// Sets the faults of samples with tokens outside the vocabulary.
void find_wrong_tokens(const Tensor& x, const DataForm& form, const std::string& what, std::vector<std::string>& faults) {
  const Tensor tokens = x.to(DType::i64).contiguous();
  const int64_t samples = x.size(0), width = samples > 0 ? x.numel() / samples : 0;
  const int64_t* token = tokens.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < samples; ++i) {
    for (int64_t k = 0; k < width; ++k, ++token)
      if ((*token < 0 || *token >= form.vocabulary) && faults[size_t(i)].empty())
        faults[size_t(i)] = joined("[predict] ", what, ": tokens must be in 0..", form.vocabulary - 1, ", got ", *token);
  }
}

}  // namespace

std::vector<std::string> sample_faults(const Tensor& given, const DataForm& form, const std::string& what) {
  const Tensor x = with_channels_first(given, form);
  if (x.dim() != form.input.size() + 1 || without_batch(x.shape()) != form.input || x.numel() == 0) return {};
  std::vector<std::string> out(size_t(x.size(0)));
  if (form.input_dtype == DType::f32) {
    try {
      check_categories(x, form, what);
      return {};
    } catch (const DataError&) {}  // of the first such sample
    for (int64_t i = 0; i < x.size(0); ++i) try {
        check_categories(x.narrow(0, i, 1), form, what);
      } catch (const DataError& e) {
        constexpr std::string_view kFirst = "sample 0:";
        std::string text = e.what();
        if (const size_t at = text.find(kFirst); at != text.npos) text.replace(at, kFirst.size(), joined("sample ", i, ':'));
        out[size_t(i)] = text;
      }
  } else if (!x.is_floating_point()) {
    find_wrong_tokens(x, form, what, out);
  }
  const bool any = std::any_of(out.begin(), out.end(), [](const std::string& fault) { return !fault.empty(); });
  return any ? out : std::vector<std::string>();
}

Tensor readable_samples(const Tensor& given, const DataForm& form, const std::vector<std::string>& faults) {
  if (faults.empty()) return given;
  std::vector<int64_t> kept;
  for (size_t i = 0; i < faults.size(); ++i)
    if (faults[i].empty()) kept.push_back(int64_t(i));
  const Tensor x = with_channels_first(given, form);
  return kept.empty() ? x.narrow(0, 0, 0) : x.index_select(0, tensor(kept));
}

ArrayFile read_array_file(const std::filesystem::path& path, const Json& config) {
  const std::string end = path.extension().string();
  if (end == ".npy") return {map_npy(path), {}};
  const Json& data = config.value("data", Json::object());
  const Json& train = data.value("train", Json::object());
  const auto name_of = [&](const char* key, const char* usual, const auto& has) {
    const std::string name = train.contains("path") && train.contains(key) && train[key].is_string() ? train[key] : Json(usual);
    return has(name) ? name : has(usual) ? std::string(usual) : std::string();
  };
  if (end == ".npz") {
    const auto has = [archive = ZipFile(path).names()](const std::string& name) {
      return std::find(archive.begin(), archive.end(), name + ".npy") != archive.end();
    };
    const std::string x = name_of("input", "x", has), y = name_of("target", "y", has);
    return {read_npz(path, x.empty() ? "x" : x), y.empty() || y == x ? Tensor() : read_npz(path, y)};
  }
  const TensorMap tensors = load_safetensors(path).tensors;
  const auto has = [&](const std::string& name) { return tensors.contains(name); };
  const std::string x = name_of("input", "x", has), y = name_of("target", "y", has);
  check<DataError>(!x.empty() || tensors.size() == 1, "predict", path.string(),
                   " must hold one tensor, or one named \"x\", but has ", tensors.size());
  return {x.empty() ? tensors.begin()->second : tensors.at(x), x.empty() || y.empty() || y == x ? Tensor() : tensors.at(y)};
}

Tensor known_answers(const Tensor& y, int64_t samples, const DataForm& form, const std::string& what,
                     std::optional<int64_t> ignored) {
  constexpr int64_t kLeftOut = -2, kUnknownClass = -1;  // kLeftOut: the loss ignores it
  const auto refuse = [&](const std::string& why) {
    logging::warn(joined(what, ": the targets ", y.shape(), " are not compared with the answers: ", why));
    return Tensor();
  };
  if (y.dim() < 1 || y.size(0) != samples) return refuse(joined("there are ", samples, " samples"));
  if (form.classes == 0) {
    if (y.numel() != samples * numel(form.target)) return refuse(joined("answers are numbers ", form.target));
    return y.to(DType::f64).reshape(with_batch(samples, form.target));
  }
  const Tensor values = y.to(DType::f64).contiguous();
  if (!form.target.empty() || form.label_sequences)
    return y.shape() == with_batch(samples, form.target) && !y.is_floating_point() && !form.label_sequences
               ? y.to(DType::i64)
               : refuse("answers are a class for each position");
  Tensor out = Tensor::empty({samples}, {.dtype = DType::i64, .device = Device::cpu});
  int64_t left_out = 0;
  const double* p = values.const_data_ptr<double>();
  int64_t* to = out.data_ptr<int64_t>();
  if (y.numel() == samples) {
    for (int64_t i = 0; i < samples; ++i) {
      const bool is_left_out = ignored && p[i] == double(*ignored);
      left_out += is_left_out;
      to[i] = is_left_out                                                            ? kLeftOut
              : p[i] == std::floor(p[i]) && p[i] >= 0 && p[i] < double(form.classes) ? int64_t(p[i])
                                                                                     : kUnknownClass;
    }
  } else if (y.shape() == Shape{samples, form.classes}) {
    for (int64_t i = 0; i < samples; ++i, p += form.classes) {
      const double* const hot = std::find(p, p + form.classes, 1.0);
      to[i] = std::count(p, p + form.classes, 0.0) == form.classes - 1 && hot != p + form.classes ? hot - p : kUnknownClass;
    }
  } else {
    return refuse(joined("answers are one of ", form.classes, " classes"));
  }
  if (left_out > 0)
    logging::warn(joined(what, ": ", left_out, " of ", samples, " answers are ", *ignored, ", which metrics leave out"));
  if (const auto unknown = std::count(to, to + samples, kUnknownClass); unknown > 0)
    logging::warn(joined(what, ": ", unknown, unknown == 1 ? " answer is" : " answers are",
                         " unknown and left out of the metrics, the first is [", std::find(to, to + samples, kUnknownClass) - to,
                         "]; the classes are 0 to ", form.classes - 1));
  return out;
}

}  // namespace halfstep::app
