#include "framework/data/csv.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "framework/base/check.h"
#include "framework/data/csv_sheet.h"
#include "framework/data/permutation.h"
#include "framework/tensor/storage.h"

namespace halfstep {

struct CsvDataset::Parsed {
  Tensor input, target;
  std::vector<std::string> feature_names, class_names;
  CsvScaling scaling;
  std::string label;
};

namespace {

constexpr const char* kWhere = "CSV";
constexpr size_t kMaxCategories = 64, kMaxClasses = 1000;

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
    if (parse_number(cell, value) && !std::isfinite(value)) sheet.fail_at(r, column, "must be a class, got \"", cell, '"');
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

// One input of the data set, for every row of the file.
struct Feature {
  std::string name;
  std::vector<double> values;
  bool categorical = false;
};

void append_features(const CsvSheet& sheet, size_t column, std::vector<Feature>& out) {
  double ignored;
  bool numeric = false;
  for (size_t r = 0; r < sheet.rows() && !numeric; ++r) numeric = parse_number(sheet.cell(r, column), ignored);
  if (numeric) {
    Feature f{sheet.names()[column], {}};
    for (size_t r = 0; r < sheet.rows(); ++r) f.values.push_back(sheet.number(r, column));
    return out.push_back(std::move(f));
  }
  std::set<std::string_view> categories;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    if (sheet.cell(r, column).empty()) sheet.fail_at(r, column, "must not have empty cells");
    categories.insert(sheet.cell(r, column));
    if (categories.size() > kMaxCategories) {
      sheet.fail_at(r, column, "has no numbers, and more than ", kMaxCategories, " different texts",
                    Help{"name the columns to use as features, or the target column"});
    }
  }
  for (std::string_view category : categories) {
    Feature f{sheet.names()[column] + '=' + std::string(category), {}, true};
    for (size_t r = 0; r < sheet.rows(); ++r) f.values.push_back(sheet.cell(r, column) == category ? 1 : 0);
    out.push_back(std::move(f));
  }
}

CsvScaling measure(const std::vector<Feature>& features, const std::vector<int64_t>& rows) {
  CsvScaling out;
  for (const Feature& f : features) {
    double sum = 0, squares = 0;
    for (int64_t r : rows) sum += f.values[size_t(r)];
    const double mean = sum / double(rows.size());
    for (int64_t r : rows) squares += (f.values[size_t(r)] - mean) * (f.values[size_t(r)] - mean);
    const double std = std::sqrt(squares / double(rows.size()));
    const bool scaled = !f.categorical;
    out.mean.push_back(scaled ? mean : 0);
    out.std.push_back(scaled && std > 1e-12 * std::abs(mean) ? std : 1);
  }
  return out;
}

}  // namespace

std::optional<bool> has_header(CsvOptions::Header header) {
  return header == CsvOptions::Header::automatic ? std::nullopt : std::optional(header == CsvOptions::Header::yes);
}

CsvDataset::Parsed CsvDataset::parse(const std::filesystem::path& path, const CsvOptions& o) {
  const CsvSheet sheet(kWhere, path, o.delimiter, has_header(o.header));
  const size_t target = sheet.find(o.target.empty() ? "-1" : o.target);
  std::vector<size_t> columns;
  for (const std::string& name : o.features) columns.push_back(sheet.find(name));
  for (size_t c = 0; c < sheet.names().size() && o.features.empty(); ++c) {
    if (c != target) columns.push_back(c);
  }
  check<ConfigError>(!columns.empty(), kWhere, path.string(), " has only one column, which leaves none for the features");

  Parsed out;
  out.label = "CSV " + path.string();
  std::vector<Feature> features;
  for (size_t c : columns) append_features(sheet, c, features);
  const std::vector<int64_t> rows = split_part(int64_t(sheet.rows()), o.begin, o.end, o.seed);
  check<DataError>(!rows.empty(), kWhere, path.string(), ": the part [", o.begin, ", ", o.end, ") of ", sheet.rows(),
                   " rows is empty");
  if (o.scaling) {
    out.scaling = *o.scaling;
    check<ValueError>(out.scaling.mean.size() == features.size() && out.scaling.std.size() == features.size(), kWhere,
                      "scaling must have ", features.size(), " means and deviations, one an input, got ", out.scaling.mean.size(),
                      " and ", out.scaling.std.size());
  } else if (o.standardize) {
    out.scaling = measure(features, rows);
  }

  const MemoryScope scope(MemoryTag::data);
  const int64_t n = int64_t(rows.size()), width = int64_t(features.size());
  out.input = Tensor::empty({n, width}, {.device = Device::cpu});
  float* x = out.input.data<float>();
  for (size_t j = 0; j < features.size(); ++j) {
    out.feature_names.push_back(features[j].name);
    const double mean = out.scaling.mean.empty() ? 0 : out.scaling.mean[j], std = out.scaling.std.empty() ? 1 : out.scaling.std[j];
    for (size_t i = 0; i < rows.size(); ++i) x[i * features.size() + j] = float((features[j].values[size_t(rows[i])] - mean) / std);
  }
  if (o.classification) {
    std::vector<int64_t> of_row;
    out.class_names = read_classes(sheet, target, of_row);
    out.target = Tensor::empty({n}, {.dtype = DType::i64, .device = Device::cpu});
    for (size_t i = 0; i < rows.size(); ++i) out.target.data<int64_t>()[i] = of_row[size_t(rows[i])];
  } else {
    for (size_t r = 0; r < sheet.rows(); ++r) sheet.number(r, target);
    out.target = Tensor::empty({n, 1}, {.device = Device::cpu});
    for (size_t i = 0; i < rows.size(); ++i) out.target.data<float>()[i] = float(sheet.number(size_t(rows[i]), target));
  }
  return out;
}

CsvDataset::CsvDataset(const std::filesystem::path& path, const CsvOptions& options) : CsvDataset(parse(path, options)) {}

CsvDataset::CsvDataset(Parsed p)
    : TensorDataset(p.input, p.target, int64_t(p.class_names.size()), {}, p.label),
      feature_names_(std::move(p.feature_names)),
      class_names_(std::move(p.class_names)),
      scaling_(std::move(p.scaling)) {}

}  // namespace halfstep
