// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/published.h"

#include "framework/base/check.h"
#include "framework/base/text_stream.h"

namespace halfstep {

namespace fs = std::filesystem;

fs::path find_file(const std::vector<fs::path>& folders, const std::string& name, const std::vector<std::string>& suffixes) {
  for (const fs::path& folder : folders) {
    for (const std::string& suffix : suffixes) {
      const fs::path path = folder / (name + suffix);
      std::error_code ignored;  // an inaccessible file counts as missing
      if (fs::is_regular_file(path, ignored)) return path;
    }
  }
  return {};
}

void fail_missing(const char* where, const std::vector<std::string>& names, const std::vector<fs::path>& folders,
                  const fs::path& into, const std::vector<PublishedFile>& files, const std::string& then) {
  TextWriter first_places, other_folders, remedy;
  for (const std::string& name : names) first_places << (first_places.tellp() > 0 ? ", " : "") << (folders.front() / name).string();
  for (size_t i = 1; i < folders.size(); ++i) other_folders << (i == 1 ? " and in " : ", ") << folders[i].string();
  remedy << "nothing is downloaded here; fetch and check them with\n  mkdir -p " << into.string() << " && cd " << into.string();
  for (const PublishedFile& file : files) remedy << "\n  curl -LO " << file.url << "    # " << file.bytes << " bytes";
  for (const PublishedFile& file : files) {
    const size_t space = file.digest.find(' ');
    remedy << "\n  echo \"" << file.digest.substr(space + 1) << "  " << file.name << "\" | " << file.digest.substr(0, space)
           << "sum -c";
  }
  if (!then.empty()) remedy << "\n  " << then;
  fail<DataError>(where, "files are missing, looked for ", first_places.str(), other_folders.str(), Help{remedy.str()});
}

}  // namespace halfstep
