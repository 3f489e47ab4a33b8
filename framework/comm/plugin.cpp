// SPDX-License-Identifier: Apache-2.0
#include "framework/comm/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/comm/host_group.h"
#include "framework/comm/rendezvous.h"
#include "framework/comm/transport_plugin.h"

namespace halfstep {
namespace {

struct PluginNames {
  const char *library, *file, *variable, *package;
};
constexpr PluginNames kMpi = {"MPI", "libhalfstep_mpi.so", "HALFSTEP_MPI_PLUGIN", "mpi"},
                      kGloo = {"Gloo", "libhalfstep_gloo.so", "HALFSTEP_GLOO_PLUGIN", "gloo"};
const PluginNames& names_of(TransportKind kind) { return kind == TransportKind::mpi ? kMpi : kGloo; }

#ifdef HALFSTEP_STATIC
constexpr bool kStatic = true;
#else
constexpr bool kStatic = false;
#endif

// Returns the files to try, in order; the last one is a name for the system's library path.
std::vector<std::string> candidates(const PluginNames& names) {
  if (const char* given = std::getenv(names.variable); given && *given) return {given};
  std::vector<std::string> out;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  if (!error) {
    for (const char* folder : {".", "..", "../..", "../lib"}) {
      const std::filesystem::path file = program / folder / names.file;
      if (std::filesystem::exists(file, error)) out.push_back(file.string());
    }
  }
  out.push_back(names.file);
  return out;
}

// Opens the plugin; returns null and the reason if there is none.
const HalfstepTransport* open_plugin(TransportKind kind, std::string& reason) {
  if (kStatic) {  // dlopen would take libraries of the very glibc that is in the program, and crash with others
    reason = "this halfstep is linked statically and trains in one process";
    return nullptr;
  }
  for (const std::string& place : candidates(names_of(kind))) {
    // RTLD_GLOBAL for MPI, which opens parts of its own that look for its symbols among the global ones.
    void* library = dlopen(place.c_str(), RTLD_NOW | (kind == TransportKind::mpi ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library) {
      reason = dlerror();
      continue;
    }
    const auto entry = reinterpret_cast<decltype(&halfstep_transport)>(dlsym(library, "halfstep_transport"));
    const HalfstepTransport* table = entry ? entry() : nullptr;
    if (table && table->version == HALFSTEP_TRANSPORT_VERSION) return table;
    reason = place + " is not of this version of halfstep";
    return nullptr;
  }
  return nullptr;
}

// Opens the plugin for `launch`. Throws ConfigError if that fails.
const HalfstepTransport& plugin_for(const Launch& launch) {
  const TransportKind kind = launch.by_mpi ? TransportKind::mpi : TransportKind::gloo;
  std::string reason;
  if (const HalfstepTransport* table = open_plugin(kind, reason)) return *table;
  const PluginNames& names = names_of(kind);
  fail<ConfigError>("distributed", launch.launcher, launch.by_mpi ? " started " : " says that this is one of ", launch.size,
                    " ranks, but ", names.file, " could not be opened: ", reason,
                    Help{kStatic ? "take the Debian package, or build halfstep without HALFSTEP_STATIC"
                                 : joined("scripts/setup.sh --with ", names.package, " installs ", names.library,
                                          "; then build again. ", names.variable, " names a library of your own")});
}

class PluginTransport final : public Transport {
 public:
  PluginTransport(const Launch& launch, double timeout_s) : plugin_(plugin_for(launch)), rank_(launch.rank) {
    if (launch.by_mpi) {
      check_open(plugin_.open(&rank_, &size_, nullptr));
      check<ConfigError>(size_ == launch.size && rank_ == launch.rank, "distributed", launch.launcher, " says rank ", launch.rank,
                         " of ", launch.size, ", but MPI says rank ", rank_, " of ", size_,
                         Help{"the launcher must be of the MPI that libhalfstep_mpi.so was built with; or set MASTER_ADDR and "
                              "MASTER_PORT, and the tasks of srun meet there without MPI"});
      return;
    }
    Meeting meeting_state{Rendezvous(launch, timeout_s), {}};
    const HalfstepMeeting meeting{launch.rank, launch.size,    meeting_state.rendezvous.address().c_str(),
                                  timeout_s,   &meeting_state, gather};
    const int code = plugin_.open(&rank_, &size_, &meeting);
    if (meeting_state.error) std::rethrow_exception(meeting_state.error);
    check_open(code);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string describe() const override {
    char text[256];
    plugin_.describe(text, sizeof text);
    return text;
  }
  void all_to_all(const void* send, std::span<const int> send_counts, std::span<const int> send_offsets, void* receive,
                  std::span<const int> receive_counts, std::span<const int> receive_offsets) override {
    check_call(
        plugin_.all_to_all(send, send_counts.data(), send_offsets.data(), receive, receive_counts.data(), receive_offsets.data()));
  }
  void all_gather(const void* send, int bytes, void* receive, std::span<const int> counts, std::span<const int> offsets) override {
    check_call(plugin_.all_gather(send, bytes, receive, counts.data(), offsets.data()));
  }
  void broadcast(void* data, int bytes, int root) override { check_call(plugin_.broadcast(data, bytes, root)); }
  void barrier() override { check_call(plugin_.barrier()); }
  bool test() override {
    int done = 0;
    check_call(plugin_.test(&done));
    return done != 0;
  }
  void roll_call(std::vector<char>& heard) override { check_call(plugin_.roll_call(heard.data())); }
  void answer_roll() override { check_call(plugin_.answer_roll()); }
  void close() override { check_call(plugin_.close()); }

 private:
  struct Meeting {
    Rendezvous rendezvous;
    std::exception_ptr error;  // an exception cannot pass through C
  };
  static int gather(void* self, const void* mine, int bytes, void* all) {
    auto& meeting_state = *static_cast<Meeting*>(self);
    try {
      const std::string out = meeting_state.rendezvous.gather(std::string(static_cast<const char*>(mine), size_t(bytes)));
      std::memcpy(all, out.data(), out.size());
      return 0;
    } catch (...) {
      meeting_state.error = std::current_exception();
      return 1;
    }
  }

  std::string text_of(int code) const {
    char text[512];
    plugin_.error_text(code, text, sizeof text);
    return text;
  }
  void check_open(int code) const {
    if (code != 0) fail<PeerLostError>("distributed", "rank ", rank_, " cannot be connected with the others: ", text_of(code));
  }
  void check_call(int code) const {
    if (code != 0) throw TransportFault(text_of(code));
  }

  const HalfstepTransport& plugin_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::optional<std::string> plugin_fault(TransportKind kind) {
  std::string reason;
  if (open_plugin(kind, reason)) return {};
  return reason;
}

std::unique_ptr<ProcessGroup> open_plugin_group(const Launch& launch, const GroupOptions& options) {
  return HostGroup::open([&] { return std::make_unique<PluginTransport>(launch, options.timeout_s); }, options);
}

}  // namespace halfstep
