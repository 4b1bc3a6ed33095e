#pragma once

namespace lamina::cli {

/// From now on the first signal to end (Ctrl-C, SIGTERM, a terminal that closed) only asks for it, with a line that
/// says what happens next; a second one ends the process here and now. Signals that are ignored, as under nohup, stay
/// so. `message` must outlive the process's signals: a literal.
void catch_stop_signals(const char* message);
/// Whether it was asked.
bool stop_asked();

}  // namespace lamina::cli
