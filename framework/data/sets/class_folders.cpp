// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/class_folders.h"

#include <algorithm>
#include <set>

#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
using Classes = std::vector<ClassFolder>;

constexpr size_t kMostNames = 4;  // of a message
constexpr std::initializer_list<const char*> kMaskWords = {"masks",
                                                           "mask",
                                                           "labels",
                                                           "label",
                                                           "annotations",
                                                           "annotation",
                                                           "segmentations",
                                                           "segmentation",
                                                           "segmentationclass",
                                                           "segmentationobject",
                                                           "groundtruth",
                                                           "ground_truth",
                                                           "ground-truth",
                                                           "ground truth",
                                                           "gt",
                                                           "targets",
                                                           "target"},
                                             kPictureWords = {"images",     "image",     "imgs",    "img",   "pictures",
                                                              "photos",     "frames",    "inputs",  "input", "rgb",
                                                              "jpegimages", "originals", "original"};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// Returns "a, b and c", or "a, b, c, d and 3 more".
std::string names_text(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& n : names) all.push_back(replace_not_utf8(n));
  if (all.size() < 2 || all.size() > kMostNames) return list_text(all, kMostNames);
  const std::string last = all.back();
  all.pop_back();
  return list_text(all) + " and " + last;
}

std::vector<std::string> names_of(const Classes& classes) {
  std::vector<std::string> out;
  for (const ClassFolder& c : classes) out.push_back(c.name);
  return out;
}

// A part of the data: 1 is that to train with; its name without the word. 0: a name of no part.
struct PartName {
  int part = 0;
  std::string rest{};
};
PartName part_of(const std::string& name) {
  int part = 0;
  for (const auto& words : {kTrainWords, kValWords, kTestWords, kOtherPartWords}) {
    ++part;
    for (const char* word : words)
      if (const auto rest = rest_without(name, word)) return {part, *rest};
  }
  return {};
}
bool is_part(const std::string& name) {
  const PartName found = part_of(name);
  return found.part > 0 && found.rest.empty();
}

// Returns whether all names are those of parts, and two are parts of one thing: "cat_train", "cat_test".
bool are_parts(const std::vector<std::string>& names) {
  std::map<std::string, std::set<int>> parts;
  for (const std::string& name : names) {
    const PartName found = part_of(name);
    if (found.part == 0) return false;
    parts[found.rest].insert(found.part);
  }
  return std::any_of(parts.begin(), parts.end(), [](const auto& p) { return p.first.empty() || p.second.size() > 1; });
}

// Returns the words of a name, in lower case, without one of `less`; nothing if it has none of them.
std::optional<std::string> words_without(const std::string& name, std::initializer_list<const char*> less) {
  for (const char* word : less)
    if (auto rest = rest_without(name, word)) {
      std::erase_if(*rest, [](char c) { return !is_letter(c); });
      return rest;
    }
  return {};
}

// Returns two folders that are called as pictures and the masks of these: "images" and "masks", "cat" and "cat_masks".
std::optional<std::pair<std::string, std::string>> pictures_and_masks(const std::vector<std::string>& names) {
  for (const std::string& mask : names) {
    const auto rest = words_without(mask, kMaskWords);
    if (!rest) continue;
    for (const std::string& name : names) {
      std::string whole = lower_case(name);
      std::erase_if(whole, [](char c) { return !is_letter(c); });
      if (name != mask && ((!rest->empty() && whole == *rest) || words_without(name, kPictureWords) == rest)) return {{name, mask}};
    }
  }
  return {};
}

// Returns for each folder directly below `prefix` the classes that have pictures in it.
std::map<std::string, std::vector<std::string>> folders_below(const Classes& classes, const std::string& prefix) {
  std::map<std::string, std::vector<std::string>> out;
  for (const ClassFolder& c : classes)
    for (const auto& [folder, count] : c.pictures) {
      if (folder.size() <= prefix.size() || !folder.starts_with(prefix)) continue;
      std::vector<std::string>& having = out[folder.substr(prefix.size(), folder.find('/', prefix.size()) - prefix.size())];
      if (having.empty() || having.back() != c.name) having.push_back(c.name);
    }
  return out;
}

// Returns whether most pictures lie in these folders below `prefix`.
bool hold_most(const Classes& classes, const std::string& prefix, const std::vector<std::string>& folders) {
  int64_t inside = 0, all = 0;
  for (const ClassFolder& c : classes)
    for (const auto& [folder, count] : c.pictures) {
      all += count;
      if (folder.size() <= prefix.size() || !folder.starts_with(prefix)) continue;
      const std::string first = folder.substr(prefix.size(), folder.find('/', prefix.size()) - prefix.size());
      if (std::find(folders.begin(), folders.end(), first) != folders.end()) inside += count;
    }
  return 2 * inside > all;
}

// Returns the doubt that folders with the same names in most classes raise, at the first level that has several of them.
std::string doubt_below(const Classes& classes) {
  for (std::string prefix;;) {
    std::vector<std::string> common, parts;
    std::set<int> kinds;
    std::map<std::string, std::set<int>> parts_of_class;
    for (const auto& [folder, having] : folders_below(classes, prefix)) {
      if (2 * having.size() > classes.size()) common.push_back(folder);
      if (!is_part(folder)) continue;
      parts.push_back(folder);
      for (const std::string& c : having) parts_of_class[c].insert(part_of(folder).part);
    }
    const auto several = std::find_if(parts_of_class.begin(), parts_of_class.end(),
                                      [](const auto& c) { return c.second.size() > 1 && c.second.contains(1); });
    const std::string path = replace_not_utf8(prefix);
    if (several != parts_of_class.end()) {
      const std::string name = replace_not_utf8(several->first) + '/' + path, part = parts.back() + '/';
      const bool are_above = folders_below(classes, prefix + part).size() > 1;  // of classes
      return joined(name, " has the folders ", names_text(parts),
                    ", as parts of data are called, and their pictures are thrown together: ",
                    are_above ? "if the classes lie in these, path must name one, such as " + name + part
                              : joined("a part is the folder above its classes, ", part, name, " in place of ", name, part));
    }
    if (common.size() > 1 && hold_most(classes, prefix, common))
      return joined(classes.size() == 1 ? "the class " : "the classes ", names_text(names_of(classes)),
                    classes.size() == 1 ? " has the folders" : " have the same folders",
                    prefix.empty() ? " " : " in " + path + ", ", names_text(common),
                    ": if those are the classes, path is a level too high, and must name a folder such as ",
                    replace_not_utf8(classes[0].name), prefix.empty() ? "" : "/" + path.substr(0, path.size() - 1));
    if (common.size() != 1) return "";
    prefix += common[0] + '/';
  }
}

}  // namespace

std::optional<std::string> rest_without(const std::string& name, const std::string& word) {
  std::string small = lower_case(name);
  const size_t at = small.find(word), end = at + word.size();
  if (at == std::string::npos || (at > 0 && is_letter(small[at - 1])) || (end < small.size() && is_letter(small[end])))
    return std::nullopt;
  return small.erase(at, word.size());
}

ClassFolder class_folder(const fs::path& folder, const std::vector<fs::path>& pictures) {
  ClassFolder out{folder.filename().string(), {}};
  const size_t begin = folder.native().size() + 1;
  for (const fs::path& p : pictures) {
    const size_t end = p.native().rfind('/');
    ++out.pictures[end > begin ? p.native().substr(begin, end - begin) : ""];
  }
  return out;
}

std::string doubt_of_classes(const Classes& classes) {
  const std::vector<std::string> names = names_of(classes);
  if (names.empty()) return "";
  if (are_parts(names)) {
    constexpr const char* kParts[] = {"", "train", "val", "test", "test"};
    auto [part, thing] = part_of(names.back());
    std::erase_if(thing, [](char c) { return c == '_' || c == '-' || c == ' ' || c == '.'; });
    const bool are_below = thing.empty() || !classes.back().pictures.contains("");
    return joined("the classes are called ", names_text(names), ", as parts of data are: ",
                  are_below ? "path must name one of these folders if the classes lie below"
                            : joined("a part is the folder above its classes, ", kParts[part], '/', replace_not_utf8(thing),
                                     " in place of ", replace_not_utf8(names.back())));
  }
  if (const auto found = pictures_and_masks(names))
    return joined("the classes ", replace_not_utf8(found->first), " and ", replace_not_utf8(found->second),
                  " are called as pictures and their masks are, but here the folder is the class: pictures with masks are read ",
                  "from arrays (docs/your_data.md, \"Arrays\")");
  return doubt_below(classes);
}

}  // namespace halfstep
