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
#include "framework/data/csv_sheet.h"
#include "framework/data/permutation.h"
#include "framework/tensor/storage.h"

namespace halfstep {

struct CsvDataset::Parsed {
  Tensor input, target;
  std::vector<std::string> feature_names;
  CsvEncoding encoding;
  std::string label;
};

namespace {

constexpr const char* kCsv = "CSV";
constexpr size_t kMaxCategories = 64, kMaxClasses = 1000;

// Some of many names, for a message.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) out += (i ? ", \"" : "\"") + names[i] + '"';
  return out + (names.size() > kShown ? joined(" and ", names.size() - kShown, " more") : "");
}

// The place of a cell's text among those of the training data.
int64_t known(const CsvSheet& sheet, size_t row, size_t column, std::string_view text, const std::vector<std::string>& names,
              const char* what) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    sheet.fail_at(row, column, "must be a ", what, " of the training data, got \"", text, '"', Help{"it has " + some_of(names)});
  return found - names.begin();
}

// The class of each row, of those of the training data.
std::vector<int64_t> find_classes(const CsvSheet& sheet, size_t column, const std::vector<std::string>& classes) {
  int64_t integer = 0;
  const bool integers = std::all_of(classes.begin(), classes.end(), [&](const auto& name) { return parse_integer(name, integer); });
  std::vector<int64_t> out;
  for (size_t r = 0; r < sheet.rows(); ++r) {
    const std::string_view cell = sheet.cell(r, column);
    const bool number = integers && parse_integer(cell, integer);
    out.push_back(known(sheet, r, column, number ? std::to_string(integer) : std::string(cell), classes, "class"));
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
  check<DataError>(!whole.empty(), kCsv, path, ": every row has a missing value, so that none is left");
  sheet.keep(whole);
}

// The inputs that a column makes. given: the column of the training data.
CsvEncoding::Column append_features(const CsvSheet& sheet, size_t column, const CsvOptions& o, const CsvEncoding::Column* given,
                                    std::vector<Feature>& out) {
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
  for (size_t r = 0; r < sheet.rows() && !numeric && !given; ++r)
    numeric = !is_missing(sheet, r, column, o) && parse_number(sheet.cell(r, column), ignored);
  if (given) numeric = given->categories.empty();
  CsvEncoding::Column made{given ? given->name : sheet.names()[column]};
  if (numeric) {
    Feature f{made.name, {}};
    for (size_t r = 0; r < sheet.rows(); ++r) f.values.push_back(missing(r) ? kNone : sheet.number(r, column));
    out.push_back(std::move(f));
    return made;
  }
  const auto category_of = [&](size_t r) { return missing(r) ? std::string_view() : sheet.cell(r, column); };
  std::vector<int64_t> of_row;
  if (given) {
    made.categories = given->categories;
    for (size_t r = 0; r < sheet.rows(); ++r) of_row.push_back(known(sheet, r, column, category_of(r), made.categories, "value"));
  } else {
    std::map<std::string_view, int64_t> categories;
    for (size_t r = 0; r < sheet.rows(); ++r) {
      categories[category_of(r)] = 0;
      if (categories.size() > kMaxCategories) {
        sheet.fail_at(r, column, "has no numbers, and more than ", kMaxCategories, " different texts",
                      Help{"name the columns to use as features, or the target column"});
      }
    }
    for (auto& [category, number] : categories) {
      number = int64_t(made.categories.size());
      made.categories.emplace_back(category);
    }
    for (size_t r = 0; r < sheet.rows(); ++r) of_row.push_back(categories[category_of(r)]);
  }
  if (!o.one_hot) {
    out.push_back({made.name, {of_row.begin(), of_row.end()}, true});
    return made;
  }
  for (size_t c = 0; c < made.categories.size(); ++c) {
    Feature f{made.name + '=' + made.categories[c], {}, true};
    for (const int64_t category : of_row) f.values.push_back(category == int64_t(c) ? 1 : 0);
    out.push_back(std::move(f));
  }
  return made;
}

// The columns of features, in the order of the training data's where they are known.
std::vector<size_t> feature_columns(const CsvSheet& sheet, size_t target, const CsvOptions& o, const std::string& path) {
  std::vector<size_t> out;
  for (const std::string& name : o.features) out.push_back(sheet.find(name));
  for (size_t c = 0; c < sheet.names().size() && o.features.empty(); ++c) {
    if (c != target) out.push_back(c);
  }
  check<ConfigError>(!out.empty(), kCsv, path, " has only one column, which leaves none for the features");
  for (auto c = out.begin(); c != out.end(); ++c) {
    check<ConfigError>(*c != target, kCsv, path, ": column \"", sheet.names()[*c],
                       "\" is the target, which a model must not be given as a feature");
    check<ConfigError>(std::find(out.begin(), c, *c) == c, kCsv, path, ": column \"", sheet.names()[*c],
                       "\" is among the features twice");
  }
  if (!o.encoding || o.encoding->columns.empty()) return out;
  const std::vector<CsvEncoding::Column>& wanted = o.encoding->columns;
  std::vector<std::string> names;
  for (const CsvEncoding::Column& c : wanted) names.push_back(c.name);
  check<DataError>(out.size() == wanted.size(), kCsv, path, " must have the training data's ", wanted.size(),
                   " columns besides the target, got ", out.size(), Help{"those are " + some_of(names)});
  if (!sheet.has_header() || !o.encoding->header) return out;
  std::vector<size_t> in_order;
  for (const std::string& name : names) {
    const auto found = std::find_if(out.begin(), out.end(), [&](size_t c) { return sheet.names()[c] == name; });
    check<DataError>(found != out.end(), kCsv, path, " has no column \"", name, "\", which the training data has",
                     Help{"its columns are " + some_of(sheet.names())});
    in_order.push_back(*found);
    out.erase(found);
  }
  return in_order;
}

// The replacement for missing values of a feature, computed from these rows.
double fill_of(const Feature& f, const std::vector<int64_t>& rows, const CsvOptions& o, const std::string& path) {
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

CsvEncoding measure(const std::vector<Feature>& features, const std::vector<int64_t>& rows) {
  CsvEncoding out;
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
  CsvSheet sheet(kCsv, path, o.delimiter, has_header(o.header));
  const bool by_name = o.encoding && o.encoding->header && sheet.has_header();
  const size_t target = sheet.find(!o.target.empty() ? o.target : by_name ? o.encoding->target : "-1");
  const std::vector<size_t> columns = feature_columns(sheet, target, o, path.string());

  Parsed out;
  out.label = "CSV " + path.string();
  if (o.missing == CsvMissing::drop_row) {
    std::vector<size_t> used = columns;
    used.push_back(target);
    drop_missing(sheet, used, o, path.string());
  }
  if (o.encoding) out.encoding = *o.encoding;
  CsvEncoding& encoding = out.encoding;
  std::vector<Feature> features;
  const bool given = !encoding.columns.empty();
  if (!given) encoding.header = sheet.has_header(), encoding.target = sheet.names()[target];
  for (size_t i = 0; i < columns.size(); ++i) {
    if (given)
      append_features(sheet, columns[i], o, &encoding.columns[i], features);
    else
      encoding.columns.push_back(append_features(sheet, columns[i], o, nullptr, features));
  }
  const std::vector<int64_t> rows = split_part(int64_t(sheet.rows()), o.begin, o.end, o.seed);
  check<DataError>(!rows.empty(), kCsv, path.string(), ": the part [", o.begin, ", ", o.end, ") of ", sheet.rows(),
                   " rows is empty");
  if (o.missing == CsvMissing::mean || o.missing == CsvMissing::median || o.missing == CsvMissing::constant) {
    const bool learnt = encoding.fill.size() == features.size();
    for (size_t j = 0; j < features.size(); ++j) {
      if (!learnt) encoding.fill.push_back(features[j].categorical ? 0 : fill_of(features[j], rows, o, path.string()));
      for (double& v : features[j].values)
        if (std::isnan(v)) v = encoding.fill[j];
    }
  }
  if (o.standardize && encoding.mean.empty()) {
    const CsvEncoding measured = measure(features, rows);
    encoding.mean = measured.mean, encoding.std = measured.std;
  }
  const auto fits = [&](const std::vector<double>& v) { return v.empty() || v.size() == features.size(); };
  check<ValueError>(fits(encoding.mean) && encoding.mean.size() == encoding.std.size(), kCsv, "encoding must have ",
                    features.size(), " means and deviations, one an input, got ", encoding.mean.size(), " and ",
                    encoding.std.size());

  const MemoryScope scope(MemoryTag::data);
  const int64_t n = int64_t(rows.size()), width = int64_t(features.size());
  out.input = Tensor::empty({n, width}, {.device = Device::cpu});
  float* x = out.input.data<float>();
  for (size_t j = 0; j < features.size(); ++j) {
    out.feature_names.push_back(features[j].name);
    const double mean = encoding.mean.empty() ? 0 : encoding.mean[j], std = encoding.std.empty() ? 1 : encoding.std[j];
    for (size_t i = 0; i < rows.size(); ++i) x[i * features.size() + j] = float((features[j].values[size_t(rows[i])] - mean) / std);
  }
  if (o.classification) {
    std::vector<int64_t> of_row;
    if (encoding.classes.empty())
      encoding.classes = read_classes(sheet, target, of_row);
    else
      of_row = find_classes(sheet, target, encoding.classes);
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
    : TensorDataset(p.input, p.target, int64_t(p.encoding.classes.size()), {}, p.label),
      feature_names_(std::move(p.feature_names)),
      encoding_(std::move(p.encoding)) {}

}  // namespace halfstep
