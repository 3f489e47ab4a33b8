// SPDX-License-Identifier: Apache-2.0
// Labels: the names of classes and categories, as in cells of tables, folders of pictures and texts of users.
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

// Returns the text without the blanks around it: Unicode's white space, such as no-break spaces, and invisible characters.
std::string_view without_blanks(std::string_view text);

// Returns the common form of all spellings of a name: without blanks around it, with single blanks inside, in Unicode's form C.
std::string text_key(std::string_view text);
// Returns the same for a label; for a number in plain digits also without needless zeros and plus sign: "yes ", "1.0" and "+01"
// become "yes", "1" and "1".
std::string label_key(std::string_view text, char decimal = '.');

// Returns the index of a name, or of a label, in a list that may spell it differently; -1: missing.
int64_t find_name(const std::vector<std::string>& names, std::string_view text);
int64_t find_label(const std::vector<std::string>& names, std::string_view text, char decimal = '.');

// The labels of training data, with their spellings.
class LabelSet {
 public:
  explicit LabelSet(char decimal = '.') : decimal_(decimal) {}

  // Returns the index of the label, in order of appearance, equal for all its spellings. `text` must outlive the set.
  size_t add(std::string_view text);
  size_t size() const { return labels_.size(); }
  int64_t count() const { return count_; }  // number of texts added

  // Returns the labels in the order of their texts, or of their numbers if all are integers. A label's name is its most frequent
  // spelling; a number's, the shortest of several. places: index of each label in this list.
  std::vector<std::string> names(std::vector<int64_t>& places, bool by_number = true) const;
  // Returns one line about joined spellings, "" if there are none: "\"yes\" (80), \"yes \" (3) are one".
  std::string joined_spellings() const;
  // Returns one line about labels that differ only in case, or mean or look the same (label_looks.h); "" if there are none.
  std::string look_alike(const char* what) const;

 private:
  struct Label {
    std::string key;
    std::map<std::string_view, int64_t> spellings;  // with their counts
    int64_t count() const;
    std::string_view most_frequent() const;
  };
  using Groups = std::map<std::string, std::vector<const Label*>>;
  static std::string listed(const Groups& groups, bool apart);

  char decimal_;
  int64_t count_ = 0;
  std::vector<Label> labels_;
  std::unordered_map<std::string, size_t> by_key_;
  struct KnownText {
    size_t label;
    int64_t* count;
  };
  std::unordered_map<std::string_view, KnownText> by_text_;
};

// Returns the class of each folder of a root. classes: the training data's; empty: learnt here. Adds to `notes` what was joined,
// and what differs only in case. -1: a class that the training data lacks. Throws DataError "[where] ..." for a name that is not
// UTF-8, and if no class is known.
std::vector<int64_t> classes_of_folders(const char* where, const std::filesystem::path& root,
                                        const std::vector<std::string>& folders, std::vector<std::string>& classes,
                                        DataNotes& notes);

// Returns some names of a list, each as spelled() writes it.
std::string some_labels(const std::vector<std::string>& names);

}  // namespace halfstep
