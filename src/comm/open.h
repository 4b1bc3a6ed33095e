#pragma once

#include "lamina/comm/communicator.h"
#include "lamina/comm/environment.h"

namespace lamina::comm {

/// Opens the communicator of all processes of this job. `backend` is "tcp", "mpi", or "" to choose automatically: MPI
/// if mpirun, or srun with PMI, started the processes and MPI is available; otherwise TCP. Throws CommError if the
/// ranks do not find each other.
std::shared_ptr<Communicator> open_communicator(const RankEnvironment& environment, const std::string& backend = "");

}  // namespace lamina::comm
