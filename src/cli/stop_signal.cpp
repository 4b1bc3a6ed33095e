#include "lamina/cli/stop_signal.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <initializer_list>

namespace lamina::cli {
namespace {

// State of the signal handler. It must be global, because a handler receives no context.
std::atomic<int> caught{0};  ///< number of the first signal caught; 0: none
std::atomic<const char*> words{""};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);

extern "C" void on_stop_signal(int number) {
  if (caught.exchange(number) != 0) ::_exit(128 + number);
  const char* text = words.load();
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

}  // namespace

void catch_stop_signals(const char* message, WaitingReads reads) {
  words = message;
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = reads == WaitingReads::restart ? SA_RESTART : 0;
  ::sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    // An ignored signal stays ignored: nohup ignores SIGHUP.
    if (before.sa_handler != SIG_IGN) ::sigaction(number, &action, nullptr);
  }
}

bool stop_asked() { return caught.load() != 0; }

void throw_if_stopped() {
  if (const int number = caught.load(); number != 0) throw Stopped{128 + number};
}

}  // namespace lamina::cli
