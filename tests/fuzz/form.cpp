// SPDX-License-Identifier: Apache-2.0
// The data.json of a checkpoint: the form of its training data. What can be read must be written and read again as the same.
#include "framework/data/transforms/data_form.h"
#include "framework/io/files/json.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(form) {
  using namespace halfstep;
  nlohmann::json json;
  try {
    json = read_json<nlohmann::json>(fuzz::text_of(data, size));
  } catch (const JsonError&) { return 0; }  // the reader of checkpoints names the file
  fuzz::typed([&] {
    const DataForm form = read_form(json);
    const JsonValue written = to_json(form);
    if (to_json(read_form(written))->dump() != written->dump()) fuzz::found("another form comes back");
    if (form.classes > 0 && form.class_name(form.classes - 1).size() > size) fuzz::found("a name that is not there");
  });
  return 0;
}
