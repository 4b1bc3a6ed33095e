#pragma once

#include <string>
#include <vector>

namespace lamina {

/// A shared library loaded at run time, so that the program also starts on machines without it. It is never unloaded,
/// because its threads may still run when the process ends.
class SharedLibrary {
 public:
  /// Loads the first of `names` that the dynamic linker finds. A name with a slash is a path. `what` names the library
  /// in messages, for example "cuBLASLt".
  SharedLibrary(std::string what, const std::vector<std::string>& names);

  bool is_loaded() const { return handle_ != nullptr; }
  /// Why none of the names was loaded.
  const std::string& problem() const { return problem_; }

  /// The function `name` as a pointer of type F. Throws Error if the library or the function is missing.
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
