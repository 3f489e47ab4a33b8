// SPDX-License-Identifier: Apache-2.0
// Labels: the names of classes and categories, as cells of tables, folders of pictures and users write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "framework/data/sets/dataset.h"

namespace halfstep {

// The text without the blanks around it: white space of Unicode, such as no-break spaces, and what shows nothing at all.
std::string_view without_blanks(std::string_view text);

// What all spellings of a name share: no blanks around it, one blank for those inside, and Unicode's form C.
std::string text_key(std::string_view text);
// The same for a label; and of a number in plain digits no needless zeros and no plus sign: "yes ", "1.0" and "+01" are "yes", "1"
// and "1".
std::string label_key(std::string_view text, char decimal = '.');

// The place of a name, or of a label, in a list, where it may be spelled otherwise; -1: it is not there.
int64_t find_name(const std::vector<std::string>& names, std::string_view text);
int64_t find_label(const std::vector<std::string>& names, std::string_view text, char decimal = '.');

// The labels of training data: which there are, and which spellings are one.
class LabelSet {
 public:
  explicit LabelSet(char decimal = '.') : decimal_(decimal) {}

  // The number of the label, in order of appearance; the same for all its spellings. `text` must outlive the set.
  size_t add(std::string_view text);
  size_t size() const { return labels_.size(); }
  int64_t count() const { return count_; }  // texts that were added

  // In the order of their texts, or of numbers that are all whole and plain. A label's name is its most frequent spelling, and a
  // number's of several its shortest. places: of each label in this list.
  std::vector<std::string> names(std::vector<int64_t>& places, bool by_number = true) const;
  // One line about what was joined, "" if nothing was: "\"yes\" (80), \"yes \" (3) are one".
  std::string joined_spellings() const;
  // One line about labels that differ in nothing but upper and lower case; "" if none do.
  std::string differ_in_case(const char* what) const;

 private:
  struct Label {
    std::string key;
    std::map<std::string_view, int64_t> spellings;  // with their counts
    int64_t count() const;
    std::string_view most_frequent() const;
  };
  char decimal_;
  int64_t count_ = 0;
  std::vector<Label> labels_;
  std::unordered_map<std::string, size_t> by_key_;
  struct Seen {
    size_t label;
    int64_t* count;
  };
  std::unordered_map<std::string_view, Seen> by_text_;
};

// The class of each folder of a root. classes: of the training data; empty: learnt here. What was joined, and what differs in case
// alone, is added to `notes`. -1: a class that the training data does not have. Throws DataError "[where] ..." for a name that is
// not UTF-8, and where no class is known.
std::vector<int64_t> classes_of_folders(const char* where, const std::filesystem::path& root,
                                        const std::vector<std::string>& folders, std::vector<std::string>& classes,
                                        DataNotes& notes);

// Some of a list, each as spelled() writes it.
std::string some_labels(const std::vector<std::string>& names);

}  // namespace halfstep
