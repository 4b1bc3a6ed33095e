#pragma once

#include <cstdint>
#include <vector>

#include "lamina/base/error.h"

namespace lamina::infer {

/// Reference counts of a fixed number of pages (or state slots). A page without references is free.
class PagePool {
 public:
  explicit PagePool(int64_t pages) : refs_(static_cast<size_t>(pages), 0) {
    for (int64_t page = pages; page > 0; --page) free_.push_back(static_cast<int32_t>(page - 1));
  }

  int64_t size() const { return static_cast<int64_t>(refs_.size()); }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  int32_t refs(int32_t page) const { return refs_[static_cast<size_t>(page)]; }

  /// Returns a free page with one reference, or −1 if there is none.
  int32_t take() {
    if (free_.empty()) return -1;
    const int32_t page = free_.back();
    free_.pop_back();
    refs_[static_cast<size_t>(page)] = 1;
    return page;
  }
  void add_ref(int32_t page) { ++refs_[static_cast<size_t>(page)]; }
  void drop_ref(int32_t page) {
    int32_t& refs = refs_[static_cast<size_t>(page)];
    LAMINA_CHECK(refs > 0, "page pool: page ", page, " was freed twice (internal error, please report it)");
    if (--refs == 0) free_.push_back(page);
  }

 private:
  std::vector<int32_t> refs_;
  std::vector<int32_t> free_;
};

}  // namespace lamina::infer
