#include "lamina/cli/stop_signal.h"

#include <unistd.h>
#include <initializer_list>

#include <atomic>
#include <csignal>
#include <cstring>

namespace lamina::cli {
namespace {

// A signal reaches no object: the handler's flag and words are the program's.
std::atomic<bool> asked{false};
std::atomic<const char*> words{""};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);

extern "C" void on_stop_signal(int number) {
  if (asked.exchange(true)) ::_exit(128 + number);
  const char* text = words.load();
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

}  // namespace

void catch_stop_signals(const char* message) {
  words = message;
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) ::sigaction(number, &action, nullptr);  // nohup means it
  }
}

bool stop_asked() { return asked.load(); }

}  // namespace lamina::cli
