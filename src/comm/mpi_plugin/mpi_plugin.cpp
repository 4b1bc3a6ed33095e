#include "mpi_plugin.h"

#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int kTag = 1;
constexpr size_t kPiece = size_t{1} << 30U;  // byte counts in MPI 3 are int, so larger messages are divided

/// A message, which may consist of several MPI messages.
struct Request {
  std::vector<MPI_Request> parts;
};

template <class Start>
int in_pieces(size_t bytes, void** request, const Start& start) {
  auto* made = new Request;
  for (size_t begin = 0; begin < bytes; begin += kPiece) {
    made->parts.push_back(MPI_REQUEST_NULL);
    const int error = start(begin, static_cast<int>(std::min(kPiece, bytes - begin)), &made->parts.back());
    if (error != MPI_SUCCESS) return error;
  }
  *request = made;
  return MPI_SUCCESS;
}

int start(int* rank, int* size) {
  // Open MPI's components search for its symbols among global symbols, but this library was loaded with local ones. So
  // make libmpi's symbols global.
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&MPI_Init_thread), &info) != 0 && info.dli_fname != nullptr) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  }
  int provided = 0;
  const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (error != MPI_SUCCESS) return error;
  if (provided < MPI_THREAD_SERIALIZED) return MPI_ERR_OTHER;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  return MPI_Comm_size(MPI_COMM_WORLD, size);
}

int host(char* name, size_t capacity) {
  char full[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  const int error = MPI_Get_processor_name(full, &length);
  std::snprintf(name, capacity, "%s", full);
  return error;
}

int send(int to, const void* data, size_t bytes, void** request) {
  return in_pieces(bytes, request, [&](size_t begin, int count, MPI_Request* part) {
    return MPI_Isend(static_cast<const char*>(data) + begin, count, MPI_BYTE, to, kTag, MPI_COMM_WORLD, part);
  });
}

int receive(int from, void* data, size_t bytes, void** request) {
  return in_pieces(bytes, request, [&](size_t begin, int count, MPI_Request* part) {
    return MPI_Irecv(static_cast<char*>(data) + begin, count, MPI_BYTE, from, kTag, MPI_COMM_WORLD, part);
  });
}

int all_reduce(void* data, size_t count, int kind, void** request) {
  const MPI_Datatype types[] = {MPI_FLOAT, MPI_DOUBLE, MPI_INT64_T};
  const size_t sizes[] = {4, 8, 8};
  return in_pieces(count * sizes[kind], request, [&](size_t begin, int bytes, MPI_Request* part) {
    return MPI_Iallreduce(MPI_IN_PLACE, static_cast<char*>(data) + begin, bytes / static_cast<int>(sizes[kind]),
                          types[kind], MPI_SUM, MPI_COMM_WORLD, part);
  });
}

int test(void* request, int* done) {
  auto* const made = static_cast<Request*>(request);
  const int error = MPI_Testall(static_cast<int>(made->parts.size()), made->parts.data(), done, MPI_STATUSES_IGNORE);
  if (error == MPI_SUCCESS && *done != 0) delete made;
  return error;
}

void error_text(int error, char* text, size_t capacity) {
  char full[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, full, &length);
  std::snprintf(text, capacity, "%s", full);
}

int finish() { return MPI_Finalize(); }

constexpr LaminaMpi kTable{kLaminaMpiVersion, start, host, send, receive, all_reduce, test, error_text, finish};

}  // namespace

extern "C" const LaminaMpi* lamina_mpi() { return &kTable; }
