#pragma once

#include <string>
#include <vector>

namespace lamina {

/// A shared library that is loaded at run time, so that a program starts on machines without it. It is never unloaded:
/// what it started may still run when the process ends.
class SharedLibrary {
 public:
  /// Loads the first of `names` that the dynamic linker finds; names with a slash are paths. `what` is the library's
  /// name for messages, e.g. "cuBLASLt".
  SharedLibrary(std::string what, const std::vector<std::string>& names);

  bool is_loaded() const { return handle_ != nullptr; }
  /// Why none of the names could be loaded.
  const std::string& problem() const { return problem_; }

  /// The function `name`, of type F (a function pointer). Throws Error if the library or the function is missing.
  template <class F>
  F function(const char* name) const {
    return reinterpret_cast<F>(address(name));
  }

 private:
  void* address(const char* name) const;

  std::string what_;
  std::string problem_;
  void* handle_ = nullptr;
};

}  // namespace lamina
