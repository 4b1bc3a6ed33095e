#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/cli/commands.h"
#include "lamina/cli/usage.h"
#include "lamina/serve/bench/load_client.h"

namespace lamina::cli {
namespace {

struct ServeBenchArguments {
  serve::LoadClientOptions load;
  bool json = false;
};

void print_percentiles(const char* name, const infer::Latencies& latencies) {
  std::printf("  %-22s %9.2f %9.2f %9.2f %9.2f ms\n", name, latencies.mean() * 1e3, latencies.percentile(0.5) * 1e3,
              latencies.percentile(0.95) * 1e3, latencies.percentile(0.99) * 1e3);
}

void print_load(const ServeBenchArguments& arguments, const serve::LoadClientReport& report) {
  std::printf("%s, %s: %lld requests, %s\n", arguments.load.url.c_str(), report.model.c_str(),
              static_cast<long long>(arguments.load.requests),
              arguments.load.rate > 0 ? str(arguments.load.rate, " arrive per second").c_str()
                                      : str(arguments.load.clients, " clients in a closed loop").c_str());
  std::printf("  output             %11.1f tokens/s; %.2f requests/s; %lld failed\n",
              static_cast<double>(report.answer_tokens) / report.seconds,
              static_cast<double>(report.completed) / report.seconds, static_cast<long long>(report.failed));
  std::printf("  tokens             %11lld in (%lld cached), %lld out, in %.3f s\n",
              static_cast<long long>(report.prompt_tokens), static_cast<long long>(report.cached_tokens),
              static_cast<long long>(report.answer_tokens), report.seconds);
  std::printf("  %-22s %9s %9s %9s %9s\n", "", "mean", "p50", "p95", "p99");
  print_percentiles("first token (TTFT)", report.first_token);
  print_percentiles("next token (ITL)", report.next_token);
  print_percentiles("per token (TPOT)", report.per_token);
  print_percentiles("request", report.request);
}

nlohmann::ordered_json percentiles(const infer::Latencies& latencies) {
  return {{"mean", latencies.mean()},
          {"p50", latencies.percentile(0.5)},
          {"p95", latencies.percentile(0.95)},
          {"p99", latencies.percentile(0.99)}};
}

void print_load_json(const ServeBenchArguments& arguments, const serve::LoadClientReport& report) {
  const nlohmann::ordered_json json{
      {"url", arguments.load.url},
      {"model", report.model},
      {"requests", arguments.load.requests},
      {"clients", arguments.load.clients},
      {"rate", arguments.load.rate},
      {"completed", report.completed},
      {"failed", report.failed},
      {"seconds", report.seconds},
      {"prompt_tokens", report.prompt_tokens},
      {"cached_tokens", report.cached_tokens},
      {"answer_tokens", report.answer_tokens},
      {"answer_tokens_per_second", static_cast<double>(report.answer_tokens) / report.seconds},
      {"first_token_seconds", percentiles(report.first_token)},
      {"next_token_seconds", percentiles(report.next_token)},
      {"seconds_per_token", percentiles(report.per_token)},
      {"request_seconds", percentiles(report.request)}};
  std::printf("%s\n", json.dump(2).c_str());
}

void run_serve_bench(const ServeBenchArguments& arguments) {
  const serve::LoadClientReport report = serve::run_load_client(arguments.load);
  (arguments.json ? print_load_json : print_load)(arguments, report);
  LAMINA_CHECK(report.failed == 0, "bench serve: ", report.failed, " of ", arguments.load.requests,
               " requests failed; the first one: ", report.first_error);
}

}  // namespace

void add_bench_serve(CLI::App& bench) {
  auto arguments = std::make_shared<ServeBenchArguments>();
  serve::LoadClientOptions& load = arguments->load;
  CLI::App* command =
      bench.add_subcommand("serve", "Throughput and latency of a server with an OpenAI-compatible API, over HTTP");
  command->add_option("url", load.url, "Address of the server: http://HOST:PORT")->required();
  command->add_option("--model", load.model, "Model (default: the server's first)");
  command->add_option("--api-key", load.api_key, "API key");
  const auto number = [&](const char* name, int64_t& value, const char* help, int64_t least = 1) {
    command->add_option(name, value, help)->capture_default_str()->check(at_least(least));
  };
  number("--requests", load.requests, "Number of requests");
  number("--clients", load.clients, "Clients that each send a request after the answer to the previous one");
  command->add_option("--rate", load.rate, "Open loop instead: requests per second, arriving at random (Poisson)")
      ->check(between(0, 1e6));
  number("--in", load.prompt, "Words of a prompt or, with --vocab, tokens");
  number("--out", load.answer, "Tokens of an answer");
  number("--vocab", load.vocab, "Prompts are token ids below this instead of words; 0: words", 0);
  number("--shared", load.shared, "Words or tokens at the beginning that all prompts have in common", 0);
  command->add_option("--seed", load.seed, "Seed of arrivals and prompts")->capture_default_str();
  command->add_option("--temperature", load.temperature, "Temperature of the requests; 0: greedy")
      ->capture_default_str()
      ->check(between(0, 2));
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->footer("Example: lamina bench serve http://127.0.0.1:8080 --clients 16 --in 128 --out 64");
  command->callback([arguments] { run_serve_bench(*arguments); });
}

}  // namespace lamina::cli
