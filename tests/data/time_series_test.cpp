// SPDX-License-Identifier: Apache-2.0
#include "framework/data/time_series.h"

#include <doctest/doctest.h>

#include <cmath>

#include "framework/base/check.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("TimeSeries: windows, the values after them, and the part with the targets") {
  const TempDir dir;
  write_bytes(dir / "s", "t,v\n1,10\n2,20\n3,30\n4,40\n5,50\n6,60\n7,70\n8,80\n9,90\n10,100\n");
  const TimeSeriesDataset train(dir / "s", {.time = "t", .window = 2, .horizon = 1, .end = 0.6, .standardize = false});
  CHECK(train.size() == 4);  // 30 to 60 are predicted
  const Batch batch = train.batch(std::vector<int64_t>{3, 0});
  CHECK(batch.input.shape() == Shape{2, 2, 1});
  CHECK(batch.input.to_vector<int>() == std::vector<int>{40, 50, 10, 20});
  CHECK(batch.target.shape() == Shape{2, 1});
  CHECK(batch.target.to_vector<int>() == std::vector<int>{60, 30});
  // The rest is predicted from everything before it.
  const TimeSeriesDataset val(dir / "s", {.window = 2, .begin = 0.6, .standardize = false});
  CHECK(val.size() == 4);
  CHECK(val.batch(std::vector<int64_t>{0}).input.to_vector<int>() == std::vector<int>{50, 60});
  const TimeSeriesDataset wide(dir / "s", {.window = 3, .horizon = 2, .stride = 2, .standardize = false});
  CHECK(wide.size() == 3);
  CHECK(wide.batch(std::vector<int64_t>{2}).input.to_vector<int>() == std::vector<int>{50, 60, 70});
  CHECK(wide.batch(std::vector<int64_t>{2}).target.to_vector<int>() == std::vector<int>{80, 90});
}

TEST_CASE("TimeSeries: a part is scaled by its own mean and deviation, or by another's") {
  const TempDir dir;
  write_bytes(dir / "s", "1\n3\n5\n100\n");
  const TimeSeriesDataset train(dir / "s", {.end = 0.75});
  CHECK(train.target_scale().mean == doctest::Approx(3));
  CHECK(train.target_scale().std == doctest::Approx(std::sqrt(8.0 / 3)));
  CHECK(train.batch(std::vector<int64_t>{0}).target.item<double>() == doctest::Approx(0));
  const TimeSeriesDataset val(dir / "s", {.begin = 0.75, .scaling = train.target_scale()});
  CHECK(val.batch(std::vector<int64_t>{0}).target.item<double>() == doctest::Approx(97 / std::sqrt(8.0 / 3)));
}

TEST_CASE("TimeSeries: what is wrong with a file") {
  const TempDir dir;
  const auto error = [&](const char* text, const TimeSeriesOptions& options) {
    write_bytes(dir / "s", text);
    return message_of<DataError>([&] { TimeSeriesDataset(dir / "s", options); });
  };
  CHECK(contains(error("v,t\n1,1\n,2\n3,3\n", {.column = "v"}), "s:3:1: column \"v\" has a gap: the cell is empty"));
  CHECK(contains(error("v\n1\ntwo\n", {}), "s:3:1: column \"v\" must be a number, got \"two\""));
  CHECK(contains(error("t,v\n2,1\n10,2\n3,4\n", {.time = "t"}),
                 "s:4:1: column \"t\" must grow from row to row, but \"3\" follows \"10\""));
  CHECK(contains(error("t,v\n1949-01,1\n1949-01,2\n", {.time = "t"}), "but \"1949-01\" follows \"1949-01\""));
  CHECK(contains(error("1\n2\n3\n", {.window = 3}), "has 3 of 3 rows, which is too few for a window of 3 and 1 after it"));
  CHECK(
      contains(message_of<ValueError>([&] { TimeSeriesDataset(dir / "s", {.window = 0}); }), "must be at least 1, got 0, 1 and 1"));
}

TEST_SUITE("data") {
  TEST_CASE("TimeSeries: the errors of predicting the value before") {
    const auto root = data_root();
    if (!root) return;
    const auto rmse = [&](const char* file, const char* time) {
      const TimeSeriesDataset val(*root / "timeseries" / file, {.time = time, .window = 1, .begin = 0.67});
      double squares = 0;
      for (int64_t i = 0; i < val.size(); ++i) {
        const Batch b = val.batch(std::vector<int64_t>{i});
        const double off = (b.input.item<double>() - b.target.item<double>()) * val.target_scale().std;
        squares += off * off;
      }
      return std::sqrt(squares / double(val.size()));
    };
    CHECK(rmse("airline-passengers.csv", "Month") == doctest::Approx(48.04).epsilon(1e-4));
    CHECK(rmse("daily-min-temperatures.csv", "Date") == doctest::Approx(2.624).epsilon(1e-3));
    CHECK(rmse("monthly-sunspots.csv", "Month") == doctest::Approx(18.40).epsilon(1e-3));
  }
}
