// SPDX-License-Identifier: Apache-2.0
// First configs for folders of pictures.
#include <algorithm>
#include <cctype>
#include <set>

#include "apps/start/init_config.h"
#include "framework/base/check.h"
#include "framework/base/list_text.h"
#include "framework/data/sets/class_folders.h"
#include "framework/data/sets/found_pictures.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/tables/labels.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep::app {
namespace {

namespace fs = std::filesystem;

// Samples some pictures, spread over all, and returns whether none has a colour.
bool are_gray(const ImageFolderDataset& data) {
  constexpr int64_t kMostPictures = 12;
  const int64_t n = std::min(kMostPictures, data.size());
  for (int64_t i = 0; i < n; ++i) {
    try {
      const auto pixels = read_picture(data.file(i * data.size() / n), 3).pixels;
      for (size_t at = 0; at + 2 < pixels.size(); at += 3)
        if (pixels[at] != pixels[at + 1] || pixels[at] != pixels[at + 2]) return false;
    } catch (const DataError&) {}  // the check of the config reports it
  }
  return true;
}

// Returns whether the classes are digits or letters, which mirroring would change.
bool are_characters(const std::vector<std::string>& classes) {
  return std::all_of(classes.begin(), classes.end(),
                     [](const std::string& c) { return c.size() == 1 && std::isalnum(static_cast<unsigned char>(c[0])); });
}

// Returns the first of these folders whose name is one of the words plus `rest`; "" if there is none.
std::string folder_called(const fs::path& root, std::initializer_list<const char*> words, const std::string& rest) {
  const std::vector<std::string> folders = visible_folders(root);
  for (const char* word : words)
    for (const std::string& folder : folders)
      if (rest_without(folder, word) == rest) return folder;
  return "";
}

// Returns the inner folder of a part that only contains a folder of the same name: "seg_train/seg_train".
std::string inner_folder(const fs::path& root, const std::string& part) {
  const std::vector<std::string> inner = visible_folders(root / part);
  return inner.size() == 1 && inner[0] == part && !visible_folders(root / part / part).empty() ? part + '/' + part : part;
}

// Returns "; beside train and not used: extra (20 pictures)" about the folders of pictures that are none of these parts.
std::string unused_folders(const fs::path& root, const std::string& train, const std::set<std::string>& parts) {
  std::vector<std::string> out;
  for (const std::string& folder : visible_folders(root)) {
    PassedOver ignored;
    const size_t pictures = parts.contains(folder) ? 0 : pictures_in(root / folder, ignored).size();
    if (pictures > 0) out.push_back(joined(folder, " (", pictures, pictures == 1 ? " picture)" : " pictures)"));
  }
  return out.empty() ? "" : joined("; beside ", train, " and not used: ", list_text(out), "; a part of the config can name it");
}

// The folders of pictures: parts of the data, each with a folder for each class.
struct PictureFolders {
  fs::path root;                 // of the parts, or of the classes
  std::string train, val, test;  // empty: no such part
  std::string remark;
};

PictureFolders picture_folders(const fs::path& given) {
  PictureFolders out{given, {}, {}, {}, {}};
  for (;;) {  // down to the first folder that contains more than one other
    // Matches "train" and "test", or names with a common rest: "seg_train" and "seg_test".
    std::set<std::string> rests{""};
    for (const std::string& folder : visible_folders(out.root))
      for (const char* word : kTrainWords)
        if (const auto rest = rest_without(folder, word)) rests.insert(*rest);
    for (const std::string& rest : rests) {
      out.train = folder_called(out.root, kTrainWords, rest);
      out.val = folder_called(out.root, kValWords, rest);
      out.test = folder_called(out.root, kTestWords, rest);
      if (out.test.empty()) out.test = folder_called(out.root, {"eval", "evaluation"}, rest);
      if (out.test == out.val) out.test.clear();
      if (!out.train.empty() && (rest.empty() || !out.val.empty() || !out.test.empty())) break;
      out.train.clear();
    }
    const std::set<std::string> named{out.train, out.val, out.test};
    for (std::string* part : {&out.train, &out.val, &out.test}) {
      if (part->empty() || !visible_folders(out.root / *part).empty()) continue;
      if (part != &out.train && !out.train.empty()) out.remark += "; " + *part + " has no folders of classes: left out";
      part->clear();
    }
    for (std::string* part : {&out.train, &out.val, &out.test})
      if (!part->empty()) *part = inner_folder(out.root, *part);
    if (!out.train.empty()) {
      out.remark += unused_folders(out.root, out.train, named);
      break;
    }
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

}  // namespace

std::vector<std::string> visible_folders(const fs::path& root) {
  PassedOver hidden;
  return folders_in(root, hidden);
}

InitParts init_pictures(const fs::path& given) {
  auto [root, train, val, test, remark] = picture_folders(given);
  const ImageFolderDataset data(root / train, {.size = 32});
  const auto classes = int64_t(data.class_names().size());
  for (std::string* part : {&val, &test}) {  // drops parts such as test/unknown
    if (part->empty()) continue;
    const std::vector<std::string> folders = visible_folders(root / *part);
    const auto is_class = [&](const std::string& folder) { return find_label(data.class_names(), folder) >= 0; };
    if (std::any_of(folders.begin(), folders.end(), is_class)) continue;
    remark +=
        joined("; ", *part, " has no folder of a class, but ", some_labels(folders), ": left out; halfstep predict answers for it");
    part->clear();
  }
  if (val.empty()) std::swap(val, test);
  const bool has_val = !val.empty();

  // Reads the sizes of some hundred pictures, spread over all.
  constexpr int64_t kMostRead = 300;
  std::vector<int64_t> sides;
  std::set<std::pair<int64_t, int64_t>> sizes;
  std::string fault;
  for (int64_t i = 0; i < std::min(kMostRead, data.size()); ++i) {
    try {
      const PictureSize s = picture_size(data.file(i * data.size() / std::min(kMostRead, data.size())));
      sides.push_back(std::min(s.width, s.height));
      sizes.insert({s.width, s.height});
    } catch (const DataError& e) { fault = e.what(); }  // halfstep validate lists all of them
  }
  check<DataError>(!sides.empty(), "init", "none of the pictures that were looked at can be read: ", fault);
  std::nth_element(sides.begin(), sides.begin() + sides.size() / 2, sides.end());
  const int64_t middle = sides[sides.size() / 2];
  int64_t size = std::min<int64_t>(middle, 32);  // small pictures keep their size
  while (size >= 32 && size < 128 && size * 3 / 2 < middle) size *= 2;

  InitParts out;
  out.what =
      joined(data.size(), has_val ? " training" : "", " pictures in ", classes, classes == 1 ? " class" : " classes", remark);
  if (classes == 1) out.what += "; with one class every model is right, and accuracy is always 100 %";
  if (const std::string left_out = data.notes().summary; !left_out.empty()) out.what += "; " + left_out;
  out.what = replace_not_utf8(std::move(out.what));  // becomes a comment of one line
  std::replace(out.what.begin(), out.what.end(), '\n', ' ');
  out.data.push_back({"\"root\": " + in_quotes(root.string()), ""});
  out.data.push_back({joined("\"size\": ", size),
                      sizes.size() == 1
                          ? joined("pictures have ", sizes.begin()->first, " x ", sizes.begin()->second, " pixels",
                                   size < middle ? "; smaller ones take less time" : "")
                          : joined("pictures have different sizes; half of those looked at have a shorter side up to ", middle)});
  if (are_gray(data)) out.data.push_back({R"("grayscale": true)", "one channel: no picture looked at has a colour"});
  const std::string flips = R"({"type": "RandomHorizontalFlip"}, )", normal = R"({"type": "Normalize", "from": "data"})";
  const bool mirrors = !are_characters(data.class_names());
  const auto split = [&](const char* name, const std::string& path, const std::string& range, bool augments) {
    out.data.push_back({joined('"', name, R"(": {"type": "ImageFolder", "path": )", in_quotes(path), range, R"(, "transforms": [)",
                               augments && mirrors ? flips : "", normal, "]}"),
                        !augments ? ""
                        : mirrors ? "mirrored at random; leave that out where left and right differ, as in text"
                                  : "not mirrored: classes with names of one character may be digits or letters"});
  };
  const std::string whole = train.empty() ? "." : train;
  split("train", whole, has_val ? "" : R"(, "range": [0, 0.8], "stratified": true)", true);
  split("val", has_val ? val : whole, has_val ? "" : R"(, "range": [0.8, 1], "stratified": true)", false);
  if (!test.empty()) split("test", test, "", false);
  out.layers = init_convolutions(size, true);
  out.loss = R"("CrossEntropyLoss")";
  out.samples = has_val ? data.size() : data.size() * 4 / 5;
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

}  // namespace halfstep::app
