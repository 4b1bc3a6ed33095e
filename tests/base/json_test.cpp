#include "lamina/base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lamina/base/error.h"

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string error_of(const std::string& text) {
  try {
    parse_json<json>(text, "x.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string nested(size_t levels, char open = '[', char close = ']') {
  return std::string(levels, open) + std::string(levels, close);
}

TEST(ParseJson, GivesTheTreeOfTheLibrarysParser) {
  const std::string text = R"( {"b": [1, -2, 3.5, 1e3, 18446744073709551615, "\u00e9\n", true, null, [], {}],
                              "a": {"c": {"d": [[{"e": ""}]]}}} )";
  EXPECT_EQ(parse_json<json>(text, "x"), json::parse(text));
  EXPECT_EQ(parse_json<ordered_json>(text, "x"), ordered_json::parse(text));
  EXPECT_EQ(parse_json<ordered_json>(text, "x").begin().key(), "b") << "in the order of the file";
  for (const char* scalar : {"1", "-1", "0.5", "\"s\"", "null", "false"}) {
    EXPECT_EQ(parse_json<json>(scalar, "x"), json::parse(scalar));
  }
}

TEST(ParseJson, ErrorsNameFileLineAndColumn) {
  EXPECT_EQ(error_of("{\n  \"a\": }").substr(0, 36), "x.json: line 2, column 8: not JSON: ");
  EXPECT_EQ(error_of("{\n\n \"a\": 1,\n \"a\": 2}"),
            "x.json: line 4, column 4: the key \"a\" is given twice in one object; remove one");
  for (const char* bad : {"", "{", "[1,]", "{\"a\"}", "nul", "1e999", "\"\xff\"", "\"a", "1 2", "{} x"}) {
    const std::string error = error_of(bad);
    EXPECT_EQ(error.substr(0, 14), "x.json: line 1") << bad << ": " << error;
    EXPECT_EQ(error.find("json.exception"), std::string::npos) << error;
    EXPECT_EQ(error.find("parse error"), std::string::npos) << error;
  }
  EXPECT_LT(error_of("[\"" + std::string(100000, 'a')).size(), 400U) << "what was read is not repeated whole";
}

TEST(ParseJson, DepthIsLimited) {
  EXPECT_EQ(error_of(nested(kMaxJsonDepth)), "");
  EXPECT_NE(error_of(nested(kMaxJsonDepth + 1)).find("column 65: nested more than 64 levels deep"), std::string::npos);
  EXPECT_NE(error_of(nested(70000)).find("levels deep"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 70000; ++i) objects += "{\"a\":";
  EXPECT_NE(error_of(objects).find("levels deep"), std::string::npos);
  EXPECT_FALSE(try_parse_json<json>(nested(70000)));
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "[{\"a\":[]}],";
  EXPECT_EQ(error_of(wide + "0]"), "") << "many lists beside each other are not deep";
}

TEST(ParseJson, SizeIsLimited) {
  EXPECT_NE(error_of(std::string(kMaxJsonBytes + 1, ' ')).find("at most"), std::string::npos);
  std::string many = "[0";
  for (size_t i = 0; i < kMaxJsonValues; ++i) many += ",0";
  EXPECT_NE(error_of(many + "]").find("values; is it the right file?"), std::string::npos);
}

TEST(TryParseJson, IsNothingWhereTheTextIsCutOff) {
  EXPECT_EQ(try_parse_json<json>("{\"step\": 1}").value(), json({{"step", 1}}));
  EXPECT_FALSE(try_parse_json<json>("{\"step\": 1"));
}

}  // namespace
}  // namespace lamina
