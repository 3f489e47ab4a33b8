// SPDX-License-Identifier: Apache-2.0
#include "framework/data/tables/labels.h"

#include <doctest/doctest.h>

#include "framework/base/check.h"
#include "framework/data/tokens/unicode.h"
#include "tests/io/files.h"

using namespace halfstep;
using namespace halfstep::testing;

TEST_CASE("labels: spellings of one label have one key, and others do not") {
  CHECK(label_key(" \t yes\xc2\xa0") == "yes");
  CHECK(label_key("\xef\xbb\xbfyes\xe2\x80\x8b") == "yes");  // what shows nothing
  CHECK(label_key("New\xe2\x80\x89 York") == "New York");
  CHECK(label_key("Zu\xcc\x88rich") == label_key("Z\xc3\xbcrich"));            // Latin
  CHECK(label_key("\xce\xb1\xcc\x81") == "\xce\xac");                          // Greek
  CHECK(label_key("\xd0\xb8\xcc\x86") == "\xd0\xb9");                          // Cyrillic
  CHECK(label_key("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab") == "\xed\x95\x9c");  // Hangul
  CHECK(label_key("\xe3\x81\x8b\xe3\x82\x99") == "\xe3\x81\x8c");              // Kana
  for (const char* one : {"1", "1.0", "1.", "01", "+1", "001.000", " 1 "}) CHECK_MESSAGE(label_key(one) == "1", one);
  CHECK(label_key("-0.0") == "0");
  CHECK(label_key("-2.50") == "-2.5");
  CHECK(label_key("1,50", ',') == "1,5");
  CHECK(label_key("12345678901234567890") != label_key("12345678901234567891"));  // more digits than a double has
  for (const char* other : {"1e0", "0x1", "1a", "1.0.0", "I", ".", "+", ""}) CHECK_MESSAGE(label_key(other) == other, other);
  CHECK(label_key("Yes") != label_key("yes"));
  CHECK(label_key("\xff ") == "\xff");
}

TEST_CASE("labels: names, and what is said of joined ones and of case") {
  LabelSet labels;
  const std::string given[] = {"no", "yes ", "yes", "yes", "YES", "no\xc2\xa0"};
  std::vector<size_t> of;
  for (const std::string& g : given) of.push_back(labels.add(g));
  CHECK(of == std::vector<size_t>{0, 1, 1, 1, 2, 0});
  std::vector<int64_t> places;
  CHECK(labels.names(places) == std::vector<std::string>{"YES", "no", "yes"});
  CHECK(places == std::vector<int64_t>{1, 2, 0});
  CHECK(labels.joined_spellings() == R"("no" (1) and "no\u00a0" (1) are one; "yes" (2) and "yes " (1) are one)");
  CHECK(
      labels.look_alike("classes") ==
      "\"yes\" (3) and \"YES\" (1): these classes differ in nothing but case, and count as different; spell them alike if they are "
      "one");
  LabelSet greek;
  for (const char* g : {"\xce\x91\xce\xb8", "\xce\xb1\xce\xb8"}) greek.add(g);  // beyond ASCII, where the C library knows
  CHECK(greek.look_alike("classes").find("differ in nothing but case") != std::string::npos);

  LabelSet numbers;
  for (const char* n : {"10", "2.0", "2", "-1"}) numbers.add(n);
  CHECK(numbers.names(places) == std::vector<std::string>{"-1", "2", "10"});
  CHECK(numbers.names(places, /*by_number=*/false) == std::vector<std::string>{"-1", "10", "2"});
  LabelSet plain;
  for (const char* n : {"1.0", "10.0", "2.0"}) plain.add(n);  // as in runs of older versions
  CHECK(plain.names(places) == std::vector<std::string>{"1.0", "10.0", "2.0"});
  CHECK(plain.joined_spellings().empty());
  CHECK(plain.look_alike("classes").empty());
}

TEST_CASE("labels: those that mean or look the same are named, and others are not") {
  const auto said = [](const std::vector<std::string>& texts, char decimal = '.') {
    LabelSet labels(decimal);
    for (const std::string& text : texts) labels.add(text);
    return labels.look_alike("classes");
  };
  const std::pair<const char*, const char*> alike[] = {{"2", "2e0"},
                                                       {"12,000", "12e3"},
                                                       {"-.5", "-0.5"},
                                                       {"FALSE", "0"},
                                                       {"\xef\xbc\xa2", "b"},               // full-width B
                                                       {"o\xef\xac\x83"                     // a ligature
                                                        "ce",
                                                        "office"},
                                                       {"x\xe2\x80\x93y", "x\xe2\x88\x92y"},  // an en dash, a minus
                                                       {"a\xc2\xad"                         // a soft hyphen
                                                        "b",
                                                        "ab"},
                                                       {"\xd9\xa3", "3"},                   // a digit in Arabic
                                                       {"m\xc2\xb2", "m2"}};
  for (const auto& two : alike)
    CHECK_MESSAGE(contains(said({two.first, two.second}), "mean or look the same, and count as different"), two.first);
  CHECK(contains(said({"x\xe2\x80\x93y", "x-y"}), R"("x-y" (1) and "x\u2013y" (1))"));
  CHECK(contains(said({"1.000.000", "1e6"}, ','), "mean or look the same"));
  CHECK(said({"1", "2", "10", "1.5", "1,5", "a", "b", "a-b", "ab", "e1", "1e", "9007199254740993", "9007199254740992"}).empty());
  CHECK(said({"true", "false"}).empty());
  const std::string both = said({"Yes", "yes", "1", "1e0"});
  CHECK(contains(both, "\"Yes\" (1) and \"yes\" (1): these classes differ in nothing but case"));
  CHECK(contains(both, "\"1\" (1) and \"1e0\" (1): these classes mean or look the same"));
}

TEST_CASE("labels: a name is found by any spelling, and shown so that nothing looks like something else") {
  const std::vector<std::string> names = {"K\xc3\xa4se", "1", "a  b"};
  CHECK(find_label(names, "Ka\xcc\x88se\xc2\xa0") == 0);
  CHECK(find_label(names, "1.0") == 1);
  CHECK(find_name(names, "1.0") == -1);
  CHECK(find_label(names, "a b") == 2);
  CHECK(find_label(names, "k\xc3\xa4se") == -1);
  CHECK(spelled("Ka\xcc\x88se") == R"("Ka\u0308se")");
  CHECK(spelled("K\xc3\xa4se") == "\"K\xc3\xa4se\"");
  CHECK(spelled(std::string("a\0b\xf6\n\xc2\xa0", 7)) == R"("a\u0000b\xf6\u000a\u00a0")");
}

TEST_CASE("labels: folders of classes") {
  DataNotes notes;
  std::vector<std::string> classes;
  const auto read = [&](const std::vector<std::string>& folders) {
    return classes_of_folders("ImageFolder", "pets", folders, classes, notes);
  };
  CHECK(read({"Cat", "Hu\xcc\x88ndin", "H\xc3\xbcndin", "cat"}) == std::vector<int64_t>{0, 1, 1, 2});
  CHECK(classes == std::vector<std::string>{"Cat", "H\xc3\xbcndin", "cat"});
  CHECK(contains(notes.summary, "folders of classes: "));
  CHECK(contains(notes.summary, R"("Hu\u0308ndin" (1))"));
  REQUIRE(notes.warnings.size() == 1);
  CHECK(contains(notes.warnings[0], "\"Cat\" (1) and \"cat\" (1): these classes differ in nothing but case"));
  CHECK(read({"Hu\xcc\x88ndin"}) == std::vector<int64_t>{1});  // of held-out data
  CHECK(contains(
      message_of<DataError>([&] { read({"cow"}); }),
      "pets must have a folder of a class that the training data has, but has \"cow\"\nhelp: the classes are \"Cat\", \"H"));
  CHECK(read({"cow", "cat"}) == std::vector<int64_t>{-1, 2});
  CHECK(contains(message_of<DataError>([&] { read({"K\xf6ter"}); }),
                 R"(pets: the name of a class must be UTF-8, got the folder "K\xf6ter")"));
}
