// SPDX-License-Identifier: Apache-2.0
// Help texts of the program and its commands, wrapped to the terminal.
#pragma once

#include <CLI/Formatter.hpp>
#include <string>

namespace halfstep::app {

// Wraps descriptions, which CLI11 does not.
class FittedHelp : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
};

// Wraps text to `width` columns at spaces. In a table of options, lines continue in the column of descriptions; other text
// continues below its own beginning.
std::string fitted(const std::string& text, size_t width, size_t column);

}  // namespace halfstep::app
