// SPDX-License-Identifier: Apache-2.0
#include "framework/data/csv.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "framework/base/check.h"
#include "framework/data/csv_columns.h"
#include "framework/data/csv_sheet.h"
#include "framework/data/permutation.h"
#include "framework/tensor/storage.h"

namespace halfstep {

struct CsvDataset::Parsed {
  Tensor input, target;
  std::vector<std::string> feature_names;
  CsvEncoding encoding;
  std::string label;
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

void measure(const std::vector<CsvFeature>& features, const std::vector<int64_t>& rows, CsvEncoding& out) {
  for (const CsvFeature& f : features) {
    double sum = 0, squares = 0;
    for (int64_t r : rows) sum += f.values[size_t(r)];
    const double mean = sum / double(rows.size());
    for (int64_t r : rows) squares += (f.values[size_t(r)] - mean) * (f.values[size_t(r)] - mean);
    const double std = std::sqrt(squares / double(rows.size()));
    const bool scaled = !f.categorical;
    out.mean.push_back(scaled ? mean : 0);
    out.std.push_back(scaled && std > 1e-12 * std::abs(mean) ? std : 1);
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

  Parsed out;
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
  for (size_t r = 0; r < sheet.rows() && !o.classification; ++r) sheet.number(r, target);
  const std::vector<int64_t> rows =
      o.part ? o.part(int64_t(sheet.rows()), of_row) : split_part(int64_t(sheet.rows()), o.begin, o.end, o.seed);
  check<DataError>(!rows.empty(), kCsv, path.string(), ": the part [", o.begin, ", ", o.end, ") of ", sheet.rows(),
                   " rows is empty");
  fill_missing(features, rows, o, path.string(), encoding.fill);
  if (o.standardize && encoding.mean.empty()) measure(features, rows, encoding);
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
      out.target.data_ptr<float>()[i] = float(sheet.number(row, target));
  }
  return out;
}

CsvDataset::CsvDataset(const std::filesystem::path& path, const CsvOptions& options) : CsvDataset(parse(path, options)) {}

CsvDataset::CsvDataset(Parsed p)
    : TensorDataset(p.input, p.target, int64_t(p.encoding.classes.size()), {}, p.label),
      feature_names_(std::move(p.feature_names)),
      encoding_(std::move(p.encoding)),
      notes_(std::move(p.notes)) {}

}  // namespace halfstep
