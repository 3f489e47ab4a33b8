// SPDX-License-Identifier: Apache-2.0
// Every number that a config may hold, one at a time, at the ends of its type and of its bounds, in a small config that is valid
// without it: `validate` and `plan` find it valid or say what is wrong. A child does the work, so that a signal is found as well.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "apps/catalog/rows/dataset_examples.h"
#include "apps/catalog/transforms.h"
#include "apps/train/plan.h"
#include "tests/apps/catalog/layer_goldens.h"
#include "tests/apps/config/load.h"
#include "tests/apps/tiny_run.h"
#include "tests/apps/your_data.h"

using namespace halfstep;
using namespace halfstep::app;
using namespace halfstep::app::testing;

namespace {

constexpr int kCpuSeconds = 20;           // of one config, on a slow machine too
constexpr long kMostKiB = long(3) << 19;  // 1.5 GiB that the process may come to
constexpr const char* kFrom = "HALFSTEP_EXTREMES_FROM";

struct Case {
  Json config;
  std::string what;  // "layer Conv2d: /model/layers/0/out_channels = -1"
};

using Pointer = Json::json_pointer;

Json example(const Field& f);
// The keys without which it is none.
Json needed(const std::vector<Field>& fields, Json out = Json::object()) {
  for (const Field& f : fields)
    if (f.needed) out[f.key] = example(f);
  return out;
}
Json example(const Field& f) {
  switch (f.kind) {
    case FieldKind::integer:
    case FieldKind::number: return std::isfinite(f.low) ? f.low + (f.low_open ? 1 : 0) : std::min(f.high, 1.0);
    case FieldKind::text: return f.words.empty() ? Json("a") : Json(f.words[0]);
    case FieldKind::list: return Json(size_t(std::max(f.min_items, 1)), example(*f.item));
    case FieldKind::section: return needed(f.section->fields);
    case FieldKind::component: return f.family->what == "layer" ? Json("Tanh") : Json(f.family->components[0].type);
    case FieldKind::boolean: return true;
    default: return nullptr;
  }
}
Json whole(const Json& number) { return number.is_number_float() ? Json(int64_t(number.get<double>())) : number; }

std::vector<Json> values_of(const Field& f) {
  std::vector<Json> all{0, 1, -1};
  for (int64_t n :
       {(int64_t(1) << 31) - 1, int64_t(1) << 31, int64_t(1) << 32, int64_t(1) << 53, std::numeric_limits<int64_t>::max()})
    all.push_back(n);
  for (double x : {1e308, 1e-320, -0.0, 0.5}) all.push_back(x);
  for (double bound : {f.low, f.high}) {
    if (!std::isfinite(bound) || std::fabs(bound) > 1e15) continue;
    for (double x : {bound - 1, bound, bound + 1}) all.push_back(f.kind == FieldKind::integer ? Json(int64_t(x)) : Json(x));
  }
  if (f.kind == FieldKind::interval)
    for (const char* unit : {" steps", " epochs", " min"})
      for (const char* n : {"0", "1", "2147483648", "9223372036854775807", "1e308"}) all.push_back(std::string(n) + unit);
  if (f.kind == FieldKind::byte_count)
    for (const char* size : {"0", "1", "9223372036854775807", "8388608 TiB", "1e308 GB"}) all.push_back(size);
  return all;
}

// Kinds of components that have bases of their own.
bool has_bases(const Family& family) {
  static const std::set<std::string> own{"layer", "loss", "optimizer", "scheduler", "data set", "transform", "metric"};
  return own.contains(family.what);
}

class Cases {
 public:
  std::vector<Case> all;
  std::set<std::string> unreached;  // components for which no base is valid

  Cases() {
    const Json good = Json::parse(kGood);
    base_ = good, name_ = "config";
    fields(root_schema().fields, Pointer());
    for (const auto& row : optimizer_catalog().rows())
      component("optimizer", optimizer_family(), row.component, {good}, "/optimizer");
    for (const auto& row : scheduler_catalog().rows())
      component("schedule", scheduler_family(), row.component, {good}, "/scheduler");
    add_data();
    add_layers();
  }

 private:
  // In `base`, which is a whole config, at `place`.
  void component(const char* kind, const Family& family, const Component& c, const std::vector<Json>& bases, const char* place,
                 const std::vector<Json>& given = {}) {
    if (c.doc.ends_with("of this program")) return;
    std::vector<Json> forms = given;
    forms.push_back(needed(c.fields));
    for (const Json& base : bases)
      for (Json form : forms) {
        form["type"] = c.type;
        base_ = base;
        base_[Pointer(place)] = form;
        if (!is_valid(base_)) continue;
        name_ = std::string(kind) + ' ' + c.type;
        fields(c.fields, Pointer(place));
        fields(family.common, Pointer(place));
        return;
      }
    unreached.insert(std::string(kind) + ' ' + c.type);
  }

  static Json random_data(const Json& shape, const Json& more) {
    Json config = Json::parse(kGood);
    config["device"] = "cpu";
    config["data"]["train"] = {{"type", "Random"}, {"input_shape", shape}};
    config["data"]["train"].update(more);
    config["model"] = Json::parse(R"({"type": "Sequential", "layers": ["Flatten", {"type": "Linear", "out_features": "auto"}]})");
    return config;
  }

  void add_data() {
    const Json images = random_data({3, 8, 8}, {{"classes", 4}});
    for (const auto& row : transform_catalog().rows())
      component("transform", transform_family(), row.component, {images}, "/data/train/transforms/0");
    std::vector<Json> tasks{images, random_data({6}, {{"classes", 4}})};
    for (const Json& shape : {Json{4}, Json{1}, Json::array()}) {
      tasks.push_back(random_data({6}, {{"target_shape", shape}}));
      tasks.back()["loss"] = "MSELoss";
    }
    for (const Component& c : dataset_family().components) {
      if (c.doc.ends_with("of this program")) continue;
      const Json config = Json::parse(dataset_example(c.type));
      tasks.push_back(config);
      base_ = config, name_ = "data set " + c.type;
      if (!is_valid(config)) unreached.insert(name_);
      // Some have their keys beside the splits.
      const bool beside = config["data"].contains("type");
      fields(c.fields, Pointer(beside ? "/data" : "/data/train"));
      fields(dataset_family().common, Pointer("/data/train"));
    }
    for (const auto& row : metric_catalog().rows()) component("metric", metric_family(), row.component, tasks, "/metrics/0");
    for (const auto& row : loss_catalog().rows()) {
      std::vector<Json> given;
      for (const Golden& g : goldens("loss"))
        if (g.type() == row.component.type) given.push_back(g.json["args"]);
      component("loss", loss_family(), row.component, tasks, "/loss", given);
    }
  }

  void add_layers() {
    for (const auto& row : module_catalog().rows()) {
      const Component& c = row.component;
      std::vector<Json> given, bases;
      const auto on = [&](const Json& shape) {
        bases.push_back(random_data(shape, {{"classes", 4}}));
        bases.back()["model"]["layers"].insert(bases.back()["model"]["layers"].begin(), "Tanh");
      };
      for (const Golden& g : goldens("layer")) {
        if (g.type() != c.type || given.size() == 4) continue;
        given.push_back(g.json["args"]);
        const Shape shape = g.tensors.at("x").shape();
        if (g.tensors.at("x").is_floating_point() && shape.size() > 1) on(std::vector<int64_t>(shape.begin() + 1, shape.end()));
      }
      for (const Json& shape : {Json{8}, Json{3, 8, 8}, Json{6, 8}, Json{3, 4, 8, 8}}) on(shape);
      Json tokens = bases[0];
      tokens["data"]["train"] = {{"type", "CopyTask"}};
      tokens["loss"] = "CrossEntropyLoss";
      bases.push_back(tokens);
      tokens["model"]["layers"][1] = "Tanh";
      bases.push_back(tokens);
      component("layer", module_family(), c, bases, "/model/layers/0", given);
    }
  }

  static bool is_valid(const Json& config) {
    try {
      const Config c = load(config);
      return c.facts.has_value();
    } catch (const Error&) { return false; }
  }

  void fields(const std::vector<Field>& fields, const Pointer& at) {
    for (const Field& f : fields) field(f, at / f.key);
  }
  void field(const Field& f, const Pointer& at) {
    switch (f.kind) {
      case FieldKind::integer:
      case FieldKind::number:
      case FieldKind::interval:
      case FieldKind::byte_count:
        for (const Json& v : values_of(f)) add(at, v);
        return;
      case FieldKind::text:
        if (f.also_integer)
          for (const Json& v : values_of(f)) add(at, v);
        return;
      case FieldKind::list:
        if (f.or_single) field(*f.item, at);
        if (f.item->kind == FieldKind::integer || f.item->kind == FieldKind::number)
          for (const Json& v : values_of(*f.item)) {
            // The others as the base has them.
            Json list = base_.contains(at) && base_[at].is_array() && !base_[at].empty() ? base_[at] : example(f);
            if (f.item->kind == FieldKind::integer)
              for (Json& n : list) n = whole(n);
            list[0] = v;
            add(at, list);
          }
        return;
      case FieldKind::map:
        if (f.item->kind == FieldKind::integer || f.item->kind == FieldKind::number)
          for (const Json& v : values_of(*f.item)) add(at, {{"a", v}});
        return;
      case FieldKind::section: {
        const Json outer = base_;
        if (!base_.contains(at) || !base_[at].is_object()) put(base_, at, needed(f.section->fields));
        fields(f.section->fields, at);
        base_ = outer;
        return;
      }
      case FieldKind::component:
        if (has_bases(*f.family)) return;
        for (const Component& c : f.family->components) {
          const Json outer = base_;
          put(base_, at, needed(c.fields, {{"type", c.type}}));
          fields(c.fields, at);
          base_ = outer;
        }
        return;
      default: return;
    }
  }
  static void put(Json& config, const Pointer& at, const Json& value) {
    for (Pointer p = at.parent_pointer(); !p.empty(); p = p.parent_pointer())
      if (config.contains(p) && !config[p].is_structured()) config[p] = nullptr;
    config[at] = value;
  }
  void add(const Pointer& at, const Json& value) {
    Json config = base_;
    put(config, at, value);
    all.push_back({std::move(config), name_ + ": " + at.to_string() + " = " + value.dump()});
  }

 public:
  static Config load(Json config) {
    config["output_dir"] = "out";
    config["device"] = "cpu";
    write("case.json", config.dump());
    return load_config("case.json");
  }

 private:
  Json base_;
  std::string name_;
};

// What is wrong with how the case ends; "" where it is valid or refused as it should be.
std::string fault(const Case& c) {
  try {
    plan_step(Cases::load(c.config));
  } catch (const Error& e) {
    if (shows_library_text(e.what())) return std::string("shows a library's text: ") + e.what();
  } catch (const std::exception& e) { return std::string("no error of a type: ") + e.what(); }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss > kMostKiB ? "takes " + std::to_string(used.ru_maxrss >> 10) + " MiB" : "";
}

// From the case that the environment names to the last one, or to the first fault, a line in a file for each.
void work() {
  const Cases cases;
  std::ofstream out("lines");
  // These need other components, or data that no example has.
  static const std::set<std::string> others{"layer EmbeddingBag", "schedule ChainedScheduler"};
  if (std::string(std::getenv(kFrom)) == "0")
    for (const std::string& what : cases.unreached)
      if (!others.contains(what)) out << "unreached " << what << std::endl;
  for (size_t i = std::stoul(std::getenv(kFrom)); i < cases.all.size(); ++i) {
    out << i << ' ' << cases.all[i].what << std::endl;
    const itimerval limit{{}, {kCpuSeconds, 0}}, none{};
    setitimer(ITIMER_PROF, &limit, nullptr);
    const std::string wrong = fault(cases.all[i]);
    setitimer(ITIMER_PROF, &none, nullptr);
    if (wrong.empty()) continue;
    out << "wrong " << wrong << std::endl;
    std::_Exit(0);
  }
  out << "end" << std::endl;
}

}  // namespace

TEST_SUITE("slow") {
  TEST_CASE("each number of a config at its ends is valid or refused") {
    if (std::getenv(kFrom)) return work();
    const TempDir dir;
    write_data(dir);
    const std::string self = fs::read_symlink("/proc/self/exe").string();
    int cases = 0;
    for (size_t from = 0, left = 200; left > 0; --left) {
      const std::string command = "cd '" + dir.path().string() + "' && " + kFrom + "=" + std::to_string(from) + " '" + self +
                                  "' --test-case='each number of a config at its ends*' >out.txt 2>&1";
      const int status = std::system(command.c_str());
      std::ifstream in(dir / "lines");
      std::string line, last, wrong;
      bool ended = false;
      while (std::getline(in, line)) {
        if (line.starts_with("unreached ")) {
          FAIL_CHECK(line);
        } else if (line.starts_with("wrong ")) {
          wrong = line.substr(6);
        } else if (line == "end") {
          ended = true;
        } else {
          last = line;
          ++cases;
        }
      }
      REQUIRE_MESSAGE((ended || !last.empty()), read(dir / "out.txt"));
      if (ended) break;
      if (wrong.empty()) wrong = "a signal or more than " + std::to_string(kCpuSeconds) + " s: status " + std::to_string(status);
      FAIL_CHECK(last << "\n  " << wrong);
      from = std::stoul(last) + 1;
    }
    MESSAGE(cases << " configs");
    CHECK(cases > 5000);
  }
}
