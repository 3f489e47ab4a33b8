// Tables in comma-separated files (RFC 4180; LF or CRLF, quoted fields, empty lines at the end).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/data/tensor_dataset.h"

namespace halfstep {

// Mean and standard deviation of each input; a constant column has std 1.
struct CsvScaling {
  std::vector<double> mean, std;
};

struct CsvOptions {
  enum class Header : uint8_t { automatic, yes, no };
  Header header = Header::automatic;  // automatic: a first row without numbers above a row with one
  char delimiter = ',';
  std::string target{};                 // column by name or 0-based index (negative: from the end); "": the last
  bool classification = true;           // classes: the distinct targets, in order; else regression, target [1]
  std::vector<std::string> features{};  // columns by name or index; empty: all but the target
  bool standardize = false;             // (x - mean) / std
  std::optional<CsvScaling> scaling{};  // used instead of this part's own, e.g. the training part's
  double begin = 0, end = 1;            // the part of a seeded split that is kept, see split_part
  uint64_t seed = 0;
};

std::optional<bool> has_header(CsvOptions::Header header);  // empty: by its cells

// Inputs [features] f32. A column without any number is categorical: one 0/1 input a distinct value, sorted, named
// "column=value" and not standardized. Classes and categories come from the whole file, so that all parts agree.
// Throws IoError when the file cannot be read, ConfigError for columns it does not have, and DataError
// "path:line:field: ..." for rows of another length and for cells that are empty, not finite or not numeric.
class CsvDataset : public TensorDataset {
 public:
  explicit CsvDataset(const std::filesystem::path& path, const CsvOptions& options = {});

  const std::vector<std::string>& feature_names() const { return feature_names_; }  // one an input
  const std::vector<std::string>& class_names() const { return class_names_; }      // empty for regression
  const CsvScaling& scaling() const { return scaling_; }                            // empty unless standardized

 private:
  struct Parsed;
  explicit CsvDataset(Parsed parsed);
  static Parsed parse(const std::filesystem::path& path, const CsvOptions& options);
  std::vector<std::string> feature_names_, class_names_;
  CsvScaling scaling_;
};

}  // namespace halfstep
