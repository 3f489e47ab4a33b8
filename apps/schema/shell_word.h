// SPDX-License-Identifier: Apache-2.0
// Quotes words of commands that are printed for the user to type.
#pragma once

#include <string>

namespace halfstep::app {

std::string shell_word(const std::string& text);  // quotes it if a shell would not take it as one word

}  // namespace halfstep::app
