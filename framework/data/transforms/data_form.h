// SPDX-License-Identifier: Apache-2.0
// The form of a model's inputs and outputs, taken from its training data: what is needed to read other files in the same way,
// except for transforms, and to interpret an answer. A checkpoint stores both (data.json), so that a model can be used without that
// data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "framework/data/sets/arrays.h"
#include "framework/data/sets/dataset.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/sets/text.h"
#include "framework/data/tables/csv.h"
#include "framework/data/tables/time_series.h"
#include "framework/io/files/json_value.h"

namespace halfstep {

// Pictures of one size. Pictures in files become gray if the model takes one channel, and are resized if there is a fit.
struct ImageForm {
  std::optional<PictureFit> fit{};            // empty: a picture must have the size of the model's input
  Background background = Background::black;  // as in ImageFolderOptions; black behind light ink, as in MNIST
  bool on_side = false;                       // whether rows and columns are exchanged, as in EMNIST's files
  bool exif = true;                           // whether pictures are turned by their EXIF orientation
};
// Rows of a table. `options` has an encoding with the columns, classes, categories and scale.
struct TableForm {
  CsvOptions options{};
};
// Windows of a series. `options` has the scaling.
struct SeriesForm {
  TimeSeriesOptions options{};
};
// Tokens of a text. `options` has the vocabulary.
struct TextForm {
  TextOptions options{};
};
// Arrays, and data sets without another form.
struct TensorForm {
  ByteMeaning bytes = ByteMeaning::automatic;  // how bytes of the inputs were read; automatic: there were none
  // Range of the model's input numbers before transforms; low > high: unknown.
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  bool channels_last = false;  // files have [N, ..., C] where the model takes [N, C, ...]
};

struct DataForm {
  Shape input{}, target{};  // of one sample, before transforms
  DType input_dtype = DType::f32;
  int64_t vocabulary = 0;  // of i64 inputs; all are below it
  int64_t classes = 0;     // 0: the answers are numbers
  bool label_sequences = false;
  std::vector<std::string> names{};  // of the classes; empty: their numbers. For a table of numbers: the target's column
  ColumnScale scale{};               // for numbers: answer * std + mean is in the file's units
  std::variant<TensorForm, ImageForm, TableForm, SeriesForm, TextForm> source{};

  // Returns the name of class i.
  std::string class_name(int64_t i) const { return names.empty() ? std::to_string(i) : names[size_t(i)]; }
};

// Returns "tensor", "image", "table", "series" or "text": the kind of a model's input.
std::string_view kind_of(const DataForm& form);

// Returns the pixels of a picture as the model takes them, before transforms: [C, H, W] f32 in [0, 1]. invert: 1 - pixel, for dark
// ink on light paper if the training data had light ink. Throws like read_picture, and DataError for a picture of another size if
// the form has no fit.
Tensor read_input_picture(const std::filesystem::path& path, const DataForm& form, bool invert = false);

// Convert to JSON and back. Reading throws CheckpointError, with the key, for JSON that to_json does not write.
JsonValue to_json(const DataForm& form);
DataForm read_form(const JsonValue& json);

}  // namespace halfstep
