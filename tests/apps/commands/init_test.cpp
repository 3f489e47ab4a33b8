// SPDX-License-Identifier: Apache-2.0
// The way in: a first config for data, and the meaning of its keys.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>

#include "framework/io/weights/safetensors.h"
#include "framework/ops/ops.h"
#include "tests/apps/support.h"
#include "tests/data/array_files.h"
#include "tests/data/picture_files.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

// `init` on these files: the config is valid without a warning, trains an epoch, and has these parts.
void leads_to_training(const TempDir& dir, const std::string& data, std::initializer_list<const char*> parts) {
  CAPTURE(data);
  const Ran made = run(dir, "init " + data + " --out config.json --replace");
  REQUIRE_MESSAGE(made.code == 0, made.err);
  const std::string text = read(dir / "config.json");
  CAPTURE(text);
  for (const char* part : parts) CHECK_MESSAGE(contains(text, part), part);
  const Ran valid = run(dir, "validate config.json");
  CHECK_MESSAGE(valid.code == 0, valid.err);
  CHECK_MESSAGE(!contains(valid.err, "warning"), valid.err);
  const Ran trained = run(dir, "train config.json --quiet --overwrite --threads 1 --set train.epochs=1 --set output_dir=r");
  CHECK_MESSAGE(trained.code == 0, trained.err);
}

std::string rows(int n, const std::string& header, const std::function<std::string(int)>& row) {
  std::string out = header;
  for (int i = 0; i < n; ++i) out += row(i) + '\n';
  return out;
}

std::string number(int i) { return std::to_string(i); }

}  // namespace

TEST_CASE("init: a first config learns prices, and its answers are prices") {
  const TempDir dir;
  write(dir / "houses.csv", rows(400, "area,rooms,price\n", [](int i) {
          const int area = 50 + i * 37 % 100, rooms = 1 + i * 7 % 5;
          return number(area) + ',' + number(rooms) + ',' + number(300000 + 2500 * area + 20000 * rooms);
        }));
  REQUIRE(run(dir, "init houses.csv --out houses.json").code == 0);
  CHECK(contains(read(dir / "houses.json"), R"("standardize_target": true)"));
  const Ran trained = run(dir, "train houses.json --quiet --threads 1 --set train.epochs=40 --set output_dir=r --json");
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const Json found = Json::parse(trained.out);
  CAPTURE(found.dump());
  CHECK(found["val.r2"].get<double>() > 0.95);
  CHECK(found["val.rmse"].get<double>() > 10);  // in the units of the column: of the scaled targets it would be below 1
  write(dir / "new.csv", "area,rooms\n100,3\n");
  const Ran predicted = run(dir, "predict r new.csv --csv");
  REQUIRE_MESSAGE(predicted.code == 0, predicted.err);
  CAPTURE(predicted.out);
  CHECK(predicted.out.starts_with("area,rooms,prediction,error\n100,3,"));
  CHECK(std::stod(predicted.out.substr(predicted.out.find("100,3,") + 6)) == doctest::Approx(610000).epsilon(0.05));
}

TEST_CASE("init: tables, whatever their columns are") {
  const TempDir dir;
  write(dir / "houses.csv", rows(60, "id,area,town,owner,sold,price\n", [](int i) {
          return number(i + 7) + ',' + (i % 9 == 4 ? "?" : number(50 + i * 7 % 13)) + ',' + (i % 3 ? "Ulm" : "Bonn") +
                 ",owner of " + number(i) + ",2024-0" + number(1 + i % 9) + "-11," + number(100 + 3 * i) + ".5";
        }));
  leads_to_training(dir, "houses.csv",
                    {R"("target": "price")", R"("task": "regression")", R"("exclude": ["id", "owner"])", R"("dates": ["sold"])",
                     R"("missing": "median")", R"("missing_words": ["?"])",
                     "// id counts the rows; owner has texts that nearly all differ (60 in 60 rows)"});
  write(dir / "flowers.data",
        rows(60, "", [](int i) { return number(i * 7 % 11) + ".1," + number(i % 5) + ',' + (i % 2 ? "rose" : "lily"); }));
  leads_to_training(dir, "flowers.data",
                    {R"("target": 2)", R"("task": "classification")", "// 2 different texts", R"("stratified": true)"});
  // As it is written where the decimal comma is; the target is not the last column.
  write(dir / "werte.tsv", rows(40, "label;gewicht;wann\n", [](int i) {
          return number(i % 3) + ";1." + number(100 + i * 7 % 800) + "," + number(i % 10) + ";" + number(10 + i % 9) + ".03.2024";
        }));
  leads_to_training(dir, "werte.tsv",
                    {R"("target": "label")", R"("decimal": ",")", R"("thousands": ".")", R"("date_order": "dmy")",
                     "// 3 different whole numbers; or \"regression\", with MSELoss"});
  write(dir / "sales.csv", rows(80, "day,sold\n", [](int i) {
          return "2024-" + number(101 + i / 28).substr(1) + '-' + number(101 + i % 28).substr(1) + ',' + number(5 + i % 7);
        }));
  leads_to_training(dir, "sales.csv", {R"("type": "TimeSeries")", R"("column": "sold")", R"("time": "day")", R"("window": 8)"});
}

TEST_CASE("init: pictures, a text and arrays") {
  const TempDir dir;
  std::string pixels;
  for (int p = 0; p < 20 * 16; ++p) pixels += {char(p), char(3 * p), char(p / 2)};
  for (int i = 0; i < 24; ++i) {
    const fs::path folder = dir / "pets" / (i % 6 == 0 ? "cat" : "dog");
    fs::create_directories(folder);
    write(folder / (number(i) + ".png"), halfstep::testing::png(20, 16, pixels));
  }
  leads_to_training(
      dir, "pets",
      {R"("size": 16)", "// pictures have 20 x 16 pixels", R"("weight": "balanced")", "// classes have 4 to 20 pictures"});
  std::string novel;
  for (int i = 0; i < 300; ++i) novel += "It was a dark and stormy night; ";
  write(dir / "novel.txt", novel);
  leads_to_training(dir, "novel.txt", {R"("type": "Text")", R"("tokenizer": "char")"});
  manual_seed(1);
  save_safetensors(dir / "signals.safetensors", {{"inputs", rand({40, 3, 4})}, {"y", randint(0, 3, {40})}});
  leads_to_training(dir, "signals.safetensors",
                    {R"("input": "inputs")", R"("target": "y")", "// targets are whole numbers: classes"});
}

TEST_CASE("init: what it cannot begin with is refused in plain words") {
  const TempDir dir;
  write(dir / "one.csv", "a\n1\n2\n");
  write(dir / "names.csv",
        rows(60, "name,street,y\n", [](int i) { return "a name " + number(i) + ",street " + number(i) + ',' + number(i % 2); }));
  write(dir / "x.npy", halfstep::testing::npy(rand({4, 2})));
  fs::create_directories(dir / "empty");
  const auto fails = [&](const std::string& arguments, int code, const std::string& part) {
    const Ran r = run(dir, "init " + arguments);
    CHECK(r.code == code);
    CHECK_MESSAGE(contains(r.err, part), r.err);
    CHECK(r.out.empty());
  };
  fails("nowhere.csv", 3, "nowhere.csv does not exist");
  fails("one.csv", 3, "has one column");
  fails("names.csv --target y", 3, "has no column that could be an input: name has texts that nearly all differ");
  fails("x.npy", 3, "is one array, where inputs and targets are two");
  fails("empty", 3, "a folder for each class");
  write(dir / "mine.json", "{}");
  fails("names.csv --out mine.json", 2, "mine.json exists");
  CHECK(read(dir / "mine.json") == "{}");
}

TEST_CASE("explain: keys, types and other programs' names") {
  const TempDir dir;
  const auto says = [&](const std::string& what, std::initializer_list<const char*> parts) {
    const Ran r = run(dir, "explain " + what);
    CHECK(r.code == 0);
    for (const char* part : parts) CHECK_MESSAGE(contains(r.out, part), r.out);
    for (size_t at = 0; at < r.out.size(); at = r.out.find('\n', at) + 1)
      CHECK(std::min(r.out.find('\n', at), r.out.size()) - at <= 110);
  };
  says("", {"optimizer", "halfstep explain KEY"});
  says("optimizer.momentum", {"a number in [0, 1)", "in       SGD, RMSprop"});
  says("model.layers.0.stride", {"step of the window", "in       Conv2d, ConvTranspose2d"});
  says("Conv2d", {"Conv2d (layer, in \"model\"): convolution of [C, H, W]", "out_channels", "must be given"});
  says("Conv2d.padding", {"\"same\": the output is as large"});
  says("CSV", {"a config with it:", "\"type\": \"CSV\", \"path\": \"houses.csv\""});
  says("lr", {"called   learning_rate, base_lr", "optimizer.groups.lr"});
  says("train.ema", {"true, false or an object", "decay"});
  // Parts of a path may be left out, be types or name another split; words may be parts of one name, or another program's.
  says("data.missing", {"data.train.missing: handling of missing values", "in       CSV"});
  says("data.val.missing", {"data.train.missing"});
  says("optimizer.AdamW.betas", {"optimizer.betas"});
  says("data.train.transforms.Normalize.from", {"data.train.transforms.from"});
  says("model.layers.Conv2d", {"Conv2d (layer, in \"model\")"});
  says("early stopping", {"train.early_stopping", "patience"});
  says("optimizer momentum", {"optimizer.momentum"});
  says("class weights", {"class weights is called weight here.", "loss.weight", "\"balanced\""});
  says("learning_rate", {"learning_rate is called lr here.", "optimizer.lr"});
  says("gradient accumulation", {"train.accumulate_steps"});
  for (const auto& [wrong, near] : {std::pair("optimizer.AdamW.momentun", "momentum"), {"early stoping", "early_stopping"}}) {
    const Ran r = run(dir, std::string("explain ") + wrong);
    CHECK(r.code == 2);
    CHECK_MESSAGE(contains(r.err, std::string("did you mean \"") + near + "\"?"), r.err);
  }
  CHECK(run(dir, "explain model.AdamW.lr").code == 2);
  CHECK(run(dir, "explain Konv2d").code == 2);
}

TEST_CASE("the help of every command has lines of at most 100 columns, and loses no word") {
  const TempDir dir;
  const auto check_width = [&](const std::string& command) {
    std::istringstream lines(run(dir, command + " --help").out);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) CHECK_MESSAGE(line.size() <= 100, command, ": ", line);
    CHECK(count > 5);
  };
  check_width("");
  std::istringstream all(run(dir, "--help").out);
  int commands = 0;
  for (std::string line; std::getline(all, line);) {
    const std::string name = line.substr(0, line.find(' ', 2));
    if (line.size() < 31 || !line.starts_with("  ") || line[2] < 'a' || line[2] > 'z')
      continue;  // the rest of a description, or an option
    check_width(name);
    ++commands;
  }
  CHECK(commands > 20);
  // A long description continues under its beginning.
  const std::string train = run(dir, "train --help").out;
  CHECK_MESSAGE(contains(train, "start over; the old run in output_dir is removed when the new one has\n" + std::string(30, ' ') +
                                    "its first checkpoint\n"),
                train);
}

TEST_CASE("unknown options are answered with the option or the key that is meant") {
  const TempDir dir;
  const auto helps = [&](const std::string& arguments, const std::string& part) {
    const Ran r = run(dir, arguments);
    CHECK(r.code == 2);
    CHECK_MESSAGE(contains(r.err, part), r.err);
  };
  helps("train c.json --epochs 3", "has no option --epochs\nhelp: did you mean --set train.epochs=3?");
  helps("train c.json --lr=0.1", "did you mean --set optimizer.lr=0.1?");
  helps("train c.json --batch-size 8", "did you mean --set data.loader.batch_size=8?");
  helps("train c.json --learning-rate 0.1", "did you mean --set optimizer.lr=0.1?");
  helps("train c.json --overwrit", "did you mean --overwrite?");
  helps("predict r --xyzzy", "halfstep predict --help");
  CHECK(run(dir, "help train").out == run(dir, "train --help").out);
  CHECK(run(dir, "help").out == run(dir, "--help").out);
}

TEST_CASE("completion: commands, options, keys and their words, also through bash") {
  const TempDir dir;
  CHECK(run(dir, "__complete tr").out == "train\n");
  CHECK(run(dir, "__complete train c.json --over").out == "--overwrite\n");
  CHECK(run(dir, "__complete train c.json --set train.ep").out == "train.epochs=\n");
  CHECK(run(dir, "__complete train c.json --set amp.dtype=").out == "amp.dtype=auto\namp.dtype=float16\namp.dtype=bfloat16\n");
  CHECK(run(dir, "__complete explain ConvT").out == "ConvTranspose1d\nConvTranspose2d\nConvTranspose3d\n");
  CHECK(run(dir, "__complete predict pict").out.empty());  // the shell's own names of files
  CHECK(run(dir, "completion tcsh").code == 2);
  write(
      dir / "ask.sh",
      "source <(halfstep completion bash)\nCOMP_WORDS=(halfstep train c.json --set train.ep)\nCOMP_CWORD=4\n_halfstep 2>/dev/null\n"
      "echo \"${COMPREPLY[@]}\"\n");
  const std::string command =
      "cd '" + dir.path().string() + "' && PATH='" + program().parent_path().string() + ":'$PATH bash ask.sh >bash.txt 2>&1";
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(read(dir / "bash.txt") == "train.epochs=\n");
}

// An interactive zsh in a terminal of its own, as its user has it: the first Tab reads the script from a folder of fpath.
TEST_CASE("completion: zsh completes at the first Tab") {
  if (std::system("command -v zsh >/dev/null 2>&1") != 0) {
    MESSAGE("SKIPPED: no zsh");
    return;
  }
  const TempDir dir;
  write(dir / "_halfstep", run(dir, "completion zsh").out);
  write(dir / "ask.zsh", R"(zmodload zsh/zpty
setopt extendedglob
zpty -b shell zsh -f -i
say() { zpty -w shell "$1" }
# What the terminal shows, until it has this text, or a minute passed.
await() {
  local part all=
  for (( i = 0; i < 600; ++i )) {
    while zpty -r -t shell part; do all+=$part; done
    all=${all//$'\e['[0-9;?]#[a-zA-Z]/}  # colors and the like
    [[ $all == *$1* ]] && { print -r -- "$all"; return }
    sleep 0.1
  }
  print -r -- "NOT SEEN: $1 in $all"
}
say "fpath=($PWD \$fpath); autoload -U compinit; compinit -u -D; PROMPT='> '; print rea''dy"
await ready >/dev/null
zpty -w -n shell $'halfstep pred\t'
await "predict " | tail -1
zpty -w -n shell $'\x15halfstep train c.json --set train.ep\t'
await "train.epochs=" | tail -1
zpty -w -n shell $'4\x15halfstep explain ConvTranspose3\t'
await "ConvTranspose3d " | tail -1
)");
  const std::string command =
      "cd '" + dir.path().string() + "' && PATH='" + program().parent_path().string() + ":'$PATH zsh -f ask.zsh >zsh.txt 2>&1";
  REQUIRE(std::system(command.c_str()) == 0);
  const std::string seen = read(dir / "zsh.txt");
  CHECK_MESSAGE(!contains(seen, "NOT SEEN"), seen);
  CHECK_MESSAGE(contains(seen, "predict "), seen);
}
