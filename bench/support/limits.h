#pragma once

#include "support/suite.h"

namespace lamina::bench {

double measure_gemm_peak(const Context& context);
double measure_bandwidth(const Context& context);

}  // namespace lamina::bench
