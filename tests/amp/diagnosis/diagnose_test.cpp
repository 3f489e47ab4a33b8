// SPDX-License-Identifier: Apache-2.0
#include "amp/diagnosis/diagnose.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/amp/diagnosis/faults.h"

using namespace halfstep;

namespace {

std::string text_of(const faults::Found& found) {
  std::string out = found.diagnosis.text();
  for (const ArmResult& a : found.diagnosis.arms)
    out += joined("\n  arm ", a.name, ": ", a.finite() ? "good" : "bad", ", loss ", a.loss,
                  a.event ? "; " + describe(*a.event) : "", a.error);
  return out;
}

}  // namespace

// HALFSTEP_SHOW=1 prints all diagnoses, for docs/diagnostics.md.
TEST_CASE("a diagnosis names each planted fault, and nothing where there is none") {
  for (const faults::Fault& fault : faults::all()) {
    const faults::Found found = faults::run(fault, {});
    CAPTURE(fault.name);
    CAPTURE(found.step);
    CAPTURE(text_of(found));
    CHECK(found.diagnosis.cause == fault.cause);
    CHECK(found.untouched);
    if (std::getenv("HALFSTEP_SHOW") && !fault.cause.empty())
      MESSAGE(fault.name, ", step ", found.step, "\n", found.diagnosis.text());
  }
}

// At most 3 of 100 may be wrong. HALFSTEP_DRAWS: draws of each fault, in place of two.
TEST_CASE("a diagnosis names planted faults of other widths, depths, batches, seeds and precisions") {
  const char* const text = std::getenv("HALFSTEP_DRAWS");
  const int draws = text ? std::atoi(text) : 2;
  int all = 0, wrong = 0;
  for (int number = 1; number <= draws; ++number) {
    const faults::Draw d = faults::draw(number);
    for (const faults::Fault& fault : faults::all()) {
      const faults::Found found = faults::run(fault, d);
      ++all;
      CHECK(found.untouched);
      if (found.diagnosis.cause == fault.cause) continue;
      ++wrong;
      MESSAGE("draw ", number, ", ", fault.name, ": ", found.diagnosis.cause, " at step ", found.step, "\n", text_of(found));
    }
  }
  CHECK(100 * wrong <= 3 * all);
}

TEST_CASE("what does not fit into float16 does after the remedy that was tried") {
  int with_modules = 0;
  for (const faults::Fault& fault : faults::of_range()) {
    if (!fault.cause.ends_with("_range")) continue;
    const faults::Found found = faults::run(fault, {});
    CAPTURE(fault.name);
    CAPTURE(text_of(found));
    REQUIRE_FALSE(found.diagnosis.remedies.empty());
    const Remedy& first = found.diagnosis.remedies[0];
    CHECK(first.tried == Remedy::Tried::holds);
    if (fault.cause == "input_range" || first.text.find("modules") == std::string::npos) continue;
    ++with_modules;
    // With these modules in float32 the range of float16 is not to blame for anything any more.
    faults::Fault mended = fault;
    mended.make = [&](const faults::Draw& d) {
      faults::Run run = fault.make(d);
      for (const auto& [name, module] : run.module->named_modules())
        if (first.text.find('"' + name + '"') != std::string::npos) module->set_precision(DType::f32);
      run.steps = 20;
      return run;
    };
    const Diagnosis after = faults::run(mended, {}).diagnosis;
    CHECK_MESSAGE(!after.cause.ends_with("_range"), after.text());
  }
  CHECK(with_modules >= 6);
}
