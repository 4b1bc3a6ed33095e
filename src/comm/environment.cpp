#include "lamina/comm/environment.h"

#include <charconv>
#include <cstdlib>

#include "lamina/base/error.h"

namespace lamina::comm {
namespace {

struct LauncherNames {
  const char* launcher;
  const char* rank;
  const char* size;
};
// SLURM_STEP_NUM_TASKS is set only in tasks of srun. SLURM_NTASKS is also set in the batch script, which runs once.
constexpr LauncherNames kLaunchers[] = {{"torchrun", "RANK", "WORLD_SIZE"},
                                        {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                        {"pmi", "PMI_RANK", "PMI_SIZE"},
                                        {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};

int whole_number(const std::string& text, const char* name, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  LAMINA_CHECK(error == std::errc() && end == text.data() + text.size() && value >= least && value <= most, name, "=",
               text, "; expected a whole number from ", least, " to ", most);
  return value;
}

double seconds_of(const Variable& variable, const char* name, double otherwise) {
  const std::optional<std::string> text = variable(name);
  if (!text) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(text->c_str(), &end);
  LAMINA_CHECK(end != text->c_str() && *end == '\0' && value > 0 && value < 1e6, name, "=", *text,
               "; expected a number of seconds above 0");
  return value;
}

/// A port that all processes of a job compute from its name, above the ports of usual services.
int derived_port(const std::string& job) {
  uint32_t hash = 2166136261U;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return 15000 + static_cast<int>(hash % 15000);
}

void find_master(const Variable& variable, RankEnvironment& found) {
  const std::optional<std::string> port = variable("MASTER_PORT");
  found.master_address = variable("MASTER_ADDR").value_or("");
  std::string& address = found.master_address;
  if (address.starts_with("[") && address.ends_with("]")) address = address.substr(1, address.size() - 2);  // [::1]
  if (port) found.master_port = whole_number(*port, "MASTER_PORT", 1, 65535);
  std::string job;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"}) {
    if (job.empty()) job = variable(name).value_or("");
  }
  if (found.master_address.empty()) {
    if (const auto nodes = variable("SLURM_STEP_NODELIST")) found.master_address = first_host(*nodes);
    const std::string size = std::to_string(found.size);
    for (const char* local : {"OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS"}) {
      if (variable(local).value_or("") == size) found.master_address = "127.0.0.1";
    }
  }
  if (found.master_port == 0 && !job.empty()) found.master_port = derived_port(job);
}

}  // namespace

std::string first_host(const std::string& node_list) {
  const size_t open = node_list.find_first_of("[,");
  if (open == std::string::npos || node_list[open] == ',') return node_list.substr(0, open);
  const size_t end = node_list.find_first_of("-,]", open + 1);
  return node_list.substr(0, open) + node_list.substr(open + 1, end == std::string::npos ? end : end - open - 1);
}

std::optional<RankEnvironment> read_environment(const Variable& variable) {
  for (const LauncherNames& names : kLaunchers) {
    const std::optional<std::string> rank = variable(names.rank);
    const std::optional<std::string> size = variable(names.size);
    if (!rank && !size) continue;
    if (names.launcher == std::string("slurm") && !size) continue;
    LAMINA_CHECK(rank && size, rank ? names.size : names.rank, " is not set although ", rank ? names.rank : names.size,
                 " is; set both, or neither for one process");
    RankEnvironment found;
    found.launcher = names.launcher;
    found.size = whole_number(*size, names.size, 1, kMostRanks);
    found.rank = whole_number(*rank, names.rank, 0, kMostRanks);
    LAMINA_CHECK(found.rank < found.size, names.rank, "=", found.rank, " with ", names.size, "=", found.size,
                 "; ranks count from 0 to size - 1");
    find_master(variable, found);
    found.heartbeat_seconds = seconds_of(variable, "LAMINA_HEARTBEAT_SECONDS", found.heartbeat_seconds);
    found.deadline = seconds_of(variable, "LAMINA_COMM_SECONDS", found.deadline);
    return found;
  }
  return {};
}

std::optional<RankEnvironment> read_environment() {
  return read_environment([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    if (value == nullptr) return {};
    return value;
  });
}

}  // namespace lamina::comm
