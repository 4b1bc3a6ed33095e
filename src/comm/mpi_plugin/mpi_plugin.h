#pragma once

#include <cstddef>
#include <cstdint>

/// Interface between lamina and liblamina_mpi.so. Only the plugin is linked with MPI, so that the program starts on
/// machines without MPI. Uses only C types. Functions return 0 or an MPI error code.
extern "C" {

constexpr int kLaminaMpiVersion = 1;

struct LaminaMpi {
  int version;
  /// Starts MPI for calls from one thread at a time, which may be any thread.
  int (*start)(int* rank, int* size);
  /// Writes the host name of this process, at most `capacity` bytes including the final 0.
  int (*host)(char* name, size_t capacity);
  /// Start a message. test() completes it.
  int (*send)(int to, const void* data, size_t bytes, void** request);
  int (*receive)(int from, void* data, size_t bytes, void** request);
  /// Starts MPI's own sum over all ranks, in place. kind 0: float, 1: double, 2: int64_t.
  int (*all_reduce)(void* data, size_t count, int kind, void** request);
  /// If the request has completed, sets `done` and frees the request.
  int (*test)(void* request, int* done);
  /// Writes the text of an error code.
  void (*error_text)(int error, char* text, size_t capacity);
  int (*finish)();
};

const LaminaMpi* lamina_mpi();
}
