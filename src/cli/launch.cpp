#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "lamina/base/cores.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/cli/usage.h"
#include "lamina/comm/socket.h"

namespace lamina::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kAddress = "127.0.0.1";  // address at which rank 0 listens
constexpr int kGraceSeconds = 5;  // time for the other processes to save and end on their own, after one has ended

struct LaunchArguments {
  int processes = 1;
  int restarts = 0;
  std::vector<std::string> command;
  std::string job;  ///< name of this job, the same for all restarts
};

/// A started process of the job.
struct Child {
  pid_t pid = 0;
  bool running = true;
  int code = 0;  ///< exit code, or 128 + the signal that ended it
};

void set_variable(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

/// Turns this process into rank `rank` of the job. Returns only on failure.
void become_rank(const LaunchArguments& arguments, int rank, int port, int restart, pid_t launcher) {
  ::setpgid(0, 0);  // so that Ctrl-C reaches only the launcher, which forwards it once
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) return;  // it died before prctl: no signal would come
  set_variable("RANK", std::to_string(rank));
  set_variable("LOCAL_RANK", std::to_string(rank));
  set_variable("WORLD_SIZE", std::to_string(arguments.processes));
  set_variable("LOCAL_WORLD_SIZE", std::to_string(arguments.processes));
  set_variable("MASTER_ADDR", kAddress);
  set_variable("MASTER_PORT", std::to_string(port));
  set_variable("LAMINA_JOB", arguments.job);
  set_variable("LAMINA_RESTART_COUNT", std::to_string(restart));
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    set_variable("OMP_NUM_THREADS", std::to_string(std::max(1, usable_cores() / arguments.processes)));
  }
  std::vector<char*> words{const_cast<char*>("lamina")};
  for (const std::string& word : arguments.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execv("/proc/self/exe", words.data());
}

std::vector<Child> start(const LaunchArguments& arguments, int restart) {
  const int port = comm::Socket::listen(0, kAddress).port();
  const pid_t launcher = ::getpid();
  std::vector<Child> children;
  for (int rank = 0; rank < arguments.processes; ++rank) {
    const pid_t pid = ::fork();
    LAMINA_CHECK(pid >= 0, "process ", rank, " of ", arguments.processes, " cannot be started: ", std::strerror(errno));
    if (pid == 0) {
      become_rank(arguments, rank, port, restart, launcher);
      ::_exit(127);
    }
    children.push_back({pid});
  }
  return children;
}

void send_all(const std::vector<Child>& children, int signal) {
  for (const Child& child : children) {
    if (child.running) ::kill(child.pid, signal);
  }
}

/// Records which processes have ended. Returns how many are running.
int count_running(std::vector<Child>& children) {
  int running = 0;
  for (Child& child : children) {
    int status = 0;
    if (child.running && ::waitpid(child.pid, &status, WNOHANG) == child.pid) {
      child.running = false;
      child.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    running += child.running ? 1 : 0;
  }
  return running;
}

/// Waits for all processes. After the first failure, the others have kGraceSeconds to end on their own; then they are
/// killed.
void wait_for_all(std::vector<Child>& children) {
  bool told = false;
  Clock::time_point limit = Clock::time_point::max();
  while (count_running(children) > 0) {
    if (stop_asked() && !std::exchange(told, true)) send_all(children, SIGTERM);
    bool failed = false;
    for (const Child& child : children) failed = failed || (!child.running && child.code != 0);
    if (failed && limit == Clock::time_point::max()) limit = Clock::now() + std::chrono::seconds(kGraceSeconds);
    if (Clock::now() > limit) send_all(children, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// The job's exit code: that of an error which would repeat after a restart, otherwise that of a lost process.
int code_of(const std::vector<Child>& children) {
  int code = kSuccess;
  for (const Child& child : children) {
    const bool worth_a_restart = child.code == kRestart || child.code > 128;
    if (child.code != 0 && (code == 0 || !worth_a_restart)) code = child.code;
  }
  return code;
}

/// Throws an error for commands other than the known ones: several processes would do the same work and overwrite each
/// other's files.
void check_shared(const std::vector<std::string>& command) {
  const std::string name = command[0] == "bench" && command.size() > 1 ? "bench " + command[1] : command[0];
  for (const char* shared : {"train", "generate", "eval", "serve", "bench engine"}) {
    if (name == shared) return;
  }
  throw UsageError(
      str("`", name, "` does not run as several processes; expected train, generate, eval, serve or bench engine"));
}

/// A name that no other job has.
std::string new_job_name() {
  std::random_device random;
  return str(random(), "-", random());
}

void run_launch(LaunchArguments arguments) {
  if (arguments.command.empty()) {
    throw UsageError(
        "no command was given; for example: lamina launch --nproc 2 -- train quickstart --data FILE "
        "--set layout.dp=2");
  }
  check_shared(arguments.command);
  arguments.job = new_job_name();
  catch_stop_signals("\nstopping all processes; press Ctrl-C again to stop immediately\n");
  for (int restart = 0;; ++restart) {
    std::vector<Child> children = start(arguments, restart);
    wait_for_all(children);
    const int code = code_of(children);
    if (code == kSuccess) return;
    const bool again = (code == kRestart || code > 128) && restart < arguments.restarts && !stop_asked();
    for (size_t rank = 0; rank < children.size(); ++rank) {
      const int one = children[rank].code;
      const bool asked = one == 128 + SIGTERM && stop_asked();
      if (one > 128 && !asked) std::fprintf(stderr, "lamina: rank %zu was ended by signal %d\n", rank, one - 128);
    }
    throw_if_stopped();
    if (!again) throw Stopped{code};
    std::fprintf(stderr, "lamina: starting all processes again (%d of %d)\n", restart + 1, arguments.restarts);
  }
}

}  // namespace

void add_launch(CLI::App& program) {
  auto arguments = std::make_shared<LaunchArguments>();
  CLI::App* command = program.add_subcommand(
      "launch", "Start a command as several processes of this machine that work together (docs/guides/distributed.md)");
  command->add_option("--nproc", arguments->processes, "Number of processes")->check(CLI::Range(1, 1024))->required();
  command
      ->add_option("--restarts", arguments->restarts,
                   "How often to restart all processes after one was lost; a run resumes from its last checkpoint")
      ->check(at_least(0));
  command->add_option(
      "command", arguments->command,
      "The command (train, generate, eval, serve or bench engine) and its options, after --: train quickstart ...");
  command->positionals_at_end();
  command->callback([arguments] { run_launch(*arguments); });
}

}  // namespace lamina::cli
