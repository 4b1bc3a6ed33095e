// Chat templates. tests/golden/templates/cases.json records the output of jinja2; tests/text/check_templates
// compares with jinja2 itself, also on published templates.
#include "lamina/text/template/chat_template.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lamina/base/files.h"
#include "lamina/text/simple.h"
#include "lamina/text/train_bpe.h"
#include "support/error_of.h"

namespace lamina::text {
namespace {

using nlohmann::ordered_json;
using testing::error_of;

RenderOptions in_july_2025() {
  const std::time_t seconds = 1753000000;
  RenderOptions options;
  options.now.emplace();
  gmtime_r(&seconds, &*options.now);
  return options;
}

std::string rendered(const std::string& source, const ordered_json& variables = ordered_json::object(),
                     const RenderOptions& options = {}) {
  return jinja::Template::parse(source, "t").render(variables, options);
}

std::string message_of(const std::string& source, const RenderOptions& options = {}) {
  return error_of([&] { rendered(source, ordered_json::object(), options); });
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(ChatTemplateCases, RenderAsJinja2) {
  const auto cases = ordered_json::parse(read_text(std::string(LAMINA_GOLDEN_DIR) + "/templates/cases.json"));
  ASSERT_GT(cases.size(), 100U);
  for (const auto& one : cases) {
    const auto source = one["source"].get<std::string>();
    try {
      const std::string text = rendered(source, one["variables"], in_july_2025());
      ASSERT_TRUE(one.contains("text")) << source << " gave " << text;
      EXPECT_EQ(text, one["text"].get<std::string>()) << source;
    } catch (const TemplateError& error) {
      EXPECT_FALSE(one.contains("text")) << source << ": " << error.what();
      EXPECT_EQ(error.raised(), one.value("raised", false)) << source;
    }
  }
}

TEST(ChatTemplate, ErrorsNameLineAndConstruct) {
  EXPECT_EQ(message_of("a\n\n{% do x %}").substr(0, 30), "t: line 3: the tag 'do' is not");
  EXPECT_EQ(message_of("\n{{ 1 | frobnicate }}"), "t: line 2: the filter 'frobnicate' is not supported");
  EXPECT_EQ(message_of("{{ 1 is odd and\n 1 is frob }}"), "t: line 2: the test 'frob' is not supported");
  EXPECT_EQ(message_of("{{ 'a'.encode() }}"), "t: line 1: the method 'encode' of str is not supported");
  EXPECT_EQ(message_of("{% set x = 1 %}\n{{ x.y.z }}"), "t: line 2: 'int object' has no attribute 'y'");
  EXPECT_EQ(message_of("{{ no }}\n{{ no.thing }}"), "t: line 2: 'no' is undefined");
  EXPECT_EQ(message_of("\n\n{{ raise_exception('Roles must alternate') }}"), "t: line 3: Roles must alternate");
  EXPECT_EQ(message_of("{{ [1].append(2) }}").substr(0, 53), "t: line 1: access to attribute 'append' of 'list' obj");
  EXPECT_EQ(message_of("x\n{% if 1 %}\ny"), "t: line 2: the block that begins here has no end; expected {% endif %}");
  EXPECT_EQ(message_of("a\n\xff"), "t: line 2: the template is not UTF-8");
}

/// Without limits, each of these would run, grow or recurse forever.
TEST(ChatTemplate, LimitsStopHostileTemplates) {
  const std::string doubling = "{% set n = namespace(x=['y'], s='y') %}{% for i in range(99) %}";
  const std::string hostile[] = {
      "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
      doubling + "{% set n.s = n.s + n.s %}{% endfor %}",
      doubling + "{% set n.s = n.s.replace('y', 'yyyyyyyyyy') %}{% endfor %}",
      doubling + "{% set n.x = n.x + n.x %}{% endfor %}",
      doubling + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
      "{% set n = namespace(x=1) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% endfor %}",
      "{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x.copy] %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{{ 'x' * 999999999999 }}",
      "{{ [0] * 999999999999 }}",
      "{{ '%99999999999d' % 1 }}",
      "{{ 'x'.center(99999999999) * 9 }}",
      "{{ 9 ** 999999 }}",
      "{{ range(999999999) | list }}",
      "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}",
      "{{ 1" + repeated("+1", 5000) + " }}",
      repeated("{% if 1 %}", 5000) + repeated("{% endif %}", 5000),
      std::string(jinja::kMaxTemplateSize + 1, 'x'),
  };
  RenderOptions short_work;
  short_work.limits.max_work /= 16;
  for (const std::string& source : hostile) {
    EXPECT_THROW(rendered(source, ordered_json::object(), short_work), TemplateError) << source.substr(0, 100);
  }
  RenderOptions small;
  small.limits.max_output = 10;
  EXPECT_EQ(message_of("0123456789", small), "");
  EXPECT_EQ(message_of("0123456789a", small), "t: line 1: the output has more than 10 bytes");
}

/// Values that refer to themselves must be released (AddressSanitizer's leak check).
TEST(ChatTemplate, CyclesAreReleased) {
  EXPECT_EQ(
      rendered("{% set n = namespace() %}{% set n.self = n %}{% set n.list = [n] %}{{ n.self.list[0].self == n }}"),
      "True");
  EXPECT_EQ(rendered("{% for x in [1] %}{% set y = loop.changed(loop) %}{{ loop.changed(loop) }}{% endfor %}"),
            "False");
  EXPECT_EQ(rendered("{% macro m() %}{{ m is callable }}{% endmacro %}{% for i in [1] %}{% macro k() %}{{ m() }}"
                     "{% endmacro %}{{ k() }}{% endfor %}"),
            "True");
}

TEST(ChatTemplate, VariablesAreThoseOfTransformers) {
  const auto chat = ChatTemplate::parse(
      "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ thinking }}{{ messages[0].role }}");
  const ordered_json messages = {{{"role", "user"}, {"content", "x"}}};
  EXPECT_EQ(chat.render({{"messages", messages}}), "TrueTrueFalseuser");
  EXPECT_EQ(chat.render({{"messages", messages},
                         {"tools", ordered_json::array()},
                         {"add_generation_prompt", true},
                         {"chat_template_kwargs", {{"thinking", 3}}}}),
            "FalseTrueTrue3user");
  EXPECT_NE(error_of([&] { chat.render({{"messages", 3}}); }), "");
  EXPECT_NE(error_of([&] { chat.render({{"messages", messages}, {"chat_template_kwargs", 3}}); }), "");
}

class ModelFolder : public ::testing::Test {
 protected:
  ModelFolder() : path_(std::filesystem::temp_directory_path() / ("lamina_chat_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_ / "additional_chat_templates");
  }
  ~ModelFolder() override { std::filesystem::remove_all(path_); }
  void write(const std::string& file, const std::string& text) const { write_text((path_ / file).string(), text); }
  std::string render(const ordered_json& tools = nullptr, const std::string& name = "") const {
    const auto chat = ChatTemplate::from_folder(path_.string());
    return chat ? chat->render({{"messages", ordered_json::array()}, {"tools", tools}}, {}, name) : "(none)";
  }
  std::filesystem::path path_;
};

TEST_F(ModelFolder, TemplatesComeFromTheFirstFile) {
  EXPECT_EQ(render(), "(none)");
  write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null})");
  EXPECT_EQ(render(), "(none)");
  write("tokenizer_config.json",
        R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "{{ bos_token + eos_token }}"})");
  EXPECT_EQ(render(), "<s></s>");
  write("chat_template.json", R"({"chat_template": "json {{ bos_token }}"})");
  EXPECT_EQ(render(), "json <s>");
  write("chat_template.jinja", "jinja {{ bos_token }}\n");
  write("additional_chat_templates/rag.jinja", "rag");
  EXPECT_EQ(render(), "jinja <s>");
  EXPECT_EQ(render(nullptr, "rag"), "rag");
}

TEST_F(ModelFolder, NamedTemplatesAreChosenAsInTransformers) {
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "D"},
                                     {"name": "tool_use", "template": "T{{ tools | length }}"}]})");
  EXPECT_EQ(render(), "D");
  EXPECT_EQ(render(ordered_json::array({1, 2})), "T2");
  EXPECT_EQ(render(ordered_json::array({1}), "default"), "D");
}

TEST_F(ModelFolder, BadFilesAreErrors) {
  write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_NE(error_of([&] { render(); }).find("expected a text or a list of named templates"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_NE(error_of([&] { render(); }).find("without name and template"), std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": "{% if %}"})");
  EXPECT_NE(error_of([&] { render(); }).find("tokenizer_config.json: line 1: expected an expression"),
            std::string::npos);
  write("tokenizer_config.json", R"({"chat_template": "x"})");
  EXPECT_NE(error_of([&] { render(nullptr, "rag"); }).find("this model has: default"), std::string::npos);
}

TEST(DefaultChatTemplate, WritesRolesAndText) {
  const ordered_json chat = {
      {"messages",
       {{{"role", "system"}, {"content", "Be kind."}},
        {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}}}},
        {{"role", "assistant"}, {"content", nullptr}}}},
      {"add_generation_prompt", true}};
  EXPECT_EQ(
      ChatTemplate::chatml().render(chat),
      "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
      "<|im_start|>assistant\n");
  EXPECT_EQ(ChatTemplate::plain().render(chat), "system: Be kind.\nuser: ab\nassistant: \nassistant:");
  EXPECT_EQ(ChatTemplate::chatml().stop_strings(), std::vector<std::string>{"<|im_end|>"});
  const ordered_json image = {{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}};
  EXPECT_NE(error_of([&] { ChatTemplate::plain().render(image); }).find("takes text only"), std::string::npos);
}

TEST(DefaultChatTemplate, FollowsTheVocabulary) {
  const auto with = train_bpe({"a"}, {300, "gpt2", {"<|im_start|>", "<|im_end|>"}, {}});
  EXPECT_EQ(ChatTemplate::default_for(*with).stop_strings(), ChatTemplate::chatml().stop_strings());
  EXPECT_EQ(ChatTemplate::default_for(*byte_tokenizer()).stop_strings(), ChatTemplate::plain().stop_strings());
}

}  // namespace
}  // namespace lamina::text
