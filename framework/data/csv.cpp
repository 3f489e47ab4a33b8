// SPDX-License-Identifier: Apache-2.0
#include "framework/data/csv.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>

#include "framework/base/check.h"
#include "framework/data/csv_columns.h"
#include "framework/data/csv_sheet.h"
#include "framework/data/form.h"
#include "framework/data/permutation.h"
#include "framework/tensor/storage.h"

namespace halfstep {

struct CsvDataset::Parsed {
  Tensor input, target;
  std::vector<std::string> feature_names;
  CsvEncoding encoding;
  TargetScale target_scale;
  std::string label;
  CsvOptions options;
  DataNotes notes;
};

namespace {

constexpr const char* kCsv = "CSV";
constexpr size_t kMaxClasses = 1000;

// The class of each row, of those of the training data.
std::vector<int64_t> find_classes(const CsvSheet& sheet, size_t column, const std::vector<std::string>& classes) {
  int64_t integer = 0;
  const bool integers = std::all_of(classes.begin(), classes.end(), [&](const auto& name) { return parse_integer(name, integer); });
  std::vector<int64_t> out;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    const std::string_view cell = sheet.cell(r, column);
    const bool number = integers && parse_integer(cell, integer);
    out.push_back(find_known(sheet, r, column, number ? std::to_string(integer) : std::string(cell), classes, "class"));
  }
  return out;
}

// The classes in order, and the class of each row.
std::vector<std::string> read_classes(const CsvSheet& sheet, size_t column, std::vector<int64_t>& of_row) {
  std::map<int64_t, int64_t> integers;
  std::map<std::string_view, int64_t> strings;
  bool all_integers = true;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    const std::string_view cell = sheet.cell(r, column);
    double value = 0;
    int64_t integer = 0;
    if (cell.empty()) sheet.fail_at(r, column, "must be a class, but the cell is empty");
    if (parse_number(cell, sheet.format(), value) && !std::isfinite(value))
      sheet.fail_at(r, column, "must be a class, got \"", cell, '"');
    all_integers = all_integers && parse_integer(cell, integer);
    if (all_integers) integers[integer] = 0;
    strings[cell] = 0;
    if (strings.size() > kMaxClasses) {
      sheet.fail_at(r, column, "has more than ", kMaxClasses, " classes", Help{"for a number to predict, ask for regression"});
    }
  }
  std::vector<std::string> names;
  for (auto& [key, index] : integers) {
    index = int64_t(names.size());
    if (all_integers) names.push_back(std::to_string(key));
  }
  for (auto& [key, index] : strings) {
    index = int64_t(names.size());
    if (!all_integers) names.emplace_back(key);
  }
  for (size_t r = 0; r < sheet.rows(); ++r) {
    int64_t integer = 0;
    if (all_integers) parse_integer(sheet.cell(r, column), integer);
    of_row.push_back(all_integers ? integers[integer] : strings[sheet.cell(r, column)]);
  }
  return names;
}

// The class of each row. classes: of the training data; empty: learnt here.
std::vector<int64_t> classes_of(const CsvSheet& sheet, size_t column, std::vector<std::string>& classes) {
  if (!classes.empty()) return find_classes(sheet, column, classes);
  std::vector<int64_t> of_row;
  classes = read_classes(sheet, column, of_row);
  return of_row;
}

// Leaves out the rows in which one of these columns has no value.
void drop_missing(CsvSheet& sheet, const std::vector<size_t>& columns, const CsvColumns& cells, const std::string& path) {
  std::vector<size_t> whole;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    if (std::none_of(columns.begin(), columns.end(), [&](size_t c) { return cells.is_missing(r, c); })) whole.push_back(r);
  }
  check<DataError>(!whole.empty(), kCsv, path, ": every row has a missing value, so no row is left");
  sheet.keep(whole);
}

// The replacement for missing values of a feature, computed from these rows.
double fill_of(const CsvFeature& f, const std::vector<int64_t>& rows, const CsvOptions& o, const std::string& path) {
  if (o.missing == CsvMissing::constant) return o.fill;
  std::vector<double> there;
  for (int64_t r : rows)
    if (!std::isnan(f.values[size_t(r)])) there.push_back(f.values[size_t(r)]);
  check<DataError>(!there.empty(), kCsv, path, ": column \"", f.name,
                   "\" has no value in the part that is read, of which to take the ",
                   o.missing == CsvMissing::mean ? "mean" : "median");
  if (o.missing == CsvMissing::mean) return std::accumulate(there.begin(), there.end(), 0.0) / double(there.size());
  std::sort(there.begin(), there.end());
  const size_t middle = there.size() / 2;
  return there.size() % 2 == 1 ? there[middle] : (there[middle - 1] + there[middle]) / 2;
}

// learnt: the replacement of each input, from the training data; empty: computed here.
void fill_missing(std::vector<CsvFeature>& features, const std::vector<int64_t>& rows, const CsvOptions& o, const std::string& path,
                  std::vector<double>& learnt) {
  if (o.missing == CsvMissing::refuse || o.missing == CsvMissing::drop_row) return;
  const bool given = learnt.size() == features.size();
  for (size_t j = 0; j < features.size(); ++j) {
    if (!given) learnt.push_back(features[j].categorical ? 0 : fill_of(features[j], rows, o, path));
    for (double& v : features[j].values)
      if (std::isnan(v)) v = learnt[j];
  }
}

TargetScale measured(const std::vector<double>& values, const std::vector<int64_t>& rows) {
  std::vector<double> chosen;
  for (int64_t r : rows) chosen.push_back(values[size_t(r)]);
  return scale_of_column(chosen);
}

void measure(const std::vector<CsvFeature>& features, const std::vector<int64_t>& rows, CsvEncoding& out) {
  for (const CsvFeature& f : features) {
    const TargetScale scale = f.categorical ? TargetScale() : measured(f.values, rows);
    out.mean.push_back(scale.mean);
    out.std.push_back(scale.std);
  }
}

// The target, the columns left out, and the missing values.
void note_rest(DataNotes& notes, const CsvSheet& sheet, const std::vector<size_t>& chosen, size_t target, size_t all_rows,
               int64_t missing) {
  notes.made += joined("; target ", sheet.names()[target]);
  std::string others;
  for (size_t c = 0; c < sheet.names().size(); ++c) {
    const bool used = c == target || std::find(chosen.begin(), chosen.end(), c) != chosen.end();
    if (!used) others += (others.empty() ? "" : ", ") + sheet.names()[c];
  }
  constexpr size_t kLongest = 200;
  if (others.size() > kLongest) others = others.substr(0, kLongest) + "...";
  if (!others.empty()) notes.made += "; left out: " + others;
  if (sheet.rows() < all_rows)
    notes.made += joined("; ", all_rows - sheet.rows(), " of ", all_rows, " rows dropped for missing values");
  if (missing > 0) notes.made += joined("; ", missing, missing == 1 ? " missing value" : " missing values", " filled in");
}

}  // namespace

std::optional<bool> has_header(CsvOptions::Header header) {
  return header == CsvOptions::Header::automatic ? std::nullopt : std::optional(header == CsvOptions::Header::yes);
}

CsvDataset::Parsed CsvDataset::parse(const std::filesystem::path& path, const CsvOptions& o) {
  CsvSheet sheet(kCsv, path, o.format, has_header(o.header));
  CsvColumns columns(sheet, o);
  const bool by_name = o.encoding && o.encoding->header && sheet.has_header();
  const size_t target = sheet.find(!o.target.empty() ? o.target : by_name ? o.encoding->target : "-1"), all_rows = sheet.rows();
  const std::vector<size_t> chosen = columns.choose(target, path.string());
  const std::string& name = sheet.names()[target];
  check<ConfigError>(std::count(sheet.names().begin(), sheet.names().end(), name) == 1, kCsv, path.string(),
                     ": the target must have a name of its own, but several columns are called \"", name, '"',
                     Help{"rename the others in the file's first row"});

  Parsed out;
  out.options = o;
  out.options.format = sheet.format();
  out.label = "CSV " + path.string();
  if (o.missing == CsvMissing::drop_row) {
    std::vector<size_t> used = chosen;
    used.push_back(target);
    drop_missing(sheet, used, columns, path.string());
  }
  if (o.encoding) out.encoding = *o.encoding;
  CsvEncoding& encoding = out.encoding;
  std::vector<CsvFeature> features;
  const bool given = !encoding.columns.empty();
  if (!given) encoding.header = sheet.has_header(), encoding.target = sheet.names()[target], encoding.columns.resize(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i)
    encoding.columns[i] = columns.append(chosen[i], given ? &encoding.columns[i] : nullptr, features);
  out.notes = columns.notes();
  note_rest(out.notes, sheet, chosen, target, all_rows, columns.missing());
  const std::vector<int64_t> of_row = o.classification ? classes_of(sheet, target, encoding.classes) : std::vector<int64_t>();
  std::vector<double> numbers;
  for (size_t r = 0; r < sheet.rows() && !o.classification; ++r) numbers.push_back(sheet.number(r, target));
  const std::vector<int64_t> rows =
      o.part ? o.part(int64_t(sheet.rows()), of_row) : split_part(int64_t(sheet.rows()), o.begin, o.end, o.seed);
  check<DataError>(!rows.empty(), kCsv, path.string(), ": the part [", o.begin, ", ", o.end, ") of ", sheet.rows(),
                   " rows is empty");
  fill_missing(features, rows, o, path.string(), encoding.fill);
  if (o.standardize && encoding.mean.empty()) measure(features, rows, encoding);
  if (o.standardize_target) {
    check<ValueError>(!o.classification, kCsv, "standardize_target is for regression, got classes");
    out.target_scale = o.target_scale ? *o.target_scale : measured(numbers, rows);
    check<ValueError>(out.target_scale.std > 0, kCsv, "the deviation of a scaling must be positive, got ", out.target_scale.std);
  }
  const auto fits = [&](const std::vector<double>& v) { return v.empty() || v.size() == features.size(); };
  check<ValueError>(fits(encoding.mean) && encoding.mean.size() == encoding.std.size(), kCsv, "encoding must have ",
                    features.size(), " means and deviations, one an input, got ", encoding.mean.size(), " and ",
                    encoding.std.size());

  const MemoryScope scope(MemoryTag::data);
  const int64_t n = int64_t(rows.size()), width = int64_t(features.size());
  out.input = Tensor::empty({n, width}, {.device = Device::cpu});
  float* x = out.input.data_ptr<float>();
  for (size_t j = 0; j < features.size(); ++j) {
    out.feature_names.push_back(features[j].name);
    const double mean = encoding.mean.empty() ? 0 : encoding.mean[j], std = encoding.std.empty() ? 1 : encoding.std[j];
    for (size_t i = 0; i < rows.size(); ++i) x[i * features.size() + j] = float((features[j].values[size_t(rows[i])] - mean) / std);
  }
  out.target = o.classification ? Tensor::empty({n}, {.dtype = DType::i64, .device = Device::cpu})
                                : Tensor::empty({n, 1}, {.device = Device::cpu});
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t row = size_t(rows[i]);
    if (o.classification)
      out.target.data_ptr<int64_t>()[i] = of_row[row];
    else
      out.target.data_ptr<float>()[i] = float((numbers[row] - out.target_scale.mean) / out.target_scale.std);
  }
  return out;
}

CsvDataset::CsvDataset(const std::filesystem::path& path, const CsvOptions& options) : CsvDataset(parse(path, options)) {}

CsvDataset::CsvDataset(Parsed p)
    : TensorDataset(p.input, p.target, int64_t(p.encoding.classes.size()), {}, p.label),
      feature_names_(std::move(p.feature_names)),
      options_(std::move(p.options)),
      encoding_(std::move(p.encoding)),
      target_scale_(p.target_scale),
      notes_(std::move(p.notes)) {}

DataForm CsvDataset::form() const {
  DataForm out = Dataset::form();
  CsvOptions options = options_;
  options.part = {};  // it refers to what may be gone
  options.encoding = encoding_;
  out.names = classes() > 0 ? encoding_.classes : std::vector<std::string>{encoding_.target};
  out.source = TableForm{std::move(options)};
  return out;
}

// ---- rows to be predicted

namespace {

// The file's columns of the training data's features, in their order.
std::vector<size_t> find_features(const CsvSheet& sheet, const CsvEncoding& encoding, const std::string& path) {
  const std::vector<std::string>& all = sheet.names();
  std::vector<size_t> out, places(all.size());
  std::iota(places.begin(), places.end(), size_t(0));
  std::vector<std::string> names;
  for (const CsvEncoding::Column& c : encoding.columns) names.push_back(c.name);
  const std::vector<std::optional<size_t>> paired = pair_by_name(names, all, places);
  std::string missing, wanted;
  for (size_t i = 0; i < names.size(); ++i) {
    wanted += (wanted.empty() ? "" : ", ") + names[i];
    if (paired[i])
      out.push_back(*paired[i]);
    else
      missing += (missing.empty() ? "\"" : ", \"") + names[i] + '"';
  }
  if (missing.empty()) return out;
  if (encoding.header) {
    fail<DataError>(kCsv, path, " has no column ", missing, ", which the model takes", Help{"it takes the columns " + wanted});
  }
  check<DataError>(all.size() == encoding.columns.size(), kCsv, path, " has ", all.size(), " columns, but the model takes ",
                   encoding.columns.size());
  return places;
}

// The place of the target's column; empty: the file does not have it.
std::optional<size_t> find_target(const CsvSheet& sheet, const std::vector<size_t>& features, const CsvEncoding& encoding) {
  const auto found = std::find(sheet.names().begin(), sheet.names().end(), encoding.target);
  if (found == sheet.names().end()) return {};
  const size_t place = size_t(found - sheet.names().begin());
  return std::find(features.begin(), features.end(), place) == features.end() ? std::optional(place) : std::nullopt;
}

// The target in a row, NaN if it has none.
double target_of(const CsvSheet& sheet, size_t column, const CsvOptions& o) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const std::string_view cell = sheet.cell(0, column);
  if (cell.empty() || std::find(o.missing_words.begin(), o.missing_words.end(), cell) != o.missing_words.end()) return kNone;
  return o.classification ? double(find_classes(sheet, column, o.encoding->classes)[0]) : sheet.number(0, column);
}

// The inputs of the row that the sheet shows. Throws DataError for one that cannot be read.
std::vector<double> inputs_of_row(const CsvSheet& sheet, const std::vector<size_t>& columns, const CsvOptions& o,
                                  const std::string& path) {
  const CsvEncoding& e = *o.encoding;
  CsvColumns cells(sheet, o);
  std::vector<CsvFeature> features;
  for (size_t i = 0; i < columns.size(); ++i) cells.append(columns[i], &e.columns[i], features);
  if (o.missing == CsvMissing::drop_row && cells.missing() > 0)
    fail<DataError>(kCsv, path, ": a value is missing, and the model was trained on whole rows");
  std::vector<double> fills = e.fill;
  fill_missing(features, {0}, o, path, fills);
  std::vector<double> out;
  for (size_t j = 0; j < features.size(); ++j)
    out.push_back(e.mean.empty() ? features[j].values[0] : (features[j].values[0] - e.mean[j]) / e.std[j]);
  return out;
}

}  // namespace

CsvRows read_csv_rows(const std::filesystem::path& path, const CsvOptions& o) {
  check<ValueError>(o.encoding && !o.encoding->columns.empty(), kCsv, "rows are read by the training data's encoding, got none");
  const CsvEncoding& e = *o.encoding;
  auto read = std::make_unique<CsvSheet>(kCsv, path, o.format, e.header);
  if (read->names().size() == 1 && e.columns.size() > 1) {  // the same table in a file with another delimiter
    CsvFormat format = o.format;
    format.delimiter = 0;
    read = std::make_unique<CsvSheet>(kCsv, path, format, e.header);
  }
  CsvSheet& sheet = *read;
  const std::vector<size_t> columns = find_features(sheet, e, path.string());
  const std::optional<size_t> target = find_target(sheet, columns, e);
  CsvRows out;
  if (sheet.has_header()) out.header = sheet.names();
  out.delimiter = sheet.format().delimiter;
  const size_t rows = sheet.rows();
  out.faults.resize(rows);
  std::vector<float> values;
  for (size_t r = 0; r < rows; ++r) {
    sheet.show_row(r);
    std::vector<std::string> cells;
    for (size_t c = 0; c < sheet.names().size(); ++c) cells.emplace_back(sheet.cell(0, c));
    out.cells.push_back(std::move(cells));
    try {
      const std::vector<double> inputs = inputs_of_row(sheet, columns, o, path.string());
      if (target) out.targets.push_back(target_of(sheet, *target, o));
      values.insert(values.end(), inputs.begin(), inputs.end());
      out.rows.push_back(r);
    } catch (const DataError& error) { out.faults[r] = error.what(); }
  }
  const int64_t n = int64_t(out.rows.size());
  const MemoryScope scope(MemoryTag::data);
  out.input = Tensor::empty({n, n > 0 ? int64_t(values.size()) / n : 0}, {.device = Device::cpu});
  std::copy(values.begin(), values.end(), out.input.data_ptr<float>());
  return out;
}

}  // namespace halfstep
