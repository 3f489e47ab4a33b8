// SPDX-License-Identifier: Apache-2.0
// The configs of docs/your_data.md: each is valid for such data, trains, and its model answers for new files.
#include <doctest/doctest.h>

#include <map>

#include "tests/apps/support.h"
#include "tests/data/array_files.h"
#include "tests/data/picture_files.h"

using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// The blocks of JSON, by the name in each.
std::map<std::string, std::string> configs_of(const std::string& page) {
  std::map<std::string, std::string> out;
  const std::string begin = "```json\n", name = "\"name\": \"";
  for (size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
    at += begin.size();
    const std::string block = page.substr(at, page.find("```", at) - at);
    const size_t from = block.find(name) + name.size();
    out[block.substr(from, block.find('"', from) - from)] = block;
  }
  return out;
}

void write_pictures(const fs::path& folder, uint8_t red) {
  fs::create_directories(folder);
  for (int i = 0; i < 4; ++i) {
    std::string pixels;
    for (int p = 0; p < 20 * 16; ++p) pixels += {char(red), char(10 * i + p % 7), char(255 - red)};
    write(folder / (std::to_string(i) + ".png"), halfstep::testing::png(20, 16, pixels));
  }
}

// Small data of each kind, where the configs look for it.
void write_data(const TempDir& dir) {
  const fs::path data = dir / "data";
  fs::create_directories(data);
  std::string houses = "rooms,area,town,price\n", sales = "date,sales\n", novel;
  for (int i = 0; i < 60; ++i) {
    houses += std::to_string(2 + i % 5) + ',' + (i % 9 == 4 ? "" : std::to_string(50 + i)) + ',' + (i % 3 ? "Ulm" : "Bonn") + ',' +
              std::to_string(100 + 3 * i) + '\n';
  }
  for (int i = 0; i < 400; ++i) sales += std::to_string(i) + ',' + std::to_string(100 + i % 7 * 5) + '\n';
  for (int i = 0; i < 400; ++i) novel += "It was a dark and stormy night; ";
  write(data / "houses.csv", houses);
  write(data / "sales.csv", sales);
  write(data / "novel.txt", novel);
  for (const char* part : {"train", "val"}) {
    write_pictures(data / "pets" / part / "cat", 200);
    write_pictures(data / "pets" / part / "dog", 40);
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int i = 0; i < 40; ++i) {
      for (int k = 0; k < 6; ++k) x.push_back(float((i * 7 + k) % 11));
      y.push_back(i % 3);
    }
    const auto bytes = [](const auto& values) {
      return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
    };
    write(data / (std::string(part) + "_x.npy"), halfstep::testing::npy("<f4", "(40, 2, 3)", bytes(x)));
    write(data / (std::string(part) + "_y.npy"), halfstep::testing::npy("<i8", "(40,)", bytes(y)));
  }
}

}  // namespace

TEST_CASE("docs/your_data.md: every config trains, and its model is used") {
  const TempDir dir;
  write_data(dir);
  const auto configs = configs_of(read(fs::path(HALFSTEP_SOURCE_DIR) / "docs/your_data.md"));
  const std::map<std::string, std::string> inputs = {{"houses", "data/houses.csv"},
                                                     {"pets", "data/pets/val"},
                                                     {"novel", ""},
                                                     {"demand", "data/sales.csv"},
                                                     {"signals", "data/val_x.npy"}};
  CHECK(configs.size() == inputs.size());
  for (const auto& row : inputs) {
    const std::string &name = row.first, &input = row.second;
    CAPTURE(name);
    REQUIRE(configs.contains(name));
    write(dir / (name + ".json"), configs.at(name));
    const Ran valid = run(dir, "validate " + name + ".json");
    CHECK_MESSAGE(valid.code == 0, valid.err);
    CHECK_MESSAGE(valid.err.find("warning") == std::string::npos, valid.err);
    const Ran trained = run(dir, "train " + name + ".json --quiet --set train.epochs=1");
    REQUIRE_MESSAGE(trained.code == 0, trained.err);
    if (input.empty()) continue;
    const Ran answered = run(dir, "predict runs/" + name + ' ' + input);
    CHECK_MESSAGE(answered.code == 0, answered.err);
    CHECK(!answered.out.empty());
  }
}
