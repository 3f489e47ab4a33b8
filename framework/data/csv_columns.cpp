// SPDX-License-Identifier: Apache-2.0
#include "framework/data/csv_columns.h"

#include <algorithm>
#include <limits>
#include <map>

#include "framework/base/check.h"

namespace halfstep {
namespace {

constexpr const char* kColumns = "CSV";
constexpr size_t kMaxCategories = 64;
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();  // a missing value until it is filled in

// Some of many names, for a message.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) out += (i ? ", \"" : "\"") + names[i] + '"';
  return out + (names.size() > kShown ? joined(" and ", names.size() - kShown, " more") : "");
}

double part_of_date(const CsvDate& date, std::string_view part) {
  if (part == "year") return date.year;
  if (part == "month") return date.month;
  if (part == "day") return date.day;
  if (part == "weekday") return date.weekday;
  return part == "hour" ? date.hour : date.days;
}

std::string count_of(size_t n, const char* what) { return joined(n, ' ', what, n == 1 ? "" : "s"); }

}  // namespace

int64_t find_known(const CsvSheet& sheet, size_t row, size_t column, std::string_view text, const std::vector<std::string>& names,
                   const char* what) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    sheet.fail_at(row, column, "must be a ", what, " of the training data, got \"", text, '"', Help{"it has " + some_of(names)});
  return found - names.begin();
}

std::vector<std::optional<size_t>> pair_by_name(const std::vector<std::string>& names, const std::vector<std::string>& all,
                                                std::vector<size_t> from) {
  std::vector<std::optional<size_t>> out;
  for (const std::string& name : names) {
    const auto found = std::find_if(from.begin(), from.end(), [&](size_t c) { return all[c] == name; });
    out.push_back(found == from.end() ? std::nullopt : std::optional(*found));
    if (found != from.end()) from.erase(found);
  }
  return out;
}

bool CsvColumns::is_missing(size_t row, size_t column) const {
  const std::string_view cell = sheet_.cell(row, column);
  const auto& words = options_.missing_words;
  return cell.empty() || std::find(words.begin(), words.end(), cell) != words.end();
}

bool CsvColumns::meets_missing(size_t row, size_t column, const char* kind) {
  if (!is_missing(row, column)) return false;
  const std::string_view cell = sheet_.cell(row, column);
  if (options_.missing == CsvMissing::refuse)
    sheet_.fail_at(row, column, "must ", kind, ", but the cell ",
                   cell.empty() ? std::string("is empty") : joined("is \"", cell, '"'),
                   Help{"missing: drop_row, mean, median or constant would do without"});
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
    // A held-out file need not have the columns that were left out of the training data.
    if (by_name && std::find(all.begin(), all.end(), name) == all.end()) continue;
    excluded.push_back(sheet_.find(name));
    check<ConfigError>(excluded.back() != target, kColumns, path, ": column \"", all[target], "\" is the target, and excluded");
  }
  for (const std::string& name : o.features) out.push_back(sheet_.find(name));
  for (size_t c = 0; c < all.size() && o.features.empty(); ++c) {
    if (c != target && std::find(excluded.begin(), excluded.end(), c) == excluded.end()) out.push_back(c);
  }
  check<ConfigError>(all.size() > 1, kColumns, path, " has only one column, which leaves none for the features",
                     Help{joined("the delimiter is '", sheet_.format().delimiter, "'; \"delimiter\" sets another")});
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
                   " columns besides the target, got ", out.size(), Help{"those are " + some_of(names)});
  if (!by_name) return out;
  const std::vector<std::optional<size_t>> paired = pair_by_name(names, all, out);
  for (size_t i = 0; i < names.size(); ++i) {
    check<DataError>(paired[i].has_value(), kColumns, path, " has no column \"", names[i], "\", which the training data has",
                     Help{"its columns are " + some_of(all)});
    out[i] = *paired[i];
  }
  return out;
}

CsvEncoding::Column CsvColumns::append(size_t column, const CsvEncoding::Column* given, std::vector<CsvFeature>& out) {
  CsvEncoding::Column made{sheet_.names()[column]};
  bool date = false, numeric = false;
  if (given) {
    made = *given;
    date = !made.date.empty(), numeric = !date && made.categories.empty();
  } else {
    for (const std::string& name : options_.dates) date = date || sheet_.find(name) == column;
    for (size_t r = 0; r < sheet_.rows() && !date && !numeric; ++r) numeric = !is_missing(r, column) && sheet_.is_number(r, column);
  }
  const size_t before = out.size();
  if (numeric) {
    CsvFeature f{made.name, {}};
    for (size_t r = 0; r < sheet_.rows(); ++r)
      f.values.push_back(meets_missing(r, column, "be a number") ? kNoValue : sheet_.number(r, column));
    out.push_back(std::move(f));
    ++numbers_;
    return made;
  }
  if (date)
    append_date(column, made, given, out);
  else
    append_texts(column, made, given, out);
  others_.push_back({made.name, out.size() - before, date});
  return made;
}

void CsvColumns::append_date(size_t column, CsvEncoding::Column& made, bool given, std::vector<CsvFeature>& out) {
  std::vector<CsvDate> dates(sheet_.rows());
  std::vector<bool> there(sheet_.rows());
  bool timed = false;
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

// The probable meaning of a text column whose cells all look like numbers or dates, and the remedy, on two lines; "": none.
std::string CsvColumns::doubt(size_t column) const {
  CsvHint first;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    if (is_missing(r, column)) continue;
    const CsvHint hint = number_hint(sheet_.cell(r, column), sheet_.format());
    if (hint.what.empty()) return "";
    if (first.what.empty() && !hint.word)
      first = {joined(hint.what == "dates" ? "" : "numbers with ", hint.what, " (\"", sheet_.cell(r, column), "\")"), hint.remedy};
  }
  return first.what.empty() ? "" : first.what + '\n' + first.remedy;
}

std::vector<int64_t> CsvColumns::learn_categories(size_t column, CsvEncoding::Column& made) {
  const auto text_of = [&](size_t r) {
    return meets_missing(r, column, "have a value") ? std::string_view() : sheet_.cell(r, column);
  };
  const std::string doubted = doubt(column);
  const size_t cut = doubted.find('\n');
  std::map<std::string_view, int64_t> categories;
  std::vector<std::string_view> texts;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    texts.push_back(text_of(r));
    categories[texts.back()] = 0;
    if (categories.size() > kMaxCategories)
      sheet_.fail_at(r, column, "has no numbers, and more than ", kMaxCategories, " different texts",
                     doubted.empty() ? std::string() : ", all of them " + doubted.substr(0, cut),
                     Help{doubted.empty() ? "leave it out with \"exclude\", or make it the target" : doubted.substr(cut + 1)});
  }
  for (auto& [category, number] : categories) {
    number = int64_t(made.categories.size());
    made.categories.emplace_back(category);
  }
  if (!doubted.empty())
    warnings_.push_back(joined("column \"", made.name, "\" has ", doubted.substr(0, cut), ", read as ", made.categories.size(),
                               " different texts; ", doubted.substr(cut + 1)));
  std::vector<int64_t> out;
  for (const std::string_view text : texts) out.push_back(categories[text]);
  return out;
}

void CsvColumns::append_texts(size_t column, CsvEncoding::Column& made, bool given, std::vector<CsvFeature>& out) {
  std::vector<int64_t> of_row;
  if (!given) {
    of_row = learn_categories(column, made);
  } else {
    for (size_t r = 0; r < sheet_.rows(); ++r) {
      const bool none = meets_missing(r, column, "have a value");
      of_row.push_back(find_known(sheet_, r, column, none ? std::string_view() : sheet_.cell(r, column), made.categories, "value"));
    }
  }
  if (!options_.one_hot) return out.push_back({made.name, {of_row.begin(), of_row.end()}, true});
  for (size_t c = 0; c < made.categories.size(); ++c) {
    CsvFeature f{made.name + '=' + made.categories[c], {}, true};
    for (const int64_t category : of_row) f.values.push_back(category == int64_t(c) ? 1 : 0);
    out.push_back(std::move(f));
  }
}

DataNotes CsvColumns::notes() const {
  DataNotes out;
  out.warnings = warnings_;
  if (sheet_.guessed())
    out.warnings.emplace_back("the first row was read as a sample; if it is a header, set \"header\": true (false: no warning)");
  if (numbers_ > 0) out.made = count_of(size_t(numbers_), "column") + " of numbers";
  for (const bool date : {false, true}) {
    std::string list;
    size_t columns = 0, inputs = 0;
    for (const Became& b : others_) {
      if (b.date != date) continue;
      ++columns, inputs += b.inputs;
      list += joined(list.empty() ? "" : ", ", b.column, ' ', b.inputs);
    }
    if (columns == 0) continue;
    out.made += joined(out.made.empty() ? "" : "; ", count_of(columns, date ? "date column" : "text column"), " became ",
                       count_of(inputs, "input"), ": ", list);
  }
  return out;
}

}  // namespace halfstep
