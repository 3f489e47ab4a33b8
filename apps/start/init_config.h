// SPDX-License-Identifier: Apache-2.0
// Writes a first config for undescribed data: the text that `halfstep init` prints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace halfstep::app {

// The user's wishes; "": init chooses.
struct InitWishes {
  std::string target;  // a table's column by name or number, or an array
  std::string task;    // "classification" or "regression"
  std::string text{};  // a column of texts that is to be the input
  std::vector<std::string> sets{};  // "data.encoding=latin-1": how the data is read (init_reading.h)
};

// A config, and what the user should read about it.
struct InitConfig {
  std::string name;                // of the run, from the path
  std::string what;                // "a table of 150 rows and 5 columns, to predict species (the last column)"
  std::string text;                // JSON with a comment for each choice
  std::vector<std::string> notes;  // what was omitted, converted or left open, and how the config reads the data
};

// Makes a config for data: a delimited table (any name except those below), a series (a table of a date and a number), a text
// (.txt, .md), an archive of arrays (.npz, .safetensors), a folder of pictures in folders of classes, or a folder of MNIST's or
// CIFAR-10's files. Reads as much as the choices need: a table and arrays entirely, the headers of some hundred pictures, and then
// whatever `halfstep validate` reads, whose rules the config passes; the config omits unreadable pictures if they are few. Throws
// DataError for unknown data, with what it looked for, for data of which it can make no valid config, with the remedy, and as the
// readers do; ConfigError for wishes that the data does not satisfy.
InitConfig init_config(const std::filesystem::path& data, const InitWishes& wishes = {});

// Parts that depend on the kind of data. A line is a part of the JSON and its comment, which may be empty.
struct InitLine {
  std::string code, comment;
};
struct InitParts {
  std::string what;
  std::vector<InitLine> data;    // inside "data", without the loader
  std::vector<InitLine> layers;  // of a Sequential
  std::string loss, metrics;     // metrics: a JSON list, or ""
  std::string loss_comment;
  double lr = 0.001;
  int64_t batch_size = 32, samples = 0;  // samples: of the training part
  int64_t steps = 3000;                  // approximate length of the training
  std::vector<std::string> notes{};
  std::string problem{}, remedy{};  // message if the config is invalid: about the data, and the remedy
};
std::string in_quotes(const std::string& text);                 // as a JSON string
std::string folder_of_file(const std::filesystem::path& file);  // "." for a path without one
// Returns layers for pictures of this side, with a Linear of one number for each class at the end.
std::vector<InitLine> init_convolutions(int64_t side, bool normalizes_batches);
// Returns the subfolders that may be classes or parts of the data.
std::vector<std::string> visible_folders(const std::filesystem::path& root);
InitParts init_pictures(const std::filesystem::path& folder);
InitParts init_table(const std::filesystem::path& file, const InitWishes& wishes);  // also for a series
InitParts init_arrays(const std::filesystem::path& file, const InitWishes& wishes);

}  // namespace halfstep::app
