#include "lamina/comm/open.h"

#include "lamina/comm/mpi.h"
#include "lamina/comm/tcp.h"

namespace lamina::comm {

std::shared_ptr<Communicator> open_communicator(const RankEnvironment& environment, const std::string& backend) {
  LAMINA_CHECK(backend.empty() || backend == "tcp" || backend == "mpi", "the backend \"", backend,
               "\" is not known; expected tcp or mpi");
  std::shared_ptr<Transport> transport;
  std::string problem;
  const bool by_mpi = environment.launcher == "openmpi" || environment.launcher == "pmi";
  if (backend == "mpi" || (backend.empty() && by_mpi)) {
    transport = make_mpi_transport(environment, problem);
    LAMINA_CHECK(transport || backend.empty(), "the backend mpi is not available: ", problem,
                 "; build lamina with MPI (LAMINA_MPI), or use tcp");
  }
  if (!transport) transport = make_tcp_transport(environment);
  return make_communicator(std::move(transport), {.deadline = environment.deadline});
}

}  // namespace lamina::comm
