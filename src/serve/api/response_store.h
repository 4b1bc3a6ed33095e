#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "lamina/serve/api/fields.h"

namespace lamina::serve {

/// A response of /v1/responses that clients can read again or continue.
struct StoredResponse {
  Json response;                 ///< as the client received it; its status is "in_progress" during generation
  Json items;                    ///< the input, with that of earlier responses, as list_input_items() shows it
  std::function<void()> cancel;  ///< ends a response in progress; thread-safe
};

/// The latest responses, in memory. Drops the oldest ones if there are too many or they take too many bytes. Keeps them
/// as JSON text, which takes a fifth of the memory of JSON trees. Thread-safe.
class ResponseStore {
 public:
  explicit ResponseStore(size_t max_responses = 1024, size_t max_bytes = size_t{64} << 20)
      : max_responses_(max_responses), max_bytes_(max_bytes) {}

  void put(const std::string& id, const StoredResponse& response);
  /// Replaces a response unless it was dropped or deleted.
  void update(const std::string& id, const StoredResponse& response);
  std::optional<StoredResponse> find(const std::string& id) const;
  bool erase(const std::string& id);
  size_t bytes() const;

 private:
  struct Entry {
    std::string id;
    std::string response, items;
    std::function<void()> cancel;
    size_t bytes() const { return id.size() + response.size() + items.size() + kEntryBytes; }
  };
  static constexpr size_t kEntryBytes = 256;  ///< overhead per entry, besides its text
  void erase_locked(const std::string& id);
  void put_locked(const std::string& id, const StoredResponse& response);

  size_t max_responses_, max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  ///< oldest first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
  size_t bytes_ = 0;
};

}  // namespace lamina::serve
