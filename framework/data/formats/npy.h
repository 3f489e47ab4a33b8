// SPDX-License-Identifier: Apache-2.0
// Reads NumPy's arrays: .npy, one array, and .npz, a zip archive of arrays.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Reads booleans, integers and floats of all sizes that halfstep has, in C or Fortran order, of either byte order. Unsigned u2
// becomes i32; u4 and u8 become i64. Throws IoError if the file cannot be read, and DataError with path and fault for another
// magic or version, an invalid header, objects, records and texts, sizes beyond the end of the file, trailing bytes, and a value
// that does not fit i64.
Tensor read_npy(const std::filesystem::path& path);
// Returns the same with the file mapped into memory (framework/io/files/mapped_file.h), unless values need a conversion: booleans,
// unsigned integers larger than a byte, Fortran order and the other byte order.
Tensor map_npy(const std::filesystem::path& path);
// Reads the array `name` of an archive written by savez or savez_compressed. Throws like read_npy and ZipFile.
Tensor read_npz(const std::filesystem::path& path, const std::string& name);

// Returns the bytes of a .npy file for a tensor of booleans, integers or floats except bfloat16. Throws DTypeError for others.
std::string npy_bytes(const Tensor& values);
// Writes an unpacked archive of arrays, like np.savez; np.load reads both. Replaces the file atomically.
void write_npz(const std::filesystem::path& path, const std::vector<std::pair<std::string, Tensor>>& arrays);

}  // namespace halfstep
