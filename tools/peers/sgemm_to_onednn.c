// LD_PRELOAD shim that sends PyTorch's sgemm calls to oneDNN. On recent CPUs oneDNN is faster than the BLAS of Debian's
// PyTorch, so the comparison uses PyTorch at its best.
//   cc -O2 -shared -fPIC sgemm_to_onednn.c -o sgemm_to_onednn.so -ldnnl
#include <oneapi/dnnl/dnnl.h>

// BLAS is column-major, oneDNN's sgemm is row-major: computing Cᵀ = Bᵀ Aᵀ writes the same memory.
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha,
            const float* a, const int* lda, const float* b, const int* ldb, const float* beta, float* c,
            const int* ldc) {
  dnnl_sgemm(*transb, *transa, *n, *m, *k, *alpha, b, *ldb, a, *lda, *beta, c, *ldc);
}
