// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/found_pictures.h"

#include <algorithm>
#include <functional>

#include "framework/base/check.h"
#include "framework/data/formats/image_file.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
using Paths = PassedOver::Paths;

bool is_hidden(const std::string& name) { return name.starts_with('.') || name == "__MACOSX" || name == "@eaDir"; }

struct Entry {
  fs::path path;
  bool is_folder, is_link;
};

// Calls f for each entry of one folder, except hidden names and dead links.
void for_each_entry(const fs::path& folder, PassedOver& passed, const std::function<void(const Entry&)>& f) {
  std::error_code error, ignored;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (is_hidden(path.filename().string())) {
      passed.hidden.push_back(path);
      continue;
    }
    const bool is_link = it->is_symlink(ignored);  // from the folder, without accessing the file
    const bool is_folder = it->is_directory(ignored), is_file = it->is_regular_file(ignored);
    if (is_link && !fs::exists(it->status(ignored))) passed.dead_links.push_back(path);
    if (is_folder || is_file) f({path, is_folder, is_link});
  }
  check<DataError>(!error, "ImageFolder", "cannot read the folder ", folder.string());
}

// Returns whether a folder, given without links in its path, is one of these or above one of them.
bool leads_back(const fs::path& real, const Paths& visited) {
  return std::any_of(visited.begin(), visited.end(), [&](const fs::path& v) {
    return std::mismatch(real.begin(), real.end(), v.begin(), v.end()).first == real.end();
  });
}

// Collects pictures. visited: the folders on the path to here, without links in their paths.
void collect_pictures(const fs::path& folder, Paths& visited, PassedOver& passed, Paths& out) {
  for_each_entry(folder, passed, [&](const Entry& e) {
    if (e.is_folder) {
      std::error_code ignored;
      const fs::path real = e.is_link ? fs::canonical(e.path, ignored) : visited.back() / e.path.filename();
      if (e.is_link && leads_back(real, visited)) return passed.loops.push_back(e.path);
      visited.push_back(real);
      collect_pictures(e.path, visited, passed, out);
      return visited.pop_back();
    }
    if (is_picture_name(e.path) || (!e.path.has_extension() && has_picture_content(e.path)))
      out.push_back(e.path);
    else if (is_other_picture_name(e.path))
      passed.other_pictures.push_back(e.path);
    else
      ++passed.others[e.path.extension().string()];
  });
}

// Returns a path for messages, which may become JSON or a comment in a config.
std::string printable_path(const fs::path& path) {
  std::string out = replace_not_utf8(path.string());
  for (char& c : out) c = static_cast<unsigned char>(c) < ' ' ? '?' : c;  // char has a sign on x86-64 alone
  return out;
}

// Returns "3 hidden names, such as a/.b".
std::string counted(const Paths& paths, const char* singular, const char* plural) {
  if (paths.empty()) return "";
  return joined(paths.size(), ' ', paths.size() == 1 ? singular : plural, ", such as ",
                printable_path(*std::min_element(paths.begin(), paths.end())));
}

// Returns "10 .webp, 2 .gif".
std::string by_ending(const std::map<std::string, int64_t>& counts) {
  std::string out;
  for (const auto& [end, n] : counts)
    out += joined(out.empty() ? "" : ", ", n, ' ', end.empty() ? "without ending" : printable_path(end));
  return out;
}

}  // namespace

void PassedOver::add(const PassedOver& more) {
  const auto append = [](Paths& to, const Paths& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(hidden, more.hidden), append(dead_links, more.dead_links), append(loops, more.loops);
  append(other_pictures, more.other_pictures);
  for (const auto& [end, n] : more.others) others[end] += n;
}

std::string PassedOver::text() const {
  int64_t rest = 0;
  for (const auto& [end, n] : others) rest += n;
  const std::string files = joined(rest, rest == 1 ? " other file (" : " other files (", by_ending(others), ')');
  std::string out;
  for (const std::string& part : {counted(hidden, "hidden name", "hidden names"),
                                  counted(loops, "link to a folder above", "links to folders above"), rest == 0 ? "" : files})
    if (!part.empty()) out += (out.empty() ? "" : "; ") + part;
  return out;
}

std::vector<std::string> PassedOver::warnings() const {
  std::vector<std::string> out;
  std::map<std::string, int64_t> counts;
  for (const fs::path& p : other_pictures) ++counts[p.extension().string()];
  if (!other_pictures.empty()) {
    const size_t n = other_pictures.size();
    const fs::path& example = *std::min_element(other_pictures.begin(), other_pictures.end());
    out.push_back(joined(n, n == 1 ? " picture is" : " pictures are", " left out, since only PNG and JPEG are read: ",
                         by_ending(counts), ", such as ", printable_path(example)));
  }
  if (!dead_links.empty()) out.push_back(counted(dead_links, "link leads nowhere", "links lead nowhere"));
  return out;
}

std::vector<std::string> folders_in(const fs::path& root, PassedOver& passed, Paths* files) {
  std::error_code ignored;
  check<DataError>(fs::is_directory(root, ignored), "ImageFolder", root.string(),
                   " must be a folder with a folder for each class, but is no folder");
  std::vector<std::string> out;
  const Paths here{fs::canonical(root, ignored)};
  for_each_entry(root, passed, [&](const Entry& e) {
    if (e.is_folder && e.is_link && leads_back(fs::canonical(e.path, ignored), here))
      passed.loops.push_back(e.path);
    else if (e.is_folder)
      out.push_back(e.path.filename().string());
    else if (files && is_picture_name(e.path))
      files->push_back(e.path);
  });
  std::sort(out.begin(), out.end());
  return out;
}

Paths pictures_in(const fs::path& folder, PassedOver& passed) {
  std::error_code ignored;
  Paths out, visited{fs::canonical(folder, ignored)};
  collect_pictures(folder, visited, passed, out);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace halfstep
