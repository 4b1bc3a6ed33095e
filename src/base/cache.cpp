#include "lamina/base/cache.h"

#include <unistd.h>

#include <fstream>

namespace lamina {
namespace {

/// Size of the first core's L3 cache, which Linux reports as "32768K". 0 if it reports none.
int64_t shared_cache_bytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  int64_t size = 0;
  char unit = 0;
  return file >> size >> unit && unit == 'K' ? size << 10 : 0;
}

}  // namespace

int64_t last_level_cache_bytes() {
  static const int64_t kBytes = [] {
    if (const int64_t shared = shared_cache_bytes(); shared > 0) return shared;
#ifdef _SC_LEVEL3_CACHE_SIZE
    // glibc reports the sum of all L3 caches; one core can use only its own.
    const int64_t told = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (told > 0) return told;
#endif
    return int64_t{32} << 20;
  }();
  return kBytes;
}

}  // namespace lamina
