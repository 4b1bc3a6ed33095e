#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace lamina::train {

using Scalars = std::vector<std::pair<std::string, double>>;

/// Writes scalars in TensorBoard's format: TFRecord records with tensorflow.Event messages. Creates a new events file
/// in the folder. Flushes after every write.
class EventWriter {
 public:
  explicit EventWriter(const std::string& folder);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  /// Writes the scalars, with the current time.
  void write(int64_t step, const Scalars& scalars);
  const std::string& path() const { return path_; }

 private:
  void put(const std::string& record);

  std::string path_;
  std::FILE* file_ = nullptr;
};

/// The bytes of one TFRecord: length, masked CRC of the length, message, masked CRC of the message. TFRecord masks its
/// CRC-32C (rotation plus a constant), because a CRC over data that contains CRCs is weak.
std::string event_record(const std::string& message);
/// Encodes tensorflow.Event { wall_time, step, summary { value { tag, simple_value } … } }.
std::string scalar_event(double wall_time, int64_t step, const Scalars& scalars);
/// The first message of every file: tensorflow.Event { wall_time, file_version: "brain.Event:2" }.
std::string version_event(double wall_time);

}  // namespace lamina::train
