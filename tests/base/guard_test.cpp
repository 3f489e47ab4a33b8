// SPDX-License-Identifier: Apache-2.0
#include "framework/base/guard.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>

#include "framework/base/device.h"
#include "framework/base/draws.h"
#include "framework/base/fork_mutex.h"
#include "framework/base/layer_path.h"
#include "framework/base/log.h"

using namespace halfstep;

namespace {

template <class T>
constexpr bool is_local = !std::is_copy_constructible_v<T> && !std::is_move_constructible_v<T> && !std::is_copy_assignable_v<T> &&
                          !std::is_move_assignable_v<T> && !requires {
  T::operator new(size_t());
};
static_assert(is_local<DefaultDevice> && is_local<DrawsOf> && is_local<LayerScope> && is_local<NoFork> &&
              is_local<logging::Capture>);
static_assert(!is_local<std::string>);

class Level : public OrderedGuard<Level> {
 public:
  explicit Level(int level) : saved_(now) { now = level; }
  ~Level() {
    if (ends_here("Level")) (next() ? next()->saved_ : now) = saved_;
  }
  static inline thread_local int now = 0;

 private:
  int saved_;
};

std::string warned;

}  // namespace

TEST_CASE("guard: in whatever order guards end, the inner one keeps its state and the last restores the first's") {
  const Device devices[3] = {Device::meta, Device::cuda, Device::cpu};
  for (const auto& order : {std::array{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    std::optional<DefaultDevice> guards[3];
    for (int i = 0; i < 3; ++i) guards[i].emplace(devices[i]);
    for (const int i : order) {
      guards[i].reset();
      Device innermost = Device::cpu;
      for (int k = 0; k < 3; ++k)
        if (guards[k]) innermost = devices[k];
      CHECK(default_device() == innermost);
    }
  }
}

TEST_CASE("guard: one that ends on another thread changes nothing there, and warns") {
  warned.clear();
  const logging::Capture capture([](logging::Level, std::string_view text) { warned += text; });
  auto first = std::make_shared<Level>(1);  // make_shared, which operator new of a class does not refuse
  auto second = std::make_shared<Level>(2);
  std::thread([&] {
    const Level here(7);
    first.reset();
    CHECK(Level::now == 7);
  }).join();
  CHECK(warned == "[Level] ended on another thread than it began on, whose state therefore stays: begin and end it in one block");
  CHECK(Level::now == 2);
  {
    const Level inner(3);
    CHECK(Level::now == 3);
  }
  CHECK(Level::now == 2);
  second.reset();
  CHECK(Level::now == 1);
  CHECK(warned.find("Level", 8) == std::string::npos);
  auto third = std::make_shared<Level>(4);
  std::thread([&] { third.reset(); }).join();
  CHECK(warned.find("Level", 8) != std::string::npos);  // each of them warns
  Level::now = 0;
}

TEST_CASE("guard: after some were lost to other threads, all others restore what they would without them") {
  const logging::Capture capture([](logging::Level, std::string_view) {});
  const auto in_any_order = [] {
    REQUIRE(Level::now == 0);
    std::optional<Level> a, b, c;
    a.emplace(1), b.emplace(2), c.emplace(3);
    a.reset(), c.reset();
    CHECK(Level::now == 2);
    b.reset();
    CHECK(Level::now == 0);
  };
  for (const int lost : {0, 1, 2, 3}) {  // of four nested ones
    CAPTURE(lost);
    std::shared_ptr<Level> levels[4];
    for (int i = 0; i < 4; ++i) levels[i] = std::make_shared<Level>(i + 1);
    std::thread([&] {
      levels[lost].reset();
      in_any_order();
    }).join();
    std::thread(in_any_order).join();
    // The outermost that is left ends first, then the innermost. What the lost one changed stays.
    for (const int i : {0, 3, 2, 1})
      if (i != lost) levels[i].reset();
    CHECK(Level::now == (lost == 0 ? 1 : 0));
    Level::now = 0;
    in_any_order();
  }
  // Guards of a thread that has ended, at addresses that later ones may have.
  for (int i = 0; i < 20; ++i) {
    std::shared_ptr<Level> kept;
    std::thread([&] { kept = std::make_shared<Level>(5); }).join();
    std::thread([&] {
      kept.reset();
      in_any_order();
    }).join();
    in_any_order();
  }
}
