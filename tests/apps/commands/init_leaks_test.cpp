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

std::string cell_of(int i) { return std::to_string(i); }

// What init says of a table, and the config.
std::string first_config(const TempDir& dir, const std::string& header, const std::function<std::string(int)>& row, int rows = 60) {
  std::string out = header + '\n';
  for (int i = 0; i < rows; ++i) out += row(i) + '\n';
  write(dir / "t.csv", out);
  const Ran r = run(dir, "init t.csv --out c.json --replace");
  CHECK_MESSAGE(r.code == 0, header, ": ", r.err);
  CHECK(run(dir, "validate c.json").code == 0);
  return r.err + read(dir / "c.json");
}

void must_have(const std::string& said, std::initializer_list<const char*> parts, std::initializer_list<const char*> never = {}) {
  for (const char* part : parts) CHECK_MESSAGE(contains(said, part), part, '\n', said);
  for (const char* part : never) CHECK_MESSAGE(!contains(said, part), part, '\n', said);
}

int in_other_order(int i) { return (i * 37 + 11) % 60 * 2; }  // 0 to 118

}  // namespace

TEST_CASE("init: an id that rows share is no input, and its rows lie in both parts") {
  const TempDir dir;
  const auto more = [](int i) { return ',' + cell_of(in_other_order(i) % 17) + ".5," + (in_other_order(i) % 4 ? "sick" : "well"); };
  must_have(
      first_config(dir, "SubjectID,x,y", [&](int i) { return "S" + cell_of(i / 6) + more(i); }),
      {R"("exclude": ["SubjectID"])", "left out: SubjectID is an id that rows share, 10 different in 60 rows",
       "rows of one SubjectID lie in both parts, so that validation may be better than new ones are; for parts without a common "
       "SubjectID, in Python: import pandas; t = pandas.read_csv(\"t.csv\", dtype=str, keep_default_na=False); v = "
       "t[\"SubjectID\"].isin(t[\"SubjectID\"].drop_duplicates().sample(frac=0.2, random_state=0)); "
       "t[~v].to_csv(\"t_train.csv\", index=False); t[v].to_csv(\"t_val.csv\", index=False); train and val"});
  must_have(first_config(dir, "user_id,x,y", [&](int i) { return cell_of(100 + i / 4) + more(i); }),
            {R"("exclude": ["user_id"])", "rows of one user_id lie in both parts"});
  must_have(first_config(dir, "patient,x,y", [&](int i) { return cell_of(i % 12) + more(i); }), {R"("exclude": ["patient"])"});
  // Texts that nearly all differ are left out anyway, and belong together all the same.
  must_have(first_config(dir, "client_id,x,y", [&](int i) { return "c" + cell_of(i / 2) + more(i); }),
            {"client_id is an id that rows share", "rows of one client_id lie in both parts"});
  // Few kinds, other names, and ids that are all there is.
  must_have(first_config(dir, "type_id,x,y", [&](int i) { return cell_of(i % 3) + more(i); }),
            {"type_id is named as an id, with 3"}, {"\"exclude\": ["});
  must_have(first_config(dir, "id_07,paid,y", [&](int i) { return cell_of(i % 9) + more(i); }), {},
            {"\"exclude\": [", "in both parts"});
  must_have(first_config(
                dir, "user_id,movie_id,rating",
                [](int i) { return cell_of(i / 6) + ',' + cell_of(in_other_order(i) % 9) + ',' + cell_of(in_other_order(i) % 5); }),
            {"user_id is named as an id, with 10 different in 60 rows: an input"}, {"\"exclude\": ["});
}

TEST_CASE("init: columns of parts and folds are no inputs, and the config does not part by them") {
  const TempDir dir;
  const auto more = [](int i) { return ',' + cell_of(in_other_order(i) % 17) + ".5," + (in_other_order(i) % 4 ? "sick" : "well"); };
  must_have(first_config(dir, "Usage,x,y",
                         [&](int i) {
                           return (i < 40 ? "Training" : i < 50 ? "PublicTest" : "PrivateTest") + more(i);
                         }),
            {R"("exclude": ["Usage"])",
             "Usage names the parts of its author (PrivateTest 10, PublicTest 10, Training 40), but the part for",
             "[p.to_csv(\"t_\" + k + \".csv\", index=False) for k, p in t.groupby(\"Usage\")]"});
  must_have(first_config(dir, "cv_fold,x,y", [&](int i) { return cell_of(i % 5) + more(i); }),
            {R"("exclude": ["cv_fold"])", "v = t[\"cv_fold\"] == \"0\"; t[~v].to_csv("});
  must_have(first_config(dir, "is_train,x,y", [&](int i) { return cell_of(i % 4 > 0) + more(i); }),
            {"v = t[\"is_train\"] == \"0\";"});
  must_have(first_config(dir, "x,y,set",
                         [&](int i) {
                           return cell_of(in_other_order(i)) + ',' + cell_of(in_other_order(i) * 3 % 7) +
                                  (i % 4 ? ",train" : ",val");
                         }),
            {R"("target": "y")", R"("exclude": ["set"])"});
  must_have(first_config(dir, "fold_change,x,y", [&](int i) { return cell_of(i % 5) + more(i); }), {}, {"\"exclude\": ["});
  must_have(first_config(dir, "vehicle,x,y", [&](int i) { return std::string(i % 3 ? "train" : "bus") + more(i); }), {},
            {"\"exclude\": ["});
}

TEST_CASE("init: the target under another code, or in another scale, is no input") {
  const TempDir dir;
  const auto kind = [](int i) { return in_other_order(i) % 3; };
  must_have(first_config(dir, "code,x,kind",
                         [&](int i) {
                           return cell_of(7 - kind(i)) + ',' + cell_of(in_other_order(i)) + (kind(i) ? ",k" : ",z") +
                                  cell_of(kind(i));
                         }),
            {R"("exclude": ["code"])", "left out: code is kind under other names: \"6\" is always \"k1\""});
  must_have(first_config(dir, "code,x,kind",
                         [&](int i) {
                           return cell_of(i == 9 ? 8 : 7 - kind(i)) + ',' + cell_of(in_other_order(i)) + ",k" + cell_of(kind(i));
                         }),
            {}, {"\"exclude\": ["});
  must_have(first_config(dir, "fahrenheit,x,celsius",
                         [](int i) {
                           return cell_of(32 + 9 * in_other_order(i)) + ',' + cell_of(in_other_order(i) % 7) + ',' +
                                  cell_of(5 * in_other_order(i));
                         }),
            {R"("exclude": ["fahrenheit"])", "fahrenheit is celsius in another scale: 230 for 110"});
  must_have(first_config(dir, "near,x,y",
                         [](int i) {
                           return cell_of(9 * in_other_order(i) + i % 3) + ',' + cell_of(in_other_order(i) % 7) + ',' +
                                  cell_of(5 * in_other_order(i));
                         }),
            {}, {"\"exclude\": ["});
  must_have(first_config(dir, "x,y", [](int i) { return cell_of(in_other_order(i)) + ',' + cell_of(3 * in_other_order(i)); }), {},
            {"\"exclude\": [", "in another scale"});
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
    must_have(begins(with(label)), {("\"ignore_index\": " + std::to_string(label) + "}").c_str(), "y has ", "\"out_channels\": 3,",
                                    "beside the classes up to 2, read as places without a class"});
    CHECK(run(dir, "train c.json --quiet --overwrite --threads 1 --set train.epochs=1 --set output_dir=r").code == 0);
  }
  must_have(begins(with(255).to(DType::u8)), {R"("ignore_index": 255})"});
  must_have(begins(with(3)), {"\"out_channels\": 4,"}, {"ignore_index"});
  must_have(begins(with(255), "--task regression"), {"MSELoss"}, {"ignore_index"});
  must_have(begins(hole.to(DType::i64) * 255), {"np.unique("}, {"ignore_index"});  // a mask of 0 and 255 has two classes
  save_safetensors(dir / "m.safetensors", {{"x", rand({20, 4})}, {"y", randint(0, 3, {20}).to(DType::i64) * 100}});
  must_have(run(dir, "init m.safetensors").err,
            {"np.unique(", "if 200 means no label, a config by hand with \"ignore_index\": 200"});
}

TEST_CASE("init: times in digits are dates where so more steps are equal") {
  const TempDir dir;
  const auto series = [&](const std::function<std::string(int)>& time, int rows = 60) {
    return first_config(
        dir, "at,v", [&](int i) { return time(i) + ',' + cell_of(i * 7 % 23) + ".5"; }, rows);
  };
  const auto two = [](int i) { return cell_of(100 + i).substr(1); };
  const char* const is_series = R"("type": "TimeSeries")";
  must_have(series([&](int i) { return cell_of(2015 + i / 12) + two(1 + i % 12); }),
            {is_series, "at: numbers are read as YYYYMM, \"201501\" is 2015-01-01"}, {" of 89", "interpolate"});
  must_have(series([&](int i) { return cell_of(2015 + i / 4) + two(3 + 3 * (i % 4)); }), {is_series, "numbers are read as YYYYMM"},
            {" steps of "});
  must_have(series([](int i) { return cell_of(2015 + i / 4) + cell_of(1 + i % 4); }), {is_series, "numbers are read as YYYYQ"},
            {" steps of "});
  must_have(series([&](int i) { return "202403" + two(1 + i / 24) + two(i % 24); }), {is_series, "numbers are read as YYYYMMDDHH"},
            {" steps of "});
  must_have(
      series([&](int i) { return cell_of(2023 + (i >= 30)) + cell_of(i < 30 ? 336 + i : 1000 + i - 29).substr(i < 30 ? 0 : 1); }),
      {is_series, "numbers are read as YYYYDDD, \"2023336\" is 2023-12-02"}, {" steps of "});
  must_have(series([&](int i) {
              const int m = i + (i > 20);
              return cell_of(2015 + m / 12) + two(1 + m % 12);
            }),
            {"at: 1 step of 2 months where 58 have 1"});
  // Numbers with equal steps, and with parts that are no dates.
  must_have(series([](int i) { return cell_of(200001 + 100 * i); }), {}, {"YYYY"});
  must_have(series([](int i) { return cell_of(201510 + i); }), {}, {"YYYY"});
}
