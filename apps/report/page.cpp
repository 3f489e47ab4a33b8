// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "apps/record/metric_sinks.h"
#include "apps/report/chart.h"
#include "apps/report/frame.h"
#include "apps/report/observed.h"
#include "apps/report/report.h"
#include "apps/terminal/quantity_text.h"
#include "framework/base/text_stream.h"

namespace halfstep::app {
namespace {

// Keys of metrics.jsonl in the order of the page; others follow. "": not drawn.
struct KnownCurve {
  const char* key;
  const char* title;
  bool log = false;
  ValueUnit unit = ValueUnit::number;
};
constexpr KnownCurve kCurves[] = {
    {"lr", "Learning rate"},
    {"grad_norm", "Norm of the gradients", true},
    {"scale", "Loss scale", true, ValueUnit::power},
    {"samples_per_second", "Samples a second"},
    {"data_wait", "Time spent waiting for data", false, ValueUnit::share},
    {"rank_wait", "Time spent waiting for other ranks", false, ValueUnit::share},
    {"peak_bytes", "Peak memory", false, ValueUnit::bytes},
    {"observed/lost", "Lost updates, the largest share of a parameter, while the rate is not small", false, ValueUnit::share},
    {"observed/zero", "Gradients that are 0, the largest share of a parameter", false, ValueUnit::share},
    {"observed/room", "Doublings that the loss scale has room for"},
    {"train/loss", ""},
    {"train/epoch_loss", ""},
    {"val/loss", ""},
    {"attempted", ""},
    {"epoch", ""},
    {"seconds", ""},
    {"samples", ""},
    {"skipped", ""}};

class Page {
 public:
  Page(const std::vector<RecordedRun>& runs, const std::vector<PlannedStep>& plans, const std::vector<Mistakes>& mistakes)
      : runs_(runs), plans_(plans), mistakes_(mistakes) {}

  std::string text() {
    const std::string title = runs_.size() == 1 ? runs_[0].name : std::to_string(runs_.size()) + " runs";
    begin_page(out_, title, about());
    write_summary(out_, runs_, mistakes_);
    if (runs_.size() > 1) write_differences(out_, runs_);
    write_curves();
    write_answers();
    write_observed_steps();
    write_plans();
    write_configs();
    end_page(out_);
    return out_.str();
  }

 private:
  static std::vector<std::string> facts_about(const RecordedRun& r) {
    std::vector<std::string> out;
    if (const auto o = r.config.find("optimizer"); o != r.config.end() && o->is_object()) {
      out.push_back(text_at(*o, "type", ""));
      if (o->contains("lr") && (*o)["lr"].is_number()) out.push_back("lr " + (*o)["lr"].dump());
    }
    Json batch = r.config;
    for (const char* key : {"data", "loader", "batch_size"}) batch = batch.is_object() ? batch.value(key, Json()) : Json();
    if (batch.is_number()) out.push_back("batch " + batch.dump());
    if (r.made_by.is_object())
      out.push_back("halfstep " + text_at(r.made_by, "halfstep", "?") + " on " + text_at(r.made_by, "device", "?"));
    return out;
  }
  // Returns what is true of all runs.
  std::string about() const {
    std::vector<std::string> common = facts_about(runs_[0]);
    for (const RecordedRun& r : runs_) {
      const std::vector<std::string> own = facts_about(r);
      std::erase_if(common, [&](const std::string& fact) { return std::find(own.begin(), own.end(), fact) == own.end(); });
    }
    std::string out;
    for (const std::string& fact : common) out += (out.empty() ? "" : ", ") + fact;
    return out;
  }

  // Returns the curves of a key, one for each run that has it.
  std::vector<Curve> curves_of(const std::string& key, const std::string& name) const {
    std::vector<Curve> out;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (const auto it = runs_[i].values.find(key); it != runs_[i].values.end())
        out.push_back({runs_.size() > 1 ? runs_[i].name : name, it->second, i, key.starts_with("val/")});
    return out;
  }
  // Returns whether all runs have one and the same value throughout.
  static bool is_constant(const std::vector<Curve>& curves) {
    for (const Curve& c : curves)
      for (const Point& p : c.points)
        if (p.y != curves[0].points[0].y) return false;
    return true;
  }
  // Draws a chart, or notes a value that is the same throughout.
  void draw(const std::string& title, const std::vector<Curve>& curves, const ChartOptions& options) {
    if (curves.empty()) return;
    if (options.marks.empty() && is_constant(curves)) {
      constant_ += (constant_.empty() ? "" : ", ") + title + " " + value_text(curves[0].points[0].y, options.unit);
      return;
    }
    out_ << chart(title, curves, "d" + std::to_string(charts_++), options);
  }

  // Returns the factor of smoothing: about forty points of a curve count at a time, so longer curves are smoothed more.
  static double fade_for(size_t points) { return std::clamp(1 - 40.0 / double(points), 0.3, 0.95); }

  void write_curves() {
    out_ << "<h2>Curves over the steps</h2>\n<div class=\"grid\">\n";
    constexpr size_t kMostPlainPoints = 20;  // a longer curve is smoothed
    std::vector<Curve> loss;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const auto& values = runs_[i].values;
      const auto it = values.contains("train/loss") ? values.find("train/loss") : values.find("train/epoch_loss");
      if (it == values.end()) continue;
      const bool is_smoothed = it->second.size() > kMostPlainPoints;
      if (is_smoothed) loss.push_back({"", it->second, i, false, true});
      loss.push_back({runs_.size() > 1 ? runs_[i].name
                      : is_smoothed    ? "smoothed"
                                       : "",
                      is_smoothed ? smoothed(it->second, fade_for(it->second.size())) : it->second, i});
    }
    const auto is_positive = [](const std::vector<Curve>& all) {
      return std::all_of(all.begin(), all.end(), [](const Curve& c) {
        return std::all_of(c.points.begin(), c.points.end(), [](const Point& p) { return !(p.y <= 0); });
      });
    };
    draw("Training loss", loss, {.log = is_positive(loss)});
    const std::vector<Curve> val = curves_of("val/loss", "");
    draw("Validation loss", val, {.log = is_positive(val)});
    std::set<std::string> known, others;
    for (const KnownCurve& k : kCurves) known.insert(k.key);
    for (const RecordedRun& r : runs_)
      for (const auto& [key, points] : r.values)  // a table's number is in another curve
        if (!known.contains(key) && !r.tables.contains(key + "/table")) others.insert(key);
    for (const std::string& key : others)
      draw(key.starts_with("val/") ? "Validation: " + key.substr(4) : key, curves_of(key, ""),
           {.unit = is_share(key) ? ValueUnit::share : ValueUnit::number});
    for (const KnownCurve& k : kCurves) {
      if (!*k.title) continue;
      ChartOptions options{.log = k.log, .unit = k.unit};
      if (std::string(k.key) == "scale") {
        options.marks_text = "a step was skipped";
        for (size_t i = 0; i < runs_.size(); ++i)
          for (const double step : runs_[i].skips) options.marks.push_back({step, runs_.size() > 1 ? double(i) : -1});
      }
      draw(k.title, curves_of(k.key, ""), options);
    }
    out_ << "</div>\n";
    if (!constant_.empty()) out_ << "<p class=\"soft\">The same throughout: " << escaped(constant_) << ".</p>\n";
  }

  void write_answers() {
    bool has_begun = false;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const auto [table, when] = confusion_of(i);
      if (table.is_null()) continue;
      if (!has_begun) out_ << "<h2>Answers</h2>\n<div class=\"grid\">\n";
      has_begun = true;
      write_confusion(runs_[i], table, when);
    }
    if (has_begun) out_ << "</div>\n";
    if (mistakes_.empty()) return;
    out_ << (mistakes_[0].has_classes ? "<h2>Wrong answers</h2>\n" : "<h2>Largest errors</h2>\n") << "<div class=\"stack\">\n";
    std::vector<std::string> names;
    for (size_t i = 0; i < runs_.size(); ++i) names.push_back(key_of(runs_, i));
    if (runs_.size() > 1 && are_comparable(mistakes_)) {
      write_mistakes_together(out_, names, mistakes_);
    } else {
      for (size_t i = 0; i < mistakes_.size(); ++i) write_mistakes(out_, runs_.size() > 1 ? names[i] : "", mistakes_[i]);
    }
    out_ << "</div>\n";
  }

  void write_observed_steps() {
    if (std::none_of(runs_.begin(), runs_.end(), [](const RecordedRun& r) { return r.observed.has_value(); })) return;
    out_ << "<h2>Gradients of an observed step</h2>\n<div class=\"stack\">\n";
    for (const RecordedRun& r : runs_)
      if (r.observed) write_observed(out_, r, runs_.size() > 1);
    out_ << "</div>\n";
  }

  // Returns the confusion matrix and its time: of the model's answers if all samples were examined, else of the run's last
  // evaluation.
  std::pair<Json, std::string> confusion_of(size_t run) const {
    constexpr size_t kMostClasses = 50;
    if (!mistakes_.empty() && !mistakes_[run].confusion.empty() && mistakes_[run].examined == mistakes_[run].samples)
      return {mistakes_[run].confusion, "data." + mistakes_[run].split + " at step " + std::to_string(mistakes_[run].step)};
    for (const auto& [key, table] : runs_[run].tables)
      if (is_confusion_matrix(table) && table.size() <= kMostClasses) return {table, "the last evaluation"};
    return {};
  }

  void write_confusion(const RecordedRun& r, const Json& rows, const std::string& when) {
    const auto name = [&](size_t c) { return c < r.classes.size() ? r.classes[c] : std::to_string(c); };
    constexpr double kDiagonalPercent = 18, kMostPercent = 80;  // of a cell's color
    double most = 1;
    for (size_t i = 0; i < rows.size(); ++i)
      for (size_t c = 0; c < rows[i].size(); ++c)
        if (i != c) most = std::max(most, rows[i][c].get<double>());
    out_ << "<figure class=\"card\"><figcaption><b>Confusion matrix" << (runs_.size() > 1 ? ": " + escaped(r.name) : "")
         << "</b><div class=\"soft\">rows: the class, columns: what the model predicts; " << escaped(when)
         << "</div></figcaption><table class=\"heat\"><tr><th></th>";
    for (size_t c = 0; c < rows.size(); ++c) out_ << "<th>" << escaped(name(c)) << "</th>";
    out_ << "</tr>\n";
    for (size_t i = 0; i < rows.size(); ++i) {
      out_ << "<tr><th>" << escaped(name(i)) << "</th>";
      for (size_t c = 0; c < rows[i].size(); ++c) {
        const double n = rows[i][c].get<double>(), percent = i == c ? kDiagonalPercent : kMostPercent * n / most;
        out_ << "<td style=\"background:color-mix(in srgb, " << (i == c ? "var(--c2)" : "var(--c1)") << ' '
             << number_text(percent, 3) << "%, var(--card))\">" << (n > 0 ? number_text(n, 7) : "") << "</td>";
      }
      out_ << "</tr>\n";
    }
    out_ << "</table></figure>\n";
  }

  void write_plans() {
    if (plans_.empty()) return;
    out_ << "<h2>Memory and precision of a step, as planned</h2>\n";
    double most = 0;
    const auto memory_of = [](const PlannedStep& p) { return p.plan.value("/memory/later_steps"_json_pointer, Json()); };
    for (const PlannedStep& p : plans_)
      if (const Json m = memory_of(p); m.is_object()) most = std::max(most, m["peak_bytes"].get<double>());
    std::map<std::string, size_t> colors;
    out_ << "<div class=\"card\">";
    for (size_t i = 0; i < plans_.size(); ++i) {
      const Json m = memory_of(plans_[i]);
      if (!m.is_object()) {
        out_ << "<p class=\"soft\">" << escaped(runs_[i].name) << ": no plan: " << escaped(plans_[i].fault) << "</p>";
        continue;
      }
      const double peak = m["peak_bytes"].get<double>();
      out_ << "<div>" << (runs_.size() > 1 ? key_of(runs_, i) + " " : "") << "<b>" << bytes_text(peak)
           << "</b> <span class=\"soft\">" << number_text(100 * plans_[i].plan.value("flops_in_16_bits", 0.0), 4)
           << " % of the operations in 16 bits, " << plans_[i].plan.value("casts", int64_t(0))
           << " casts of values</span></div><div class=\"bar\" style=\"width:" << number_text(100 * peak / most, 5) << "%\">";
      for (const auto& [purpose, bytes] : m["by_purpose"].items()) {
        if (bytes.get<double>() <= 0) continue;
        const size_t color = colors.emplace(purpose, colors.size()).first->second;
        out_ << "<div title=\"" << escaped(purpose) << ' ' << bytes_text(bytes.get<double>())
             << "\" style=\"background:" << color_of(color) << ";flex:" << bytes << "\"></div>";
      }
      out_ << "</div>";
    }
    for (const auto& [purpose, color] : colors)
      out_ << "<span class=\"name\"><i class=\"key\" style=\"background:" << color_of(color) << "\"></i>" << escaped(purpose)
           << "</span>";
    out_ << "</div>\n";
    for (size_t i = 0; i < plans_.size(); ++i)
      if (plans_[i].plan.contains("calls")) write_calls(i);
  }
  void write_calls(size_t i) {
    out_ << "<details><summary>Every op of a step" << (runs_.size() > 1 ? ": " + escaped(runs_[i].name) : "")
         << "</summary><div class=\"card\"><table><tr><th>pass</th><th>layer</th><th>op</th><th>dtype</th><th "
            "class=\"n\">operations</th><th>why</th></tr>\n";
    for (const Json& c : plans_[i].plan["calls"]) {
      double flops = 0;
      if (const auto by_dtype = c.find("flops"); by_dtype != c.end())
        for (const Json& n : *by_dtype) flops += n.get<double>();
      out_ << "<tr><td>" << escaped(c.value("pass", "")) << "</td><td>" << escaped(c.value("layer", "")) << "</td><td>"
           << escaped(c.value("op", "")) << "</td><td>" << escaped(c.value("compute", "")) << "</td><td class=\"n\">"
           << (flops > 0 ? count_text(flops) : "") << "</td><td class=\"long\">" << escaped(c.value("reason", ""))
           << "</td></tr>\n";
    }
    out_ << "</table></div></details>\n";
  }

  void write_configs() {
    out_ << "<h2>Configs</h2>\n";
    for (const RecordedRun& r : runs_)
      out_ << "<details><summary>" << escaped(r.name) << "</summary><div class=\"card\"><pre>" << escaped(r.config.dump(2))
           << "</pre></div></details>\n";
  }

  const std::vector<RecordedRun>& runs_;
  const std::vector<PlannedStep>& plans_;
  const std::vector<Mistakes>& mistakes_;
  TextWriter out_;
  std::string constant_;  // names and values that are the same throughout
  int charts_ = 0;        // drawn so far
};

}  // namespace

std::string report_page(const std::vector<RecordedRun>& runs, const std::vector<PlannedStep>& plans,
                        const std::vector<Mistakes>& mistakes) {
  return Page(runs, plans, mistakes).text();
}

}  // namespace halfstep::app
