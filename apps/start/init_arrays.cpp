// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>

#include "apps/start/init_config.h"
#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/formats/npy.h"
#include "framework/data/sets/arrays.h"
#include "framework/io/files/zip.h"
#include "framework/io/weights/safetensors.h"
#include "framework/tensor/tensor.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostLabels = 1000;      // different whole numbers of a target that are classes
constexpr int64_t kMostChannels = 10000;  // with a mean and a deviation each
constexpr int64_t kMostColors = 4;        // of pixels; else the layout is not an image

// The names of a file's arrays.
struct NamedArrays {
  std::string x, y, x_val, y_val;  // x_val, y_val: "" if validation takes a part of x and y
  std::vector<std::string> others{};
};

bool is_npz(const fs::path& file) { return file.extension() == ".npz"; }

std::vector<std::string> array_names(const fs::path& file) {
  std::vector<std::string> out;
  if (is_npz(file)) {
    const ZipFile archive(file);
    for (const std::string& name : archive.names()) out.push_back(name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name);
  } else {
    for (const TensorEntry& e : read_safetensors_header(file).entries) out.push_back(e.name);
  }
  return out;
}

// Returns the array in Python.
std::string item(const std::string& name) { return "a[" + in_quotes(name) + "]"; }

// Returns a line of Python that reads the arrays as `a`, changes them, and writes others.
std::string in_numpy(const fs::path& file, const std::string& change) {
  const std::string from = in_quotes(file.string()), to = in_quotes(file.stem().string() + "_new" + file.extension().string());
  return is_npz(file)
             ? joined("in Python: import numpy as np; a = dict(np.load(", from, ")); ", change, "; np.savez(", to, ", **a)")
             : joined("in Python: import numpy as np; from safetensors.numpy import load_file, save_file; a = load_file(", from,
                      "); ", change, "; save_file(a, ", to, ")");
}

// Returns "x_test" for "x_train", if there is such an array.
std::string held_out_name(const std::vector<std::string>& names, const std::string& name, const std::string& part) {
  const size_t at = name.find("train");
  if (at == std::string::npos) return "";
  const std::string other = name.substr(0, at) + part + name.substr(at + 5);
  return std::find(names.begin(), names.end(), other) != names.end() ? other : "";
}

// Finds inputs and targets by usual names, or if there are only two arrays.
NamedArrays find_arrays(const fs::path& file, const std::string& target) {
  const std::vector<std::string> names = array_names(file);
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : ", ") + n;
  check<ConfigError>(target.empty() || std::find(names.begin(), names.end(), target) != names.end(), "init", file.string(),
                     " has no array \"", target, "\"; it has ", list);
  NamedArrays out{.y = target};
  const auto find = [&](std::initializer_list<const char*> usual_names) {
    for (const char* w : usual_names)
      if (w != target && std::find(names.begin(), names.end(), w) != names.end()) return std::string(w);
    return std::string();
  };
  out.x =
      find({"x", "X", "input", "inputs", "data", "images", "image", "features", "x_train", "X_train", "train_x", "train_images"});
  if (target.empty())
    out.y =
        find({"y", "Y", "target", "targets", "label", "labels", "masks", "mask", "y_train", "Y_train", "train_y", "train_labels"});
  if (names.size() == 2 && out.x.empty() != out.y.empty()) {
    const std::string& found = out.x.empty() ? out.y : out.x;
    (out.x.empty() ? out.x : out.y) = names[0] == found ? names[1] : names[0];
  }
  if (names.size() == 1 && target == names[0]) out.x = target;  // an autoencoder
  check<DataError>(!out.x.empty() && !out.y.empty(), "init", file.string(),
                   " has no arrays that are named as inputs and targets: ", list,
                   Help{"name them x and y, or the targets with --target (an autoencoder's are its inputs), or write the config by "
                        "hand: docs/your_data.md, \"Arrays\""});
  for (const char* part : {"val", "valid", "test"}) {
    const std::string x = held_out_name(names, out.x, part), y = held_out_name(names, out.y, part);
    if (out.x_val.empty() && !x.empty() && !y.empty()) out.x_val = x, out.y_val = y;
  }
  for (const std::string& n : names)
    if (n != out.x && n != out.y && n != out.x_val && n != out.y_val) out.others.push_back(n);
  return out;
}

Tensor read_array(const fs::path& file, const std::string& name) {
  return is_npz(file) ? read_npz(file, name) : map_safetensors(file).tensors.at(name);
}

// Statistics of an array's values.
struct ArrayValues {
  bool all_integers = true;
  int64_t not_finite = 0, beyond = 0;  // beyond: finite, but not in float32
  double least = INFINITY, most = -INFINITY, mean = 0, deviation = 0;
  std::set<double> distinct{};  // at most kMostLabels + 1
  bool are_zero_or_one() const { return all_integers && least >= 0 && most <= 1; }
};
ArrayValues values_of(const Tensor& t) {
  constexpr int64_t kPiece = int64_t(1) << 20;  // numbers that are converted at a time
  ArrayValues out;
  const Tensor flat = t.reshape({-1});
  double sum = 0, squares = 0, count = 0;
  for (int64_t at = 0; at < flat.numel(); at += kPiece) {
    const Tensor piece = flat.narrow(0, at, std::min(kPiece, flat.numel() - at)).to(DType::f64).contiguous();
    const double* const p = piece.const_data_ptr<double>();
    for (int64_t i = 0; i < piece.numel(); ++i) {
      if (!std::isfinite(p[i])) {
        ++out.not_finite;
        continue;
      }
      out.beyond += !std::isfinite(float(p[i]));
      out.all_integers = out.all_integers && p[i] == std::floor(p[i]);
      out.least = std::min(out.least, p[i]), out.most = std::max(out.most, p[i]);
      sum += p[i], squares += p[i] * p[i], ++count;
      if (out.distinct.size() <= kMostLabels) out.distinct.insert(p[i]);
    }
  }
  if (count > 0) out.mean = sum / count, out.deviation = std::sqrt(std::max(0.0, squares / count - out.mean * out.mean));
  return out;
}

// Returns a shape without its first dimension.
Shape rest_of(const Shape& s) { return s.empty() ? s : without_batch(s); }
Shape sample_of(const Tensor& t) { return rest_of(t.shape()); }

// The inputs' shape with channels first, and the layers, or the reader's option, that move them there.
struct ArrayLayout {
  std::vector<InitLine> layers{};
  Shape sample;
  bool channels_last = false;
  int spatial() const { return int(sample.size()) - 1; }
  // Returns whether it is a series or a picture that is large enough for convolutions.
  bool is_large() const { return (spatial() == 1 || spatial() == 2) && *std::min_element(sample.begin() + 1, sample.end()) >= 8; }
};
ArrayLayout layout_of(const Tensor& x, const Shape& target) {
  const Shape s = sample_of(x);
  if (looks_channels_last(s)) return {{}, {s[2], s[0], s[1]}, true};
  if (s.size() != 2) return {{}, s};
  const bool is_picture = s[0] >= 8 && s[1] >= 8 && (x.dtype() == DType::u8 || s[0] == s[1]);
  if (is_picture || target == s)
    return {{{joined(R"({"type": "Unflatten", "dim": 1, "unflattened_size": [1, )", s[0], "]}"), "pictures with one channel"}},
            {1, s[0], s[1]}};
  if (s[0] > s[1] && s[0] >= 8) return {{}, {s[1], s[0]}, true};
  return {{}, s};
}

void append(std::vector<InitLine>& to, std::vector<InitLine> lines) {
  for (InitLine& line : lines) to.push_back(std::move(line));
}

// Returns layers that halve a series three times.
std::vector<InitLine> series_layers(int64_t length) {
  std::vector<InitLine> out;
  int64_t channels = 32;
  for (const int kernel : {7, 5, 3}) {
    std::string pool;
    if (length >= 8) pool = R"(, {"type": "MaxPool1d", "kernel_size": 2})", length /= 2;
    out.push_back({joined(R"({"type": "Conv1d", "out_channels": )", channels, R"(, "kernel_size": )", kernel, R"(, "padding": )",
                          kernel / 2, R"(}, "BatchNorm1d", "ReLU")", pool),
                   ""});
    channels = 64;
  }
  out.front().comment = "convolutions along the last dimension, each block halves it";
  return out;
}

// Returns layers for an answer at every place of the input, with `channels` numbers.
std::vector<InitLine> dense_layers(int spatial, int64_t channels, const std::string& meaning) {
  const std::string conv = joined(R"({"type": "Conv)", spatial, R"(d", "out_channels": )");
  return {{conv + R"(32, "kernel_size": 3, "padding": 1}, "ReLU")", "as large as the input"},
          {conv + R"(32, "kernel_size": 3, "padding": 1}, "ReLU")", ""},
          {conv + std::to_string(channels) + R"(, "kernel_size": 1})", meaning}};
}

// Returns the label of places without a class in a mask, such as 255 or -1: one that is far above all others, or below 0, where the
// others count from 0.
std::optional<int64_t> void_label(const ArrayValues& labels) {
  constexpr size_t kLeastClasses = 2;
  constexpr double kVoids[] = {255, 65535, 2147483647};
  if (!labels.all_integers || labels.distinct.size() <= kLeastClasses || labels.distinct.size() > kMostLabels) return {};
  const auto are_classes = [](std::set<double>::const_iterator first, std::set<double>::const_iterator last) {
    const double most = *std::prev(last);
    return *first >= 0 && most < double(kMostLabels) && (most < 20 || double(8 * std::distance(first, last)) > most);
  };
  const auto begin = labels.distinct.begin(), end = labels.distinct.end(), top = std::prev(end);
  if (*begin < 0) return are_classes(std::next(begin), end) ? std::optional(int64_t(*begin)) : std::nullopt;
  const double next = *std::prev(top);
  const bool is_far = *top >= 20 && double(8 * labels.distinct.size()) <= *top,
             is_usual = std::count(kVoids, std::end(kVoids), *top) > 0;
  return are_classes(begin, top) && *top > next + 1 && (is_far || is_usual) ? std::optional(int64_t(*top)) : std::nullopt;
}

enum class ArrayTask : uint8_t { classes, numbers, yes_or_no };

// Chooses the model's task, and notes in `out` what the user should check or choose.
ArrayTask task_of(const Tensor& y, const ArrayValues& values, const std::string& name, const InitWishes& wishes,
                  const fs::path& file, bool is_dense, InitParts& out) {
  const std::string labels = item(name),
                    without_gaps = joined(labels, " = np.unique(", labels, ", return_inverse=True)[1].reshape(", labels, ".shape)");
  const bool has_integers = !is_floating(y.dtype()), yes_or_no = values.are_zero_or_one() && values.distinct.size() == 2,
             is_wide = y.dim() == 2 && y.size(1) > 1 && !is_dense;
  // Returns what to do if a label means that there is none; void labels of masks are no longer among the values.
  const auto or_none = [&](double label) {
    return values.distinct.size() < 3 ? ""
                                      : joined("; or, if ", int64_t(label), " means no label, a config by hand with ",
                                               "\"ignore_index\": ", int64_t(label), " in the loss");
  };
  const auto refuse_as = [&](const std::string& problem, const std::string& change) {
    out.problem = name + ' ' + problem, out.remedy = in_numpy(file, change);
    return ArrayTask::classes;
  };
  if (wishes.task == "regression") return ArrayTask::numbers;
  if (wishes.task == "classification")
    return refuse_as(joined("must have whole numbers from 0 to be classes, got ", y.dtype(), " from ", values.least), without_gaps);
  if (is_wide && yes_or_no) {
    const ArrayValues sums = values_of(y.to(DType::f64).sum({1}));
    return sums.least == 1 && sums.most == 1 ? ArrayTask::classes : ArrayTask::yes_or_no;
  }
  if (yes_or_no && !has_integers && !is_dense && (y.dim() == 1 || (y.dim() == 2 && y.size(1) == 1))) {
    out.notes.push_back(name + " has 0 and 1 as floats, read as classes; numbers to predict: --task regression");
    return ArrayTask::classes;
  }
  if (yes_or_no && (!has_integers || (is_dense && y.dtype() == DType::boolean) || (y.dim() > 2 && !is_dense)))
    return ArrayTask::yes_or_no;
  if (!has_integers) {
    if (values.all_integers && values.distinct.size() <= 20 && !is_wide)
      out.notes.push_back(
          joined(name, " has ", values.distinct.size(),
                 " whole numbers as floats, read as numbers to predict; if they are classes: --task classification"));
    return ArrayTask::numbers;
  }
  if (values.most >= double(kMostLabels) || values.distinct.size() > kMostLabels) {
    out.notes.push_back(joined(name, " has whole numbers up to ", int64_t(values.most),
                               ", read as numbers to predict; if they are classes, ", in_numpy(file, without_gaps)));
    return ArrayTask::numbers;
  }
  if (is_wide) return ArrayTask::numbers;
  if (values.least < 0) {
    refuse_as(joined("has ", int64_t(values.least), ", but classes count from 0 (numbers to predict: --task regression)"),
              without_gaps);
    out.remedy += or_none(values.least);
    return ArrayTask::classes;
  }
  const auto different = joined("has ", values.distinct.size(), " different classes up to ", int64_t(values.most));
  check<DataError>(values.most < 20 || double(8 * values.distinct.size()) > values.most, "init", file.string(), ": ", name, ' ',
                   different, ", but classes count 0, 1, 2", Help{in_numpy(file, without_gaps) + or_none(values.most)});
  if (double(2 * values.distinct.size()) < values.most)
    out.notes.push_back(joined(name, ' ', different, "; without gaps the model is smaller: ", in_numpy(file, without_gaps)));
  return ArrayTask::classes;
}

// Adds a model for the arrays' shapes: with an answer at each place of the input, or one for the sample.
void add_layers(InitParts& out, const Tensor& x, const Tensor& y, ArrayTask task, const ArrayValues& labels) {
  const Shape target = sample_of(y);
  ArrayLayout at = layout_of(x, target);
  const Shape places = rest_of(at.sample);
  const bool places_alone = !places.empty() && places.size() <= 2 && target == places;
  const bool with_channels =
      !places.empty() && places.size() <= 2 && target.size() == at.sample.size() && rest_of(target) == places;
  if (places_alone && task == ArrayTask::classes) {
    append(out.layers, std::move(at.layers));
    append(out.layers, dense_layers(at.spatial(), int64_t(labels.most) + 1, "a score for each class at each place"));
    out.layers.push_back(
        {at.spatial() == 1 ? R"({"type": "Permute", "dims": [0, 2, 1]})" : R"({"type": "Permute", "dims": [0, 2, 3, 1]})",
         "scores last, as CrossEntropyLoss has them"});
  } else if ((places_alone || with_channels) && task != ArrayTask::classes) {
    append(out.layers, std::move(at.layers));
    append(out.layers, dense_layers(at.spatial(), places_alone ? 1 : target[0], "an answer at each place"));
    if (places_alone) out.layers.push_back({R"({"type": "Flatten", "start_dim": 1, "end_dim": 2})", "without the channel"});
  } else {
    if (at.is_large()) {
      append(out.layers, std::move(at.layers));
      append(out.layers,
             at.spatial() == 1 ? series_layers(at.sample[1]) : init_convolutions(std::min(at.sample[1], at.sample[2]), true));
      if (at.spatial() == 2) out.layers.pop_back();  // drops its last layer
    }
    out.layers.push_back({at.is_large() ? R"("Flatten")" : R"("Flatten", {"type": "Linear", "out_features": 128}, "ReLU")", ""});
    if (target.size() > 1 && task != ArrayTask::classes) {
      std::string sizes;
      int64_t numbers = 1;
      for (const int64_t n : target) sizes += (sizes.empty() ? "" : ", ") + std::to_string(n), numbers *= n;
      out.layers.push_back({joined(R"({"type": "Linear", "out_features": )", numbers,
                                   R"(}, {"type": "Unflatten", "dim": 1, "unflattened_size": [)", sizes, "]}"),
                            "the target's shape"});
    } else {
      out.layers.push_back({R"({"type": "Linear", "out_features": "auto"})",
                            task == ArrayTask::classes ? "\"auto\": one for each class" : "\"auto\": the target's width"});
    }
  }
}

}  // namespace

InitParts init_arrays(const fs::path& file, const InitWishes& wishes) {
  const NamedArrays names = find_arrays(file, wishes.target);
  const Tensor x = read_array(file, names.x);
  Tensor y;
  try {
    y = read_array(file, names.y);
  } catch (const DataError& e) {
    const std::string text = e.what();
    fail<DataError>("init", text.substr(text.find("] ") + 2, text.find('\n') - text.find("] ") - 2),
                    Help{"of names of classes, " +
                         in_numpy(file, item(names.y) + " = np.unique(" + item(names.y) + ", return_inverse=True)[1]")});
  }
  InitParts out;
  out.what = joined("arrays: ", names.x, ' ', x.shape(), ", ", names.y, ' ', y.shape());
  check<DataError>(x.dim() > 0 && y.dim() > 0 && x.size(0) == y.size(0) && x.numel() > 0 && y.numel() > 0, "init", file.string(),
                   ": inputs and targets must have a row for each sample, got ", names.x, ' ', x.shape(), " and ", names.y, ' ',
                   y.shape(), Help{"leave out the rows that have no partner, or name other targets with --target"});
  const ArrayValues inputs = values_of(x);
  ArrayValues labels = values_of(y);
  check<DataError>(labels.not_finite == 0, "init", file.string(), ": ", names.y, " has ", labels.not_finite, " of ", y.numel(),
                   " values that are not finite",
                   Help{in_numpy(file, joined("keep = np.isfinite(", item(names.y), ").reshape(", y.size(0),
                                              ", -1).all(1); a = {k: v[keep] for k, v in a.items()}"))});
  check<DataError>(labels.distinct.size() > 1, "init", file.string(), ": the target must have two different values, but ", names.y,
                   " has ", labels.distinct.empty() ? 0.0 : *labels.distinct.begin(), " alone",
                   Help{"--target names another array"});
  check<DataError>(inputs.not_finite == 0, "init", file.string(), ": ", names.x, " has ", inputs.not_finite, " of ", x.numel(),
                   " values that are not finite, and no step with one can be used",
                   Help{in_numpy(file, item(names.x) + " = np.nan_to_num(" + item(names.x) + ")")});
  for (const auto& [name, values] : {std::pair(names.x, &inputs), {names.y, &labels}})
    check<DataError>(values->beyond == 0, "init", file.string(), ": ", name, " has ", values->beyond,
                     " values that float32 does not hold, up to ", std::max(-values->least, values->most),
                     Help{in_numpy(file, joined(item(name), " = ", item(name), " / np.abs(", item(name), ").max()"))});
  check<DataError>(inputs.distinct.size() > 1, "init", file.string(), ": the inputs must have two different values, but ", names.x,
                   " has ", *inputs.distinct.begin(), " alone");
  if (!names.others.empty()) out.notes.push_back("arrays that are left out: " + list_text(names.others));
  const ArrayLayout at = layout_of(x, sample_of(y));
  const bool is_dense = y.dim() > 1 && !at.sample.empty() && sample_of(y) == rest_of(at.sample);
  out.remedy = x.size(0) < 5 ? "some samples are needed to train with, and others to check with"
                             : "docs/your_data.md, \"Arrays\", has a config to begin with";
  const bool may_ignore = is_dense && wishes.task != "regression" && (!is_floating(y.dtype()) || wishes.task == "classification");
  const std::optional<int64_t> ignored = may_ignore ? void_label(labels) : std::nullopt;
  if (ignored) {
    labels.distinct.erase(double(*ignored));
    labels.least = *labels.distinct.begin(), labels.most = *labels.distinct.rbegin();
    out.notes.push_back(joined(names.y, " has ", *ignored, " beside the classes up to ", int64_t(labels.most), ", read as places ",
                               "without a class, which loss and metrics leave out (\"ignore_index\")"));
  }
  const ArrayTask task = task_of(y, labels, names.y, wishes, file, is_dense, out);
  if (x.dim() == 1) {
    out.problem = joined(names.x, ' ', x.shape(), " has one number for each sample, which need a dimension of their own");
    out.remedy = in_numpy(file, item(names.x) + " = " + item(names.x) + "[:, None]");
  }
  if (is_integral(x.dtype()) && x.dtype() != DType::u8 && x.dim() == 2 && inputs.least >= 0)
    out.notes.push_back(
        joined(names.x, " has whole numbers, read as numbers; if they are tokens: docs/configs.md, \"Text and tokens\""));
  if (task == ArrayTask::numbers && (labels.deviation > 100 || (labels.deviation < 0.01 && labels.deviation > 0)))
    out.notes.push_back(joined("targets have a deviation of ", labels.deviation, ", and are learnt sooner near 1; ",
                               in_numpy(file, joined(item(names.y), " = (", item(names.y), " - ", item(names.y), ".mean()) / ",
                                                     item(names.y), ".std()"))));

  out.data = {{"\"root\": " + in_quotes(folder_of_file(file)), ""}};
  if (!is_floating(y.dtype()) && task != ArrayTask::classes)
    out.data.push_back({R"("task": "regression")", "whole numbers would be classes"});
  else if (wishes.task == "classification")
    out.data.push_back({R"("task": "classification")", "as asked"});
  else if (is_floating(y.dtype()) && task == ArrayTask::classes && (y.dim() == 1 || y.size(1) == 1))
    out.data.push_back({R"("task": "classification")", "floats would be numbers"});
  const bool has_bytes = x.dtype() == DType::u8 && x.dim() > 2, has_pixels = has_bytes && inputs.most > 1;
  if (has_bytes && !has_pixels) {
    out.data.push_back({R"("bytes": "numbers")", "they are 0 and 1, and stay so; \"pixels\" divides them by 255"});
    out.notes.push_back(names.x + " has bytes of 0 and 1, which are no pixels, and stay as they are");
  }
  if (has_pixels) out.data.push_back({R"("bytes": "pixels")", "0 to 255 become 0 to 1; \"numbers\" leaves them as they are"});
  if (at.channels_last) {
    const std::string given = at.spatial() == 1 ? "[N, T, C]" : "[N, H, W, C]",
                      read = at.spatial() == 1 ? "[N, C, T]" : "[N, C, H, W]";
    out.data.push_back({R"("channels_last": true)", given + " is read as " + read});
    out.notes.push_back(joined(names.x, ' ', x.shape(), " seems to have its channels last, and is read as ", read,
                               "; if not: \"channels_last\": false"));
  }
  const int64_t channels = x.dim() == 1 ? 0 : at.channels_last ? at.sample[0] : x.size(1);
  if (x.dim() > 1 && channels <= (has_pixels ? kMostColors : kMostChannels))
    out.data.push_back({R"("transforms": [{"type": "Normalize", "from": "data"}])",
                        "inputs to mean 0 and deviation 1 of the training data, by place in dimension 1"});
  const bool has_val = !names.x_val.empty();
  const auto add_part = [&](const char* split, const std::string& input, const std::string& target, const char* range) {
    out.data.push_back({joined('"', split, R"(": {"type": ")", is_npz(file) ? "NPZ" : "Safetensors", R"(", "path": )",
                               in_quotes(file.filename().string()), R"(, "input": )", in_quotes(input), R"(, "target": )",
                               in_quotes(target), range, "}"),
                        ""});
  };
  add_part("train", names.x, names.y, has_val ? "" : ", \"range\": [0, 0.8]");
  add_part("val", has_val ? names.x_val : names.x, has_val ? names.y_val : names.y, has_val ? "" : ", \"range\": [0.8, 1]");
  add_layers(out, x, y, task, labels);
  out.loss = task == ArrayTask::classes   ? R"("CrossEntropyLoss")"
             : task == ArrayTask::numbers ? R"("MSELoss")"
                                          : R"("BCEWithLogitsLoss")";
  out.loss_comment = task == ArrayTask::classes   ? "targets are whole numbers: classes"
                     : task == ArrayTask::numbers ? "targets are numbers to predict"
                                                  : "targets are 0 and 1, each for itself";
  if (ignored && task == ArrayTask::classes) {
    out.loss = joined(R"({"type": "CrossEntropyLoss", "ignore_index": )", *ignored, "}");
    out.loss_comment = joined("targets are whole numbers: classes, and ", *ignored, " where there is none");
  }
  if (task == ArrayTask::numbers) out.metrics = R"(["rmse"])";
  out.samples = has_val ? x.size(0) : x.size(0) * 4 / 5;
  return out;
}

}  // namespace halfstep::app
