#include "lamina/base/cache.h"

#include <unistd.h>

namespace lamina {

int64_t last_level_cache_bytes() {
  static const int64_t kBytes = [] {
#ifdef _SC_LEVEL3_CACHE_SIZE
    const int64_t told = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (told > 0) return told;
#endif
    return int64_t{32} << 20;
  }();
  return kBytes;
}

}  // namespace lamina
