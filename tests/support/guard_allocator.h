#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lamina/tensor/allocator.h"

namespace lamina::testing {

/// Puts a pattern before and behind every block and looks at it when the block comes back.
class GuardAllocator : public Allocator {
 public:
  /// Describes the first overrun seen, empty when there was none.
  virtual std::string overrun() const = 0;
};

std::shared_ptr<GuardAllocator> make_guard_allocator();

}  // namespace lamina::testing
