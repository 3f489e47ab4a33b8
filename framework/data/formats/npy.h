// SPDX-License-Identifier: Apache-2.0
// Arrays that NumPy wrote: .npy, one array, and .npz, a zip archive of them.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Booleans, integers and floats of any size that halfstep has, in C or Fortran order, of either byte order. Of unsigned integers u2
// becomes i32, u4 and u8 i64. Throws IoError when the file cannot be read, and DataError, which names path and fault, for another
// magic or version, a header that is no such dictionary, objects, records and texts, sizes that the file does not hold, bytes
// behind the array, and a value that does not fit i64.
Tensor read_npy(const std::filesystem::path& path);
// The same, with the file mapped into memory (framework/io/files/mapped_file.h) instead of read, unless values must be converted:
// booleans, unsigned integers larger than a byte, Fortran order and another byte order.
Tensor map_npy(const std::filesystem::path& path);
// The array `name` of an archive that savez or savez_compressed wrote. Throws as read_npy and ZipFile.
Tensor read_npz(const std::filesystem::path& path, const std::string& name);

// The bytes of a .npy file, of a tensor of booleans, integers or floats but bfloat16. Throws DTypeError for others.
std::string npy_bytes(const Tensor& values);
// An archive of arrays, not packed, as np.savez writes it; np.load reads both. Replaces the file at once, or not at all.
void write_npz(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& arrays);

}  // namespace halfstep
