// The dispatch table of the kernels for matrix products on a CPU, fastest first. The emulated tiles run only if forced.
#include "lamina/ops/kernel_dispatch.h"
#include "lamina/ops/linear/gemm.h"
#include "lamina/ops/linear/gemm/bf16_dot.h"
#include "lamina/ops/linear/gemm/bf16_tile.h"

namespace lamina::ops {

ProductKernel product_kernel(const Device& device, DType dtype) {
  struct Row {
    ProductKernel kernel;
    std::string_view name;
    bool supported;
    bool preferred;
  };
  const bool bf16 = dtype == DType::bf16;
  const bool forced = !device.forced_kernel("cpu_product").empty();
  for (const Row& row :
       {Row{ProductKernel::bf16_tile, "bf16_tile", bf16 && has_bf16_tiles(), true},
        Row{ProductKernel::bf16_dot, "bf16_dot", bf16 && has_bf16_dot(), true},
        Row{ProductKernel::f32, "f32", true, true},
        Row{ProductKernel::bf16_tile_emulated, "bf16_tile_emulated", bf16 && can_emulate_tiles(), false}}) {
    if (row.supported && (forced || row.preferred) && allows_kernel(device, "cpu_product", row.name)) return row.kernel;
  }
  reject_call(device, "cpu_product");
}

}  // namespace lamina::ops
