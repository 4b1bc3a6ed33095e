#include <gtest/gtest.h>

#include "lamina/serve/api/chat_messages.h"

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

TEST(serve_tools, a_required_call_has_the_schemas_of_all_tools) {
  const Json schema = Json::parse(call_schema(two_tools("required")));
  ASSERT_EQ(schema["anyOf"].size(), 2U);
  EXPECT_EQ(schema["anyOf"][1]["properties"]["name"]["const"], "find");
}

}  // namespace
}  // namespace lamina::serve
