// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "framework/base/check.h"
#include "framework/data/tables/csv_classes.h"
#include "framework/data/tables/csv_columns.h"
#include "framework/data/tables/csv_doubts.h"
#include "framework/data/tables/csv_ranges.h"
#include "framework/data/tables/csv_sheet.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/token_rows.h"
#include "framework/data/tokens/unicode.h"
#include "framework/data/transforms/data_form.h"
#include "framework/tensor/storage.h"

namespace halfstep {

struct CsvDataset::Parsed {
  Tensor input, target;
  std::filesystem::path path;
  std::vector<int64_t> lines;
  std::vector<std::string> feature_names;
  CsvEncoding encoding;
  ColumnScale target_scale;
  std::string label;
  CsvOptions options;
  DataNotes notes;
};

namespace {

constexpr const char* kCsv = "CSV";

// Learns tokens from the texts. Throws DataError with the file's name.
TokenRows learn_tokens(const TokenRowOptions& options, const TextColumns& texts, std::span<const int64_t> rows,
                       const std::string& path) {
  try {
    return {options, texts, rows};
  } catch (const DataError& e) {
    const std::string text = e.what();
    fail<DataError>("CSV", path, ": ", text.substr(text.find("] ") + 2));
  }
}

// Returns [rows, length] i64. Adds to `notes` how many texts were cut, and so on.
Tensor tokens_of_rows(const TokenRows& tokens, const TextColumns& texts, std::span<const int64_t> rows, const CsvSheet& sheet,
                      const std::vector<size_t>& columns, DataNotes& notes) {
  const int64_t length = tokens.options().length;
  Tensor out = Tensor::empty({int64_t(rows.size()), length}, {.dtype = DType::i64, .device = Device::cpu});
  TokenRows::Counts counts;
  std::vector<std::string_view> row_texts(texts.size());
  int64_t* to = out.data_ptr<int64_t>();
  for (const int64_t row : rows) {
    for (size_t c = 0; c < texts.size(); ++c) row_texts[c] = texts[c].at(size_t(row));
    tokens.encode(row_texts, to, counts);
    to += length;
  }
  std::string note = joined(texts.size(), texts.size() == 1 ? " column of texts (" : " columns of texts (");
  for (size_t c = 0; c < columns.size(); ++c) note += (c == 0 ? "" : ", ") + sheet.names()[columns[c]];
  note += joined(") became ", length, " tokens a row, of ", tokens.size(), " different ones");
  if (tokens.padding() != 0) note += joined("; padding is token ", tokens.padding());  // padding_idx must then be set to it
  if (const std::string more = tokens.describe(counts); !more.empty()) note += "; " + more;
  notes.summary.insert(0, note);  // the existing text begins with "; "
  return out;
}

// Drops rows with a missing value in one of these columns. given: the training data's encoding.
void drop_missing(CsvSheet& sheet, const std::vector<size_t>& columns, const CsvColumns& cells,
                  const std::vector<CsvEncoding::Column>& given, const std::string& path) {
  std::vector<size_t> kept;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    bool is_dropped = false;
    for (size_t i = 0; i < columns.size() && !is_dropped; ++i)
      is_dropped = cells.is_left_out(r, columns[i], given.empty() ? nullptr : &given[i]);
    if (!is_dropped) kept.push_back(r);
  }
  check<DataError>(!kept.empty(), kCsv, path, ": every row has a missing value, so no row is left");
  if (kept.size() < sheet.rows()) sheet.keep(kept);
}

// Returns the scale of these rows' values.
template <class Values>
ColumnScale scale_of_rows(const Values& values, const std::vector<int64_t>& rows) {
  std::vector<double> chosen;
  chosen.reserve(rows.size());
  for (int64_t r : rows) chosen.push_back(values[size_t(r)]);
  return scale_of_column(chosen);
}

// Appends the mean and deviation of each input to the encoding; 0 and 1 for categories.
void add_scales(const std::vector<CsvFeature>& features, const std::vector<int64_t>& rows, CsvEncoding& out) {
  for (const CsvFeature& f : features) {
    const ColumnScale scale = f.categorical ? ColumnScale() : scale_of_rows(f.values, rows);
    out.mean.push_back(scale.mean);
    out.std.push_back(scale.std);
  }
}

// Notes the target, the columns left out, and the missing values. all_rows: number of rows with a target.
void note_rest(DataNotes& notes, const CsvSheet& sheet, const std::vector<size_t>& chosen, size_t target, size_t all_rows,
               size_t without_target, const CsvColumns& columns) {
  const int64_t missing = columns.missing(), unknown = columns.unknown();
  notes.summary += joined("; target ", sheet.names()[target]);
  std::string others;
  for (size_t c = 0; c < sheet.names().size(); ++c) {
    const bool is_used = c == target || std::find(chosen.begin(), chosen.end(), c) != chosen.end();
    if (!is_used) others += (others.empty() ? "" : ", ") + sheet.names()[c];
  }
  constexpr size_t kLongest = 200;  // characters
  if (others.size() > kLongest) others = others.substr(0, kLongest) + "...";
  if (!others.empty()) notes.summary += "; left out: " + others;
  if (without_target > 0)
    notes.summary += joined("; ", without_target, " of ", all_rows + without_target, " rows left out, which have no target");
  if (sheet.rows() < all_rows)
    notes.summary += joined("; ", all_rows - sheet.rows(), " of ", all_rows, " rows dropped for missing values");
  if (missing > 0) notes.summary += joined("; ", missing, missing == 1 ? " missing value" : " missing values", " filled in");
  if (unknown > 0)
    notes.summary += joined("; ", unknown, unknown == 1 ? " value" : " values", " that the training data does not have (",
                            columns.unknown_example(), "), read by \"unknown\"");
}

// Returns the scaled inputs, [rows, features] f32. learns_ranges: appends each input's range before scaling to the encoding.
Tensor inputs_of(const std::vector<CsvFeature>& features, const std::vector<int64_t>& rows, bool learns_ranges,
                 CsvEncoding& encoding) {
  constexpr size_t kBlock = 256;  // rows whose inputs fit into caches
  const Tensor out = Tensor::empty({int64_t(rows.size()), int64_t(features.size())}, {.device = Device::cpu});
  float* const x = out.data_ptr<float>();
  for (size_t first = 0; first < rows.size(); first += kBlock) {
    for (size_t j = 0; j < features.size(); ++j) {
      const double mean = encoding.mean.empty() ? 0 : encoding.mean[j], std = encoding.std.empty() ? 1 : encoding.std[j];
      double low = std::numeric_limits<double>::infinity(), high = -low;
      for (size_t i = first; i < std::min(first + kBlock, rows.size()); ++i) {
        const double value = features[j].values[size_t(rows[i])];
        low = std::min(low, value), high = std::max(high, value);
        x[i * features.size() + j] = float((value - mean) / std);
      }
      if (!learns_ranges) continue;
      if (first == 0) encoding.low.push_back(low), encoding.high.push_back(high);
      encoding.low[j] = std::min(encoding.low[j], low), encoding.high[j] = std::max(encoding.high[j], high);
    }
  }
  return out;
}

// Warns of training data's numbers that probably are marks for missing values, or dates.
void warn_of_doubts(const CsvSheet& sheet, const std::vector<size_t>& chosen, size_t target, const CsvOptions& o,
                    const CsvEncoding& encoding, DataNotes& notes) {
  if (o.tokens) return;
  std::vector<size_t> numbers;
  for (size_t i = 0; i < chosen.size(); ++i)
    if (encoding.columns[i].date.empty() && encoding.columns[i].categories.empty()) numbers.push_back(chosen[i]);
  if (const std::string dates = warn_of_dates(sheet, numbers, o.dates); !dates.empty()) notes.warnings.push_back(dates);
  const auto is_number = [&](const std::string& name) {
    double ignored = 0;
    return parse_number(name, sheet.format(), ignored);
  };
  if (std::all_of(encoding.classes.begin(), encoding.classes.end(), is_number)) numbers.push_back(target);
  const char* const rule = o.missing == CsvMissing::refuse ? R"("missing": "median")" : "";
  if (const std::string marks = warn_of_missing_marks(sheet, numbers, o.missing_words, rule); !marks.empty())
    notes.warnings.push_back(marks);
}

}  // namespace

CsvDataset::Parsed CsvDataset::parse(const std::filesystem::path& path, const CsvOptions& o) {
  std::vector<std::string> named_columns = o.features;
  named_columns.push_back(o.target);
  check_options(kCsv, o);
  CsvSheet sheet(kCsv, path, o.format, o.header, /*each_row_alone=*/false, named_columns);
  CsvColumns columns(sheet, o);
  const bool by_name = o.encoding && o.encoding->header && sheet.has_header();
  const size_t target = sheet.find(!o.target.empty() ? o.target : by_name ? o.encoding->target : "-1");
  const size_t without_target = drop_without_target(sheet, target, o.missing_words, path.string());
  const std::vector<std::string> known_classes = o.encoding ? o.encoding->classes : std::vector<std::string>();
  const size_t ignored = o.classification && o.ignored ? drop_ignored(sheet, target, *o.ignored, known_classes) : 0;
  const size_t all_rows = sheet.rows();
  const std::vector<size_t> feature_columns = columns.choose(target, path.string());
  const std::string& name = sheet.names()[target];
  check<ConfigError>(std::count(sheet.names().begin(), sheet.names().end(), name) == 1, kCsv, path.string(),
                     ": the target must have a name of its own, but several columns are called \"", name, '"',
                     Help{"rename the others in the file's first row"});

  Parsed out;
  out.options = o;
  out.options.format = sheet.format();
  out.label = "CSV " + path.string();
  out.path = path;
  if (o.missing == CsvMissing::drop_row)
    drop_missing(sheet, feature_columns, columns, o.encoding ? o.encoding->columns : std::vector<CsvEncoding::Column>(),
                 path.string());
  if (o.encoding) out.encoding = *o.encoding;
  CsvEncoding& encoding = out.encoding;
  std::vector<CsvFeature> features;
  const bool has_encoding = !encoding.columns.empty();
  if (!has_encoding)
    encoding.header = sheet.has_header(), encoding.width = int64_t(sheet.names().size()), encoding.target = sheet.names()[target],
    encoding.columns.resize(feature_columns.size());
  TextColumns texts;
  for (size_t i = 0; i < feature_columns.size(); ++i) {
    if (o.tokens) texts.push_back(columns.texts(feature_columns[i]));
    if (o.tokens && !has_encoding) encoding.columns[i].name = sheet.names()[feature_columns[i]];
    if (!o.tokens)
      encoding.columns[i] = columns.append(feature_columns[i], has_encoding ? &encoding.columns[i] : nullptr, features);
  }
  if (!has_encoding && o.unknown != "refuse" && o.unknown != "missing") {
    const auto has = [&](const CsvEncoding::Column& c) { return find_label(c.categories, o.unknown, sheet.format().decimal) >= 0; };
    check<ConfigError>(std::any_of(encoding.columns.begin(), encoding.columns.end(), has), kCsv, path.string(),
                       ": unknown must be \"refuse\", \"missing\" or a text of a column of texts, got ", spelled(o.unknown));
  }
  out.notes = columns.notes();
  note_rest(out.notes, sheet, feature_columns, target, all_rows, without_target, columns);
  if (ignored > 0)
    out.notes.summary +=
        joined("; ", ignored, " of ", all_rows + ignored, " rows left out, whose target ", *o.ignored, " the loss ignores");
  std::vector<int64_t> class_of_row;
  if (o.classification) class_of_row = read_classes(sheet, target, encoding.classes, out.notes);
  std::vector<double> numbers;
  for (size_t r = 0; r < sheet.rows() && !o.classification; ++r) numbers.push_back(sheet.number(r, target));
  const std::vector<int64_t> rows = split_indices(int64_t(sheet.rows()), o.part, class_of_row);
  check<DataError>(!rows.empty(), kCsv, path.string(), ": ", text(o.part), " of ", sheet.rows(), " rows is empty");
  if (const std::string forms = sheet.number_forms(); !forms.empty()) out.notes.summary += "; " + forms;
  const MemoryScope scope(MemoryTag::data);
  if (o.tokens) {
    if (!encoding.tokens) encoding.tokens = learn_tokens(*o.tokens, texts, rows, path.string());
    out.input = tokens_of_rows(*encoding.tokens, texts, rows, sheet, feature_columns, out.notes);
  }
  fill_missing(features, rows, o, path.string(), encoding.fill);
  if (o.standardize && encoding.mean.empty()) add_scales(features, rows, encoding);
  if (o.standardize_target) {
    check<ValueError>(!o.classification, kCsv, "standardize_target is for regression, got classes");
    out.target_scale = o.target_scale ? *o.target_scale : scale_of_rows(numbers, rows);
    check<ValueError>(out.target_scale.std > 0, kCsv, "the deviation of a scaling must be positive, got ", out.target_scale.std);
  }
  const auto fits = [&](const std::vector<double>& v) { return v.empty() || v.size() == features.size(); };
  check<ValueError>(fits(encoding.mean) && encoding.mean.size() == encoding.std.size(), kCsv, "encoding must have ",
                    features.size(), " means and deviations, one an input, got ", encoding.mean.size(), " and ",
                    encoding.std.size());

  const int64_t n = int64_t(rows.size());
  if (!o.tokens) out.input = inputs_of(features, rows, /*learns_ranges=*/!has_encoding, encoding);
  for (size_t i = 0; i < texts.size(); ++i) out.feature_names.push_back(sheet.names()[feature_columns[i]]);
  for (const CsvFeature& f : features) out.feature_names.push_back(f.name);
  out.target = o.classification ? Tensor::empty({n}, {.dtype = DType::i64, .device = Device::cpu})
                                : Tensor::empty({n, 1}, {.device = Device::cpu});
  if (has_encoding) {
    warn_of_ranges(features, rows, sheet, encoding, out.notes);
  } else {
    warn_of_equal_floats(features, numbers, rows, o, encoding, out.target_scale, out.notes);
    warn_of_doubts(sheet, feature_columns, target, o, encoding, out.notes);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t row = size_t(rows[i]);
    out.lines.push_back(sheet.line(row));
    if (o.classification)
      out.target.data_ptr<int64_t>()[i] = class_of_row[row];
    else
      out.target.data_ptr<float>()[i] = float((numbers[row] - out.target_scale.mean) / out.target_scale.std);
  }
  return out;
}

HALFSTEP_OPTIONS(
    CsvOptions,
    OptionList<O>{option("target", &O::target, "column by name or index; left out: the last").or_index().or_zero(),
                  in_words("task", &O::classification, "regression", "classification", "kind of target"),
                  columns_of("features", &O::features, "columns by name or index; empty: all others"),
                  columns_of("exclude", &O::exclude, "columns to leave out of the features"), header_of<O>()} +
        within(&O::format) +
        OptionList<O>{
            columns_of("dates", &O::dates, "columns of dates, such as 2024-03-18 or 2024-03-18 14:30"),
            in_words(
                "dates_as", &O::date_parts, "number", "parts",
                "\"number\": days since 1970-01-01 with the time as a fraction, to be used with standardize; \"parts\": one input "
                "each for year, month, day, weekday (Monday is 0) and, if the column has times, the hour. Of times with a zone "
                "(+01:00) the number is that in UTC, and the parts are those of the zone"),
            option("date_order", &O::date_order, "order of year, month and day, which are separated by - / or ."),
            option("missing", &O::missing,
                   "handling of missing values: an error, leave out the row, the training data's mean or median, or fill"),
            missing_words_of<O>(), option("fill", &O::fill, "of missing: constant"),
            option(
                "unknown", &O::unknown,
                "texts in columns of text that the training data does not have: \"refuse\"; \"missing\": as a missing value; or a "
                "text "
                "of the column, in whose place they stand"),
            in_words("categories", &O::one_hot, "index", "one_hot",
                     "columns of text: an input of 0 or 1 for each different text, or one input with its number"),
            option("standardize", &O::standardize, "inputs to mean 0 and deviation 1 (of the training data)"),
            option("standardize_target", &O::standardize_target,
                   "of regression: targets to mean 0 and deviation 1 (of the training data); metrics and predictions are in the "
                   "column's units")})

CsvDataset::CsvDataset(const std::filesystem::path& path, const CsvOptions& options) : CsvDataset(parse(path, options)) {}

CsvDataset::CsvDataset(Parsed p)
    : TensorDataset(p.input, p.target, int64_t(p.encoding.classes.size()), {}, p.label),
      path_(std::move(p.path)),
      lines_(std::move(p.lines)),
      feature_names_(std::move(p.feature_names)),
      options_(std::move(p.options)),
      encoding_(std::move(p.encoding)),
      target_scale_(p.target_scale),
      notes_(std::move(p.notes)) {
  if (encoding_.tokens) set_vocabulary(encoding_.tokens->size());
}

CsvLines CsvDataset::lines_of_file(const std::vector<int64_t>& lines) const {
  const CsvSheet sheet(kCsv, path_, options_.format, options_.header);
  CsvLines out{.names = sheet.names(), .target = sheet.find(encoding_.target.empty() ? "-1" : encoding_.target)};
  std::map<int64_t, size_t> rows;
  for (size_t r = 0; r < sheet.rows(); ++r) rows[sheet.line(r)] = r;
  for (const int64_t line : lines) {
    const auto row = rows.find(line);
    check<DataError>(row != rows.end(), kCsv, path_.string(), " has no row in line ", line);
    std::vector<std::string>& cells = out.cells.emplace_back();
    for (size_t c = 0; c < sheet.names().size(); ++c) cells.emplace_back(sheet.cell(row->second, c));
  }
  return out;
}

DataForm CsvDataset::form() const {
  DataForm out = Dataset::form();
  CsvOptions options = options_;
  options.part = {};                 // other files are read wholly
  options.format.skip_rows.clear();  // they are those of this file
  options.encoding = encoding_;
  out.names = classes() > 0 ? encoding_.classes : std::vector<std::string>{encoding_.target};
  out.source = TableForm{std::move(options)};
  return out;
}

}  // namespace halfstep
