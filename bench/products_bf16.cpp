// Products of bf16 with f32 sums against oneDNN's (by AVX512_BF16), and against our own f32 products of the same sizes.
// Both libraries get plain matrices, as layers have them.
#include <dnnl.hpp>
#include <unordered_map>

#include "lamina/ops/linear/gemm.h"
#include "support/products.h"
#include "support/suite.h"

namespace lamina::bench {
namespace {

struct HalfProduct {
  const char* what;
  int64_t m, k, n;
  bool ta, tb;
};

constexpr HalfProduct kHalfProducts[] = {
    {"2048³", 2048, 2048, 2048, false, false},
    {"proj", 3072, 384, 384, false, true},
    {"mlp", 3072, 384, 1536, false, true},
    {"mlp input gradient", 3072, 1536, 384, false, false},
    {"mlp weight gradient", 1536, 3072, 384, true, false},
    {"narrow", 1536, 128, 344, false, true},
    {"64 rows", 64, 768, 3072, false, true},
    {"8 rows", 8, 768, 3072, false, true},
    {"one row", 1, 768, 3072, false, true},
};

/// oneDNN's product of the same memory.
class OneDnnProduct {
 public:
  OneDnnProduct(const HalfProduct& p, bf16* a, bf16* b, bf16* c)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    const auto type = memory::data_type::bf16;
    const memory::desc a_desc({p.m, p.k}, type, p.ta ? memory::dims{1, p.m} : memory::dims{p.k, 1});
    const memory::desc b_desc({p.k, p.n}, type, p.tb ? memory::dims{1, p.k} : memory::dims{p.n, 1});
    const memory::desc c_desc({p.m, p.n}, type, memory::dims{p.n, 1});
    const dnnl::matmul::desc desc(a_desc, b_desc, c_desc);
    product_ = dnnl::matmul(dnnl::matmul::primitive_desc(desc, engine_));
    arguments_ = {{DNNL_ARG_SRC, memory(a_desc, engine_, a)},
                  {DNNL_ARG_WEIGHTS, memory(b_desc, engine_, b)},
                  {DNNL_ARG_DST, memory(c_desc, engine_, c)}};
  }
  void run() {
    product_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul product_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

std::vector<bf16> narrow_copy(const std::vector<float>& values) {
  std::vector<bf16> narrow(values.size());
  for (size_t i = 0; i < values.size(); ++i) narrow[i] = bf16(values[i]);
  return narrow;
}

void add_half_product(Context& context, const HalfProduct& p) {
  const auto a32 = random_floats(p.m * p.k, 1);
  const auto b32 = random_floats(p.k * p.n, 2);
  auto a = narrow_copy(a32);
  auto b = narrow_copy(b32);
  std::vector<float> c32(static_cast<size_t>(p.m * p.n));
  std::vector<bf16> c(c32.size());
  const Threads& threads = context.device().threads();
  ops::FusedGemm<float> product;
  product.m = p.m, product.n = p.n, product.k = p.k;
  product.a = {a.data(), DType::bf16, p.ta ? p.m : p.k, p.ta};
  product.b = {b.data(), DType::bf16, p.tb ? p.k : p.n, p.tb};
  product.kernel = ops::product_kernel(context.device(), DType::bf16);
  ops::FusedGemm<float> wide = product;
  wide.a.data = a32.data(), wide.a.dtype = DType::f32;
  wide.b.data = b32.data(), wide.b.dtype = DType::f32;
  wide.kernel = ops::ProductKernel::f32;
  OneDnnProduct peer(p, a.data(), b.data(), c.data());
  const std::vector<double> times =
      context.seconds({[&] { ops::gemm_to(threads, product, c.data(), DType::bf16, p.n); }, [&] { peer.run(); },
                       [&] { ops::gemm_to(threads, wide, c32.data(), DType::f32, p.n); }});
  const double flops = 2.0 * static_cast<double>(p.m * p.n * p.k);
  const std::string what = str("bf16 gemm ", p.what, " ", p.m, "x", p.k, "x", p.n);
  context.add({what, flops / times[0] * 1e-9, flops / times[1] * 1e-9, "GFLOP/s", "oneDNN bf16"});
  context.add({what, flops / times[0] * 1e-9, flops / times[2] * 1e-9, "GFLOP/s", "our f32"});
}

}  // namespace

LAMINA_BENCH_SUITE(products_bf16) {
  if (!ops::rounds_to_bf16(context.device(), DType::bf16)) return;
  // The AMX kernels of oneDNN 2.6.3 (Debian) end with SIGILL on Emerald Rapids, also without Lamina.
  dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
  for (const HalfProduct& product : kHalfProducts) add_half_product(context, product);
}

}  // namespace lamina::bench
