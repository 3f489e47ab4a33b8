// SPDX-License-Identifier: Apache-2.0
#include "apps/report/frame.h"

#include <ostream>

#include "apps/report/chart.h"
#include "generated/report_page.h"

namespace halfstep::app {

void begin_page(std::ostream& out, const std::string& title, const std::string& about) {
  out << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      << "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light "
         "dark\">\n"
      << "<title>" << escaped(title) << "</title>\n<style>\n"
      << kPageStyle << "</style>\n</head>\n<body>\n<main>\n"
      << "<h1>" << escaped(title) << "</h1>\n<p class=\"soft\">" << escaped(about) << "</p>\n";
}

void end_page(std::ostream& out) {
  out << "</main>\n<div id=\"tip\"></div>\n<script>\n" << kPageScript << "</script>\n</body>\n</html>\n";
}

}  // namespace halfstep::app
