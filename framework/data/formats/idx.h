// SPDX-License-Identifier: Apache-2.0
// The IDX file format of the MNIST family: 2 zero bytes, dtype, rank, big-endian sizes, row-major data.
// Format: http://yann.lecun.com/exdb/mnist/ ("THE IDX FILE FORMAT").
#pragma once

#include <filesystem>

#include "framework/tensor/tensor.h"

namespace halfstep {

// Reads an IDX file of unsigned bytes, plain or gzip-compressed (recognised by content), as a u8 tensor of rank `rank`. Throws
// IoError if the file cannot be read, and DataError with the path and the expected and actual values for another magic, dtype or
// rank, for sizes beyond the end of the file, for trailing bytes and for damaged gzip data.
Tensor read_idx(const std::filesystem::path& path, int rank);

}  // namespace halfstep
