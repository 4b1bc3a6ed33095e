#include "lamina/serve/http/policy.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lamina/base/error.h"
#include "support/temporary_folder.h"

namespace lamina::serve {
namespace {

HttpRequest request_with(Headers headers, const std::string& path = "/v1/models") {
  HttpRequest request;
  request.method = "GET";
  request.path = path;
  request.headers = std::move(headers);
  return request;
}

int status_of(const Policy& policy, Headers headers) {
  const auto response = policy.answer(request_with(std::move(headers)));
  return response ? response->status : 200;
}

TEST(serve_policy, hosts) {
  const Policy policy({{"models.example"}, {}}, nullptr);
  for (const char* host :
       {"localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "10.0.0.7", "models.example:1"}) {
    EXPECT_EQ(status_of(policy, {{"Host", host}}), 200) << host;
  }
  EXPECT_EQ(status_of(policy, {}), 400);
  EXPECT_EQ(status_of(policy, {{"Host", ""}}), 400);
  EXPECT_EQ(status_of(policy, {{"Host", "localhost"}, {"host", "models.example"}}), 400);
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[", ":80"}) {
    EXPECT_EQ(status_of(policy, {{"Host", host}}), 403) << host;
  }
}

TEST(serve_policy, compressed_bodies_are_refused) {
  const Policy policy({}, nullptr);
  EXPECT_EQ(status_of(policy, {{"Host", "localhost"}, {"Content-Encoding", "gzip"}}), 415);
  EXPECT_EQ(status_of(policy, {{"Host", "localhost"}, {"Content-Encoding", "identity"}}), 200);
}

TEST(serve_policy, origins) {
  const Policy policy({{}, {"https://page.example"}}, nullptr);
  EXPECT_EQ(status_of(policy, {{"host", "localhost:80"}, {"origin", "https://page.example"}}), 200);
  EXPECT_EQ(status_of(policy, {{"host", "localhost:80"}, {"origin", "http://localhost:80"}}), 200);
  EXPECT_EQ(status_of(policy, {{"host", "localhost:80"}, {"origin", "http://localhost:81"}}), 403);
  EXPECT_EQ(status_of(policy, {{"host", "localhost:80"}, {"origin", "null"}}), 403);
  EXPECT_TRUE(policy.headers_for(request_with({{"origin", "https://other.example"}})).empty());
}

TEST(serve_policy, keys) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "keys";
  std::ofstream(path) << "# a comment\n\nfirst-key-1\r\nsecond-key\n";
  const ApiKeys keys(path);
  EXPECT_TRUE(keys.accepts("first-key-1"));
  EXPECT_TRUE(keys.accepts("second-key"));
  for (const char* key : {"", "first-key", "first-key-11", "# a comment"}) EXPECT_FALSE(keys.accepts(key)) << key;
  const Policy policy({}, &keys);
  EXPECT_EQ(status_of(policy, {{"host", "localhost"}}), 401);
  EXPECT_EQ(status_of(policy, {{"host", "localhost"}, {"Authorization", "bearer second-key"}}), 200);
  EXPECT_EQ(status_of(policy, {{"host", "localhost"}, {"authorization", "Basic second-key"}}), 401);
  EXPECT_FALSE(policy.answer(request_with({{"host", "localhost"}}, "/health")));
  EXPECT_TRUE(policy.answer(request_with({{"host", "localhost"}}, "/health/")));
  // The page holds no secret and asks for the key itself.
  EXPECT_FALSE(policy.answer(request_with({{"host", "localhost"}}, "/")));
  EXPECT_FALSE(policy.answer(request_with({{"host", "localhost"}}, "/favicon.ico")));
  EXPECT_TRUE(policy.answer(request_with({{"host", "evil.example"}}, "/")));
  HttpRequest post = request_with({{"host", "localhost"}}, "/");
  post.method = "POST";
  EXPECT_TRUE(policy.answer(post));
  std::ofstream(path) << "short\n";
  EXPECT_THROW(ApiKeys{path}, Error);
}

}  // namespace
}  // namespace lamina::serve
