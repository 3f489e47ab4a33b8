// SPDX-License-Identifier: Apache-2.0
// Crops, flips and padding, which move pixels, and the scaling of channels, which runs in the same pass.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "framework/base/check.h"
#include "framework/data/transforms/image_transforms.h"

namespace halfstep {
namespace {

template <class O>
Option<O> crop_size() {
  return option("size", &O::size, "of the crop: one number, or height and width").at_least(1).at_most(kMaxImageEdge).required();
}
template <class O>
Option<O> padding_of() {
  return option("padding", &O::padding, "on all sides; or left and right, above and below; or left, above, right, below")
      .at_least(0)
      .at_most(kMaxImageEdge);
}

// Returns the index in [0, n) to which an outside `i` is mapped; -1: none.
int64_t source_index(int64_t i, int64_t n, PadMode mode) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case PadMode::edge: return i < 0 ? 0 : n - 1;
    case PadMode::reflect: return i < 0 ? -i : 2 * n - 2 - i;
    case PadMode::symmetric: return i < 0 ? -i - 1 : 2 * n - 1 - i;
    case PadMode::constant: break;
  }
  return -1;
}

// Pads the sources of an axis, as `mode` says.
void pad_axis(std::vector<int32_t>& axis, int64_t before, int64_t after, PadMode mode, std::string_view name) {
  if (before == 0 && after == 0) return;
  const int64_t n = int64_t(axis.size()), most = mode == PadMode::reflect ? n - 1 : n;
  check<ShapeError>(mode == PadMode::constant || mode == PadMode::edge || (before <= most && after <= most), name, "padding by ",
                    before, " and ", after, " needs more than an edge of ", n, " pixels to mirror");
  std::vector<int32_t> out(size_t(before + n + after));
  for (int64_t i = 0; i < int64_t(out.size()); ++i) {
    const int64_t at = source_index(i - before, n, mode);
    out[size_t(i)] = at < 0 ? -1 : axis[size_t(at)];
  }
  axis = std::move(out);
}

// Keeps `size` sources of an axis from `from` on.
void crop_axis(std::vector<int32_t>& axis, int64_t from, int64_t size) {
  axis.erase(axis.begin(), axis.begin() + from);
  axis.resize(size_t(size));
}

// A run of columns whose sources are neighbours, forwards or backwards; columns outside it are filled.
struct Run {
  int64_t begin = 0, end = 0, step = 1;
};
// Returns the run that has all columns with sources; nothing if they do not form one.
std::optional<Run> run_of(const std::vector<int32_t>& columns) {
  Run run;
  const int64_t n = int64_t(columns.size());
  while (run.begin < n && columns[size_t(run.begin)] < 0) ++run.begin;
  run.end = run.begin;
  if (run.begin + 1 < n && columns[size_t(run.begin + 1)] == columns[size_t(run.begin)] - 1) run.step = -1;
  while (run.end < n && columns[size_t(run.end)] >= 0 &&
         columns[size_t(run.end)] == columns[size_t(run.begin)] + run.step * (run.end - run.begin))
    ++run.end;
  for (int64_t i = run.end; i < n; ++i) {
    if (columns[size_t(i)] >= 0) return {};
  }
  return run;
}

// Moves one sample. value(channel) returns the function that converts a pixel of that channel to float.
template <class From, class Value>
void move_sample(const From* from, const Shape& sample, const Moves& moves, float* to, const std::vector<float>& fill,
                 Value value) {
  const int64_t channels = sample[0], height = sample[1], width = sample[2], out_width = int64_t(moves.columns.size());
  const std::optional<Run> run = run_of(moves.columns);
  for (int64_t c = 0; c < channels; ++c) {
    const auto convert = value(size_t(c));
    const float blank = fill[size_t(c)];
    for (const int32_t row : moves.rows) {
      float* const line = to;
      to += out_width;
      if (row < 0) {
        std::fill(line, to, blank);
        continue;
      }
      const From* const source = from + (c * height + row) * width;
      if (run) {
        std::fill(line, line + run->begin, blank);
        const From* const first = run->begin < run->end ? source + moves.columns[size_t(run->begin)] : source;
        const int64_t n = run->end - run->begin;
        float* const out = line + run->begin;
        if (run->step > 0)
          for (int64_t i = 0; i < n; ++i) out[i] = convert(first[i]);
        else
          for (int64_t i = 0; i < n; ++i) out[i] = convert(first[-i]);
        std::fill(line + run->end, to, blank);
      } else {
        for (int64_t i = 0; i < out_width; ++i) {
          const int32_t column = moves.columns[size_t(i)];
          line[i] = column < 0 ? blank : convert(source[column]);
        }
      }
    }
  }
}

// Returns the moves that leave every pixel in its place.
Moves unmoved(const Shape& sample) {
  Moves out{std::vector<int32_t>(size_t(sample[1])), std::vector<int32_t>(size_t(sample[2]))};
  std::iota(out.rows.begin(), out.rows.end(), 0);
  std::iota(out.columns.begin(), out.columns.end(), 0);
  return out;
}

}  // namespace

HALFSTEP_OPTIONS(PadOptions, option("fill", &O::fill, "of padding_mode constant"),
                 option("padding_mode", &O::mode, "kind of padding"))
HALFSTEP_OPTIONS(RandomCropOptions,
                 OptionList<O>{crop_size<O>(), padding_of<O>().or_zero(),
                               option("pad_if_needed", &O::pad_if_needed, "pad images that are smaller than the window")} +
                     within(&O::pad))
HALFSTEP_OPTIONS(CenterCropOptions, crop_size<O>())
HALFSTEP_OPTIONS(PadEdgesOptions, OptionList<O>{padding_of<O>().required()} + within(&O::pad))
HALFSTEP_OPTIONS(FlipOptions, option("p", &O::p, "probability").at_least(0).at_most(1))

void check_images(std::string_view transform, const Tensor& input) {
  check<DTypeError>(input.dtype() == DType::f32, transform, "needs images, float32, got ", input.dtype());
  check<ShapeError>(input.dim() == 4, transform, "needs images, samples [C, H, W], got samples of shape ",
                    without_batch(input.shape()));
  check<ShapeError>(input.numel() > 0, transform, "needs images with pixels, got samples of shape ", without_batch(input.shape()));
  check<ShapeError>(input.size(2) <= kMaxImageEdge && input.size(3) <= kMaxImageEdge, transform, "takes images of at most ",
                    kMaxImageEdge, " pixels an edge, got ", without_batch(input.shape()));
  check<DeviceError>(!input.device().is_cuda(), transform, "needs data on the host, got ", input.device());
}

Tensor move_and_scale(const MoveSource& from, std::span<const MoveTransform* const> steps, const ChannelScaling* scaling,
                      const Draws& draws) {
  const Tensor input = from.batch ? from.batch->input.contiguous() : Tensor();
  const Shape& sample = from.sample;
  const int64_t samples = from.batch ? input.size(0) : int64_t(from.bytes->rows.size());
  Moves moves = unmoved(sample);
  for (const MoveTransform* step : steps) step->move(moves, nullptr);
  const Shape made{sample[0], int64_t(moves.rows.size()), int64_t(moves.columns.size())};
  if (from.batch && input.device().is_meta()) return Tensor::empty(with_batch(samples, made), {.device = Device::meta});

  const size_t channels = size_t(sample[0]);
  const auto scaled = [&](float x, size_t c) { return scaling ? scaling->of(x, c) : x; };
  float blank = 0;
  for (const MoveTransform* step : steps) blank = step->fill().value_or(blank);
  constexpr int kBytes = 256;
  std::vector<float> fill(channels), table;  // table: the value of each byte, by channel
  for (size_t c = 0; c < channels; ++c) fill[c] = scaled(blank, c);
  if (from.bytes) {
    for (size_t c = 0; c < channels; ++c)
      for (int i = 0; i < kBytes; ++i) table.push_back(scaled(from.bytes->affine.of(float(i)), c));
  }
  const Tensor out = Tensor::empty(with_batch(samples, made), {.device = Device::cpu});
  const int64_t in_size = numel(sample), out_size = numel(made);
  const Moves start = unmoved(sample);
  for (int64_t b = 0; b < samples; ++b) {
    moves = start;
    Draws step_draws = draws;
    for (const MoveTransform* step : steps) {
      SampleRandom random(step_draws, size_t(b));
      step->move(moves, &random);
      ++step_draws.transform_index;
    }
    float* const to = out.data_ptr<float>() + b * out_size;
    if (from.bytes) {
      move_sample(from.bytes->rows[size_t(b)], sample, moves, to, fill,
                  [&](size_t c) { return [of = table.data() + kBytes * c](uint8_t byte) { return of[byte]; }; });
    } else if (scaling) {
      move_sample(input.data_ptr<float>() + b * in_size, sample, moves, to, fill,
                  [&](size_t c) { return [scaling, c](float x) { return scaling->of(x, c); }; });
    } else {
      move_sample(input.data_ptr<float>() + b * in_size, sample, moves, to, fill, [](size_t) { return [](float x) { return x; }; });
    }
  }
  return out;
}

Batch MoveTransform::apply(const Batch& batch, const Draws& draws) const {
  check_images(name(), batch.input);
  const MoveTransform* const alone[] = {this};
  return {move_and_scale({&batch, nullptr, without_batch(batch.input.shape())}, alone, nullptr, draws), batch.target};
}

void RandomCrop::move(Moves& moves, SampleRandom* random) const {
  const auto [left, top, right, bottom] = options_.padding;
  const PadMode mode = options_.pad.mode;
  pad_axis(moves.rows, top, bottom, mode, name());
  pad_axis(moves.columns, left, right, mode, name());
  int axis_number = 0;
  for (std::vector<int32_t>* axis : {&moves.columns, &moves.rows}) {  // first the width, as in torchvision
    const int64_t size = options_.size[axis_number++ == 0 ? 1 : 0], missing = size - int64_t(axis->size());
    if (missing > 0 && options_.pad_if_needed) pad_axis(*axis, missing, missing, mode, name());
    check<ShapeError>(int64_t(axis->size()) >= size, name(), "a crop of [", options_.size[0], ", ", options_.size[1],
                      "] does not fit into an image with an edge of ", axis->size(), " pixels, padding included",
                      Help{"pad_if_needed pads it"});
  }
  const auto [height, width] = options_.size;
  const int64_t spare_rows = int64_t(moves.rows.size()) - height, spare_columns = int64_t(moves.columns.size()) - width;
  const int64_t row = random ? random->integer(spare_rows + 1) : 0, column = random ? random->integer(spare_columns + 1) : 0;
  crop_axis(moves.rows, row, height);
  crop_axis(moves.columns, column, width);
}

void CenterCrop::move(Moves& moves, SampleRandom*) const {
  int which = 0;
  for (std::vector<int32_t>* axis : {&moves.rows, &moves.columns}) {
    const int64_t size = options_.size[size_t(which++)], n = int64_t(axis->size());
    if (size > n) pad_axis(*axis, (size - n) / 2, (size - n + 1) / 2, PadMode::constant, name());
    crop_axis(*axis, int64_t(std::nearbyint(double(int64_t(axis->size()) - size) / 2)), size);  // Python rounds half to even, too
  }
}

void Pad::move(Moves& moves, SampleRandom*) const {
  pad_axis(moves.rows, options_.padding[1], options_.padding[3], options_.pad.mode, name());
  pad_axis(moves.columns, options_.padding[0], options_.padding[2], options_.pad.mode, name());
}

void RandomHorizontalFlip::move(Moves& moves, SampleRandom* random) const {
  if (random && random->chance(options_.p)) std::reverse(moves.columns.begin(), moves.columns.end());
}

void RandomVerticalFlip::move(Moves& moves, SampleRandom* random) const {
  if (random && random->chance(options_.p)) std::reverse(moves.rows.begin(), moves.rows.end());
}

}  // namespace halfstep
