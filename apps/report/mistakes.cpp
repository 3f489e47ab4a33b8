// SPDX-License-Identifier: Apache-2.0
#include "apps/report/mistakes.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "apps/catalog/datasets.h"
#include "apps/catalog/infer.h"
#include "apps/catalog/losses.h"
#include "apps/report/chart.h"
#include "apps/terminal/quantity_text.h"
#include "apps/terminal/terminal.h"
#include "apps/use/answer_text.h"
#include "apps/use/predictor.h"
#include "framework/data/loading/subsets.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/tables/csv.h"
#include "framework/io/files/png.h"
#include "framework/ops/ops.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kShownSide = 96;                     // pixels of a picture's longer side
constexpr int64_t kCoarseSide = 48;                    // pictures with fewer pixels are shown as squares
constexpr size_t kMatrixClasses = 50, kMostCell = 60;  // kMostCell: columns of a cell
constexpr size_t kShownText = 240;                     // columns of a text's cell
constexpr int64_t kShownNumbers = 16;                  // most numbers of a sample that is neither a picture nor a table's row

// A sample with a wrong answer, or with a number's error.
struct AnswerError {
  int64_t index;
  double confidence;
  std::string truth, answer;
};

std::string base64(const std::string& bytes) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < n ? uint8_t(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kLetters[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

bool is_picture(const Shape& shape) {
  constexpr int64_t kLeastSide = 4;  // pixels
  return shape.size() == 3 && (shape[0] == 1 || shape[0] == 3) && shape[1] >= kLeastSide && shape[2] >= kLeastSide;
}

// Returns the picture of a tensor [C, H, W], reduced by a whole factor if it is large: each pixel is the mean of a square. in_unit:
// values are in [0, 1], and else are scaled to their range.
Picture small_picture(const Tensor& given, bool in_unit) {
  const int64_t channels = given.size(0), height = given.size(1), width = given.size(2);
  const int64_t factor = (std::max(height, width) + kShownSide - 1) / kShownSide;
  const Tensor input = given.to(DType::f32).contiguous();
  const std::vector<float> values = input.to_vector<float>();
  float low = 0, high = 1;
  if (const auto [least, most] = std::minmax_element(values.begin(), values.end()); !in_unit) low = *least, high = *most;
  Picture out{.width = (width + factor - 1) / factor, .height = (height + factor - 1) / factor, .channels = channels};
  for (int64_t y = 0; y < height; y += factor)
    for (int64_t x = 0; x < width; x += factor)
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0, count = 0;
        for (int64_t v = y; v < std::min(y + factor, height); ++v)
          for (int64_t u = x; u < std::min(x + factor, width); ++u, ++count) sum += values[size_t((c * height + v) * width + u)];
        const double part = high > low ? (sum / count - low) / (high - low) : 0;
        out.pixels.push_back(uint8_t(std::lround(255 * (part > 0 ? std::min(part, 1.0) : 0))));
      }
  return out;
}

// A data set, and the number of a sample in it.
struct SamplePlace {
  const Dataset* data;
  int64_t index;
};
// Returns the sample's place in the data set that subsets were made of.
SamplePlace place_of_sample(const Dataset* data, int64_t index) {
  while (const auto* part = dynamic_cast<const Subset<Dataset>*>(data)) {
    index = part->indices()[size_t(index)];
    data = &part->dataset();
  }
  return {data, index};
}

// Returns a file's name below its class if samples are files, or the line of a table's file.
std::string name_of_sample(const Dataset* data, int64_t index) {
  const SamplePlace at = place_of_sample(data, index);
  if (const auto* pictures = dynamic_cast<const ImageFolderDataset*>(at.data)) {
    const fs::path& file = pictures->file(at.index);
    return (file.parent_path().filename() / file.filename()).string();
  }
  if (const auto* table = dynamic_cast<const CsvDataset*>(at.data)) return "line " + std::to_string(table->line(at.index));
  return "sample " + std::to_string(index);
}

// Makes columns and cells of a table's encoded rows, or of the numbers of small samples.
struct SampleRows {
  const DataForm& form;

  const CsvEncoding* encoding() const {
    const auto* table = std::get_if<TableForm>(&form.source);
    return table && table->options.encoding ? &*table->options.encoding : nullptr;
  }
  bool one_hot() const { return std::get<TableForm>(form.source).options.one_hot; }
  std::vector<std::string> columns() const {
    std::vector<std::string> out;
    if (const CsvEncoding* e = encoding(); e && e->tokens) {
      out.emplace_back("text, as the model reads it");
    } else if (e) {
      for (const auto& column : e->columns) out.push_back(column.name);
    } else if (numel(form.input) <= kShownNumbers) {
      for (int64_t k = 0; k < numel(form.input); ++k) out.push_back("x" + std::to_string(k));
    }
    return out;
  }
  std::vector<std::string> cells(const Tensor& sample) const {
    if (const CsvEncoding* e = encoding(); e && e->tokens)
      return {shortened(e->tokens->decode(sample.to_vector<int64_t>()), kShownText)};
    const std::vector<double> values = sample.reshape({-1}).to_vector<double>();
    const InputUnits units = input_units(form);
    const auto value_at = [&](size_t i) {  // in the units of the file
      if (units.mean.empty()) return values.at(i);
      const size_t k = units.mean.size() == 1 ? 0 : i;
      return values.at(i) * units.std.at(k) + units.mean.at(k);
    };
    std::vector<std::string> out;
    const CsvEncoding* e = encoding();
    if (!e) {
      for (size_t i = 0; i < values.size(); ++i) out.push_back(number_text(value_at(i), 5));
      return out;
    }
    size_t i = 0;
    for (const auto& column : e->columns) {
      std::string cell;
      if (!column.categories.empty() && one_hot()) {
        for (const std::string& category : column.categories)
          if (value_at(i++) > 0.5) cell = category;
      } else if (!column.categories.empty()) {
        cell = column.categories.at(size_t(std::clamp<double>(std::round(value_at(i++)), 0, double(column.categories.size() - 1))));
      } else {
        for (size_t k = 0; k < std::max<size_t>(1, column.date.size()); ++k) cell += (k ? " " : "") + number_text(value_at(i++), 6);
      }
      out.push_back(cell);
    }
    return out;
  }
};

class MistakeSearch {
 public:
  MistakeSearch(const fs::path& run, int64_t most_samples, double seconds)
      : model_(run),
        most_samples_(most_samples),
        deadline_(std::chrono::steady_clock::now() +
                  std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  Mistakes find() {
    out_.step = model_.step();
    out_.has_classes = form().classes > 0;
    refuse_if(std::holds_alternative<TextForm>(form().source), "the model is one of text");
    refuse_if(form().label_sequences, "the answers are rows of labels");
    refuse_if(out_.has_classes ? !form().target.empty() : numel(form().target) != 1,
              "a sample has more than one class or number to be answered");
    refuse_if(out_.has_classes && !gives_probabilities(model_.config().loss), "the loss gives the answers no probabilities");
    out_.split = model_.config().data.has("val") ? "val" : "test";
    refuse_if(!model_.config().data.has(out_.split), "the run has no data.val");
    Json config = model_.config().json;
    config["data"][out_.split]["transforms"] = Json::array();  // the model applies them itself
    data_ = build_dataset(config, out_.split, Device::cpu, &form());
    refuse_if(data_->input_shape() != form().input, "the samples have another shape now");
    out_.samples = data_->size();
    for (int64_t c = 0; c < form().classes; ++c) out_.classes.push_back(form().class_name(c));
    if (const auto n = size_t(form().classes); n <= kMatrixClasses) out_.confusion.assign(n, std::vector<int64_t>(n, 0));
    examine();
    describe_worst();
    return std::move(out_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  const DataForm& form() const { return model_.form(); }
  static void refuse_if(bool condition, const char* why) { check<DataError>(!condition, "report", why); }

  // Answers the split in order, until the deadline.
  void examine() {
    constexpr int64_t kMostBatch = 256;
    const int64_t batch = std::min<int64_t>(kMostBatch, std::max<int64_t>(1, model_.config().data.loader.batch_size));
    for (int64_t begin = 0; begin < out_.samples && (begin == 0 || Clock::now() < deadline_); begin += batch) {
      std::vector<int64_t> indices(size_t(std::min(batch, out_.samples - begin)));
      std::iota(indices.begin(), indices.end(), begin);
      const Batch read = data_->batch(indices);
      const std::vector<Prediction> answers = model_.answers(read.input);
      std::vector<double> truths = read.target.reshape({-1}).to_vector<double>();
      for (double& t : truths)
        if (out_.has_classes && int64_t(t) == ignored_class(model_.config().loss)) t = -1;
      for (size_t i = 0; i < answers.size(); ++i) add_answer(indices[i], answers[i], truths.at(i));
      out_.examined += int64_t(answers.size());
      keep_worst();
    }
    if (!out_.has_classes) compute_metrics();
  }
  // Computes rmse and r2 as the metrics do.
  void compute_metrics() {
    double mean = 0, squares = 0, spread = 0;
    const auto count = double(out_.all.size());
    for (const Mistakes::Answered& a : out_.all) mean += a.truth / count;
    for (const Mistakes::Answered& a : out_.all) {
      squares += (a.answer - a.truth) * (a.answer - a.truth);
      spread += (a.truth - mean) * (a.truth - mean);
    }
    if (out_.examined < out_.samples || count == 0) return;
    out_.rmse = std::sqrt(squares / count);
    if (spread > 0) out_.r2 = 1 - squares / spread;
  }
  // Adds an answer to the results, and to `found_` if it is wrong or a number.
  void add_answer(int64_t index, const Prediction& p, double truth) {
    if (out_.has_classes) {
      const auto answer = p.top.at(0).number, correct = int64_t(truth);
      out_.all.push_back({truth, double(answer), p.top[0].probability});
      if (correct >= 0 && !out_.confusion.empty()) ++out_.confusion.at(size_t(correct)).at(size_t(answer));
      if (truth < 0 || p.top.at(0).number == int64_t(truth)) return;  // below 0: a class that the loss ignores
      ++out_.wrong;
      return found_.push_back({index, p.top[0].probability, form().class_name(int64_t(truth)), p.top[0].name});
    }
    check<DataError>(p.numbers.size() == 1, "report", "the model answers with ", p.numbers.size(), " numbers for one");
    const double correct = form().scale.in_units(truth);
    out_.all.push_back({correct, p.numbers[0], std::abs(p.numbers[0] - correct)});
    found_.push_back(
        {index, std::abs(p.numbers[0] - correct), answer_text(form(), 0, correct, 5), answer_text(form(), 0, p.numbers[0], 5)});
  }
  void keep_worst() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const AnswerError& a, const AnswerError& b) { return a.confidence > b.confidence; });
    if (int64_t(found_.size()) > most_samples_) found_.resize(size_t(most_samples_));
  }

  // Describes the worst samples.
  void describe_worst() {
    const auto* image = std::get_if<ImageForm>(&form().source);
    const SampleRows rows{form()};
    out_.has_texts = rows.encoding() && rows.encoding()->tokens.has_value();
    std::vector<std::vector<std::string>> file_rows;
    if (!out_.has_texts) file_rows = rows_of_file();
    if (!is_picture(form().input) && file_rows.empty()) out_.columns = rows.columns();
    for (const AnswerError& f : found_) {
      Mistake m{.index = f.index,
                .sample = name_of_sample(data_.get(), f.index),
                .truth = f.truth,
                .answer = f.answer,
                .confidence = f.confidence};
      const Tensor input = data_->get(f.index).first;
      if (is_picture(form().input)) {
        const Picture picture = small_picture(image && image->on_side ? input.transpose(1, 2) : input, image != nullptr);
        m.picture = "data:image/png;base64," + base64(png_bytes(picture));
        m.is_coarse = std::max(picture.width, picture.height) <= kCoarseSide;
      } else if (!file_rows.empty()) {
        m.cells = file_rows.at(size_t(&f - found_.data()));
      } else if (!out_.columns.empty()) {
        m.cells = rows.cells(input);
      }
      out_.worst.push_back(std::move(m));
    }
  }

  // Returns the rows of a table as its file has them, without the target; empty for other data, and if the file has changed.
  std::vector<std::vector<std::string>> rows_of_file() {
    std::vector<int64_t> lines;
    const CsvDataset* table = nullptr;
    for (const AnswerError& f : found_) {
      const SamplePlace at = place_of_sample(data_.get(), f.index);
      table = dynamic_cast<const CsvDataset*>(at.data);
      if (!table) return {};
      lines.push_back(table->line(at.index));
    }
    if (!table) return {};
    CsvLines read;
    try {
      read = table->lines_of_file(lines);
    } catch (const Error&) { return {}; }
    for (size_t c = 0; c < read.names.size(); ++c)
      if (c != read.target) out_.columns.push_back(read.names[c]);
    for (std::vector<std::string>& row : read.cells) {
      row.erase(row.begin() + std::ptrdiff_t(read.target));
      for (std::string& cell : row)
        if (cell.size() > kMostCell) cell = shortened(cell, kMostCell);
    }
    return read.cells;
  }

  Predictor model_;
  const int64_t most_samples_;
  const Clock::time_point deadline_;
  std::shared_ptr<const Dataset> data_;
  std::vector<AnswerError> found_;
  Mistakes out_;
};

}  // namespace

Mistakes find_mistakes(const fs::path& run, int64_t most_samples, double seconds) {
  try {
    return MistakeSearch(run, most_samples, seconds).find();
  } catch (const Error& e) {
    const std::string why = one_line(e);
    const std::string own = "[report] ";
    return {.fault = why.starts_with(own) ? why.substr(own.size()) : why};
  }
}

}  // namespace halfstep::app
