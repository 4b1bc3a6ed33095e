#include "lamina/base/shared_library.h"

#include <dlfcn.h>

#include "lamina/base/error.h"

namespace lamina {

SharedLibrary::SharedLibrary(std::string what, const std::vector<std::string>& names) : what_(std::move(what)) {
  for (const std::string& name : names) {
    handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      problem_.clear();
      return;
    }
    if (const char* error = ::dlerror(); problem_.empty() && error != nullptr) problem_ = error;
  }
}

void* SharedLibrary::address(const char* name) const {
  LAMINA_CHECK(is_loaded(), what_, " cannot be loaded: ", problem_,
               "; install it, or add its folder to LD_LIBRARY_PATH");
  void* found = ::dlsym(handle_, name);
  LAMINA_CHECK(found != nullptr, what_, " has no function ", name, "; install the version that lamina was built with");
  return found;
}

}  // namespace lamina
