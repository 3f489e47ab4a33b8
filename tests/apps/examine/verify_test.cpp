// SPDX-License-Identifier: Apache-2.0
// Runs that must be equal are, and what makes them differ is found and named.
#include "apps/examine/verify.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// Counts its calls in a place that no checkpoint has: a run that is resumed begins at 0 again.
class Counting : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    ++calls_;
    return x * (1 + 0.01 * calls_);
  }
  std::string describe() const override { return "Counting()"; }

 private:
  double calls_ = 0;
};
HALFSTEP_REGISTER_MODULE(Counting);

// Its batches depend on how many were asked for before, in whatever order.
class Drifting : public Dataset {
 public:
  int64_t size() const override { return 64; }
  Shape input_shape() const override { return {4}; }
  Shape target_shape() const override { return {}; }
  int64_t classes() const override { return 3; }
  Batch batch(std::span<const int64_t> indices) const override {
    const auto n = int64_t(indices.size());
    return {full({n, 4}, double(++asked_)), zeros({n}, {.dtype = DType::i64})};
  }
  std::string describe() const override { return "Drifting"; }

 private:
  mutable std::atomic<int> asked_ = 0;
};
HALFSTEP_REGISTER_DATASET(Drifting);

Config small(const std::string& middle, const std::string& data, const std::string& more = "") {
  return resolve_config(Json::parse(R"({"name": "small", "device": "cpu", "seed": 3,
    "model": {"type": "Sequential", "layers": [{"type": "Linear", "out_features": 12, "name": "in"}, )" +
                                    middle + R"(, {"type": "Linear", "out_features": 3, "name": "out"}]},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "AdamW", "lr": 0.01}, "amp": {"dtype": "bfloat16"},
    "data": {"train": )" + data + R"(, "loader": {"batch_size": 8}})" +
                                    more + R"(, "train": {"epochs": 4}})"),
                        "small");
}
const char* const kRandom = R"({"type": "Random", "num_batches": 5, "input_shape": [4], "classes": 3})";

const Check& named(const Certificate& c, std::string_view name) {
  const auto found = std::find_if(c.checks.begin(), c.checks.end(), [&](const Check& check) { return check.name == name; });
  REQUIRE(found != c.checks.end());
  return *found;
}

}  // namespace

TEST_CASE("a run is the same to the bit however it is computed") {
  std::vector<std::string> lines;
  const Certificate c = verify(small(R"({"type": "Dropout", "p": 0.3}, "ReLU")", kRandom),
                               {.steps = 12, .print_line = [&](const std::string& line) { lines.push_back(line); }});
  std::string all;
  for (const std::string& line : lines) all += line + '\n';
  CAPTURE(all);
  CHECK(c.holds());
  for (const char* name : {"stopped and resumed", "under a witness", "2 data workers"}) {
    CHECK(named(c, name).result == Check::Result::equal);
    CHECK(named(c, name).steps == 12);
  }
  CHECK(named(c, "replayed").result == Check::Result::equal);
  CHECK(named(c, "replayed").steps == 6);  // from the checkpoint on
  CHECK(named(c, "recorded").why == "cpu records no such steps");
  CHECK(named(c, "2 ranks").result == Check::Result::not_run);
  CHECK(c.states.size() == 12);
  CHECK(hash_of(c.states.at(11)) != hash_of(c.states.at(12)));
  CHECK(lines.size() == c.checks.size());
}

TEST_CASE("threads change no bits where the config asks for that, and are not judged where it does not") {
  const std::string wide = R"({"type": "Linear", "out_features": 700}, "ReLU", {"type": "Linear", "out_features": 600})",
                    data = R"({"type": "Random", "num_batches": 2, "input_shape": [600], "classes": 3})";
  const auto config = [&](const std::string& key) {
    Config c = small(wide, data, ", \"performance\": {" + key + "}");
    return resolve_config(c.json, "small", {.sets = {"amp=null", "data.loader.batch_size=70"}});
  };
  {
    const ThreadsScope two(2);
    const Certificate c = verify(config(R"("threads_independent": true)"), {.steps = 4});
    for (const char* name : {"1 thread", "3 threads", "8 threads"}) {
      CHECK(named(c, name).result == Check::Result::equal);
      CHECK(named(c, name).judged);
    }
    CHECK(c.holds());
  }
  const ThreadsScope one(1);
  const Certificate c = verify(config(""), {.steps = 4});
  CHECK_FALSE(named(c, "2 threads").judged);
  CHECK(c.holds());
  if (named(c, "2 threads").result == Check::Result::differs)
    CHECK(contains(text_of(named(c, "2 threads")), " (not judged: performance.threads_independent makes them equal)"));
  set_threads_independent(false);
}

TEST_CASE("what a checkpoint does not hold is found, with the step, the kernel and the layer") {
  const Certificate c = verify(small(R"({"type": "Counting", "name": "odd"})", kRandom), {.steps = 10});
  CHECK_FALSE(c.holds());
  for (const char* name : {"stopped and resumed", "replayed"}) {
    const Check& check = named(c, name);
    CAPTURE(text_of(check));
    CHECK(check.result == Check::Result::differs);
    CHECK(check.difference->step == 6);  // the first after the checkpoint
    CHECK(std::find(check.difference->parts.begin(), check.difference->parts.end(), "parameters") != check.difference->parts.end());
    CHECK_MESSAGE(check.origin.starts_with("forward of mul in odd (kernel "), check.origin);
  }
  CHECK(named(c, "under a witness").result == Check::Result::equal);
  CHECK(named(c, "2 data workers").result == Check::Result::equal);
  const Json json = certificate_json(c);
  CHECK(json["holds"] == false);
  CHECK(json["checks"][1]["first_step"] == 6);
}

TEST_CASE("batches that differ are distinguished from steps that do") {
  const Certificate c = verify(small("\"ReLU\"", "\"Drifting\""), {.steps = 6});
  const Check& check = named(c, "stopped and resumed");
  CAPTURE(text_of(check));
  CHECK(check.result == Check::Result::differs);
  CHECK(check.difference->step == 4);
  CHECK(check.difference->parts[0] == "batch");
  CHECK(check.origin == "the batch: the data set or its transforms");
}

TEST_CASE("the first difference of traces and of kernels") {
  const StateTrace plain{{1, {{"a", "x"}, {"b", "y"}}}, {2, {{"a", "z"}, {"b", "y"}}}};
  StateTrace other = plain;
  CHECK_FALSE(first_difference(plain, other));
  other[2]["a"] = "other";
  CHECK(first_difference(plain, other)->step == 2);
  CHECK(first_difference(plain, other)->parts == std::vector<std::string>{"a"});
  CHECK_FALSE(first_difference(plain, other, {"b"}));
  other.erase(2);
  CHECK(first_difference(plain, other)->step == 2);
  CHECK(first_difference(plain, other)->parts.empty());
  CHECK(first_difference(other, plain)->step == 2);
  CHECK_FALSE(first_difference(plain, {{2, plain.at(2)}}));  // begins later

  const KernelHashes log{{"forward of linear in a", "[2]", {"1"}}, {"forward of relu in b", "[2]", {"2", "3"}}};
  KernelHashes changed = log;
  CHECK_FALSE(first_difference(log, changed));
  changed[1].writes[1] = "4";
  changed.insert(changed.begin(), {"forward of autocast (copy) in a", "[9]", {"5"}});  // only one run makes this copy
  CHECK(first_difference(log, changed) == "forward of relu in b (kernel 2 of 2)");
  changed.pop_back();
  CHECK(first_difference(log, changed) == "forward of relu in b (kernel 2 of 2) is called 1 times, then 0");
  CHECK(first_difference({log[0]}, {log[0], log[1]}) == "1 kernels are called, then 2");
}

TEST_CASE("verify that is stopped by a signal leaves nothing behind, and ends by it") {
  const TempDir dir;
  write(dir / "c.json", small("\"ReLU\"", kRandom, R"(, "output_dir": "r")").json.dump());
  fs::create_directory(dir / "tmp");
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  setenv("TMPDIR", (dir / "tmp").c_str(), 1);
  for (const int signal : {SIGTERM, SIGINT}) {
    Child child(dir, "verify c.json --steps 100000000 --set train.epochs=100000000");
    CHECK(child.until([&] { return child.catches(signal) && !fs::is_empty(dir / "tmp"); }));
    CHECK(child.end(signal) == -signal);
    CHECK(fs::is_empty(dir / "tmp"));
    CHECK(contains(child.output(), "[verify] stopped by a signal; nothing was left behind"));
  }
  before ? setenv("TMPDIR", kept.c_str(), 1) : unsetenv("TMPDIR");
}

TEST_CASE("verify from the command line") {
  const TempDir dir;
  write(dir / "c.json", small("\"ReLU\"", kRandom).json.dump());
  const Ran r = run(dir, "verify c.json --steps 4 --out cert.json");
  CAPTURE(r.err);
  CHECK(r.code == 0);
  CHECK(contains(r.out, "stopped and resumed   equal, 4 steps"));
  CHECK(contains(r.out, "all equal: state after step 4 "));
  const Json certificate = Json::parse(read(dir / "cert.json"));
  CHECK(certificate["holds"] == true);
  CHECK(certificate["states"].size() == 4);
  CHECK(certificate["build"].get<std::string>().starts_with("halfstep "));
  CHECK(certificate["machine"].contains("device"));
  CHECK_FALSE(fs::exists(dir / "runs"));
  CHECK(run(dir, "verify c.json --steps 4 --json").json()["states"] == certificate["states"]);
  for (const auto& entry :
       {std::pair{"c.json --steps 1", "--steps must be at least 2"}, std::pair{"c.json --ranks 1", "--ranks must be at least 2"},
        std::pair{"none.json", "none.json"}}) {
    const auto& options = entry.first;
    const auto& said = entry.second;
    const Ran wrong = run(dir, joined("verify ", options));
    CHECK(wrong.code == 2);
    CHECK_MESSAGE(contains(wrong.err, said), wrong.err);
  }
}
