#pragma once

#include <memory>

#include "lamina/comm/communicator.h"
#include "lamina/nn/tensor_parallel.h"

namespace lamina::cli {

using Job = std::shared_ptr<comm::Communicator>;  ///< The processes of this job; null: one process.

/// The processes that a launcher started together with this one.
Job open_job();
/// Whether this process prints and writes files.
inline bool is_first(const Job& job) { return !job || job->rank() == 0; }

/// All processes of the job as ranks that share one model; null for one process. From now on only the first process
/// has standard output.
std::shared_ptr<const nn::TensorParallel> open_shared_model();

}  // namespace lamina::cli
