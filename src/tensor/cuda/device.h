#pragma once

#include <memory>

#include "lamina/tensor/device.h"

// The functions of the CUDA backend that Device uses. A build without CUDA links device_none.cpp instead.
namespace lamina::cuda {

extern const bool kBuilt;
int device_count();
/// Free device memory in bytes, as the driver reports it.
int64_t free_memory(int index);
std::shared_ptr<Allocator> make_allocator(int index);
std::unique_ptr<Stream> make_stream(int index);

/// Memory of a captured CUDA graph. While the pool is active, blocks are allocated from it and returned to it.
class GraphMemoryPool;
std::shared_ptr<GraphMemoryPool> begin_pool(Allocator& allocator);
void end_pool(Allocator& allocator);

}  // namespace lamina::cuda
