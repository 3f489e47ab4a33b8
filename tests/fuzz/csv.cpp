// SPDX-License-Identifier: Apache-2.0
// A table in a delimited file. The first byte chooses how it is read.
#include "framework/data/tables/csv.h"

#include <algorithm>

#include "framework/data/tables/time_series.h"
#include "framework/data/transforms/data_form.h"
#include "tests/fuzz/fuzz.h"

HALFSTEP_FUZZ_HARNESS(csv) {
  using namespace halfstep;
  if (size < 1) return 0;
  CsvOptions options;
  if (data[0] % 3 > 0) options.header = data[0] % 3 == 1;
  options.classification = (data[0] & 4) == 0;
  options.standardize = (data[0] & 8) != 0;
  if (data[0] & 16) options.format = {.delimiter = ';', .decimal = ',', .thousands = '.'};
  if (data[0] & 32) options.target = "0";
  if (data[0] & 64) options.features = {"a", "-1"};
  if (data[0] & 128) options.part = {.begin = 0.25, .end = 0.75};
  switch (data[0] % 11) {
    case 5: options.format.accounting = true; break;
    case 6: options.tokens = TokenRowOptions{.length = 9, .min_count = 1}, options.missing = CsvMissing::constant; break;
    case 7: options.format.encoding = TextEncoding::latin1; break;
    case 8: options.format.encoding = TextEncoding::windows1252; break;
    case 9: options.format.encoding = TextEncoding::utf16; break;
    case 10: options.format.delimiter = kCsvBlanks, options.format.skip_rows = {2, 4}; break;
    default: break;
  }
  const fuzz::MemoryFile file(fuzz::text_of(data + 1, size - 1));
  CsvDate date;
  const std::string_view cell = fuzz::text_of(data + 1, std::min<size_t>(size - 1, 40));
  for (const auto order : {CsvDateOrder::ymd, CsvDateOrder::dmy, CsvDateOrder::mdy}) parse_date(cell, order, date);
  number_hint(cell, options.format);
  fuzz::typed([&] {
    TimeSeriesOptions series{
        .all_columns = (data[0] & 1) != 0, .missing = SeriesMissing(data[0] / 4 % 4), .format = options.format};
    series.header = options.header;
    if (data[0] & 2) series.time = {"0"};
    if (data[0] & 64) series.time = {"year", "month"};
    const TimeSeriesDataset set(file.path(), series);
    const Batch batch = set.batch(std::vector<int64_t>{set.size() - 1});
    if (batch.target.numel() != numel(set.target_shape())) fuzz::found("a series that does not hold");
    read_last_window(file.path(), set.options());
  });
  fuzz::typed([&] {
    const CsvDataset set(file.path(), options);
    const int64_t inputs = options.tokens ? options.tokens->length : int64_t(set.feature_names().size());
    if (set.size() < 1 || inputs != set.input_shape()[0]) fuzz::found("a data set that does not hold");
    CsvOptions known = std::get<TableForm>(set.form().source).options;
    if (data[0] & 64) known.unknown = "missing", known.missing = CsvMissing::drop_row;
    const CsvRows rows = read_csv_rows(file.path(), known);
    if (rows.faults.size() != rows.cells.size()) fuzz::found("rows that do not hold");
  });
  return 0;
}
