#include "lamina/base/json.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "lamina/base/error.h"
#include "lamina/base/files.h"

namespace lamina {
namespace {

constexpr size_t kShownMessage = 200;

/// A text iterator that counts how far the parser has read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** read) : at_(at), read_(read) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *read_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** read_;
};

/// Builds the JSON tree from SAX events, because nlohmann's own builder accepts any depth and duplicate keys.
template <class Json>
class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::string_t;
  using typename nlohmann::json_sax<Json>::binary_t;

  TreeBuilder(std::string_view text, const std::string& name) : text_(text), name_(name), read_(text.data()) {}

  Json parse() {
    const char* end = text_.data() + text_.size();
    Json::sax_parse(CountingIterator(text_.data(), &read_), CountingIterator(end, &read_), this);
    return std::move(root_);
  }

  bool null() override { return add(nullptr) != nullptr; }
  bool boolean(bool value) override { return add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value) != nullptr; }
  bool string(string_t& value) override { return add(std::move(value)) != nullptr; }
  bool binary(binary_t& /*value*/) override { return false; }  // does not occur in JSON text

  bool start_object(size_t /*count*/) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t /*count*/) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    if (!open_.back().keys.insert(key).second) {
      fail(str("the key \"", key.substr(0, kShownMessage), "\" is given twice in one object; remove one"));
    }
    key_ = std::move(key);
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/, const nlohmann::json::exception& error) override {
    // Shortens "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error while …" to its end.
    std::string message = error.what();
    message = message.substr(std::min(message.find("] ") + 2, message.size()));
    const size_t column = message.find(", column ");
    if (column != std::string::npos) message = message.substr(message.find(": ", column) + 2);
    if (message.size() > kShownMessage) message = message.substr(0, kShownMessage) + "…";
    fail_at(position, "not JSON: " + message);
    return false;
  }

 private:
  struct Open {
    Json* value;
    std::unordered_set<std::string> keys;
  };

  template <class Value>
  Json* add(Value&& value) {
    if (++values_ > kMaxJsonValues) fail(str("more than ", kMaxJsonValues, " values; is it the right file?"));
    if (open_.empty()) {
      root_ = std::forward<Value>(value);
      return &root_;
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      auto& list = parent.template get_ref<typename Json::array_t&>();
      return &list.emplace_back(std::forward<Value>(value));
    }
    auto& object = parent.template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      // ordered_json::emplace would search the whole object, which makes parsing quadratic.
      object.push_back({std::move(key_), Json(std::forward<Value>(value))});
      return &object.back().second;
    } else {
      return &object.emplace(std::move(key_), std::forward<Value>(value)).first->second;
    }
  }

  bool open(Json empty) {
    if (open_.size() == kMaxJsonDepth) fail(str("nested more than ", kMaxJsonDepth, " levels deep"));
    Json* value = add(std::move(empty));
    open_.push_back({value, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  [[noreturn]] void fail(const std::string& message) const {
    fail_at(static_cast<size_t>(read_ - text_.data()), message);
  }
  /// `read` is the number of bytes read so far. The error is at the last of them.
  [[noreturn]] void fail_at(size_t read, const std::string& message) const {
    throw Error(str(name_, ": ", text_position(text_, read == 0 ? 0 : read - 1), ": ", message));
  }

  std::string_view text_;
  const std::string& name_;
  const char* read_;
  Json root_;
  std::vector<Open> open_;
  std::string key_;
  size_t values_ = 0;
};

}  // namespace

std::string text_position(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const size_t newline = before.rfind('\n');
  const size_t column = before.size() - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
  return str("line ", 1 + std::count(before.begin(), before.end(), '\n'), ", column ", column);
}

template <class Json>
Json parse_json(std::string_view text, const std::string& name) {
  LAMINA_CHECK(text.size() <= kMaxJsonBytes, name, ": has ", text.size(), " bytes; JSON files have at most ",
               kMaxJsonBytes, "; is it the right file?");
  return TreeBuilder<Json>(text, name).parse();
}

template <class Json>
std::optional<Json> try_parse_json(std::string_view text) {
  try {
    return parse_json<Json>(text, "");
  } catch (const Error&) {
    return {};
  }
}

template <class Json>
Json read_json_file(const std::string& path) {
  return parse_json<Json>(read_text(path), path);
}

template nlohmann::json parse_json(std::string_view, const std::string&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&);
template std::optional<nlohmann::json> try_parse_json(std::string_view);
template std::optional<nlohmann::ordered_json> try_parse_json(std::string_view);
template nlohmann::json read_json_file(const std::string&);
template nlohmann::ordered_json read_json_file(const std::string&);

}  // namespace lamina
