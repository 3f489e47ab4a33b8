// SPDX-License-Identifier: Apache-2.0
// Encodes bytes as text, RFC 4648 with padding, for values of metadata, which are strings.
#pragma once

#include <string>
#include <string_view>

namespace halfstep {

std::string to_base64(std::string_view bytes);
// Decodes a text. Throws IoError, which begins with `what`, for a text that to_base64 does not write.
std::string from_base64(std::string_view text, std::string_view what);

}  // namespace halfstep
