// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_zones.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "framework/base/check.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

bool is_day_count(const CsvEncoding::Column& column) { return column.date.size() == 1 && column.date[0] == "days"; }

// Returns whether the zone is that of no time of a place with these: summer time is an hour more, but UTC is another clock.
bool is_other_zone(double zone, const std::vector<double>& known) {
  constexpr double kSummer = 1;
  const double low = *std::min_element(known.begin(), known.end()), high = *std::max_element(known.begin(), known.end());
  if (zone >= low && zone <= high) return false;
  return zone == 0 || (low == 0 && high == 0) || zone < low - kSummer || zone > high + kSummer;
}

}  // namespace

std::string zones_text(const std::vector<double>& zones) {
  const auto text_of_zone = [](double hours) {
    const int minutes = int(std::lround(60 * std::abs(hours)));
    char text[16];
    std::snprintf(text, sizeof text, "%c%02d:%02d", hours < 0 ? '-' : '+', minutes / 60 % 100, minutes % 60);
    return std::string(text);
  };
  if (zones.empty()) return "none";
  return zones.size() == 1 ? text_of_zone(zones[0]) : text_of_zone(zones.front()) + " to " + text_of_zone(zones.back());
}

void CsvZones::add(const CsvDate& date) {
  ++(date.zoned ? zoned_ : others_);
  const auto at = std::lower_bound(found_.begin(), found_.end(), date.zone);
  if (date.zoned && (at == found_.end() || *at != date.zone)) found_.insert(at, date.zone);
}

std::string CsvZones::note(const CsvEncoding::Column& column) const {
  if (zoned_ == 0) return "";
  return joined("; column ", column.name, ": times have a zone, ", zones_text(found_), ", and are read ",
                is_day_count(column) ? "in UTC" : "as the day and the hour there");
}

std::string CsvZones::warning(const CsvEncoding::Column& column) const {
  if (zoned_ == 0 || others_ == 0) return "";
  return joined("column \"", column.name, "\": ", zoned_, " of ", zoned_ + others_, " dates have a zone, ", zones_text(found_),
                ", and the others have none: ",
                is_day_count(column) ? "those are read as if they were in UTC" : "each is the day and the hour that it names",
                "; write all of them in one zone");
}

void CsvZoneCheck::add(const CsvEncoding::Column& column, const CsvDate& date, std::string_view cell) {
  const bool number = is_day_count(column);
  if (!column.zones) {  // from an older halfstep: numbers are as ever, and parts are those of UTC
    if (number || !date.zoned || date.zone == 0) return;
  } else if (column.zones->empty() || !date.zoned) {
    if (column.zones->empty() ? !date.zoned : date.zoned || !number) return;
  } else if (number || !is_other_zone(date.zone, *column.zones)) {
    return;
  }
  if (count_++ > 0) return;
  const std::string training = !column.zones           ? "the run does not say which zones the training data has"
                               : column.zones->empty() ? "the training data's dates have no zone"
                                                       : "the training data has times in " + zones_text(*column.zones);
  const char* const reading = !date.zoned               ? "read as if it were in UTC"
                              : number || !column.zones ? "read in UTC"
                                                        : "read as the day and the hour that it names";
  example_ = joined(spelled(cell.substr(0, 60)), " in column ", column.name, ", is ", reading, ", and ", training);
}

void CsvZoneCheck::add(const CsvZoneCheck& other) {
  if (count_ == 0) example_ = other.example_;
  count_ += other.count_;
}

std::string CsvZoneCheck::text() const {
  if (count_ == 0) return "";
  return joined(count_, count_ == 1 ? " date" : " dates", " may be of another zone than the training data's: the first, ",
                example_);
}

}  // namespace halfstep
