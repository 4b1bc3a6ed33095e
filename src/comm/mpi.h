#pragma once

#include "lamina/comm/communicator.h"
#include "lamina/comm/environment.h"

namespace lamina::comm {

/// A transport for ranks that are MPI processes. It uses liblamina_mpi.so, which is loaded at run time from
/// LAMINA_MPI_PLUGIN, the program's folder, or its ../lib/lamina. Returns null if the library or MPI is missing;
/// `problem` then says why. If rank 0's address is known, monitor.h watches the processes. MPI can be started only once
/// in a process.
std::shared_ptr<Transport> make_mpi_transport(const RankEnvironment& environment, std::string& problem);

}  // namespace lamina::comm
