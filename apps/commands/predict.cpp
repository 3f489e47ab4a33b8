// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "apps/catalog/losses.h"
#include "apps/commands/answer_arrays.h"
#include "apps/commands/commands.h"
#include "apps/commands/options.h"
#include "apps/exit_codes.h"
#include "apps/terminal/quantity_text.h"
#include "apps/terminal/terminal.h"
#include "apps/use/answer_text.h"
#include "apps/use/predictor.h"
#include "framework/base/log.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep::app {
namespace {

constexpr double kProgressSeconds = 5;  // between two lines about the progress

struct PredictArguments {
  ModelOptions model;
  std::vector<std::string> inputs, texts;
  FileOptions files;
  std::optional<std::string> out;
  bool csv = false, json = false, wrong = false, check = false;
};

std::string percent(double share) { return number_text(100 * share, 4) + " %"; }

// Quotes text as a cell of a CSV file.
std::string cell_text(const std::string& text, char delimiter) {
  if (text.find_first_of(std::string("\"\r\n") + delimiter) == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

// Returns the name of an input in UTF-8: bytes that are none become escapes, as bash reads them between $' and '.
std::string name_in_utf8(const std::string& name) {
  if (find_not_utf8(name) == std::string::npos) return name;
  std::string out;
  for (size_t at = 0; at < name.size();) {
    const size_t bytes = utf8_length(name, at);
    char escape[8] = {};
    if (bytes == 0) std::snprintf(escape, sizeof escape, "\\x%02x", unsigned(uint8_t(name[at])));
    out += bytes == 0 ? std::string(escape) : name.substr(at, bytes);
    at += std::max<size_t>(bytes, 1);
  }
  return out;
}

// Returns names of further columns, with a number where the table has the name already.
std::vector<std::string> new_names(const std::vector<std::string>& table, std::vector<std::string> columns) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (std::string& column : columns) {
    const std::string name = column;
    for (int i = 2; has(table, column); ++i) column = joined(name, '_', i);
    if (column != name) std::cerr << "note: the table has a column " << in_line(name) << ": the new one is " << column << '\n';
  }
  return columns;
}

std::string joined_labels(const Prediction& p, const DataForm& form) {
  // Join characters to words, and separate longer names.
  constexpr size_t kMostBytes = 4;  // of a character in UTF-8
  const bool are_letters =
      std::all_of(form.names.begin(), form.names.end(), [](const std::string& n) { return n.size() <= kMostBytes; }) &&
      form.label_sequences;
  std::string out;
  for (const std::string& l : p.labels) out += (out.empty() || are_letters ? "" : " ") + l;
  return out;
}

// Writes answers in the requested format: text, CSV or JSON.
class AnswerWriter {
 public:
  AnswerWriter(const PredictArguments& arguments, const DataForm& form, std::ostream& out)
      : arguments_(arguments), form_(form), out_(out) {
    const auto* const series = std::get_if<SeriesForm>(&form.source);
    if (series && series->options.format.decimal == ',') decimal_ = ',', delimiter_ = ';';
  }

  // Takes the header and the format of the table whose rows follow. Throws DataError if CSV output would get its rows under the
  // names of another table.
  void begin_table(const CsvRows& rows) {
    check<DataError>(!arguments_.csv || !has_header_ || (rows.header == header_ && rows.delimiter == delimiter_), "predict",
                     "a table that begins \"", csv_line(rows.header, rows.delimiter), "\" follows one that begins \"",
                     csv_line(header_, delimiter_), "\": its rows would stand under the other one's names",
                     Help{"predict it by itself: one call for each kind of table"});
    header_ = rows.header;
    delimiter_ = rows.delimiter, decimal_ = rows.decimal;
    if (arguments_.csv) write_csv_header();
  }

  void write(const Prediction& p) {
    if (arguments_.json) return write_json(p);
    if (arguments_.csv) return write_csv(p);
    if (!p.fault.empty()) return;  // stderr has the fault
    write_text(p);
  }

 private:
  static std::string csv_line(const std::vector<std::string>& cells, char delimiter) {
    std::string out;
    for (size_t i = 0; i < cells.size(); ++i) out += (i ? std::string(1, delimiter) : "") + cell_text(cells[i], delimiter);
    return out;
  }

  // Returns whether numbers are of several columns, one row for each future step.
  bool has_columns() const { return std::holds_alternative<SeriesForm>(form_.source) && form_.names.size() > 1; }

  void write_columns_as_text(const Prediction& p) {
    const size_t k = form_.names.size();
    for (size_t i = 0; i < p.numbers.size(); ++i) {
      if (i % k == 0) out_ << in_line(p.input) << (p.numbers.size() > k ? joined(" +", i / k + 1) : "") << ": ";
      out_ << form_.names[i % k] << ' ' << answer_text(form_, i, p.numbers[i], 6) << (i % k + 1 < k ? ", " : "\n");
    }
  }

  void write_text(const Prediction& p) {
    if (has_columns()) return write_columns_as_text(p);
    out_ << in_line(p.input) << ": ";
    for (size_t k = 0; k < p.top.size(); ++k) {
      out_ << (k ? ", " : "") << in_line(p.top[k].name);
      if (!std::isnan(p.top[k].probability)) out_ << ' ' << percent(p.top[k].probability);
    }
    for (size_t k = 0; k < p.numbers.size(); ++k) out_ << (k ? " " : "") << answer_text(form_, k, p.numbers[k], 6);
    out_ << joined_labels(p, form_);
    if (p.truth && form_.classes > 0 && p.is_wrong()) out_ << "  (it is " << in_line(*p.truth_name) << ')';
    if (p.truth && form_.classes == 0) out_ << "  (it is " << answer_text(form_, 0, *p.truth, 6) << ')';
    for (size_t c = 0; c < p.probabilities.size(); ++c)
      out_ << (c ? ", " : "  [") << in_line(form_.class_name(int64_t(c))) << ' ' << percent(p.probabilities[c])
           << (c + 1 == p.probabilities.size() ? "]" : "");
    out_ << '\n';
  }

  // Returns the names of the columns that a CSV file gets.
  std::vector<std::string> csv_columns() const {
    std::vector<std::string> out;
    if (form_.classes > 0 && !form_.label_sequences && form_.target.empty()) {
      out = {"prediction", "probability"};
      for (int64_t c = 0; arguments_.files.probabilities && c < form_.classes; ++c) out.push_back("p(" + form_.class_name(c) + ')');
    } else if (form_.classes > 0 || numel(form_.target) == 1) {
      out = {"prediction"};
    } else {
      const auto k = has_columns() ? int64_t(form_.names.size()) : 1, all = numel(form_.target);
      for (int64_t i = 0; i < all; ++i)
        out.push_back((k > 1 ? form_.names[size_t(i % k)] : "prediction") + (k == 1 || all > k ? joined('.', i / k + 1) : ""));
    }
    out.emplace_back("error");
    return out;
  }

  // Writes it once, although a table may follow a table.
  void write_csv_header() {
    if (has_header_) return;
    has_header_ = true;
    std::vector<std::string> names = std::holds_alternative<TableForm>(form_.source) ? header_ : std::vector<std::string>{"input"};
    if (std::holds_alternative<TableForm>(form_.source) && header_.empty()) return;  // a table without a header stays without one
    for (const std::string& c : new_names(header_, csv_columns())) names.push_back(c);
    write_csv_line(names);
  }

  // Returns a number as the table writes its own.
  std::string cell_of(std::string number) const {
    std::replace(number.begin(), number.end(), '.', decimal_);
    return number;
  }

  void write_csv(const Prediction& p) {
    write_csv_header();
    const bool is_table = std::holds_alternative<TableForm>(form_.source);
    std::vector<std::string> cells = is_table ? p.cells : std::vector<std::string>{name_in_utf8(p.input)};
    if (is_table && cells.empty()) cells.resize(header_.size());  // a file that cannot be read
    std::vector<std::string> answer(csv_columns().size());
    if (!p.fault.empty()) {
      answer.back() = p.fault.substr(0, p.fault.find('\n'));
    } else if (!p.top.empty()) {
      answer[0] = p.top[0].name;
      if (!std::isnan(p.top[0].probability)) answer[1] = cell_of(number_text(p.top[0].probability, 6));
      for (size_t c = 0; c < p.probabilities.size(); ++c) answer[2 + c] = cell_of(number_text(p.probabilities[c], 6));
    } else if (!p.numbers.empty()) {
      for (size_t i = 0; i < p.numbers.size() && i + 1 < answer.size(); ++i)
        answer[i] = cell_of(answer_text(form_, i, p.numbers[i], 9));
    } else {
      answer[0] = joined_labels(p, form_);
    }
    cells.insert(cells.end(), answer.begin(), answer.end());
    write_csv_line(cells);
  }

  void write_csv_line(const std::vector<std::string>& cells) {
    out_ << csv_line(cells, delimiter_) << '\n';
  }

  void write_json(const Prediction& p) {
    Json json = {{"input", name_in_utf8(p.input)}};
    const auto number = [](double v) { return std::isfinite(v) ? Json(v) : Json(); };
    if (!p.fault.empty()) {
      json["error"] = p.fault;
    } else if (!p.top.empty()) {
      json["class"] = p.top[0].name;
      json["probability"] = number(p.top[0].probability);
      json["top"] = Json::array();
      for (const ClassShare& s : p.top)
        json["top"].push_back({{"class", s.name}, {"number", s.number}, {"probability", number(s.probability)}});
      for (size_t c = 0; c < p.probabilities.size(); ++c) json["probabilities"][form_.class_name(int64_t(c))] = p.probabilities[c];
    } else if (!p.labels.empty() || form_.classes > 0) {
      json["labels"] = p.labels;
    } else {
      json["values"] = Json::array();
      for (const double v : p.numbers) json["values"].push_back(number(v));
      const size_t k = has_columns() ? form_.names.size() : 0;
      for (size_t i = 0; i < p.numbers.size() && k > 0; ++i) json["columns"][form_.names[i % k]].push_back(number(p.numbers[i]));
    }
    if (p.truth_name)
      json["truth"] = *p.truth_name;
    else if (p.truth)
      json["truth"] = *p.truth;
    out_ << json.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  }

  const PredictArguments& arguments_;
  const DataForm& form_;
  std::ostream& out_;
  std::vector<std::string> header_;
  char delimiter_ = ',', decimal_ = '.';
  bool has_header_ = false;  // the output
};

// Prints metrics over the answers with known truth to stderr; stdout has only answers.
void print_metrics(const Predictor& model) {
  if (model.known_count() == 0) return;
  std::cerr << model.known_count() << " with a known answer:";
  const char* separator = " ";
  for (const MetricValue& m : model.metrics()) {
    if (!m.in_lines()) continue;
    std::cerr << separator << m.name << ' ' << (m.is_share ? percent(m.value) : number_text(m.value, 6));
    separator = ", ";
  }
  std::cerr << '\n';
}

// Counts what the tables contain that the training data does not, and prints it to stderr, with how they were read.
class UnknownValues {
 public:
  void add(const CsvRows& rows) {
    for (const std::string& w : rows.notes.warnings) logging::warn(w);
    if (!rows.notes.summary.empty()) std::cerr << rows.notes.summary << '\n';
    count(values_, value_, rows.unknown_values, rows.unknown_value);
    count(answers_, answer_, rows.unknown_answers, rows.unknown_answer);
    if (rows.far_values > 0)
      logging::warn(joined(rows.far_values, rows.far_values == 1 ? " value is" : " values are",
                           " far outside of the training data's, such as ", rows.far_value,
                           ": predictions there may mean nothing"));
  }
  void print(const DataForm& form) const {
    if (values_ > 0) {
      const auto* const table = std::get_if<TableForm>(&form.source);
      std::cerr << values_ << (values_ == 1 ? " value" : " values") << " that the training data does not have, such as " << value_
                << ", read as " << (table ? table->options.unknown : "") << '\n';
    }
    if (answers_ == 0) return;
    std::cerr << answers_ << (answers_ == 1 ? " answer is" : " answers are") << " unknown and left out of the metrics, such as "
              << answer_ << (form.classes > 0 ? "; the classes are " + some_labels(form.names) : ", which is no number") << '\n';
  }

 private:
  static void count(int64_t& sum, std::string& example, int64_t more, const std::string& its_example) {
    if (sum == 0) example = its_example;
    sum += more;
  }
  int64_t values_ = 0, answers_ = 0;
  std::string value_, answer_;  // an example of each
};

// Throws ConfigError if the output would overwrite an input.
void check_output(const PredictArguments& arguments) {
  if (!arguments.out) return;
  std::error_code ignored;
  for (const std::string& input : arguments.inputs)
    check<ConfigError>(!std::filesystem::equivalent(input, *arguments.out, ignored), "predict",
                       "--out must be another file than the inputs, got ", *arguments.out,
                       Help{"predictions are made from it, and would take its place"});
}

// Compares the golden samples of an exported model. Throws ConfigError if it has none.
void check_golden_samples(Predictor& model, const PredictArguments& arguments) {
  check<ConfigError>(!arguments.model.no_amp, "predict", "--check compares in the precision of the run",
                     Help{"leave --no-amp out"});
  check<ConfigError>(model.proof().has_value(), "predict", model.checkpoint().string(), " has no golden samples",
                     Help{"--check is for what halfstep export wrote"});
  std::cerr << check_proof(model, *model.proof()) << '\n';
}

// Throws ConfigError for --probabilities of a model that has none.
void check_probabilities(const Predictor& model) {
  const DataForm& form = model.form();
  check<ConfigError>(form.classes > 0, "predict", "--probabilities is for classes, and the model predicts numbers",
                     Help{"leave it out"});
  check<ConfigError>(!form.label_sequences && form.target.empty(), "predict",
                     "--probabilities is for one class for each input, and the model predicts ",
                     form.label_sequences ? "rows of labels" : "one for each position", Help{"leave it out"});
  check<ConfigError>(gives_probabilities(model.config().loss), "predict", "the loss ",
                     model.config().loss["type"].get<std::string>(), " gives the classes no probabilities",
                     Help{"leave --probabilities out; CrossEntropyLoss gives them"});
}

// Returns the arrays for an --out that names a file of NumPy. Throws ConfigError for options that only a text has.
std::optional<AnswerArrays> arrays_for(const PredictArguments& arguments, const DataForm& form) {
  if (!arguments.out || !is_array_file(*arguments.out)) return {};
  for (const auto& [is_given, option] : {std::pair{arguments.csv, "--csv"},
                                         {arguments.json, "--json"},
                                         {arguments.wrong, "--wrong"},
                                         {arguments.files.top > 1, "--top"}})
    check<ConfigError>(!is_given, "predict", option, " is for text, and ", *arguments.out, " is an array with a row for each input",
                       Help{"leave it out, or give --out a name with another ending"});
  return std::optional<AnswerArrays>(std::in_place, *arguments.out, form, arguments.files.probabilities);
}

int predict(const PredictArguments& given) {
  PredictArguments arguments = given;
  if (arguments.out && std::filesystem::path(*arguments.out).extension() == ".csv" && !arguments.json) arguments.csv = true;
  apply_threads(arguments.model.threads);
  check_output(arguments);
  check<ConfigError>(!arguments.inputs.empty() || !arguments.texts.empty() || arguments.check, "predict", "needs inputs",
                     Help{"halfstep predict --help"});
  Predictor model(arguments.model.path, arguments.model.predictor());
  if (arguments.files.probabilities) check_probabilities(model);
  print_model(model);
  if (arguments.check) check_golden_samples(model, arguments);
  if (arguments.check && arguments.inputs.empty() && arguments.texts.empty()) return kDone;
  std::optional<AnswerArrays> arrays = arrays_for(arguments, model.form());
  std::ofstream file;
  if (arguments.out && !arrays) {
    file.imbue(std::locale::classic());
    file.open(*arguments.out, std::ios::binary | std::ios::trunc);
    check<IoError>(bool(file), "predict", *arguments.out, " cannot be written");
  }
  std::ostream& out = file.is_open() ? static_cast<std::ostream&>(file) : std::cout;
  AnswerWriter writer(arguments, model.form(), out);
  std::vector<Prediction> wrong;
  int64_t answered = 0, faults = 0;
  auto last_progress = std::chrono::steady_clock::now();
  const auto receive = [&](const Prediction& p) {
    if (!p.fault.empty()) std::cerr << "error: " << p.input << ": " << p.fault << '\n';
    ++(p.fault.empty() ? answered : faults);
    if (arrays)
      arrays->add(p);
    else if (!arguments.wrong)
      writer.write(p);
    else if (p.fault.empty() && p.is_wrong())
      wrong.push_back(p);
    if (const auto now = std::chrono::steady_clock::now(); now - last_progress > std::chrono::duration<double>(kProgressSeconds)) {
      std::cerr << answered << " answered\n";
      last_progress = now;
    }
  };
  std::vector<std::string> inputs = arguments.inputs;
  std::replace(inputs.begin(), inputs.end(), std::string("-"), std::string("/dev/stdin"));
  UnknownValues unknowns;
  const auto on_table = [&](const CsvRows& rows) {
    unknowns.add(rows);
    writer.begin_table(rows);
  };
  if (!arguments.texts.empty()) model.texts(arguments.texts, arguments.files, receive, on_table);
  model.files(inputs, arguments.files, receive, on_table);
  if (arguments.wrong) {
    check<DataError>(model.known_count() > 0, "predict",
                     "--wrong needs inputs whose answers are known: a target's column, or pictures in a folder ",
                     "named like their class");
    std::stable_sort(wrong.begin(), wrong.end(),
                     [](const Prediction& a, const Prediction& b) { return a.top[0].probability > b.top[0].probability; });
    for (const Prediction& p : wrong) writer.write(p);
  }
  if (arrays) arrays->write(std::cerr);
  out.flush();
  check<IoError>(bool(out), "predict", arguments.out.value_or("stdout"), ": writing failed");
  print_metrics(model);
  unknowns.print(model.form());
  if (faults > 0) std::cerr << faults << " of " << answered + faults << " inputs could not be read\n";
  return faults > 0 ? kData : kDone;
}

}  // namespace

void add_predict(CLI::App& program, Action& chosen) {
  auto arguments = std::make_shared<PredictArguments>();
  CLI::App* command = program.add_subcommand("predict", "Predict new files with a trained model");
  add_model(*command, arguments->model);
  command->add_option("inputs", arguments->inputs,
                      "pictures, folders of pictures, tables (- is stdin), series, or .npy, .npz, .safetensors");
  command->add_option("--text", arguments->texts, "a text, for a model of a table's column of texts; may be given several times")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--top", arguments->files.top, "number of classes to print")->check(CLI::PositiveNumber);
  command->add_flag("--probabilities", arguments->files.probabilities, "probabilities of all classes");
  auto* const csv =
      command->add_flag("--csv", arguments->csv, "as CSV: the rows of a table, with the predictions in additional columns");
  command->add_flag("--json", arguments->json, "one JSON object for each line")->excludes(csv);
  command
      ->add_option("--out", arguments->out,
                   "write the predictions to this file; .npy and .npz: as arrays for NumPy, .csv: as --csv")
      ->type_name("FILE");
  command->add_flag("--invert", arguments->files.invert,
                    "pictures: dark ink on light paper, where the training data had light ink");
  command->add_flag("--wrong", arguments->wrong, "only predictions that are known to be wrong, the most confident first");
  command->add_option("--batch", arguments->files.batch, "how many inputs to compute together")->check(CLI::PositiveNumber);
  command->add_flag("--check", arguments->check,
                    "of an exported model: first compare its golden samples; without inputs do only this");
  command->callback([arguments, &chosen] { chosen = [arguments] { return predict(*arguments); }; });
}

}  // namespace halfstep::app
