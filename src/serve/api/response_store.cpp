#include "lamina/serve/api/response_store.h"

#include <nlohmann/json.hpp>

namespace lamina::serve {

void ResponseStore::erase_locked(const std::string& id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  bytes_ -= found->second->bytes();
  entries_.erase(found->second);
  places_.erase(found);
}

void ResponseStore::put_locked(const std::string& id, const StoredResponse& response) {
  erase_locked(id);
  entries_.push_back({id, dump(response.response), dump(response.items), response.cancel});
  places_[id] = std::prev(entries_.end());
  bytes_ += entries_.back().bytes();
  while (!entries_.empty() && (entries_.size() > max_responses_ || bytes_ > max_bytes_)) {
    const std::string oldest = entries_.front().id;
    erase_locked(oldest);
  }
}

void ResponseStore::put(const std::string& id, const StoredResponse& response) {
  const std::lock_guard lock(mutex_);
  put_locked(id, response);
}

void ResponseStore::update(const std::string& id, const StoredResponse& response) {
  const std::lock_guard lock(mutex_);
  if (places_.contains(id)) put_locked(id, response);
}

std::optional<StoredResponse> ResponseStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) return {};
  const Entry& entry = *found->second;
  return StoredResponse{Json::parse(entry.response), Json::parse(entry.items), entry.cancel};
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (!places_.contains(id)) return false;
  erase_locked(id);
  return true;
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace lamina::serve
