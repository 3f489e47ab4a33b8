// docs/ops.md is written from the registry: HALFSTEP_UPDATE_DOCS=1 build/cpu/tests/test_ops -tc="docs/ops.md*"
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "framework/ops/registry.h"

using namespace halfstep;

TEST_CASE("docs/ops.md lists every op as registered") {
  std::ostringstream text;
  text << "# Ops\n\n"
          "Written from the registry by the test `ops_doc_test.cpp`; do not edit. Policies: what an autocast region does with the\n"
          "floating inputs (`amp/policy.h`). Every differentiable op can be differentiated any number of times.\n\n"
          "| op | policy | gradient | formula |\n| --- | --- | --- | --- |\n";
  for (const Op& op : all_ops()) {
    std::string doc(op.doc);
    for (size_t at = 0; (at = doc.find('|', at)) != std::string::npos; at += 2) doc.replace(at, 1, "\\|");
    text << "| `" << op.name << "` | " << name(op.policy) << " | " << (op.differentiable ? "yes" : "no") << " | " << doc << " |\n";
  }
  const std::string path = std::string(HALFSTEP_SOURCE_DIR) + "/docs/ops.md";
  if (std::getenv("HALFSTEP_UPDATE_DOCS")) std::ofstream(path) << text.str();
  std::ifstream file(path);
  std::stringstream have;
  have << file.rdbuf();
  CHECK_MESSAGE(have.str() == text.str(), "docs/ops.md is out of date: run with HALFSTEP_UPDATE_DOCS=1");
}
