// SPDX-License-Identifier: Apache-2.0
#include "apps/start/init_leaks.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/sets/class_folders.h"
#include "framework/data/tables/labels.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostParts = 20;  // folds
constexpr size_t kLeastIds = 5;    // fewer are kinds, such as gender_id
constexpr size_t kLeastRows = 20;  // fewer may agree by accident

bool is_absent(const InitColumn& c, std::string_view cell) { return cell.empty() || c.words.contains(std::string(cell)); }

// Returns how many rows have each value.
std::map<std::string, size_t> counts_of(const CsvSheet& sheet, const InitColumn& c) {
  std::map<std::string, size_t> out;
  for (size_t row = 0; row < sheet.rows(); ++row)
    if (const std::string_view cell = sheet.cell(row, c.index); !is_absent(c, cell)) ++out[std::string(cell)];
  return out;
}

bool is_one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Returns whether the values are names of parts: "train" and "test", "Training" and "PublicTest".
bool has_parts(const CsvSheet& sheet, const InitColumn& c) {
  bool trains = false;
  size_t others = 0;
  for (const auto& [value, count] : counts_of(sheet, c)) {
    const std::string small = lower_case(without_blanks(value));
    const bool train = is_one_of(small, kTrainWords);
    if (!train && !is_one_of(small, kValWords) && !is_one_of(small, kOtherPartWords) && !small.ends_with("test") &&
        !is_one_of(small, kTestWords))
      return false;
    trains |= train, others += !train;
  }
  return trains && others > 0;
}

// Reads the file as texts, so that nothing but the rows changes.
std::string in_pandas_as_texts(const CsvSheet& sheet, const fs::path& file) {
  const char delimiter = sheet.format().delimiter;
  const std::string sep = delimiter == ',' || delimiter == 0 ? "" : joined(", sep=", in_quotes(std::string(1, delimiter)));
  return joined("in Python: import pandas; t = pandas.read_csv(", in_quotes(file.string()), ", dtype=str, keep_default_na=False",
                sep, "); ");
}

// Returns the lines of Python that write the rows `v` to one file and the others to another, and what to do with them.
std::string into_two_files(const fs::path& file) {
  const std::string stem = file.stem().string();
  const auto to = [&](const char* part) { return joined(".to_csv(", in_quotes(stem + part), ", index=False)"); };
  return joined("; t[~v]", to("_train.csv"), "; t[v]", to("_val.csv"), "; train and val then have these files, without \"range\"");
}

// Sums over pairs of numbers, for a straight line through them.
struct Line {
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;  // means, and sums of squares about them
  void add(double a, double b) {
    ++n;
    const double dx = a - x, dy = b - y;
    x += dx / n, y += dy / n;
    xx += dx * (a - x), yy += dy * (b - y), xy += dx * (b - y);
  }
  double slope() const { return xy / xx; }
  double at(double a) const { return y + slope() * (a - x); }
  double deviation() const { return std::sqrt(yy / n); }
};

// Returns whether the second numbers, or their logarithms, are a straight function of the first ones, up to rounding.
bool lie_on_line(const std::vector<std::pair<double, double>>& pairs, bool log_x, bool log_y) {
  constexpr double kRounding = 1e-3;  // of the target's deviation
  const auto in = [](double v, bool is_log) { return is_log ? std::log(v) : v; };
  for (const size_t n : {std::min<size_t>(pairs.size(), 200), pairs.size()}) {
    Line line;
    for (size_t i = 0; i < n; ++i) {
      if ((log_x && !(pairs[i].first > 0)) || (log_y && !(pairs[i].second > 0))) return false;
      line.add(in(pairs[i].first, log_x), in(pairs[i].second, log_y));
    }
    if (!(line.xx > 0) || !(line.yy > 0)) return false;
    for (size_t i = 0; i < n; ++i)
      if (!(std::abs(in(pairs[i].second, log_y) - line.at(in(pairs[i].first, log_x))) <= kRounding * line.deviation()))
        return false;
  }
  return true;
}

// Returns the pairs of numbers of two columns; nothing if too few rows have both.
std::vector<std::pair<double, double>> number_pairs(const CsvSheet& sheet, const CsvFormat& format, const InitColumn& a,
                                                    const InitColumn& b) {
  std::vector<std::pair<double, double>> out;
  const auto number = [&](size_t row, const InitColumn& c) {
    double value = NAN;
    const std::string_view cell = sheet.cell(row, c.index);
    return !is_absent(c, cell) && parse_number(cell, format, value) ? value : NAN;
  };
  for (size_t row = 0; row < sheet.rows(); ++row) {
    const double x = number(row, a), y = number(row, b);
    if (std::isfinite(x) && std::isfinite(y)) out.emplace_back(x, y);
  }
  if (out.size() < kLeastRows || 2 * out.size() < sheet.rows()) out.clear();
  return out;
}

// Returns an example, "\"1\" is always \"yes\"", if each value of one column goes with one value of the other; "" otherwise.
std::string renamed(const CsvSheet& sheet, const InitColumn& c, const InitColumn& target) {
  std::unordered_map<std::string_view, std::string_view> there, back;
  size_t rows = 0;
  std::string example;
  for (size_t row = 0; row < sheet.rows(); ++row) {
    const std::string_view a = sheet.cell(row, c.index), b = sheet.cell(row, target.index);
    if (is_absent(c, a) || is_absent(target, b)) continue;
    ++rows;
    if (there.emplace(a, b).first->second != b || back.emplace(b, a).first->second != a) return "";
    if (example.empty())
      example = joined(in_quotes(std::string(a.substr(0, 40))), " is always ", in_quotes(std::string(b.substr(0, 40))));
  }
  return rows >= kLeastRows && 2 * rows >= sheet.rows() && there.size() > 1 ? example : "";
}

// Notes what a column that names parts means.
void note_parts(InitParts& out, const CsvSheet& sheet, const fs::path& file, const InitColumn& parts) {
  std::vector<std::string> values;
  for (const auto& [value, count] : counts_of(sheet, parts)) values.push_back(joined(value, ' ', count));
  const std::string column = "t[" + in_quotes(parts.name) + "]", small = lower_case(parts.name);
  std::string first = counts_of(sheet, parts).begin()->first;
  if (parts.distinct == 2 && small.find("train") == std::string::npos) first = counts_of(sheet, parts).rbegin()->first;
  const std::string how =
      has_parts(sheet, parts)
          ? joined("[p.to_csv(", in_quotes(file.stem().string() + "_"), " + k + \".csv\", index=False) for k, p in ", "t.groupby(",
                   in_quotes(parts.name), ")]; train, val and test then have these files, without ", "\"range\"")
          : joined("v = ", column, " == ", in_quotes(first), into_two_files(file));
  out.notes.push_back(joined(parts.name, " names the parts of its author (", list_text(values),
                             "), but the part for validation is a ", "random one; for those parts, ",
                             in_pandas_as_texts(sheet, file), how));
}

// Notes what ids mean that rows share.
void note_shared_ids(InitParts& out, const CsvSheet& sheet, const fs::path& file, const std::vector<const InitColumn*>& ids) {
  std::vector<std::string> names;
  for (const InitColumn* c : ids) names.push_back(c->name);
  const auto most = std::max_element(ids.begin(), ids.end(), [](const InitColumn* a, const InitColumn* b) {
    return a->filled() * b->distinct < b->filled() * a->distinct;  // rows for each
  });
  const std::string column = "t[" + in_quotes((*most)->name) + "]";
  out.notes.push_back(joined("rows of one ", list_text(names, 8, " or of one "),
                             " lie in both parts, so that validation may be better than new ones are; for parts without a common ",
                             (*most)->name, ", ", in_pandas_as_texts(sheet, file), "v = ", column, ".isin(", column,
                             ".drop_duplicates().sample(frac=0.2, random_state=0))", into_two_files(file)));
}

}  // namespace

bool names_parts(const CsvSheet& sheet, const InitColumn& c) {
  if (!sheet.has_header() || c.distinct < 2 || c.distinct > kMostParts || c.kind == ColumnKind::date) return false;
  if (c.kind == ColumnKind::text && has_parts(sheet, c)) return true;
  const std::string small = lower_case(c.name);
  const bool is_fold = (rest_without(small, "fold") && !small.ends_with("change")) || rest_without(small, "folds") ||
                       rest_without(small, "kfold") || is_one_of(small, {"split", "data_split", "train_test_split", "cv"}),
             is_flag = c.distinct == 2 && is_one_of(small, {"is_train", "istrain", "is_test", "istest", "is_val", "is_valid",
                                                            "is_validation", "in_train", "in_test", "is_training"});
  return (is_fold || is_flag) && 5 * c.distinct <= c.filled() && (c.kind == ColumnKind::text || c.all_integers);
}

bool is_shared_id(const CsvSheet& sheet, const InitColumn& c) {
  const std::string small = lower_case(c.name);
  if (!sheet.has_header() || c.distinct < kLeastIds || c.distinct >= c.filled() || small == "index" || small == "rownames")
    return false;
  if (c.kind != ColumnKind::text && !(c.kind == ColumnKind::number && c.all_integers)) return false;
  if (is_named_as_id(c.name)) return true;
  const bool has_numbers = c.kind == ColumnKind::number || c.example.find_first_of("0123456789") != std::string::npos;
  return has_numbers && is_one_of(small, {"patient", "subject", "participant", "user", "customer", "client", "respondent",
                                          "household", "speaker", "donor", "person"});
}

std::string why_same_as_target(const CsvSheet& sheet, const TableReading& r, const InitColumn& c, const InitColumn& target) {
  const bool few = 5 * target.distinct <= target.filled(), numbers = c.kind == ColumnKind::number;
  if ((!numbers && c.kind != ColumnKind::text) || target.kind == ColumnKind::date) return "";
  if (few && c.distinct == target.distinct) {
    const std::string example = renamed(sheet, c, target);
    return example.empty() ? "" : joined("is ", phrase(sheet, target), " under other names: ", example);
  }
  if (few || !numbers || target.kind != ColumnKind::number || 2 * c.distinct < target.distinct) return "";
  const std::vector<std::pair<double, double>> pairs = number_pairs(sheet, r.format, c, target);
  if (pairs.empty()) return "";
  for (const auto& [log_x, log_y] : {std::pair(false, false), {true, false}, {false, true}, {true, true}})
    if (lie_on_line(pairs, log_x, log_y))
      return joined("is ", phrase(sheet, target), " in another scale: ", pairs[0].first, " for ", pairs[0].second);
  return "";
}

void note_random_part(InitParts& out, const CsvSheet& sheet, const fs::path& file, const std::vector<InitColumn>& all,
                      const InitColumn& target, const std::vector<const InitColumn*>& inputs) {
  std::vector<const InitColumn*> ids;
  for (const InitColumn& c : all) {
    if (&c == &target) continue;
    if (names_parts(sheet, c)) note_parts(out, sheet, file, c);
    if (is_shared_id(sheet, c) && std::find(inputs.begin(), inputs.end(), &c) == inputs.end()) ids.push_back(&c);
  }
  if (!ids.empty()) note_shared_ids(out, sheet, file, ids);
}

}  // namespace halfstep::app
