#include "lamina/train/event_writer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "data/data_support.h"
#include "lamina/base/files.h"
#include "support/error_of.h"

namespace lamina::testing {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4U];
    text += "0123456789abcdef"[static_cast<unsigned char>(c) & 15U];
  }
  return text;
}

/// The bytes that tools/peers/event_records.py makes from the formats' descriptions.
TEST(EventWriter, RecordsAreThoseOfAnIndependentEncoder) {
  EXPECT_EQ(hex(train::event_record(train::version_event(1700000000.25))),
            "1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9");
  const train::Scalars scalars{{"loss", 1.5}, {"lr/größe", -3.0e-4}, {std::string(200, 'x'), 7.0}};
  EXPECT_EQ(hex(train::event_record(train::scalar_event(1700000001.5, 123456, scalars))),
            "0301000000000000b669d9d40900006040fc54d94110c0c4072af3010a0b0a046c6f7373150000c03f0a110a0a6c722f6772"
            "c3b6c39f651552499db90ad0010ac80178787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "7878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
            "78787878787878787878787878787878150000e0408c07edd9");
}

TEST(EventWriter, EveryRecordIsInTheFileAtOnce) {
  const TemporaryFolder folder;
  train::EventWriter first(folder.path());
  train::EventWriter second(folder.path());
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(std::filesystem::path(first.path()).filename().string().find("events.out.tfevents."), 0U);
  const size_t head = read_text(first.path()).size();
  EXPECT_EQ(head, train::event_record(train::version_event(0)).size());
  first.write(7, {{"loss", 2.5}});
  const std::string added = read_text(first.path()).substr(head);
  const std::string message = train::scalar_event(0, 7, {{"loss", 2.5}});
  ASSERT_EQ(added.size(), message.size() + 16);
  EXPECT_EQ(added.substr(12 + 9, message.size() - 9), message.substr(9));  // everything after the time stamp is equal
  EXPECT_THROW(train::EventWriter(folder / "none"), Error);
}

}  // namespace
}  // namespace lamina::testing
