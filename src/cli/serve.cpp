#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/cli/amounts.h"
#include "lamina/cli/cache_option.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/draft_option.h"
#include "lamina/cli/heartbeat.h"
#include "lamina/cli/shared_engine.h"
#include "lamina/cli/usage.h"
#include "lamina/infer/fingerprint.h"
#include "lamina/infer/load.h"
#include "lamina/infer/runner/model_runner.h"
#include "lamina/serve/api/service.h"
#include "lamina/serve/api/task_backend.h"
#include "lamina/serve/http/server.h"
#include "lamina/text/load.h"

namespace lamina::cli {
namespace {

using Ranks = std::shared_ptr<const nn::TensorParallel>;  ///< The ranks that share the models. Null: a single process.

struct ServeArguments {
  std::vector<std::string> models;
  std::vector<std::string> overrides;
  std::string weights = "as-stored";
  std::vector<std::string> weights_of;  ///< "NAME=FORMAT"
  std::string tokenizer;
  std::string chat_template;
  std::string cache_memory;
  std::string max_body;
  std::string api_keys;
  std::string access_log;
  std::string trace;
  infer::EngineOptions engine;
  infer::ModelRunnerOptions runner;
  DeviceChoice device;
  DraftChoice draft;
  serve::ServerOptions server;
  serve::PolicyOptions policy;
  bool no_prefix_cache = false;
};

/// Parses "NAME=PATH" or "PATH". The default name is the last part of the path.
std::pair<std::string, std::string> name_and_path(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals != std::string::npos && !path_exists(argument)) {
    return {argument.substr(0, equals), argument.substr(equals + 1)};
  }
  std::filesystem::path path = std::filesystem::path(argument).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  // "." and ".." have no name of their own.
  if (path.empty() || path.filename() == "." || path.filename() == "..") path = std::filesystem::canonical(argument);
  return {path.filename().string(), argument};
}

/// The weight format of one model: that of --weights-of NAME=FORMAT, otherwise that of --weights.
std::string weight_format_of(const ServeArguments& arguments, const std::string& name) {
  for (const std::string& one : arguments.weights_of) {
    if (one.starts_with(name + "=")) return one.substr(name.size() + 1);
  }
  return arguments.weights;
}

void check_weights_of(const ServeArguments& arguments) {
  for (const std::string& one : arguments.weights_of) {
    const bool known = std::any_of(arguments.models.begin(), arguments.models.end(), [&](const std::string& model) {
      return one.starts_with(name_and_path(model).first + "=");
    });
    LAMINA_CHECK(known, "--weights-of ", one, ": no model has this name; expected NAME=FORMAT with a model's name");
  }
}

/// Loads a model. `argument` is the model as given on the command line.
infer::LoadedModel load_for_serving(const ServeArguments& arguments, const std::string& argument, const Ranks& ranks) {
  const auto [name, path] = name_and_path(argument);
  const Device device = open_rank_device(arguments.device);
  const Ranks parallel = ranks_on(ranks, device);
  const bool fingerprint = !ranks || ranks->ranks().rank() == 0;
  const nn::WeightFormats formats = nn::parse_weight_formats(weight_format_of(arguments, name));
  if (path_exists(path)) {
    LAMINA_CHECK(arguments.overrides.empty(), "--set with ", path,
                 ", which has weights: only a preset's values can be changed");
    return infer::load_model(path, device, {arguments.tokenizer, formats, fingerprint, parallel});
  }
  infer::LoadedModel loaded;
  loaded.path = path;
  const arch::ArchSpec spec = arch::resolve(arch::with_overrides(arch::load_arch(path), arguments.overrides), path);
  loaded.model = std::make_unique<nn::Model>(spec, device, nn::ModelOptions{.parallel = parallel});
  if (!arguments.tokenizer.empty()) {
    loaded.tokenizer = text::load_tokenizer(arguments.tokenizer);
    LAMINA_CHECK(loaded.tokenizer->vocab_size() <= spec.vocab_size, arguments.tokenizer, ": has ",
                 loaded.tokenizer->vocab_size(), " tokens, ", path, " has ", spec.vocab_size,
                 "; set vocab_size with --set");
    if (loaded.tokenizer->eos()) loaded.stop_tokens.push_back(*loaded.tokenizer->eos());
  }
  if (fingerprint) loaded.fingerprint = infer::model_fingerprint(*loaded.model, loaded.tokenizer.get(), formats);
  loaded.model->store_weights(formats);
  return loaded;
}

void set_chat_template(serve::ServedModel& served, const infer::LoadedModel& loaded, const std::string& file) {
  if (!served.tokenizer) return;
  if (!file.empty()) {
    served.chat_template = text::ChatTemplate::parse(read_text(file), file);
    return;
  }
  std::filesystem::path folder(loaded.path);
  if (!std::filesystem::is_directory(folder)) folder = folder.parent_path();
  if (path_exists(loaded.path)) served.chat_template = text::ChatTemplate::from_folder(folder.string());
  if (served.chat_template) return;
  served.chat_template = text::ChatTemplate::default_for(*served.tokenizer);
  served.template_has_bos = false;
  served.has_own_template = false;
}

/// The weights that a served model's engine uses.
struct HostedWeights {
  std::shared_ptr<infer::LoadedModel> target;
  infer::LoadedModel draft;  ///< its model is null if there is no draft model
};

/// Options for a model's runner. They are the same on all ranks, except for fields that only sampling uses.
infer::ModelRunnerOptions runner_options(const ServeArguments& arguments) {
  infer::ModelRunnerOptions runner = arguments.runner;
  runner.rows = arguments.engine.rows;
  if (!arguments.cache_memory.empty()) runner.cache_bytes = bytes_from(arguments.cache_memory, "--cache-memory");
  return runner;
}

/// Runs on the ranks other than 0: loads their shards of all models, and follows rank 0.
void follow_server(const ServeArguments& arguments, const Ranks& ranks) {
  std::vector<infer::LoadedModel> loaded;
  follow_engine(ranks, [&](infer::StepFollower& follower) {
    for (const std::string& argument : arguments.models) {
      loaded.push_back(load_for_serving(arguments, argument, ranks));
      follower.add(*loaded.back().model, runner_options(arguments));
    }
  });
}

/// Whether a model is served without an engine, for embeddings only.
bool is_encoder(const nn::Model& model) { return !model.spec().encoder && !arch::is_causal(model.spec()); }

std::shared_ptr<serve::Backend> encoder_backend(const ServeArguments& arguments, const nn::Model& model,
                                                const std::string& name) {
  LAMINA_CHECK(arguments.draft.model.empty(), "--draft with ", name,
               ", an encoder, which generates no text; leave it out");
  const int64_t own = model.spec().context;
  const int64_t context = arguments.runner.context > 0 ? std::min(arguments.runner.context, own) : own;
  return std::make_shared<serve::TaskBackend>(
      model.spec().vocab_size, context,
      str("model ", name, " is an encoder, which generates no text; expected /v1/embeddings, or another model"));
}

/// Loads a model and starts its engine. `number` is the model's index in the list. Reports the stages of loading to
/// `progress`.
std::shared_ptr<serve::ServedModel> host(const ServeArguments& arguments, const std::string& argument, int number,
                                         const Ranks& ranks, const std::shared_ptr<infer::StepLeader>& leader,
                                         const std::shared_ptr<serve::TraceFile>& trace, Heartbeat& progress) {
  const std::string name = name_and_path(argument).first;
  progress.note(str("loading ", argument, ": reading and converting weights"));
  auto loaded = std::make_shared<infer::LoadedModel>(load_for_serving(arguments, argument, ranks));
  auto served = std::make_shared<serve::ServedModel>();
  served->id = name;
  served->created = static_cast<int64_t>(std::time(nullptr));
  served->tokenizer = loaded->tokenizer.get();
  served->fingerprint = loaded->fingerprint;
  if (served->tokenizer) served->tokenizer_fingerprint = infer::tokenizer_fingerprint(*served->tokenizer);
  served->model = loaded->model.get();
  served->vectors.normalize = true;
  if (loaded->vectors) served->vectors = *loaded->vectors;
  if (is_encoder(*loaded->model) && !ranks) {
    served->weights = loaded;
    served->backend = encoder_backend(arguments, *loaded->model, name);
    return served;
  }
  set_chat_template(*served, *loaded, arguments.chat_template);
  infer::ModelRunnerOptions runner = runner_options(arguments);
  runner.leader = leader;
  if (served->tokenizer) runner.vocab_size = served->tokenizer->vocab_size();
  infer::EngineOptions engine = arguments.engine;
  engine.prefix_cache = !arguments.no_prefix_cache;
  engine.tokenizer = served->tokenizer;
  served->events = std::make_shared<serve::EngineEvents>(trace, number);
  if (trace) trace->name_model(number, name);
  engine.observer = served->events.get();
  engine.draft_tokens = arguments.draft.tokens;
  auto weights = std::make_shared<HostedWeights>();
  weights->target = loaded;
  if (!arguments.draft.model.empty()) {
    progress.note(str("loading ", argument, ": its draft model ", arguments.draft.model));
    weights->draft = arguments.draft.load(arguments.draft.model, *loaded, weight_format_of(arguments, name),
                                          loaded->model->device());
  }
  served->weights = weights;
  progress.note(str("loading ", argument, ": allocating the KV cache"));
  auto draft = infer::draft_runner(weights->draft.model.get(), runner, engine.draft_rows);
  served->backend = std::make_shared<serve::EngineBackend>(std::make_unique<infer::ModelRunner>(*loaded->model, runner),
                                                           engine, std::move(draft));
  for (const text::TokenId id : loaded->stop_tokens) {
    if (id < served->backend->shape().vocab_size) served->stop_tokens.push_back(id);
  }
  return served;
}

std::vector<std::shared_ptr<serve::ServedModel>> host_all(const ServeArguments& arguments, const Ranks& ranks,
                                                          const std::shared_ptr<infer::StepLeader>& leader) {
  std::vector<std::shared_ptr<serve::ServedModel>> models;
  std::shared_ptr<serve::TraceFile> trace;
  if (!arguments.trace.empty()) trace = std::make_shared<serve::TraceFile>(arguments.trace);
  std::set<std::string> names;
  for (const std::string& argument : arguments.models) {  // check all models before anything is loaded
    const std::string name = name_and_path(argument).first;
    LAMINA_CHECK(names.insert(name).second, "two models are called ", name, "; give them names: NAME=PATH");
  }
  Heartbeat progress(stderr);
  for (const std::string& argument : arguments.models) {
    const auto started = std::chrono::steady_clock::now();
    progress.print(str("loading ", argument));
    models.push_back(host(arguments, argument, static_cast<int>(models.size()), ranks, leader, trace, progress));
    const serve::ServedModel& served = *models.back();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    char text[200];
    std::snprintf(text, sizeof text, ": context %lld, cache %.0f MB, %.1f s",
                  static_cast<long long>(served.backend->shape().context),
                  static_cast<double>(served.backend->stats().cache_bytes) / 1e6, seconds);
    progress.finish(
        str("loaded ", served.id, text, served.tokenizer ? "" : ", no tokenizer: prompts must be token ids"));
  }
  return models;
}

/// Writes one JSON object per request.
class AccessLog {
 public:
  explicit AccessLog(const std::string& path) : file_(path == "-" ? stderr : std::fopen(path.c_str(), "ae")) {
    LAMINA_CHECK(file_ != nullptr, "--access-log ", path, ": cannot be written; check the folder and the permissions");
  }
  ~AccessLog() {
    if (file_ != stderr) std::fclose(file_);
  }
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  void write(const serve::AccessRecord& record) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const nlohmann::ordered_json json{{"time", std::chrono::duration<double>(now).count()},
                                      {"id", record.id},
                                      {"peer", record.peer},
                                      {"method", record.method},
                                      {"path", record.path},
                                      {"status", record.status},
                                      {"bytes", record.bytes},
                                      {"seconds", record.seconds},
                                      {"complete", record.complete}};
    std::fprintf(file_, "%s\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    std::fflush(file_);
  }

 private:
  std::FILE* file_;
};

/// Makes all threads use a single heap. By default glibc gives each thread its own, which grows to the largest request
/// that the thread has seen. Small allocations come from per-thread caches in both cases.
void use_one_heap() {
#if defined(__GLIBC__)
  mallopt(M_ARENA_MAX, 1);
#endif
}

void run_server(ServeArguments arguments, const Ranks& ranks) {
  std::unique_ptr<serve::ApiKeys> keys;
  if (!arguments.api_keys.empty()) keys = std::make_unique<serve::ApiKeys>(arguments.api_keys);
  std::unique_ptr<AccessLog> log;
  if (!arguments.access_log.empty()) log = std::make_unique<AccessLog>(arguments.access_log);
  if (!arguments.max_body.empty()) arguments.server.max_body_bytes = bytes_from(arguments.max_body, "--max-body");
  arguments.server.max_held_bytes = std::max(arguments.server.max_held_bytes, 2 * arguments.server.max_body_bytes);
  arguments.policy.hosts.push_back(arguments.server.host);
  const serve::Policy policy(arguments.policy, keys.get());
  std::unique_ptr<serve::Service> service;
  serve::ServerHooks hooks;
  const auto say = [](const std::string& message) { std::fprintf(stderr, "lamina serve: %s\n", message.c_str()); };
  hooks.on_problem = say;
  hooks.on_access = [&](const serve::AccessRecord& record) {
    service->metrics().count_response(record.complete ? record.status : 0);
    if (log) log->write(record);
  };
  std::atomic<bool> lost = false;
  hooks.on_drain = [&] {
    service->begin_drain();
    if (!lost) say("finishing the requests in progress; a second signal ends them");
  };
  serve::Server* running = nullptr;
  hooks.on_hangup = [&] {
    try {
      if (keys) keys->reload();
      const bool tls = running->reload_certificate();
      if (keys) say("API keys were read again");
      if (tls) say("the certificate was read again");
      if (!keys && !tls) say("SIGHUP has no effect without --api-keys or --cert");
    } catch (const Error& error) {
      say(str(error.what(), "; the old one stays in use"));
    }
  };
  check_weights_of(arguments);
  // Listen first, so that a port in use is reported before the models are loaded.
  serve::Server server(
      arguments.server, policy, [&](auto exchange) { service->handle(exchange); }, hooks);
  running = &server;
  const auto leader = ranks ? std::make_shared<infer::StepLeader>(ranks) : nullptr;
  const auto models = host_all(arguments, ranks, leader);
  std::string names;
  for (const auto& model : models) names += (names.empty() ? "" : ", ") + model->id;
  service = std::make_unique<serve::Service>(models);
  std::printf("serving %s at %s (chat page and API)\n", names.c_str(), server.address().c_str());
  std::fflush(stdout);
  const auto on_lost = [&] {
    lost = true;
    server.drain();
  };
  const RankWatch watch(ranks, on_lost, [&] { server.stop(); });
  const bool answered_all = server.run();
  service.reset();  // ends the workers, then the engines, and last the network queue to which they post
  for (const auto& model : models) model->backend.reset();
  watch.check();
  if (leader) leader->stop();
  LAMINA_CHECK(answered_all, "serve: stopped before all requests were answered");
}

void run_serve(const ServeArguments& arguments) {
  use_one_heap();
  const Ranks ranks = open_shared_model();
  if (ranks && ranks->ranks().rank() > 0) return follow_server(arguments, ranks);
  lead_ranks(ranks, [&] { run_server(arguments, ranks); });
}

void add_network_options(CLI::App& command, ServeArguments& arguments) {
  command.add_option("--host", arguments.server.host, "Address to listen at; 0.0.0.0: all of IPv4, ::: all")
      ->capture_default_str();
  command.add_option("--port", arguments.server.port, "Port; 0: any free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command.add_option("--api-keys", arguments.api_keys, "File with one API key per line; SIGHUP reads it again");
  command
      .add_option("--origin", arguments.policy.origins, "Origin of web pages that may call the server (CORS); *: all")
      ->allow_extra_args(false)
      ->take_all();
  command.add_option("--allow-host", arguments.policy.hosts, "Name accepted in the Host header, besides localhost")
      ->allow_extra_args(false)
      ->take_all();
  command.add_option("--cert", arguments.server.certificate, "PEM certificate chain: serve HTTPS");
  command.add_option("--key", arguments.server.key, "PEM key of the certificate");
  command.add_option("--max-body", arguments.max_body, "Largest request body, for example 32MB");
  command.add_option("--max-connections", arguments.server.max_connections, "Connections at once")
      ->capture_default_str()
      ->check(at_least(1));
  command.add_option("--access-log", arguments.access_log, "File for one JSON line per request; -: standard error");
  command.add_option("--trace", arguments.trace, "File for steps, requests and queue in Chrome's trace format");
}

void add_model_options(CLI::App& command, ServeArguments& arguments) {
  command.add_option("--tokenizer", arguments.tokenizer, "Tokenizer file or folder (default: next to the model)");
  command.add_option("--chat-template", arguments.chat_template, "Jinja file (default: the model's)");
  command.add_option("--set", arguments.overrides, "Change a preset's value first: path=value")
      ->allow_extra_args(false)
      ->take_all();
  command.add_option("--weights", arguments.weights, "f32, bf16, q8, q4 or as-stored, with rules as in generate")
      ->capture_default_str();
  command.add_option("--weights-of", arguments.weights_of, "Format of one model: NAME=FORMAT; may be repeated")
      ->allow_extra_args(false)
      ->take_all();
  add_cache_dtype(command, arguments.runner.cache_dtype);
  command.add_option(
      "--cache-memory", arguments.cache_memory,
      "Memory for the KV cache of each model, for example 4GB (default: nine tenths of what is free on a "
      "GPU, at most 4 GiB on the CPU)");
  const auto number = [&](const char* name, int64_t& value, const char* help, int64_t least) {
    command.add_option(name, value, help)->capture_default_str()->check(at_least(least));
  };
  number("--context", arguments.runner.context, "Longest prompt and answer in tokens; 0: the model's own", 0);
  number("--rows", arguments.engine.rows, "Answers computed at once", 1);
  number("--step-tokens", arguments.engine.step_tokens, "Tokens in one step", 1);
  number("--max-waiting", arguments.engine.max_waiting, "Answers that may wait; beyond it requests get 429", 1);
  command.add_flag("--no-prefix-cache", arguments.no_prefix_cache, "Do not reuse the cache of common prompt prefixes");
  arguments.draft.add_to(command);
  arguments.device.add_to(command);
}

}  // namespace

void add_serve(CLI::App& program) {
  auto arguments = std::make_shared<ServeArguments>();
  arguments->engine.rows = 64;
  CLI::App* command = program.add_subcommand("serve", "Serve models over HTTP with an OpenAI-compatible API");
  command
      ->add_option("models", arguments->models,
                   "Runs, model folders or files, or presets with random weights; NAME=PATH sets the name")
      ->required();
  add_network_options(*command, *arguments);
  add_model_options(*command, *arguments);
  command->footer(
      "Example: lamina serve runs/shakespeare --port 8080\n"
      "Then:    curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"To be\", \"max_tokens\": 40}'");
  command->callback([arguments] { run_serve(*arguments); });
}

}  // namespace lamina::cli
