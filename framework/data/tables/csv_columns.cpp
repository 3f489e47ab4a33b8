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
#include "framework/base/list_text.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr const char* kColumns = "CSV";
constexpr size_t kMaxCategories = 64;                                  // of a column; more are probably names or texts
constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();  // a missing value until it is filled in

// Returns a part of a date. own_zone: the day and the hour of its zone, in place of UTC.
double part_of_date(const CsvDate& given, std::string_view part, bool own_zone) {
  const CsvDate date = own_zone && part != "days" ? in_own_zone(given) : given;
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
  std::vector<double> values;
  for (int64_t r : rows)
    if (const double value = f.values[size_t(r)]; !std::isnan(value)) values.push_back(value);
  check<DataError>(!values.empty(), kColumns, path, ": column \"", f.name,
                   "\" has no value in the part that is read, of which to take the ",
                   o.missing == CsvMissing::mean ? "mean" : "median");
  if (o.missing == CsvMissing::mean) return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
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

std::string words_read_as_texts(const std::string& where, const std::vector<std::string>& texts, const CsvFormat& format) {
  std::vector<std::string> words;
  for (const std::string& text : texts)
    if (number_hint(text, format).word) words.push_back(spelled(text));
  if (words.empty()) return "";
  const std::string all = list_text(words, words.size());
  const bool one = words.size() == 1;
  return joined("; ", where, ": ", all, one ? " is one of the texts" : " are some of the texts", "; \"missing_words\": [", all,
                "] reads ", one ? "it as a missing value" : "them as missing values");
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

bool CsvColumns::count_missing(size_t row, size_t column, const char* kind) {
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
  CsvEncoding::Column encoding{sheet_.names()[column]};
  bool date = false, numeric = false;
  if (given) {
    encoding = *given;
    date = !encoding.date.empty(), numeric = !date && encoding.categories.empty();
  } else {
    for (const std::string& name : options_.dates) date = date || sheet_.find(name) == column;
    numeric = !date && has_numbers(column);
  }
  const size_t before = out.size();
  if (numeric) {
    CsvValues values;
    bool is_as_in_sheet = true;  // whether the values are still those of the sheet
    for (size_t r = 0; r < sheet_.rows(); ++r) {
      const double sheet_value = sheet_.plain_number(r, column);
      if (is_as_in_sheet && words_are_texts_ && std::abs(sheet_value) <= double(std::numeric_limits<float>::max())) continue;
      const double value = count_missing(r, column, "be a number") ? kNoValue : sheet_.number(r, column);
      if (is_as_in_sheet && (value == sheet_value || (std::isnan(value) && std::isnan(sheet_value)))) continue;
      for (size_t k = 0; is_as_in_sheet && k < r; ++k) values.push_back(sheet_.plain_number(k, column));
      is_as_in_sheet = false;
      values.push_back(value);
    }
    out.push_back({encoding.name, is_as_in_sheet ? CsvValues(sheet_, column) : std::move(values)});
    ++number_columns_;
    return encoding;
  }
  if (date)
    append_date(column, encoding, given, out);
  else
    append_texts(column, encoding, given, out);
  converted_columns_.push_back({encoding.name.empty() ? joined("column ", column) : encoding.name, out.size() - before, date});
  return encoding;
}

std::vector<std::string_view> CsvColumns::texts(size_t column) {
  std::vector<std::string_view> out;
  for (size_t r = 0; r < sheet_.rows(); ++r)
    out.push_back(count_missing(r, column, "have a text") ? std::string_view() : sheet_.cell(r, column));
  return out;
}

namespace {

// Returns the remedy for a cell that is no date in the order that the config gives.
std::string date_help(std::string_view cell) {
  constexpr std::pair<CsvDateOrder, const char*> kOrders[] = {
      {CsvDateOrder::ymd, "ymd"}, {CsvDateOrder::dmy, "dmy"}, {CsvDateOrder::mdy, "mdy"}};
  CsvDate date;
  for (const auto& [order, word] : kOrders)
    if (parse_date(cell, order, date)) return joined("\"date_order\": \"", word, "\" reads it");
  double number = 0;
  if (parse_number(cell, number)) return "leave the column out of \"dates\": a number is read as it is";
  return joined(R"(correct it in the file, or "missing_words": [)", spelled(cell.substr(0, 60)),
                R"(] with "missing": "drop_row" leaves the row out)");
}

}  // namespace

void CsvColumns::append_date(size_t column, CsvEncoding::Column& encoding, bool given, std::vector<CsvFeature>& out) {
  std::vector<CsvDate> dates(sheet_.rows());
  std::vector<bool> has_date(sheet_.rows());
  bool timed = false, short_years = false;
  CsvZones zones;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    if (count_missing(r, column, "be a date")) continue;
    const std::string_view cell = sheet_.cell(r, column);
    has_date[r] = true;
    if (!parse_date(cell, options_.date_order, dates[r]))
      sheet_.fail_at(r, column, "must be a date such as ",
                     options_.date_order == CsvDateOrder::ymd   ? "2024-03-18 or 2024-03-18 14:30"
                     : options_.date_order == CsvDateOrder::dmy ? "18.03.2024 or 18/03/2024 14:30"
                                                                : "03/18/2024 or 03/18/2024 2:30 PM",
                     ", got \"", cell.substr(0, 60), '"', Help{date_help(cell)});
    timed = timed || dates[r].timed;
    given ? zones_.add(encoding, dates[r], cell) : zones.add(dates[r]);
    if (dates[r].short_year && !short_years)
      spelling_notes_ +=
          joined("; column ", encoding.name, ": years have two digits, \"", cell.substr(0, 60), "\" is ", text_of(dates[r]));
    short_years = short_years || dates[r].short_year;
  }
  if (!given) {
    encoding.date = {"days"};
    if (options_.date_parts) encoding.date = {"year", "month", "day", "weekday"};
    if (options_.date_parts && timed) encoding.date.emplace_back("hour");
    encoding.zones = zones.found();
    spelling_notes_ += zones.note(encoding);
    if (const std::string mixed = zones.warning(encoding); !mixed.empty()) warnings_.push_back(mixed);
  }
  for (const std::string& part : encoding.date) {
    CsvFeature f{part == "days" ? encoding.name : encoding.name + '.' + part, {}};
    for (size_t r = 0; r < dates.size(); ++r)
      f.values.push_back(has_date[r] ? part_of_date(dates[r], part, encoding.zones.has_value()) : kNoValue);
    out.push_back(std::move(f));
  }
}

// Returns the same as probable_meaning() for many different numbers with one unit.
std::string CsvColumns::probable_quantity(size_t column) const {
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
std::string CsvColumns::probable_meaning(size_t column) const {
  CsvHint first;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    if (is_missing(r, column)) continue;
    const CsvHint hint = number_hint(sheet_.cell(r, column), sheet_.format());
    if (hint.what.empty()) return probable_quantity(column);
    if (first.what.empty() && !hint.word)
      first = {joined(hint.what == "dates" ? "" : "numbers with ", hint.what, " (\"", sheet_.cell(r, column), "\")"), hint.remedy};
  }
  return first.what.empty() ? "" : first.what + '\n' + first.remedy;
}

std::vector<int64_t> CsvColumns::learn_categories(size_t column, CsvEncoding::Column& encoding) {
  const auto text_of = [&](size_t r) {
    return count_missing(r, column, "have a value") ? std::string_view() : sheet_.spelled(r, column);
  };
  const std::string meaning = probable_meaning(column);
  const size_t line_end = meaning.find('\n');
  LabelSet categories(sheet_.format().decimal);
  std::vector<size_t> of_row;
  for (size_t r = 0; r < sheet_.rows(); ++r) {
    of_row.push_back(categories.add(text_of(r)));
    if (categories.size() > kMaxCategories)
      sheet_.fail_at(r, column, "has no numbers, and more than ", kMaxCategories, " different texts",
                     meaning.empty() ? std::string() : ", all of them " + meaning.substr(0, line_end),
                     Help{meaning.empty() ? "leave it out with \"exclude\", or make it the target" : meaning.substr(line_end + 1)});
  }
  std::vector<int64_t> places, out;
  encoding.categories = categories.names(places);
  if (!meaning.empty())
    warnings_.push_back(joined("column \"", encoding.name, "\" has ", meaning.substr(0, line_end), ", read as ",
                               encoding.categories.size(), " different texts; ", meaning.substr(line_end + 1)));
  if (const std::string alike = categories.joined_spellings(); !alike.empty())
    spelling_notes_ += joined("; column ", encoding.name, ": ", alike);
  spelling_notes_ += words_read_as_texts("column " + encoding.name, encoding.categories, sheet_.format());
  if (const std::string cases = categories.look_alike("values"); !cases.empty())
    warnings_.push_back(joined("column \"", encoding.name, "\": ", cases));
  for (const size_t label : of_row) out.push_back(places[label]);
  return out;
}

// Returns the category for a text that the training data lacks; -1: none.
int64_t CsvColumns::unknown_category(size_t row, size_t column, const CsvEncoding::Column& encoding) {
  const std::string_view text = is_missing(row, column) ? std::string_view() : sheet_.cell(row, column);
  const std::string& replacement = options_.unknown;
  const bool missing = replacement == "missing";
  if (replacement == "refuse" || (missing && options_.missing == CsvMissing::refuse))
    return find_known(sheet_, row, column, text, encoding.categories, "value");
  const int64_t place = find_label(encoding.categories, missing ? std::string_view() : replacement, sheet_.format().decimal);
  if (place < 0 && (!missing || (!options_.one_hot && options_.missing != CsvMissing::drop_row)))
    sheet_.fail_at(row, column, "must be a value of the training data, got ", spelled(text), ", and \"unknown\" is ",
                   missing ? "missing, but the training data misses no value" : spelled(replacement) + ", which is none of them",
                   Help{joined("it has ", some_labels(encoding.categories),
                               missing ? "; \"categories\": \"one_hot\" can say that it is none of them" : "")});
  if (missing && is_missing(row, column)) return place;  // counted where it was first read
  if (unknown_++ == 0) unknown_example_ = joined(spelled(text.substr(0, 60)), " in column ", encoding.name);
  if (missing) ++missing_;
  return place;
}

bool CsvColumns::is_left_out(size_t row, size_t column, const CsvEncoding::Column* given) const {
  if (is_missing(row, column)) return true;
  return options_.unknown == "missing" && given && !given->categories.empty() &&
         find_label(given->categories, sheet_.cell(row, column), sheet_.format().decimal) < 0;
}

void CsvColumns::append_texts(size_t column, CsvEncoding::Column& encoding, bool given, std::vector<CsvFeature>& out) {
  std::vector<int64_t> of_row;
  if (!given) {
    of_row = learn_categories(column, encoding);
  } else {
    std::unordered_map<std::string_view, int64_t> seen;  // indices in the list; -1: missing
    for (size_t r = 0; r < sheet_.rows(); ++r) {
      const std::string_view text = count_missing(r, column, "have a value") ? std::string_view() : sheet_.cell(r, column);
      const auto [at, is_new] = seen.try_emplace(text, -1);
      if (is_new) at->second = find_label(encoding.categories, text, sheet_.format().decimal);
      of_row.push_back(at->second >= 0 ? at->second : unknown_category(r, column, encoding));
    }
  }
  if (!options_.one_hot) return out.push_back({encoding.name, {of_row.begin(), of_row.end()}, true});
  for (size_t c = 0; c < encoding.categories.size(); ++c) {
    CsvFeature f{encoding.name + '=' + encoding.categories[c], {}, true};
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
  if (const std::string zones = zones_.text(); !zones.empty()) out.warnings.push_back(zones);
  const std::string file = std::exchange(out.summary, "");
  if (number_columns_ > 0) out.summary = count_of(size_t(number_columns_), "column") + " of numbers";
  for (const bool date : {false, true}) {
    std::string list;
    size_t columns = 0, inputs = 0;
    for (const ConvertedColumn& b : converted_columns_) {
      if (b.date != date) continue;
      ++columns, inputs += b.inputs;
      list += joined(list.empty() ? "" : ", ", b.column, ' ', b.inputs);
    }
    if (columns == 0) continue;
    out.summary += joined(out.summary.empty() ? "" : "; ", count_of(columns, date ? "date column" : "text column"), " became ",
                          count_of(inputs, "input"), ": ", list);
  }
  out.summary += spelling_notes_;
  if (!file.empty()) out.summary += "; " + file;
  return out;
}

}  // namespace halfstep
