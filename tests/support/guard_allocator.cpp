#include "support/guard_allocator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "lamina/base/error.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>  // the macros do nothing without AddressSanitizer
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) ((void)(begin), (void)(bytes))
#endif

namespace lamina::testing {
namespace {

constexpr size_t kBand = 256;
constexpr unsigned char kPattern = 0xa5;

class Guard final : public GuardAllocator {
 public:
  void* allocate(size_t bytes) override {
    const size_t padded = (bytes + 63) / 64 * 64 + 2 * kBand;
    auto* base = static_cast<unsigned char*>(std::aligned_alloc(64, padded));
    LAMINA_CHECK(base != nullptr, "guard allocator: out of memory");
    std::memset(base, kPattern, padded);
    std::memset(base + kBand, 0xff, bytes);  // NaNs, so that reads of what was not written show
    // AddressSanitizer then also stops at reads of the bands.
    ASAN_POISON_MEMORY_REGION(base, kBand);
    ASAN_POISON_MEMORY_REGION(base + kBand + bytes, padded - kBand - bytes);
    const std::lock_guard lock(mutex_);
    counters_.live += static_cast<int64_t>(bytes);
    counters_.peak = std::max(counters_.peak, counters_.live);
    ++counters_.allocations;
    return base + kBand;
  }
  void deallocate(void* block, size_t bytes) noexcept override {
    auto* user = static_cast<unsigned char*>(block);
    auto* base = user - kBand;
    const size_t behind = (bytes + 63) / 64 * 64 + kBand - bytes;
    ASAN_UNPOISON_MEMORY_REGION(base, kBand + bytes + behind);
    const std::lock_guard lock(mutex_);
    if (!std::all_of(base, user, is_pattern)) overrun_ = str("written before a block of ", bytes, " bytes");
    if (!std::all_of(user + bytes, user + bytes + behind, is_pattern)) {
      overrun_ = str("written behind a block of ", bytes, " bytes");
    }
    counters_.live -= static_cast<int64_t>(bytes);
    std::free(base);  // NOLINT(cppcoreguidelines-no-malloc)
  }
  void trim() override {}
  MemoryCounters counters() const override {
    const std::lock_guard lock(mutex_);
    return counters_;
  }
  void reset_peak() override { counters_.peak = counters_.live; }
  std::string overrun() const override {
    const std::lock_guard lock(mutex_);
    return overrun_;
  }

 private:
  static bool is_pattern(unsigned char byte) { return byte == kPattern; }
  mutable std::mutex mutex_;
  MemoryCounters counters_;
  std::string overrun_;
};

}  // namespace

std::shared_ptr<GuardAllocator> make_guard_allocator() { return std::make_shared<Guard>(); }

}  // namespace lamina::testing
