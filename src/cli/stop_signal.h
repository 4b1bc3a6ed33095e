#pragma once

namespace lamina::cli {

/// Whether a stop signal restarts a blocking read or makes it fail.
enum class WaitingReads { restart, fail };

/// After this call, the first stop signal (SIGINT from Ctrl-C, SIGTERM, or SIGHUP from a closed terminal) prints
/// `message` and sets a flag, which commands poll with stop_asked(). A second signal ends the process at once. Signals
/// that are ignored, as under nohup, stay ignored. `message` must be a string literal, because the handler may read it
/// at any time.
void catch_stop_signals(const char* message, WaitingReads reads = WaitingReads::restart);
/// Whether a stop signal arrived.
bool stop_asked();

/// Thrown to end a command after a stop signal. main() exits with this code, 128 + the signal number (130 for Ctrl-C),
/// as shells do, so that `lamina … && next` stops.
struct Stopped {
  int exit_code;
};
/// Throws Stopped if a stop signal arrived.
void throw_if_stopped();

}  // namespace lamina::cli
