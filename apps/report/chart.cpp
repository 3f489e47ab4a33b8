// SPDX-License-Identifier: Apache-2.0
#include "apps/report/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "apps/terminal/quantity_text.h"
#include "framework/base/number_text.h"
#include "framework/base/text_stream.h"

namespace halfstep::app {
namespace {

// Of a chart, in its own pixels: its size, and the edges of the axes.
constexpr double kWidth = 560, kHeight = 236, kLeft = 62, kRight = kWidth - 14, kTop = 8, kBottom = kHeight - 26;
constexpr double kEdge = 16;  // a label this near to the right edge is right-aligned
constexpr size_t kColors = 8;

// The visible part of the plane. x(), y(): pixels of a value.
struct Frame {
  double x0 = INFINITY, x1 = -INFINITY, low = INFINITY, high = -INFINITY;  // low, high: logarithms on a logarithmic axis
  bool log = false;

  bool shows(const Point& p) const { return std::isfinite(p.y) && std::isfinite(p.x) && (!log || p.y > 0); }
  double scaled(double y) const { return log ? std::log10(y) : y; }
  double x(double v) const { return kLeft + (v - x0) / (x1 - x0) * (kRight - kLeft); }
  double y(double v) const { return kBottom - (scaled(v) - low) / (high - low) * (kBottom - kTop); }
};

Frame frame_of(const std::vector<Curve>& curves, bool log) {
  Frame f;
  f.log = log;
  for (const Curve& c : curves) {
    for (const Point& p : c.points) {
      if (!f.shows(p)) continue;
      f.x0 = std::min(f.x0, p.x), f.x1 = std::max(f.x1, p.x);
      f.low = std::min(f.low, f.scaled(p.y)), f.high = std::max(f.high, f.scaled(p.y));
    }
  }
  if (!(f.x1 > f.x0)) f.x0 -= 1, f.x1 += 1;
  // A constant gets room on both sides; values near 0 are shown from 0.
  const double rounding = 1e-9 * (1 + std::abs(f.high));
  if (f.high - f.low < rounding)
    f.low -= log ? 0.3 : 0.5 + 0.1 * std::abs(f.low), f.high += log ? 0.3 : 0.5 + 0.1 * std::abs(f.high);
  const double margin = 0.05 * (f.high - f.low);
  const bool from_zero = !log && f.low >= 0 && f.low < 0.3 * f.high;
  f.low = from_zero ? 0 : f.low - margin;
  f.high += margin;
  return f;
}

std::string rounded(double v) { return fixed_text(v, 1); }

std::string step_text(double v, int more_digits) {
  return v >= 10000 ? number_text(v / 1000, 5 + more_digits) + "k" : number_text(v, 6 + more_digits);
}

// Formats the values of an axis by text(v, more_digits), with as many more digits as make them differ.
template <class Text>
std::vector<std::string> labels_apart(const std::vector<double>& at, const Text& text) {
  constexpr int kMostMore = 12;  // a double has no more digits
  for (int more = 0;; ++more) {
    std::vector<std::string> labels;
    for (const double v : at) labels.push_back(text(v, more));
    if (more == kMostMore || std::set(labels.begin(), labels.end()).size() == labels.size()) return labels;
  }
}

std::vector<double> power_ticks(const Frame& f) {
  const double two = std::log10(2.0);
  const int from = int(std::ceil(f.low / two)), to = int(std::floor(f.high / two)), by = std::max(1, (to - from + 5) / 6);
  std::vector<double> out;
  for (int k = from; k <= to; k += by) out.push_back(std::ldexp(1, k));
  return out;
}

// Returns powers of ten, or round numbers if fewer than two are visible.
std::vector<double> log_ticks(const Frame& f) {
  const int from = int(std::ceil(f.low)), to = int(std::floor(f.high)), by = std::max(1, (to - from + 5) / 6);
  std::vector<double> out;
  if (to - from < 1) {
    for (const double v : ticks(std::pow(10, f.low), std::pow(10, f.high), 4))
      if (v > 0) out.push_back(v);
    return out;
  }
  for (int k = from; k <= to; k += by) out.push_back(std::pow(10, k));
  if (to - from < 3)  // 2 and 5 between them
    for (int k = from - 1; k <= to; ++k)
      for (const double m : {2.0, 5.0})
        if (const double v = m * std::pow(10, k); std::log10(v) >= f.low && std::log10(v) <= f.high) out.push_back(v);
  return out;
}

void draw_axes(std::ostream& svg, const Frame& f, ValueUnit unit) {
  const std::vector<double> lines = unit == ValueUnit::power ? power_ticks(f) : f.log ? log_ticks(f) : ticks(f.low, f.high, 5);
  const std::vector<std::string> labels = labels_apart(lines, [&](double v, int more) { return value_text(v, unit, more); });
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string y = rounded(f.y(lines[i]));
    svg << "<line class=\"axis\" x1=\"" << kLeft << "\" x2=\"" << kRight << "\" y1=\"" << y << "\" y2=\"" << y << "\"/><text x=\""
        << kLeft - 7 << "\" y=\"" << rounded(f.y(lines[i]) + 4) << "\" text-anchor=\"end\">" << labels[i] << "</text>";
  }
  std::vector<double> steps = ticks(f.x0, f.x1, 6);
  std::erase_if(steps, [](double v) { return v != std::floor(v); });
  const std::vector<std::string> counts = labels_apart(steps, step_text);
  for (size_t i = 0; i < steps.size(); ++i) {
    const double x = f.x(steps[i]);
    svg << "<text x=\"" << rounded(x) << "\" y=\"" << kHeight - 8 << "\" text-anchor=\"" << (x > kRight - kEdge ? "end" : "middle")
        << "\">" << counts[i] << "</text>";
  }
}

// Draws a curve. behind: the number of curves drawn after it; it is wider than they are, so that it shows where values are equal.
void draw_curve(std::ostream& svg, const Frame& f, const Curve& c, const Points& points, size_t behind) {
  const std::string color = color_of(c.color);
  svg << "<path class=\"line" << (c.faint ? " faint" : "") << "\" fill=\"none\" stroke=\"" << color << '"';
  if (c.dashed) svg << " stroke-dasharray=\"5 5\"";
  if (!c.faint) svg << " stroke-width=\"" << rounded(c.dashed ? 1.2 : 1.7 + 1.6 * double(std::min<size_t>(behind, 3))) << '"';
  svg << " d=\"";
  bool is_drawing = false;
  for (const Point& p : points) {
    if (!f.shows(p)) {
      is_drawing = false;  // a gap for a value that is not finite
      continue;
    }
    svg << (is_drawing ? 'L' : 'M') << rounded(f.x(p.x)) << ' ' << rounded(f.y(p.y));
    is_drawing = true;
  }
  svg << "\"/>";
  if (!c.dots && points.size() > 1) return;  // one point makes no line
  for (const Point& p : points)
    if (f.shows(p))
      svg << "<circle r=\"2.6\" cx=\"" << rounded(f.x(p.x)) << "\" cy=\"" << rounded(f.y(p.y)) << "\" fill=\"" << color << "\"/>";
}

}  // namespace

std::string value_text(double v, ValueUnit unit, int more_digits) {
  if (!std::isfinite(v)) return "-";
  if (unit == ValueUnit::share) return number_text(100 * v, 4 + more_digits) + " %";
  if (unit == ValueUnit::bytes) return bytes_text(v, 1 + more_digits);
  if (const double exponent = std::log2(v); unit == ValueUnit::power && exponent == std::floor(exponent))
    return "2^" + number_text(exponent, 4);
  if (std::abs(v) >= 1e5 && std::abs(v) < 1e7) return number_text(v / 1000, 5 + more_digits) + "k";
  return number_text(v, (v == std::floor(v) && std::abs(v) < 1e5 ? 5 : 4) + more_digits);
}

std::vector<double> ticks(double low, double high, int count) {
  std::vector<double> out;
  const double raw = (high - low) / count;
  if (!(raw > 0) || !std::isfinite(raw)) return out;
  // Round to 1, 2, 5 or 10 times a power of ten.
  const double ten = std::pow(10, std::floor(std::log10(raw))), part = raw / ten;
  const double step = part < 1.5 ? ten : part < 3.5 ? 2 * ten : part < 7.5 ? 5 * ten : 10 * ten;
  constexpr double kRounding = 1e-9;  // share of a step
  for (int64_t k = int64_t(std::ceil(low / step - kRounding)); double(k) * step <= high + kRounding * step; ++k)
    out.push_back(double(k) * step);
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string color_of(size_t color) { return "var(--c" + std::to_string(color % kColors) + ")"; }

std::string chart(const std::string& title, std::vector<Curve> curves, const std::string& id, const ChartOptions& options) {
  const Frame f = frame_of(curves, options.log || options.unit == ValueUnit::power);
  std::erase_if(curves, [&](const Curve& c) {
    return std::none_of(c.points.begin(), c.points.end(), [&](const Point& p) { return f.shows(p); });
  });
  if (curves.empty()) return "";
  TextWriter out;
  out << "<figure class=\"card\"><figcaption><b>" << escaped(title) << "</b>";
  for (const Curve& c : curves)
    if (!c.faint && !c.dashed && !c.name.empty())
      out << "<span class=\"name\"><i class=\"key" << (c.dots ? " dot" : "") << "\" style=\"background:" << color_of(c.color)
          << "\"></i>" << escaped(c.name) << "</span>";
  if (!options.marks.empty()) out << "<span class=\"name\"><i class=\"mark\"></i>" << escaped(options.marks_text) << "</span>";
  out << "</figcaption><svg viewBox=\"0 0 " << kWidth << ' ' << kHeight << "\" role=\"img\" aria-label=\"" << escaped(title)
      << "\" data-points=\"" << id << "\">";
  draw_axes(out, f, options.unit);
  for (const Point& m : options.marks)
    out << "<line class=\"skip\" stroke=\"" << (m.y < 0 ? "var(--bad)" : color_of(size_t(m.y))) << "\" x1=\"" << rounded(f.x(m.x))
        << "\" x2=\"" << rounded(f.x(m.x)) << "\" y1=\"" << kBottom - 10 << "\" y2=\"" << kBottom << "\"/>";
  Json data{{"width", kWidth}, {"left", kLeft}, {"right", kRight},
            {"x0", f.x0},      {"x1", f.x1},    {"share", options.unit == ValueUnit::share}};
  data["curves"] = Json::array();
  auto behind = size_t(std::count_if(curves.begin(), curves.end(), [](const Curve& c) { return !c.faint && !c.dashed; }));
  for (const Curve& c : curves) {
    if (!c.faint && !c.dashed) --behind;
    const Points shown = thinned(c.points, f.x0, f.x1, int(kRight - kLeft));
    draw_curve(out, f, c, shown, behind);
    if (c.faint) continue;
    Json xs = Json::array(), ys = Json::array();
    for (const Point& p : shown)
      if (f.shows(p)) xs.push_back(p.x), ys.push_back(number_of(number_text(p.y, 6)).value_or(p.y));
    data["curves"].push_back({{"name", c.name.empty() ? title : c.name}, {"color", color_of(c.color)}, {"x", xs}, {"y", ys}});
  }
  std::string json = line_of(data);
  for (size_t at = 0; (at = json.find("</", at)) != std::string::npos; at += 3) json.replace(at, 2, "<\\/");  // ends no script
  out << "<line class=\"cross\" x1=\"0\" x2=\"0\" y1=\"" << kTop << "\" y2=\"" << kBottom
      << "\"/></svg><script type=\"application/json\" id=\"" << id << "\">" << json << "</script></figure>\n";
  return out.str();
}

}  // namespace halfstep::app
