#include "framework/comm/mpi.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/comm/host_group.h"
#include "framework/comm/mpi_plugin.h"

namespace halfstep {
namespace {

constexpr const char* kFile = "libhalfstep_mpi.so";
using Entry = const HalfstepMpi* (*)();

std::vector<std::string> places() {
  if (const char* given = std::getenv("HALFSTEP_MPI_PLUGIN"); given && *given) return {given};
  std::vector<std::string> out;
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  if (!none) {
    for (const char* folder : {".", "..", "../..", "../lib"}) {
      const std::filesystem::path file = program / folder / kFile;
      if (std::filesystem::exists(file, none)) out.push_back(file.string());
    }
  }
  out.push_back(kFile);
  return out;
}

// The plugin, or null and why there is none.
const HalfstepMpi* open_plugin(std::string& why) {
  for (const std::string& place : places()) {
    // MPI opens parts of its own, which look for its symbols among the global ones.
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      why = dlerror();
      continue;
    }
    const auto entry = reinterpret_cast<Entry>(dlsym(library, "halfstep_mpi"));
    const HalfstepMpi* table = entry ? entry() : nullptr;
    if (table && table->version == HALFSTEP_MPI_VERSION) return table;
    why = place + " is not of this version of halfstep";
    return nullptr;
  }
  return nullptr;
}

const HalfstepMpi& plugin(const Launch& launch) {
  std::string why;
  if (const HalfstepMpi* table = open_plugin(why)) return *table;
  fail<ConfigError>(
      "distributed", launch.launcher, " started ", launch.size, " ranks, but ", kFile, " could not be opened: ", why,
      Help{"scripts/setup.sh --with mpi installs MPI; then build again. HALFSTEP_MPI_PLUGIN names a library of your own"});
}

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const Launch& launch) : mpi_(plugin(launch)) {
    held("MPI_Init", mpi_.open(&rank_, &size_));
    check<ConfigError>(size_ == launch.size && rank_ == launch.rank, "distributed", launch.launcher, " says rank ", launch.rank,
                       " of ", launch.size, ", but MPI says rank ", rank_, " of ", size_,
                       Help{"the launcher must be of the MPI that libhalfstep_mpi.so was built with"});
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string describe() const override {
    char text[256];
    mpi_.describe(text, sizeof text);
    return text;
  }
  void all_to_all(const void* send, std::span<const int> send_counts, std::span<const int> send_offsets, void* receive,
                  std::span<const int> receive_counts, std::span<const int> receive_offsets) override {
    held("all_to_all",
         mpi_.all_to_all(send, send_counts.data(), send_offsets.data(), receive, receive_counts.data(), receive_offsets.data()));
  }
  void all_gather(const void* send, int bytes, void* receive, std::span<const int> counts, std::span<const int> offsets) override {
    held("all_gather", mpi_.all_gather(send, bytes, receive, counts.data(), offsets.data()));
  }
  void broadcast(void* data, int bytes, int root) override { held("broadcast", mpi_.broadcast(data, bytes, root)); }
  void barrier() override { held("barrier", mpi_.barrier()); }
  bool test() override {
    int done = 0;
    held("an operation", mpi_.test(&done));
    return done != 0;
  }
  void roll_call(std::vector<char>& heard) override { held("the roll call", mpi_.roll_call(heard.data())); }
  void answer_roll() override { held("the roll call", mpi_.answer_roll()); }
  void close() override { held("MPI_Finalize", mpi_.close()); }

 private:
  void held(const char* what, int code) const {
    if (code == 0) return;
    char text[512];
    mpi_.error_text(code, text, sizeof text);
    fail<PeerLostError>("distributed", what, " failed on rank ", rank_, ": ", text);
  }

  const HalfstepMpi& mpi_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::optional<std::string> mpi_plugin_fault() {
  std::string why;
  if (open_plugin(why)) return {};
  return why;
}

std::unique_ptr<ProcessGroup> open_mpi_group(const Launch& launch, const GroupOptions& options) {
  return HostGroup::open([&] { return std::make_unique<MpiTransport>(launch); }, options);
}

}  // namespace halfstep
