#pragma once

#include <memory>

#include "lamina/cli/device_option.h"
#include "lamina/comm/communicator.h"
#include "lamina/nn/tensor_parallel.h"

namespace lamina::cli {

using Job = std::shared_ptr<comm::Communicator>;  ///< The processes of this job. Null: a single process.

/// Connects to the processes that a launcher started together with this one.
Job open_job();
/// Whether this process prints and writes files.
inline bool is_first(const Job& job) { return !job || job->rank() == 0; }

/// The device of this process. Processes that a launcher started on one machine divide its GPUs: `cuda` is the GPU
/// whose number is this process's number on the machine.
Device open_rank_device(const DeviceChoice& choice);

/// All processes of the job, as tensor-parallel ranks of one model. Null for a single process. After this call only the
/// first process has standard output.
std::shared_ptr<const nn::TensorParallel> open_shared_model();
/// `ranks` for a model on `device`: on a GPU they communicate over NCCL. All ranks must call it, in the same order.
std::shared_ptr<const nn::TensorParallel> ranks_on(const std::shared_ptr<const nn::TensorParallel>& ranks,
                                                   const Device& device);

}  // namespace lamina::cli
