// Python's str(), repr() and json.dumps.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "lamina/base/error.h"
#include "lamina/text/template/unicode.h"
#include "lamina/text/template/value.h"
#include "lamina/text/utf8.h"

namespace lamina::text::jinja {
namespace {

void append_hex(std::string& out, const char* format, char32_t value) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(value));
  out += buffer;
}

std::string repr_of_sequence(const Sequence& sequence) {
  if (sequence.kind == SequenceKind::generator || sequence.kind == SequenceKind::range) {
    throw Failure("an iterator cannot be printed; put `| list` after it");
  }
  const bool tuple = sequence.kind == SequenceKind::tuple;
  std::string out = tuple ? "(" : sequence.kind == SequenceKind::view ? "dict_items([" : "[";
  for (size_t i = 0; i < sequence.items.size(); ++i) out += (i > 0 ? ", " : "") + repr(sequence.items[i]);
  if (tuple) return out + (sequence.items.size() == 1 ? ",)" : ")");
  return out + (sequence.kind == SequenceKind::view ? "])" : "]");
}

std::string repr_of_dict(const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.entries) out += (out.size() > 1 ? ", " : "") + repr(key) + ": " + repr(value);
  return out + "}";
}

std::string json_string(std::string_view text, bool ascii) {
  std::string out = "\"";
  const auto escape = [&](char32_t c) { append_hex(out, "\\u%04x", c); };
  for (const std::string_view one : characters(text)) {
    const char32_t c = first_code_point(one).value;
    switch (c) {
      case '"': out += "\\\""; continue;
      case '\\': out += "\\\\"; continue;
      case '\n': out += "\\n"; continue;
      case '\r': out += "\\r"; continue;
      case '\t': out += "\\t"; continue;
      case '\f': out += "\\f"; continue;
      case '\b': out += "\\b"; continue;
      default: break;
    }
    if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) {
      escape(c);
    } else if (ascii && c >= 0x10000) {
      escape(0xD800 + ((c - 0x10000) >> 10));
      escape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out += one;
    }
  }
  return out + "\"";
}

std::string json_scalar(const Value& value) {
  if (value.is_none()) return "null";
  if (value.is_bool()) return value.truth() ? "true" : "false";
  if (value.is_integer()) return std::to_string(value.integer());
  if (std::isnan(value.real())) return "NaN";
  if (std::isinf(value.real())) return value.real() > 0 ? "Infinity" : "-Infinity";
  return float_repr(value.real());
}

/// Writes values like json.dumps. With an indent, every element is on its own line.
class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    if (out_.size() > style_.max_size) throw Failure("tojson: the result is too long");
    if (value.is_string()) {
      out_ += json_string(value.text(), style_.ascii);
    } else if (value.is_none() || value.is_number()) {
      out_ += json_scalar(value);
    } else if (value.is_dict()) {
      write_dict(value.entries());
    } else if (value.is_sequence(SequenceKind::list) || value.is_sequence(SequenceKind::tuple)) {
      const auto& items = value.items().items;
      write_all('[', ']', items.size(), [&](size_t i) { write(items[i]); });
    } else {
      throw Failure(str("tojson: object of type ", value.type_name(), " is not JSON serializable"));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  template <class F>
  void write_all(char open, char close, size_t count, const F& write_one) {
    out_ += open;
    ++level_;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line();
      write_one(i);
    }
    --level_;
    if (count > 0) new_line();
    out_ += close;
  }

  void write_dict(const Dict& dict) {
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : dict.entries) {
      if (!key.is_string() && !key.is_none() && !key.is_number()) {
        throw Failure(str("tojson: keys must be str, int, float, bool or None, not ", key.type_name()));
      }
      entries.emplace_back(key.is_string() ? key.text() : json_scalar(key), &value);
    }
    if (style_.sorted) {
      std::ranges::stable_sort(entries, {}, [](const auto& entry) { return entry.first; });
    }
    write_all('{', '}', entries.size(), [&](size_t i) {
      out_ += json_string(entries[i].first, style_.ascii);
      out_ += style_.key_separator;
      write(*entries[i].second);
    });
  }

  void new_line() {
    if (!style_.indented) return;
    out_ += '\n';
    for (size_t i = 0; i < level_; ++i) out_ += style_.indent;
  }

  const JsonStyle& style_;
  std::string out_;
  size_t level_ = 0;
};

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string shortest(buffer, end);  // "-1.2345e+02"
  const int exponent = std::stoi(shortest.substr(shortest.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return shortest;
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string out(buffer, fixed);
  return out.find('.') == std::string::npos ? out + ".0" : out;
}

std::string text_repr(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (const std::string_view one : characters(text)) {
    const char32_t c = first_code_point(one).value;
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += one;
    } else if (is_printable(c)) {
      out += one;
    } else {
      append_hex(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    }
  }
  return out + quote;
}

std::string repr(const Value& value) {
  if (value.is_string()) return text_repr(value.text());
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.truth() ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.is_real()) return float_repr(value.real());
  if (value.is_dict()) return repr_of_dict(value.entries());
  if (value.is_sequence()) return repr_of_sequence(value.items());
  throw Failure(str("a ", value.type_name(), " cannot be printed; call it, or print one of its members"));
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.text();
  return value.is_undefined() ? "" : repr(value);
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace lamina::text::jinja
