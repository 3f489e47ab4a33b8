// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/digits.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/loading/sample_numbers.h"
#include "framework/data/transforms/data_form.h"
#include "framework/tensor/storage.h"

namespace halfstep {
namespace {

constexpr const char* kDigits = "Digits";
constexpr int kSide = 28;

struct Point {
  float x, y;
};
using Stroke = std::vector<Point>;  // a polyline in the unit square, y down

// Appends points of an ellipse from angle `from` to `to`, in turns, clockwise from the right.
void arc(Stroke& stroke, float cx, float cy, float rx, float ry, float from, float to) {
  constexpr int kSteps = 10;
  for (int i = 0; i <= kSteps; ++i) {
    const float angle = 6.2831853f * (from + (to - from) * float(i) / kSteps);
    stroke.push_back({cx + rx * std::cos(angle), cy + ry * std::sin(angle)});
  }
}

// Returns the strokes of a digit; some digits have two forms, between which a random number decides.
std::vector<Stroke> glyph(int digit, SampleNumbers& random) {
  Stroke s;
  switch (digit) {
    case 0: arc(s, .5f, .5f, .28f, .45f, -.25f, .75f); return {s};
    case 1:
      if (random.uniform(0, 1) < .5f) s = {{.33f, .22f}};
      s.insert(s.end(), {{.53f, .05f}, {.5f, .95f}});
      return {s};
    case 2:
      arc(s, .5f, .3f, .27f, .25f, -.48f, .12f);
      s.insert(s.end(), {{.22f, .93f}, {.8f, .93f}});
      return {s};
    case 3:
      arc(s, .47f, .28f, .26f, .23f, -.42f, .22f);
      arc(s, .47f, .72f, .3f, .23f, -.22f, .42f);
      return {s};
    case 4:
      if (random.uniform(0, 1) < .5f) return {{{.56f, .06f}, {.2f, .62f}, {.84f, .62f}}, {{.64f, .36f}, {.62f, .96f}}};
      return {{{.27f, .08f}, {.24f, .5f}, {.78f, .5f}}, {{.74f, .08f}, {.7f, .96f}}};
    case 5:
      s = {{.78f, .07f}, {.32f, .07f}, {.27f, .45f}};
      arc(s, .46f, .67f, .3f, .26f, -.2f, .38f);
      return {s};
    case 6:
      s = {{.66f, .05f}, {.38f, .3f}, {.24f, .62f}};
      arc(s, .49f, .7f, .25f, .24f, .5f, -.5f);
      return {s};
    case 7: {
      std::vector<Stroke> out{{{.2f, .08f}, {.8f, .08f}, {.42f, .95f}}};
      if (random.uniform(0, 1) < .3f) out.push_back({{.35f, .52f}, {.74f, .5f}});
      return out;
    }
    case 8:
      arc(s, .5f, .28f, .22f, .22f, .25f, -.75f);
      arc(s, .5f, .73f, .27f, .23f, -.25f, .75f);
      return {s};
    default:
      arc(s, .5f, .31f, .24f, .25f, 0, 1);
      s.insert(s.end(), {{.72f, .55f}, {.6f, .95f}});
      return {s};
  }
}

class Canvas {
 public:
  // Sets each pixel to the larger of its value and `ink` times its cover by a line of this half-width, whose edge is one pixel
  // soft.
  void draw_line(Point a, Point b, float half_width, float ink) {
    const float reach = half_width + 1;
    const int x0 = pixel(std::min(a.x, b.x) - reach), x1 = pixel(std::max(a.x, b.x) + reach);
    const int y0 = pixel(std::min(a.y, b.y) - reach), y1 = pixel(std::max(a.y, b.y) + reach);
    const float dx = b.x - a.x, dy = b.y - a.y, squared_length = std::max(dx * dx + dy * dy, 1e-6f);
    for (int y = y0; y <= y1; ++y) {
      for (int x = x0; x <= x1; ++x) {
        const float px = float(x) - a.x, py = float(y) - a.y;
        const float t = std::clamp((px * dx + py * dy) / squared_length, 0.0f, 1.0f);
        const float ex = px - t * dx, ey = py - t * dy;
        const float cover = std::clamp(half_width + .5f - std::sqrt(ex * ex + ey * ey), 0.0f, 1.0f);
        float& value = values_[y * kSide + x];
        value = std::max(value, ink * cover);
      }
    }
  }
  const float* values() const { return values_; }

 private:
  static int pixel(float x) { return std::clamp(int(std::lround(x)), 0, kSide - 1); }
  float values_[kSide * kSide] = {};  // 0: paper, 1: ink
};

// Draws one image [28, 28]: strokes, perhaps a smudge, and noise.
void draw(int digit, SampleNumbers random, uint8_t* out) {
  const float angle = random.uniform(-.25f, .25f), shear = random.uniform(-.25f, .25f);
  const float width = random.uniform(13, 19), height = random.uniform(17, 21);
  const float cx = 13.5f + random.uniform(-1.5f, 1.5f), cy = 13.5f + random.uniform(-1.5f, 1.5f);
  const float pen = random.uniform(.6f, 1.6f), ink = random.uniform(.65f, 1);
  const float bend_x = random.uniform(-.07f, .07f), bend_y = random.uniform(-.07f, .07f), phase = random.uniform(0, 6.28f);
  const float cos = std::cos(angle), sin = std::sin(angle);
  std::vector<Stroke> strokes = glyph(digit, random);
  Canvas canvas;
  for (Stroke& stroke : strokes) {
    for (Point& p : stroke) {
      const float u = p.x - .5f + bend_x * std::sin(5 * p.y + phase) + .012f * random.normal();
      const float v = p.y - .5f + bend_y * std::sin(5 * p.x + phase) + .012f * random.normal();
      const float x = width * (u - shear * v), y = height * v;
      p = {cx + cos * x - sin * y, cy + sin * x + cos * y};
    }
    for (size_t i = 1; i < stroke.size(); ++i) canvas.draw_line(stroke[i - 1], stroke[i], pen, ink);
  }
  if (random.uniform(0, 1) < .25f) {  // a smudge
    const Point from{random.uniform(2, 25), random.uniform(2, 25)},
        to{from.x + random.uniform(-5, 5), from.y + random.uniform(-5, 5)};
    const float smudge_pen = random.uniform(.4f, 1), smudge_ink = random.uniform(.3f, .8f);
    canvas.draw_line(from, to, smudge_pen, smudge_ink);
  }
  const float noise = random.uniform(.02f, .12f);
  for (int i = 0; i < kSide * kSide; ++i) {
    out[i] = uint8_t(std::lround(255 * std::clamp(canvas.values()[i] + noise * random.normal(), 0.0f, 1.0f)));
  }
}

TensorDataset<> make(const DigitsOptions& o) {
  check_options(kDigits, o);
  const int64_t n = o.size > 0 ? o.size : o.split == Split::train ? 8000 : 2000;
  const MemoryScope scope(MemoryTag::data);
  const Tensor images = Tensor::empty({n, 1, kSide, kSide}, {.dtype = DType::u8, .device = Device::cpu});
  const Tensor labels = Tensor::empty({n}, {.dtype = DType::u8, .device = Device::cpu});
  for (int64_t i = 0; i < n; ++i) {
    const int digit = int(i % 10);
    draw(digit, SampleNumbers(o.seed, o.split, i), images.data_ptr<uint8_t>() + i * kSide * kSide);
    labels.data_ptr<uint8_t>()[i] = uint8_t(digit);
  }
  return TensorDataset(images, labels, 10, o.normalize.for_u8(), std::string(kDigits) + ' ' + std::string(name(o.split)));
}

}  // namespace

HALFSTEP_OPTIONS(DigitsOptions, option("size", &O::size, "samples; 0: 8000 for train, 2000 for test").at_least(0))

DigitsDataset::DigitsDataset(const DigitsOptions& options) : TensorDataset(make(options)) {}

DataForm DigitsDataset::form() const {
  DataForm out = Dataset::form();
  out.source = ImageForm{.fit = PictureFit::pad};
  return out;
}

}  // namespace halfstep
