#include "lamina/cli/job.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "lamina/comm/nccl.h"
#include "lamina/comm/open.h"

namespace lamina::cli {

Job open_job() {
  const std::optional<comm::RankEnvironment> environment = comm::read_environment();
  if (!environment || environment->size == 1) return nullptr;
  return comm::open_communicator(*environment);
}

Device open_rank_device(const DeviceChoice& choice) {
  DeviceChoice own = choice;
  const char* local_rank = nullptr;
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}) {
    if (local_rank == nullptr) local_rank = std::getenv(name);
  }
  if (choice.name == "cuda" && local_rank != nullptr && Device::cuda_count() > 0) {
    own.name += str(":", std::atoi(local_rank) % Device::cuda_count());
  }
  return own.open();
}

std::shared_ptr<const nn::TensorParallel> open_shared_model() {
  const Job job = open_job();
  if (!job) return nullptr;
  if (!is_first(job)) {
    std::fflush(stdout);
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    LAMINA_CHECK(nowhere >= 0 && ::dup2(nowhere, STDOUT_FILENO) >= 0, "/dev/null: cannot be opened");
    ::close(nowhere);
  }
  return std::make_shared<nn::TensorParallel>(job, /*sequence=*/false);
}

std::shared_ptr<const nn::TensorParallel> ranks_on(const std::shared_ptr<const nn::TensorParallel>& ranks,
                                                   const Device& device) {
  if (!ranks || device.kind() != DeviceKind::cuda) return ranks;
  // A group of its own: calls of several models must not be mixed up with those of the leader.
  const std::vector<int> one_group(static_cast<size_t>(ranks->ranks().size()), 0);
  auto on_gpu = comm::make_nccl_communicator(ranks->ranks().split(one_group), device);
  return std::make_shared<nn::TensorParallel>(std::move(on_gpu), ranks->sequence());
}

}  // namespace lamina::cli
