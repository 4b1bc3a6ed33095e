#pragma once

#include <cstddef>
#include <cstdint>

/// Interface between lamina and liblamina_mpi.so, which alone is linked with MPI: the program also starts on machines
/// without it. C types only. Functions return 0, or an MPI error code.
extern "C" {

constexpr int kLaminaMpiVersion = 1;

struct LaminaMpi {
  int version;
  /// Starts MPI for calls from any one thread at a time.
  int (*start)(int* rank, int* size);
  /// Writes the host name of this process, at most `capacity` bytes with the final 0.
  int (*host)(char* name, size_t capacity);
  /// Starts a message; test() ends it.
  int (*send)(int to, const void* data, size_t bytes, void** request);
  int (*receive)(int from, void* data, size_t bytes, void** request);
  /// Starts MPI's own sum over all ranks in place; kind 0: float, 1: double, 2: int64_t.
  int (*all_reduce)(void* data, size_t count, int kind, void** request);
  /// Sets `done` and frees the request once it has completed.
  int (*test)(void* request, int* done);
  /// Writes the text of an error code.
  void (*error_text)(int error, char* text, size_t capacity);
  int (*finish)();
};

const LaminaMpi* lamina_mpi();
}
