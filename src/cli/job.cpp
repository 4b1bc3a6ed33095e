#include "lamina/cli/job.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "lamina/comm/open.h"

namespace lamina::cli {

Job open_job() {
  const std::optional<comm::RankEnvironment> environment = comm::read_environment();
  if (!environment || environment->size == 1) return nullptr;
  return comm::open_communicator(*environment);
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

}  // namespace lamina::cli
