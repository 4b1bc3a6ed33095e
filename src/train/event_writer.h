#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace lamina::train {

using Scalars = std::vector<std::pair<std::string, double>>;

/// Numbers over steps in TensorBoard's format: a new events file in the folder, records of TFRecord framing around
/// tensorflow.Event messages, flushed as they are written.
class EventWriter {
 public:
  explicit EventWriter(const std::string& folder);
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  /// Under these names, at the present time.
  void write(int64_t step, const Scalars& scalars);
  const std::string& path() const { return path_; }

 private:
  void put(const std::string& record);

  std::string path_;
  std::FILE* file_ = nullptr;
};

/// The bytes of one record: length, its checksum, the message, its checksum (CRC-32C, rotated and shifted, because a
/// checksum over data that holds checksums is weak).
std::string event_record(const std::string& message);
/// tensorflow.Event { wall_time, step, summary { value { tag, simple_value } … } }.
std::string scalar_event(double wall_time, int64_t step, const Scalars& scalars);
/// The first message of every file: tensorflow.Event { wall_time, file_version: "brain.Event:2" }.
std::string version_event(double wall_time);

}  // namespace lamina::train
