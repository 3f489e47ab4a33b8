// SPDX-License-Identifier: Apache-2.0
// Saves and loads all that a run needs to continue as if it had never stopped: the model, the optimizer's states and options, the
// loss scale, and the positions in the schedule, in the data and in the random numbers. One call writes them, one reads them:
//
//   save_run("runs/mine", step, {.model = model, .optimizer = &optimizer, .loader = &loader}, {{"best", 0.91}});
//   const SavedRun last = load_run("runs/mine", {.model = model, .optimizer = &optimizer, .loader = &loader});
//   last.step; last.own.number("best");
//
// docs/from_pytorch.md has a whole program. The files are those of `halfstep train` (framework/io/checkpoint/checkpoint.h):
// written completely or not at all, and checked when they are read.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

#include "framework/base/generator.h"
#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/checkpoint/stored_json.h"

namespace halfstep {

class GradScaler;
class LoaderBase;
class Module;
class Optimizer;
class ProcessGroup;
class Schedule;

// Parts of a run. Null: the run has none.
struct RunParts {
  Module& model;
  Optimizer* optimizer = nullptr;
  GradScaler* scaler = nullptr;
  Schedule* schedule = nullptr;
  Generator* generator = &default_generator();
  // Set it if ranks share the optimizer's states (Optimizer::shard): all ranks then call pack and save_run together. Rank 0 gets
  // and writes the whole states; pack returns none of the optimizer's on the others. Without it one rank may call them alone, and
  // an optimizer with shared states throws ValueError.
  ProcessGroup* group = nullptr;
  LoaderBase* loader = nullptr;  // any DataLoader of the training data
};

// Values of the user's program: {{"best", 0.91}, {"fold", 3}, {"note", "with dropout"}}, or an nlohmann::json object.
class OwnValues {
 public:
  class Value {
   public:
    template <class T>
    requires std::is_arithmetic_v<T> Value(T number) {
      if constexpr (std::is_same_v<T, bool>)
        set(bool(number));
      else if constexpr (std::is_integral_v<T>)
        set(int64_t(number));
      else
        set(double(number));
    }
    Value(const char* text) : Value(std::string(text)) {}
    Value(std::string text);
    const JsonValue& json() const { return json_; }

   private:
    void set(bool flag);
    void set(int64_t number);
    void set(double number);
    JsonValue json_;
  };
  OwnValues() = default;
  OwnValues(std::initializer_list<std::pair<std::string, Value>> values);
  template <std::same_as<nlohmann::json> Json>
  OwnValues(const Json& values) : values_(values) {}
  const JsonValue& json() const { return values_; }

 private:
  JsonValue values_;
};

// Convert a run to a checkpoint's contents and back. unpack throws CheckpointError for a state that pack did not write, and
// ValueError for one that does not fit the model or the optimizer, such as an average of another kind. A part that the state lacks
// is not changed. A loader of another batch size continues after the same samples.
CheckpointContents pack(const RunParts& run);
void unpack(const CheckpointContents& contents, const RunParts& run);

// Returns the contents of state.json. Throws CheckpointError if a newer halfstep wrote it.
StoredJson stored_meta(const CheckpointContents& contents);

// Writes <dir>/step-<step>, which becomes the latest. keep_last > 0 removes older checkpoints. Within a WeightAverage::Scope it
// writes the trained weights, and the average separately. Throws IoError, with a group on all ranks.
std::filesystem::path save_run(const std::filesystem::path& dir, int64_t step, const RunParts& run, const OwnValues& own = {},
                               int keep_last = 0);

struct SavedRun {
  int64_t step = 0;
  JsonValue own;
};
// Loads the latest checkpoint of a directory, or the one that `path` names. Throws as unpack, and IoError.
SavedRun load_run(const std::filesystem::path& path, const RunParts& run);

}  // namespace halfstep
