#include "lamina/train/event_writer.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "lamina/base/crc32c.h"
#include "lamina/base/error.h"

namespace lamina::train {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

// Wire types of Protocol Buffers.
constexpr unsigned kVarint = 0;
constexpr unsigned kFixed64 = 1;
constexpr unsigned kLength = 2;
constexpr unsigned kFixed32 = 5;

template <class T>
void append_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7U) out += static_cast<char>(value | 128U);
  out += static_cast<char>(value);
}

void append_key(std::string& out, unsigned field, unsigned wire) { append_varint(out, field << 3U | wire); }

void append_bytes(std::string& out, unsigned field, const std::string& bytes) {
  append_key(out, field, kLength);
  append_varint(out, bytes.size());
  out += bytes;
}

uint32_t masked(const void* bytes, size_t size) { return std::rotr(crc32c(bytes, size), 15) + 0xa282ead8U; }

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::string event_record(const std::string& message) {
  std::string record;
  append_raw(record, static_cast<uint64_t>(message.size()));
  append_raw(record, masked(record.data(), 8));
  record += message;
  append_raw(record, masked(message.data(), message.size()));
  return record;
}

std::string version_event(double wall_time) {
  std::string event;
  append_key(event, 1, kFixed64);
  append_raw(event, wall_time);
  append_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string scalar_event(double wall_time, int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    append_bytes(entry, 1, tag);
    append_key(entry, 2, kFixed32);
    append_raw(entry, static_cast<float>(value));
    append_bytes(summary, 1, entry);
  }
  std::string event;
  append_key(event, 1, kFixed64);
  append_raw(event, wall_time);
  append_key(event, 2, kVarint);
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, 5, summary);
  return event;
}

EventWriter::EventWriter(const std::string& folder) {
  std::array<char, 256> name_of_host{};
  const bool named = ::gethostname(name_of_host.data(), name_of_host.size() - 1) == 0;
  const std::string host = named ? name_of_host.data() : "localhost";
  // TensorBoard reads files in name order, so the name begins with the time. The last number distinguishes concurrent
  // writers.
  for (int attempt = 0; file_ == nullptr && attempt < 1000; ++attempt) {
    const std::string name =
        str("events.out.tfevents.", static_cast<int64_t>(now()), ".", host, ".", ::getpid(), ".", attempt);
    path_ = (std::filesystem::path(folder) / name).string();
    file_ = std::fopen(path_.c_str(), "wbxe");
    if (file_ == nullptr && errno != EEXIST) break;
  }
  LAMINA_CHECK(file_ != nullptr, path_, ": cannot be created (", std::strerror(errno),
               "); check the folder, its permissions and space");
  put(event_record(version_event(now())));
}

EventWriter::~EventWriter() { std::fclose(file_); }

void EventWriter::write(int64_t step, const Scalars& scalars) { put(event_record(scalar_event(now(), step, scalars))); }

void EventWriter::put(const std::string& record) {
  const bool written = std::fwrite(record.data(), 1, record.size(), file_) == record.size() && std::fflush(file_) == 0;
  LAMINA_CHECK(written, path_, ": cannot be written (", std::strerror(errno),
               "); free some space or check the permissions");
}

}  // namespace lamina::train
