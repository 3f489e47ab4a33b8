// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/products.h"

#include <iomanip>
#include <string>

#include "framework/base/text_stream.h"

namespace halfstep::app {

Json products_json(const std::vector<ProductReport>& products) {
  Json list = Json::array();
  for (const ProductReport& p : products) {
    Json row{{"m", p.m},
             {"n", p.n},
             {"k", p.k},
             {"batch", p.batch},
             {"a_transposed", p.a_transposed},
             {"b_transposed", p.b_transposed},
             {"in", name(p.in)},
             {"out", name(p.out)},
             {"compute", p.compute},
             {"epilogue", p.epilogue},
             {"rung", p.rung},
             {"top", p.top},
             {"candidates", p.candidates},
             {"status", p.status},
             {"algorithm", p.algorithm},
             {"workspace", p.workspace},
             {"tuned", p.tuned},
             {"fell_back", p.fell_back},
             {"calls", p.calls}};
    if (p.ms > 0) row["ms"] = p.ms;
    list.push_back(row);
  }
  return list;
}

void print_products(std::ostream& out, const std::vector<ProductReport>& products) {
  out << std::left << std::setw(26) << "m x n x k" << std::setw(4) << "ab" << std::setw(10) << "in" << std::setw(10) << "out"
      << std::setw(8) << "sums" << std::setw(16) << "epilogue" << std::setw(14) << "rung" << std::right << std::setw(6) << "ways"
      << std::setw(6) << "algo" << std::setw(10) << "KiB" << std::setw(10) << "ms" << std::setw(7) << "calls"
      << "  status\n";
  for (const ProductReport& p : products) {
    std::string shape = std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k);
    if (p.batch > 1) shape = std::to_string(p.batch) + " of " + shape;
    const std::string layout = {p.a_transposed ? 't' : 'n', p.b_transposed ? 't' : 'n'};
    std::string ms = "-";
    if (p.ms > 0) {
      TextWriter text;
      text << std::fixed << std::setprecision(4) << p.ms;
      ms = text.str();
    }
    out << std::left << std::setw(26) << shape << std::setw(4) << layout << std::setw(10) << name(p.in) << std::setw(10)
        << name(p.out) << std::setw(8) << p.compute << std::setw(16) << p.epilogue << std::setw(14) << p.rung << std::right
        << std::setw(6) << p.candidates << std::setw(6) << p.algorithm << std::setw(10) << p.workspace / 1024 << std::setw(10) << ms
        << std::setw(7) << p.calls << "  " << p.status << '\n';
  }
}

int64_t plain_products(const std::vector<ProductReport>& products) {
  int64_t calls = 0;
  for (const ProductReport& p : products) calls += p.fell_back ? p.calls : 0;
  return calls;
}

}  // namespace halfstep::app
