// SPDX-License-Identifier: Apache-2.0
// The frame of every page: head, style, and the script that shows values at the pointer.
#pragma once

#include <iosfwd>
#include <string>

namespace halfstep::app {

// Writes the page up to its heading, with a line below that.
void begin_page(std::ostream& out, const std::string& title, const std::string& about);
// Writes the rest of the page.
void end_page(std::ostream& out);

}  // namespace halfstep::app
