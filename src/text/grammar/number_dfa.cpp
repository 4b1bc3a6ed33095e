#include "lamina/text/grammar/number_dfa.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "lamina/base/error.h"

namespace lamina::text::grammar {
namespace {

constexpr size_t kMaxDigits = 400;
constexpr uint64_t kMaxRemainders = 4'000;

struct Comparison {
  bool less = false;
  bool equal = false;
  bool greater = false;
  bool of(int order) const { return order < 0 ? less : (order == 0 ? equal : greater); }
};

/// Builds an automaton for unsigned plain numbers on one side of a bound. The number of whole digits is compared first,
/// then the digits from left to right.
class MagnitudeBuilder {
 public:
  MagnitudeBuilder(const Decimal& bound, Comparison allowed) : bound_(bound), allowed_(allowed) {}

  CharDfa build() {
    for (size_t read = 0; read <= bound_.whole.size() + 1; ++read) {
      for (int order = -1; order <= 1; ++order) add_whole(read, order);
    }
    for (size_t read = 0; read <= bound_.fraction.size(); ++read) add_fraction(read);
    for (const int order : {-1, 1}) add_decided(order);
    std::swap(dfa_.states[0], dfa_.states[whole_id(0, 0)]);
    return std::move(dfa_);
  }

 private:
  // States: (whole digits read) × (order so far), then (fraction digits read while equal), then decided. whole_id(0,
  // -1) and whole_id(0, 0) are swapped, so that the start is 0; no edge leads to either.
  uint32_t whole_id(size_t read, int order) const {
    return static_cast<uint32_t>(std::min(read, bound_.whole.size() + 1) * 3 + static_cast<size_t>(order + 1));
  }
  uint32_t fraction_id(size_t read) const {
    return static_cast<uint32_t>((bound_.whole.size() + 2) * 3 + std::min(read, bound_.fraction.size()));
  }
  uint32_t decided_id(int order) const { return fraction_id(bound_.fraction.size()) + (order < 0 ? 1 : 2); }
  static int order_of(char digit, char bound) { return digit < bound ? -1 : (digit > bound ? 1 : 0); }

  void add_whole(size_t read, int order) {
    CharDfa::State state;
    const size_t n = bound_.whole.size();
    const int result = read < n ? -1 : (read > n ? 1 : order);
    state.accepts = read > 0 && allowed_.of(result == 0 && !bound_.fraction.empty() ? -1 : result);
    if (read > 0) state.edges.push_back({'.', '.', result == 0 ? fraction_id(0) : decided_id(result)});
    for (char digit = '0'; digit <= '9'; ++digit) {
      const int next = order != 0 || read >= n ? order : order_of(digit, bound_.whole[read]);
      state.edges.push_back({static_cast<char32_t>(digit), static_cast<char32_t>(digit), whole_id(read + 1, next)});
    }
    dfa_.states.push_back(std::move(state));
  }

  void add_fraction(size_t read) {
    CharDfa::State state;
    const bool all = read == bound_.fraction.size();
    state.accepts = allowed_.of(all ? 0 : -1);
    for (char digit = '0'; digit <= '9'; ++digit) {
      const int order = order_of(digit, all ? '0' : bound_.fraction[read]);
      const uint32_t to = order == 0 ? fraction_id(read + 1) : decided_id(order);
      state.edges.push_back({static_cast<char32_t>(digit), static_cast<char32_t>(digit), to});
    }
    dfa_.states.push_back(std::move(state));
  }

  void add_decided(int order) {
    CharDfa::State state;
    state.accepts = allowed_.of(order);
    state.edges.push_back({'.', '.', decided_id(order)});
    state.edges.push_back({'0', '9', decided_id(order)});
    std::sort(state.edges.begin(), state.edges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    dfa_.states.push_back(std::move(state));
  }

  const Decimal& bound_;
  Comparison allowed_;
  CharDfa dfa_;
};

uint32_t append_nfa(CharNfa& nfa, const CharNfa& part) {
  const auto base = static_cast<uint32_t>(nfa.states.size());
  for (CharNfa::State state : part.states) {
    for (CharNfa::Edge& edge : state.edges) edge.to += base;
    for (uint32_t& to : state.empty) to += base;
    nfa.states.push_back(std::move(state));
  }
  return base;
}

/// Accepts unsigned numbers from `positive`, and numbers with a minus sign from `negative`.
CharDfa with_sign(const CharDfa& positive, const CharDfa& negative, DfaWork& work) {
  CharNfa nfa;
  nfa.states.emplace_back();
  const uint32_t plus = append_nfa(nfa, positive.to_nfa());
  const uint32_t minus = append_nfa(nfa, negative.to_nfa());
  nfa.states[0].empty.push_back(plus);
  nfa.states[0].edges.push_back({{'-', '-'}, minus});
  return determinize(nfa, work);
}

/// The digits of a decimal as an integer, and the number of digits after the point.
std::pair<uint64_t, size_t> scaled(const Decimal& decimal, const std::string& name) {
  const std::string digits = decimal.whole + decimal.fraction;
  const uint64_t value = digits.size() > 12 ? UINT64_MAX : std::strtoull(digits.c_str(), nullptr, 10);
  LAMINA_CHECK(value > 0, name, ": multipleOf is 0; expected a positive number");
  LAMINA_CHECK(value <= kMaxRemainders && value * (decimal.fraction.size() + 1) <= kMaxRemainders, name,
               ": multipleOf has too many digits; at most ", kMaxRemainders, " remainders can be told apart");
  return {value, decimal.fraction.size()};
}

}  // namespace

Decimal parse_decimal(const std::string& number, const std::string& name) {
  Decimal result;
  size_t at = 0;
  result.negative = number.starts_with('-');
  if (result.negative) ++at;
  std::string digits;
  int64_t point = -1;
  for (; at < number.size() && number[at] != 'e' && number[at] != 'E'; ++at) {
    if (number[at] == '.') {
      point = static_cast<int64_t>(digits.size());
    } else {
      digits += number[at];
    }
  }
  if (point < 0) point = static_cast<int64_t>(digits.size());
  if (at < number.size()) point += std::strtoll(number.c_str() + at + 1, nullptr, 10);
  const auto limit = static_cast<int64_t>(kMaxDigits);
  LAMINA_CHECK(point > -limit && point < limit && digits.size() < kMaxDigits, name, ": the number ",
               number.substr(0, 40), " has too many digits; at most ", kMaxDigits, " are allowed");
  if (point < 0) digits.insert(0, static_cast<size_t>(-point), '0');
  point = std::max<int64_t>(point, 0);
  if (static_cast<size_t>(point) > digits.size()) digits.append(static_cast<size_t>(point) - digits.size(), '0');
  result.whole = digits.substr(0, static_cast<size_t>(point));
  result.fraction = digits.substr(static_cast<size_t>(point));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  if (result.whole.empty()) result.whole = "0";
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  if (result.is_zero()) result.negative = false;
  return result;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = 0;
  if (a.whole.size() != b.whole.size()) {
    order = a.whole.size() < b.whole.size() ? -1 : 1;
  } else if (const int whole = a.whole.compare(b.whole); whole != 0) {
    order = whole < 0 ? -1 : 1;
  } else {
    const int fraction = a.fraction.compare(b.fraction);
    order = fraction < 0 ? -1 : (fraction > 0 ? 1 : 0);
  }
  return a.negative ? -order : order;
}

bool is_multiple(const Decimal& value, const Decimal& divisor, const std::string& name) {
  const auto [p, decimals] = scaled(divisor, name);
  if (value.fraction.size() > decimals) return false;
  uint64_t remainder = 0;
  for (const char digit : value.whole + value.fraction) remainder = (remainder * 10 + (digit - '0')) % p;
  for (size_t i = value.fraction.size(); i < decimals; ++i) remainder = remainder * 10 % p;
  return remainder == 0;
}

CharDfa plain_numbers(bool integers, DfaWork& work) {
  const char* pattern = integers ? "-?(0|[1-9][0-9]*)" : "-?(0|[1-9][0-9]*)([.][0-9]+)?";
  return determinize(pattern_nfa(pattern, Matching::whole, "number"), work);
}

CharDfa numbers_within(const Decimal& bound, bool upper, bool exclusive, DfaWork& work) {
  const bool inclusive = !exclusive;
  const Comparison all{true, true, true};
  Comparison positive;
  Comparison negative;  // comparison of the magnitude
  if (upper) {
    if (!bound.negative) positive = {true, inclusive, false};
    negative = bound.negative ? Comparison{false, inclusive, true} : all;
    if (bound.is_zero() && exclusive) negative = {false, false, true};
  } else {
    positive = bound.negative ? all : Comparison{false, inclusive, true};
    if (bound.negative) negative = {true, inclusive, false};
    if (bound.is_zero()) negative = {false, inclusive, false};
  }
  return with_sign(MagnitudeBuilder(bound, positive).build(), MagnitudeBuilder(bound, negative).build(), work);
}

CharDfa multiples_of(const Decimal& divisor, DfaWork& work) {
  const auto [p, decimals] = scaled(divisor, work.name);
  CharDfa dfa;
  const auto id = [&, p = p](uint64_t remainder, size_t read) { return static_cast<uint32_t>(read * p + remainder); };
  // Whole part: states [0, p); fraction with j digits read (j from 0): states [(1 + j) p, (2 + j) p).
  for (size_t j = 0; j <= decimals + 1; ++j) {
    for (uint64_t r = 0; r < p; ++r) {
      CharDfa::State state;
      const size_t read = j == 0 ? 0 : j - 1;
      uint64_t remainder = r;
      for (size_t i = read; i < decimals; ++i) remainder = remainder * 10 % p;
      state.accepts = remainder == 0;
      if (j == 0) state.edges.push_back({'.', '.', id(r, 1)});
      for (char digit = '0'; digit <= '9'; ++digit) {
        const uint64_t next = (r * 10 + static_cast<uint64_t>(digit - '0')) % p;
        const auto c = static_cast<char32_t>(digit);
        if (j == 0) {
          state.edges.push_back({c, c, id(next, 0)});
        } else if (read < decimals) {
          state.edges.push_back({c, c, id(next, j + 1)});
        } else if (digit == '0') {
          state.edges.push_back({c, c, id(r, j)});
        }
      }
      dfa.states.push_back(std::move(state));
    }
  }
  return with_sign(dfa, dfa, work);
}

}  // namespace lamina::text::grammar
