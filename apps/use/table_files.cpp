// SPDX-License-Identifier: Apache-2.0
#include "apps/use/table_files.h"

#include <optional>
#include <string>
#include <vector>

#include "apps/catalog/datasets.h"
#include "framework/base/check.h"
#include "framework/data/tables/csv_skipped.h"

namespace halfstep::app {
namespace {

const Json& train_of(const Json& config) { return config["data"]["train"]; }

// Replaces a help that names keys of data by one for predict, which has no config.
std::string fitting_help(const std::string& text, const Json& train) {
  constexpr std::string_view kHelp = "\nhelp: ";
  const size_t at = text.find(kHelp);
  if (at == text.npos) return text;
  const std::string help = text.substr(at + kHelp.size());
  std::string own;
  bool has_key = false;
  for (const Field& f : dataset_catalog().row(train).component.fields) {
    if (help.find('"' + f.key + '"') == help.npos && !help.starts_with(f.key + ": ")) continue;
    has_key = true;
    if (train.contains(f.key) && !train[f.key].is_null())
      own += joined(own.empty() ? "" : ", ", '"', f.key, "\": ", train[f.key].dump());
  }
  if (!has_key) return text;
  return joined(text.substr(0, at),
                Help{joined("predict reads files as the run does", own.empty() ? "" : ", with ", own,
                            ": write this one in the form of the training data. For the config of a new run: ", help)});
}

std::string lines_text(const std::vector<int64_t>& lines) {
  std::string out;
  for (const int64_t line : lines) out += (out.empty() ? "" : ", ") + std::to_string(line);
  return joined(lines.size() == 1 ? "line " : "lines ", out, lines.size() == 1 ? " is" : " are",
                " left out, as by \"skip_rows\" of the run");
}

size_t faults_of(const CsvRows& rows) { return rows.faults.size() - rows.rows.size(); }
size_t faults_of(const LastWindow&) { return 0; }

// What a run reads from a table.
struct ReadColumns {
  std::optional<bool> header;
  std::vector<CsvEncoding::Column> columns;
};

ReadColumns read_columns(const CsvOptions& o) {
  ReadColumns out{o.encoding->header, {}};
  if (!o.encoding->tokens) out.columns = o.encoding->columns;
  if (!o.classification) out.columns.push_back({o.encoding->target});
  return out;
}

ReadColumns read_columns(const TimeSeriesOptions& o) {
  ReadColumns out{o.header, {}};
  for (const std::string& name : o.columns) out.columns.push_back({name});
  for (const std::string& name : o.time) out.columns.push_back({name});
  return out;
}

// Reads the file, and if it or some of its rows cannot be read, again without those of the lines that the run left out that are no
// records. note: set if that helps.
template <class Options, class F>
auto read_as_run(const std::filesystem::path& path, Options options, const Json& train, std::string& note, const F& read) {
  using Read = decltype(read(path, options));
  std::optional<Read> out;
  std::optional<std::string> fault;
  bool is_config = false;
  try {
    out = read(path, options);
  } catch (const DataError& e) { fault = e.what(); } catch (const ConfigError& e) {
    fault = e.what(), is_config = true;  // a missing column
  }
  const Json skipped = train.value("skip_rows", Json::array());
  if ((!out || faults_of(*out) > 0) && !skipped.empty() && std::filesystem::is_regular_file(path)) {
    const ReadColumns columns = read_columns(options);
    options.format.skip_rows =
        lines_without_record(path, options.format, columns.header, skipped.get<std::vector<int64_t>>(), columns.columns);
    if (!options.format.skip_rows.empty()) try {
        Read again = read(path, options);
        if (!out || faults_of(again) < faults_of(*out)) out = std::move(again), note = lines_text(options.format.skip_rows);
      } catch (const DataError&) {
      } catch (const ConfigError&) {}  // the first error says more
  }
  if (out) return std::move(*out);
  if (is_config) throw ConfigError(fitting_help(*fault, train));
  throw DataError(fitting_help(*fault, train));
}

}  // namespace

CsvRows rows_of_table(const std::filesystem::path& path, const CsvOptions& training, const Json& config) {
  std::string note;
  CsvRows out = read_as_run(path, training, train_of(config), note, read_csv_rows);
  if (out.notes.summary.empty()) out.notes.summary = note;
  for (std::string& fault : out.faults)
    if (!fault.empty()) fault = fitting_help(fault, train_of(config));
  return out;
}

LastWindow last_window_of(const std::filesystem::path& path, const TimeSeriesOptions& training, const Json& config) {
  std::string note;
  LastWindow out = read_as_run(path, training, train_of(config), note, read_last_window);
  if (!note.empty()) out.note += (out.note.empty() ? "" : "; ") + note;
  return out;
}

}  // namespace halfstep::app
