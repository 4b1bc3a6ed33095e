#include "lamina/serve/http/request_parts.h"

#include <gtest/gtest.h>

#include "lamina/serve/api/fields.h"

namespace lamina::serve {
namespace {

TEST(serve_request_parts, paths_and_queries) {
  EXPECT_EQ(path_of("/v1/models?a=1"), "/v1/models");
  EXPECT_EQ(path_of("http://host:80/v1?a"), "/v1");
  EXPECT_EQ(query_of("/v1/models"), "");
  EXPECT_EQ(query_of("/v1/models?a=1&b#part"), "a=1&b");
  EXPECT_EQ(percent_decoded("a%2Fb%zz%4"), "a/b%zz%4");
  using List = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(query_fields("limit=2&&after=a%26b&include[]=x=y&include%5B%5D=z&flag&=none"),
            (List{{"limit", "2"}, {"after", "a&b"}, {"include", "x=y"}, {"include", "z"}, {"flag", ""}}));
}

/// Text of a stream is written without a JSON tree, but as a tree would be.
TEST(serve_fields, quoted_text_is_that_of_the_serializer) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  const std::vector<std::string> texts{"",
                                       "plain",
                                       all,
                                       "\"",
                                       "a\\",
                                       "\n\n",
                                       "é漢\U0001F600x",
                                       "cut \xe2\x82",
                                       "\xff",
                                       "\xc3\"",
                                       std::string("a\0b", 3)};
  for (const std::string& text : texts) {
    std::string out = "x";
    append_quoted(out, text);
    EXPECT_EQ(out, "x" + dump(text)) << text;
  }
}

}  // namespace
}  // namespace lamina::serve
