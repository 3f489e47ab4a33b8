// SPDX-License-Identifier: Apache-2.0
// Which memory is a block of the host's allocator.
#pragma once

namespace halfstep {

// Returns whether `p` is the first address of such a block. It is not for memory that from_blob wraps, or for a mapped file.
bool is_host_block(const void* p);

}  // namespace halfstep
