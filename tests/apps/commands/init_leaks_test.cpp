// SPDX-License-Identifier: Apache-2.0
// `halfstep init` on data that gives the target away: ids that rows share, columns of parts, copies of the target; and
// on masks with a void label, and times in digits.
#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

std::string text(int i) { return std::to_string(i); }

// What init says of a table, and the config.
std::string begin(const TempDir& dir, const std::string& header, const std::function<std::string(int)>& row, int rows = 60) {
  std::string out = header + '\n';
  for (int i = 0; i < rows; ++i) out += row(i) + '\n';
  write(dir / "t.csv", out);
  const Ran r = run(dir, "init t.csv --out c.json --replace");
  CHECK_MESSAGE(r.code == 0, header, ": ", r.err);
  CHECK(run(dir, "validate c.json").code == 0);
  return r.err + read(dir / "c.json");
}

void has(const std::string& said, std::initializer_list<const char*> parts, std::initializer_list<const char*> never = {}) {
  for (const char* part : parts) CHECK_MESSAGE(contains(said, part), part, '\n', said);
  for (const char* part : never) CHECK_MESSAGE(!contains(said, part), part, '\n', said);
}

int mixed(int i) { return (i * 37 + 11) % 60; }  // another order of 0 to 59

}  // namespace

TEST_CASE("init: an id that rows share is no input, and its rows lie in both parts") {
  const TempDir dir;
  const auto more = [](int i) { return ',' + text(mixed(i) % 17) + ".5," + (mixed(i) % 2 ? "sick" : "well"); };
  has(begin(dir, "SubjectID,x,y", [&](int i) { return "S" + text(i / 6) + more(i); }),
      {R"("exclude": ["SubjectID"])", "left out: SubjectID is an id that rows share, 10 different in 60 rows",
       "rows of one SubjectID lie in both parts, so that validation may be better than new ones are; for parts without a common "
       "SubjectID, in Python: import pandas; t = pandas.read_csv(\"t.csv\", dtype=str, keep_default_na=False); v = "
       "t[\"SubjectID\"].isin(t[\"SubjectID\"].drop_duplicates().sample(frac=0.2, random_state=0)); "
       "t[~v].to_csv(\"t_train.csv\", index=False); t[v].to_csv(\"t_val.csv\", index=False); train and val"});
  has(begin(dir, "user_id,x,y", [&](int i) { return text(100 + i / 4) + more(i); }),
      {R"("exclude": ["user_id"])", "rows of one user_id lie in both parts"});
  has(begin(dir, "patient,x,y", [&](int i) { return text(i % 12) + more(i); }), {R"("exclude": ["patient"])"});
  // Texts that nearly all differ are left out anyway, and belong together all the same.
  has(begin(dir, "client_id,x,y", [&](int i) { return "c" + text(i / 2) + more(i); }),
      {"client_id is an id that rows share", "rows of one client_id lie in both parts"});
  // Few kinds, other names, and ids that are all there is.
  has(begin(dir, "type_id,x,y", [&](int i) { return text(i % 3) + more(i); }), {"type_id is named as an id, with 3"}, {"exclude"});
  has(begin(dir, "id_07,paid,y", [&](int i) { return text(i % 9) + more(i); }), {}, {"exclude", "in both parts"});
  has(begin(dir, "user_id,movie_id,rating",
            [](int i) { return text(i / 6) + ',' + text(mixed(i) % 9) + ',' + text(mixed(i) % 5); }),
      {"user_id is named as an id, with 10 different in 60 rows: an input"}, {"exclude"});
}

TEST_CASE("init: columns of parts and folds are no inputs, and the config does not part by them") {
  const TempDir dir;
  const auto more = [](int i) { return ',' + text(mixed(i) % 17) + ".5," + (mixed(i) % 2 ? "sick" : "well"); };
  has(begin(dir, "Usage,x,y", [&](int i) { return (i < 40   ? "Training"
                                                   : i < 50 ? "PublicTest"
                                                            : "PrivateTest") +
                                                  more(i); }),
      {R"("exclude": ["Usage"])",
       "Usage names the parts of its author (PrivateTest 10, PublicTest 10, Training 40), but the part for",
       "[p.to_csv(\"t_\" + k + \".csv\", index=False) for k, p in t.groupby(\"Usage\")]"});
  has(begin(dir, "cv_fold,x,y", [&](int i) { return text(i % 5) + more(i); }),
      {R"("exclude": ["cv_fold"])", "v = t[\"cv_fold\"] == \"0\"; t[~v].to_csv("});
  has(begin(dir, "is_train,x,y", [&](int i) { return text(i % 4 > 0) + more(i); }), {"v = t[\"is_train\"] == \"0\";"});
  has(begin(dir, "x,y,set", [&](int i) { return text(mixed(i)) + ',' + text(mixed(i) * 3 % 7) + (i % 4 ? ",train" : ",val"); }),
      {R"("target": "y")", R"("exclude": ["set"])"});
  has(begin(dir, "vehicle,x,y", [&](int i) { return std::string(i % 2 ? "train" : "bus") + more(i); }), {}, {"exclude"});
}

TEST_CASE("init: the target under another code, or in another scale, is no input") {
  const TempDir dir;
  const auto kind = [](int i) { return mixed(i) % 3; };
  has(begin(dir, "code,x,kind",
            [&](int i) { return text(7 - kind(i)) + ',' + text(mixed(i)) + (kind(i) ? ",k" : ",z") + text(kind(i)); }),
      {R"("exclude": ["code"])", "left out: code is kind under other names: \"5\" is always \"k2\""});
  has(begin(dir, "code,x,kind",
            [&](int i) { return text(i == 9 ? 8 : 7 - kind(i)) + ',' + text(mixed(i)) + ",k" + text(kind(i)); }),
      {}, {"exclude"});
  has(begin(dir, "fahrenheit,x,celsius",
            [](int i) { return text(32 + 9 * mixed(i)) + ',' + text(mixed(i) % 7) + ',' + text(5 * mixed(i)); }),
      {R"("exclude": ["fahrenheit"])", "fahrenheit is celsius in another scale: 131 for 55"});
  has(begin(dir, "near,x,y",
            [](int i) { return text(9 * mixed(i) + i % 3) + ',' + text(mixed(i) % 7) + ',' + text(5 * mixed(i)); }),
      {}, {"exclude"});
  has(begin(dir, "x,y", [](int i) { return text(mixed(i)) + ',' + text(3 * mixed(i)); }), {}, {"exclude", "in another scale"});
}

TEST_CASE("init: a label of masks that is far above the classes, or below 0, is ignored") {
  const TempDir dir;
  const auto begins = [&](const Tensor& masks, const char* options = "") {
    save_safetensors(dir / "m.safetensors", {{"x", rand({20, 1, 8, 8})}, {"y", masks}});
    const Ran r = run(dir, std::string("init m.safetensors --out c.json --replace ") + options);
    return r.err + (r.code == 0 ? read(dir / "c.json") : "");
  };
  const Tensor classes = randint(0, 3, {20, 8, 8}).to(DType::i64), hole = randint(0, 4, {20, 8, 8}).to(DType::i64).eq(0);
  const auto with = [&](int64_t label) { return where(hole, classes * 0 + label, classes); };
  for (const int64_t label : {255, -1, 65535, 99}) {
    CAPTURE(label);
    has(begins(with(label)), {("\"ignore_index\": " + std::to_string(label) + "}").c_str(), "y has ", "\"out_channels\": 3,",
                              "beside the classes up to 2, read as places without a class"});
    CHECK(run(dir, "train c.json --quiet --overwrite --threads 1 --set train.epochs=1 --set output_dir=r").code == 0);
  }
  has(begins(with(255).to(DType::u8)), {R"("ignore_index": 255})"});
  has(begins(with(3)), {"\"out_channels\": 4,"}, {"ignore_index"});
  has(begins(with(255), "--task regression"), {"MSELoss"}, {"ignore_index"});
  has(begins(hole.to(DType::i64) * 255), {"np.unique("}, {"ignore_index"});  // a mask of 0 and 255 has two classes
  save_safetensors(dir / "m.safetensors", {{"x", rand({20, 4})}, {"y", randint(0, 3, {20}).to(DType::i64) * 100}});
  has(run(dir, "init m.safetensors").err, {"np.unique(", "if 200 means no label, a config by hand with \"ignore_index\": 200"});
}

TEST_CASE("init: times in digits are dates where so more steps are equal") {
  const TempDir dir;
  const auto series = [&](const std::function<std::string(int)>& time, int rows = 60) {
    return begin(
        dir, "at,v", [&](int i) { return time(i) + ',' + text(i * 7 % 23) + ".5"; }, rows);
  };
  const auto two = [](int i) { return text(100 + i).substr(1); };
  const char* const is_series = R"("type": "TimeSeries")";
  has(series([&](int i) { return text(2015 + i / 12) + two(1 + i % 12); }),
      {is_series, "at: numbers are read as YYYYMM, \"201501\" is 2015-01-01"}, {"step", "interpolate"});
  has(series([&](int i) { return text(2015 + i / 4) + two(3 + 3 * (i % 4)); }), {is_series, "numbers are read as YYYYMM"},
      {" step"});
  has(series([](int i) { return text(2015 + i / 4) + text(1 + i % 4); }), {is_series, "numbers are read as YYYYQ"}, {" step"});
  has(series([&](int i) { return "202403" + two(1 + i / 24) + two(i % 24); }), {is_series, "numbers are read as YYYYMMDDHH"},
      {" step"});
  has(series([&](int i) { return text(2023 + (i >= 30)) + text(i < 30 ? 336 + i : 1000 + i - 29).substr(i < 30 ? 0 : 1); }),
      {is_series, "numbers are read as YYYYDDD, \"2023336\" is 2023-12-02"}, {" step"});
  has(series([&](int i) {
        const int m = i + (i > 20);
        return text(2015 + m / 12) + two(1 + m % 12);
      }),
      {"at: 1 step of 2 months where 58 have 1"});
  // Numbers with equal steps, and with parts that are no dates.
  has(series([](int i) { return text(200001 + 100 * i); }), {}, {"YYYY"});
  has(series([](int i) { return text(201510 + i); }), {}, {"YYYY"});
}
