// SPDX-License-Identifier: Apache-2.0
// A first config for data that nobody has described yet: the text that `halfstep init` prints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace halfstep::app {

struct Starter {
  std::string name;  // of the run, from the path
  std::string what;  // "a table of 150 rows: 4 inputs, classes by species"
  std::string text;  // JSON, with a comment for each choice
};

// data: a delimited table (any name but those below), a series (a table of a date and a number), a text (.txt, .md), an archive of
// arrays (.npz, .safetensors), a folder of pictures in folders of classes, or a folder of MNIST's or CIFAR-10's files. Reads as
// much as the choices need: a table whole, of pictures the headers of some hundred.
// Throws DataError for what it does not know, with what it looked for, and as the readers do.
Starter starter_config(const std::filesystem::path& data);

// What the kinds of data differ in. A line is a part of the JSON and its comment, which may be empty.
struct StarterLine {
  std::string code, comment;
};
struct StarterParts {
  std::string what;
  std::vector<StarterLine> data;    // inside "data", without the loader
  std::vector<StarterLine> layers;  // of a Sequential
  std::string loss, metrics;        // metrics: a list in JSON, or ""
  std::string loss_comment;
  double lr = 0.001;
  int64_t batch_size = 32, samples = 0;  // samples: of the training part
  int64_t steps = 3000;                  // that training should take, about
};
std::string in_quotes(const std::string& text);  // as JSON
StarterParts table_starter(const std::filesystem::path& file);  // a series, too

}  // namespace halfstep::app
