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

std::vector<Stroke> glyph(int digit, SampleNumbers& r) {
  Stroke s;
  switch (digit) {
    case 0: arc(s, .5f, .5f, .28f, .45f, -.25f, .75f); return {s};
    case 1:
      if (r.uniform(0, 1) < .5f) s = {{.33f, .22f}};
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
      if (r.uniform(0, 1) < .5f) return {{{.56f, .06f}, {.2f, .62f}, {.84f, .62f}}, {{.64f, .36f}, {.62f, .96f}}};
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
      if (r.uniform(0, 1) < .3f) out.push_back({{.35f, .52f}, {.74f, .5f}});
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
  // Sets each pixel to the darker of itself and a line of half-width `w` pixels with an edge one pixel soft.
  void line(Point a, Point b, float w, float ink) {
    const float reach = w + 1;
    const int x0 = pixel(std::min(a.x, b.x) - reach), x1 = pixel(std::max(a.x, b.x) + reach);
    const int y0 = pixel(std::min(a.y, b.y) - reach), y1 = pixel(std::max(a.y, b.y) + reach);
    const float dx = b.x - a.x, dy = b.y - a.y, length = std::max(dx * dx + dy * dy, 1e-6f);
    for (int y = y0; y <= y1; ++y) {
      for (int x = x0; x <= x1; ++x) {
        const float px = float(x) - a.x, py = float(y) - a.y;
        const float t = std::clamp((px * dx + py * dy) / length, 0.0f, 1.0f);
        const float ex = px - t * dx, ey = py - t * dy;
        const float cover = std::clamp(w + .5f - std::sqrt(ex * ex + ey * ey), 0.0f, 1.0f);
        float& v = value_[y * kSide + x];
        v = std::max(v, ink * cover);
      }
    }
  }
  float* value() { return value_; }

 private:
  static int pixel(float x) { return std::clamp(int(std::lround(x)), 0, kSide - 1); }
  float value_[kSide * kSide] = {};
};

void draw(int digit, SampleNumbers r, uint8_t* out) {
  const float angle = r.uniform(-.25f, .25f), shear = r.uniform(-.25f, .25f);
  const float width = r.uniform(13, 19), height = r.uniform(17, 21);
  const float cx = 13.5f + r.uniform(-1.5f, 1.5f), cy = 13.5f + r.uniform(-1.5f, 1.5f);
  const float pen = r.uniform(.6f, 1.6f), ink = r.uniform(.65f, 1);
  const float bend_x = r.uniform(-.07f, .07f), bend_y = r.uniform(-.07f, .07f), phase = r.uniform(0, 6.28f);
  const float c = std::cos(angle), s = std::sin(angle);
  std::vector<Stroke> strokes = glyph(digit, r);
  Canvas canvas;
  for (Stroke& stroke : strokes) {
    for (Point& p : stroke) {
      const float u = p.x - .5f + bend_x * std::sin(5 * p.y + phase) + .012f * r.normal();
      const float v = p.y - .5f + bend_y * std::sin(5 * p.x + phase) + .012f * r.normal();
      const float x = width * (u - shear * v), y = height * v;
      p = {cx + c * x - s * y, cy + s * x + c * y};
    }
    for (size_t i = 1; i < stroke.size(); ++i) canvas.line(stroke[i - 1], stroke[i], pen, ink);
  }
  if (r.uniform(0, 1) < .25f) {  // a smudge
    const Point from{r.uniform(2, 25), r.uniform(2, 25)}, to{from.x + r.uniform(-5, 5), from.y + r.uniform(-5, 5)};
    const float smudge_pen = r.uniform(.4f, 1), smudge_ink = r.uniform(.3f, .8f);
    canvas.line(from, to, smudge_pen, smudge_ink);
  }
  const float noise = r.uniform(.02f, .12f);
  for (int i = 0; i < kSide * kSide; ++i) {
    out[i] = uint8_t(std::lround(255 * std::clamp(canvas.value()[i] + noise * r.normal(), 0.0f, 1.0f)));
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
