#include "lamina/text/json_document.h"

#include <algorithm>

#include "lamina/base/error.h"

namespace lamina::text {
namespace {

/// Takes the entries of model.vocab and model.merges out of the parser's stream.
class Lists {
 public:
  Lists(JsonDocument& document, const std::string& name) : document_(document), name_(name) {}

  /// The parser's callback: false drops the value from the tree.
  bool operator()(int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key) {
      if (depth == 1) section_ = value.get_ref<const std::string&>();
      if (depth == 2) list_ = value.get_ref<const std::string&>();
      if (depth == 3) key_ = value.get_ref<const std::string&>();
      return true;
    }
    if (depth < 3 || section_ != "model") return true;
    if (list_ == "vocab") return vocab_entry(depth, event, value);
    if (list_ == "merges") return merge(depth, event, value);
    return true;
  }

 private:
  bool vocab_entry(int depth, json::parse_event_t event, const json& value) {
    LAMINA_CHECK(event == json::parse_event_t::value && depth == 3 && value.is_number_integer(), name_,
                 ": model.vocab, near \"", key_, "\": expected \"token\": id");
    document_.vocab.emplace_back(key_, value.get<int64_t>());
    return false;
  }

  /// "a b", or as newer files write it, ["a", "b"].
  bool merge(int depth, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::array_start && depth == 3) {
      pair_.clear();
      return true;
    }
    if (event == json::parse_event_t::array_end && depth == 3) {
      LAMINA_CHECK(pair_.size() == 2, name_, ": model.merges, entry ", document_.merges.size(),
                   ": expected two tokens");
      document_.merges.emplace_back(pair_[0], pair_[1]);
      return false;
    }
    LAMINA_CHECK(event == json::parse_event_t::value && value.is_string() && depth <= 4, name_,
                 ": model.merges, entry ", document_.merges.size(),
                 ": expected \"left right\" or [\"left\", \"right\"]");
    const std::string& text = value.get_ref<const std::string&>();
    if (depth == 4) {
      pair_.push_back(text);
      return true;
    }
    const size_t space = text.find(' ');
    LAMINA_CHECK(space != std::string::npos && text.find(' ', space + 1) == std::string::npos, name_,
                 ": model.merges, entry ", document_.merges.size(), " is \"", text,
                 "\", expected two tokens and a space");
    document_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    return false;
  }

  JsonDocument& document_;
  const std::string& name_;
  std::string section_;
  std::string list_;
  std::string key_;
  std::vector<std::string> pair_;
};

}  // namespace

JsonDocument parse_document(std::string_view text, const std::string& name) {
  JsonDocument document;
  try {
    document.tree = json::parse(text, Lists(document, name));
  } catch (const json::exception& error) {
    throw Error(str(name, ": is no JSON: ", error.what()));
  }
  LAMINA_CHECK(document.tree.is_object(), name, ": expected a JSON object, the tokenizer.json of a tokenizer");
  return document;
}

template <class T>
T value_or(const json& object, const char* key, T fallback, const std::string& name) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    throw Error(str(name, ": \"", key, "\" is ", found->dump().substr(0, 80), ", which has the wrong type"));
  }
}
template bool value_or(const json&, const char*, bool, const std::string&);
template double value_or(const json&, const char*, double, const std::string&);
template int64_t value_or(const json&, const char*, int64_t, const std::string&);
template std::string value_or(const json&, const char*, std::string, const std::string&);

void check_keys(const json& object, std::initializer_list<const char*> known, const std::string& name) {
  for (const auto& [key, value] : object.items()) {
    const bool found = std::ranges::any_of(known, [&](const char* one) { return key == one; });
    LAMINA_CHECK(found, name, ": \"", key, "\" is not understood here, and it could change the tokens");
  }
}

}  // namespace lamina::text
