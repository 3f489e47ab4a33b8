// SPDX-License-Identifier: Apache-2.0
#include "apps/examine/inspect_data.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iomanip>
#include <iostream>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include "apps/catalog/datasets.h"
#include "apps/terminal/quantity_text.h"
#include "apps/terminal/terminal.h"
#include "framework/base/check.h"
#include "framework/data/transforms/data_form.h"

namespace halfstep::app {
namespace {

constexpr size_t kExamples = 5, kShown = 16;  // most examples of samples and columns, and most rows of a table
constexpr int64_t kMostRows = 32;  // of a sheet

struct SeenInput {
  int64_t first;      // sample
  size_t target;      // hash of its target
  int64_t count = 0;  // samples with this input
};
// By the hash of the input. It has 64 bits, so that no two inputs of a data set have the same by chance.
using SeenInputs = std::unordered_map<size_t, SeenInput>;

// Returns the bytes of one sample of a contiguous batch.
std::string_view bytes_of(const Tensor& t, int64_t sample) {
  const size_t size = t.size(0) > 0 ? t.nbytes() / size_t(t.size(0)) : 0;
  return {static_cast<const char*>(t.const_data_ptr()) + size_t(sample) * size, size};
}

Json or_null(double v) { return std::isfinite(v) ? Json(v) : Json(); }

// Names the inputs of a table, or the columns of a series: "price", "color=red", "sold.year". Empty for other data.
std::vector<std::string> input_names(const DataForm& form) {
  std::vector<std::string> out;
  if (const auto* series = std::get_if<SeriesForm>(&form.source)) return series->options.columns;
  const auto* table = std::get_if<TableForm>(&form.source);
  if (!table || !table->options.encoding || table->options.encoding->tokens) return out;
  for (const CsvEncoding::Column& column : table->options.encoding->columns) {
    const bool one_hot = !column.categories.empty() && table->options.one_hot;
    for (const std::string& category : one_hot ? column.categories : std::vector<std::string>{})
      out.push_back(column.name + "=" + category);
    for (const std::string& part : column.date) out.push_back(column.name + "." + part);
    if (!one_hot && column.date.empty()) out.push_back(column.name);
  }
  return out;
}

Json json_of(const std::vector<ChannelStatistics>& channels, const std::vector<std::string>& names) {
  Json out = Json::array();
  for (size_t i = 0; i < channels.size(); ++i) {
    const ChannelStatistics& c = channels[i];
    Json entry = Json::object();
    if (names.size() == channels.size()) entry["name"] = names[i];
    entry.update({{"mean", or_null(c.mean)},
                  {"std", or_null(c.std)},
                  {"min", or_null(c.low)},
                  {"max", or_null(c.high)},
                  {"nan", c.nan},
                  {"inf", c.inf}});
    out.push_back(std::move(entry));
  }
  return out;
}

void add_warnings(DataReport& r) {
  int64_t bad = 0;
  for (const auto* part : {&r.inputs, &r.targets})
    for (const ChannelStatistics& c : *part) bad += c.nan + c.inf;
  const bool named = r.input_names.size() == r.inputs.size();
  std::vector<std::string> constant;
  for (size_t i = 0; i < r.inputs.size(); ++i)
    if (r.inputs[i].count > 1 && r.inputs[i].low == r.inputs[i].high) constant.push_back(named ? r.input_names[i] : "");
  if (bad > 0) r.warnings.push_back(joined(bad, " values are NaN or infinite"));
  if (!constant.empty()) {
    std::string which;
    for (size_t i = 0; named && i < constant.size() && i < kExamples; ++i) which += (i == 0 ? ": " : ", ") + constant[i];
    if (named && constant.size() > kExamples) which += ", ...";
    r.warnings.push_back(
        joined(constant.size(), " of ", r.inputs.size(), named ? " columns" : " channels", " are constant", which));
  }
  const auto empty = std::count(r.class_counts.begin(), r.class_counts.end(), 0);
  if (empty > 0) r.warnings.push_back(joined(empty, " of ", r.classes, " classes have no sample"));
  if (r.contradictions > 0) r.warnings.push_back(joined(r.contradictions, " samples have the input of another and another target"));
}

void print_channels(std::ostream& out, const char* title, const std::vector<ChannelStatistics>& channels,
                    const std::vector<std::string>& names) {
  if (channels.empty()) return;
  const bool named = names.size() == channels.size();
  out << title << (named ? ", by column:" : ", by channel:")
      << "\n        mean         std         min         max     NaN     inf\n";
  for (size_t i = 0; i < channels.size() && i < kShown; ++i) {
    const ChannelStatistics& c = channels[i];
    for (const double v : {c.mean, c.std, c.low, c.high}) out << std::setw(12) << number_text(v, 5);
    out << std::setw(8) << c.nan << std::setw(8) << c.inf << (named ? "  " + in_line(names[i]) : "") << '\n';
  }
  if (channels.size() > kShown) out << "  ... and " << channels.size() - kShown << " more; --json has all\n";
}

// Returns the samples of each class; empty if samples have no class, or there are too many classes for a sheet.
std::vector<std::vector<int64_t>> samples_by_class(const Dataset& data) {
  if (data.classes() == 0 || data.classes() > kMostRows || !data.target_shape().empty()) return {};
  std::vector<std::vector<int64_t>> out(size_t(data.classes()));
  for_each_batch(data.untransformed(), [&](const Batch& batch, int64_t first) {
    for (const int64_t c : batch.target.to_vector<int64_t>()) {
      if (c >= 0 && c < data.classes()) out[size_t(c)].push_back(first);
      ++first;
    }
  });
  return out;
}

// Counts the samples of val and test whose inputs are in the training data: of both if `out` is of train, else of its own split.
void count_shared(DataReport& out, const Json& config, const SeenInputs& seen) {
  const bool is_train = out.split == "train";
  const std::hash<std::string_view> hash;
  for (const std::string& other : is_train ? std::vector<std::string>{"val", "test"} : std::vector<std::string>{"train"}) {
    if (!config["data"].contains(other) || config["data"][other].is_null()) continue;
    Json without = config;
    without["data"][other]["transforms"] = Json::array();
    std::shared_ptr<const Dataset> data;
    try {
      data = build_dataset(without, other);
    } catch (const Error&) { continue; }  // it is not the split to inspect
    if (data->input_shape() != out.input) continue;
    int64_t count = 0;
    std::unordered_set<size_t> found;
    for_each_batch(*data, [&](const Batch& batch, int64_t) {
      const Tensor x = batch.input.contiguous();
      for (int64_t i = 0; i < x.size(0); ++i) {
        const size_t key = hash(bytes_of(x, i));
        const auto at = seen.find(key);
        if (at == seen.end()) continue;
        if (is_train) ++count;
        if (!is_train && found.insert(key).second) count += at->second.count;
      }
    });
    if (count > 0) out.shared.emplace_back(is_train ? other : out.split, count);
  }
}

}  // namespace

DataReport inspect_data(const Config& config, const std::string& split) {
  Json without = config.json;
  without["data"][split]["transforms"] = Json::array();
  const auto data = build_dataset(without, split);
  DataReport out{.split = split,
                 .describe = data->describe(),
                 .summary = data->notes().line(),
                 .samples = data->size(),
                 .classes = data->classes()};
  out.input = data->input_shape(), out.target = data->target_shape();
  if (out.classes > 0) out.class_counts.resize(size_t(out.classes));
  const DataForm form = data->form();
  for (int64_t c = 0; c < out.classes; ++c) out.class_names.push_back(form.class_name(c));
  out.input_names = input_names(form);
  if (out.classes == 0) out.target_names = form.names;
  const bool is_series = std::holds_alternative<SeriesForm>(form.source);

  ChannelSums inputs, targets;
  SeenInputs seen;
  const std::hash<std::string_view> hash;
  for_each_batch(*data, [&](const Batch& batch, int64_t first) {
    // A series has its columns in the last dimension.
    const auto columns = [&](const Tensor& t, int64_t count) {
      return is_series ? t.reshape({t.size(0), -1, count}).transpose(1, 2) : t;
    };
    inputs.add(columns(batch.input, out.input.back()));
    const Tensor x = batch.input.contiguous(), y = batch.target.contiguous();
    if (out.classes > 0) {
      for (const int64_t c : y.to_vector<int64_t>())
        if (c >= 0 && c < out.classes) ++out.class_counts[size_t(c)];
    } else {
      targets.add(columns(batch.target, int64_t(form.names.size())));
    }
    for (int64_t i = 0; i < x.size(0); ++i) {
      const size_t target = hash(bytes_of(y, i));
      const auto [at, is_new] = seen.try_emplace(hash(bytes_of(x, i)), SeenInput{first + i, target});
      ++at->second.count;
      if (is_new) continue;
      ++out.duplicates;
      out.contradictions += at->second.target != target;
      if (out.examples.size() < kExamples) out.examples.emplace_back(first + i, at->second.first);
    }
  });
  out.inputs = inputs.result(), out.targets = targets.result();
  if (!config.json["data"][split]["transforms"].empty()) out.transformed = channel_statistics(*build_dataset(config.json, split));
  if (!is_series) count_shared(out, without, seen);  // windows of a series may repeat
  add_warnings(out);
  return out;
}

Json report_json(const DataReport& r) {
  Json out = {{"split", r.split},       {"data", r.describe},       {"samples", r.samples},
              {"input_shape", r.input}, {"target_shape", r.target}, {"classes", r.classes}};
  if (!r.summary.empty()) out["made"] = r.summary;
  if (r.classes > 0) out["class_names"] = r.class_names, out["class_counts"] = r.class_counts;
  out["inputs"] = json_of(r.inputs, r.input_names);
  if (!r.transformed.empty()) out["transformed"] = json_of(r.transformed, r.input_names);
  if (!r.targets.empty()) out["targets"] = json_of(r.targets, r.target_names);
  out["duplicates"] = r.duplicates;
  out["contradictions"] = r.contradictions;
  out["duplicate_examples"] = r.examples;
  for (const auto& [split, count] : r.shared) out["shared"][split] = count;
  out["warnings"] = r.warnings;
  return out;
}

void print_report(std::ostream& out, const DataReport& r) {
  out << r.split << ": " << r.describe << '\n';
  if (!r.summary.empty()) out << r.summary << '\n';
  if (r.classes > 0) {
    constexpr size_t kShownClasses = 160;
    out << "classes:";
    for (size_t c = 0; c < r.class_counts.size() && c < kShownClasses; ++c)
      out << ' ' << in_line(r.class_names[c]) << ':' << r.class_counts[c];
    out << (r.class_counts.size() > kShownClasses ? " ...\n" : "\n");
  }
  print_channels(out, "inputs", r.inputs, r.input_names);
  print_channels(out, "inputs after transforms", r.transformed, r.input_names);
  print_channels(out, "targets", r.targets, r.target_names);
  out << "duplicates: " << r.duplicates;
  for (const auto& [sample, before] : r.examples) out << (sample == r.examples[0].first ? " (" : ", ") << sample << " = " << before;
  out << (r.examples.empty() ? "" : size_t(r.duplicates) > r.examples.size() ? ", ...)" : ")") << '\n';
  for (const auto& [split, count] : r.shared)
    out << split << ": " << count << (count == 1 ? " sample has" : " samples have") << " the input of a sample of train\n";
  for (const std::string& w : r.warnings) out << "warning: " << w << '\n';
}

namespace {

// The samples of a sheet, and the cells that show them, by row.
struct SheetCells {
  std::vector<int64_t> samples, cells;
  int64_t columns = 0, rows = 0;
};

// Chooses evenly spaced samples, and sets the names of the rows if each class gets one.
SheetCells choose_cells(const Dataset& data, int64_t samples, std::vector<std::string>& row_names) {
  constexpr int64_t kLeastColumns = 4, kMostColumns = 16;  // of classes
  SheetCells out;
  const auto add_evenly = [&](int64_t count, int64_t first_cell, int64_t size, const auto& sample) {
    for (int64_t i = 0; i < count; ++i) out.samples.push_back(sample(i * size / count)), out.cells.push_back(first_cell + i);
  };
  if (const auto of_class = samples_by_class(data); !of_class.empty()) {
    out.rows = int64_t(of_class.size()), out.columns = std::clamp(samples / out.rows, kLeastColumns, kMostColumns);
    const DataForm form = data.form();
    for (int64_t c = 0; c < out.rows; ++c) {
      const std::vector<int64_t>& own = of_class[size_t(c)];
      row_names.push_back(form.class_name(c));
      add_evenly(std::min(out.columns, int64_t(own.size())), c * out.columns, int64_t(own.size()),
                 [&](int64_t i) { return own[size_t(i)]; });
    }
  } else {
    const int64_t count = std::min(samples, data.size());
    out.columns = int64_t(std::ceil(std::sqrt(double(count)))), out.rows = (count + out.columns - 1) / out.columns;
    add_evenly(count, 0, data.size(), [](int64_t i) { return i; });
  }
  return out;
}

// Draws images [N, channels, height, width] into their cells.
Picture draw_cells(const Tensor& images, const SheetCells& cells) {
  constexpr int64_t kGap = 2, kCell = 64, kGrey = 128;  // kGap, kCell: pixels between cells, and least side of one
  const int64_t count = images.size(0), channels = images.size(1), height = images.size(2), width = images.size(3);
  const int64_t zoom = std::max<int64_t>(1, kCell / std::max(height, width));
  const int64_t cell_width = width * zoom + kGap, cell_height = height * zoom + kGap;
  Picture out = {cells.columns * cell_width + kGap, cells.rows * cell_height + kGap, channels};
  out.pixels.assign(size_t(out.width * out.height * channels), uint8_t(kGrey));
  for (int64_t c = 0; c < channels; ++c) {
    const auto value = [&](int64_t i, int64_t p) { return images.data_ptr<float>()[(i * channels + c) * height * width + p]; };
    float low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t p = 0; p < height * width; ++p)
        if (std::isfinite(value(i, p))) low = std::min(low, value(i, p)), high = std::max(high, value(i, p));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t cell = cells.cells[size_t(i)];
      const int64_t top = kGap + cell / cells.columns * cell_height, left = kGap + cell % cells.columns * cell_width;
      for (int64_t y = 0; y < height * zoom; ++y) {
        for (int64_t x = 0; x < width * zoom; ++x) {
          const float v = (value(i, y / zoom * width + x / zoom) - low) / (high > low ? high - low : 1);
          const float shade = std::isnan(v) ? 0 : std::clamp(v, 0.f, 1.f);
          out.pixels[size_t(((top + y) * out.width + left + x) * channels + c)] = uint8_t(std::lround(255 * shade));
        }
      }
    }
  }
  return out;
}

}  // namespace

SampleSheet sample_sheet(const Config& config, const std::string& split, int64_t samples) {
  const auto data = build_dataset(config.json, split);
  const Shape shape = data->input_shape();
  check<ConfigError>(shape.size() == 3 && (shape[0] == 1 || shape[0] == 3), "inspect",
                     "--out needs images of 1 or 3 channels, but a sample has shape ", shape);
  SampleSheet sheet;
  const SheetCells cells = choose_cells(*data, samples, sheet.rows);
  sheet.picture = draw_cells(data->batch(cells.samples, 0).input.to(Device::cpu).contiguous(), cells);
  return sheet;
}

}  // namespace halfstep::app
