// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/csv_texts.h"

#include "framework/base/check.h"

namespace halfstep {
TokenRows learn_tokens(const TokenRowOptions& options, const TextColumns& texts, std::span<const int64_t> rows,
                       const std::string& path) {
  try {
    return {options, texts, rows};
  } catch (const DataError& e) {
    const std::string text = e.what();
    fail<DataError>("CSV", path, ": ", text.substr(text.find("] ") + 2));
  }
}

Tensor tokens_of_rows(const TokenRows& tokens, const TextColumns& texts, std::span<const int64_t> rows, const CsvSheet& sheet,
                      const std::vector<size_t>& columns, DataNotes& notes) {
  const int64_t length = tokens.options().length;
  Tensor out = Tensor::empty({int64_t(rows.size()), length}, {.dtype = DType::i64, .device = Device::cpu});
  TokenRows::Counts counts;
  std::vector<std::string_view> of_row(texts.size());
  int64_t* at = out.data_ptr<int64_t>();
  for (const int64_t row : rows) {
    for (size_t c = 0; c < texts.size(); ++c) of_row[c] = texts[c].at(size_t(row));
    tokens.encode(of_row, at, counts);
    at += length;
  }
  std::string made = joined(texts.size(), texts.size() == 1 ? " column of texts (" : " columns of texts (");
  for (size_t c = 0; c < columns.size(); ++c) made += (c == 0 ? "" : ", ") + sheet.names()[columns[c]];
  made += joined(") became ", length, " tokens a row, of ", tokens.size(), " different ones");
  if (tokens.padding() != 0) made += joined("; padding is token ", tokens.padding());  // padding_idx must then be set to it
  if (const std::string more = tokens.describe(counts); !more.empty()) made += "; " + more;
  notes.made.insert(0, made);  // the existing text begins with "; "
  return out;
}

}  // namespace halfstep
