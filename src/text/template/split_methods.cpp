// Python's str.split and related methods.
#include <algorithm>

#include "lamina/text/template/arguments.h"
#include "lamina/text/template/interpreter.h"
#include "lamina/text/template/methods.h"
#include "lamina/text/template/unicode.h"
#include "lamina/text/utf8.h"

namespace lamina::text::jinja {
namespace {

using Pieces = std::vector<std::string_view>;

size_t count_limit(const BoundArguments& arguments) {
  const int64_t most = arguments.integer_or(1, -1);
  return most < 0 ? SIZE_MAX : static_cast<size_t>(most);
}

/// Number of bytes before the first white space.
size_t word_length(std::string_view text) {
  size_t length = 0;
  while (length < text.size()) {
    const CodePoint point = first_code_point(text.substr(length, 4));
    if (is_space(point.value)) break;
    length += std::max<size_t>(point.length, 1);
  }
  return length;
}

/// Splits at runs of white space, without empty pieces. After `most` cuts, the rest is one piece.
Pieces split_at_space(std::string_view text, size_t most) {
  Pieces pieces;
  for (text = strip(text, Side::left); !text.empty(); text = strip(text, Side::left)) {
    const size_t length = pieces.size() == most ? text.size() : word_length(text);
    pieces.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return pieces;
}

Pieces split_at(std::string_view text, std::string_view separator, size_t most) {
  Pieces pieces;
  size_t at = 0;
  while (pieces.size() < most) {
    const size_t found = find_text(text, separator, at);
    if (found == std::string_view::npos) break;
    pieces.push_back(text.substr(at, found - at));
    at = found + separator.size();
  }
  pieces.push_back(text.substr(at));
  return pieces;
}

/// Splits at the last `most` separators (rsplit), found in the reversed text.
Pieces rsplit_at(std::string_view text, std::string_view separator, size_t most) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_separator(separator.rbegin(), separator.rend());
  Pieces pieces;
  size_t end = text.size();
  for (const std::string_view piece : split_at(reversed_text, reversed_separator, most)) {
    pieces.push_back(text.substr(end - piece.size(), piece.size()));
    end -= std::min(end, piece.size() + separator.size());
  }
  std::ranges::reverse(pieces);
  return pieces;
}

Pieces rsplit_at_space(std::string_view text, size_t most) {
  Pieces pieces = split_at_space(text, SIZE_MAX);
  if (pieces.size() <= most) return pieces;
  const size_t joined = pieces.size() - most;  // the first pieces stay together, including the space between them
  const std::string_view last = pieces[joined - 1];
  Pieces out = {text.substr(0, static_cast<size_t>(last.data() + last.size() - text.data()))};
  out.insert(out.end(), pieces.begin() + static_cast<std::ptrdiff_t>(joined), pieces.end());
  return out;
}

Value list_of(Interpreter& run, const Pieces& pieces) {
  std::vector<Value> items;
  for (const std::string_view piece : pieces) {
    run.charge(piece.size());
    items.emplace_back(piece);
  }
  return run.list(std::move(items));
}

template <Pieces (*by_space)(std::string_view, size_t), Pieces (*by_text)(std::string_view, std::string_view, size_t)>
Value split_with(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("split", given, {"sep", "maxsplit"});
  run.charge(self.text().size());
  const size_t most = count_limit(arguments);
  if (arguments.value_or(0, {}).is_none()) return list_of(run, by_space(self.text(), most));
  if (arguments.text(0).empty()) throw Failure("split: empty separator");
  return list_of(run, by_text(self.text(), arguments.text(0), most));
}

Value parts_around(Interpreter& run, const Value& self, const Arguments& given, bool last) {
  const BoundArguments arguments("partition", given, {"sep"});
  const std::string& separator = arguments.text(0);
  if (separator.empty()) throw Failure("partition: empty separator");
  run.charge(self.text().size());
  const std::string_view text = self.text();
  const size_t found = last ? rfind_text(text, separator) : find_text(text, separator);
  if (found == std::string_view::npos) {
    return last ? Value::tuple({"", "", self}) : Value::tuple({self, "", ""});
  }
  return Value::tuple({text.substr(0, found), separator, text.substr(found + separator.size())});
}

}  // namespace

Value split_method(Interpreter& run, const Value& self, const Arguments& given) {
  return split_with<split_at_space, split_at>(run, self, given);
}
Value rsplit_method(Interpreter& run, const Value& self, const Arguments& given) {
  return split_with<rsplit_at_space, rsplit_at>(run, self, given);
}

Value splitlines_method(Interpreter& run, const Value& self, const Arguments& given) {
  const BoundArguments arguments("splitlines", given, {"keepends"});
  run.charge(self.text().size());
  const Pieces lines = split_lines(self.text());
  if (!arguments.truth_or(0, false)) return list_of(run, lines);
  Pieces kept;
  const char* end = self.text().data() + self.text().size();
  for (size_t i = 0; i < lines.size(); ++i) {
    const char* next = i + 1 < lines.size() ? lines[i + 1].data() : end;
    kept.emplace_back(lines[i].data(), static_cast<size_t>(next - lines[i].data()));
  }
  return list_of(run, kept);
}

Value partition_method(Interpreter& run, const Value& self, const Arguments& given) {
  return parts_around(run, self, given, false);
}
Value rpartition_method(Interpreter& run, const Value& self, const Arguments& given) {
  return parts_around(run, self, given, true);
}

}  // namespace lamina::text::jinja
