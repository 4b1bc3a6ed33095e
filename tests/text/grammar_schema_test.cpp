#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lamina/base/error.h"
#include "lamina/text/grammar/grammar.h"

namespace lamina::text {
namespace {

const JsonOptions kCompact = {JsonOptions::Whitespace::none, false};

bool valid(const std::string& schema, const std::string& document) {
  return Grammar::json_schema(schema, kCompact).matches(document);
}

std::string message_of_schema(const std::string& schema) {
  try {
    Grammar::json_schema(schema);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void expect_named(const std::string& schema, const std::string& part) {
  EXPECT_NE(message_of_schema(schema).find(part), std::string::npos) << message_of_schema(schema).substr(0, 400);
}

TEST(JsonGrammar, TakesAnyJson) {
  const Grammar object = Grammar::json();
  EXPECT_TRUE(object.matches(R"({"a": [1, -2.5e+3, "x\u00e9\"\\\n\ud83d\ude00 é", {"b": null}], "c": true})"));
  EXPECT_TRUE(object.matches("{\n  \"a\": [\n    1,\n    2\n  ]\n}"));
  EXPECT_TRUE(object.matches("{}"));
  EXPECT_FALSE(object.matches("[]"));
  EXPECT_FALSE(object.matches(R"({"a": 01})"));
  EXPECT_FALSE(object.matches(R"({"a": "\ud83d"})"));  // half a surrogate pair
  EXPECT_FALSE(object.matches(R"({"a": 1,})"));
  EXPECT_FALSE(object.matches("{\"a\":    1}"));  // more white space than is allowed
  EXPECT_FALSE(object.matches("{\"a\": \"\n\"}"));
  EXPECT_TRUE(Grammar::json(true).matches("[[[[[[]]]]]]"));
  EXPECT_FALSE(Grammar::json(true).matches("[[[[[[]]]]]"));
}

TEST(JsonSchemaGrammar, FixesTheOrderOfProperties) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"boolean"}},
      "required":["b"],"additionalProperties":false})";
  EXPECT_TRUE(valid(schema, R"({"a":1,"b":"x","c":true})"));
  EXPECT_TRUE(valid(schema, R"({"b":"x"})"));
  EXPECT_TRUE(valid(schema, R"({"b":"x","c":false})"));
  EXPECT_FALSE(valid(schema, R"({"b":"x","a":1})"));
  EXPECT_FALSE(valid(schema, R"({"a":1})"));
  EXPECT_FALSE(valid(schema, R"({})"));
  EXPECT_FALSE(valid(schema, R"({"b":"x","d":1})"));
  EXPECT_FALSE(valid(schema, R"({"a":1.5,"b":"x"})"));
}

TEST(JsonSchemaGrammar, OpenAndClosedObjects) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  EXPECT_TRUE(valid(schema, R"({"a":1,"z":[]})"));
  EXPECT_TRUE(valid(schema, R"({"ab":"x","":1})"));
  EXPECT_FALSE(valid(schema, R"({"z":1,"a":"not an integer"})"));  // "a" cannot come back as another property
  EXPECT_FALSE(Grammar::json_schema(schema, {JsonOptions::Whitespace::none, true}).matches(R"({"a":1,"z":[]})"));
  EXPECT_TRUE(
      valid(R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2})",
            R"({"x":1,"y":2})"));
  EXPECT_FALSE(
      valid(R"({"type":"object","additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2})",
            R"({"x":1,"y":2,"z":3})"));
}

TEST(JsonSchemaGrammar, NumbersStayWithinTheirBounds) {
  for (const char* schema :
       {R"({"type":"integer","minimum":-37,"maximum":105})", R"({"type":"integer","exclusiveMinimum":0})",
        R"({"type":"integer","exclusiveMaximum":-9})", R"({"type":"integer","minimum":99.5,"maximum":1234})",
        R"({"type":"integer","multipleOf":7,"minimum":-50})", R"({"type":"integer","maximum":0})"}) {
    const nlohmann::json parsed = nlohmann::json::parse(schema);
    const Grammar grammar = Grammar::json_schema(schema, kCompact);
    for (int value = -2000; value <= 2000; ++value) {
      const bool expected = value >= parsed.value("minimum", -1e9) && value <= parsed.value("maximum", 1e9) &&
                            value > parsed.value("exclusiveMinimum", -1e9) &&
                            value < parsed.value("exclusiveMaximum", 1e9) && value % parsed.value("multipleOf", 1) == 0;
      ASSERT_EQ(grammar.matches(std::to_string(value)), expected) << schema << " " << value;
    }
  }
  const Grammar price =
      Grammar::json_schema(R"({"type":"number","minimum":-0.75,"exclusiveMaximum":12.5,"multipleOf":0.05})", kCompact);
  for (int hundredths = -300; hundredths <= 2000; ++hundredths) {
    const int magnitude = std::abs(hundredths);
    std::string text = (hundredths < 0 ? "-" : "") + std::to_string(magnitude / 100) + "." +
                       std::to_string(magnitude / 10 % 10) + std::to_string(magnitude % 10);
    const bool expected = hundredths >= -75 && hundredths < 1250 && hundredths % 5 == 0;
    ASSERT_EQ(price.matches(text), expected) << text;
    ASSERT_EQ(price.matches(text + "00"), expected) << text;
    if (hundredths % 100 != 0) continue;
    ASSERT_EQ(price.matches(text.substr(0, text.size() - 3)), expected) << text;
  }
  EXPECT_TRUE(valid(R"({"type":"number","minimum":0})", "-0"));
  EXPECT_TRUE(valid(R"({"type":"number","maximum":1e3})", "1000.0"));
  EXPECT_FALSE(valid(R"({"type":"number","maximum":1e3})", "1000.01"));
  EXPECT_TRUE(valid(R"({"type":"number"})", "-1.25E-7"));
}

TEST(JsonSchemaGrammar, StringsHaveLengthsPatternsAndFormats) {
  EXPECT_TRUE(valid(R"({"type":"string","minLength":2,"maxLength":4})", R"("é漢\n\ud83d\ude00")"));
  EXPECT_FALSE(valid(R"({"type":"string","minLength":2,"maxLength":4})", R"("éab漢x")"));
  EXPECT_FALSE(valid(R"({"type":"string","minLength":2,"maxLength":4})", R"("é")"));
  EXPECT_TRUE(valid(R"({"type":"string","maxLength":3000})", '"' + std::string(3000, 'x') + '"'));
  EXPECT_FALSE(valid(R"({"type":"string","maxLength":3000})", '"' + std::string(3001, 'x') + '"'));
  EXPECT_TRUE(valid(R"({"type":"string","pattern":"b+"})", R"("abba\n")"));  // anywhere in the string
  EXPECT_FALSE(valid(R"({"type":"string","pattern":"^b+$"})", R"("abba")"));
  EXPECT_TRUE(valid(R"({"type":"string","pattern":"^[a-z]+$","minLength":3,"maxLength":5})", R"("abcd")"));
  EXPECT_FALSE(valid(R"({"type":"string","pattern":"^[a-z]+$","minLength":3,"maxLength":5})", R"("abcdef")"));
  EXPECT_TRUE(valid(R"({"type":"string","pattern":"^\"\\\\$"})", R"("\"\\")"));
  EXPECT_TRUE(valid(R"({"allOf":[{"pattern":"a"},{"pattern":"b"}],"type":"string"})", R"("xbya")"));
  EXPECT_FALSE(valid(R"({"allOf":[{"pattern":"a"},{"pattern":"b"}],"type":"string"})", R"("xby")"));
  const auto format = [](const char* name, const char* text) {
    return valid(std::string(R"({"type":"string","format":")") + name + "\"}", std::string("\"") + text + "\"");
  };
  EXPECT_TRUE(format("date", "2024-02-29"));
  EXPECT_FALSE(format("date", "2023-02-29"));
  EXPECT_FALSE(format("date", "1900-02-29"));
  EXPECT_TRUE(format("date", "2000-02-29"));
  EXPECT_FALSE(format("date", "2023-04-31"));
  EXPECT_TRUE(format("date-time", "2024-12-31T23:59:59.25+01:00"));
  EXPECT_FALSE(format("date-time", "2024-12-31 23:59:59Z"));
  EXPECT_TRUE(format("time", "08:30:00Z"));
  EXPECT_TRUE(format("duration", "P1Y2M3DT4H5M6S"));
  EXPECT_FALSE(format("duration", "P"));
  EXPECT_TRUE(format("uuid", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"));
  EXPECT_TRUE(format("email", "joe.bloggs+x@example.com"));
  EXPECT_FALSE(format("email", "joe@"));
  EXPECT_TRUE(format("ipv4", "192.168.0.1"));
  EXPECT_FALSE(format("ipv4", "256.0.0.1"));
  EXPECT_TRUE(format("ipv6", "::1"));
  EXPECT_TRUE(format("ipv6", "1:2:3:4:5:6:7:8"));
  EXPECT_FALSE(format("ipv6", "1:2:3:4:5:6:7"));
  EXPECT_TRUE(format("uri", "https://example.com:80/a/b?c=d#e"));
  EXPECT_TRUE(format("hostname", "www.example.com"));
}

TEST(JsonSchemaGrammar, FollowsReferencesAndRecursion) {
  const std::string tree =
      R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":"integer"},
      "children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["value"],"additionalProperties":false}}})";
  EXPECT_TRUE(valid(tree, R"({"value":1,"children":[{"value":2},{"value":3,"children":[]}]})"));
  EXPECT_FALSE(valid(tree, R"({"value":1,"children":[{"children":[]}]})"));
  const std::string list = R"({"anyOf":[{"type":"null"},{"type":"array","prefixItems":[{"type":"integer"},{"$ref":"#"}],
      "minItems":2,"items":false}]})";
  EXPECT_TRUE(valid(list, "[1,[2,[3,null]]]"));
  EXPECT_FALSE(valid(list, "[1,[2,[3]]]"));
  expect_named(R"({"$ref":"#"})", "leads back to itself");
  expect_named(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"allOf":[{"$ref":"#/$defs/a"}]}}})",
               "leads back");
  // A value that would have to contain itself.
  expect_named(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"],"additionalProperties":false})",
               "matches no text");
  expect_named(R"({"$ref":"#/$defs/nowhere"})", "points to nothing");
  expect_named(R"({"$ref":"other.json"})", "other.json");
}

TEST(JsonSchemaGrammar, CombinesSchemas) {
  const std::string merged = R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
      {"properties":{"a":{"minimum":5},"b":{"type":"null"}}}],"additionalProperties":true})";
  EXPECT_TRUE(valid(merged, R"({"a":5,"b":null})"));
  EXPECT_FALSE(valid(merged, R"({"a":4})"));
  const std::string tagged = R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"x"},"n":{"type":"integer"}},
      "required":["kind","n"],"additionalProperties":false},{"type":"object","properties":{"kind":{"const":"y"}},
      "required":["kind"],"additionalProperties":false}]})";
  EXPECT_TRUE(valid(tagged, R"({"kind":"x","n":1})"));
  EXPECT_TRUE(valid(tagged, R"({"kind":"y"})"));
  EXPECT_FALSE(valid(tagged, R"({"kind":"y","n":1})"));
  const std::string recursive = R"({"oneOf":[{"type":"object","properties":{"next":{"$ref":"#"},"kind":{"const":"a"}},
      "required":["next","kind"],"additionalProperties":false},{"type":"object","properties":{"next":{"type":"null"},
      "kind":{"const":"b"}},"required":["next","kind"],"additionalProperties":false}]})";
  EXPECT_TRUE(valid(recursive, R"({"next":{"next":null,"kind":"b"},"kind":"a"})"));
  EXPECT_FALSE(valid(recursive, R"({"next":{"next":null,"kind":"a"},"kind":"a"})"));
  expect_named(R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", "not provably exclusive");
  EXPECT_TRUE(valid(R"({"type":["string","null"],"enum":["a",null,3]})", "null"));
  EXPECT_FALSE(valid(R"({"type":["string","null"],"enum":["a",null,3]})", "3"));
  EXPECT_TRUE(valid(R"({"type":"integer","nullable":true})", "null"));
  EXPECT_TRUE(valid(R"({"const":{"b":[1.0,"é"],"a":{}}})", R"({"b":[1,"é"],"a":{}})"));
}

TEST(JsonSchemaGrammar, NamesWhatIsNotSupported) {
  expect_named(R"({"properties":{"a":{"not":{"type":"null"}}}})", "#/properties/a/not");
  expect_named(R"({"type":"array","uniqueItems":true})", "uniqueItems");
  expect_named(R"({"type":"array","contains":{}})", "contains");
  expect_named(R"({"if":{},"then":{}})", "#/if");
  expect_named(R"({"type":"object","propertis":{}})", "did you mean properties");
  expect_named(R"({"type":"strin"})", "unknown type");
  expect_named(R"({"type":"string","format":"phone"})", "\"phone\" is not supported");
  expect_named(R"_({"type":"string","pattern":"(?=a)"})_", "#/pattern");
  expect_named(R"({"exclusiveMinimum":true,"minimum":1})", "expected a number");
  expect_named(R"({"minLength":-1})", "whole number");
  expect_named(R"({"multipleOf":0})", "positive");
  expect_named(R"({"enum":5})", "list");
  expect_named(R"([1])", "a schema is an object");
  expect_named(R"({"type":)", "not JSON");
  expect_named("false", "matches no text");
}

TEST(JsonSchemaGrammar, HasLimits) {
  expect_named(std::string(60'000, '['), "nested");
  expect_named(R"({"type":"string","pattern":")" + std::string(60'000, '(') + "\"}", "nested");
  expect_named(R"({"type":"string","pattern":"a{1,100000000}"})", "states");
  expect_named(R"({"type":"array","minItems":100000000})", "1,000,000");
  EXPECT_TRUE(valid(R"({"type":"array","maxItems":100000000})", "[1,2]"));
  EXPECT_TRUE(valid(R"({"type":"string","maxLength":100000000})", "\"ab\""));
  std::string choices;
  for (int i = 0; i < 12; ++i) {
    choices += std::string(i > 0 ? "," : "") + R"({"anyOf":[{"minLength":1},{"maxLength":9},{"pattern":"a"}]})";
  }
  expect_named(R"({"allOf":[)" + choices + "]}", "combine to more than");
  std::string properties;
  for (int i = 0; i < 1000; ++i)
    properties += std::string(i > 0 ? "," : "") + "\"key" + std::to_string(i) + R"(":{"type":"integer"})";
  EXPECT_TRUE(valid(R"({"type":"object","properties":{)" + properties + "},\"additionalProperties\":false}",
                    R"({"key7":1,"key999":2})"));
}

}  // namespace
}  // namespace lamina::text
