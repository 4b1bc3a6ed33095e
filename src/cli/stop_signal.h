#pragma once

namespace lamina::cli {

/// What reads that wait for input do on a stop signal.
enum class WaitingReads { restart, fail };

/// From now on the first stop signal (SIGINT from Ctrl-C, SIGTERM, SIGHUP from a closed terminal) prints `message` and
/// sets a flag that the command polls with stop_asked(). A second one ends the process at once. Signals that are
/// ignored, as under nohup, stay ignored. `message` must be a literal: the handler reads it at any time.
void catch_stop_signals(const char* message, WaitingReads reads = WaitingReads::restart);
/// Whether a stop signal came.
bool stop_asked();

/// Thrown to end a command after a stop signal. main() exits with this code, 128 + the signal's number as shells do
/// (130 for Ctrl-C), so that `lamina … && next` does not go on.
struct Stopped {
  int exit_code;
};
/// Throws Stopped if a stop signal came.
void throw_if_stopped();

}  // namespace lamina::cli
