// SPDX-License-Identifier: Apache-2.0
// Writes small data of each kind at the paths that the docs' configs use: data/houses.csv, data/pets...
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"
#include "tests/data/picture_files.h"

namespace halfstep::app::testing {

inline void write_pictures(const fs::path& folder, uint8_t red) {
  fs::create_directories(folder);
  for (int i = 0; i < 4; ++i) {
    std::string pixels;
    for (int p = 0; p < 20 * 16; ++p) pixels += {char(red), char(10 * i + p % 7), char(255 - red)};
    write(folder / (std::to_string(i) + ".png"), halfstep::testing::png(20, 16, pixels));
  }
}

inline void write_tables(const fs::path& data) {
  std::string houses = "rooms,area,town,price\n", sales = "date,sales,visitors\n", novel;
  for (int i = 0; i < 60; ++i) {
    houses += std::to_string(2 + i % 5) + ',' + (i % 9 == 4 ? "" : std::to_string(50 + i)) + ',' + (i % 3 ? "Ulm" : "Bonn") + ',' +
              std::to_string(100 + 3 * i) + '\n';
  }
  for (int i = 0; i < 400; ++i)
    sales += std::to_string(i) + ',' + std::to_string(100 + i % 7 * 5) + ',' + std::to_string(200 + i % 5) + '\n';
  for (int i = 0; i < 400; ++i) novel += "It was a dark and stormy night; ";
  std::string reviews = "id,review,label\n";
  for (int i = 0; i < 60; ++i)
    reviews += std::to_string(i) + ",\"It is a " + (i % 2 ? "fine" : "dull") + " film, no. " + std::to_string(i % 7) + "\"," +
               (i % 2 ? "good" : "bad") + '\n';
  write(data / "reviews.csv", reviews);
  write(data / "houses.csv", houses);
  write(data / "sales.csv", sales);
  write(data / "novel.txt", novel);
}

inline void write_arrays(const fs::path& data) {
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int i = 0; i < 40; ++i) {
    for (int k = 0; k < 6; ++k) x.push_back(float((i * 7 + k) % 11));
    y.push_back(i % 3);
  }
  const auto bytes = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
  };
  const std::string inputs = halfstep::testing::npy("<f4", "(40, 2, 3)", bytes(x));
  const std::string targets = halfstep::testing::npy("<i8", "(40,)", bytes(y));
  const std::vector<float> others(x.rbegin(), x.rend());
  for (const auto& [part, values] : {std::pair<const char*, const std::vector<float>*>("train", &x), {"val", &others}}) {
    write(data / (std::string(part) + "_x.npy"), halfstep::testing::npy("<f4", "(40, 2, 3)", bytes(*values)));
    write(data / (std::string(part) + "_y.npy"), targets);
  }
  write(data / "signals.npz", halfstep::testing::zip({{"x.npy", inputs}, {"y.npy", targets}}, false));
  save_safetensors(data / "signals.safetensors", {{"x", from_vector<float>(x, {40, 2, 3})}, {"y", from_vector<int64_t>(y, {40})}});
}

inline void write_data(const TempDir& dir) {
  const fs::path data = dir / "data";
  for (const auto& [part, red] : {std::pair<const char*, int>("train", 200), {"val", 205}}) {
    write_pictures(data / "pets" / part / "cat", uint8_t(red));
    write_pictures(data / "pets" / part / "dog", uint8_t(240 - red));
  }
  write_tables(data);
  write_arrays(data);
}

}  // namespace halfstep::app::testing
