// SPDX-License-Identifier: Apache-2.0
// Writes mistakes as a part of a page.
#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "apps/report/chart.h"
#include "apps/report/mistakes.h"
#include "apps/terminal/quantity_text.h"

namespace halfstep::app {
namespace {

std::string confidence_text(bool has_classes, double confidence) {
  if (std::isnan(confidence)) return "";
  return has_classes ? value_text(confidence, ValueUnit::share) : number_text(confidence, 4);
}

void write_pictures(std::ostream& out, const Mistakes& found) {
  out << "<div class=\"shots\">\n";
  for (const Mistake& m : found.worst)
    out << "<figure><img" << (m.is_coarse ? " class=\"coarse\"" : "") << " alt=\"" << escaped(m.sample) << "\" title=\""
        << escaped(m.sample) << "\" src=\"" << m.picture << "\"><figcaption><b>" << escaped(m.answer) << "</b> "
        << confidence_text(found.has_classes, m.confidence) << "<br><span class=\"soft\">is " << escaped(m.truth) << "<br>"
        << escaped(m.sample) << "</span></figcaption></figure>\n";
  out << "</div>\n";
}

void write_heads(std::ostream& out, const Mistakes& found) {
  for (const std::string& c : found.columns) out << (found.has_texts ? "<th>" : "<th class=\"n\">") << escaped(c) << "</th>";
  out << "</tr>\n";
}

void write_cells(std::ostream& out, const Mistakes& found, const Mistake& m) {
  for (const std::string& cell : m.cells) out << (found.has_texts ? "<td>" : "<td class=\"n\">") << escaped(cell) << "</td>";
  out << "</tr>\n";
}

void write_rows(std::ostream& out, const Mistakes& found) {
  out << "<table><tr><th>sample</th><th>is</th><th>answer</th><th class=\"n\">" << (found.has_classes ? "confidence" : "error")
      << "</th>";
  write_heads(out, found);
  for (const Mistake& m : found.worst) {
    out << "<tr><td class=\"soft\">" << escaped(m.sample) << "</td><td>" << escaped(m.truth) << "</td><td><b>" << escaped(m.answer)
        << "</b></td><td class=\"n\">" << confidence_text(found.has_classes, m.confidence) << "</td>";
    write_cells(out, found, m);
  }
  out << "</table>\n";
}

// Returns "5 of 30 samples of data.val at step 12 are answered wrongly (16.67 %).".
std::string count_text_of(const Mistakes& found) {
  const bool is_whole = found.examined == found.samples;
  const std::string where = (is_whole ? " of " : " of the first ") + std::to_string(found.examined) + " samples of data." +
                            found.split + (is_whole ? "" : ", which has " + std::to_string(found.samples) + ',') + " at step " +
                            std::to_string(found.step);
  if (!found.has_classes) return "The largest errors" + where + '.';
  if (found.wrong == 0) return "None" + where + " is answered wrongly.";
  return std::to_string(found.wrong) + where + " are answered wrongly (" +
         value_text(double(found.wrong) / double(found.examined), ValueUnit::share) + ").";
}

// Returns a run's answer for a sample, in HTML; nothing if it did not examine the sample.
std::string answer_of(const Mistakes& run, int64_t index) {
  if (size_t(index) >= run.all.size()) return "";
  const Mistakes::Answered& a = run.all[size_t(index)];
  if (!run.has_classes) return number_text(a.answer, 5) + " <span class=\"soft\">(" + number_text(a.confidence, 4) + ")</span>";
  const std::string name = escaped(run.classes.at(size_t(a.answer)));
  return (a.answer == a.truth ? name : "<b>" + name + "</b>") + " <span class=\"soft\">" + confidence_text(true, a.confidence) +
         "</span>";
}

// Returns the worst samples of all runs, those that most runs answer wrongly first.
std::vector<const Mistake*> worst_of_all(const std::vector<Mistakes>& runs) {
  std::map<int64_t, const Mistake*> samples;
  size_t most = 0;
  for (const Mistakes& run : runs) {
    most = std::max(most, run.worst.size());
    for (const Mistake& m : run.worst) samples.emplace(m.index, &m);
  }
  const auto badness = [&](int64_t index) {
    double sum = 0;
    for (const Mistakes& run : runs) {
      if (size_t(index) >= run.all.size()) continue;
      const Mistakes::Answered& a = run.all[size_t(index)];
      if (!run.has_classes)
        sum += a.confidence;
      else if (a.answer != a.truth)
        sum += 1 + (std::isnan(a.confidence) ? 0 : a.confidence) / double(runs.size() + 1);
    }
    return sum;
  };
  std::vector<std::pair<double, const Mistake*>> order;
  for (const auto& [index, m] : samples) order.emplace_back(-badness(index), m);
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Mistake*> out;
  for (size_t i = 0; i < std::min(most, order.size()); ++i) out.push_back(order[i].second);
  return out;
}

}  // namespace

void write_mistakes(std::ostream& out, const std::string& run, const Mistakes& found) {
  out << "<div class=\"card\">" << (run.empty() ? "" : "<b>" + run + "</b> ") << "<span class=\"soft\">";
  if (!found.fault.empty()) {
    out << "Not shown: " << escaped(found.fault) << "</span></div>\n";
    return;
  }
  out << count_text_of(found)
      << (found.has_classes && found.wrong > 0 ? " Those with the most confidence: the answer, and what the data says." : "")
      << "</span>\n";
  if (!found.worst.empty() && !found.worst[0].picture.empty())
    write_pictures(out, found);
  else if (!found.worst.empty())
    write_rows(out, found);
  out << "</div>\n";
}

bool are_comparable(const std::vector<Mistakes>& runs) {
  const Mistakes& first = runs.at(0);
  return std::all_of(runs.begin(), runs.end(), [&](const Mistakes& m) {
    const auto [own, other] = std::mismatch(m.all.begin(), m.all.end(), first.all.begin(), first.all.end(),
                                            [](const auto& a, const auto& b) { return a.truth == b.truth; });
    return m.fault.empty() && m.split == first.split && m.samples == first.samples && m.has_classes == first.has_classes &&
           m.classes == first.classes && (own == m.all.end() || other == first.all.end());
  });
}

void write_mistakes_together(std::ostream& out, const std::vector<std::string>& names, const std::vector<Mistakes>& runs) {
  out << "<div class=\"card\">";
  for (size_t i = 0; i < runs.size(); ++i)
    out << "<div><b>" << names[i] << "</b> <span class=\"soft\">" << count_text_of(runs[i]) << "</span></div>\n";
  const std::vector<const Mistake*> worst = worst_of_all(runs);
  if (worst.empty()) {
    out << "</div>\n";
    return;
  }
  out << "<p class=\"soft\">"
      << (runs[0].has_classes ? "The samples that most runs answer wrongly, and with the most confidence; wrong answers are bold."
                              : "The samples with the largest errors of all runs together; errors are in brackets.")
      << "</p>\n";
  const bool are_pictures = !worst[0]->picture.empty();
  // All runs that read the same file have the same columns.
  const Mistakes& with_cells = *std::max_element(
      runs.begin(), runs.end(), [](const Mistakes& a, const Mistakes& b) { return a.columns.size() < b.columns.size(); });
  if (are_pictures) {
    out << "<div class=\"shots\">\n";
  } else {
    out << "<table><tr><th>sample</th><th>is</th>";
    for (const std::string& name : names) out << "<th>" << name << "</th>";
    write_heads(out, with_cells);
  }
  for (const Mistake* m : worst) {
    if (are_pictures) {
      out << "<figure><img" << (m->is_coarse ? " class=\"coarse\"" : "") << " alt=\"" << escaped(m->sample) << "\" title=\""
          << escaped(m->sample) << "\" src=\"" << m->picture << "\"><figcaption>";
      for (size_t i = 0; i < runs.size(); ++i)
        out << "<i class=\"key\" style=\"background:" << color_of(i) << "\"></i>" << answer_of(runs[i], m->index) << "<br>";
      out << "<span class=\"soft\">is " << escaped(m->truth) << "<br>" << escaped(m->sample) << "</span></figcaption></figure>\n";
      continue;
    }
    out << "<tr><td class=\"soft\">" << escaped(m->sample) << "</td><td>" << escaped(m->truth) << "</td>";
    for (const Mistakes& run : runs) out << "<td>" << answer_of(run, m->index) << "</td>";
    write_cells(out, runs.at(0), *m);
  }
  out << (are_pictures ? "</div></div>\n" : "</table></div>\n");
}

}  // namespace halfstep::app
