// SPDX-License-Identifier: Apache-2.0
// The help of the program and its commands, in lines that fit.
#pragma once

#include <CLI/Formatter.hpp>
#include <string>

namespace halfstep::app {

// CLI11 breaks no line of a description.
class FittedHelp : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

// Lines of at most `width` columns, broken at spaces. What belongs to a name in a table of options continues in the column where
// descriptions begin, and other text under its own beginning.
std::string fitted(const std::string& text, size_t width, size_t column);

}  // namespace halfstep::app
