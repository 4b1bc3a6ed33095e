#include "lamina/cli/bandwidth.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "lamina/cli/seconds_of.h"
#include "lamina/tensor/tensor.h"

namespace lamina::cli {
namespace {

using Vector = int64_t __attribute__((vector_size(32), aligned(32)));

constexpr int64_t kPiece = 262144;

/// Reads a piece as several interleaved streams.
template <size_t kStreams>
int64_t read_piece(const uint8_t* data) {
  constexpr size_t kLength = kPiece / sizeof(Vector) / kStreams;
  const auto* from = reinterpret_cast<const Vector*>(data);
  Vector sum[4] = {};
  for (size_t i = 0; i < kLength; i += 4) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      for (size_t part = 0; part < 4; ++part) sum[part] ^= from[stream * kLength + i + part];
    }
  }
  const Vector all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all[0] ^ all[1] ^ all[2] ^ all[3];
}

}  // namespace

double copy_bandwidth(const Device& device, int64_t bytes) {
  const Tensor from = Tensor::zeros({std::max<int64_t>(bytes / 8, 4)}, DType::f32, device);
  Tensor to = Tensor::zeros(from.shape(), DType::f32, device);
  const int copies = device.stream() == nullptr ? 1 : 8;  // several copies per synchronization hide the host's overhead
  double best = 1e30;
  for (int round = 0; round < 6; ++round) {
    best = std::min(best, seconds_of(device, [&] {
                      for (int i = 0; i < copies; ++i) to.copy_(from);
                    }));
  }
  return static_cast<double>(2 * copies * from.nbytes()) / best;
}

double read_bandwidth(const Device& device, int64_t bytes) {
  if (device.kind() == DeviceKind::cuda) return copy_bandwidth(device, bytes);
  const int64_t pieces = std::max<int64_t>(bytes / kPiece, 2);
  const Tensor buffer = Tensor::zeros({pieces * kPiece}, DType::u8, device);
  const uint8_t* data = buffer.data<uint8_t>();
  std::vector<int64_t> sums(static_cast<size_t>(pieces));
  double best = 1e30;
  // One stream per core reaches three quarters of the bandwidth on Zen 4, eight streams half of it on Zen 5.
  for (const auto read : {read_piece<1>, read_piece<8>}) {
    for (int round = 0; round < 6; ++round) {
      best = std::min(best, seconds_of([&] {
                        device.threads().tasks(pieces, [&](int64_t piece) {
                          sums[static_cast<size_t>(piece)] = read(data + piece * kPiece);
                        });
                      }));
    }
  }
  // The sums are 0. Adding them keeps the compiler from removing the reads.
  return static_cast<double>(pieces * kPiece + std::accumulate(sums.begin(), sums.end(), int64_t{0})) / best;
}

}  // namespace lamina::cli
