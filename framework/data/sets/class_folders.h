// SPDX-License-Identifier: Apache-2.0
// Doubts whether the folders of a root are classes: they may be parts of the data, or lie one level too high. Not a public header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace halfstep {

// Words for parts of the data.
inline constexpr std::initializer_list<const char*> kTrainWords = {"train", "training"},
                                                    kValWords = {"val",         "valid", "validation", "dev",
                                                                 "development", "eval",  "evaluation"},
                                                    kTestWords = {"test", "testing"},
                                                    kOtherPartWords = {"holdout", "hold_out", "hold-out",
                                                                       "heldout", "held_out", "held-out"};

// Returns a name without this word, in lower case: "seg_" for "seg_train"; nothing if it lacks the word.
std::optional<std::string> rest_without(const std::string& name, const std::string& word);

// Where the pictures of a class lie.
struct ClassFolder {
  std::string name;
  std::map<std::string, int64_t> pictures;  // by the folder below: "", "young", "young/indoor"
};
ClassFolder class_folder(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& pictures);

// Returns why these may not be the classes, with the remedy; "" if there is no reason.
std::string doubt_of_classes(const std::vector<ClassFolder>& classes);

}  // namespace halfstep
