#pragma once

#include <cstdint>

#include "lamina/ops/linear/gemm/bf16_dot.h"

namespace lamina::ops {

// Microkernels with bf16 tiles (Intel AMX) for the GEMM on a CPU. A tile is a matrix in one of eight tile registers.

/// A Bf16Pair in panels for tile instructions, which process 16 rows of 16 pairs at once.
///   rows of op(A)     [depth / 16][rows][16 pairs]: one row of a tile is 32 numbers along k
///   columns of op(B)  [depth][columns], as for Bf16Pair
/// Depths are multiples of 16 pairs, padded with zeros. Rows and columns are multiples of 16.
struct TiledPair : Bf16Pair {};
static_assert(sizeof(TiledPair) == sizeof(Bf16Pair));

inline constexpr int64_t kTileSide = 16;  // number of rows, of pairs per row, and of columns of one tile

/// Cache lines that the microkernel prefetches per 16 pairs of depth. A block of rows has three tiles of 32 rows;
/// together they prefetch the next panel of 32 columns.
inline constexpr int64_t kTilePrefetches = 11;

/// Real tiles, or an emulation in plain loops, with which tests check the packing and the microkernel on any CPU.
enum class TileUnit : uint8_t { amx, emulated };

/// True if this CPU multiplies bf16 tiles with f32 sums (AMX-TILE and AMX-BF16) and the OS lets the process use them.
/// The first call requests the permission from Linux.
bool has_bf16_tiles();

/// True if TileUnit::emulated runs on this CPU: the packing needs AVX-512.
bool can_emulate_tiles();

/// Shapes of the tile registers. The sums (registers 0 to 3) always have 16 rows of 64 bytes.
///   full          operands have the same shape: 64 bytes (32 bf16) along k
///   half_depth    A (4, 5) 16 rows of 32 bytes, B (6, 7) 8 rows of 64 bytes: 32 bytes along k
enum class TileShape : uint8_t { full, half_depth };

/// Configures the tile registers of this thread while the object is in scope. Then restores the previous configuration,
/// because another library may rely on it. If there was none, releases the registers: a thread whose tiles are in their
/// initial state is cheaper to switch. Must not be nested. Does nothing for emulated tiles.
class TileScope {
 public:
  explicit TileScope(TileUnit unit, TileShape shape = TileShape::full);
  ~TileScope();
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  TileUnit unit_;
  alignas(64) uint8_t found_[64];  // the operand of sttilecfg
};

/// True if this CPU has AMX-TILE and the feature with this bit of CPUID 7 (EDX), and the OS lets the process use them.
bool has_tiles(unsigned feature);

/// A microkernel C = A · B + beta · C, with beta 0 or 1; with 1 the sums start from C. Arguments: depth (in pairs), a,
/// lda (in pairs), b, beta, c, ldc, and memory to prefetch. Must run inside a TileScope.
using TiledFn = void (*)(int64_t, const TiledPair*, int64_t, const TiledPair*, float, float*, int64_t,
                         const TiledPair*);

/// The microkernel for 16 or 32 rows and 1 or 2 vectors of 16 columns. If `direct`, A is read in place as rows of bf16
/// with stride lda.
TiledFn bf16_tiled(TileUnit unit, int64_t rows, int64_t vectors, bool direct);

}  // namespace lamina::ops
