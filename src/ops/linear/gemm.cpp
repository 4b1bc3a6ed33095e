#include "lamina/ops/linear/gemm.h"

#include <dnnl.h>

#include "lamina/base/error.h"

namespace lamina::ops {

void gemm(const Threads& /*threads*/, const Gemm<float>& p) {
  const dnnl_status_t status = dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, p.alpha,
                                          p.a, p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
  LAMINA_CHECK(status == dnnl_success, "gemm ", p.m, "x", p.k, "x", p.n, ": oneDNN refused with status ", status);
}

void gemm(const Threads& threads, const Gemm<double>& p) {
  threads.ranges(p.m, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < p.k; ++l) {
          sum +=
              p.a[p.transpose_a ? l * p.lda + i : i * p.lda + l] * p.b[p.transpose_b ? j * p.ldb + l : l * p.ldb + j];
        }
        double& c = p.c[i * p.ldc + j];
        c = p.alpha * sum + (p.beta == 0 ? 0 : p.beta * c);
      }
    }
  });
}

}  // namespace lamina::ops
