// SPDX-License-Identifier: Apache-2.0
#include "apps/start/init_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "apps/catalog/pictures.h"
#include "apps/config/config.h"
#include "apps/schema/json.h"
#include "apps/start/init_reading.h"
#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/sets/text.h"
#include "framework/io/files/json.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

// Makes the name of a run and its folder from a file's: letters, digits, - and _.
std::string run_name(const fs::path& path) {
  std::string out;
  for (const char c : (path.filename().empty() ? path.parent_path().filename() : path.stem()).string())
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '_';
  return out.empty() || out == "_" ? "run" : out;
}

bool exists_any(const fs::path& folder, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return fs::exists(folder / name); });
}

// ---- published data sets

// Makes the config of MNIST or CIFAR-10.
InitParts init_published(const fs::path& root, const char* type, int64_t samples, int64_t side) {
  InitParts out;
  out.what = joined(type, "'s files");
  out.data = {
      {"\"root\": " + in_quotes(root.string()), ""},
      {joined(R"("train": {"type": ")", type, R"(", "transforms": [{"type": "Normalize", "from": "data"}]})"), ""},
      {joined(R"("val": {"type": ")", type, R"(", "split": "test", "transforms": [{"type": "Normalize", "from": "data"}]})"),
       "the publisher's test images"}};
  out.layers = init_convolutions(side, false);
  out.loss = R"("CrossEntropyLoss")";
  out.batch_size = 128, out.samples = samples, out.steps = 2500;
  return out;
}

// ---- text

// Makes the config of a text: an LSTM over characters, larger for longer texts.
InitParts init_texts(const fs::path& file, const InitWishes& wishes) {
  const InitReading reading = reading_of(wishes, "a text", {"encoding"});
  const TextDataset characters(file, {.seq_len = 64, .encoding = reading.format.encoding});
  InitParts out;
  const int64_t tokens = characters.size() * 64;
  out.what = joined("a text of about ", tokens, " characters, ", characters.vocabulary(), " different ones");
  const int64_t seq_len = tokens > 200000 ? 128 : 64;
  const bool is_large = tokens > 500000;
  out.data = {{"\"root\": " + in_quotes(folder_of_file(file)), ""},
              {R"("tokenizer": "char")", "or byte, word, or bpe with a tokenizer_file"},
              {joined(R"("seq_len": )", seq_len), "characters that are read together"}};
  out.data.insert(out.data.end(), reading.lines.begin(), reading.lines.end());
  for (const auto& [split, range] : {std::pair("train", "[0, 0.9]"), std::pair("val", "[0.9, 1]")})
    out.data.push_back(
        {joined('"', split, R"(": {"type": "Text", "path": )", in_quotes(file.filename().string()), ", \"range\": ", range, "}"),
         ""});
  out.layers = {
      {joined(R"({"type": "Embedding", "num_embeddings": "auto", "embedding_dim": )", is_large ? 128 : 64, "}"),
       "\"auto\": the tokens of the text"},
      {joined(R"({"type": "LSTM", "hidden_size": )", is_large ? 256 : 128, R"(, "num_layers": )", is_large ? 2 : 1, "}"), ""},
      {R"({"type": "Linear", "out_features": "auto"})", "a score for each token that may come next"}};
  out.loss = R"("CrossEntropyLoss")";
  out.lr = 0.002, out.samples = tokens * 9 / 10 / seq_len, out.steps = 2000;
  return out;
}

// Returns "3 tabs", the delimiters of each line, if the lines are rows of a table; else "".
std::string delimiters_of_lines(const fs::path& file, const InitWishes& wishes) {
  constexpr size_t kLeastLines = 10, kHeadBytes = 1 << 16, kMostLineBytes = 1000;
  DataNotes notes;
  const FileText read = open_text_file(file, reading_of(wishes, "a text", {"encoding"}).format.encoding, "Text", false, notes);
  const std::string_view head = read.text.substr(0, kHeadBytes);
  for (const auto& [delimiter, name] : {std::pair('\t', "tab"), {',', "comma"}, {';', "semicolon"}, {'|', "bar"}}) {
    std::optional<std::ptrdiff_t> wanted;
    size_t lines = 0;
    bool has_numbers = delimiter == '\t', is_same = true;
    for (size_t at = 0; at < head.size() && is_same; ++lines) {
      const size_t end = head.find('\n', at);
      if (end == head.npos && head.size() < read.text.size()) break;  // a part of a line
      const std::string_view line = head.substr(at, std::min(end, head.size()) - at);
      at = std::min(end, head.size() - 1) + 1;
      const auto count = std::count(line.begin(), line.end(), delimiter);
      is_same = wanted.value_or(count) == count && line.size() < kMostLineBytes;
      wanted = count;
      const std::string_view last = line.substr(line.rfind(delimiter) + 1);
      has_numbers = has_numbers || (lines > 0 && !last.empty() && last.find_first_not_of("0123456789.-+eE\r") == last.npos);
    }
    const std::ptrdiff_t least = delimiter == '\t' ? 1 : 2;
    if (!is_same || !has_numbers || lines < kLeastLines || wanted.value_or(0) < least) continue;
    return joined(*wanted, ' ', name, *wanted == 1 ? "" : "s");
  }
  return "";
}

// ---- the whole config

// Refuses files that are not data, or not enough of it.
void refuse_other_files(const fs::path& data, const std::string& end) {
  const auto refuse = [&](const char* what, const std::string& help) { fail<DataError>("init", data.string(), what, Help{help}); };
  if (end == ".npy")
    refuse(" is one array, where inputs and targets are two",
           joined("in Python: import numpy as np; np.savez(\"data.npz\", x=np.load(", in_quotes(data.string()), "), y=...)"));
  if (end == ".json")
    refuse(" is a config or another JSON file, which is no data", "docs/your_data.md has a config for each kind of data");
  if (is_picture_name(data) || is_other_picture_name(data))
    refuse(" is one picture", "give the folder, which has a folder for each class");
}

// Recognises the kind of data by names of files, and makes the parts of its config.
InitParts parts_of(const fs::path& data, const InitWishes& wishes) {
  std::error_code ignored;
  check<DataError>(fs::exists(data, ignored), "init", data.string(), " does not exist");
  if (fs::is_directory(data, ignored)) {
    check<ConfigError>(wishes.target.empty() && wishes.task.empty(), "init", data.string(),
                       " is a folder, whose folders are the classes: --target and --task are for tables and arrays");
    reading_of(wishes, "a folder", {"on_error"});
    for (const fs::path& at : {data, data / "mnist", data / "MNIST" / "raw"})
      if (exists_any(at, {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"}))
        return init_published(data, "MNIST", 60000, 28);
    for (const fs::path& at : {data, data / "cifar10", data / "cifar-10-batches-bin"})
      if (exists_any(at, {"data_batch_1.bin"})) return init_published(data, "CIFAR10", 50000, 32);
    if (!visible_folders(data).empty()) return init_pictures(data);
    fail<DataError>(
        "init", data.string(), " has no folders of pictures, and no files of MNIST or CIFAR-10",
        Help{"pictures lie in a folder for each class: pets/cat/1.jpg, pets/dog/2.png; of tables, texts and arrays give the file"});
  }
  const std::string end = lower_case(data.extension().string());
  if (end == ".npz" || end == ".safetensors") {
    reading_of(wishes, "arrays", {});
    return init_arrays(data, wishes);
  }
  const bool is_text = end == ".txt" || end == ".md" || end == ".text";
  if (const std::string delimiters = end == ".txt" ? delimiters_of_lines(data, wishes) : ""; !delimiters.empty()) {
    InitParts table = init_table(data, wishes);
    table.notes.insert(table.notes.begin(),
                       joined("each line has ", delimiters, ", so the file is read as a table; named .md it would be a text"));
    return table;
  }
  check<ConfigError>(!is_text || (wishes.target.empty() && wishes.task.empty()), "init", data.string(),
                     " is a text, whose next tokens are predicted: --target and --task are for tables and arrays");
  if (is_text) return init_texts(data, wishes);
  refuse_other_files(data, end);
  return init_table(data, wishes);  // whatever its name: its first lines decide
}

// Replaces line breaks, which names of columns may contain, since they would end a comment.
std::string in_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return text;
}

// Appends a line, with its comment behind it or, if it is long, above it.
void append_line(std::string& out, const std::string& indent, const InitLine& line, bool has_comma) {
  constexpr size_t kColumn = 60;  // of comments
  std::string text = indent + line.code + (has_comma ? "," : "");
  if (!line.comment.empty() && text.size() + 2 > kColumn) {  // puts it above the line
    out += indent + "// " + in_one_line(line.comment) + '\n';
  } else if (!line.comment.empty()) {
    text.resize(kColumn, ' ');
    text += "// " + in_one_line(line.comment);
  }
  out += text + '\n';
}

// Opens the pictures. If a few cannot be read, changes the config so that it leaves them out, and returns false. Throws DataError
// for more.
bool check_init_pictures(const fs::path& data, InitConfig& made, const Json& config, bool skips) {
  constexpr int64_t kPicturesPerFault = 20;  // one of these may be unreadable by accident
  const PictureReport pictures = examine_pictures(config, {.seconds = kPictureSeconds});
  if (pictures.pictures == 0) return true;
  if (pictures.bad == 0) {
    made.notes.push_back(pictures.opened(kPictureSeconds) + ", and can be read");
    for (const std::string& warning : pictures.warnings()) made.notes.push_back(warning);
    return true;
  }
  check<DataError>(skips || kPicturesPerFault * pictures.bad <= pictures.checked, "init", data.string(),
                   ": no config is written:\n", pictures.error());
  std::string line;
  append_line(line, "    ", {R"("on_error": "skip")", "some pictures cannot be read; \"fail\" ends a run that meets one"}, true);
  made.text.insert(made.text.find("    \"loader\": "), line);
  return false;
}

// Throws DataError unless `halfstep validate` accepts the config. Otherwise notes its warnings, and what it has measured. Returns
// the number of classes of a sample; 0: it has none.
int64_t check_init(const fs::path& data, InitConfig& made, const InitParts& parts, bool skips) {
  std::string wrong;
  const std::vector<std::string> before = made.notes;
  try {
    const Config config = resolve_config(read_json<Json>(made.text, /*comments=*/true), "the config");
    wrong = config.data_fault;
    made.notes.insert(made.notes.end(), config.warnings.begin(), config.warnings.end());
    if (config.facts) {
      int64_t parameters = 0;
      for (const LayerRow& row : config.layers) parameters += row.parameters;
      const DataFacts& f = *config.facts;
      made.notes.push_back(joined("valid: ", f.size.value_or(0), " samples to train with, input ", f.input,
                                     f.classes > 0 ? joined(", ", f.classes, " classes") : joined(", target ", f.target), ", ",
                                     parameters, " parameters"));
      if (wrong.empty() && !check_init_pictures(data, made, config.json, skips)) {
        made.notes = before;
        return check_init(data, made, parts, skips);
      }
      if (wrong.empty()) return f.target.empty() ? f.classes : 0;
    }
  } catch (const ConfigError& e) { wrong = e.what(); } catch (const JsonError& e) {  // a name with NUL
    fail<DataError>("init", data.string(), ": names cannot be written into a config: ", e.what(), Help{"rename the columns"});
  }
  if (wrong.empty()) return 0;
  check<DataError>(parts.problem.empty(), "init", data.string(), ": ", parts.problem, Help{parts.remedy});
  const bool has_help = wrong.find("\nhelp: ") != std::string::npos;
  fail<DataError>("init", data.string(), ": no config is written, since what init would write does not pass halfstep validate:\n",
                  wrong, has_help || parts.remedy.empty() ? "" : joined(Help{parts.remedy}));
}

}  // namespace

std::string in_quotes(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) { fail<DataError>("init", "names must be UTF-8, got ", line_of(Json(text))); }
}

std::string folder_of_file(const fs::path& file) { return file.has_parent_path() ? file.parent_path().string() : "."; }

std::vector<InitLine> init_convolutions(int64_t side, bool normalizes_batches) {
  std::vector<InitLine> out;
  int64_t channels = 16;
  const std::string norm = normalizes_batches ? R"( "BatchNorm2d",)" : "";
  const auto add_block = [&](int64_t out_channels, bool pools) {
    out.push_back({joined(R"({"type": "Conv2d", "out_channels": )", out_channels, R"(, "kernel_size": 3, "padding": 1},)", norm,
                          R"( "ReLU")", pools ? R"(, {"type": "MaxPool2d", "kernel_size": 2})" : ""),
                   ""});
  };
  const bool is_small = side < 16;  // there is room for only one pooling, and one convolution would be too few
  if (is_small) add_block(channels, false), channels *= 2;
  for (int64_t size = side, first = 1; first || (size >= 8 && channels <= 128); size /= 2, channels *= 2, first = 0)
    add_block(channels, size >= 8);
  if (side >= 8) out.front().comment = is_small ? "the second halves the sides" : "each block halves the sides";
  out.push_back({R"("Flatten", {"type": "Linear", "out_features": "auto"})", "\"auto\": one for each class"});
  return out;
}

namespace {

// Writes the config's text, and checks it as `halfstep validate` does.
InitConfig config_of(const fs::path& data, const InitWishes& wishes) {
  std::error_code ignored;
  const bool skips = fs::is_directory(data, ignored) && reading_of(wishes, "a folder", {"on_error"}).skips_pictures;
  const InitParts parts = parts_of(data, wishes);
  InitConfig out{run_name(data), in_one_line(parts.what), "", parts.notes};
  const int64_t per_epoch = std::max<int64_t>(1, (parts.samples + parts.batch_size - 1) / parts.batch_size);
  constexpr int64_t kLeastEpochs = 2, kMostEpochs = 200;
  const int64_t epochs = std::clamp<int64_t>((parts.steps + per_epoch / 2) / per_epoch, kLeastEpochs, kMostEpochs);
  std::string& text = out.text;
  text = "// " + in_one_line(data.string() + ": " + parts.what) + ".\n{\n  \"version\": 1, \"name\": " + in_quotes(out.name) +
         ",\n  \"data\": {\n";
  for (const InitLine& line : parts.data) append_line(text, "    ", line, true);
  append_line(text, "    ", {joined(R"("loader": {"batch_size": )", parts.batch_size, "}"), ""}, false);
  text += "  },\n  \"model\": {\"type\": \"Sequential\", \"layers\": [\n";
  for (const InitLine& line : parts.layers) append_line(text, "    ", line, &line != &parts.layers.back());
  text += "  ]},\n";
  append_line(text, "  ", {"\"loss\": " + parts.loss, parts.loss_comment}, true);
  if (!parts.metrics.empty()) append_line(text, "  ", {"\"metrics\": " + parts.metrics, "in the units of the file"}, true);
  append_line(text, "  ",
              {joined(R"("optimizer": {"type": "AdamW", "lr": )", parts.lr, "}"), "halfstep lr-find measures a good rate"}, true);
  append_line(text, "  ", {R"("scheduler": "CosineAnnealingLR")", "falls to 0 over the whole training"}, true);
  append_line(text, "  ", {R"("amp": {"enabled": true, "dtype": "auto"})", "mixed precision; halfstep parity measures its effect"},
              true);
  append_line(text, "  ", {joined(R"("train": {"epochs": )", epochs, "}"), joined("about ", epochs * per_epoch, " steps")}, false);
  text += "}\n";
  constexpr int64_t kMatrixClasses = 20;  // more are hard to read
  if (const int64_t classes = check_init(data, out, parts, skips);
      classes > 1 && classes <= kMatrixClasses && parts.metrics.empty()) {
    std::string line;
    append_line(line, "  ", {R"("metrics": ["confusion_matrix"])", "which class is taken for which; accuracy is measured anyway"},
                true);
    text.insert(text.find("  \"optimizer\": "), line);
  }
  for (std::string& note : out.notes) note = in_one_line(note);
  return out;
}

}  // namespace

InitConfig init_config(const fs::path& data, const InitWishes& wishes) {
  try {
    return config_of(data, wishes);
  } catch (const DataError& e) { throw DataError(with_option(e.what())); }
}

}  // namespace halfstep::app
