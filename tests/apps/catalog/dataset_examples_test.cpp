// SPDX-License-Identifier: Apache-2.0
// The examples of data sets that `halfstep explain` and docs/reference/config_keys.md show.
#include "apps/catalog/rows/dataset_examples.h"

#include <doctest/doctest.h>

#include <string>

#include "apps/catalog/datasets.h"
#include "tests/apps/support.h"
#include "tests/apps/your_data.h"

using namespace halfstep::app;
using namespace halfstep::app::testing;

TEST_CASE("every data set has an example, which is valid and, if its files are there, trains") {
  const TempDir dir;
  write_data(dir);
  int trained = 0;
  for (const Component& c : dataset_family().components) {
    if (c.doc.ends_with("of this program")) continue;
    CAPTURE(c.type);
    const std::string file = c.type + ".json", text = dataset_example(c.type);
    REQUIRE_FALSE(text.empty());
    CHECK(text.find("\"type\": \"" + c.type + '"') != std::string::npos);
    write(dir / file, text);
    const Ran valid = run(dir, "validate " + file);
    CHECK_MESSAGE(valid.code == 0, valid.err);
    CHECK_MESSAGE(valid.out.find(file + ": valid\n") != std::string::npos, valid.out);  // shapes included
    CHECK_MESSAGE(valid.err.empty(), valid.err);
    const Ran train = run(dir, "train " + file + " --quiet --set train.epochs=null --set train.max_steps=2");
    const bool published = train.code == 3;  // the user brings the files of MNIST and CIFAR
    if (published) {
      CHECK_MESSAGE(train.err.find("curl") != std::string::npos, train.err);
      continue;
    }
    CHECK_MESSAGE(train.code == 0, train.err);
    ++trained;
  }
  CHECK(trained == 14);
}
