// SPDX-License-Identifier: Apache-2.0
// Lists of the members of options structs. A list gives for each option its name, bounds and a sentence, once: checks, the text of
// describe(), JSON fields, docs, exports and tests are made from it.
//
//   struct DropoutOptions {
//     double p = 0.5;
//     static const OptionList<DropoutOptions>& list();
//   };
//   HALFSTEP_OPTIONS(DropoutOptions, option("p", &O::p, "probability").at_least(0).at_most(1))  // in the .cpp
//
//   check_options("Dropout", options);  // throws ValueError: [Dropout] p must be in [0, 1], got 2
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "framework/base/arguments.h"
#include "framework/base/check.h"
#include "framework/base/shape.h"

namespace halfstep {

// n numbers as one option, as PyTorch's betas: .betas = {0.9, 0.999}, and betas[0] is the first. Another count does not compile.
template <size_t n>
class NumberTuple {
 public:
  template <std::convertible_to<double>... T>
  requires(sizeof...(T) == n) constexpr NumberTuple(T... numbers) : numbers_{double(numbers)...} {}
  constexpr NumberTuple(const std::pair<double, double>& numbers) requires(n == 2) : numbers_{numbers.first, numbers.second} {}
  // -1: the last. Throws IndexError.
  template <std::integral I>
  constexpr double& operator[](I i) {
    return numbers_[checked_index(int64_t(i))];
  }
  template <std::integral I>
  constexpr const double& operator[](I i) const {
    return numbers_[checked_index(int64_t(i))];
  }
  constexpr size_t size() const { return n; }
  constexpr double* begin() { return numbers_.data(); }
  constexpr const double* begin() const { return numbers_.data(); }
  constexpr double* end() { return begin() + n; }
  constexpr const double* end() const { return begin() + n; }
  bool operator==(const NumberTuple&) const = default;

 private:
  static constexpr size_t checked_index(int64_t i) {
    const int64_t at = i < 0 ? i + int64_t(n) : i;
    if (at < 0 || at >= int64_t(n)) [[unlikely]]
      fail<IndexError>("options", "an option of ", n, " numbers has none at index ", i);
    return size_t(at);
  }
  std::array<double, n> numbers_;
};

// The value of an option as data; monostate: not given.
using OptionValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>, Sizes, std::vector<std::string>>;
enum class OptionKind : uint8_t { flag, whole, number, text, numbers, sizes, tensor, texts };

// Makes a type T usable as an option: its kind, and its conversion to data and back. put changes nothing and returns false for
// data of another form. Specialise it for a type of your own. Optional: kCount, the length of `numbers` (0: any); kWhole, that they
// are integers; kFewest, that there may be fewer; kRepeats, of these only counts that divide kCount; kNeeded, that it has no
// default; words(), the legal ones.
template <class T>
struct OptionMember;

template <>
struct OptionMember<bool> {
  static constexpr OptionKind kKind = OptionKind::flag;
  static OptionValue get(bool member) { return member; }
  static bool put(bool& member, const OptionValue& value);  // also a number, which is true if not 0
};
template <>
struct OptionMember<int64_t> {
  static constexpr OptionKind kKind = OptionKind::whole;
  static OptionValue get(int64_t member) { return member; }
  static bool put(int64_t& member, const OptionValue& value);  // also a double below 2^53
};
template <>
struct OptionMember<double> {
  static constexpr OptionKind kKind = OptionKind::number;
  static OptionValue get(double member) { return member; }
  static bool put(double& member, const OptionValue& value);
};
template <>
struct OptionMember<std::string> {
  static constexpr OptionKind kKind = OptionKind::text;
  static OptionValue get(const std::string& member) { return member; }
  static bool put(std::string& member, const OptionValue& value);
};
// A character; 0: none.
template <>
struct OptionMember<char> {
  static constexpr OptionKind kKind = OptionKind::text;
  static OptionValue get(char member) { return member ? OptionValue(std::string(1, member)) : OptionValue(); }
  static bool put(char& member, const OptionValue& value);
};
template <>
struct OptionMember<std::vector<std::string>> {
  static constexpr OptionKind kKind = OptionKind::texts;
  static OptionValue get(const std::vector<std::string>& member) { return member; }
  static bool put(std::vector<std::string>& member, const OptionValue& value);  // also one text
};
template <>
struct OptionMember<Sizes> {
  static constexpr OptionKind kKind = OptionKind::sizes;
  static OptionValue get(const Sizes& member) { return member; }
  static bool put(Sizes& member, const OptionValue& value);  // also one number
};
template <>
struct OptionMember<std::vector<double>> {
  static constexpr OptionKind kKind = OptionKind::numbers;
  static OptionValue get(const std::vector<double>& member) { return member; }
  static bool put(std::vector<double>& member, const OptionValue& value);  // also one number
};
template <>
struct OptionMember<std::vector<int64_t>> {
  static constexpr OptionKind kKind = OptionKind::numbers;
  static constexpr bool kWhole = true;
  static OptionValue get(const std::vector<int64_t>& member) { return std::vector<double>(member.begin(), member.end()); }
  static bool put(std::vector<int64_t>& member, const OptionValue& value);  // also one number
};
// Converts n numbers, none left out.
template <class Tuple, size_t n>
struct TupleMember {
  static constexpr OptionKind kKind = OptionKind::numbers;
  static constexpr int kCount = n;
  static OptionValue get(const Tuple& member) { return std::vector<double>(member.begin(), member.end()); }
  static bool put(Tuple& member, const OptionValue& value) {
    const auto* const numbers = std::get_if<std::vector<double>>(&value);
    if (!numbers || numbers->size() != n) return false;
    std::copy(numbers->begin(), numbers->end(), member.begin());
    return true;
  }
};
template <size_t n>
struct OptionMember<std::array<double, n>> : TupleMember<std::array<double, n>, n> {};
template <size_t n>
struct OptionMember<NumberTuple<n>> : TupleMember<NumberTuple<n>, n> {};
// Fewer numbers are repeated, if their count divides n: one for all, and 1, 2 for 1, 2, 1, 2.
template <size_t n>
struct OptionMember<std::array<int64_t, n>> {
  static constexpr OptionKind kKind = OptionKind::numbers;
  static constexpr int kCount = n, kFewest = 1;
  static constexpr bool kWhole = true, kRepeats = true;
  static OptionValue get(const std::array<int64_t, n>& member) { return std::vector<double>(member.begin(), member.end()); }
  static bool put(std::array<int64_t, n>& member, const OptionValue& value) {
    std::vector<int64_t> numbers;
    if (!OptionMember<std::vector<int64_t>>::put(numbers, value) || numbers.empty() || n % numbers.size() != 0) return false;
    for (size_t i = 0; i < n; ++i) member[i] = numbers[i % numbers.size()];
    return true;
  }
};
// The names of an enum's values, in their order, make it an option: HALFSTEP_OPTION_NAMES(Sampling, "nearest", "bilinear");
template <class E>
struct OptionNames;
#define HALFSTEP_OPTION_NAMES(Enum, ...)                   \
  template <>                                              \
  struct OptionNames<Enum> {                               \
    static constexpr const char* kNames[] = {__VA_ARGS__}; \
  }
template <class E>
requires requires { OptionNames<E>::kNames; }
struct OptionMember<E> {
  static constexpr OptionKind kKind = OptionKind::text;
  static std::vector<std::string> words() { return {std::begin(OptionNames<E>::kNames), std::end(OptionNames<E>::kNames)}; }
  static OptionValue get(E member) { return std::string(OptionNames<E>::kNames[size_t(member)]); }
  static bool put(E& member, const OptionValue& value) {
    const auto* const text = std::get_if<std::string>(&value);
    for (size_t i = 0; text && i < std::size(OptionNames<E>::kNames); ++i)
      if (*text == OptionNames<E>::kNames[i]) return member = E(i), true;
    return false;
  }
};
template <class T>
struct OptionMember<Required<T>> : OptionMember<T> {
  static constexpr bool kNeeded = true;
  static OptionValue get(const Required<T>& member) { return OptionMember<T>::get(*member); }
  static bool put(Required<T>& member, const OptionValue& value) {
    T converted{};
    if (!OptionMember<T>::put(converted, value)) return false;
    member = Required<T>(std::move(converted));
    return true;
  }
};
template <class T>
struct OptionMember<std::optional<T>> : OptionMember<T> {
  static OptionValue get(const std::optional<T>& member) { return member ? OptionMember<T>::get(*member) : OptionValue(); }
  static bool put(std::optional<T>& member, const OptionValue& value) {
    if (std::holds_alternative<std::monostate>(value)) return member.reset(), true;
    T converted{};
    if (!OptionMember<T>::put(converted, value)) return false;
    member = std::move(converted);
    return true;
  }
};

// How describe() of a layer prints an option: "p=0.5", "0.5", only if it differs from the default, or never.
enum class OptionShown : uint8_t { named, bare, if_changed, never };

// Facts of an option that do not depend on its struct.
struct OptionFacts {
  std::string name, doc;
  OptionKind kind = OptionKind::number;
  int count = 0;                        // of `numbers`, at most; 0: any
  int fewest = 0;                       // of `numbers`; 0: `count`. 1: a config may leave the brackets out
  bool whole = false, repeats = false;  // `numbers`: no fractions; of counts only those that divide `count`
  double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();  // of each number
  bool above_least = false, below_most = false;  // whether the bound itself is illegal
  bool not_zero = false;
  bool zero_is_none = false;            // 0 is legal whatever the bounds: not given, which a config says by leaving it out
  bool needed = false;                  // has no default
  std::vector<std::string> words = {};  // of a text, the legal ones (none: any); of others, words legal besides
  std::string none = {};                // the word by which a config says that nothing is given; empty: it leaves the option out
  std::string item = "number";          // the word for one of several values
  bool by_index = false;                // a text may also be given as an integer
  OptionShown shown = OptionShown::named;
  bool quoted = false;  // describe() prints the text in quotes

  // Returns the legal values: "> 0", ">= 0", "in [0, 1)", "not 0", "\"min\" or \"max\""; empty if all are.
  std::string domain() const;
  std::string counts() const;  // of `numbers`: "2", "1 or 2", "1, 2 or 4", "1 to 4"
};

// Throws ValueError for a value outside its domain. `owner`: the op or class, for the message.
void check_option(std::string_view owner, const OptionFacts& option, const OptionValue& value);

// An option of the struct O.
template <class O>
struct Option : OptionFacts {
  std::function<OptionValue(const O&)> get;
  std::function<bool(O&, const OptionValue&)> put;    // false, and nothing is changed, for data of another form
  std::function<bool(const O&, const O&)> same = {};  // empty for types without ==

  Option at_least(double bound) const {
    return with([=](Option& o) { o.least = bound; });
  }
  Option above(double bound) const {
    return with([=](Option& o) { o.least = bound, o.above_least = true; });
  }
  Option at_most(double bound) const {
    return with([=](Option& o) { o.most = bound; });
  }
  Option under(double bound) const {
    return with([=](Option& o) { o.most = bound, o.below_most = true; });
  }
  Option nonzero() const {
    return with([](Option& o) { o.not_zero = true; });
  }
  Option or_zero() const {
    return with([](Option& o) { o.zero_is_none = true; });
  }
  Option items(int fewest, int most) const {
    return with([=](Option& o) { o.fewest = fewest, o.count = most; });
  }
  Option required() const {
    return with([](Option& o) { o.needed = true; });
  }
  Option or_word(std::string word) const {
    return with([&](Option& o) { o.none = std::move(word); });
  }
  Option of(std::string item) const {
    return with([&](Option& o) { o.item = std::move(item); });
  }
  Option or_index() const {
    return with([](Option& o) { o.by_index = true; });
  }
  Option or_one() const {  // a config may leave the brackets out
    return with([](Option& o) { o.fewest = 1; });
  }
  Option one_of(std::vector<std::string> all) const {
    return with([&](Option& o) { o.words = std::move(all); });
  }
  Option bare() const {
    return with([](Option& o) { o.shown = OptionShown::bare; });
  }
  Option if_changed() const {
    return with([](Option& o) { o.shown = OptionShown::if_changed; });
  }
  Option unseen() const {
    return with([](Option& o) { o.shown = OptionShown::never; });
  }
  Option in_quotes() const {
    return with([](Option& o) { o.quoted = true; });
  }

 private:
  template <class F>
  Option with(const F& change) const {
    Option out = *this;
    change(out);
    return out;
  }
};
template <class O>
using OptionList = std::vector<Option<O>>;

// Sets the facts that follow from the type of a member.
template <class T>
void put_facts_of(OptionFacts& out) {
  using Member = OptionMember<T>;
  out.kind = Member::kKind;
  if constexpr (requires { Member::kCount; }) out.count = Member::kCount;
  if constexpr (requires { Member::kFewest; }) out.fewest = Member::kFewest;
  if constexpr (requires { Member::kWhole; }) out.whole = Member::kWhole;
  if constexpr (requires { Member::kRepeats; }) out.repeats = Member::kRepeats;
  if constexpr (requires { Member::words(); }) out.words = Member::words();
  if constexpr (requires { Member::kNeeded; }) out.needed = Member::kNeeded;
}

// Makes the option of a member. `doc`: its sentence.
template <class O, class T>
Option<O> option(std::string name, T O::*member, std::string doc) {
  using Member = OptionMember<T>;
  Option<O> out{{.name = std::move(name), .doc = std::move(doc)},
                [member](const O& o) { return Member::get(o.*member); },
                [member](O& o, const OptionValue& value) { return Member::put(o.*member, value); }};
  put_facts_of<T>(out);
  if constexpr (std::equality_comparable<T>) out.same = [member](const O& a, const O& b) { return a.*member == b.*member; };
  return out;
}

// A required argument of a constructor, which has a name, bounds and a sentence as an option has.
struct ByPosition {};
using Argument = Option<ByPosition>;
inline Argument argument(std::string name, std::string doc) { return {{.name = std::move(name), .doc = std::move(doc)}, {}, {}}; }

// The required arguments of a constructor, which are of the types T, in their order. A class lists them as a struct its options:
//   static const Arguments<int64_t, int64_t>& arguments();
//   HALFSTEP_ARGUMENTS(Linear, argument("in_features", "width of the input").at_least(1), ...)  // in the .cpp
template <class... T>
struct Arguments {
  static constexpr size_t kCount = sizeof...(T);
  std::array<Argument, kCount> each;
  Arguments(std::array<Argument, kCount> all) : each(std::move(all)) {
    size_t i = 0;
    (put_facts_of<T>(each[i++]), ...);
    for (Argument& a : each) a.needed = true;
  }
};
#define HALFSTEP_ARGUMENTS(Class, ...)                                         \
  auto Class::arguments()->decltype(Class::arguments()) {                      \
    using All = std::remove_cvref_t<decltype(Class::arguments())>;             \
    static const All& all = *new All({__VA_ARGS__});                           \
    return all;                                                                \
  }

// Throws ValueError, naming `owner` and the argument, for a value outside its domain.
template <class... T>
void check_arguments(std::string_view owner, const Arguments<T...>& all, const std::type_identity_t<T>&... values) {
  size_t i = 0;
  (check_option(owner, all.each[i++], OptionMember<T>::get(values)), ...);
}

// A class name as a template argument, of at most 39 letters: a longer one does not compile.
struct ClassName {
  char text[40] = {};
  template <size_t n>
  constexpr ClassName(const char (&name)[n]) {
    for (size_t i = 0; i < n; ++i) text[i] = name[i];
  }
};

// A struct with a list. It may also have check(owner) const, which throws ValueError for values that do not fit each other.
template <class O>
concept HasOptionList = requires {
  { O::list() } -> std::convertible_to<const OptionList<O>&>;
};

// Lists the options of a member that has a list of its own, as options of O.
template <class O, HasOptionList T>
OptionList<O> within(T O::*member) {
  OptionList<O> out;
  for (const Option<T>& o : T::list()) {
    out.push_back({o, [=](const O& all) { return o.get(all.*member); },
                   [=](O& all, const OptionValue& value) { return o.put(all.*member, value); }});
    if (o.same) out.back().same = [=](const O& a, const O& b) { return o.same(a.*member, b.*member); };
  }
  return out;
}
// Joins two lists.
template <class O>
OptionList<O> operator+(OptionList<O> first, const OptionList<O>& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

// Makes the option of a flag that a config gives as one of two words: `no` for false, `yes` for true. The word of
// the default comes first.
template <class O>
Option<O> in_words(const char* name, bool O::*member, const char* no, const char* yes, const char* doc) {
  Option<O> out = option(name, member, doc).one_of({no, yes});
  if (O().*member) std::swap(out.words[0], out.words[1]);
  out.kind = OptionKind::text;
  out.get = [=](const O& o) { return std::string(o.*member ? yes : no); };
  out.put = [=](O& o, const OptionValue& value) {
    const auto* const word = std::get_if<std::string>(&value);
    return word && (o.*member = *word == yes, true);
  };
  return out;
}
// Does the same for a flag that may also be not given, with the word `none`.
template <class O>
Option<O> in_words(const char* name, std::optional<bool> O::*member, const char* none, const char* yes, const char* no,
                   const char* doc) {
  Option<O> out = option(name, member, doc).one_of({yes, no}).or_word(none);
  out.kind = OptionKind::text;
  out.get = [=](const O& o) { return o.*member ? OptionValue(std::string(*(o.*member) ? yes : no)) : OptionValue(); };
  out.put = [=](O& o, const OptionValue& value) {
    const auto* const word = std::get_if<std::string>(&value);
    o.*member = word ? std::optional(*word == yes) : std::nullopt;
    return true;
  };
  return out;
}

// Defines Options::list(), where O is Options.
#define HALFSTEP_OPTIONS(Options, ...)                                  \
  const ::halfstep::OptionList<Options>& Options::list() {              \
    using O [[maybe_unused]] = Options;                                 \
    static const auto& all = *new ::halfstep::OptionList<O>{__VA_ARGS__};\
    return all;                                                         \
  }

// A value that converts to any Required<T>, which then holds T().
struct Unset {
  template <class T>
  operator Required<T>() const {
    return Required<T>(T());
  }
};
// Returns the defaults of O. In a struct that begins with ByName, up to two members that follow it are Required.
template <class O>
O defaults_of() {
  if constexpr (requires { O{}; })
    return O{};
  else if constexpr (requires { O{ByName(), Unset()}; })
    return O{ByName(), Unset()};
  else
    return O{ByName(), Unset(), Unset()};
}

// Throws ValueError, naming `owner` and the option, for a value outside its domain, and for values that do not fit each other.
template <HasOptionList O>
void check_options(std::string_view owner, const O& options) {
  for (const Option<O>& o : O::list()) check_option(owner, o, o.get(options));
  if constexpr (requires { (options.check)(owner); }) (options.check)(owner);
}

// Returns the options with this member, which was given by position. Throws ValueError if they have it by name as well.
template <class O, class T>
O with_option(O options, const char* name, T O::*member, const T& value) {
  if (!(OptionMember<T>::get(options.*member) == OptionMember<T>::get(O().*member)))
    fail<ValueError>("options", name, " is given twice, by position and by name");
  options.*member = value;
  return options;
}

// Returns whether all options of the list have equal values. Allocates nothing.
template <HasOptionList O>
bool same_values(const O& a, const O& b) {
  for (const Option<O>& o : O::list())
    if (!o.same(a, b)) return false;
  return true;
}

// The value of an option in a form of two types: numbers (a flag is 0 or 1), or a text.
using StoredOption = std::variant<std::vector<double>, std::string>;
// Convert a value to that form, and back for an option of the same kind.
StoredOption stored(const OptionValue& value);
OptionValue from_stored(const StoredOption& value, const OptionFacts& option);

}  // namespace halfstep
