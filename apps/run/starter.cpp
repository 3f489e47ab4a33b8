// SPDX-License-Identifier: Apache-2.0
#include "apps/run/starter.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "apps/schema/json.h"
#include "framework/base/check.h"
#include "framework/data/found_pictures.h"
#include "framework/data/image_folder.h"
#include "framework/data/npy.h"
#include "framework/data/text.h"
#include "framework/data/unicode.h"
#include "framework/io/safetensors.h"
#include "framework/io/zip.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

// Letters, digits, - and _ of a file's name, for a run and its folder.
std::string run_name(const fs::path& path) {
  std::string out;
  for (const char c : (path.filename().empty() ? path.parent_path().filename() : path.stem()).string())
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '_';
  return out.empty() || out == "_" ? "run" : out;
}

std::string in_small_letters(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return text;
}

fs::path parent_folder(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

bool exists_any(const fs::path& folder, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return fs::exists(folder / name); });
}

// --- pictures ---

std::vector<StarterLine> convolutions(int64_t side, bool normalizes_batches) {
  std::vector<StarterLine> out;
  int64_t channels = 16;
  for (int64_t size = side; size >= 8 && channels <= 128; size /= 2, channels *= 2) {
    const std::string norm = normalizes_batches ? R"( "BatchNorm2d",)" : "";
    out.push_back({R"({"type": "Conv2d", "out_channels": )" + std::to_string(channels) + R"(, "kernel_size": 3, "padding": 1},)" +
                       norm + R"( "ReLU", {"type": "MaxPool2d", "kernel_size": 2})",
                   ""});
  }
  out.front().comment = "each block halves the sides";
  out.push_back({R"("Flatten", {"type": "Linear", "out_features": "auto"})", "\"auto\": one for each class"});
  return out;
}

// The folders in a folder that may be classes or parts of the data.
std::vector<std::string> visible_folders(const fs::path& root) {
  PassedOver hidden;
  return folders_in(root, hidden);
}

// The first of these folders, in small letters or others; "" if none is there.
std::string folder_called(const fs::path& root, std::initializer_list<const char*> names) {
  const std::vector<std::string> there = visible_folders(root);
  for (const char* name : names)
    for (const std::string& folder : there)
      if (in_small_letters(folder) == name) return folder;
  return "";
}

// Where pictures lie: the parts of the data are folders with a folder for each class.
struct PictureFolders {
  fs::path root;                 // of the parts, or of the classes
  std::string train, val, test;  // empty: there is no such part
  std::string remark;
};

PictureFolders picture_folders(const fs::path& given) {
  PictureFolders out{given, {}, {}, {}, {}};
  for (;;) {  // to the first folder that does not just hold another
    out.train = folder_called(out.root, {"train", "training"});
    out.val = folder_called(out.root, {"val", "valid", "validation"});
    out.test = folder_called(out.root, {"test", "testing"});
    for (std::string* part : {&out.train, &out.val, &out.test}) {
      if (part->empty() || !visible_folders(out.root / *part).empty()) continue;
      if (part != &out.train && !out.train.empty()) out.remark += "; " + *part + " has no folders of classes: left out";
      part->clear();
    }
    if (!out.train.empty()) break;
    out.remark.clear();
    PassedOver passed;
    PassedOver::Paths pictures;
    const std::vector<std::string> folders = folders_in(out.root, passed, &pictures);
    if (folders.size() != 1 || !pictures.empty() || visible_folders(out.root / folders[0]).empty()) break;
    out.root /= folders[0];
  }
  if (out.train.empty()) out.val.clear(), out.test.clear();
  if (out.val.empty()) std::swap(out.val, out.test);
  if (out.root != given) out.remark += joined("; they lie in ", out.root.string());
  return out;
}

StarterParts picture_starter(const fs::path& given) {
  const auto [root, train, val, test, remark] = picture_folders(given);
  const bool parts = !val.empty();
  const ImageFolderDataset data(root / train, {.size = 32});
  const auto classes = int64_t(data.class_names().size());

  // The sides of some hundred pictures, spread over all.
  constexpr int64_t kLook = 300;
  std::vector<int64_t> sides;
  std::set<std::pair<int64_t, int64_t>> sizes;
  std::string fault;
  for (int64_t i = 0; i < std::min(kLook, data.size()); ++i) {
    try {
      const PictureSize s = picture_size(data.file(i * data.size() / std::min(kLook, data.size())));
      sides.push_back(std::min(s.width, s.height));
      sizes.insert({s.width, s.height});
    } catch (const DataError& e) { fault = e.what(); }  // halfstep validate lists all of them
  }
  check<DataError>(!sides.empty(), "init", "none of the pictures that were looked at can be read: ", fault);
  std::nth_element(sides.begin(), sides.begin() + sides.size() / 2, sides.end());
  const int64_t middle = sides[sides.size() / 2];
  int64_t size = 32;
  while (size < 128 && size * 3 / 2 < middle) size *= 2;

  StarterParts out;
  out.what = joined(data.size(), parts ? " training" : "", " pictures in ", classes, classes == 1 ? " class" : " classes", remark);
  if (classes == 1) out.what += "; with one class every model is right, and accuracy is always 100 %";
  if (const std::string left_out = data.notes().made; !left_out.empty()) out.what += "; " + left_out;
  for (const std::string& w : data.notes().warnings) out.what += "; " + w;
  out.what = replace_not_utf8(std::move(out.what));  // it becomes a comment of one line
  std::replace(out.what.begin(), out.what.end(), '\n', ' ');
  out.data.push_back({"\"root\": " + in_quotes(root.string()), ""});
  out.data.push_back({joined("\"size\": ", size),
                      sizes.size() == 1
                          ? joined("pictures have ", sizes.begin()->first, " x ", sizes.begin()->second, " pixels")
                          : joined("pictures have different sizes; half of those looked at have a shorter side up to ", middle)});
  const std::string flips = R"({"type": "RandomHorizontalFlip"}, )", normal = R"({"type": "Normalize", "from": "data"})";
  const auto split = [&](const char* name, const std::string& path, const std::string& range, bool augments) {
    out.data.push_back({joined('"', name, R"(": {"type": "ImageFolder", "path": )", in_quotes(path), range, R"(, "transforms": [)",
                               augments ? flips : "", normal, "]}"),
                        augments ? "no flips for text or digits" : ""});
  };
  const std::string whole = train.empty() ? "." : train;
  split("train", whole, parts ? "" : R"(, "range": [0, 0.8], "stratified": true)", true);
  split("val", parts ? val : whole, parts ? "" : R"(, "range": [0.8, 1], "stratified": true)", false);
  if (!test.empty()) split("test", test, "", false);
  out.layers = convolutions(size, true);
  out.loss = R"("CrossEntropyLoss")";
  out.samples = parts ? data.size() : data.size() * 4 / 5;
  const std::vector<int64_t> labels = data.labels();
  std::vector<int64_t> counts(size_t(classes), 0);
  for (const int64_t c : labels) ++counts[size_t(c)];
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  if (*most > 3 * *least) {
    out.loss = R"({"type": "CrossEntropyLoss", "weight": "balanced"})";
    out.loss_comment = joined("classes have ", *least, " to ", *most, " pictures");
  }
  return out;
}

// --- data sets in their publishers' files ---

StarterParts published_starter(const fs::path& root, const char* type, int64_t samples, int64_t side) {
  StarterParts out;
  out.what = joined(type, "'s files");
  out.data = {
      {"\"root\": " + in_quotes(root.string()), ""},
      {joined(R"("train": {"type": ")", type, R"(", "transforms": [{"type": "Normalize", "from": "data"}]})"), ""},
      {joined(R"("val": {"type": ")", type, R"(", "split": "test", "transforms": [{"type": "Normalize", "from": "data"}]})"),
       "the publisher's test images"}};
  out.layers = convolutions(side, false);
  out.loss = R"("CrossEntropyLoss")";
  out.batch_size = 128, out.samples = samples, out.steps = 2500;
  return out;
}

// --- text ---

StarterParts text_starter(const fs::path& file) {
  const TextDataset characters(file, {.seq_len = 64});
  StarterParts out;
  const int64_t tokens = characters.size() * 64;
  out.what = joined("a text of about ", tokens, " characters, ", characters.vocabulary(), " different ones");
  const int64_t seq_len = tokens > 200000 ? 128 : 64;
  const bool large = tokens > 500000;
  out.data = {{"\"root\": " + in_quotes(parent_folder(file).string()), ""},
              {R"("tokenizer": "char")", "or byte, word, or bpe with a tokenizer_file"},
              {joined(R"("seq_len": )", seq_len), "characters that are read together"}};
  for (const auto& [split, range] : {std::pair("train", "[0, 0.9]"), std::pair("val", "[0.9, 1]")})
    out.data.push_back(
        {joined('"', split, R"(": {"type": "Text", "path": )", in_quotes(file.filename().string()), ", \"range\": ", range, "}"),
         ""});
  out.layers = {{joined(R"({"type": "Embedding", "num_embeddings": "auto", "embedding_dim": )", large ? 128 : 64, "}"),
                 "\"auto\": the tokens of the text"},
                {joined(R"({"type": "LSTM", "hidden_size": )", large ? 256 : 128, R"(, "num_layers": )", large ? 2 : 1, "}"), ""},
                {R"({"type": "Linear", "out_features": "auto"})", "a score for each token that may come next"}};
  out.loss = R"("CrossEntropyLoss")";
  out.lr = 0.002, out.samples = tokens * 9 / 10 / seq_len, out.steps = 2000;
  return out;
}

// --- arrays ---

StarterParts array_starter(const fs::path& file) {
  const bool npz = file.extension() == ".npz";
  std::vector<std::string> names;
  if (npz) {
    const ZipFile archive(file);
    for (const std::string& name : archive.names()) names.push_back(fs::path(name).stem().string());
  } else {
    for (const TensorEntry& e : read_safetensors_header(file).entries) names.push_back(e.name);
  }
  // By the names that people use, else the only two.
  const auto find = [&](std::initializer_list<const char*> wanted) {
    for (const char* w : wanted)
      if (std::find(names.begin(), names.end(), w) != names.end()) return std::string(w);
    return std::string();
  };
  std::string x = find({"x", "X", "input", "inputs", "data", "x_train", "images", "features"});
  std::string y = find({"y", "Y", "target", "targets", "label", "labels", "y_train"});
  if (names.size() == 2 && x.empty() != y.empty()) {
    const std::string& known = x.empty() ? y : x;
    (x.empty() ? x : y) = names[0] == known ? names[1] : names[0];
  }
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
  check<DataError>(!x.empty() && !y.empty(), "init", file.string(), " has no arrays that are named as inputs and targets: ", all,
                   Help{"name them x and y, or write the config by hand: docs/your_data.md, \"Arrays\""});
  const Tensor inputs = npz ? read_npz(file, x) : load_safetensors(file).tensors.at(x);
  const Tensor targets = npz ? read_npz(file, y) : load_safetensors(file).tensors.at(y);
  const bool classes = !is_floating(targets.dtype()) && targets.dim() == 1;

  StarterParts out;
  out.what = joined("arrays: ", x, ' ', inputs.shape(), ", ", y, ' ', targets.shape());
  out.data = {{"\"root\": " + in_quotes(parent_folder(file).string()), ""}};
  for (const auto& [split, range] : {std::pair("train", "[0, 0.8]"), std::pair("val", "[0.8, 1]")})
    out.data.push_back(
        {joined('"', split, R"(": {"type": ")", npz ? "NPZ" : "Safetensors", R"(", "path": )", in_quotes(file.filename().string()),
                R"(, "input": )", in_quotes(x), R"(, "target": )", in_quotes(y), ", \"range\": ", range, "}"),
         ""});
  const int64_t side = inputs.dim() == 4 ? std::min(inputs.size(2), inputs.size(3)) : 0;
  if (side >= 8)
    out.layers = convolutions(side, true);
  else
    out.layers = {{R"("Flatten", {"type": "Linear", "out_features": 128}, "ReLU")", ""},
                  {R"({"type": "Linear", "out_features": "auto"})",
                   classes ? "\"auto\": one for each class" : "\"auto\": the target's width"}};
  out.loss = classes ? R"("CrossEntropyLoss")" : R"("MSELoss")";
  out.loss_comment = classes ? "targets are whole numbers: classes" : "targets are numbers to predict";
  out.samples = inputs.size(0) * 4 / 5;
  return out;
}

// --- the whole ---

StarterParts parts_of(const fs::path& data) {
  std::error_code none;
  check<DataError>(fs::exists(data, none), "init", data.string(), " does not exist");
  if (fs::is_directory(data, none)) {
    for (const fs::path& at : {data, data / "mnist", data / "MNIST" / "raw"})
      if (exists_any(at, {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"}))
        return published_starter(data, "MNIST", 60000, 28);
    for (const fs::path& at : {data, data / "cifar10", data / "cifar-10-batches-bin"})
      if (exists_any(at, {"data_batch_1.bin"})) return published_starter(data, "CIFAR10", 50000, 32);
    if (!visible_folders(data).empty()) return picture_starter(data);
    fail<DataError>(
        "init", data.string(), " has no folders of pictures, and no files of MNIST or CIFAR-10",
        Help{"pictures lie in a folder for each class: pets/cat/1.jpg, pets/dog/2.png; of tables, texts and arrays give the file"});
  }
  const std::string end = in_small_letters(data.extension().string());
  if (end == ".npz" || end == ".safetensors") return array_starter(data);
  if (end == ".txt" || end == ".md" || end == ".text") return text_starter(data);
  check<DataError>(end != ".npy" && end != ".json" && !is_picture_name(data) && !is_other_picture_name(data), "init", data.string(),
                   end == ".npy"    ? " is one array, where inputs and targets are two"
                   : end == ".json" ? " is a config or another JSON file, which is no data"
                                    : " is one picture",
                   Help{"docs/your_data.md has a config for each kind of data"});
  return table_starter(data);  // whatever its name, its first lines say whether it is one
}

void add(std::string& out, const std::string& indent, const StarterLine& line, bool comma) {
  constexpr size_t kColumn = 60;
  std::string text = indent + line.code + (comma ? "," : "");
  if (!line.comment.empty() && text.size() + 2 > kColumn) {  // above it
    out += indent + "// " + line.comment + '\n';
  } else if (!line.comment.empty()) {
    text.resize(kColumn, ' ');
    text += "// " + line.comment;
  }
  out += text + '\n';
}

}  // namespace

std::string in_quotes(const std::string& text) { return Json(text).dump(); }

Starter starter_config(const fs::path& data) {
  const StarterParts p = parts_of(data);
  Starter out{run_name(data), p.what, ""};
  const int64_t per_epoch = std::max<int64_t>(1, p.samples / p.batch_size);
  const int64_t epochs = std::clamp<int64_t>((p.steps + per_epoch / 2) / per_epoch, 2, 200);
  std::string& t = out.text;
  t = "// " + data.string() + ": " + p.what + ".\n{\n  \"version\": 1, \"name\": " + in_quotes(out.name) + ",\n  \"data\": {\n";
  for (const StarterLine& line : p.data) add(t, "    ", line, true);
  add(t, "    ", {joined(R"("loader": {"batch_size": )", p.batch_size, "}"), ""}, false);
  t += "  },\n  \"model\": {\"type\": \"Sequential\", \"layers\": [\n";
  for (const StarterLine& line : p.layers) add(t, "    ", line, &line != &p.layers.back());
  t += "  ]},\n";
  add(t, "  ", {"\"loss\": " + p.loss, p.loss_comment}, true);
  if (!p.metrics.empty()) add(t, "  ", {"\"metrics\": " + p.metrics, "in the units of the file"}, true);
  add(t, "  ", {joined(R"("optimizer": {"type": "AdamW", "lr": )", p.lr, "}"), "halfstep lr-find measures a good rate"}, true);
  add(t, "  ", {R"("scheduler": "CosineAnnealingLR")", "falls to 0 over the whole training"}, true);
  add(t, "  ", {R"("amp": {"enabled": true, "dtype": "auto"})", "mixed precision; halfstep parity measures its effect"}, true);
  add(t, "  ", {joined(R"("train": {"epochs": )", epochs, "}"), joined("about ", epochs * per_epoch, " steps")}, false);
  t += "}\n";
  return out;
}

}  // namespace halfstep::app
