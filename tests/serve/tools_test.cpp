#include <gtest/gtest.h>

#include "lamina/serve/api/chat_messages.h"
#include "lamina/serve/api/required_call.h"

namespace lamina::serve {
namespace {

ToolUse two_tools(const char* choice = "auto") {
  const Json body = {
      {"tool_choice", choice},
      {"tools",
       {{{"type", "function"}, {"function", {{"name", "add"}}}},
        {{"type", "function"}, {"function", {{"name", "find"}, {"parameters", {{"type", "object"}}}}}}}}};
  Fields fields(body);
  ToolUse use = read_tools(fields);
  fields.finish();
  return use;
}

TEST(serve_tools, tagged_calls_are_parsed) {
  const ParsedAnswer parsed = parse_answer(
      "I will look.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
      "<tool_call>{\"name\": \"find\", \"arguments\": \"{}\"}</tool_call>",
      two_tools());
  ASSERT_EQ(parsed.calls.size(), 2U);
  EXPECT_EQ(parsed.calls[0].name, "add");
  EXPECT_EQ(parsed.calls[0].arguments, "{\"a\":1}");
  EXPECT_EQ(parsed.calls[1].arguments, "{}");
  EXPECT_EQ(parsed.text, "I will look.\n\n");
}

TEST(serve_tools, whole_objects_are_parsed) {
  const ParsedAnswer parsed = parse_answer(" {\"name\": \"add\", \"parameters\": {\"a\": 1}}", two_tools());
  ASSERT_EQ(parsed.calls.size(), 1U);
  EXPECT_EQ(parsed.calls[0].arguments, "{\"a\":1}");
  EXPECT_EQ(parsed.text, "");
}

TEST(serve_tools, other_text_stays_text) {
  for (const std::string text :
       {"plain", "{\"name\": \"other\", \"arguments\": {}}", "{\"name\": \"add\"}",
        "<tool_call>{\"name\": \"other\", \"arguments\": {}}</tool_call>", "<tool_call>not JSON</tool_call> and more",
        "<tool_call>{\"name\": \"add\"", "{\"a\": "}) {
    const ParsedAnswer parsed = parse_answer(text, two_tools());
    EXPECT_TRUE(parsed.calls.empty()) << text;
    EXPECT_EQ(parsed.text, text);
  }
  const std::string call = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
  EXPECT_EQ(parse_answer(call, two_tools("none")).text, call);
}

TEST(serve_tools, streams_hold_back_what_may_be_a_call) {
  EXPECT_EQ(plain_prefix("hello"), 5U);
  EXPECT_EQ(plain_prefix("hello <tool"), 6U);
  EXPECT_EQ(plain_prefix("hello <tool_call>{"), 6U);
  EXPECT_EQ(plain_prefix("a < b"), 5U);
  EXPECT_EQ(plain_prefix("a <"), 2U);
  EXPECT_EQ(plain_prefix("  {\"name\""), 0U);
  EXPECT_EQ(plain_prefix("  "), 0U);
  EXPECT_EQ(plain_prefix("\n\n<tool_c"), 0U);
  EXPECT_EQ(plain_prefix("\n\n<tool_call>{"), 0U);
}

/// An answer that arrives in pieces of any size is streamed as the text of the whole answer.
TEST(serve_tools, the_streamed_text_is_the_text_without_calls) {
  const std::string call = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
  for (const char* choice : {"auto", "none", "required"}) {
    const ToolUse use = two_tools(choice);
    const std::vector<std::string> answers{call,
                                           "\n\n" + call,
                                           "I look. " + call + " Done.",
                                           "a < b <tool_call",
                                           call + call + "x",
                                           "<tool_call>y" + call,
                                           "{\"a\": 1} z",
                                           "  plain",
                                           "{\"name\": \"add\", \"arguments\": {}}"};
    for (const std::string& answer : answers) {
      const ParsedAnswer whole = parse_answer(answer, use);
      for (size_t step = 1; step <= 7; ++step) {
        std::string text;
        size_t sent = 0;
        for (size_t end = step; end < answer.size(); end += step) {
          text += fresh_text(std::string_view(answer).substr(0, end), nullptr, use, sent);
        }
        text += fresh_text(answer, &whole, use, sent);
        EXPECT_EQ(text, whole.text) << choice << ": " << answer;
      }
    }
  }
}

/// A required call that arrives in pieces of any size is streamed as the call of the whole answer.
TEST(serve_tools, streamed_arguments_are_those_of_the_whole_call) {
  struct Case {
    std::string answer, name, arguments;
  };
  const std::vector<Case> cases{
      {R"({"name":"add","arguments":{"a": [1, {"b": "}\\"}], "c": "x, y: \"z\""}})", "add",
       R"({"a": [1, {"b": "}\\"}], "c": "x, y: \"z\""})"},
      {"{ \n\"name\" : \"find\" , \"arguments\" : { } \n}", "find", "{ }"},
      {R"({"name":"add","arguments":{"name":"find","arguments":{}}})", "add", R"({"name":"find","arguments":{}})"},
      {R"({"name":"add","arguments":-1.5e3})", "add", "-1.5e3"},
      {R"({"name":"add","arguments":{"cut": "of)", "add", R"({"cut": "of)"},
      {R"({"name":"add","arguments":)", "add", ""},
  };
  for (const Case& one : cases) {
    const ParsedAnswer whole = parse_answer(one.answer, two_tools("required"));
    ASSERT_EQ(whole.calls.size(), 1U) << one.answer;
    EXPECT_EQ(whole.calls[0].name, one.name);
    EXPECT_EQ(whole.calls[0].arguments, one.arguments);
    EXPECT_EQ(whole.text, "");
    for (size_t step = 1; step <= 9; ++step) {
      RequiredCall call;
      std::string arguments;
      for (size_t at = 0; at < one.answer.size(); at += step) {
        const bool known = call.known();
        const std::string part = call.push(std::string_view(one.answer).substr(at, step));
        EXPECT_TRUE(part.empty() || call.known());
        if (known) EXPECT_EQ(call.name(), one.name);
        arguments += part;
      }
      EXPECT_TRUE(call.known());
      EXPECT_EQ(call.name(), one.name);
      EXPECT_EQ(arguments, one.arguments) << step;
    }
  }
  RequiredCall forced("add");
  EXPECT_TRUE(forced.known());
  EXPECT_EQ(forced.push(R"({"a":)") + forced.push("1}"), R"({"a":1})");
}

TEST(serve_tools, a_required_call_that_was_cut_off_before_its_arguments_is_text) {
  for (const std::string answer : {"", "{\"na", R"({"name":"add")", R"({"name":"add","arguments")"}) {
    const ParsedAnswer parsed = parse_answer(answer, two_tools("required"));
    EXPECT_TRUE(parsed.calls.empty()) << answer;
    EXPECT_EQ(parsed.text, answer);
  }
}

TEST(serve_tools, a_required_call_has_the_schemas_of_all_tools) {
  const Json schema = Json::parse(call_schema(two_tools("required")));
  ASSERT_EQ(schema["anyOf"].size(), 2U);
  EXPECT_EQ(schema["anyOf"][1]["properties"]["name"]["const"], "find");
}

}  // namespace
}  // namespace lamina::serve
