// SPDX-License-Identifier: Apache-2.0
#include "framework/data/sets/picture_statistics.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "framework/base/check.h"
#include "framework/data/sets/image_folder.h"
#include "framework/data/sets/picture_check.h"
#include "framework/data/transforms/data_form.h"
#include "framework/io/files/atomic_file.h"
#include "framework/io/files/checksum.h"
#include "framework/io/files/json.h"

namespace halfstep {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kMostPictures = 4096;
constexpr const char* kReaderVersion = "2";  // to be changed when the picture reader gives other pixels for a file

// Returns the file with the remembered statistics of these pictures; empty: none.
fs::path statistics_file(const Dataset& data, const std::vector<fs::path>& pictures, std::span<const int64_t> samples) {
  const fs::path folder = picture_cache();
  if (folder.empty()) return {};
  Sha256 hash;
  hash.update(joined(kReaderVersion, ' ', to_json(data.form())->dump(), ' ', data.input_shape(), ' ', data.size(), '\n'));
  for (const int64_t i : samples) {
    const uint64_t number = picture_number(pictures[size_t(i)], "");
    if (number == 0) return {};
    hash.update(&number, sizeof number);
  }
  constexpr size_t kNameDigits = 32;  // 128 bits
  return folder / "statistics" / hash.hex().substr(0, kNameDigits);
}

// Returns the statistics in a file; empty if it has none.
std::vector<ChannelStatistics> read_statistics(const fs::path& file) {
  std::vector<ChannelStatistics> out;
  try {
    constexpr size_t kMostBytes = 1 << 16;
    const auto stored = read_json<nlohmann::json>(read_file(file, kMostBytes));
    for (const auto& c : stored) {
      ChannelStatistics channel;
      channel.count = c.at("count"), channel.mean = c.at("mean"), channel.std = c.at("std");
      channel.low = c.at("low"), channel.high = c.at("high");
      out.push_back(channel);
    }
  } catch (const Error&) { return {}; } catch (const nlohmann::json::exception&) {
    return {};  // written by another program
  }
  return out;
}

void write_statistics(const fs::path& file, const std::vector<ChannelStatistics>& channels) {
  auto stored = nlohmann::json::array();
  for (const ChannelStatistics& c : channels)
    stored.push_back({{"count", c.count}, {"mean", c.mean}, {"std", c.std}, {"low", c.low}, {"high", c.high}});
  std::error_code failed;
  fs::create_directories(file.parent_path(), failed);
  try {
    atomic_write(file, stored.dump());
  } catch (const Error&) {}  // fails silently on a full disk
}

}  // namespace

PictureStatistics picture_statistics(const Dataset& data, const std::function<void(int64_t, int64_t)>& progress) {
  const std::vector<fs::path> pictures = picture_files(data);
  PictureStatistics out{.channels = {}, .examined = data.size(), .all = data.size()};
  if (pictures.empty()) {
    out.channels = channel_statistics(data);
    return out;
  }
  out.examined = std::min(out.all, kMostPictures);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < out.examined; ++i) samples.push_back(i * out.all / out.examined);
  const fs::path file = statistics_file(data, pictures, samples);
  if (!file.empty()) out.channels = read_statistics(file);
  if (std::ssize(out.channels) == (data.input_shape().size() > 0 ? data.input_shape()[0] : 1)) return out;
  out.channels = channel_statistics(data, samples, [&](int64_t done) {
    if (progress) progress(done, out.examined);
  });
  if (!file.empty()) write_statistics(file, out.channels);
  return out;
}

std::vector<double> PictureStatistics::means() const {
  std::vector<double> out;
  for (const ChannelStatistics& c : channels) out.push_back(c.mean);
  return out;
}

std::vector<double> PictureStatistics::deviations() const {
  std::vector<double> out;
  for (const ChannelStatistics& c : channels) out.push_back(c.std > 0 ? c.std : 1.0);
  return out;
}

NormalizeTransform normalize_from(const Dataset& train) {
  const PictureStatistics found = picture_statistics(train);
  return {found.means(), found.deviations()};
}

}  // namespace halfstep
