#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

namespace lamina::comm {

inline constexpr int kMostRanks = 1 << 20;  ///< largest number of processes of a job

/// This process's position among the processes of a job, taken from variables that a launcher sets.
struct RankEnvironment {
  int rank = 0;                ///< from 0
  int size = 1;                ///< number of processes
  std::string launcher;        ///< torchrun (RANK, WORLD_SIZE; also `lamina launch`), openmpi, pmi or slurm
  std::string master_address;  ///< host of rank 0, a name or an IPv4 or IPv6 address; empty if it is not given
  int master_port = 0;         ///< port on which rank 0 listens; 0 if unknown
  /// Time in seconds after which a silent rank counts as lost (LAMINA_HEARTBEAT_SECONDS).
  double heartbeat_seconds = 60;
  double deadline = 600;  ///< time limit in seconds for waiting on other ranks (LAMINA_COMM_SECONDS)

  /// Seconds that a rank waits for the others to start.
  double start_seconds() const { return std::min(120.0, deadline); }
};

/// Returns the value of an environment variable; empty if it is not set.
using Variable = std::function<std::optional<std::string>(const char* name)>;

/// Reads, in this order: RANK and WORLD_SIZE, OMPI_COMM_WORLD_*, PMI_RANK and PMI_SIZE, SLURM_PROCID and
/// SLURM_STEP_NUM_TASKS. The address of rank 0 comes from MASTER_ADDR and MASTER_PORT. If these are not set, a Slurm
/// job uses its first node and a port derived from its number; processes that all run on one machine use this machine.
///
/// Returns nothing if no launcher's variables are set. Throws an Error if the variables contradict each other.
std::optional<RankEnvironment> read_environment(const Variable& variable);
/// read_environment() for the variables of this process.
std::optional<RankEnvironment> read_environment();

/// The first host of a Slurm node list: "node[07-09,12],login" gives "node07".
std::string first_host(const std::string& node_list);

}  // namespace lamina::comm
