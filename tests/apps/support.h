// Temporary folders, and the halfstep program as a child process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "apps/config/json.h"

namespace halfstep::app::testing {

namespace fs = std::filesystem;

class TempDir {
 public:
  TempDir() {
    std::string name = (fs::temp_directory_path() / "halfstep-apps-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempDir() { fs::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline std::string read(const fs::path& p) {
  std::ifstream in(p);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}
inline fs::path write(const fs::path& p, const std::string& text) {
  std::ofstream(p) << text;
  return p;
}

inline fs::path program() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "halfstep"; }
inline fs::path configs() { return fs::path(HALFSTEP_SOURCE_DIR) / "configs"; }

struct Ran {
  int code;
  std::string out, err;
  Json json() const {  // the last line of stdout
    std::string line = out.substr(0, out.find_last_not_of('\n') + 1);
    if (const size_t cut = line.rfind('\n'); cut != std::string::npos) line = line.substr(cut + 1);
    return Json::parse(line);
  }
};
// `arguments` as a shell reads them; runs in `dir`.
inline Ran run(const TempDir& dir, const std::string& arguments) {
  const std::string command =
      "cd '" + dir.path().string() + "' && '" + program().string() + "' " + arguments + " >out.txt 2>err.txt </dev/null";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(dir / "out.txt"), read(dir / "err.txt")};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace halfstep::app::testing
