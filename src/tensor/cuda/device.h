#pragma once

#include <memory>

#include "lamina/tensor/device.h"

// What Device asks of the CUDA backend. A build without it has device_none.cpp in its stead.
namespace lamina::cuda {

extern const bool kBuilt;
int device_count();
std::shared_ptr<Allocator> make_allocator(int index);
std::unique_ptr<Stream> make_stream(int index);

}  // namespace lamina::cuda
