// SPDX-License-Identifier: Apache-2.0
// Reads rows to be predicted.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "framework/base/check.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/csv_columns.h"
#include "framework/data/tables/csv_other_form.h"
#include "framework/data/tables/csv_ranges.h"
#include "framework/data/tables/csv_sheet.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"
#include "framework/tensor/storage.h"

namespace halfstep {

namespace {

constexpr const char* kRows = "CSV";

// Returns the columns that may be features: with a header not those that "exclude" has by number, of a name that others have, too.
// Throws DataError for a feature's or the target's name that more columns have than in the training data.
std::vector<size_t> find_candidates(const CsvSheet& sheet, const std::vector<std::string>& features, const CsvOptions& o,
                                    const std::string& path) {
  const std::vector<std::string>& all = sheet.names();
  std::vector<size_t> out(all.size());
  std::iota(out.begin(), out.end(), size_t(0));
  if (!o.encoding->header || !sheet.has_header()) return out;
  std::map<std::string, int64_t> wanted, found;  // how many columns have a name
  for (const std::string& name : features) ++wanted[text_key(name)];
  ++wanted[text_key(o.encoding->target)];
  for (const std::string& name : all) ++found[text_key(name)];
  for (const std::string& excluded : o.exclude) {
    int64_t number = 0;
    if (!parse_integer(excluded, number)) continue;
    const auto place = size_t(number < 0 ? number + int64_t(all.size()) : number);
    if (place >= all.size() || found[text_key(all[place])] < 2) continue;
    if (std::erase(out, place) > 0) --found[text_key(all[place])];
  }
  for (const auto& [key, count] : wanted) {
    const int64_t there = found[key];
    check<DataError>(there <= count, kRows, path, " has ", there, " columns \"", key, "\", of which the model takes ", count,
                     Help{"rename the others in the file's first row, or delete them"});
  }
  return out;
}

std::string numbers_text(const std::vector<size_t>& numbers) {
  std::string out;
  for (const size_t n : numbers) out += (out.empty() ? "" : ", ") + std::to_string(n);
  return out;
}

// Returns the same without a header, where columns are found by their places. guess: set if the file lacks some that are not read,
// which may have stood before others.
std::vector<size_t> find_places(const CsvSheet& sheet, const CsvEncoding& encoding, const std::string& path, std::string& guess) {
  const auto place_of = [](const std::string& name) {
    int64_t out = 0;
    return parse_integer(name, out) && out >= 0 ? size_t(out) : 0;
  };
  std::vector<size_t> out;
  for (const CsvEncoding::Column& c : encoding.columns) out.push_back(place_of(c.name));
  const size_t last = *std::max_element(out.begin(), out.end()), target = place_of(encoding.target), there = sheet.names().size();
  const bool is_known = encoding.width > 0;
  const size_t width = is_known ? size_t(encoding.width) : std::max(last, target) + 1;  // at least
  if (there == width) return out;
  std::vector<size_t> in_order(there);
  std::iota(in_order.begin(), in_order.end(), size_t(0));
  const bool alone = there == out.size();  // only features, in the order of the training data
  const bool fits = alone || (there < width ? last < there && last < target : !is_known);
  check<DataError>(fits, kRows, path, " has ", there, " columns, but the model takes ", out.size(), " of a file with ", width,
                   Help{joined("without a header columns are found by their places: columns ", numbers_text(out),
                               " of the training data, from 0 on, are the inputs; give all of its columns, or these alone")});
  const bool is_certain = alone ? std::is_sorted(out.begin(), out.end()) : false;
  if (!is_certain)
    guess = joined("the file has ", there, " columns, and the training data had ", is_known ? "" : "at least ", width,
                   ": without a header its columns ", numbers_text(alone ? in_order : out), ", from 0 on, are read as columns ",
                   numbers_text(out), " of the training data");
  return alone ? in_order : out;
}

// Returns the file's columns for the training data's features, in their order.
std::vector<size_t> find_features(const CsvSheet& sheet, const CsvOptions& o, const std::string& path, std::string& guess) {
  const CsvEncoding& encoding = *o.encoding;
  const std::vector<std::string>& all = sheet.names();
  if (!encoding.header && !sheet.has_header()) return find_places(sheet, encoding, path, guess);
  std::vector<std::string> names;
  for (const CsvEncoding::Column& c : encoding.columns) names.push_back(c.name);
  std::vector<size_t> out;
  const std::vector<size_t> places = find_candidates(sheet, names, o, path);
  const std::vector<std::optional<size_t>> paired = pair_by_name(names, all, places);
  std::string missing, wanted;
  for (size_t i = 0; i < names.size(); ++i) {
    wanted += (wanted.empty() ? "" : ", ") + names[i];
    if (paired[i])
      out.push_back(*paired[i]);
    else
      missing += (missing.empty() ? "\"" : ", \"") + names[i] + '"';
  }
  check<DataError>(missing.empty(), kRows, path, " has no column ", missing, ", which the model takes",
                   Help{"it takes the columns " + wanted});
  return out;
}

// Returns the index of the target's column; empty: the file lacks it.
std::optional<size_t> find_target(const CsvSheet& sheet, const std::vector<size_t>& features, const CsvEncoding& encoding) {
  const int64_t found = find_name(sheet.names(), encoding.target);
  if (found < 0) return {};
  const size_t place = size_t(found);
  return std::find(features.begin(), features.end(), place) == features.end() ? std::optional(place) : std::nullopt;
}

// Returns the target of a row, or NaN. unknown: it has one that the training data lacks.
double target_of(const CsvSheet& sheet, size_t column, const CsvOptions& o, bool& unknown) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const std::string_view cell = sheet.cell(0, column);
  if (is_missing_cell(cell, o.missing_words)) return kNone;
  double value = kNone;
  if (o.classification) {
    const int64_t place = find_label(o.encoding->classes, cell, sheet.format().decimal);
    if (place >= 0) value = double(place);
  } else if (!parse_number(cell, sheet.format(), value) || !(std::abs(value) <= double(std::numeric_limits<float>::max()))) {
    value = kNone;
  }
  unknown = std::isnan(value);
  return value;
}

// Throws DataError if the row has a missing value and the training data's such rows were dropped.
void check_whole(const CsvOptions& o, const CsvColumns& cells, const std::string& path) {
  if (o.missing == CsvMissing::drop_row && cells.missing() > 0)
    fail<DataError>(kRows, path, ": a value is missing",
                    cells.unknown() > 0 ? joined(" (", cells.unknown_example(), " is unknown, which counts as missing)") : "",
                    ", and the model was trained on whole rows");
}

// Counts cells without a value that were filled in.
class FilledCells {
 public:
  // Adds the columns of a row, which the sheet shows.
  void add(const CsvColumns& cells, const CsvSheet& sheet, const std::vector<size_t>& columns, size_t row) {
    if (cells.missing() == 0) return;
    for (const size_t c : columns) {
      if (!cells.is_missing(0, c)) continue;
      if (count_++ == 0) example_ = joined(sheet.names()[c], " in row ", row + 1);
    }
  }
  std::string text() const {
    if (count_ == 0) return "";
    return joined(count_, count_ == 1 ? " missing value filled in: " : " missing values filled in, such as ", example_);
  }

 private:
  int64_t count_ = 0;
  std::string example_;
};

// Returns the inputs of the row that the sheet shows, and adds them to `ranges`. Throws DataError for an unreadable row.
std::vector<double> inputs_of_row(const std::vector<size_t>& columns, const CsvOptions& o, CsvColumns& cells,
                                  const std::string& path, size_t row, CsvRangeCheck& ranges) {
  const CsvEncoding& encoding = *o.encoding;
  std::vector<CsvFeature> features;
  for (size_t i = 0; i < columns.size(); ++i) cells.append(columns[i], &encoding.columns[i], features);
  check_whole(o, cells, path);
  std::vector<double> fills = encoding.fill;
  fill_missing(features, {0}, o, path, fills);
  std::vector<double> out;
  for (size_t j = 0; j < features.size(); ++j) ranges.add(features[j], j, features[j].values[0], int64_t(row + 1));
  for (size_t j = 0; j < features.size(); ++j)
    out.push_back(encoding.mean.empty() ? features[j].values[0] : (features[j].values[0] - encoding.mean[j]) / encoding.std[j]);
  return out;
}

// Returns the same for texts.
std::vector<int64_t> tokens_of_row(const std::vector<size_t>& columns, const CsvOptions& o, CsvColumns& cells,
                                   const std::string& path, TokenRows::Counts& counts) {
  std::vector<std::string_view> texts;
  for (const size_t column : columns) texts.push_back(cells.texts(column)[0]);
  check_whole(o, cells, path);
  std::vector<int64_t> out(size_t(o.encoding->tokens->options().length));
  o.encoding->tokens->encode(texts, out.data(), counts);
  return out;
}

// Returns the cells of the row that the sheet shows.
std::vector<std::string> cells_of_row(const CsvSheet& sheet) {
  std::vector<std::string> out;
  for (size_t c = 0; c < sheet.names().size(); ++c) out.emplace_back(sheet.cell(0, c));
  return out;
}

template <class T>
Tensor rows_of(const std::vector<T>& values, size_t rows, size_t width) {
  Tensor out = Tensor::empty({int64_t(rows), int64_t(rows > 0 ? width : 0)}, {.dtype = dtype_of<T>, .device = Device::cpu});
  std::copy(values.begin(), values.end(), out.data_ptr<T>());
  return out;
}

// Opens the table, which may have another delimiter than the training data.
std::unique_ptr<CsvSheet> open_rows(const std::filesystem::path& path, const CsvOptions& o) {
  const auto open = [&](const CsvFormat& format) {
    return std::make_unique<CsvSheet>(kRows, path, format, o.encoding->header, /*each_row_alone=*/true);
  };
  CsvFormat other = o.format;
  other.delimiter = 0;
  std::unique_ptr<CsvSheet> out;
  std::optional<DataError> fault;
  try {
    out = open(o.format);
    if (out->names().size() > 1) return out;
  } catch (const DataError& e) {
    if (o.format.delimiter == 0) throw;
    fault = e;
  }
  try {
    std::unique_ptr<CsvSheet> found = open(other);
    if (found->names().size() > 1) return found;
  } catch (const DataError&) {}  // the first error says more
  if (fault) throw *fault;
  return out;
}

}  // namespace

CsvRows read_csv_rows(const std::filesystem::path& path, const CsvOptions& o) {
  check<ValueError>(o.encoding && !o.encoding->columns.empty(), kRows, "rows are read by the training data's encoding, got none");
  const CsvEncoding& encoding = *o.encoding;
  const std::unique_ptr<CsvSheet> read = open_rows(path, o);
  CsvSheet& sheet = *read;
  std::string guess;
  const std::vector<size_t> columns = find_features(sheet, o, path.string(), guess);
  const std::optional<size_t> target = find_target(sheet, columns, encoding);
  CsvRows out;
  if (sheet.has_header()) out.header = sheet.names();
  out.notes = sheet.notes();
  out.delimiter = sheet.format().delimiter == kCsvBlanks ? ',' : sheet.format().delimiter;
  out.decimal = sheet.format().decimal;
  const size_t rows = sheet.rows();
  const CsvOtherForm other = find_other_form(sheet, columns, o);
  out.faults = other.faults;
  out.faults.resize(rows);
  std::vector<float> values;
  std::vector<int64_t> tokens;
  TokenRows::Counts counts;
  CsvRangeCheck ranges(encoding, "row");
  FilledCells filled;
  CsvZoneCheck zones;
  for (size_t r = 0; r < rows; ++r) {
    sheet.show_row(r);
    out.cells.push_back(cells_of_row(sheet));
    if (!out.faults[r].empty()) continue;
    try {
      CsvColumns row_columns(sheet, o);
      std::vector<double> inputs;
      std::vector<int64_t> row;
      if (encoding.tokens)
        row = tokens_of_row(columns, o, row_columns, path.string(), counts);
      else
        inputs = inputs_of_row(columns, o, row_columns, path.string(), r, ranges);
      bool unknown = false;
      if (target) out.targets.push_back(target_of(sheet, *target, o, unknown));
      if (unknown && out.unknown_answers++ == 0)
        out.unknown_answer = joined(spelled(sheet.cell(0, *target).substr(0, 60)), " in row ", r + 1);
      if (row_columns.unknown() > 0 && out.unknown_values == 0) out.unknown_value = row_columns.unknown_example();
      out.unknown_values += row_columns.unknown();
      zones.add(row_columns.zones());
      filled.add(row_columns, sheet, columns, r);
      values.insert(values.end(), inputs.begin(), inputs.end());
      tokens.insert(tokens.end(), row.begin(), row.end());
      out.rows.push_back(r);
    } catch (const DataError& error) { out.faults[r] = error.what(); }
  }
  const MemoryScope scope(MemoryTag::data);
  const size_t n = out.rows.size();
  out.input = encoding.tokens ? rows_of(tokens, n, tokens.size() / std::max<size_t>(n, 1))
                              : rows_of(values, n, values.size() / std::max<size_t>(n, 1));
  out.far_values = ranges.far(), out.far_value = ranges.far_example();
  for (const std::string& text : {guess, other.warning, ranges.untrained_text(), zones.text()})
    if (!text.empty()) out.notes.warnings.push_back(text);
  for (const std::string& more :
       {encoding.tokens ? encoding.tokens->describe(counts) : std::string(), sheet.number_forms(), filled.text()})
    if (!more.empty()) out.notes.summary += (out.notes.summary.empty() ? "" : "; ") + more;
  return out;
}

CsvRows rows_of_texts(const std::vector<std::string>& texts, const CsvOptions& o) {
  check<ValueError>(o.encoding && o.encoding->tokens, kRows, "texts are read by the training data's tokens, got none");
  const TokenRows& tokens = *o.encoding->tokens;
  const std::vector<CsvEncoding::Column>& columns = o.encoding->columns;
  check<ValueError>(columns.size() == 1, kRows, "the model takes ", columns.size(), " texts of a sample: ", columns[0].name,
                    ", ...", Help{"give a table with these columns"});
  CsvRows out{.header = {columns[0].name}};
  std::vector<int64_t> values;
  TokenRows::Counts counts;
  for (const std::string& given : texts) {
    const std::string_view text = without_blanks(given);
    const bool missing = is_missing_cell(text, o.missing_words);
    out.cells.push_back({given});
    const bool utf8 = find_not_utf8(given) == given.npos, refused = missing && o.missing != CsvMissing::constant;
    out.faults.emplace_back(!utf8 ? "the text must be UTF-8" : refused ? "the text is empty, or a word for a missing one" : "");
    if (!out.faults.back().empty()) continue;
    out.rows.push_back(out.cells.size() - 1);
    values.resize(values.size() + size_t(tokens.options().length));
    const std::string_view read = missing ? std::string_view() : text;
    tokens.encode({&read, 1}, values.data() + values.size() - tokens.options().length, counts);
  }
  out.input = rows_of(values, out.rows.size(), size_t(tokens.options().length));
  out.notes.summary = tokens.describe(counts);
  return out;
}

}  // namespace halfstep
