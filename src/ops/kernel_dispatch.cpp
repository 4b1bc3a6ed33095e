#include "lamina/ops/kernel_dispatch.h"

#include <algorithm>

namespace lamina::ops {
namespace {

struct OpKernels {
  const char* op;
  const char* kernels;
};
constexpr OpKernels kKernels[] = {
#define LAMINA_KERNELS(op, kernels) {#op, kernels},
#include "lamina/ops/kernels.def"
#undef LAMINA_KERNELS
};

}  // namespace

std::vector<std::string> kernels_of(std::string_view op) {
  std::vector<std::string> result;
  for (const OpKernels& entry : kKernels) {
    if (op != entry.op) continue;
    std::istringstream words(entry.kernels);
    for (std::string word; words >> word;) result.push_back(word);
  }
  return result;
}

ForcedKernel::ForcedKernel(const Device& device, std::string_view op, std::string_view kernel)
    : device_(device), op_(op), previous_(device.forced_kernel(op)) {
  const std::vector<std::string> known = kernels_of(op);
  std::string names;
  for (const std::string& name : known) names += " " + name;
  LAMINA_CHECK(std::count(known.begin(), known.end(), kernel) > 0, op, ": kernel \"", kernel,
               "\" is unknown; expected one of:", names.empty() ? " (the operator has no choice)" : names);
  device_.force_kernel(op_, kernel);
}

void reject_call(const Device& device, std::string_view op) {
  const std::string_view forced = device.forced_kernel(op);
  LAMINA_CHECK(!forced.empty(), op, ": no kernel supports this call on ", device,
               " (internal error, please report it)");
  throw UnsupportedKernel(str(op, ": the forced kernel \"", forced, "\" does not support this call on ", device,
                              "; force another one, or none"));
}

}  // namespace lamina::ops
