// SPDX-License-Identifier: Apache-2.0
// Prints the calls of a planned step as a table.
#include <algorithm>
#include <map>
#include <ostream>

#include "apps/terminal/cells.h"
#include "apps/terminal/progress.h"
#include "apps/train/plan.h"

namespace halfstep::app {
namespace {

double saved_bytes(const LoggedCall& call) {
  double bytes = 0;
  for (const LoggedTensor& t : call.saved) bytes += double(numel(t.shape)) * double(size_of(t.dtype));
  return bytes;
}

int64_t casts_of(const LoggedCall& call) {
  return std::count_if(call.casts.begin(), call.casts.end(), [](const LoggedCast& c) { return !c.shadow; });
}

bool moves_nothing(const LoggedCall& call) {
  return call.flops() == 0 && call.bytes_read == 0 && call.bytes_written == 0 && saved_bytes(call) == 0 && casts_of(call) == 0;
}

std::string amount(double bytes) { return bytes > 0 ? bytes_text(bytes) : "-"; }

// Returns distinct reasons: "cross_entropy: computes in float32 and reads 16 bits; reduction=mean". Backward calls add none.
std::vector<std::string> reasons_of(const StepPlan& plan) {
  std::vector<std::pair<std::string, std::string>> found;  // reasons, and the ops they apply to
  for (const LoggedCall& call : plan.calls) {
    if (moves_nothing(call) || call.reason == "as its forward") continue;
    const std::string why = call.reason + (call.attributes.empty() ? "" : "; ") + text(call.attributes), op(call.op);
    const auto same = std::find_if(found.begin(), found.end(), [&](const auto& f) { return f.first == why; });
    if (same == found.end())
      found.emplace_back(why, op);
    else if (std::string all = ", " + same->second + ','; all.find(", " + op + ',') == std::string::npos)
      same->second += ", " + op;
  }
  std::vector<std::string> out;
  for (const auto& [why, ops] : found) out.push_back(ops + ": " + why);
  return out;
}

}  // namespace

void print_calls(std::ostream& out, const StepPlan& plan, size_t width) {
  const bool in_table = width == 0;  // whether the table has the reasons
  Cells cells{{"pass", "layer", "op", "dtype", "MFLOP", "read", "written", "saved", "casts"}};
  if (in_table) cells[0].emplace_back("why");
  std::map<std::string, int64_t> folded;
  std::string pass;
  for (const LoggedCall& call : plan.calls) {
    if (moves_nothing(call)) {
      ++folded[std::string(call.op)];
      continue;
    }
    const std::string own(name(call.pass));
    cells.push_back({in_table || own != pass ? own : "", call.layer, std::string(call.op), joined(call.compute),
                     call.flops() > 0 ? number_text(call.flops() / 1e6, 4) : "-", amount(call.bytes_read),
                     amount(call.bytes_written), amount(saved_bytes(call)), std::to_string(casts_of(call))});
    if (in_table) cells.back().push_back(call.reason + (call.attributes.empty() ? "" : "; ") + text(call.attributes));
    pass = own;
  }
  print_cells(out, cells, {.width = width, .left_out = {8, 7, 5}, .shortened = {1, 2}, .right = {4, 5, 6, 7, 8}});
  if (!in_table) {
    out << "why\n";
    for (const std::string& line : reasons_of(plan)) out << "  " << line << '\n';
  }
  if (folded.empty()) return;
  int64_t calls = 0;
  std::string names;
  for (const auto& [op, n] : folded) calls += n, names += joined(names.empty() ? "" : ", ", op, ' ', n);
  out << calls << (calls == 1 ? " more call moves" : " more calls move") << " no bytes: " << names << '\n';
}

}  // namespace halfstep::app
