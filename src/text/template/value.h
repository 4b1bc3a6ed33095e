#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace lamina::text::jinja {

/// Thrown if rendering fails. Template::render catches it and adds the line.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Value;
class Interpreter;
struct Sequence;
struct Dict;
struct Callable;
struct Namespace;
struct Loop;

/// jinja2's Undefined: prints as nothing, is false, and iterates over nothing. Any other use fails with `message`.
struct Undefined {
  std::shared_ptr<const std::string> message;
};

/// Positional and keyword arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// The Python type of a sequence. Determines how it prints and compares, and whether it has a length.
enum class SequenceKind { list, tuple, range, view, generator };

/// A Python value in a template. Copies are cheap: text and containers are shared and immutable, so values cannot
/// contain themselves. (The sandbox of transformers forbids changing lists and dicts, too.)
class Value {
 public:
  Value() = default;  ///< None
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(int value) : data_(int64_t{value}) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(Undefined value) : data_(std::move(value)) {}
  Value(std::shared_ptr<const Callable> value) : data_(std::move(value)) {}
  Value(std::shared_ptr<Loop> value) : data_(std::move(value)) {}
  Value(Namespace* value) : data_(value) {}

  static Value undefined(std::string message);
  /// Throws Failure if the value exceeds kMaxValueDepth or kMaxValueSize.
  static Value sequence(std::vector<Value> items, SequenceKind kind);
  static Value list(std::vector<Value> items) { return sequence(std::move(items), SequenceKind::list); }
  static Value tuple(std::vector<Value> items) { return sequence(std::move(items), SequenceKind::tuple); }
  static Value generator(std::vector<Value> items, std::string failure = {});
  /// If keys are equal, the later entry replaces the value of the earlier one.
  static Value dict(std::vector<std::pair<Value, Value>> entries);
  static Value from_json(const nlohmann::ordered_json& tree);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_real() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_integer() || is_real(); }
  bool is_string() const { return std::holds_alternative<std::shared_ptr<const std::string>>(data_); }
  bool is_markup() const { return markup_; }  ///< text marked by `safe` or `escape`
  bool is_sequence() const { return std::holds_alternative<std::shared_ptr<const Sequence>>(data_); }
  bool is_sequence(SequenceKind kind) const;
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_callable() const { return std::holds_alternative<std::shared_ptr<const Callable>>(data_); }

  const std::string& text() const { return *std::get<std::shared_ptr<const std::string>>(data_); }
  int64_t integer() const;  ///< value of an integer or a bool
  double real() const;      ///< value of any number
  const Sequence& items() const { return *std::get<std::shared_ptr<const Sequence>>(data_); }
  const Dict& entries() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }
  Namespace* name_space() const;  ///< null if it is not a namespace
  std::shared_ptr<Loop> loop() const;
  [[noreturn]] void fail_undefined() const;  ///< throws Failure with the message of an Undefined

  /// The text as Markup. `+` then escapes the other operand for HTML, even though templates render plain text.
  Value as_markup() const;

  bool truth() const;
  bool has_length() const;
  int64_t length() const;  ///< Python's len; throws Failure if the value has no length
  /// The elements for a for loop. A generator is empty afterwards.
  std::vector<Value> iterate() const;
  bool is_iterable() const;
  size_t depth() const;           ///< nesting of containers; 0 for scalars
  size_t size() const;            ///< approximate bytes of its repr(); a shared part counts each time
  std::string type_name() const;  ///< Python's: "NoneType", "str", …

 private:
  explicit Value(std::shared_ptr<const Sequence> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<const Dict> value) : data_(std::move(value)) {}

  std::variant<std::monostate, Undefined, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>, std::shared_ptr<const Callable>,
               std::shared_ptr<Loop>, Namespace*>
      data_;
  bool markup_ = false;
};

inline constexpr size_t kMaxValueDepth = 100;
inline constexpr size_t kMaxValueSize = size_t{128} << 20;
inline constexpr size_t kScalarSize = 16;

/// A list, tuple, range, view or generator.
struct Sequence {
  std::vector<Value> items;
  SequenceKind kind = SequenceKind::list;
  size_t depth = 1;
  size_t size = 0;
  mutable size_t consumed = 0;  ///< number of elements taken from a generator
  std::string failure;          ///< error that a generator throws after its last element; empty: none
};

/// A dict that keeps the order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string_view, size_t> by_text;  ///< positions of text keys
  size_t depth = 1;
  size_t size = 0;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

/// A function, method or macro.
struct Callable {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> call;
  size_t depth = 1;
};

/// The only mutable value in templates. The interpreter owns it, because it may contain itself.
struct Namespace {
  std::unordered_map<std::string, Value> members;
};

/// Python's ==, < and `in`. Comparing the order of types that Python cannot order throws Failure.
bool equal(const Value& a, const Value& b);
int compare(const Value& a, const Value& b, std::string_view symbol);
bool contains(const Value& container, const Value& element);

std::string to_text(const Value& value);  ///< Python's str()
std::string repr(const Value& value);     ///< Python's repr()
std::string float_repr(double value);
std::string text_repr(std::string_view text);

/// Options of Python's json.dumps.
struct JsonStyle {
  bool ascii = false;
  bool sorted = false;
  bool indented = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  size_t max_size = SIZE_MAX;
};
/// Python's json.dumps. Throws Failure if the result exceeds max_size bytes.
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace lamina::text::jinja
