// Included before every operator's source in the ThreadSanitizer build: kernels are instantiated for f32 alone. Who
// runs on which thread does not depend on the type, and the build takes a third of the time.
#pragma once

#include "lamina/base/dtype.h"
#include "lamina/base/error.h"

namespace lamina {

template <class F>
decltype(auto) visit_f32(DType dtype, F&& fn) {
  LAMINA_CHECK(dtype == DType::f32, "this build knows f32 only, not ", name_of(dtype));
  return fn(TypeTag<float>{});
}

}  // namespace lamina

#define visit_floating visit_f32
