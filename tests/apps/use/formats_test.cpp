// SPDX-License-Identifier: Apache-2.0
// The promises of docs/formats.md.
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "framework/io/weights/safetensors.h"
#include "tests/apps/tiny_run.h"
#include "tests/support/source_dir.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

fs::path compat(const char* version) { return fs::path(halfstep_source_dir()) / "tests/compat" / version; }
std::string docs(const char* page) { return read(fs::path(halfstep_source_dir()) / "docs" / page); }

// Of the page's table of files: what is written and what is read, by the beginning of the row.
std::string row(const std::string& begin) {
  const std::string page = docs("formats.md");
  const size_t at = page.find("\n| " + begin);
  REQUIRE_MESSAGE(at != std::string::npos, begin);
  std::vector<std::string> cells;
  std::istringstream line(page.substr(at + 2, page.find('\n', at + 1) - at - 2));
  for (std::string cell; std::getline(line, cell, '|');) cells.push_back(cell);
  REQUIRE(cells.size() >= 4);
  return cells[2] + "|" + cells[3];
}

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> out;
  for (const auto& [key, value] : object.items()) out.insert(key);
  return out;
}
std::set<std::string> keys_of_lines(const fs::path& metrics) {
  std::set<std::string> out;
  for (const Json& line : lines_of(metrics)) out.merge(keys_of(line));
  return out;
}
void all_there(const std::set<std::string>& old, const std::set<std::string>& now) {
  for (const std::string& key : old) CHECK_MESSAGE(now.contains(key), "no key " << key << " any more");
}

std::set<int> numbers_in(const std::string& text, const std::string& pattern) {
  std::set<int> out;
  const std::regex one(pattern);
  for (std::sregex_iterator i(text.begin(), text.end(), one), end; i != end; ++i) out.insert(std::stoi((*i)[1]));
  return out;
}

// A run in float16 that float16 cannot hold, of which big/capsules/step-1.safetensors is left.
fs::path capsule_of_inputs(const TempDir& dir) {
  write(dir / "big.csv", "x,kind\n4e6,a\n1,b\n3e6,a\n2,b\n");
  write(dir / "big.json", R"({"output_dir": "big", "device": "cpu", "model": {"type": "Linear", "out_features": "auto"},
    "data": {"root": ".", "train": {"type": "CSV", "path": "big.csv"}}, "amp": {"dtype": "float16"},
    "loss": "CrossEntropyLoss", "optimizer": {"type": "SGD", "lr": 0.1}, "train": {"epochs": 1}})");
  const Ran skipped = run(dir, "train big.json --quiet");
  CHECK(skipped.code == 4);  // its only step is skipped, and no other scale would mend that
  CHECK_MESSAGE(!contains(skipped.err, "init_scale"), skipped.err);
  return dir / "big/capsules/step-1.safetensors";
}

}  // namespace

TEST_CASE("docs/formats.md has the versions that are written") {
  Folder dir;
  REQUIRE(dir.train().code == 0);
  const fs::path checkpoint = dir / "r/step-00000012";
  const auto json = [](const fs::path& file) { return Json::parse(read(file)); };
  const auto says = [](const Json& version, const std::string& read) { return " " + version.dump() + " | " + read + " "; };
  CHECK(row("config") == says(json(dir / "r/config.resolved.json")["version"], "1"));
  CHECK(row("checkpoint") == says(json(checkpoint / "manifest.json")["version"], "1, 2"));
  CHECK(row("`state.json`") == says(json(checkpoint / "state.json")["format"], "1, 2"));
  CHECK(row("`data.json`") == says(json(checkpoint / "data.json")["form"]["version"], "1"));
  CHECK(row("`run.json`") == says(json(dir / "r/run.json")["version"], "1"));
  REQUIRE(run(dir, "export r --to safetensors --out r.safetensors").code == 0);
  const auto metadata = [](const fs::path& file, const char* key) { return Json::parse(load_safetensors(file).metadata.at(key)); };
  CHECK(row("exported model") == says(metadata(dir / "r.safetensors", "halfstep.file"), "1"));
  CHECK(row("capsule") == says(metadata(capsule_of_inputs(dir), "halfstep.capsule"), "1"));
}

TEST_CASE("a file of a newer version is refused with its version") {  // checkpoints: run_dir_test.cpp; models: export_test.cpp
  Folder dir;
  const Ran config = run(dir, "validate tiny.json --set version=2");
  CHECK(config.code == 2);
  CHECK(contains(config.err, "version: must be an integer in [1, 1], got 2"));
  REQUIRE(dir.train().code == 0);
  set_json(dir / "r/step-00000012", "data.json", "/form/version", 2);
  const Ran data = run(dir, "predict r/step-00000012 tiny.json");
  CHECK(data.code == 3);
  CHECK_MESSAGE(contains(data.err, "version 2 of the data's form was written by a newer halfstep"), data.err);
  const fs::path capsule = capsule_of_inputs(dir);
  TensorFile all = load_safetensors(capsule);
  all.metadata["halfstep.capsule"] = "2";
  save_safetensors(capsule, all.tensors, all.metadata);
  const Ran doctor = run(dir, "doctor big/capsules/step-1.safetensors");
  CHECK(doctor.code == 3);
  CHECK_MESSAGE(contains(doctor.err, "the capsule is of version 2, and this halfstep reads 1"), doctor.err);
}

TEST_CASE("what version 0.2.0 wrote is read, and every key that it wrote is still there") {
  const TempDir dir;
  fs::copy(compat("0.2.0"), dir.path(), fs::copy_options::recursive);
  for (const char* data : {"train.csv", "val.csv"}) fs::copy(compat("0.1.0") / data, dir / data);

  fs::rename(dir / "train.csv", dir / "away.csv");
  const Ran evaluated = run(dir, "eval trees --json");
  REQUIRE_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(evaluated.json()["step"] == 30);
  CHECK(evaluated.json()["val.loss"].get<double>() == doctest::Approx(0.0788228).epsilon(1e-4));
  for (const char* model : {"trees", "trees.safetensors --check"}) {
    const Ran predicted = run(dir, std::string("predict ") + model + " val.csv");
    CHECK_MESSAGE(predicted.code == 0, predicted.err);
    CHECK(contains(predicted.err, "18 with a known answer: accuracy 100 %"));
  }
  CHECK(run(dir, "report trees --out page.html --no-plan").code == 0);
  CHECK(contains(read(dir / "page.html"), "0.2.0"));  // of run.json

  fs::rename(dir / "away.csv", dir / "train.csv");
  const Ran resumed = run(dir, "train trees.json --resume auto --set train.epochs=8 --json");
  REQUIRE_MESSAGE(resumed.code == 0, resumed.err);
  CHECK(resumed.json()["steps_applied"] == 48);
  const Json record = Json::parse(read(dir / "trees/run.json"));
  CHECK(record["starts"].size() == 2);

  const std::set<std::string> now = keys_of_lines(dir / "trees/metrics.jsonl");
  for (const char* version : {"0.1.0", "0.2.0"}) all_there(keys_of_lines(compat(version) / "trees/metrics.jsonl"), now);
  const Json old = Json::parse(read(compat("0.2.0") / "trees/run.json"));
  all_there(keys_of(old), keys_of(record));
  all_there(keys_of(old["starts"][0]), keys_of(record["starts"][1]));
  all_there(keys_of(old["summary"]), keys_of(resumed.json()));
}

TEST_CASE("a config of version 0.1.0 trains the model that it trained then") {
  const TempDir dir;
  fs::copy(compat("0.1.0"), dir.path(), fs::copy_options::recursive);
  REQUIRE(run(dir, "train trees.json --quiet --set output_dir=now").code == 0);
  std::vector<Json> now;
  for (const Json& line : lines_of(dir / "now/metrics.jsonl"))
    if (line.contains("val/loss")) now.push_back(line);
  const std::vector<Json> old = lines_of(dir / "trees/metrics.jsonl");
  REQUIRE(now.size() == old.size());
  for (size_t i = 0; i < old.size(); ++i) {
    CHECK(now[i]["step"] == old[i]["step"]);
    CHECK(now[i]["val/loss"].get<double>() == doctest::Approx(old[i]["val/loss"].get<double>()).epsilon(1e-4));
  }
}

TEST_CASE("exit codes: docs/formats.md, docs/errors.md and --help have the same") {
  const TempDir dir;
  const std::string page = docs("formats.md"), help = run(dir, "--help").out;
  const size_t begin = page.find("| exit codes |");
  REQUIRE(begin != std::string::npos);
  const std::set<int> promised = numbers_in(page.substr(begin, page.find("keep their meaning", begin) - begin), "(\\d+)");
  CHECK(promised.size() == 10);
  CHECK(numbers_in(docs("errors.md"), "\n\\| (\\d+) \\|") == promised);
  CHECK(numbers_in(help.substr(help.find("Exit codes:")), "(?:^Exit codes:|;)\\s+(\\d+) ") == promised);
}
