// The store of /v1/responses keeps the latest responses within its limits.
#include "lamina/serve/api/response_store.h"

#include <gtest/gtest.h>

namespace lamina::testing {
namespace {

using serve::Json;
using serve::ResponseStore;

TEST(ResponseStore, DropsTheOldestBeyondItsNumber) {
  ResponseStore store(3);
  for (const char* id : {"a", "b", "c", "d"}) store.put(id, {Json{{"id", id}}, Json::array(), {}});
  EXPECT_FALSE(store.find("a"));
  for (const char* id : {"b", "c", "d"}) EXPECT_EQ(store.find(id)->response["id"], id);
}

TEST(ResponseStore, DropsTheOldestBeyondItsMemory) {
  ResponseStore store(1000, 10'000);
  for (int i = 0; i < 20; ++i) {
    store.put(std::to_string(i), {Json(std::string(2000, 'x')), Json::array(), {}});
    EXPECT_LE(store.bytes(), 10'000U);
  }
  EXPECT_FALSE(store.find("0"));
  EXPECT_TRUE(store.find("19"));
  store.put("large", {Json(std::string(20'000, 'x')), Json::array(), {}});  // larger than the whole store
  EXPECT_FALSE(store.find("large"));
  EXPECT_EQ(store.bytes(), 0U);
}

TEST(ResponseStore, UpdatesOnlyWhatIsStillThere) {
  ResponseStore store;
  store.put("a", {Json("old"), Json::array(), {}});
  store.update("a", {Json("new"), Json::array(), {}});
  EXPECT_EQ(store.find("a")->response, "new");
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  store.update("a", {Json("late"), Json::array(), {}});
  EXPECT_FALSE(store.find("a"));
  EXPECT_EQ(store.bytes(), 0U);
}

}  // namespace
}  // namespace lamina::testing
