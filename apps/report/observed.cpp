// SPDX-License-Identifier: Apache-2.0
#include "apps/report/observed.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <ostream>

#include "apps/report/chart.h"
#include "apps/terminal/quantity_text.h"

namespace halfstep::app {
namespace {

constexpr double kSmallRate = 0.05;                             // share of the largest rate; at lower rates many updates are lost
constexpr double kLargeShare = 0.5;                             // shares of lost updates from here on are marked
constexpr size_t kMostTensors = 60;                             // most tensors on the page
constexpr int kLeastExponent = -1100, kLargestExponent = 1100;  // limits beyond those of float64

double number_at(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// Adds the exponents of a gradient from observed.jsonl.
void add_exponents(ObservedTensor& out, const Json& entry) {
  const auto grad = entry.find("grad");
  if (grad == entry.end() || !grad->is_object() || !grad->value("counts", Json()).is_array()) return;
  const double first = number_at(*grad, "first");
  if (!(first >= kLeastExponent && first <= kLargestExponent)) return;
  out.first = int(first);
  for (const Json& n : (*grad)["counts"]) {
    if (out.first + int(out.counts.size()) > kLargestExponent) break;
    out.counts.push_back(n.is_number() ? std::max(0.0, n.get<double>()) : 0);
  }
}

ObservedStep step_of(const Json& line) {
  ObservedStep out{
      .step = line["step"].get<double>(), .scale = number_at(line, "scale"), .lr = number_at(line, "lr"), .tensors = {}};
  for (const auto& [name, entry] : line["layers"].items()) {
    if (!entry.is_object()) continue;
    ObservedTensor t{.name = name,
                     .zero = number_at(entry, "zero"),
                     .subnormal = number_at(entry, "subnormal"),
                     .overflow = number_at(entry, "overflow"),
                     .lost = number_at(entry, "lost"),
                     .update = number_at(entry, "update")};
    add_exponents(t, entry);
    out.tensors.push_back(std::move(t));
  }
  return out;
}

// The range of exponents that have gradients.
struct Exponents {
  int low = std::numeric_limits<int>::max(), high = std::numeric_limits<int>::min();
  bool is_empty() const { return low > high; }
};

Exponents exponents_of(const ObservedStep& step) {
  Exponents out;
  for (const ObservedTensor& t : step.tensors)
    for (size_t i = 0; i < t.counts.size(); ++i)
      if (t.counts[i] > 0) out.low = std::min(out.low, t.first + int(i)), out.high = std::max(out.high, t.first + int(i));
  return out;
}

// Writes counts as a strip of cells, darkest at the most. edge: float16 has zeros below this exponent.
void write_strip(std::ostream& out, const ObservedTensor& t, const Exponents& range, double edge) {
  const double most = t.counts.empty() ? 0 : *std::max_element(t.counts.begin(), t.counts.end());
  out << "<svg class=\"strip\" viewBox=\"0 0 " << range.high - range.low + 1 << " 1\" preserveAspectRatio=\"none\" role=\"img\" "
      << "aria-label=\"" << escaped(t.name) << "\">";
  for (size_t i = 0; i < t.counts.size(); ++i)
    if (const double n = t.counts[i]; n > 0)
      out << "<rect x=\"" << t.first + int(i) - range.low << "\" y=\"0\" width=\"1.02\" height=\"1\" fill=\"var(--c0)\" opacity=\""
          << number_text(0.08 + 0.92 * std::sqrt(n / most), 2) << "\"><title>2^" << t.first + int(i) << ": " << number_text(n, 9)
          << "</title></rect>";
  if (edge > range.low && edge <= range.high)
    out << "<rect x=\"" << number_text(edge - range.low, 5) << "\" y=\"0\" width=\".12\" height=\"1\" fill=\"var(--bad)\"/>";
  out << "</svg>";
}

// Writes a cell in percent. marks_large: a share from kLargeShare on is marked.
void write_share(std::ostream& out, double v, bool marks_large = false) {
  out << "<td class=\"n" << (marks_large && v >= kLargeShare ? " bad" : "") << "\">"
      << (std::isfinite(v) ? number_text(100 * v, v < 0.1 ? 2 : 3) + " %" : "") << "</td>";
}

}  // namespace

void add_observed(RecordedRun& run, const std::filesystem::path& file) {
  std::ifstream lines(file);
  std::vector<ObservedStep> all;
  std::vector<double> rooms;
  double most_lr = 0;
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.value("step", Json()).is_number() || !line.value("layers", Json()).is_object()) continue;
    ObservedStep seen = step_of(line);
    if (std::isnan(seen.lr))  // written by an older halfstep
      if (const auto lr = run.values.find("lr"); lr != run.values.end())
        for (const Point& p : lr->second)
          if (p.x <= seen.step) seen.lr = p.y;
    if (seen.lr > most_lr) most_lr = seen.lr;
    rooms.push_back(number_at(line, "room"));
    all.push_back(std::move(seen));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const ObservedStep& seen = all[i];
    double lost = -1, zero = -1;  // largest of any tensor
    for (const ObservedTensor& t : seen.tensors) {
      if (t.lost > lost) lost = t.lost;
      if (t.zero > zero) zero = t.zero;
    }
    const bool has_usual_lr = !(seen.lr < kSmallRate * most_lr);
    if (lost >= 0 && has_usual_lr) run.values["observed/lost"].push_back({seen.step, lost});
    if (zero >= 0) run.values["observed/zero"].push_back({seen.step, zero});
    if (std::isfinite(rooms[i])) run.values["observed/room"].push_back({seen.step, rooms[i]});
    if (has_usual_lr || !run.observed)
      run.observed = seen;
    else
      ++run.observed->later;
  }
}

void write_observed(std::ostream& out, const RecordedRun& run, bool with_name) {
  const ObservedStep& seen = *run.observed;
  const Exponents range = exponents_of(seen);
  constexpr double kLeastHalfExponent = -24;  // of float16; gradients are stored under the scale
  const double edge = run.precision() == "float16" && seen.scale > 0 ? kLeastHalfExponent - std::log2(seen.scale) : -INFINITY;
  const bool has_edge = !range.is_empty() && edge > range.low && edge <= range.high;
  out << "<div class=\"card\">" << (with_name ? "<b>" + escaped(run.name) + "</b> " : "") << "<span class=\"soft\">Step "
      << number_text(seen.step, 9) << ". How large the gradients of each parameter are"
      << (!range.is_empty() ? ", from 2^" + std::to_string(range.low) + " to 2^" + std::to_string(range.high + 1) : "")
      << (has_edge ? "; left of the mark float16 has only zeros under the loss scale" : "")
      << "; the share of them that are 0; the share of the weights with a gradient that the update did not change; and the size "
         "of the update relative to that of the weights."
      << (seen.later > 0 ? " Later observed steps, " + std::to_string(seen.later) + ", had a learning rate below " +
                               number_text(100 * kSmallRate, 3) + " % of the largest; at such rates updates are lost."
                         : "")
      << "</span>\n<table><tr><th>parameter</th><th>exponents</th><th class=\"n\">zero</th><th "
         "class=\"n\">subnormal</th><th class=\"n\">infinite</th><th class=\"n\">lost updates</th><th "
         "class=\"n\">update</th></tr>\n";
  for (size_t i = 0; i < std::min(kMostTensors, seen.tensors.size()); ++i) {
    const ObservedTensor& t = seen.tensors[i];
    out << "<tr><td>" << escaped(t.name) << "</td><td class=\"strips\">";
    if (!range.is_empty()) write_strip(out, t, range, edge);
    out << "</td>";
    write_share(out, t.zero);
    write_share(out, t.subnormal);
    write_share(out, t.overflow);
    write_share(out, t.lost, true);
    write_share(out, t.update);
    out << "</tr>\n";
  }
  out << "</table>";
  if (seen.tensors.size() > kMostTensors)
    out << "<p class=\"soft\">observed.jsonl has " << seen.tensors.size() - kMostTensors << " more.</p>";
  out << "</div>\n";
}

}  // namespace halfstep::app
