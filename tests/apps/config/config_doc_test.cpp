// SPDX-License-Identifier: Apache-2.0
// docs/reference/config_keys.md is written from the schema: HALFSTEP_UPDATE_DOCS=1 build/default/tests/test_apps
// -tc="docs/reference*"
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "apps/catalog/datasets.h"
#include "apps/catalog/losses.h"
#include "apps/catalog/metrics.h"
#include "apps/catalog/modules.h"
#include "apps/catalog/optimizers.h"
#include "apps/catalog/rows/dataset_examples.h"
#include "apps/config/sections.h"
#include "tests/support/source_dir.h"

using namespace halfstep::app;

namespace {

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

// A field, and the keys of its objects.
void row(std::ostream& out, const std::string& prefix, const Field& f) {
  if (f.kind == FieldKind::not_yet) return;
  out << "| `" << prefix << f.key << "` | " << cell(f.expects()) << " | "
      << (f.needed               ? "required"
          : f.fallback.is_null() ? ""
                                 : "`" + cell(f.fallback.dump()) + "`")
      << " | " << cell(f.doc) << " |\n";
  const bool list = f.kind == FieldKind::list;
  const Section* const inside = list ? f.item->section : f.section;
  if (!inside) return;
  for (const Field& inner : inside->fields) row(out, prefix + f.key + (list ? "[]." : "."), inner);
}

// The keys of a section, with those of the sections inside it.
void rows(std::ostream& out, const std::string& prefix, const Section& section) {
  for (const Field& f : section.fields) {
    if (f.kind == FieldKind::section)
      rows(out, prefix + f.key + ".", *f.section);
    else
      row(out, prefix, f);
  }
}

constexpr const char* kIntro = R"(<!-- Written from the schema by tests/apps/config/config_doc_test.cpp; do not edit. -->
# Keys and types of configs

[configs.md](../configs.md) explains how keys work together; `halfstep explain optimizer.momentum` and `halfstep explain Conv2d`
print what is here. Arguments have the names and the order of PyTorch's; [layers.md](../layers.md) says how C++ takes them.

- [All keys](#all-keys): [top level](#top-level), [`amp`](#amp), [`data`](#data), [`train`](#train),
  [`diagnostics`](#diagnostics), [`checkpoint`](#checkpoint), [`logging`](#logging), [`performance`](#performance),
  [`distributed`](#distributed), [`bench`](#bench)
- All types: [layers](#layers-model), [initialisers](#initialisers-init), [losses](#losses-loss), [metrics](#metrics-metrics),
  [optimizers](#optimizers-optimizer), [schedules](#schedules-scheduler),
  [data sets, with an example of each](#data-sets-datatrain-dataval-datatest), [transforms](#transforms-transforms)

)";

constexpr const char* kHead = "| key | value | default | |\n| --- | --- | --- | --- |\n";

bool has_keys(const std::vector<Field>& fields) {
  return std::any_of(fields.begin(), fields.end(), [](const Field& f) { return f.kind != FieldKind::not_yet; });
}

void table(std::ostream& out, const std::vector<Field>& fields) {
  out << '\n' << kHead;
  for (const Field& f : fields) row(out, "", f);
}

// A heading for each section of a config; the keys outside of sections come first.
void sections(std::ostream& out, const Section& root) {
  out << "## All keys\n\n### Top level\n\n" << kHead;
  for (const Field& f : root.fields)
    if (f.kind != FieldKind::section) row(out, "", f);
  for (const Field& f : root.fields) {
    if (f.kind != FieldKind::section) continue;
    out << "\n### `" << f.key << "`\n\n" << kHead;
    rows(out, f.key + ".", *f.section);
  }
}

std::string link_to(std::string heading) {
  const std::string shown = "`" + heading + "`";
  for (char& c : heading) c = char(std::tolower(static_cast<unsigned char>(c)));
  return "[" + shown + "](#" + heading + ")";
}

void family(std::ostream& out, const std::string& title, const Family& f);

void inner_family(std::ostream& out, const std::string& key, const Family& f) {
  std::string title = f.what + "s (`" + key + "`)";
  title[0] = char(std::toupper(static_cast<unsigned char>(title[0])));
  family(out, title, f);
}

// The components of a family, and those that lists of its common fields take.
void family(std::ostream& out, const std::string& title, const Family& f) {
  std::vector<const Component*> types;
  for (const Component& c : f.components)
    if (!c.doc.ends_with("of this program")) types.push_back(&c);  // which are of another test
  out << "\n## " << title << "\n\n";
  size_t column = 0;
  for (const Component* c : types) {
    const std::string link = link_to(c->type) + (c == types.back() ? "\n" : ",");
    const bool fits = column + 1 + link.size() <= 130;
    out << (column == 0 ? "" : fits ? " " : "\n") << link;
    column = (fits && column > 0 ? column + 1 : 0) + link.size();
  }
  for (const Component* c : types) {
    out << "\n### `" << c->type << "`\n\n" << c->doc << '\n';
    if (has_keys(c->fields)) table(out, c->fields);
    if (const std::string example = &f == &dataset_family() ? dataset_example(c->type) : ""; !example.empty())
      out << "\n```json\n" << example << "```\n";
  }
  if (has_keys(f.common)) {
    out << "\n### Keys of every " << f.what << '\n';
    table(out, f.common);
  }
  for (const Field& field : f.common)
    if (field.kind == FieldKind::list && field.item->family) inner_family(out, field.key, *field.item->family);
}

}  // namespace

TEST_CASE("docs/reference/config_keys.md lists every key of the schema") {
  std::ostringstream text;
  text << kIntro;
  sections(text, root_schema());
  family(text, "Layers (`model`)", module_family());
  family(text, "Losses (`loss`)", loss_family());
  family(text, "Metrics (`metrics`)", metric_family());
  family(text, "Optimizers (`optimizer`)", optimizer_family());
  family(text, "Schedules (`scheduler`)", scheduler_family());
  family(text, "Data sets (`data.train`, `data.val`, `data.test`)", dataset_family());

  const std::string path = halfstep_source_dir() + "/docs/reference/config_keys.md";
  if (std::getenv("HALFSTEP_UPDATE_DOCS")) {
    std::ofstream(path) << text.str();
    return;
  }
  std::stringstream have;
  have << std::ifstream(path).rdbuf();
  CHECK_MESSAGE(have.str() == text.str(), path, " is out of date: run with HALFSTEP_UPDATE_DOCS=1");
}
