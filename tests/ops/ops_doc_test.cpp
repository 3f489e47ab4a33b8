// SPDX-License-Identifier: Apache-2.0
// docs/ops.md is written from the registry: HALFSTEP_UPDATE_DOCS=1 build/default/tests/test_ops -tc="docs/ops.md*"
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "framework/ops/core/op_policy.h"
#include "tests/support/source_dir.h"

using namespace halfstep;

TEST_CASE("docs/ops.md lists every op as registered") {
  std::ostringstream text;
  text
      << "# Ops\n\n"
         "Written from the registry by the test `ops_doc_test.cpp`; do not edit. `halfstep ops` prints the same list.\n\n"
         "- **Policy**: the autocast list of the op (`amp/policy/policy.h`). `lower` runs in the region's dtype, `fp32` in "
         "float32,\n"
         "  `promote` in the widest dtype of its inputs, and `banned` throws. Two words are for ops on no list: `builtin_promote`\n"
         "  promotes two dtypes by itself, and `keep` leaves its inputs as they are. `CastPolicy` and `amp.policy` of a config\n"
         "  say `low` for `lower`, and `f32` or `f32_output` for `fp32`.\n"
         "- **Dtypes**: `floating`: float16, bfloat16, float32, float64; `numbers`: integers, too; `any`: also bool; `bits`: only\n"
         "  integers and bool.\n"
         "- **Gradient**: an op with a gradient can be differentiated any number of times.\n\n"
         "| op | policy | dtypes | gradient | what it computes |\n| --- | --- | --- | --- | --- |\n";
  constexpr const char* takes[] = {"floating", "numbers", "any", "bits"};
  for (const Op& op : all_ops()) {
    std::string doc(op.doc);
    for (size_t at = 0; (at = doc.find('|', at)) != std::string::npos; at += 2) doc.replace(at, 1, "\\|");
    if (!op.alias_of.empty()) doc = "alias of `" + std::string(op.alias_of) + "`";
    text << "| `" << op.name << "` | " << list_policy(op) << " | " << takes[size_t(op.dtypes)] << " | "
         << (op.differentiable ? "yes" : "no") << " | " << doc << " |\n";
  }
  const std::string path = halfstep_source_dir() + "/docs/ops.md";
  if (std::getenv("HALFSTEP_UPDATE_DOCS")) std::ofstream(path) << text.str();
  std::ifstream file(path);
  std::stringstream have;
  have << file.rdbuf();
  CHECK_MESSAGE(have.str() == text.str(), "docs/ops.md is out of date: run with HALFSTEP_UPDATE_DOCS=1");
}
