#include "lamina/serve/api/response_store.h"

namespace lamina::serve {
namespace {

/// An estimate of the memory of a JSON value: its text, and a node for each value.
size_t memory_of(const Json& json) {
  constexpr size_t kNode = 64;
  size_t bytes = kNode;
  if (json.is_string()) bytes += json.get_ref<const std::string&>().size();
  if (json.is_structured()) {
    for (const auto& [key, value] : json.items()) bytes += (json.is_object() ? key.size() : 0) + memory_of(value);
  }
  return bytes;
}

}  // namespace

void ResponseStore::erase_locked(const std::string& id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  bytes_ -= found->second->bytes;
  entries_.erase(found->second);
  places_.erase(found);
}

void ResponseStore::put_locked(const std::string& id, StoredResponse response) {
  erase_locked(id);
  const size_t bytes = memory_of(response.response) + memory_of(response.conversation);
  entries_.push_back({id, std::move(response), bytes});
  places_[id] = std::prev(entries_.end());
  bytes_ += bytes;
  while (!entries_.empty() && (entries_.size() > max_responses_ || bytes_ > max_bytes_)) {
    const std::string oldest = entries_.front().id;
    erase_locked(oldest);
  }
}

void ResponseStore::put(const std::string& id, StoredResponse response) {
  const std::lock_guard lock(mutex_);
  put_locked(id, std::move(response));
}

void ResponseStore::update(const std::string& id, StoredResponse response) {
  const std::lock_guard lock(mutex_);
  if (places_.contains(id)) put_locked(id, std::move(response));
}

std::optional<StoredResponse> ResponseStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) return {};
  return found->second->response;
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
