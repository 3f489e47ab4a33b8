// SPDX-License-Identifier: Apache-2.0
// The tables of docs/configs.md are written from the schema: HALFSTEP_UPDATE_DOCS=1 build/default/tests/test_apps
// -tc="docs/configs.md*"
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "apps/catalog/datasets.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/catalog/modules.h"
#include "apps/catalog/optimizers.h"
#include "apps/config/sections.h"

using namespace halfstep::app;

namespace {

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

// A field, and the keys of its objects.
void row(std::ostream& out, const std::string& prefix, const Field& f) {
  if (f.kind == Kind::not_yet) return;
  out << "| `" << prefix << f.key << "` | " << cell(f.expects()) << " | "
      << (f.needed               ? "required"
          : f.fallback.is_null() ? ""
                                 : "`" + cell(f.fallback.dump()) + "`")
      << " | " << cell(f.doc) << " |\n";
  const bool list = f.kind == Kind::list;
  const Section* const inside = list ? f.item->section : f.section;
  if (!inside) return;
  for (const Field& inner : inside->fields) row(out, prefix + f.key + (list ? "[]." : "."), inner);
}

// A section's own keys, then the sections inside it.
void rows(std::ostream& out, const std::string& prefix, const Section& section) {
  for (const Field& f : section.fields) {
    if (f.kind == Kind::section)
      rows(out, prefix + f.key + ".", *f.section);
    else
      row(out, prefix, f);
  }
}

constexpr const char* kHead = "| key | value | default | |\n| --- | --- | --- | --- |\n";

void table(std::ostream& out, const std::string& title, const std::vector<Field>& fields) {
  const bool any = std::any_of(fields.begin(), fields.end(), [](const Field& f) { return f.kind != Kind::not_yet; });
  if (!title.empty() && (any || title.starts_with("**"))) out << '\n' << title << '\n';
  if (!any) return;
  out << '\n' << kHead;
  for (const Field& f : fields) row(out, "", f);
}

// The components of a family, and those that lists of its common fields take.
void family(std::ostream& out, const std::string& title, const Family& f) {
  out << "\n## " << title << "\n";
  const Field* inner = nullptr;
  for (const Component& c : f.components) {
    if (c.doc.ends_with("of this program")) continue;  // of another test
    table(out, "**`" + c.type + "`**: " + c.doc, c.fields);
  }
  for (const Field& field : f.common)
    if (field.kind == Kind::list && field.item->family) inner = &field;
  table(out, "Besides, for every type:", f.common);
  if (inner) family(out, "In `" + inner->key + "`", *inner->item->family);
}

}  // namespace

TEST_CASE("docs/configs.md lists every key of the schema") {
  std::ostringstream text;
  text << "<!-- From here on written from the schema by tests/apps/config/config_doc_test.cpp; do not edit. -->\n\n## All keys\n\n"
       << kHead;
  rows(text, "", root_schema());
  family(text, "Layers (`model`)", module_family());
  family(text, "Losses (`loss`)", loss_family());
  family(text, "Metrics (`metrics`)", metric_family());
  family(text, "Optimizers (`optimizer`)", optimizer_family());
  family(text, "Schedules (`scheduler`)", scheduler_family());
  family(text, "Data sets (`data.train`, `data.val`, `data.test`)", dataset_family());

  const std::string path = std::string(HALFSTEP_SOURCE_DIR) + "/docs/configs.md";
  std::stringstream have;
  have << std::ifstream(path).rdbuf();
  const size_t from = have.str().find("<!-- From here on");
  REQUIRE_MESSAGE(from != std::string::npos, "docs/configs.md has lost its mark");
  const std::string prose = have.str().substr(0, from);
  if (std::getenv("HALFSTEP_UPDATE_DOCS")) {
    std::ofstream(path) << prose << text.str();
    return;
  }
  CHECK_MESSAGE(have.str().substr(from) == text.str(), "docs/configs.md is out of date: run with HALFSTEP_UPDATE_DOCS=1");
}
