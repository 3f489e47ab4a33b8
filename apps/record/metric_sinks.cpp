// SPDX-License-Identifier: Apache-2.0
#include "apps/record/metric_sinks.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <optional>
#include <set>
#include <string_view>

#include "apps/record/metrics_file.h"
#include "framework/base/check.h"
#include "framework/interchange/protobuf.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/png.h"

namespace halfstep::app {
namespace fs = std::filesystem;
namespace {

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::vector<std::string> csv_cells(std::string_view line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"')
      out.back() += line[i++];
    else if (line[i] == '"')
      quoted = !quoted;
    else if (line[i] == ',' && !quoted)
      out.emplace_back();
    else
      out.back() += line[i];
  }
  return out;
}

std::string csv_head(const std::vector<std::string>& columns) {
  std::string out;
  for (const std::string& c : columns) out += (out.empty() ? "" : ",") + csv_cell(c);
  return out + '\n';
}

// Returns whether a table has a cell for the value; null is a number that is not finite.
bool is_cell(const Json& value) { return value.is_number() || value.is_null(); }

// Converts a row back to its entry; nothing if it is not a row of these columns of numbers.
std::optional<Json> entry_of(const std::vector<std::string>& columns, std::string_view line) {
  const std::vector<std::string> cells = csv_cells(line);
  if (cells.size() > columns.size()) return {};
  Json out = Json::object();
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty()) continue;
    Json value = cells[i] == "nan" ? Json() : Json::parse(cells[i], nullptr, false);
    if (!is_cell(value)) return {};
    out[columns[i]] = std::move(value);
  }
  return out;
}

double now_seconds() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Computes the checksum CRC-32C.
uint32_t crc32c(std::string_view bytes) {
  constexpr uint32_t kPolynomial = 0x82f63b78u;  // Castagnoli's, with reversed bits
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = t[i] >> 1 ^ (t[i] & 1 ? kPolynomial : 0);
    }
    return t;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = table[(crc ^ uint8_t(c)) & 255] ^ crc >> 8;
  return ~crc;
}

// Adds each number, word and switch below `value`, by its dotted path: SessionStartInfo.hparams of TensorBoard's plugin.
void add_hyperparameters(const Json& value, const std::string& path, ProtoWriter& info) {
  if (value.is_structured()) {
    size_t place = 0;
    for (const auto& [key, inner] : value.items())
      add_hyperparameters(inner, path + "." + (value.is_array() ? std::to_string(place++) : key), info);
    return;
  }
  ProtoWriter content;  // google.protobuf.Value
  if (value.is_boolean())
    content.integer(4, value.get<bool>());
  else if (value.is_number())
    content.real64(2, value.get<double>());
  else if (value.is_string())
    content.bytes(3, value.get_ref<const std::string&>());
  else
    return;
  info.message(1, ProtoWriter().bytes(1, path).message(2, content));
}

// Returns the config's parts that affect training, as a Summary that the plugin reads beside an empty tensor.
ProtoWriter hyperparameters(const Json& config, double time) {
  ProtoWriter info;
  for (const char* key : {"seed", "model", "loss", "optimizer", "scheduler", "amp", "train"})
    if (const auto found = config.find(key); found != config.end()) add_hyperparameters(*found, key, info);
  if (const auto data = config.find("data"); data != config.end() && data->is_object())
    add_hyperparameters(data->value("loader", Json()), "data.loader", info);
  info.real64(5, time);  // start time
  const auto plugin = ProtoWriter().bytes(1, "hparams").message(2, ProtoWriter().integer(1, 0).message(3, info));
  const auto empty = ProtoWriter().integer(1, 1).message(2, ProtoWriter().message(2, ProtoWriter().integer(1, 0)));
  const auto value =
      ProtoWriter().bytes(1, "_hparams_/session_start_info").message(8, empty).message(9, ProtoWriter().message(1, plugin));
  return ProtoWriter().message(1, value);
}

// Prints the lines of metrics.jsonl as they are written, for the program that reads stdout. It counts no lost lines: the program
// checks at its end whether stdout could be written.
class StdoutSink : public MetricSink {
 public:
  void write(const Json& entry) override {
    std::cout << entry.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  void sync() override {}
  int64_t lost() const override { return 0; }
};

// Draws a confusion matrix: rows are classes, columns predictions. A cell's colour is its share of the row, green on the diagonal,
// red elsewhere; a row without samples is grey. The last pixels of a cell are a white line if there is room.
Picture confusion_picture(const Json& rows) {
  constexpr int64_t kPictureSide = 320, kMostCellSide = 40, kLeastSideWithLine = 4;  // pixels
  constexpr double kUnknownShare = 0.06;                                             // of black, for rows without samples
  const auto classes = int64_t(rows.size());
  const int64_t side = std::clamp<int64_t>(kPictureSide / classes, 1, kMostCellSide);  // of a cell
  Picture out{.width = classes * side, .height = classes * side, .channels = 3};
  for (int64_t y = 0; y < classes * side; ++y) {
    const Json& row = rows[size_t(y / side)];
    double samples = 0;
    for (const Json& cell : row) samples += cell.get<double>();
    for (int64_t x = 0; x < classes * side; ++x) {
      const bool is_line = side >= kLeastSideWithLine && (x % side == side - 1 || y % side == side - 1);
      const double share = is_line ? 0 : samples > 0 ? row[size_t(x / side)].get<double>() / samples : kUnknownShare;
      static constexpr double kRight[] = {0, 109, 44}, kWrong[] = {165, 15, 21}, kNone[] = {0, 0, 0};
      const double* const full = samples == 0 ? kNone : x / side == y / side ? kRight : kWrong;
      for (int c = 0; c < 3; ++c) out.pixels.push_back(uint8_t(std::lround(255 - std::sqrt(share) * (255 - full[c]))));
    }
  }
  return out;
}

// Formats an event as a record: its size and its bytes, each with a checksum. The format rotates the checksum and adds a constant,
// because a plain checksum of bytes that contain checksums is weak.
std::string event_record(const ProtoWriter& event) {
  constexpr uint32_t kMaskDelta = 0xa282ead8u;  // as in tensorflow/core/lib/hash/crc32c.h
  const uint64_t size = event.str().size();
  std::string out;
  for (const std::string_view part :
       {std::string_view(reinterpret_cast<const char*>(&size), sizeof size), std::string_view(event.str())}) {
    const uint32_t crc = crc32c(part), masked = (crc >> 15 | crc << 17) + kMaskDelta;
    out.append(part).append(reinterpret_cast<const char*>(&masked), sizeof masked);
  }
  return out;
}

}  // namespace

bool is_confusion_matrix(const Json& table) {
  return table.is_array() && !table.empty() && std::all_of(table.begin(), table.end(), [&](const Json& row) {
           return row.is_array() && row.size() == table.size() &&
                  std::all_of(row.begin(), row.end(), [](const Json& cell) { return cell.is_number(); });
         });
}

MetricSinks::MetricSinks(const std::vector<std::string>& names, const fs::path& folder, const ResumePoint& from,
                         const Json& config) {
  for (const std::string& name : std::set<std::string>(names.begin(), names.end())) {
    if (name == "jsonl") sinks_.push_back(std::make_unique<MetricsFile>(folder / "metrics.jsonl", from));
    if (name == "csv") sinks_.push_back(std::make_unique<CsvSink>(folder / kMetricsCsv, from));
    if (name == kStdoutSink) sinks_.push_back(std::make_unique<StdoutSink>());
    if (name == "tensorboard") sinks_.push_back(std::make_unique<EventSink>(folder, from, config));
  }
}

void MetricSinks::write(const Json& entry) {
  for (const auto& sink : sinks_) sink->write(entry);
}

void MetricSinks::sync() {
  for (const auto& sink : sinks_) sink->sync();
}

int64_t MetricSinks::lost() const {
  int64_t out = 0;
  for (const auto& sink : sinks_) out += sink->lost();
  return out;
}

CsvSink::CsvSink(const fs::path& path, const ResumePoint& from) : path_(path) {
  std::string kept;
  std::error_code ignored;
  if (from.step > 0 && fs::exists(path, ignored)) {
    check<IoError>(fs::is_regular_file(path, ignored), "metrics", path.string(), " must be a regular file");
    const std::string text = read_file(path);
    for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
      end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = std::string_view(text).substr(begin, end - begin);
      if (begin == 0) {
        columns_ = csv_cells(line);
        kept = csv_head(columns_);
      } else if (const auto entry = entry_of(columns_, line); entry && place_of(*entry, from) == EntryPlace::before) {
        kept.append(line).push_back('\n');
      }
    }
  }
  file_ = AppendedFile(path, kept);
}

void CsvSink::write(const Json& entry) {
  const size_t old_columns = columns_.size();
  for (const auto& [name, value] : entry.items())
    if (is_cell(value) && std::find(columns_.begin(), columns_.end(), name) == columns_.end()) columns_.push_back(name);
  if (columns_.size() > old_columns) {
    try {
      const std::string text = read_file(path_);
      const size_t head = text.find('\n');
      const std::string rows = head == std::string::npos ? "" : text.substr(head + 1);
      AppendedFile wider(path_, csv_head(columns_) + rows);
      lost_ += file_.lost();
      file_ = std::move(wider);
    } catch (const IoError&) {
      columns_.resize(old_columns);
      return file_.count_loss(EIO);
    }
  }
  std::string line = file_.is_torn() ? "\n" : "";
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto cell = entry.find(columns_[i]);
    if (i > 0) line += ',';
    if (cell != entry.end() && is_cell(*cell)) line += cell->is_null() ? "nan" : cell->dump();
  }
  file_.append(line + '\n');
}

EventSink::EventSink(const fs::path& folder, const ResumePoint& from, const Json& config) {
  const double time = now_seconds();
  fs::path path;
  for (int64_t second = int64_t(time); path.empty() || fs::exists(path);
       ++second) {  // TensorBoard reads files in the order of their names
    char digits[24];
    std::snprintf(digits, sizeof digits, "%010lld", static_cast<long long>(second));
    path = folder / (std::string(kEventsPrefix) + digits + ".halfstep");
  }
  const int64_t first_dropped = from.step > 0 ? from.applied + 1 : 0;  // first step of earlier files that TensorBoard drops
  const ProtoWriter start = ProtoWriter().integer(1, 1);           // SessionLog.status: START
  file_ =
      AppendedFile(path, event_record(ProtoWriter().real64(1, time).bytes(3, "brain.Event:2")) +
                             event_record(ProtoWriter().real64(1, time).integer(2, first_dropped).message(7, start)) +
                             event_record(ProtoWriter().real64(1, time).integer(2, 0).message(5, hyperparameters(config, time))));
}

void EventSink::write(const Json& entry) {
  if (file_.is_torn()) return file_.count_loss(EIO);  // readers stop at an incomplete record
  ProtoWriter values;
  for (const auto& [name, value] : entry.items()) {
    if (is_confusion_matrix(value)) {
      const Picture picture = confusion_picture(value);
      const auto image = ProtoWriter().integer(1, picture.height).integer(2, picture.width).integer(3, picture.channels);
      values.message(1, ProtoWriter().bytes(1, name).message(4, ProtoWriter(image).bytes(4, png_bytes(picture))));
    }
    if (!value.is_number() || name == "step" || name == "attempted" || name == "epoch" || name == "seconds") continue;
    values.message(1, ProtoWriter().bytes(1, name).real(2, value.get<float>()));
  }
  if (values.str().empty()) return;
  file_.append(event_record(ProtoWriter().real64(1, now_seconds()).integer(2, entry["step"].get<int64_t>()).message(5, values)));
}

}  // namespace halfstep::app
