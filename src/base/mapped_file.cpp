#include "lamina/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "lamina/base/error.h"

namespace lamina {
namespace {

std::string reason() { return std::strerror(errno); }

}  // namespace

MappedFile map_file(const std::string& path, const char* expected) {
  // O_NONBLOCK, because opening a FIFO would otherwise wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  LAMINA_CHECK(descriptor >= 0, path, ": cannot be opened: ", reason(), "; check the name and the permissions");
  const std::shared_ptr<void> closer(nullptr, [descriptor](void*) { ::close(descriptor); });
  struct stat status {};
  LAMINA_CHECK(::fstat(descriptor, &status) == 0, path, ": cannot be examined: ", reason());
  LAMINA_CHECK(S_ISREG(status.st_mode), path, ": is not a regular file; give the path of ", expected);
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0) return {};
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  LAMINA_CHECK(memory != MAP_FAILED, path, ": ", size, " bytes cannot be mapped into memory: ", reason());
  return {{static_cast<std::byte*>(memory), size},
          std::shared_ptr<void>(memory, [size](void* start) { ::munmap(start, size); })};
}

}  // namespace lamina
