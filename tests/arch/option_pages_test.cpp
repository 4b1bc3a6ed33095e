// The pages of docs/options: complete, up to date, and with a part written by hand.
#include "lamina/arch/option_pages.h"

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <set>

#include "lamina/arch/schema.h"
#include "lamina/base/files.h"
#include "support/error_of.h"

namespace lamina::arch {
namespace {

namespace fs = std::filesystem;

std::string docs_file(const std::string& name) { return std::string(LAMINA_SOURCE_DIR) + "/docs/options/" + name; }

void collect_fields(const SchemaNode& node, std::vector<SchemaField>& fields) {
  for (const SchemaNode& element : node.element) collect_fields(element, fields);
  for (const SchemaOption& option : node.options) {
    for (const SchemaField& field : option.fields) {
      fields.push_back(field);
      collect_fields(field.node, fields);
    }
  }
}

TEST(OptionPages, DescribeEveryKeyOfTheSchema) {
  std::string text;
  for (const OptionPage& page : option_pages()) text += page.generated;
  std::vector<SchemaField> fields;
  collect_fields(schema(), fields);
  EXPECT_GT(fields.size(), 100U);
  for (const SchemaField& field : fields) {
    if (field.key == "schema" || field.key == "about") continue;  // not switches
    // A key stands in a table, or is the title of a section that begins with its description.
    const bool in_table = text.find("| `" + field.key + "` | ") != std::string::npos &&
                          text.find(" | " + field.doc + " |\n") != std::string::npos;
    const bool is_section = text.find(field.key + "`\n\n" + static_cast<char>(std::toupper(field.doc[0])) +
                                      field.doc.substr(1) + ".\n") != std::string::npos;
    EXPECT_TRUE(in_table || is_section) << field.key << ": " << field.doc;
  }
}

TEST(OptionPages, AreUpToDate) {
  std::set<std::string> expected{"README.md"};
  for (const OptionPage& page : option_pages()) {
    expected.insert(page.name + ".md");
    const std::string path = docs_file(page.name + ".md");
    ASSERT_TRUE(file_exists(path)) << path << " is missing; run `lamina presets options docs/options` and write it";
    const std::string text = read_text(path);
    EXPECT_EQ(text, with_generated_part(text, page, path)) << path << " is stale; run `make docs`";
    EXPECT_TRUE(text.starts_with("# " + page.title + "\n")) << path;
    for (const char* section : {"\n## What it does\n", "\n## Cost\n", "\n## Measured\n"}) {
      EXPECT_NE(text.find(section), std::string::npos) << path << ": has no section" << section;
    }
  }
  EXPECT_EQ(read_text(docs_file("README.md")), option_index()) << "run `make docs`";
  for (const auto& entry : fs::directory_iterator(docs_file(""))) {
    EXPECT_TRUE(expected.contains(entry.path().filename().string())) << entry.path() << " describes no switch";
  }
}

TEST(OptionPages, NameThePresetsThatUseAValue) {
  for (const OptionPage& page : option_pages()) {
    if (page.name == "mla") {
      EXPECT_NE(page.generated.find("| `mixer.kind=mla` | deepseek-v3 |"), std::string::npos) << page.generated;
    }
    if (page.name == "soft-cap") {
      EXPECT_NE(page.generated.find("| `mixer.soft_cap=50.0` | gemma-2-2b, gemma-2-9b |"), std::string::npos)
          << page.generated;
    }
  }
}

TEST(OptionPages, KeepWhatWasWrittenByHand) {
  const OptionPage page{"x", "Title", "\nnew\n"};
  const std::string fresh = with_generated_part("", page, "x.md");
  EXPECT_TRUE(fresh.starts_with("# Title\n"));
  const size_t at = fresh.find("<!--");
  const std::string written = fresh.substr(0, at) + "by hand\n" + fresh.substr(at) + "after\n";
  const std::string updated = with_generated_part(written, {"x", "Title", "\nnewer\n"}, "x.md");
  EXPECT_NE(updated.find("by hand\n"), std::string::npos);
  EXPECT_NE(updated.find("\nnewer\n"), std::string::npos);
  EXPECT_EQ(updated.find("\nnew\n"), std::string::npos);
  EXPECT_TRUE(updated.ends_with("after\n"));
  EXPECT_NE(
      lamina::testing::error_of([&] { with_generated_part("no markers", page, "x.md"); }).find("x.md: the markers"),
      std::string::npos);
}

}  // namespace
}  // namespace lamina::arch
