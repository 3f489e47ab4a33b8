// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_other_form.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/number_text.h"
#include "framework/data/tables/csv_columns.h"
#include "framework/data/tokens/unicode.h"

namespace halfstep {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// Returns what a cell is in a form, and NaN if it is nothing in it.
using Reading = std::function<double(std::string_view)>;

// The forms of numbers, or of dates.
struct Forms {
  Reading own{};
  std::vector<Reading> others{};
  std::function<std::string(std::string_view)> remedy{};  // for a cell that is nothing in the own form
  std::function<std::string(double)> text{};
};

struct Place {
  size_t row = 0, column = 0;
};

// Returns whether digits after a leading 0 are no group of thousands: "0.125".
bool begins_with_zero(std::string_view cell) {
  if (!cell.empty() && (cell[0] == '-' || cell[0] == '+')) cell.remove_prefix(1);
  return cell.size() > 1 && cell[0] == '0' && !is_digit(cell[1]);
}

Forms forms_of_numbers(const CsvFormat& own) {
  const auto reading = [](const CsvFormat& f, bool other) {
    return [f, other](std::string_view cell) {
      double value = kNothing;
      if (other && f.thousands != 0 && begins_with_zero(cell) && cell.find(f.decimal) == cell.npos) return kNothing;
      return parse_number(cell, f, value) && std::isfinite(value) ? value : kNothing;
    };
  };
  Forms out{.own = reading(own, false)};
  for (const char decimal : {'.', ','}) {
    for (const char thousands : {'\0', ',', '.', ' ', '\'', '_'}) {
      CsvFormat other = own;
      other.decimal = decimal, other.thousands = thousands;
      const bool is_own = decimal == own.decimal && thousands == own.thousands;
      if (decimal != thousands && !is_own) out.others.push_back(reading(other, true));
    }
  }
  out.remedy = [own](std::string_view cell) { return number_hint(cell, own).remedy; };
  out.text = [](double value) { return joined(value); };
  return out;
}

Forms forms_of_dates(CsvDateOrder own) {
  static constexpr std::pair<CsvDateOrder, const char*> kOrders[] = {
      {CsvDateOrder::ymd, "ymd"}, {CsvDateOrder::dmy, "dmy"}, {CsvDateOrder::mdy, "mdy"}};
  const auto reading = [](CsvDateOrder order) {
    return [order](std::string_view cell) {
      CsvDate date;
      return parse_date(cell, order, date) ? date.days : kNothing;
    };
  };
  Forms out{.own = reading(own)};
  for (const auto& [order, word] : kOrders)
    if (order != own) out.others.push_back(reading(order));
  out.remedy = [](std::string_view cell) {
    CsvDate date;
    for (const auto& [order, word] : kOrders)
      if (parse_date(cell, order, date)) return joined("\"date_order\": \"", word, "\" reads it");
    return std::string();
  };
  out.text = [](double days) { return text_of(date_of_days(days)); };
  return out;
}

// Compares the cells of some columns.
class FormCheck {
 public:
  FormCheck(const CsvSheet& sheet, const std::vector<size_t>& columns, const CsvOptions& options, Forms forms, bool numbers)
      : sheet_(sheet), columns_(columns), options_(options), forms_(std::move(forms)), numbers_(numbers) {}

  void add_to(CsvOtherForm& out) {
    find_foreign();
    if (foreign_.empty()) return;
    find_doubtful();
    refuse(out);
  }

 private:
  // Returns what a cell is in the own form; NaN also for one without a value.
  double own_value(size_t row, size_t column) const {
    if (numbers_)
      if (const double plain = sheet_.plain_number(row, column); !std::isnan(plain)) return plain;
    return is_missing_cell(sheet_.cell(row, column), options_.missing_words) ? kNothing : forms_.own(sheet_.cell(row, column));
  }

  // Finds the first cell of each column that is something in other forms alone, and the forms that read most such cells.
  void find_foreign() {
    std::vector<size_t> read(forms_.others.size());
    for (const size_t c : columns_) {
      for (size_t r = 0; r < sheet_.rows(); ++r) {
        if (!std::isnan(own_value(r, c))) continue;
        const std::string_view cell = sheet_.cell(r, c);
        if (is_missing_cell(cell, options_.missing_words)) continue;
        bool any = false;
        for (size_t k = 0; k < read.size(); ++k)
          if (!std::isnan(forms_.others[k](cell))) ++read[k], any = true;
        if (any) foreign_.try_emplace(c, Place{r, c});
      }
    }
    const size_t most = read.empty() ? 0 : *std::max_element(read.begin(), read.end());
    for (size_t k = 0; k < read.size() && most > 0; ++k)
      if (read[k] == most) likely_.push_back(k);
  }

  // Finds cells with another meaning in those forms, and columns with cells that are nothing in them.
  void find_doubtful() {
    for (const size_t c : columns_) {
      for (size_t r = 0; r < sheet_.rows(); ++r) {
        const double own = own_value(r, c);
        if (std::isnan(own)) continue;
        bool any = false;
        for (const size_t k : likely_) {
          const double other = forms_.others[k](sheet_.cell(r, c));
          any = any || !std::isnan(other);
          if (std::isnan(other) || other == own) continue;
          doubtful_[c].push_back({{r, c}, other});
          break;
        }
        if (!any) has_own_[c] = true;
      }
    }
  }

  void refuse(CsvOtherForm& out) {
    for (const auto& [c, cells] : doubtful_) {
      const auto found = foreign_.find(c);
      const Place& shown = found == foreign_.end() ? foreign_.begin()->second : found->second;
      if (!has_own_.contains(c) && (found != foreign_.end() || has_own_.empty())) {
        out.faults.resize(sheet_.rows());
        for (const auto& [place, other] : cells)
          if (out.faults[place.row].empty()) out.faults[place.row] = fault_of(place, other, shown);
      } else if (found != foreign_.end()) {
        out.warning +=
            joined(out.warning.empty() ? "" : "; ", "column \"", sheet_.names()[c], "\" has two forms: ", text(shown),
                   " is not in the run's, and ", text(cells[0].place), " is read as ",
                   forms_.text(own_value(cells[0].place.row, c)), ", but might be ", forms_.text(cells[0].other),
                   cells.size() == 1 ? "" : "; the same holds for ", cells.size() == 1 ? "" : joined(cells.size() - 1, " more"));
      }
    }
  }

  std::string text(const Place& at) const {
    return joined(spelled(sheet_.cell(at.row, at.column).substr(0, 60)), " in line ", sheet_.line(at.row));
  }

  std::string fault_of(const Place& at, double other, const Place& shown) const {
    const std::string remedy = forms_.remedy(sheet_.cell(shown.row, shown.column));
    try {
      sheet_.fail_at(at.row, at.column, "must be in the training data's form, where ",
                     spelled(sheet_.cell(at.row, at.column).substr(0, 60)), " is ", forms_.text(own_value(at.row, at.column)),
                     ", but this file has ", text(shown), ", in whose form it is ", forms_.text(other),
                     remedy.empty() ? remedy : joined(Help{remedy}));
    } catch (const DataError& e) { return e.what(); }
  }

  struct Doubtful {
    Place place;
    double other;
  };
  const CsvSheet& sheet_;
  const std::vector<size_t>& columns_;
  const CsvOptions& options_;
  Forms forms_;
  bool numbers_;
  std::vector<size_t> likely_;       // of forms_.others
  std::map<size_t, Place> foreign_;  // by column
  std::map<size_t, std::vector<Doubtful>> doubtful_;
  std::map<size_t, bool> has_own_;
};

}  // namespace

CsvOtherForm find_other_form(const CsvSheet& sheet, const std::vector<size_t>& columns, const CsvOptions& o) {
  CsvOtherForm out;
  if (o.encoding->tokens) return out;
  std::vector<size_t> numbers, dates;
  for (size_t i = 0; i < columns.size(); ++i) {
    const CsvEncoding::Column& column = o.encoding->columns[i];
    if (column.categories.empty()) (column.date.empty() ? numbers : dates).push_back(columns[i]);
  }
  FormCheck(sheet, numbers, o, forms_of_numbers(sheet.format()), true).add_to(out);
  FormCheck(sheet, dates, o, forms_of_dates(o.date_order), false).add_to(out);
  return out;
}

}  // namespace halfstep
