// SPDX-License-Identifier: Apache-2.0
#include "framework/io/checkpoint/checkpoint.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <iterator>
#include <nlohmann/json.hpp>

#include "framework/base/check.h"
#include "framework/base/log.h"
#include "framework/io/files/checksum.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;
namespace fs = std::filesystem;

namespace {

Tensor numbers(int64_t n, float first) {
  const Tensor t = Tensor::empty({n});
  for (int64_t i = 0; i < n; ++i) t.data_ptr<float>()[i] = first + float(i);
  return t;
}

CheckpointContents contents(int step) {
  return {{{"0.weight", numbers(4, float(step))}},
          {{"optimizer.0.momentum", numbers(4, 9)}},
          nlohmann::json{{"step", step}, {"scale", 65536.0}}};
}

std::string warnings;
void collect(logging::Level, std::string_view text) { warnings += std::string(text) + '\n'; }

}  // namespace

TEST_CASE("a checkpoint gives back what was saved") {
  const TempDir dir;
  const CheckpointContents saved = contents(1234);
  const fs::path path = save_checkpoint(dir / "run", 1234, saved);
  CHECK(path == dir / "run/step-00001234");
  for (const char* file : {"model.safetensors", "state.safetensors", "state.json", "manifest.json"}) CHECK(fs::exists(path / file));
  CHECK(!fs::exists(dir / "run/step-00001234.tmp"));
  CHECK(read_bytes(dir / "run/latest") == "step-00001234\n");
  // By its own path, by the directory of checkpoints, and by the pointer file.
  for (const fs::path& name : {path, dir / "run", dir / "run/latest"}) {
    const CheckpointContents back = load_checkpoint(name);
    CHECK(sha256(back.model) == sha256(saved.model));
    CHECK(sha256(back.state) == sha256(saved.state));
    CHECK(*back.meta == *saved.meta);
  }
}

TEST_CASE("a step saved again is replaced") {
  const TempDir dir;
  save_checkpoint(dir.path(), 7, contents(1));
  save_checkpoint(dir.path(), 7, contents(2));
  CHECK(load_checkpoint(dir.path()).meta["step"] == 2);
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 2);
}

TEST_CASE("keep_last removes the oldest, never best or latest") {
  const TempDir dir;
  save_checkpoint(dir.path(), 1, contents(1), 2);
  mark_best(dir.path(), 1);
  for (int step = 2; step <= 5; ++step) save_checkpoint(dir.path(), step, contents(step), 2);
  CHECK(list_checkpoints(dir.path()) == std::vector<int64_t>{1, 4, 5});
  CHECK(best_checkpoint(dir.path()) == dir / "step-00000001");
  CHECK(load_checkpoint(dir / "best").meta["step"] == 1);
  // A run that went back: the newest by name are others, the latest stays.
  save_checkpoint(dir.path(), 3, contents(3), 1);
  CHECK(list_checkpoints(dir.path()) == std::vector<int64_t>{1, 3, 5});
  CHECK(latest_checkpoint(dir.path()) == dir / "step-00000003");
  CHECK(contains(message_of<IoError>([&] { mark_best(dir.path(), 99); }), "there is no such checkpoint"));
}

TEST_CASE("with a pace, a power failure at any time leaves a whole checkpoint with its best ones") {
  const TempDir dir;
  const auto there = [&] { return list_checkpoints(dir.path()); };
  CheckpointPace pace(1000, 1000);  // the first save alone waits
  // As a run does: the best ones are kept, and named in the state.
  std::vector<int64_t> best;
  const auto save_step = [&](int64_t step, const std::vector<int64_t>& kept) {
    best = kept;
    save_checkpoint(dir.path(), step, contents(int(step)), 2, best, &pace);
    if (!best.empty()) mark_best(dir.path(), best[0], Waits::no);
  };
  CHECK(pace.is_due());
  save_step(1, {1});
  CHECK((!pace.is_due() && !pace.has_pending()));
  save_step(2, {2, 1});
  save_step(3, {2, 1});
  CHECK((pace.is_pending(2) && pace.is_pending(3) && !pace.is_pending(1)));
  save_step(4, {4, 2});  // 1 is none of the best any more, and all that is on the disk
  save_step(5, {4, 2});
  save_step(6, {6, 4});
  CHECK(there() == std::vector<int64_t>{1, 4, 5, 6});
  CHECK(latest_checkpoint(dir.path()) == dir / "step-00000006");
  CHECK(best_checkpoint(dir.path()) == dir / "step-00000006");
  for (const int64_t step : there()) verify_checkpoint(dir / checkpoint_name(step));
  // What was not waited for may be lost, in whole or in part.
  {
    const TempDir failed;
    fs::copy(dir.path(), failed / "run", fs::copy_options::recursive);
    fs::resize_file(failed / "run/step-00000006/model.safetensors", 0);
    fs::remove(failed / "run/step-00000005/manifest.json");
    fs::remove_all(failed / "run/step-00000004");
    write_bytes(failed / "run/latest", "");
    const logging::Capture capture([](logging::Level, std::string_view) {});
    CHECK(latest_checkpoint(failed / "run") == failed / "run/step-00000001");
  }
  // One that is on the disk is not replaced by one that is not.
  save_checkpoint(dir.path(), 1, contents(7), 0, {}, &pace);
  CHECK(!pace.has_pending());
  save_step(7, {6, 4});
  CHECK(pace.is_pending(7));
  save_step(7, {6, 4});
  CHECK((pace.is_pending(7) && there() == std::vector<int64_t>{1, 4, 5, 6, 7}));
  settle_checkpoints(dir.path(), pace, 2, best);
  CHECK((!pace.has_pending() && there() == std::vector<int64_t>{4, 6, 7}));
  settle_checkpoints(dir.path(), pace, 1, {});  // nothing is pending
  CHECK(there() == std::vector<int64_t>{4, 6, 7});
  // A pace without a pause is as none.
  const TempDir other;
  CheckpointPace always(0, 0);
  for (int step = 1; step <= 4; ++step) save_checkpoint(other.path(), step, contents(step), 2, {}, &always);
  CHECK((!always.has_pending() && list_checkpoints(other.path()) == std::vector<int64_t>{3, 4}));
}

TEST_CASE("a damaged latest checkpoint falls back to the newest whole one, with a warning") {
  const TempDir dir;
  for (int step = 1; step <= 3; ++step) save_checkpoint(dir.path(), step, contents(step));
  std::string bytes = read_bytes(dir / "step-00000003/model.safetensors");
  bytes.back() ^= 1;
  write_bytes(dir / "step-00000003/model.safetensors", bytes);
  const std::string message = message_of<IoError>([&] { load_checkpoint(dir / "step-00000003"); });
  CHECK(contains(message, "step-00000003/model.safetensors: the file is damaged: its SHA-256 is "));

  warnings.clear();
  {
    const logging::Capture capture(collect);
    CHECK(latest_checkpoint(dir.path()) == dir / "step-00000002");
  }
  CHECK(contains(warnings, "the latest checkpoint cannot be used ("));
  CHECK(contains(warnings, "falling back to " + (dir / "step-00000002").string()));

  // Cut off, then without its manifest, then nothing whole at all.
  write_bytes(dir / "step-00000002/state.json", "{");
  CHECK(contains(message_of<IoError>([&] { verify_checkpoint(dir / "step-00000002"); }), "must have "));
  fs::remove(dir / "step-00000001/manifest.json");
  const std::string none = message_of<CheckpointError>([&] { latest_checkpoint(dir.path()); });
  CHECK(contains(none, "[checkpoint] " + dir.path().string() + ": holds checkpoints, but none can be read:\n  "));
  CHECK(contains(none, "step-00000003/model.safetensors: the file is damaged"));
  CHECK(contains(none, "step-00000002/state.json: must have "));
  CHECK(contains(none, "step-00000001/manifest.json: the file is missing"));
  CHECK(contains(message_of<CheckpointError>([&] { load_checkpoint(dir / "step-00000001"); }), "manifest.json"));
}

TEST_CASE("checkpoints: a lost or foreign pointer") {
  const TempDir dir;
  CHECK(!latest_checkpoint(dir.path()));
  CHECK(!best_checkpoint(dir.path()));
  CHECK(contains(message_of<IoError>([&] { load_checkpoint(dir.path()); }), "holds no checkpoint"));
  CHECK(contains(message_of<IoError>([&] { load_checkpoint(dir / "nowhere"); }), "there is no such file or directory"));
  save_checkpoint(dir.path(), 1, contents(1));
  write_bytes(dir / "latest", "../../etc\n");
  CHECK(contains(message_of<IoError>([&] { load_checkpoint(dir / "latest"); }), "must hold the name of a checkpoint"));
  const logging::Capture capture([](logging::Level, std::string_view) {});
  CHECK(latest_checkpoint(dir.path()) == dir / "step-00000001");
}

TEST_CASE("checkpoints that cannot be read are neither pruned nor replaced") {
  const TempDir dir;
  for (int step = 1; step <= 3; ++step) save_checkpoint(dir.path(), step, contents(step));
  fs::resize_file(dir / "step-00000001/model.safetensors", 10);
  fs::remove(dir / "step-00000003/manifest.json");
  std::vector<fs::path> passed_over;
  warnings.clear();
  const logging::Capture capture(collect);
  CHECK(latest_checkpoint(dir.path(), &passed_over) == dir / "step-00000002");
  CHECK(passed_over == std::vector{dir / "step-00000003"});
  save_checkpoint(dir.path(), 4, contents(4), 1);
  CHECK(list_checkpoints(dir.path()) == std::vector<int64_t>{1, 3, 4});
  save_checkpoint(dir.path(), 3, contents(5));
  CHECK(load_checkpoint(dir / "step-00000003").meta["step"] == 5);
  CHECK(contains(warnings, "step-00000003 cannot be read; it is kept as " + (dir / "step-00000003.unreadable").string()));
  CHECK(fs::exists(dir / "step-00000003.unreadable/model.safetensors"));
  set_aside(dir / "step-00000001");
  fs::create_directory(dir / "step-00000001");
  set_aside(dir / "step-00000001");
  CHECK(fs::exists(dir / "step-00000001.unreadable-2"));
  CHECK(list_checkpoints(dir.path()) == std::vector<int64_t>{3, 4});
  for (const char* name : {"step-00000001", "step-00000001.unreadable-2", "latest", "best"}) CHECK(is_checkpoint_name(name));
  for (const char* name : {"step-1", "step-00000001.txt", "notes.unreadable", "step-00000001.tmp"})
    CHECK(!is_checkpoint_name(name));
}

TEST_CASE("a folder whose pointer names what is gone does not look empty") {
  const TempDir dir;
  save_checkpoint(dir.path(), 1, contents(1));
  fs::remove_all(dir / "step-00000001");
  CHECK(contains(message_of<CheckpointError>([&] { latest_checkpoint(dir.path()); }),
                 "step-00000001/manifest.json: the file is missing"));
}

TEST_CASE("what killed saves left is completed or removed") {
  const TempDir dir;
  for (int step = 1; step <= 2; ++step) save_checkpoint(dir.path(), step, contents(step));
  fs::rename(dir / "step-00000002", dir / "step-00000002.tmp");  // written, not renamed
  fs::copy(dir / "step-00000001", dir / "step-00000001.tmp");    // what an exchange leaves
  fs::copy(dir / "step-00000001", dir / "step-00000003.old");    // half removed
  fs::copy(dir / "step-00000001", dir / "step-00000004.tmp");    // half written
  fs::remove(dir / "step-00000004.tmp/manifest.json");
  clean_up_checkpoints(dir.path());
  CHECK(list_checkpoints(dir.path()) == std::vector<int64_t>{1, 2});
  CHECK(load_checkpoint(dir / "step-00000002").meta["step"] == 2);
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 3);  // and `latest`
}

TEST_CASE("a save that fails leaves the checkpoint of the step, and nothing else") {
  const TempDir dir;
  save_checkpoint(dir.path(), 1, contents(1));
  CheckpointContents more = contents(2);
  more.model["1.weight"] = numbers(100000, 0);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {100000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = message_of<IoError>([&] { save_checkpoint(dir.path(), 1, more); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  CHECK(contains(message, "step-00000001.tmp/model.safetensors: File too large"));
  CHECK(load_checkpoint(dir.path()).meta["step"] == 1);
  CHECK(std::distance(fs::directory_iterator(dir.path()), {}) == 2);
}

TEST_CASE("a checkpoint that its manifest confirms, and that holds no tensors or no JSON") {
  const TempDir dir;
  const fs::path path = save_checkpoint(dir.path(), 1, contents(1));
  const std::string manifest = read_bytes(path / "manifest.json");
  for (const char* file : {"model.safetensors", "state.json"}) {
    const std::string before = read_bytes(path / file);
    nlohmann::json changed = nlohmann::json::parse(manifest);
    changed["files"][file] = {{"bytes", 8}, {"sha256", sha256("nonsense")}};
    write_bytes(path / file, "nonsense");
    write_bytes(path / "manifest.json", changed.dump());
    CHECK(contains(message_of<CheckpointError>([&] { load_checkpoint(path); }), (path / file).string() + ": "));
    write_bytes(path / file, before);
  }
}

TEST_CASE("checkpoints: manifests that are not") {
  const TempDir dir;
  const fs::path path = save_checkpoint(dir.path(), 1, contents(1));
  const auto verify_with = [&](const std::string& manifest) {
    write_bytes(path / "manifest.json", manifest);
    return message_of<IoError>([&] { verify_checkpoint(path); });
  };
  CHECK(contains(verify_with("nonsense"), "not valid JSON"));
  CHECK(contains(verify_with("[]"), "not the manifest of a checkpoint"));
  CHECK(contains(verify_with("{\"format\": \"halfstep-checkpoint\", \"version\": 99}"),
                 "version 99 was written by a newer halfstep, this build reads version 2"));
  CHECK(contains(verify_with("{\"format\": \"halfstep-checkpoint\", \"version\": 1, \"files\": {}}"), "model.safetensors"));
}
