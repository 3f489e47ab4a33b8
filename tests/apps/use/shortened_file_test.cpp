// SPDX-License-Identifier: Apache-2.0
// A mapped file that another program saves over while a run uses it.
#include <doctest/doctest.h>

#include "framework/io/checkpoint/checkpoint.h"
#include "framework/io/files/mapped_file.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"

using namespace halfstep;
using namespace halfstep::app::testing;

TEST_CASE("a mapped file is known by the addresses of its pages, while it is mapped") {
  const TempDir dir;
  write(dir / "a.bin", std::string(10000, 'a'));
  const char* inside = nullptr;
  {
    const std::shared_ptr<void> pages = map_file(dir / "a.bin", 10000, "test");
    inside = static_cast<const char*>(pages.get()) + 9999;
    CHECK(mapped_file_at(inside) == (dir / "a.bin").string());
    CHECK(mapped_file_at(&dir) == nullptr);
  }
  CHECK(mapped_file_at(inside) == nullptr);
}

TEST_CASE("an array that is saved over ends the run with the file's name, and its checkpoints stay") {
  const TempDir dir;
  // Its data begins at a multiple of 64 bytes, as NumPy writes it; other arrays are copied and not mapped.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4000, 500), }";
  header.resize(117, ' ');
  write(dir / "x.npy", halfstep::testing::npy_of(header + '\n', std::string(4 * 4000 * 500, '\0')));
  write(dir / "y.npy", halfstep::testing::npy("<i8", "(4000,)", std::string(8 * 4000, '\0')));
  write(dir / "c.json", R"({"version": 1, "name": "c", "output_dir": "r", "amp": false,
    "data": {"root": ".", "train": {"type": "NPY", "input": "x.npy", "target": "y.npy"}, "loader": {"batch_size": 100}},
    "model": {"type": "Linear", "out_features": "auto"}, "loss": {"type": "CrossEntropyLoss"},
    "optimizer": {"type": "SGD", "lr": 0.01}, "train": {"epochs": 2000}})");
  Child child(dir, "train c.json --quiet");
  REQUIRE(child.until([&] { return fs::exists(dir / "r/latest"); }));
  fs::resize_file(dir / "x.npy", 100);
  CHECK(child.wait() == 3);
  CHECK_MESSAGE(contains(child.output(), "[file] ./x.npy: the file was shortened while it is in use"), child.output());
  CHECK(contains(child.output(), "--resume auto continues"));
  CHECK(latest_checkpoint(dir / "r").has_value());
}
