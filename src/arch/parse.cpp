#include <nlohmann/json.hpp>
#include <set>

#include "lamina/arch/json.h"

namespace lamina::arch {
namespace {

constexpr size_t kMaxText = size_t{4} << 20;
constexpr int kMaxDepth = 64;
constexpr int kMaxLists = 8192;  // the parser rescans a list after each of its objects

/// Rejects what the parser would accept silently: deep nesting and duplicate keys.
class Guard {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    LAMINA_CHECK(depth <= kMaxDepth, "nested more than ", kMaxDepth, " levels deep; an architecture needs about 10");
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      LAMINA_CHECK(++lists_ <= kMaxLists, "more than ", kMaxLists, " lists and objects; use repeat for equal layers");
    }
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys_.empty()) keys_.pop_back();
    if (event == Json::parse_event_t::key && !keys_.empty()) {
      const auto key = parsed.get<std::string>();
      LAMINA_CHECK(keys_.back().insert(key).second, "key \"", key, "\" is given twice in one object; remove one");
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
  int lists_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& name) {
  LAMINA_CHECK(text.size() <= kMaxText, name, ": ", text.size(), " bytes; an architecture file has at most ", kMaxText);
  try {
    Guard guard;
    return Json::parse(text.begin(), text.end(), [&guard](int depth, Json::parse_event_t event, Json& parsed) {
      return guard(depth, event, parsed);
    });
  } catch (const Json::exception& error) {
    // Drops the library's prefix "[json.exception.parse_error.101] ".
    const std::string what = error.what();
    const size_t bracket = what.find("] ");
    throw Error(str(name, ": not JSON: ", bracket == std::string::npos ? what : what.substr(bracket + 2)));
  } catch (const Error& error) {
    throw Error(str(name, ": ", error.what()));
  }
}

}  // namespace lamina::arch
