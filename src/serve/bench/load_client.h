#pragma once

#include <cstdint>
#include <string>

#include "lamina/infer/engine/load_test.h"

namespace lamina::serve {

/// A load test of a server with an OpenAI-compatible API: streamed completions over plain HTTP.
struct LoadClientOptions {
  std::string url;    ///< http://HOST:PORT
  std::string model;  ///< empty: the first one of /v1/models
  std::string api_key;
  int64_t requests = 64;
  int64_t clients = 16;  ///< closed loop: number of clients; each sends its next request after the answer
  double rate = 0;       ///< open loop: requests per second, arriving as a Poisson process; 0: closed loop
  int64_t prompt = 128;  ///< prompt length in words or, with `vocab`, tokens
  int64_t answer = 64;   ///< answer length in tokens
  int64_t vocab = 0;     ///< prompts are random token ids below this number; 0: random words
  int64_t shared = 0;    ///< length of the common beginning of all prompts, in words or ids
  uint64_t seed = 1;
  double temperature = 1;
  double timeout = 600;  ///< per request, in seconds
};

/// Result of run_load_client().
struct LoadClientReport {
  std::string model;
  double seconds = 0;
  int64_t completed = 0, failed = 0;
  std::string first_error;
  int64_t prompt_tokens = 0, answer_tokens = 0, cached_tokens = 0;
  infer::Latencies first_token;  ///< TTFT: from sending to the first text
  infer::Latencies next_token;   ///< ITL: between events with text
  infer::Latencies per_token;    ///< TPOT: (latency − TTFT) / (tokens − 1)
  infer::Latencies request;      ///< from sending to the last byte
};

/// Runs the load test on the calling thread. Throws Error if the server cannot be reached.
LoadClientReport run_load_client(const LoadClientOptions& options);

}  // namespace lamina::serve
