// Serves a model that is only a clock (paced_runner.h), to measure what a server costs beside a fast GPU on a machine
// without one. `paced_server --alone` runs the same requests in the engine, without HTTP. tools/bench-serve --rows host
// starts both.
#include <malloc.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "lamina/infer/engine/load_test.h"
#include "lamina/serve/api/service.h"
#include "lamina/serve/http/server.h"
#include "lamina/text/load.h"
#include "serving/paced_runner.h"

namespace lamina::bench {
namespace {

struct Arguments {
  StepTimes times;
  infer::EngineOptions engine;
  infer::LoadTestOptions load;
  int64_t context = 1024;
  int64_t vocab = 32000;
  std::string tokenizer;
  bool alone = false;
};

void run_alone(const Arguments& arguments) {
  infer::Engine engine(
      std::make_unique<PacedRunner>(arguments.times, arguments.engine.rows, arguments.context, arguments.vocab),
      arguments.engine);
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  const auto sleep = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  const infer::LoadTestReport report = infer::run_load_test(engine, arguments.load, now, sleep);
  std::printf("{\"answer_tokens_per_second\": %.1f, \"answer_tokens\": %lld, \"seconds\": %.4f}\n",
              report.answer_tokens_per_second(), static_cast<long long>(report.answer_tokens), report.seconds);
}

void serve(const Arguments& arguments, const text::Tokenizer* tokenizer) {
  auto model = std::make_shared<serve::ServedModel>();
  model->id = "paced";
  model->fingerprint = "0";
  model->tokenizer = tokenizer;
  model->events = std::make_shared<serve::EngineEvents>(nullptr, 0);
  infer::EngineOptions options = arguments.engine;
  options.observer = model->events.get();
  model->backend = std::make_shared<serve::EngineBackend>(
      std::make_unique<PacedRunner>(arguments.times, options.rows, arguments.context, arguments.vocab), options);
  const serve::Policy policy({}, nullptr);
  std::unique_ptr<serve::Service> service;
  serve::ServerOptions listening;
  listening.port = 0;
  serve::Server server(listening, policy, [&](auto exchange) { service->handle(exchange); });
  service = std::make_unique<serve::Service>(std::vector{model});
  std::printf("serving at %s\n", server.address().c_str());
  std::fflush(stdout);
  server.run();
  service.reset();
  model->backend.reset();
}

void run(int argc, char** argv) {
  Arguments arguments;
  arguments.load.requests = 512;
  arguments.engine.step_tokens = 8192;
  CLI::App program("Serves a model that is only a clock, or runs the engine alone.");
  program.add_option("--rows", arguments.engine.rows, "Answers computed at once")->capture_default_str();
  program.add_option("--step-tokens", arguments.engine.step_tokens, "Tokens in one step")->capture_default_str();
  program.add_option("--step", arguments.times.step, "Microseconds of a step")->capture_default_str();
  program.add_option("--row", arguments.times.row, "Microseconds of a decoding row")->capture_default_str();
  program.add_option("--prompt", arguments.times.prompt, "Microseconds of a prompt token")->capture_default_str();
  program.add_option("--tokenizer", arguments.tokenizer, "Tokenizer file: answers then have text");
  program.add_flag("--alone", arguments.alone, "Run requests in the engine, without a server");
  program.add_option("--requests", arguments.load.requests, "With --alone: number of requests")->capture_default_str();
  program.add_option("--in", arguments.load.prompt, "With --alone: tokens of a prompt")->capture_default_str();
  program.add_option("--out", arguments.load.answer, "With --alone: tokens of an answer")->capture_default_str();
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(program.exit(error));
  }
  ::mallopt(M_ARENA_MAX, 1);                 // as `lamina serve`
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);  // steps end in time; threads inherit it
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (!arguments.tokenizer.empty()) tokenizer = text::load_tokenizer(arguments.tokenizer);
  if (tokenizer) arguments.vocab = tokenizer->vocab_size();
  arguments.engine.tokenizer = tokenizer.get();
  if (arguments.alone) return run_alone(arguments);
  serve(arguments, tokenizer.get());
}

}  // namespace
}  // namespace lamina::bench

int main(int argc, char** argv) {
  try {
    lamina::bench::run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "paced_server: %s\n", error.what());
    return 1;
  }
}
