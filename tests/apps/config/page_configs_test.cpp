// SPDX-License-Identifier: Apache-2.0
// Every block of JSON in README.md and docs: a whole config is valid, and a part of one is marked as what it is.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "apps/catalog/modules.h"
#include "apps/config/config.h"
#include "apps/config/sections.h"
#include "tests/apps/support.h"
#include "tests/support/source_dir.h"

using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

struct JsonBlock {
  std::string page, kind, text;  // kind: what follows "```json "
};

// `page` is for messages.
std::vector<JsonBlock> blocks_of(const std::string& page, const std::string& text) {
  std::vector<JsonBlock> out;
  const std::string mark = "```json";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    const size_t line = text.find('\n', at), end = text.find("```", line);
    std::string kind = text.substr(at + mark.size(), line - at - mark.size());
    if (!kind.empty()) kind.erase(0, 1);
    out.push_back({page, kind, text.substr(line + 1, end - line - 1)});
    at = end + 3;
  }
  return out;
}

// The first fault of a block; "" if there is none. The files of configs/ lie in `dir`, for blocks that extend them.
std::string fault_of(const TempDir& dir, const JsonBlock& block) {
  const auto parsed = [](const std::string& text) { return Json::parse(text, nullptr, true, /*ignore_comments=*/true); };
  try {
    if (block.kind.empty()) {
      load_config(write(dir / "page.json", block.text));
    } else if (block.kind == "sweep") {
      write(dir / "sweep.json", block.text);
      if (const Ran r = run(dir, "sweep sweep.json --dry-run"); r.code != 0) return r.err;
    } else if (block.kind == "layer") {
      Issues issues;
      validate(parsed(block.text), component("model", module_family(), ""), "model", issues);
      issues.raise("the layer", {});
    } else if (block.kind == "fragment") {
      const Json part = parsed("{" + block.text + "}");
      for (const auto& [key, value] : part.items())
        if (!root_schema().find(key)) return "a config has no key " + key;
    } else {
      return "a block is a whole config, or marked as layer, sweep or fragment";
    }
  } catch (const std::exception& e) { return e.what(); }
  return "";
}

}  // namespace

TEST_CASE("every config in README.md and docs is valid") {
  const TempDir dir;
  const fs::path root = halfstep_source_dir();
  const std::string data = "${env:HALFSTEP_DATA}";  // which need not be set
  fs::create_directory_symlink(configs(), dir / "configs");  // as a page is read from the root of the sources
  for (const char* folder : {"", "fine_tune"}) {
    for (const auto& file : fs::directory_iterator(configs() / folder)) {
      if (file.path().extension() != ".json") continue;
      std::string text = read(file.path());
      if (const size_t at = text.find(data); at != std::string::npos) text.replace(at, data.size(), ".");
      write(dir / file.path().filename().string(), text);
    }
  }
  std::vector<fs::path> pages = {root / "README.md"};
  for (const auto& file : fs::recursive_directory_iterator(root / "docs"))
    if (file.path().extension() == ".md") pages.push_back(file.path());
  size_t whole = 0;
  for (const fs::path& page : pages) {
    for (const JsonBlock& block : blocks_of(page.filename().string(), read(page))) {
      const std::string fault = fault_of(dir, block);
      CHECK_MESSAGE(fault.empty(), block.page, ":\n", block.text, fault);
      whole += block.kind.empty();
    }
  }
  CHECK(whole >= 20);
}

TEST_CASE("a wrong config in a page is found, whatever it is marked as") {
  const TempDir dir;
  const auto fault = [&](const std::string& text) { return fault_of(dir, blocks_of("page", text).at(0)); };
  CHECK(fault("```json\n{\"model\": \"ReLU\", \"los\": \"MSELoss\"}\n```").find("did you mean \"loss\"") != std::string::npos);
  CHECK(fault("```json layer\n{\"type\": \"Conv2d\", \"out_channels\": 0, \"kernel_size\": 3}\n```") != "");
  CHECK(fault("```json fragment\n\"modle\": {}\n```") == "a config has no key modle");
  CHECK(fault("```json sweep\n{\"base\": \"none.json\"}\n```") != "");
  CHECK(fault("```json part\n{}\n```").find("is a whole config") != std::string::npos);
}
