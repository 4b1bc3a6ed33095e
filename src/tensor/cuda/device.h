#pragma once

#include <memory>

#include "lamina/tensor/device.h"

// What Device asks of the CUDA backend. A build without it has device_none.cpp in its stead.
namespace lamina::cuda {

extern const bool kBuilt;
int device_count();
/// Bytes that the driver can still give.
int64_t free_memory(int index);
std::shared_ptr<Allocator> make_allocator(int index);
std::unique_ptr<Stream> make_stream(int index);

/// Memory that a recording keeps for itself: while it is in use, blocks come from it and go back to it.
class MemoryPool;
std::shared_ptr<MemoryPool> begin_pool(Allocator& allocator);
void end_pool(Allocator& allocator);

}  // namespace lamina::cuda
