// SPDX-License-Identifier: Apache-2.0
#include "framework/base/attributes.h"

#include "framework/base/text_stream.h"

namespace halfstep {
namespace {

void print(std::ostream& out, bool v) { out << (v ? "true" : "false"); }
void print(std::ostream& out, int64_t v) { out << v; }
void print(std::ostream& out, double v) { out << v; }
void print(std::ostream& out, const std::string& v) { out << v; }
template <class T>
void print(std::ostream& out, const std::vector<T>& v) {
  out << '[';
  for (size_t i = 0; i < v.size(); ++i) out << (i ? ", " : "") << v[i];
  out << ']';
}

}  // namespace

std::string text(const Attributes& all) {
  TextWriter out;
  for (const Attribute& a : all) {
    out << (&a == &all.front() ? "" : " ") << a.name << '=';
    std::visit([&](const auto& v) { print(out, v); }, a.value);
  }
  return out.str();
}

}  // namespace halfstep
