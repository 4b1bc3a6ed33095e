#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lamina/tensor/allocator.h"

namespace lamina::testing {

/// Writes a guard pattern before and after every block and checks it on deallocation.
class GuardAllocator : public Allocator {
 public:
  /// Describes the first overrun; empty if there was none.
  virtual std::string overrun() const = 0;
};

std::shared_ptr<GuardAllocator> make_guard_allocator();

}  // namespace lamina::testing
