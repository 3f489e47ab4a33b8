#include "framework/data/csv.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
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

bool is_missing(const CsvSheet& sheet, size_t row, size_t column, const CsvOptions& o) {
  const std::string_view cell = sheet.cell(row, column);
  return cell.empty() || std::find(o.missing_words.begin(), o.missing_words.end(), cell) != o.missing_words.end();
}

// Leaves out the rows in which one of these columns has no value.
void drop_missing(CsvSheet& sheet, const std::vector<size_t>& columns, const CsvOptions& o, const std::string& path) {
  std::vector<size_t> whole;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    if (std::none_of(columns.begin(), columns.end(), [&](size_t c) { return is_missing(sheet, r, c, o); })) whole.push_back(r);
  }
  check<DataError>(!whole.empty(), kWhere, path, ": every row has a missing value, so that none is left");
  sheet.keep(whole);
}

void append_features(const CsvSheet& sheet, size_t column, const CsvOptions& o, std::vector<Feature>& out) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();  // until it is filled in
  double ignored;
  bool numeric = false;
  const auto missing = [&](size_t r) {
    if (!is_missing(sheet, r, column, o)) return false;
    if (o.missing == CsvMissing::refuse) {
      const std::string_view cell = sheet.cell(r, column);
      sheet.fail_at(r, column, numeric ? "must be a number, but the cell " : "must have a value, but the cell ",
                    cell.empty() ? std::string("is empty") : joined("is \"", cell, '"'),
                    Help{"missing: drop_row, mean, median or constant would do without"});
    }
    return true;
  };
  for (size_t r = 0; r < sheet.rows() && !numeric; ++r)
    numeric = !is_missing(sheet, r, column, o) && parse_number(sheet.cell(r, column), ignored);
  if (numeric) {
    Feature f{sheet.names()[column], {}};
    for (size_t r = 0; r < sheet.rows(); ++r) f.values.push_back(missing(r) ? kNone : sheet.number(r, column));
    return out.push_back(std::move(f));
  }
  std::set<std::string_view> categories;
  const auto category_of = [&](size_t r) { return missing(r) ? std::string_view() : sheet.cell(r, column); };
  for (size_t r = 0; r < sheet.rows(); ++r) {
    categories.insert(category_of(r));
    if (categories.size() > kMaxCategories) {
      sheet.fail_at(r, column, "has no numbers, and more than ", kMaxCategories, " different texts",
                    Help{"name the columns to use as features, or the target column"});
    }
  }
  if (!o.one_hot) {
    Feature f{sheet.names()[column], {}, true};
    for (size_t r = 0; r < sheet.rows(); ++r)
      f.values.push_back(double(std::distance(categories.begin(), categories.find(category_of(r)))));
    return out.push_back(std::move(f));
  }
  for (std::string_view category : categories) {
    Feature f{sheet.names()[column] + '=' + std::string(category), {}, true};
    for (size_t r = 0; r < sheet.rows(); ++r) f.values.push_back(category_of(r) == category ? 1 : 0);
    out.push_back(std::move(f));
  }
}

// What stands for the missing values of a feature: learnt from these rows.
double fill_of(const Feature& f, const std::vector<int64_t>& rows, const CsvOptions& o, const std::string& path) {
  if (o.missing == CsvMissing::constant) return o.fill;
  std::vector<double> there;
  for (int64_t r : rows)
    if (!std::isnan(f.values[size_t(r)])) there.push_back(f.values[size_t(r)]);
  check<DataError>(!there.empty(), kWhere, path, ": column \"", f.name,
                   "\" has no value in the part that is read, of which to take the ",
                   o.missing == CsvMissing::mean ? "mean" : "median");
  if (o.missing == CsvMissing::mean) return std::accumulate(there.begin(), there.end(), 0.0) / double(there.size());
  std::sort(there.begin(), there.end());
  const size_t middle = there.size() / 2;
  return there.size() % 2 == 1 ? there[middle] : (there[middle - 1] + there[middle]) / 2;
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
  CsvSheet sheet(kWhere, path, o.delimiter, has_header(o.header));
  const size_t target = sheet.find(o.target.empty() ? "-1" : o.target);
  std::vector<size_t> columns;
  for (const std::string& name : o.features) columns.push_back(sheet.find(name));
  for (size_t c = 0; c < sheet.names().size() && o.features.empty(); ++c) {
    if (c != target) columns.push_back(c);
  }
  check<ConfigError>(!columns.empty(), kWhere, path.string(), " has only one column, which leaves none for the features");

  Parsed out;
  out.label = "CSV " + path.string();
  if (o.missing == CsvMissing::drop_row) {
    std::vector<size_t> used = columns;
    used.push_back(target);
    drop_missing(sheet, used, o, path.string());
  }
  std::vector<Feature> features;
  for (size_t c : columns) append_features(sheet, c, o, features);
  const std::vector<int64_t> rows = split_part(int64_t(sheet.rows()), o.begin, o.end, o.seed);
  check<DataError>(!rows.empty(), kWhere, path.string(), ": the part [", o.begin, ", ", o.end, ") of ", sheet.rows(),
                   " rows is empty");
  if (o.scaling) out.scaling = *o.scaling;
  if (o.missing == CsvMissing::mean || o.missing == CsvMissing::median || o.missing == CsvMissing::constant) {
    const bool given = o.scaling && o.scaling->fill.size() == features.size();
    for (size_t j = 0; j < features.size(); ++j) {
      if (!given && features[j].categorical) out.scaling.fill.push_back(0);
      if (!given && !features[j].categorical) out.scaling.fill.push_back(fill_of(features[j], rows, o, path.string()));
      for (double& v : features[j].values)
        if (std::isnan(v)) v = out.scaling.fill[j];
    }
  }
  if (o.standardize && out.scaling.mean.empty()) {
    const CsvScaling measured = measure(features, rows);
    out.scaling.mean = measured.mean, out.scaling.std = measured.std;
  }
  const auto fits = [&](const std::vector<double>& v) { return v.empty() || v.size() == features.size(); };
  check<ValueError>(fits(out.scaling.mean) && out.scaling.mean.size() == out.scaling.std.size(), kWhere, "scaling must have ",
                    features.size(), " means and deviations, one an input, got ", out.scaling.mean.size(), " and ",
                    out.scaling.std.size());

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
