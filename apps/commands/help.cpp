// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/help.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/terminal/terminal.h"
#include "framework/base/text_stream.h"

namespace halfstep::app {
namespace {

constexpr size_t kMostColumns = 100, kFewestColumns = 60;

size_t help_width() {
  const size_t columns = terminal_width(STDOUT_FILENO);
  return columns > 0 ? std::clamp(columns, kFewestColumns, kMostColumns) : kMostColumns;
}

}  // namespace

std::string fitted(const std::string& text, size_t width, size_t column) {
  std::string out;
  TextReader lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const size_t indent = begin == 2 && line.size() > column ? column : begin;
    while (line.size() > width) {
      const size_t space = line.rfind(' ', width);
      if (space == std::string::npos || space <= indent) break;  // the word does not fit
      out += line.substr(0, line.find_last_not_of(' ', space) + 1) + '\n';
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
    out += line + '\n';
  }
  return out;
}

std::string FittedHelp::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  return fitted(CLI::Formatter::make_help(app, std::move(name), mode), help_width(), get_column_width());
}

}  // namespace halfstep::app
