// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "apps/report/chart.h"
#include "apps/report/frame.h"
#include "apps/report/report.h"
#include "apps/terminal/quantity_text.h"
#include "framework/base/text_stream.h"

namespace halfstep::app {
namespace {

std::string ms_text(double v) { return std::isfinite(v) ? number_text(v, 4) + " ms" : "-"; }
std::string memory_text(double v) { return std::isfinite(v) ? bytes_text(v) : "-"; }

std::string text_of(const Json& value) {
  return value.is_null() ? "" : value.is_string() ? value.get<std::string>() : line_of(value);
}
std::string setting(const Measurement& m, const char* key) { return text_of(m.settings.value(key, Json())); }

class BenchPage {
 public:
  explicit BenchPage(const std::vector<Measurement>& files) : files_(files) {
    for (const Measurement& m : files)
      for (const MeasuredArm& a : m.arms)
        if (a.refused.empty()) rows_.push_back({&m, &a});
  }

  // Returns the page.
  std::string text() {
    const bool is_one_file = files_.size() == 1;
    begin_page(out_, is_one_file ? "halfstep bench mlp" : std::to_string(files_.size()) + " measurements of halfstep bench mlp",
               is_one_file ? network(files_[0]) : "");
    if (is_one_file)
      out_ << "<p class=\"soft\">" << escaped(machine(files_[0])) << "</p>\n";
    else
      write_machines();
    write_results();
    out_ << "<h2>Time and memory</h2>\n<div class=\"grid\">\n";
    write_times();
    write_memory();
    out_ << "</div>\n<h2>Losses</h2>\n";
    write_verdicts();
    write_losses();
    write_baselines();
    out_ << "<h2>Settings and machine</h2>\n";
    for (const Measurement& m : files_)
      out_ << "<details><summary>" << escaped(m.name) << "</summary><div class=\"card\"><pre>"
           << escaped(m.settings.dump(2, ' ', false, Json::error_handler_t::replace)) << "</pre></div></details>\n";
    end_page(out_);
    return out_.str();
  }

 private:
  struct Row {
    const Measurement* file;
    const MeasuredArm* arm;
  };

  static std::string network(const Measurement& m) {
    return setting(m, "layers") + " x Linear(" + setting(m, "width") + ", " + setting(m, "width") + "), batch " +
           setting(m, "batch") + ", " + setting(m, "batches") + " batches, " + setting(m, "epochs") + " epochs, SGD, MSE";
  }
  static std::string machine(const Measurement& m) {
    return setting(m, "description") + "; " + setting(m, "threads") + " threads; halfstep " + setting(m, "version") + ", commit " +
           setting(m, "commit") + "; " + setting(m, "date");
  }
  std::string name(const Row& row) const { return files_.size() == 1 ? row.arm->name : row.file->name + ": " + row.arm->name; }
  std::string key(size_t color, const std::string& name) const {
    return "<i class=\"key\" style=\"background:" + color_of(color) + "\"></i>" + escaped(name);
  }
  void write_cell(const std::string& text) { out_ << "<td class=\"n\">" << escaped(text) << "</td>"; }
  void write_fault(const std::string& text) { out_ << "<p class=\"bad\">" << escaped(text) << "</p>\n"; }

  void write_machines() {
    out_ << "<h2>Files</h2>\n<div class=\"card\"><table><tr><th>file</th><th>network</th><th>machine</th></tr>\n";
    for (const Measurement& m : files_)
      out_ << "<tr><td>" << escaped(m.name) << "</td><td class=\"long\">" << escaped(network(m)) << "</td><td class=\"long\">"
           << escaped(machine(m)) << "</td></tr>\n";
    out_ << "</table></div>\n";
  }

  void write_results() {
    out_ << "<h2>Result</h2>\n<div class=\"card\"><table><tr><th>precision</th><th class=\"n\">median</th><th "
            "class=\"n\">fastest</th><th class=\"n\">90th percentile</th><th class=\"n\">speed-up</th><th class=\"n\">peak "
            "memory</th><th class=\"n\">planned</th><th class=\"n\">steps</th><th class=\"n\">skipped</th><th>losses</th></tr>\n";
    for (size_t i = 0; i < rows_.size(); ++i) {
      const MeasuredArm& a = *rows_[i].arm;
      out_ << "<tr><td>" << key(i, name(rows_[i])) << "</td>";
      out_ << "<td class=\"n\"><b>" << ms_text(a.median_ms) << "</b></td>";
      write_cell(ms_text(a.fastest_ms));
      write_cell(ms_text(a.p90_ms));
      write_cell(std::isfinite(a.speedup) ? number_text(a.speedup, 3) + "x" : "-");
      write_cell(memory_text(a.peak_bytes));
      write_cell(memory_text(a.planned_bytes));
      write_cell(value_text(a.steps, ValueUnit::number));
      write_cell(value_text(a.skipped, ValueUnit::number));
      const bool is_reference = &a == rows_[i].file->reference();
      out_ << "<td" << (a.agrees ? ">" : " class=\"bad\">")
           << (is_reference ? "the reference"
               : a.agrees   ? "agree"
                            : "do not agree")
           << "</td></tr>\n";
    }
    out_ << "</table></div>\n";
    for (const Measurement& m : files_) {
      const std::string where = files_.size() == 1 ? "" : m.name + ": ";
      for (const MeasuredArm& a : m.arms) {
        if (!a.refused.empty()) write_fault(where + a.name + " was not measured: " + a.refused);
        if (a.plain_products > 0)
          write_fault(where + number_text(a.plain_products, 9) + " products of " + a.name +
                      " ran on a kernel of halfstep's own: these times are not those of the GPU's library");
      }
    }
  }

  void write_times() {
    std::vector<Strip> strips;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const MeasuredArm& a = *rows_[i].arm;
      strips.push_back({name(rows_[i]), "median " + ms_text(a.median_ms) + ", 90 % within " + ms_text(a.p90_ms), i, a.step_ms,
                        a.fastest_ms, a.median_ms, a.p90_ms});
    }
    out_ << strip_chart("Time of each step, the first at the top", " ms", strips);
  }

  void write_memory() {
    double most = 0;
    std::vector<std::string> purposes;
    for (const Row& row : rows_) {
      if (row.arm->peak_bytes > most) most = row.arm->peak_bytes;
      for (const auto& [purpose, bytes] : row.arm->memory)
        if (bytes > 0 && std::find(purposes.begin(), purposes.end(), purpose) == purposes.end()) purposes.push_back(purpose);
    }
    if (purposes.empty() || most <= 0) return;
    out_ << "<figure class=\"card\"><figcaption><b>Memory of tensors at the peak</b></figcaption>";
    for (const Row& row : rows_) {
      if (!(row.arm->peak_bytes > 0)) continue;
      out_ << "<div>" << escaped(name(row)) << " <b>" << bytes_text(row.arm->peak_bytes)
           << "</b></div><div class=\"bar\" style=\"width:" << number_text(100 * row.arm->peak_bytes / most, 5) << "%\">";
      for (size_t k = 0; k < purposes.size(); ++k)
        if (const double bytes = bytes_of(*row.arm, purposes[k]); bytes > 0)
          out_ << "<div style=\"background:" << color_of(k) << ";flex:" << number_text(bytes, 12) << "\"></div>";
      out_ << "</div>";
    }
    out_ << "<table><tr><th>purpose</th>";
    for (const Row& row : rows_) out_ << "<th class=\"n wrap\">" << escaped(name(row)) << "</th>";
    out_ << "</tr>\n";
    for (size_t k = 0; k < purposes.size(); ++k) {
      out_ << "<tr><td>" << key(k, purposes[k]) << "</td>";
      for (const Row& row : rows_) write_cell(memory_text(bytes_of(*row.arm, purposes[k])));
      out_ << "</tr>\n";
    }
    out_ << "</table></figure>\n";
  }
  static double bytes_of(const MeasuredArm& arm, const std::string& purpose) {
    for (const auto& [name, bytes] : arm.memory)
      if (name == purpose) return bytes;
    return NAN;
  }

  void write_verdicts() {
    for (const Row& row : rows_) {
      const MeasuredArm &a = *row.arm, *base = row.file->reference();
      if (!base || &a == base || a.losses.empty()) continue;
      const std::string text =
          name(row) + (a.agrees ? " agrees" : " does not agree") + " with " + base->name + ": " +
          (std::isfinite(a.difference) ? "the losses are " + number_text(a.difference, 2) + " of their value apart at most"
                                       : "losses are not finite") +
          ", tolerated " + number_text(a.tolerance, 2);
      out_ << "<p class=\"" << (a.agrees ? "soft" : "bad") << "\">" << escaped(text) << ".</p>\n";
    }
  }

  void write_losses() {
    constexpr size_t kMostDots = 60;  // more points are a line alone
    std::vector<Curve> losses, differences;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const MeasuredArm &a = *rows_[i].arm, *base = rows_[i].file->reference();
      if (a.losses.empty()) continue;
      losses.push_back({name(rows_[i]), a.losses, i});
      if (&a == base) continue;
      Points distance, bound;
      for (size_t k = 0; k < std::min(a.losses.size(), base->losses.size()); ++k) {
        const double y = std::abs(a.losses[k].y - base->losses[k].y) / std::abs(base->losses[k].y);
        distance.push_back({a.losses[k].x, y});
        bound.push_back({a.losses[k].x, a.tolerance});
      }
      differences.push_back({name(rows_[i]), distance, i, distance.size() <= kMostDots});
      differences.push_back({"tolerated of " + name(rows_[i]), bound, i, false, false, true});
    }
    out_ << "<div class=\"grid\">\n" << chart("Loss of each step", losses, "losses");
    out_ << chart("Relative difference of the losses; dashed: tolerated", differences, "apart", {.log = true}) << "</div>\n";
  }

  void write_baselines() {
    for (const Measurement& m : files_) {
      const Json baseline = m.settings.value("baseline", Json());
      if (!baseline.is_object() || !baseline.value("arms", Json()).is_array()) continue;
      out_ << "<h2>" << escaped((files_.size() == 1 ? "" : m.name + " ") + "against " + text_of(baseline.value("file", Json())))
           << "</h2>\n<div class=\"card\"><table><tr><th>precision</th><th class=\"n\">median</th><th "
              "class=\"n\">earlier</th><th class=\"n\">ratio</th><th>slower than both spreads</th></tr>\n";
      for (const Json& arm : baseline["arms"]) {
        const auto number = [&](const char* key) {
          return arm.is_object() && arm.contains(key) && arm[key].is_number() ? arm[key].get<double>() : NAN;
        };
        const bool is_slower = arm.is_object() && arm.value("slower", Json()) == true;
        out_ << "<tr><td>" << escaped(text_of(arm.is_object() ? arm.value("arm", Json()) : Json())) << "</td>";
        write_cell(ms_text(number("median_ms")));
        write_cell(ms_text(number("baseline_ms")));
        write_cell(value_text(number("ratio"), ValueUnit::number));
        out_ << (is_slower ? "<td class=\"bad\">yes" : "<td>no") << "</td></tr>\n";
      }
      out_ << "</table></div>\n";
    }
  }

  const std::vector<Measurement>& files_;
  std::vector<Row> rows_;  // arms that were measured
  TextWriter out_;
};

}  // namespace

std::string bench_page(const std::vector<Measurement>& files) { return BenchPage(files).text(); }

}  // namespace halfstep::app
