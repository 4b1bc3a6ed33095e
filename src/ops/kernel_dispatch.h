#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lamina/base/error.h"
#include "lamina/tensor/device.h"

namespace lamina::ops {

// Operators such as attention have several kernels. A dispatch table (KernelRow) lists them in order of preference;
// ForcedKernel overrides the choice in tests and benchmarks.

/// Thrown if a forced kernel does not support a call.
class UnsupportedKernel : public Error {
 public:
  using Error::Error;
};

/// The names of an operator's kernels, as in kernels.def.
std::vector<std::string> kernels_of(std::string_view op);

/// Forces one kernel of an operator on a device while this object is in scope, so that tests and benchmarks reach every
/// kernel with the same call. Calls that the kernel does not support throw UnsupportedKernel.
class ForcedKernel {
 public:
  ForcedKernel(const Device& device, std::string_view op, std::string_view kernel);
  ForcedKernel(const ForcedKernel&) = delete;
  ForcedKernel& operator=(const ForcedKernel&) = delete;
  ~ForcedKernel() { device_.force_kernel(op_, previous_); }

 private:
  Device device_;
  std::string op_;
  std::string previous_;
};

/// True if `kernel` may run: either no kernel is forced, or this one is.
inline bool allows_kernel(const Device& device, std::string_view op, std::string_view kernel) {
  const std::string_view forced = device.forced_kernel(op);
  return forced.empty() || forced == kernel;
}

/// Throws because no kernel that may run supports the call: UnsupportedKernel if one is forced, else an internal error.
[[noreturn]] void reject_call(const Device& device, std::string_view op);

/// Calls reject_call() if another kernel is forced.
inline void require_kernel(const Device& device, std::string_view op, std::string_view kernel) {
  if (!allows_kernel(device, op, kernel)) reject_call(device, op);
}

/// One row of a dispatch table. The first row that supports a call and is preferred for it runs. `preferred` decides by
/// speed and determinism only, so a forced kernel ignores it. `run` returns false, without having done anything, if
/// support could only be checked at launch and the kernel does not support the call.
template <class Call>
struct KernelRow {
  const char* kernel;
  bool (*supports)(Call&);
  bool (*preferred)(Call&);
  bool (*run)(Call&);
};

/// Runs the call with the first suitable kernel of the table; calls reject_call() if there is none.
template <class Call, size_t kRows>
void dispatch(std::string_view op, const KernelRow<Call> (&table)[kRows], const Device& device, Call& call) {
  const bool forced = !device.forced_kernel(op).empty();
  for (const KernelRow<Call>& row : table) {
    if (!allows_kernel(device, op, row.kernel) || !row.supports(call)) continue;
    if ((forced || row.preferred(call)) && row.run(call)) return;
  }
  reject_call(device, op);
}

}  // namespace lamina::ops
