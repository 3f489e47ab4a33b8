// SPDX-License-Identifier: Apache-2.0
#include "apps/catalog/pixel_range.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <variant>
#include <vector>

#include "apps/catalog/transforms.h"
#include "framework/base/number_text.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {
namespace {

bool leaves_pixels(const InputRange& r) { return r.high > kMostPixel || r.low < kLeastPixel; }

// Returns whether mean and std are those of pixels in [0, 1], and far from those of the numbers in the range.
bool are_of_pixels(const ChannelScaling& s, const InputRange& r) {
  constexpr double kFar = 3;  // deviations between the mean of the numbers and the one that is subtracted
  const auto is_share = [](float v) { return v > 0 && v < 1; };
  if (!std::all_of(s.mean.begin(), s.mean.end(), is_share) || !std::all_of(s.std.begin(), s.std.end(), is_share)) return false;
  const double mean = *std::max_element(s.mean.begin(), s.mean.end()), std = *std::max_element(s.std.begin(), s.std.end());
  return r.mean - mean > kFar * std;
}

InputRange scaled(const ChannelScaling& s, const InputRange& r) {
  InputRange out;
  for (size_t c = 0; c < s.mean.size(); ++c) {
    out.low = std::min(out.low, (r.low - s.mean[c]) / s.std[c]), out.high = std::max(out.high, (r.high - s.mean[c]) / s.std[c]);
    out.mean += (r.mean - s.mean[c]) / s.std[c] / double(s.mean.size());
  }
  return out;
}

// Returns what to do about numbers for `type`. before: whether a Normalize is before it.
std::string remedy(const std::string& type, bool before, const InputRange& r) {
  if (before) return type == "Normalize" ? "leave one Normalize out" : "put it before Normalize";
  if (r.low >= kLeastPixel)
    return joined(R"(put {"type": "Normalize", "mean": 0, "std": )", general_text(white_of(r.high), 9), R"(} before it)");
  return type == "Normalize" ? R"(leave it out, or give "from": "data" in place of these numbers)" : "leave it out";
}

}  // namespace

double white_of(double high) {
  for (const double white : {255., 1023., 4095., 65535.})
    if (high <= white) return white;
  return std::ceil(high);
}

InputRange input_range(const Dataset& data) {
  constexpr int64_t kMostSamples = 128, kMostValues = 1 << 20;
  InputRange out;
  if (data.input_dtype() != DType::f32 || data.size() == 0) return out;
  if (std::holds_alternative<ImageForm>(data.form().source)) return kPixelRange;
  const int64_t row = std::max<int64_t>(1, numel(data.input_shape()));
  const int64_t n = std::min({kMostSamples, std::max<int64_t>(1, kMostValues / row), data.size()});
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back(i * data.size() / n);
  const Tensor values = data.batch(rows).input.to(Device::cpu).contiguous();
  double sum = 0, count = 0;
  for (const float x : std::span(values.const_data_ptr<float>(), size_t(values.numel()))) {
    if (!std::isfinite(x)) continue;
    out.low = std::min<double>(out.low, x), out.high = std::max<double>(out.high, x);
    sum += x, ++count;
  }
  if (count > 0) out.mean = sum / count;
  return out;
}

bool may_take_pixels(const Json& transforms) {
  return std::any_of(transforms.begin(), transforms.end(),
                     [](const Json& t) { return t["type"] == "ColorJitter" || (t["type"] == "Normalize" && t["from"].is_null()); });
}

std::string pixel_misfit(const Json& transforms, InputRange range) {
  bool after_normalize = false;
  for (const Json& t : transforms) {
    if (!range.is_known()) return "";
    const std::string type = t["type"];
    const bool is_normalize = type == "Normalize", has_preset = is_normalize && !t["preset"].is_null();
    const auto made = is_normalize && t["from"].is_null() ? transform_catalog().row(t).make(t) : nullptr;
    const ChannelScaling* const scaling = made ? made->as_scaling() : nullptr;
    if ((type == "ColorJitter" || has_preset || (scaling && are_of_pixels(*scaling, range))) && leaves_pixels(range)) {
      const std::string what = !is_normalize ? "ColorJitter is"
                               : has_preset  ? joined("preset ", t["preset"].dump(), " is")
                                             : "mean and std of Normalize are";
      return joined(what, " for pixels in [0, 1], but the inputs go from ", general_text(range.low, 4), " to ",
                    general_text(range.high, 4), after_normalize ? " there: " : ": ", remedy(type, after_normalize, range));
    }
    if (!is_normalize) continue;
    after_normalize = after_normalize || !scaling || has_preset;
    range = scaling ? scaled(*scaling, range) : InputRange{-2, 2, 0};  // of "from": "data"
  }
  return "";
}

}  // namespace halfstep::app
