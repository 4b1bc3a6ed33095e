// Stubs for a build without CUDA. device_count() is 0, so the other functions are never reached.
#include "lamina/base/error.h"
#include "lamina/tensor/cuda/copy.h"
#include "lamina/tensor/cuda/device.h"
#include "lamina/tensor/idle_time.h"
#include "lamina/tensor/readback.h"
#include "lamina/tensor/replay.h"

namespace lamina::cuda {
namespace {

[[noreturn]] void none() { throw Error("this build has no CUDA; rebuild with LAMINA_CUDA=ON on a machine with nvcc"); }

}  // namespace

const bool kBuilt = false;
int device_count() { return 0; }
int64_t free_memory(int /*index*/) { none(); }
std::shared_ptr<Allocator> make_allocator(int /*index*/) { none(); }
std::unique_ptr<Stream> make_stream(int /*index*/) { none(); }
void copy(const Tensor& /*source*/, Tensor& /*target*/) { none(); }
void accumulate(const Tensor& /*source*/, Tensor& /*target*/) { none(); }
void fill(Tensor& /*target*/, double /*value*/) { none(); }
void copy_from_host(const void* /*source*/, const Tensor& /*target*/) { none(); }
void copy_to_host(const Tensor& /*source*/, void* /*target*/) { none(); }

}  // namespace lamina::cuda

namespace lamina {

struct Replay::State {};

bool Replay::possible(const Device& /*device*/) { return false; }
// NOLINTNEXTLINE(performance-unnecessary-value-param): stored in a build with CUDA
Replay::Replay(const Device& /*device*/, std::function<void()> /*work*/) { cuda::none(); }
Replay::~Replay() = default;
bool Replay::run(uint64_t /*random_offset*/) { cuda::none(); }
bool Replay::is_captured() const { cuda::none(); }

struct Readback::State {};

Readback::Readback(const Device& /*device*/, int64_t /*count*/) { cuda::none(); }
Readback::~Readback() = default;
void Readback::write(const Tensor& /*source*/) { cuda::none(); }
void Readback::mark() { cuda::none(); }
std::vector<int64_t> Readback::wait() { cuda::none(); }
size_t Readback::pending() const { return 0; }

IdleTime::IdleTime(const Device& /*device*/) { cuda::none(); }
void IdleTime::begin() { cuda::none(); }
void IdleTime::end() { cuda::none(); }
double IdleTime::take_share() { cuda::none(); }

}  // namespace lamina
