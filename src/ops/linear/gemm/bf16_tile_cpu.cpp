// Products of bf16 tiles with f32 sums (Intel AMX: tdpbf16ps). Two by two tiles of C stay in registers over the whole
// depth. Each step loads two tiles of A and two of B and computes four products. A product takes 16 cycles and a load
// 8, so loads from the L1 cache keep up.
//
// The microkernel is a template over the tile unit: the AMX instructions or an emulation in plain loops. With the
// emulation, tests check the packing and the microkernel on CPUs without tiles.
#include "lamina/ops/linear/gemm/bf16_tile.h"

#include <hwy/highway.h>

#include <cmath>
#include <cstring>

#if HWY_ARCH_X86_64 && defined(__linux__) && HWY_COMPILER_CLANG + HWY_COMPILER_GCC_ACTUAL > 0
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define LAMINA_AMX 1
#endif

#ifdef LAMINA_AMX
HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512dq,avx512bw,amx-tile,amx-bf16")
namespace lamina::ops {
namespace {

/// The AMX instructions. The register number is part of the encoding, so each register is a separate case.
struct AmxTiles {
  template <int kTile>
  static HWY_INLINE void clear() {
    if constexpr (kTile == 0) _tile_zero(0);
    if constexpr (kTile == 1) _tile_zero(1);
    if constexpr (kTile == 2) _tile_zero(2);
    if constexpr (kTile == 3) _tile_zero(3);
  }
  template <int kTile>
  static HWY_INLINE void load(const void* from, int64_t row_bytes) {
    if constexpr (kTile == 0) _tile_loadd(0, from, row_bytes);
    if constexpr (kTile == 1) _tile_loadd(1, from, row_bytes);
    if constexpr (kTile == 2) _tile_loadd(2, from, row_bytes);
    if constexpr (kTile == 3) _tile_loadd(3, from, row_bytes);
    if constexpr (kTile == 4) _tile_loadd(4, from, row_bytes);
    if constexpr (kTile == 5) _tile_loadd(5, from, row_bytes);
    if constexpr (kTile == 6) _tile_loadd(6, from, row_bytes);
    if constexpr (kTile == 7) _tile_loadd(7, from, row_bytes);
  }
  template <int kTile>
  static HWY_INLINE void store(void* to, int64_t row_bytes) {
    if constexpr (kTile == 0) _tile_stored(0, to, row_bytes);
    if constexpr (kTile == 1) _tile_stored(1, to, row_bytes);
    if constexpr (kTile == 2) _tile_stored(2, to, row_bytes);
    if constexpr (kTile == 3) _tile_stored(3, to, row_bytes);
  }
  /// Register kSum += register 4 + kSum / 2 (of A) · register 6 + kSum % 2 (of B).
  template <int kSum>
  static HWY_INLINE void multiply() {
    if constexpr (kSum == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kSum == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kSum == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kSum == 3) _tile_dpbf16ps(3, 5, 7);
  }
};

/// Tile registers emulated as thread-local arrays. As in tdpbf16ps, even and odd numbers along k are summed separately.
struct EmulatedTiles {
  using Tile = uint32_t[kTileSide][kTileSide];
  static Tile& tile(int index) {
    static thread_local Tile all[8];
    return all[index];
  }
  static float number(uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  template <int kTile>
  static void clear() {
    std::memset(tile(kTile), 0, sizeof(Tile));
  }
  template <int kTile>
  static void load(const void* from, int64_t row_bytes) {
    for (int64_t i = 0; i < kTileSide; ++i) {
      std::memcpy(tile(kTile)[i], static_cast<const char*>(from) + i * row_bytes, 4 * kTileSide);
    }
  }
  template <int kTile>
  static void store(void* to, int64_t row_bytes) {
    for (int64_t i = 0; i < kTileSide; ++i) {
      std::memcpy(static_cast<char*>(to) + i * row_bytes, tile(kTile)[i], 4 * kTileSide);
    }
  }
  template <int kSum>
  static void multiply() {
    const Tile& a = tile(4 + kSum / 2);
    const Tile& b = tile(6 + kSum % 2);
    Tile& sums = tile(kSum);
    for (int64_t i = 0; i < kTileSide; ++i) {
      for (int64_t j = 0; j < kTileSide; ++j) {
        float even = 0;
        float odd = 0;
        for (int64_t l = 0; l < kTileSide; ++l) {
          even = std::fma(number(a[i][l] << 16), number(b[l][j] << 16), even);
          odd = std::fma(number(a[i][l] & 0xffff0000U), number(b[l][j] & 0xffff0000U), odd);
        }
        const float sum = number(sums[i][j]) + (even + odd);
        std::memcpy(&sums[i][j], &sum, sizeof sum);
      }
    }
  }
};

template <class Tiles, int kTile>
HWY_INLINE void start_sums(float beta, const float* c, int64_t ldc) {
  if (beta == 0.0F) {
    Tiles::template clear<kTile>();
  } else {
    Tiles::template load<kTile>(c, 4 * ldc);
  }
}

template <class Tiles, int kRowTiles, int kColumnTiles, bool kDirect>
HWY_NOINLINE void multiply_tiles(int64_t depth, const TiledPair* a, int64_t lda, const TiledPair* b, float beta,
                                 float* c, int64_t ldc, const TiledPair* ahead) {
  constexpr bool kTwoRows = kRowTiles == 2;
  constexpr bool kTwoColumns = kColumnTiles == 2;
  constexpr int64_t kBBytes = 4 * kColumnTiles * kTileSide;
  float* const c1 = c + kTileSide * ldc;
  start_sums<Tiles, 0>(beta, c, ldc);
  if constexpr (kTwoColumns) start_sums<Tiles, 1>(beta, c + kTileSide, ldc);
  if constexpr (kTwoRows) start_sums<Tiles, 2>(beta, c1, ldc);
  if constexpr (kTwoRows && kTwoColumns) start_sums<Tiles, 3>(beta, c1 + kTileSide, ldc);
  const int64_t a_bytes = 4 * (kDirect ? lda : kTileSide);
  // Distance in pairs to the second tile of A.
  const int64_t a_tile = kTileSide * (kDirect ? lda : kTileSide);
  const int64_t a_step = kDirect ? kTileSide : kRowTiles * kTileSide * kTileSide;  // distance in pairs to the next step
  for (int64_t l = 0; l < depth; l += kTileSide) {
    Tiles::template load<4>(a, a_bytes);
    Tiles::template load<6>(b, kBBytes);
    Tiles::template multiply<0>();
    if constexpr (kTwoColumns) {
      Tiles::template load<7>(b + kTileSide, kBBytes);
      Tiles::template multiply<1>();
    }
    if constexpr (kTwoRows) {
      Tiles::template load<5>(a + a_tile, a_bytes);
      Tiles::template multiply<2>();
    }
    if constexpr (kTwoRows && kTwoColumns) Tiles::template multiply<3>();
    for (int i = 0; i < kTilePrefetches; ++i) __builtin_prefetch(ahead + i * kTileSide, 0, 2);
    ahead += kTilePrefetches * kTileSide;
    a += a_step;
    b += kTileSide * kColumnTiles * kTileSide;
  }
  Tiles::template store<0>(c, 4 * ldc);
  if constexpr (kTwoColumns) Tiles::template store<1>(c + kTileSide, 4 * ldc);
  if constexpr (kTwoRows) Tiles::template store<2>(c1, 4 * ldc);
  if constexpr (kTwoRows && kTwoColumns) Tiles::template store<3>(c1 + kTileSide, 4 * ldc);
}

template <class Tiles>
TiledFn tiled_fn(int64_t rows, int64_t vectors, bool direct) {
  static constexpr TiledFn kPacked[2][2] = {{multiply_tiles<Tiles, 1, 1, false>, multiply_tiles<Tiles, 1, 2, false>},
                                            {multiply_tiles<Tiles, 2, 1, false>, multiply_tiles<Tiles, 2, 2, false>}};
  static constexpr TiledFn kDirect[2][2] = {{multiply_tiles<Tiles, 1, 1, true>, multiply_tiles<Tiles, 1, 2, true>},
                                            {multiply_tiles<Tiles, 2, 1, true>, multiply_tiles<Tiles, 2, 2, true>}};
  return (direct ? kDirect : kPacked)[rows / kTileSide - 1][vectors - 1];
}

/// Tile configuration, the operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

constexpr TileConfig half_depth_config() {
  TileConfig config;
  for (int a : {4, 5}) config.row_bytes[a] = 32;
  for (int b : {6, 7}) config.rows[b] = 8;
  return config;
}

void configure_tiles(TileShape shape, uint8_t* found) {
  static constexpr TileConfig kFull;
  static constexpr TileConfig kHalfDepth = half_depth_config();
  _tile_storeconfig(found);
  _tile_loadconfig(shape == TileShape::full ? &kFull : &kHalfDepth);
}
void restore_tiles(const uint8_t* found) {
  if (found[0] == 0) {
    _tile_release();
  } else {
    _tile_loadconfig(found);
  }
}

}  // namespace
}  // namespace lamina::ops
HWY_POP_ATTRIBUTES
#endif

namespace lamina::ops {

#ifdef LAMINA_AMX
namespace {

bool cpu_has_tiles(unsigned feature) {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kTile = 1U << 24;
  return (edx & feature) != 0 && (edx & kTile) != 0;
}

/// Asks Linux for permission to use tile registers, which it saves only for processes that ask (5.16 and later; earlier
/// kernels refuse).
bool request_tile_permission() {
  constexpr long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;     // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

}  // namespace

bool has_tiles(unsigned feature) {
  // The kernels for few rows and the packing use AVX-512.
  static const bool permitted = has_bf16_dot() && request_tile_permission();
  return cpu_has_tiles(feature) && permitted;
}

bool has_bf16_tiles() {
  static const bool has = has_tiles(1U << 22);
  return has;
}

bool can_emulate_tiles() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

TileScope::TileScope(TileUnit unit, TileShape shape) : unit_(unit) {
  if (unit_ == TileUnit::amx) configure_tiles(shape, found_);
}
TileScope::~TileScope() {
  if (unit_ == TileUnit::amx) restore_tiles(found_);
}

TiledFn bf16_tiled(TileUnit unit, int64_t rows, int64_t vectors, bool direct) {
  return unit == TileUnit::amx ? tiled_fn<AmxTiles>(rows, vectors, direct)
                               : tiled_fn<EmulatedTiles>(rows, vectors, direct);
}
#else
bool has_tiles(unsigned /*feature*/) { return false; }
bool has_bf16_tiles() { return false; }
bool can_emulate_tiles() { return false; }
TileScope::TileScope(TileUnit unit, TileShape /*shape*/) : unit_(unit) {}
TileScope::~TileScope() = default;
TiledFn bf16_tiled(TileUnit /*unit*/, int64_t /*rows*/, int64_t /*vectors*/, bool /*direct*/) { return nullptr; }
#endif

}  // namespace lamina::ops
