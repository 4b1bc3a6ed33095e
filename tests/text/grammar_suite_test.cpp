// The JSON Schema test suite: for every schema that is supported, each valid document is accepted and each invalid one
// is rejected. Documents are spelled as generated ones are: compact, properties in the schema's order, whole numbers
// without a fraction.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/text/grammar/grammar.h"
#include "lamina/text/grammar/json_text.h"

namespace lamina::text {
namespace {

using Json = nlohmann::ordered_json;

std::string suite_folder() {
  if (const char* given = std::getenv("LAMINA_JSON_SCHEMA_SUITE")) return given;
  for (const char* draft : {"draft2020-12", "draft7"}) {
    const std::string folder = std::string("/usr/share/json-schema-test-suite/tests/") + draft;
    if (std::filesystem::exists(folder)) return folder;
  }
  return "";
}

/// The place of each property name in the order in which a schema lists them.
void collect_order(const Json& schema, std::map<std::string, size_t>& order) {
  if (schema.is_object()) {
    for (const char* keyword : {"properties", "required"}) {
      if (!schema.contains(keyword)) continue;
      for (const auto& [name, value] : schema[keyword].items()) {
        order.emplace(value.is_string() ? value.get<std::string>() : name, order.size());
      }
    }
  }
  if (schema.is_object() && schema.contains("const") && schema["const"].is_object()) {
    for (const auto& [name, value] : schema["const"].items()) order.emplace(name, order.size());
  }
  if (schema.is_structured()) {
    for (const Json& child : schema) collect_order(child, order);
  }
}

Json spelled(const Json& value, const std::map<std::string, size_t>& order) {
  if (value.is_array()) {
    Json result = Json::array();
    for (const Json& element : value) result.push_back(spelled(element, order));
    return result;
  }
  if (value.is_number()) return Json::parse(grammar::number_text(value));
  if (!value.is_object()) return value;
  std::vector<std::string> names;
  for (const auto& [name, member] : value.items()) names.push_back(name);
  const auto place = [&](const std::string& name) {
    const auto found = order.find(name);
    return found == order.end() ? SIZE_MAX : found->second;
  };
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return place(a) < place(b); });
  Json result = Json::object();
  for (const std::string& name : names) result[name] = spelled(value[name], order);
  return result;
}

/// Drafts before 2019-09 ignore everything beside $ref; we apply it.
bool is_other_draft(const std::string& group) {
  return group == "ref overrides any sibling keywords" ||
         group == "$ref prevents a sibling $id from changing the base uri";
}

TEST(JsonSchemaSuite, AcceptsValidAndRejectsInvalidDocuments) {
  const std::string folder = suite_folder();
  if (folder.empty()) {
    GTEST_SKIP() << "the JSON Schema test suite is not installed: tools/deps --test (Debian: json-schema-test-suite)";
  }
  int supported = 0;
  int unsupported = 0;
  int documents = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".json") continue;
    for (const Json& group : Json::parse(read_text(file.path().string()))) {
      const std::string description = group["description"];
      if (is_other_draft(description)) continue;
      const std::string where = file.path().filename().string() + ": " + description;
      std::vector<Grammar> grammars;
      bool empty = false;
      try {
        for (const auto whitespace : {JsonOptions::Whitespace::none, JsonOptions::Whitespace::flexible}) {
          grammars.push_back(Grammar::json_schema(group["schema"].dump(), {whitespace, false}));
        }
      } catch (const Error& error) {
        empty = std::string(error.what()).find("matches no text") != std::string::npos;
        if (!empty) {
          ++unsupported;
          if (std::getenv("LAMINA_LIST_UNSUPPORTED") != nullptr) std::printf("%s: %s\n", where.c_str(), error.what());
          continue;
        }
      }
      ++supported;
      std::map<std::string, size_t> order;
      collect_order(group["schema"], order);
      for (const Json& test : group["tests"]) {
        // By default `format` does not constrain; here it always does.
        if (test["description"].get<std::string>().find("only an annotation") != std::string::npos) continue;
        const Json document = spelled(test["data"], order);
        const std::string reason = where + ": " + test["description"].get<std::string>() + ": " + document.dump();
        const bool expected = test["valid"];
        ++documents;
        if (empty) {
          EXPECT_FALSE(expected) << reason;
          continue;
        }
        EXPECT_EQ(grammars[0].matches(document.dump()), expected) << reason;
        const bool indented = grammars[1].matches(document.dump(2));
        EXPECT_EQ(grammars[1].matches(document.dump()) && indented, expected) << reason;
      }
    }
  }
  std::printf("JSON Schema suite: %d schemas supported (%d documents), %d refused\n", supported, documents,
              unsupported);
  EXPECT_GT(supported, 80);
}

}  // namespace
}  // namespace lamina::text
