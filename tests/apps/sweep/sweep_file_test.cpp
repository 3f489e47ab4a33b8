// SPDX-License-Identifier: Apache-2.0
#include "apps/sweep/sweep_file.h"

#include <doctest/doctest.h>

#include "apps/sweep/members.h"
#include "framework/base/check.h"
#include "tests/apps/tiny_run.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// "lr=0.1 epochs=1, lr=0.1 epochs=2"
std::string members_of(const SweepFile& sweep) {
  std::string out;
  for (const Settings& values : sweep.members) {
    if (!out.empty()) out += ",";
    for (const Setting& s : values) out += " " + s.key.substr(s.key.rfind('.') + 1) + "=" + s.value.dump();
  }
  return out;
}

// Each member's folder as a second start finds it, where the first made those of `made`.
std::vector<std::string> folders_of(const fs::path& file) {
  const SweepFile sweep = read_sweep(file);
  SweepMembers members = check_members(sweep, {});
  assign_folders(sweep, members);
  make_folders(members);
  std::vector<std::string> out;
  for (const SweepMember& m : members.all) out.push_back(m.name);
  for (const std::string& name : members.others) out.push_back("other " + name);
  return out;
}

std::string in_folder(const Folder& dir, const std::string& text) {
  return R"({"base": "tiny.json", "output_dir": ")" + (dir / "s").string() + R"(", )" + text + "}";
}

}  // namespace

TEST_CASE("sweep: a grid's last key changes first, in the order of the file; each draw has a whole grid") {
  const Folder dir;
  const auto read_text = [&](const std::string& text) { return read_sweep(write(dir / "s.json", in_folder(dir, text))); };
  const SweepFile grid = read_text(R"("grid": {"train.epochs": [1, 2], "optimizer.lr": [0.1, 0.2]} // a comment)"
                                   "\n");
  CHECK(grid.name == "s");
  CHECK(grid.keys == std::vector<std::string>{"train.epochs", "optimizer.lr"});
  CHECK(members_of(grid) == " epochs=1 lr=0.1, epochs=1 lr=0.2, epochs=2 lr=0.1, epochs=2 lr=0.2");

  const SweepFile named = read_sweep(
      write(dir / "n.json", R"({"name": "lr", "base": "tiny.json", "output_dir": "out/${name}", "grid": {"seed": [1]}})"));
  CHECK(named.output_dir == "out/lr");
  CHECK(read_sweep(write(dir / "n.json", R"({"base": "tiny.json", "grid": {"seed": [1]}})")).output_dir == "runs/n");

  const std::string random = R"("random": {"draws": 2, "seed": 3, "keys": {"optimizer.lr": {"from": 0.1, "to": 1.0}}})";
  const SweepFile draws = read_text(random);
  REQUIRE(draws.members.size() == 2);
  CHECK(members_of(draws) == members_of(read_text(random)));
  const SweepFile both = read_text(random + R"(, "grid": {"train.epochs": [1, 2]})");
  REQUIRE(both.members.size() == 4);
  CHECK(both.members[1][0].value == draws.members[0][0].value);
  CHECK(both.members[1][1].value == 2);
  CHECK(both.members[3][0].value == draws.members[1][0].value);
}

TEST_CASE("sweep: all errors of a file at once, each with its place") {
  const Folder dir;
  const auto fault = [&](const std::string& text) -> std::string {
    try {
      read_sweep(write(dir / "bad.json", text));
    } catch (const ConfigError& e) { return e.what(); }
    return "";
  };
  const std::string several = fault(R"({"base": "tiny.json", "randon": 1, "set": {"optimizer.lr": 1},
 "grid": {"optimizer.lr": [1], "output_dir": ["a"], "train.epochs": 3}})");
  CHECK(contains(several, "[config] 4 errors in "));
  CHECK(contains(several, "bad.json:1:23: randon: unknown key of a sweep; did you mean \"random\"?"));
  CHECK(contains(several, "bad.json:2:11: grid.optimizer.lr: is given in two of \"set\", \"grid\" and \"random\""));
  CHECK(contains(several, "bad.json:2:32: grid.output_dir: cannot be given here: each member has its own folder"));
  CHECK(contains(several, "bad.json:2:69: grid.train.epochs: must be a list of values, or a range such as"));
  CHECK(
      contains(fault(R"({"grid": {"optimizer.lr": [1]}})"), "needs either \"base\", the file of a config, or \"config\" with one"));
  CHECK(contains(fault(R"({"base": "tiny.json"})"), "a sweep needs \"grid\" or \"random\""));
  CHECK(contains(fault(R"({"base": "tiny.json", "grid": {"a": {"from": 1, "to": 100}, "b": {"from": 1, "to": 100}}})"),
                 "a sweep may have 9999 members"));
  CHECK(contains(fault(R"({"base": "tiny.json", "random": {"draws": 0, "keys": {"a": [1]}}})"),
                 "random.draws: must be an integer in [1, 9999], got 0"));
  CHECK(contains(fault(R"({"base": "tiny.json", "random": {"draws": 1}})"), "random.keys: must have at least one key"));
  CHECK(contains(fault(R"({"config": {"extends": "tiny.json"}, "grid": {"a": [1]}})"), "config.extends: cannot be given here"));
  CHECK(contains(fault(R"({"base": )"), "bad.json:1:10: "));
  CHECK(contains(fault(R"({"base": "${env:HALFSTEP_NO_SUCH}", "grid": {"a": [1]}})"),
                 "bad.json:1:10: base: the environment variable HALFSTEP_NO_SUCH is not set"));
  std::string many = R"({"base": "tiny.json", "grid": {"a": [1])";
  for (int i = 0; i < 100; ++i) many += joined(R"(, "k)", i, R"(": [1])");
  CHECK(contains(fault(many + "}}"), "grid.k99: a sweep may have 100 keys"));
  CHECK(contains(fault("[]"), "a sweep must be an object"));
}

TEST_CASE("sweep: members are known by their configs, whatever order the file has; others are named") {
  const Folder dir;
  const auto made = [&](const std::string& text) { return folders_of(write(dir / "s.json", in_folder(dir, text))); };
  using Names = std::vector<std::string>;
  const Names first{"0001-lr0.1", "0002-lr0.2"};
  CHECK(made(R"("grid": {"optimizer.lr": [0.1, 0.2]})") == first);
  CHECK(made(R"("grid": {"optimizer.lr": [0.1, 0.2]})") == first);
  CHECK(made(R"("grid": {"optimizer.lr": [0.2, 0.3, 0.1]})") == Names{"0002-lr0.2", "0003-lr0.3", "0001-lr0.1"});
  CHECK(made(R"("grid": {"optimizer.lr": [0.3, 0.1]})") == Names{"0003-lr0.3", "0001-lr0.1", "other 0002-lr0.2"});
  CHECK(made(R"("grid": {"optimizer.lr": [0.3], "seed": [5]})") ==
        Names{"0004-lr0.3-seed5", "other 0001-lr0.1", "other 0002-lr0.2", "other 0003-lr0.3"});
  // What a value is called does not matter, only what is trained.
  CHECK(made(R"("set": {"optimizer": {"type": "SGD", "lr": 0.1}}, "grid": {"seed": [0, 5]})")[0] == "0001-lr0.1");
  // A base that changed is another config.
  replace_in(dir / "tiny.json", "\"epochs\": 4", "\"epochs\": 5");
  CHECK(made(R"("grid": {"optimizer.lr": [0.1]})")[0] == "0006-lr0.1");
  CHECK(made(R"("set": {"train.epochs": 4}, "grid": {"optimizer.lr": [0.1]})")[0] == "0001-lr0.1");
  // Defaults that are newer than the folder's config are no difference.
  const fs::path stored = dir / "s/0001-lr0.1/config.json";
  Json old = Json::parse(read(stored));
  REQUIRE(old.erase("diagnostics") == 1);
  write(stored, old.dump());
  CHECK(made(R"("set": {"train.epochs": 4}, "grid": {"optimizer.lr": [0.1]})")[0] == "0001-lr0.1");
}

TEST_CASE("sweep: one member for each config, one monitored value for all, and data that can be read") {
  const Folder dir;
  const auto members = [&](const std::string& text) {
    return check_members(read_sweep(write(dir / "s.json", in_folder(dir, text))), {});
  };
  const SweepMembers same = members(R"("grid": {"optimizer.lr": [0.1, 0.1, 0.2], "optimizer": ["SGD"], "seed": [1]})");
  CHECK(same.all.size() == 1);  // "optimizer" replaces what was set before
  CHECK(same.repeated == 2);
  CHECK(same.monitor == "val/accuracy");
  CHECK(same.mode == "max");
  CHECK_THROWS_WITH_AS(
      members(R"("grid": {"checkpoint.monitor": ["val/accuracy", "val/loss"]})"),
      doctest::Contains("all members must have one checkpoint.monitor and .mode, got val/accuracy, max and val/loss"), ConfigError);
  write(dir / "bad.csv", "a,b\n1\n");
  CHECK_THROWS_WITH_AS(members(R"("grid": {"data": [{"train": {"type": "CSV", "path": "bad.csv"}, "root": ")" +
                               dir.path().string() + R"("}], "seed": [7]})"),
                       doctest::Contains("seed=7) of "), DataError);
}

TEST_CASE("sweep: a config in the place of a sweep is named, and the other way round") {
  const Folder dir;
  write(dir / "s.json", R"({"base": "tiny.json", "grid": {"optimizer.lr": [0.1]}})");
  write(dir / "more.json", R"({"extends": "tiny.json"})");
  for (const char* command : {"train", "plan", "validate"}) {
    const Ran ran = run(dir, std::string(command) + " s.json");
    CHECK(ran.code == 2);
    CHECK_MESSAGE(contains(ran.err, "[config] s.json must be a config, but is a sweep: it has \"grid\""), ran.err);
    CHECK_MESSAGE(contains(ran.err, "`halfstep sweep s.json` trains its members"), ran.err);
  }
  for (const auto& [file, key] : {std::pair("tiny.json", "model"), std::pair("more.json", "extends")}) {
    const Ran ran = run(dir, std::string("sweep ") + file);
    CHECK(ran.code == 2);
    CHECK_MESSAGE(contains(ran.err, std::string("[sweep] ") + file + " must be a sweep, but is a config: it has \"" + key),
                  ran.err);
    CHECK_MESSAGE(contains(ran.err, std::string("`halfstep train ") + file), ran.err);
  }
}
