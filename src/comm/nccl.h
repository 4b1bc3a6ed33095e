#pragma once

#include "lamina/comm/communicator.h"

namespace lamina::comm {

/// Adds the tensors of a GPU to a communicator between processes: their collectives run on the GPU over NCCL, on a CUDA
/// stream of their own that waits for the device's. Tensors in host memory still go through `host`, which also tells
/// the ranks NCCL's address and watches them. NCCL is loaded at run time; throws Error if it is missing. Every rank
/// calls it, with its own GPU.
std::shared_ptr<Communicator> make_nccl_communicator(std::shared_ptr<Communicator> host, const Device& device);

}  // namespace lamina::comm
