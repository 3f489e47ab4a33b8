// The tables of docs/configs.md are written from the schema: HALFSTEP_UPDATE_DOCS=1 build/cpu/tests/test_apps -tc="docs/configs.md*"
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "apps/build/datasets.h"
#include "apps/build/modules.h"
#include "apps/build/training_parts.h"
#include "apps/config/schema.h"

using namespace halfstep::app;

namespace {

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

void row(std::ostream& out, const std::string& prefix, const Field& f) {
  if (f.kind == Kind::not_yet) return;
  out << "| `" << prefix << f.key << "` | " << cell(f.expects()) << " | "
      << (f.needed ? "required" : f.fallback.is_null() ? "" : "`" + cell(f.fallback.dump()) + "`") << " | " << cell(f.doc) << " |\n";
}

// A section's own keys, then the sections inside it.
void rows(std::ostream& out, const std::string& prefix, const Section& section) {
  for (const Field& f : section.fields) {
    if (f.kind == Kind::section) rows(out, prefix + f.key + ".", *f.section);
    else row(out, prefix, f);
  }
}

constexpr const char* kHead = "| key | value | default | |\n| --- | --- | --- | --- |\n";

void family(std::ostream& out, const std::string& title, const Family& f) {
  out << "\n## " << title << "\n";
  for (const Component& c : f.components) {
    out << "\n**`" << c.type << "`**: " << c.doc << "\n";
    if (!c.fields.empty()) out << '\n' << kHead;
    for (const Field& field : c.fields) row(out, "", field);
  }
  bool any = false;
  for (const Field& field : f.common) any = any || field.kind != Kind::not_yet;
  if (!any) return;
  out << "\nBesides, for every type:\n\n" << kHead;
  for (const Field& field : f.common) row(out, "", field);
}

}  // namespace

TEST_CASE("docs/configs.md lists every key of the schema") {
  std::ostringstream text;
  text << "<!-- From here on written from the schema by tests/apps/config_doc_test.cpp; do not edit. -->\n\n## All keys\n\n" << kHead;
  rows(text, "", root_schema());
  family(text, "Layers (`model`)", module_family());
  family(text, "Losses (`loss`)", loss_family());
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
