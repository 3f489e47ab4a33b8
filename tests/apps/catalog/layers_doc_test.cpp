// SPDX-License-Identifier: Apache-2.0
// The tables of docs/layers.md are written from the catalogues: HALFSTEP_UPDATE_DOCS=1 build/default/tests/test_apps
// -tc="docs/layers.md*"
#include <doctest/doctest.h>

#include <cstdlib>
#include <sstream>

#include "apps/catalog/losses.h"
#include "apps/catalog/modules.h"
#include "tests/apps/support.h"
#include "tests/support/source_dir.h"

using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

// "in_channels, out_channels, kernel_size, stride=1": required arguments come first, without a default, as in Python.
void row(std::ostream& out, const Component& c) {
  if (c.doc.ends_with("of this program")) return;  // of another test
  out << "| `" << c.type << "` | ";
  bool first = true;
  for (const Field& f : c.fields) {
    if (f.kind == Kind::not_yet) continue;
    out << (first ? "`" : ", ") << f.key;
    if (!f.needed && f.from_input == 0) out << '=' << cell(f.fallback.dump());
    if (f.from_input != 0) out << "=…";
    first = false;
  }
  out << (first ? "" : "`") << " | " << cell(c.doc) << " |\n";
}

}  // namespace

TEST_CASE("docs/layers.md lists every layer and loss of the catalogues") {
  std::ostringstream text;
  text << "<!-- From here on written from the catalogues by tests/apps/catalog/layers_doc_test.cpp; do not edit. -->\n\n## "
          "Layers\n\n"
       << "| type | arguments | |\n| --- | --- | --- |\n";
  for (const ModuleRow& r : module_catalog().rows()) row(text, r.component);
  text << "\n## Losses\n\n| type | arguments | |\n| --- | --- | --- |\n";
  for (const LossRow& r : loss_catalog().rows()) row(text, r.component);

  const std::string path = halfstep_source_dir() + "/docs/layers.md", have = read(path);
  const size_t from = have.find("<!-- From here on");
  REQUIRE_MESSAGE(from != std::string::npos, "docs/layers.md has lost its mark");
  if (std::getenv("HALFSTEP_UPDATE_DOCS")) {
    write(path, have.substr(0, from) + text.str());
    return;
  }
  CHECK_MESSAGE(have.substr(from) == text.str(), "docs/layers.md is out of date: run with HALFSTEP_UPDATE_DOCS=1");
}
