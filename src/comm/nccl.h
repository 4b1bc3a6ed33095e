#pragma once

#include "lamina/comm/communicator.h"

namespace lamina::comm {

/// Extends a communicator between processes by GPU tensors. Their collectives run on the GPU over NCCL, on a separate
/// CUDA stream that waits for the device's stream. Tensors in host memory still go through `host`, which also exchanges
/// NCCL's address and watches the ranks. NCCL is loaded at run time; throws an Error if it is missing. Every rank must
/// call this, with its own GPU.
std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> host, const Device& device);

}  // namespace lamina::comm
