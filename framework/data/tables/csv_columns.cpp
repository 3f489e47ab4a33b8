// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include "framework/base/check.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr const char* kColumns = "CSV";
constexpr size_t kMaxCategories = 64;
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();  // a missing value until it is filled in

double part_of_date(const CsvDate& date, std::string_view part) {
  if (part == "year") return date.year;
  if (part == "month") return date.month;
  if (part == "day") return date.day;
  if (part == "weekday") return date.weekday;
  return part == "hour" ? date.hour : date.days;
}

std::string count_of(size_t n, const char* what) { return joined(n, ' ', what, n == 1 ? "" : "s"); }

// Returns the replacement for missing values of a feature, computed from these rows.
double fill_of(const CsvFeature& f, const std::vector<int64_t>& rows, const CsvOptions& o, const std::string& path) {
  if (o.missing == CsvMissing::constant) return o.fill;
  std::vector<double> there;
  for (int64_t r : rows)
    if (const double value = f.values[size_t(r)]; !std::isnan(value)) there.push_back(value);
  check<DataError>(!there.empty(), kColumns, path, ": column \"", f.name,
                   "\" has no value in the part that is read, of which to take the ",
                   o.missing == CsvMissing::mean ? "mean" : "median");
  if (o.missing == CsvMissing::mean) return std::accumulate(there.begin(), there.end(), 0.0) / double(there.size());
  std::sort(there.begin(), there.end());
  const size_t middle = there.size() / 2;
  return there.size() % 2 == 1 ? there[middle] : (there[middle - 1] + there[middle]) / 2;
}

}  // namespace

int64_t find_known(const CsvSheet& sheet, size_t row, size_t column, std::string_view text, const std::vector<std::string>& names,
                   const char* what) {
  const int64_t found = find_label(names, text, sheet.format().decimal);
  if (found < 0)
    sheet.fail_at(row, column, "must be a ", what, " of the training data, got ", spelled(text),
                  Help{"it has " + some_labels(names)});
  return found;
}

std::vector<std::optional<size_t>> pair_by_name(const std::vector<std::string>& names, const std::vector<std::string>& all,
                                                const std::vector<size_t>& from) {
  std::unordered_map<std::string, std::queue<size_t>> of_name;
  for (const size_t c : from) of_name[text_key(all[c])].push(c);
  std::vector<std::optional<size_t>> out;
  for (const std::string& name : names) {
    std::queue<size_t>& left = of_name[text_key(name)];
    out.push_back(left.empty() ? std::nullopt : std::optional(left.front()));
    if (!left.empty()) left.pop();
  }
  return out;
}

void CsvValues::push_back(double value) {
  const bool none = std::isnan(value),
             small = none || (value >= 0 && value < kNone && value == std::floor(value) && !std::signbit(value));
  if (small && wide_.empty()) return small_.push_back(none ? kNone : uint8_t(value));
  for (const uint8_t v : small_) wide_.push_back(v == kNone ? kNoValue : v);
  small_ = {};
  wide_.push_back(value);
}

bool CsvColumns::is_missing(size_t row, size_t column) const {
  if (words_are_texts_ && !std::isnan(sheet_.plain_number(row, column))) return false;
  const std::string_view cell = sheet_.cell(row, column);
  return is_missing_cell(cell, options_.missing_words);
}

bool CsvColumns::meets_missing(size_t row, size_t column, const char* kind) {
  if (!is_missing(row, column)) return false;
  const std::string_view cell = sheet_.cell(row, column);
  if (options_.missing == CsvMissing::refuse)
    sheet_.fail_at(row, column, "must ", kind, ", but the cell ",
                   cell.empty() ? std::string("is empty") : joined("is \"", cell, '"'),
                   Help{options_.tokens ? "missing: drop_row leaves the row out, constant reads it as a text without words"
                                        : "missing: drop_row, mean, median or constant would do without"});
  ++missing_;
  return true;
}

std::vector<size_t> CsvColumns::choose(size_t target, const std::string& path) const {
  const CsvOptions& o = options_;
  const std::vector<std::string>& all = sheet_.names();
  const bool known = o.encoding && !o.encoding->columns.empty(), by_name = known && sheet_.has_header() && o.encoding->header;
  check<ConfigError>(o.features.empty() || o.exclude.empty(), kColumns, "give features or exclude, not both");
  std::vector<size_t> out, excluded;
  for (const std::string& name : o.exclude) {
    // A held-out file may lack columns that were left out of the training data.
    int64_t number = 0;
    if (by_name && find_name(all, name) < 0 && !parse_integer(name, number)) continue;
    excluded.push_back(sheet_.find(name));
    check<ConfigError>(excluded.back() != target, kColumns, path, ": column \"", all[target], "\" is the target, and excluded");
  }
  for (const std::string& name : o.features) out.push_back(sheet_.find(name));
  for (size_t c = 0; c < all.size() && o.features.empty(); ++c) {
    if (c != target && std::find(excluded.begin(), excluded.end(), c) == excluded.end()) out.push_back(c);
  }
  check<ConfigError>(all.size() > 1, kColumns, path, " has only one column, which leaves none for the features",
                     Help{joined("the delimiter is ",
                                 sheet_.format().delimiter == kCsvBlanks ? "blanks" : joined('\'', sheet_.format().delimiter, '\''),
                                 "; \"delimiter\" sets another")});
  check<ConfigError>(!out.empty(), kColumns, path, ": exclude leaves no column for the features");
  for (auto c = out.begin(); c != out.end(); ++c) {
    check<ConfigError>(*c != target, kColumns, path, ": column \"", all[*c],
                       "\" is the target, which a model must not be given as a feature");
    check<ConfigError>(std::find(out.begin(), c, *c) == c, kColumns, path, ": column \"", all[*c],
                       "\" is among the features twice");
  }
  for (const std::string& name : o.dates) {
    if (known) break;
    const size_t date = sheet_.find(name);
    check<ConfigError>(std::find(out.begin(), out.end(), date) != out.end(), kColumns, path, ": column \"", all[date],
                       "\" is listed in dates, but is not a feature");
  }
  if (!known) return out;
  std::vector<std::string> names;
  for (const CsvEncoding::Column& c : o.encoding->columns) names.push_back(c.name);
  check<DataError>(out.size() == names.size(), kColumns, path, " must have the training data's ", names.size(),
                   " columns besides the target, got ", out.size(), Help{"those are " + some_labels(names)});
  if (!by_name) return out;
  const std::vector<std::optional<size_t>> paired = pair_by_name(names, all, out);
  for (size_t i = 0; i < names.size(); ++i) {
    check<DataError>(paired[i].has_value(), kColumns, path, " has no column \"", names[i], "\", which the training data has",
                     Help{"its columns are " + some_labels(all)});
    out[i] = *paired[i];
  }
  return out;
}

// Returns whether the column has a number. "inf" and "nan" are numbers only where no other texts are: a ticker or a name may be so.
bool CsvColumns::has_numbers(size_t column) const {
  bool words = false, texts = false;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    if (is_missing(r, column)) continue;
    if (!std::isnan(sheet_.plain_number(r, column))) return true;
    double value = 0;
    const bool number = parse_number(sheet_.cell(r, column), sheet_.format(), value);
    if (number && std::isfinite(value)) return true;
    (number ? words : texts) = true;
  }
  return words && !texts;
}

CsvEncoding::Column CsvColumns::append(size_t column, const CsvEncoding::Column* given, std::vector<CsvFeature>& out) {
  CsvEncoding::Column made{sheet_.names()[column]};
  bool date = false, numeric = false;
  if (given) {
    made = *given;
    date = !made.date.empty(), numeric = !date && made.categories.empty();
  } else {
    for (const std::string& name : options_.dates) date = date || sheet_.find(name) == column;
    numeric = !date && has_numbers(column);
  }
  const size_t before = out.size();
  if (numeric) {
    CsvValues values;
    bool held = true;  // whether the values are still those of the sheet
    for (size_t r = 0; r < sheet_.rows(); ++r) {
      const double holds = sheet_.plain_number(r, column);
      if (held && words_are_texts_ && std::abs(holds) <= double(std::numeric_limits<float>::max())) continue;
      const double value = meets_missing(r, column, "be a number") ? kNoValue : sheet_.number(r, column);
      if (held && (value == holds || (std::isnan(value) && std::isnan(holds)))) continue;
      for (size_t k = 0; held && k < r; ++k) values.push_back(sheet_.plain_number(k, column));
      held = false;
      values.push_back(value);
    }
    out.push_back({made.name, held ? CsvValues(sheet_, column) : std::move(values)});
    ++numbers_;
    return made;
  }
  if (date)
    append_date(column, made, given, out);
  else
    append_texts(column, made, given, out);
  others_.push_back({made.name.empty() ? joined("column ", column) : made.name, out.size() - before, date});
  return made;
}

std::vector<std::string_view> CsvColumns::texts(size_t column) {
  std::vector<std::string_view> out;
  for (size_t r = 0; r < sheet_.rows(); ++r)
    out.push_back(meets_missing(r, column, "have a text") ? std::string_view() : sheet_.cell(r, column));
  return out;
}

void CsvColumns::append_date(size_t column, CsvEncoding::Column& made, bool given, std::vector<CsvFeature>& out) {
  std::vector<CsvDate> dates(sheet_.rows());
  std::vector<bool> there(sheet_.rows());
  bool timed = false, short_years = false;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    if (meets_missing(r, column, "be a date")) continue;
    const std::string_view cell = sheet_.cell(r, column);
    there[r] = true;
    if (!parse_date(cell, options_.date_order, dates[r]))
      sheet_.fail_at(r, column, "must be a date such as ",
                     options_.date_order == CsvDateOrder::ymd   ? "2024-03-18 or 2024-03-18 14:30"
                     : options_.date_order == CsvDateOrder::dmy ? "18.03.2024 or 18/03/2024 14:30"
                                                                : "03/18/2024 or 03/18/2024 2:30 PM",
                     ", got \"", cell.substr(0, 60), '"',
                     Help{"\"date_order\": \"ymd\", \"dmy\" or \"mdy\" sets the order of year, month and day"});
    timed = timed || dates[r].timed;
    if (dates[r].short_year && !short_years)
      joined_ += joined("; column ", made.name, ": years have two digits, \"", cell.substr(0, 60), "\" is ", text_of(dates[r]));
    short_years = short_years || dates[r].short_year;
  }
  if (!given) {
    made.date = {"days"};
    if (options_.date_parts) made.date = {"year", "month", "day", "weekday"};
    if (options_.date_parts && timed) made.date.emplace_back("hour");
  }
  for (const std::string& part : made.date) {
    CsvFeature f{part == "days" ? made.name : made.name + '.' + part, {}};
    for (size_t r = 0; r < dates.size(); ++r) f.values.push_back(there[r] ? part_of_date(dates[r], part) : kNoValue);
    out.push_back(std::move(f));
  }
}

// Returns the same as doubt() for many different numbers with one unit.
std::string CsvColumns::doubt_quantities(size_t column) const {
  CsvHint first;
  std::set<std::string_view> different;
  std::string_view example;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    if (is_missing(r, column)) continue;
    const std::string_view cell = sheet_.cell(r, column);
    const CsvHint hint = quantity_hint(cell, sheet_.format());
    if (hint.what.empty() || (!first.what.empty() && hint.what != first.what)) return "";
    if (first.what.empty()) first = hint, example = cell;
    if (different.size() <= kFewQuantities) different.insert(cell);
  }
  return different.size() <= kFewQuantities ? "" : joined("numbers with ", first.what, " (\"", example, "\")\n", first.remedy);
}

// Returns the probable meaning of a text column whose cells all look like numbers or dates, and the remedy, on two lines; "":
// none.
std::string CsvColumns::doubt(size_t column) const {
  CsvHint first;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    if (is_missing(r, column)) continue;
    const CsvHint hint = number_hint(sheet_.cell(r, column), sheet_.format());
    if (hint.what.empty()) return doubt_quantities(column);
    if (first.what.empty() && !hint.word)
      first = {joined(hint.what == "dates" ? "" : "numbers with ", hint.what, " (\"", sheet_.cell(r, column), "\")"), hint.remedy};
  }
  return first.what.empty() ? "" : first.what + '\n' + first.remedy;
}

std::vector<int64_t> CsvColumns::learn_categories(size_t column, CsvEncoding::Column& made) {
  const auto text_of = [&](size_t r) {
    return meets_missing(r, column, "have a value") ? std::string_view() : sheet_.spelled(r, column);
  };
  const std::string doubted = doubt(column);
  const size_t cut = doubted.find('\n');
  LabelSet categories(sheet_.format().decimal);
  std::vector<size_t> of_row;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    of_row.push_back(categories.add(text_of(r)));
    if (categories.size() > kMaxCategories)
      sheet_.fail_at(r, column, "has no numbers, and more than ", kMaxCategories, " different texts",
                     doubted.empty() ? std::string() : ", all of them " + doubted.substr(0, cut),
                     Help{doubted.empty() ? "leave it out with \"exclude\", or make it the target" : doubted.substr(cut + 1)});
  }
  std::vector<int64_t> places, out;
  made.categories = categories.names(places);
  if (!doubted.empty())
    warnings_.push_back(joined("column \"", made.name, "\" has ", doubted.substr(0, cut), ", read as ", made.categories.size(),
                               " different texts; ", doubted.substr(cut + 1)));
  if (const std::string alike = categories.joined_spellings(); !alike.empty())
    joined_ += joined("; column ", made.name, ": ", alike);
  if (const std::string cases = categories.differ_in_case("values"); !cases.empty())
    warnings_.push_back(joined("column \"", made.name, "\": ", cases));
  for (const size_t label : of_row) out.push_back(places[label]);
  return out;
}

// Returns the category for a text that the training data lacks; -1: none.
int64_t CsvColumns::unknown_category(size_t row, size_t column, const CsvEncoding::Column& made) {
  const std::string_view text = is_missing(row, column) ? std::string_view() : sheet_.cell(row, column);
  const std::string& as = options_.unknown;
  const bool missing = as == "missing";
  if (as == "refuse" || (missing && options_.missing == CsvMissing::refuse))
    return find_known(sheet_, row, column, text, made.categories, "value");
  const int64_t place = find_label(made.categories, missing ? std::string_view() : as, sheet_.format().decimal);
  if (place < 0 && (!missing || (!options_.one_hot && options_.missing != CsvMissing::drop_row)))
    sheet_.fail_at(row, column, "must be a value of the training data, got ", spelled(text), ", and \"unknown\" is ",
                   missing ? "missing, but the training data misses no value" : spelled(as) + ", which is none of them",
                   Help{joined("it has ", some_labels(made.categories),
                               missing ? "; \"categories\": \"one_hot\" can say that it is none of them" : "")});
  if (missing && is_missing(row, column)) return place;  // counted where it was first read
  if (unknown_++ == 0) unknown_example_ = joined(spelled(text.substr(0, 60)), " in column ", made.name);
  if (missing) ++missing_;
  return place;
}

bool CsvColumns::is_left_out(size_t row, size_t column, const CsvEncoding::Column* given) const {
  if (is_missing(row, column)) return true;
  return options_.unknown == "missing" && given && !given->categories.empty() &&
         find_label(given->categories, sheet_.cell(row, column), sheet_.format().decimal) < 0;
}

void CsvColumns::append_texts(size_t column, CsvEncoding::Column& made, bool given, std::vector<CsvFeature>& out) {
  std::vector<int64_t> of_row;
  if (!given) {
    of_row = learn_categories(column, made);
  } else {
    std::unordered_map<std::string_view, int64_t> seen;  // indices in the list; -1: missing
    for (size_t r = 0; r < sheet_.rows(); ++r) {
      const std::string_view text = meets_missing(r, column, "have a value") ? std::string_view() : sheet_.cell(r, column);
      const auto [at, fresh] = seen.try_emplace(text, -1);
      if (fresh) at->second = find_label(made.categories, text, sheet_.format().decimal);
      of_row.push_back(at->second >= 0 ? at->second : unknown_category(r, column, made));
    }
  }
  if (!options_.one_hot) return out.push_back({made.name, {of_row.begin(), of_row.end()}, true});
  for (size_t c = 0; c < made.categories.size(); ++c) {
    CsvFeature f{made.name + '=' + made.categories[c], {}, true};
    for (const int64_t category : of_row) f.values.push_back(category == int64_t(c) ? 1 : 0);
    out.push_back(std::move(f));
  }
}

void fill_missing(std::vector<CsvFeature>& features, const std::vector<int64_t>& rows, const CsvOptions& o, const std::string& path,
                  std::vector<double>& learnt) {
  if (o.missing == CsvMissing::refuse || o.missing == CsvMissing::drop_row) return;
  const bool given = learnt.size() == features.size();
  for (size_t j = 0; j < features.size(); ++j) {
    if (!given) learnt.push_back(features[j].categorical ? 0 : fill_of(features[j], rows, o, path));
    features[j].values.fill(learnt[j]);
  }
}

DataNotes CsvColumns::notes() const {
  DataNotes out = sheet_.notes();
  out.warnings.insert(out.warnings.end(), warnings_.begin(), warnings_.end());
  const std::string file = std::exchange(out.summary, "");
  if (numbers_ > 0) out.summary = count_of(size_t(numbers_), "column") + " of numbers";
  for (const bool date : {false, true}) {
    std::string list;
    size_t columns = 0, inputs = 0;
    for (const Became& b : others_) {
      if (b.date != date) continue;
      ++columns, inputs += b.inputs;
      list += joined(list.empty() ? "" : ", ", b.column, ' ', b.inputs);
    }
    if (columns == 0) continue;
    out.summary += joined(out.summary.empty() ? "" : "; ", count_of(columns, date ? "date column" : "text column"), " became ",
                          count_of(inputs, "input"), ": ", list);
  }
  out.summary += joined_;
  if (!file.empty()) out.summary += "; " + file;
  return out;
}

}  // namespace halfstep
