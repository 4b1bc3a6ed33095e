#pragma once

#include "lamina/comm/communicator.h"
#include "lamina/comm/environment.h"

namespace lamina::comm {

/// Ranks as MPI processes, through liblamina_mpi.so, which is loaded at run time: from LAMINA_MPI_PLUGIN, the program's
/// folder, or its ../lib/lamina. Null if it or MPI is not there; `problem` then says why. If rank 0's address is
/// known, monitor.h watches the processes too. MPI starts once in a process.
std::shared_ptr<Transport> make_mpi_transport(const RankEnvironment& environment, std::string& problem);

}  // namespace lamina::comm
