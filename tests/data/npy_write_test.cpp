// SPDX-License-Identifier: Apache-2.0
// Arrays as NumPy reads them.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>

#include "framework/base/check.h"
#include "framework/data/formats/npy.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/zip.h"
#include "framework/ops/ops.h"

using namespace halfstep;

namespace {

bool same(const Tensor& a, const Tensor& b) { return a.dtype() == b.dtype() && a.shape() == b.shape() && equal(a, b); }

}  // namespace

TEST_CASE("npy: each dtype that NumPy has comes back, in every number of dimensions") {
  std::string name = (std::filesystem::temp_directory_path() / "halfstep-npy-XXXXXX").string();
  const std::filesystem::path dir = mkdtemp(name.data());
  for (const DType dtype :
       {DType::boolean, DType::u8, DType::i8, DType::i16, DType::i32, DType::i64, DType::f16, DType::f32, DType::f64})
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{0}, Shape{2, 3}, Shape{2, 1, 2, 2}}) {
      CAPTURE(dtype);
      CAPTURE(shape);
      const Tensor values = (arange(numel(shape)).reshape(shape) - 1).to(dtype);
      const std::string bytes = npy_bytes(values);
      CHECK((bytes.size() - size_t(values.nbytes())) % 64 == 0);  // as NumPy aligns its data
      atomic_write(dir / "a.npy", bytes);
      CHECK(same(read_npy(dir / "a.npy"), values));
    }
  CHECK(npy_bytes(zeros({3})).find("'shape': (3, ), }") != std::string::npos);
  const Tensor across = arange(6).reshape({2, 3}).transpose(0, 1);
  atomic_write(dir / "a.npy", npy_bytes(across));
  CHECK(same(read_npy(dir / "a.npy"), across.contiguous()));
  CHECK_THROWS_AS(npy_bytes(zeros({2}, {.dtype = DType::bf16})), DTypeError);

  write_npz(dir / "a.npz", {{"prediction", across}, {"none", zeros({0, 2})}});
  CHECK(ZipFile(dir / "a.npz").names() == std::vector<std::string>{"prediction.npy", "none.npy"});
  CHECK(same(read_npz(dir / "a.npz", "prediction"), across.contiguous()));
  CHECK(read_npz(dir / "a.npz", "none").shape() == Shape{0, 2});

  // Of two arrays with one name the later one counts, as in NumPy.
  write_npz(dir / "a.npz", {{"x", zeros({2})}, {"y", ones({1})}, {"x", ones({3})}});
  CHECK(ZipFile(dir / "a.npz").names() == std::vector<std::string>{"x.npy", "y.npy"});
  CHECK(same(read_npz(dir / "a.npz", "x"), ones({3})));
  std::filesystem::remove_all(dir);
}
