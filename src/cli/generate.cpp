#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/cli/beam_option.h"
#include "lamina/cli/cache_option.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/draft_option.h"
#include "lamina/cli/grammar_option.h"
#include "lamina/cli/job.h"
#include "lamina/cli/knn_option.h"
#include "lamina/cli/neighbours_option.h"
#include "lamina/cli/retrieved_prompt.h"
#include "lamina/cli/sampling_option.h"
#include "lamina/cli/text_input.h"
#include "lamina/cli/usage.h"
#include "lamina/infer/generator.h"
#include "lamina/infer/load.h"
#include "lamina/infer/text_stream.h"

namespace lamina::cli {
namespace {

using Clock = std::chrono::steady_clock;
const Clock::time_point kStarted = Clock::now();

struct GenerateArguments {
  std::string model;
  std::vector<std::string> prompts;
  std::vector<std::string> files;
  std::vector<std::string> ids;
  std::vector<std::string> stops;
  std::string tokenizer;
  std::string weights = "as-stored";
  GrammarChoice grammar;
  infer::GenerateOptions options;
  RetrievalChoice retrieval;
  KnnChoice knn;
  NeighboursChoice neighbours;
  BeamChoice beams;
  DraftChoice draft;
  DeviceChoice device;
  bool stream = true;
  bool interactive = false;
  bool no_cache = false;
  bool show_special = false;
  bool sample_padding = false;
  bool json = false;
  bool time = false;
};

/// Times of events, in seconds since the program started.
struct Moments {
  double loaded = 0;
  double first_token = 0;
  double done = 0;
};

double since_start() { return std::chrono::duration<double>(Clock::now() - kStarted).count(); }

/// A prompt and its continuation.
struct Answer {
  std::string prompt;              ///< as given by the user
  std::string shown;               ///< prompt as printed before the answer
  std::vector<text::TokenId> ids;  ///< prompt tokens
  std::string text;                ///< answer text
  infer::Generation generation;
  std::vector<nlohmann::ordered_json> sources = {};  ///< retrieved passages in the prompt
};

std::vector<text::TokenId> parse_ids(const std::string& text) {
  std::vector<text::TokenId> ids;
  size_t at = 0;
  while (at < text.size()) {
    size_t length = 0;
    try {
      ids.push_back(std::stoi(text.substr(at), &length));
    } catch (const std::exception&) {
      throw Error(str("--ids '", text, "': expected token numbers with commas between them, as in 1,9038,2501"));
    }
    at = text.find_first_not_of(", ", at + length);
    if (at == std::string::npos) break;
  }
  return ids;
}

/// Comma-separated token ids, for output without a tokenizer.
std::string list_of(const std::vector<text::TokenId>& ids) {
  std::string list;
  for (const text::TokenId id : ids) list += str(list.empty() ? "" : ",", id);
  return list;
}

Answer answer_to_text(const infer::LoadedModel& model, const std::string& text) {
  const text::Tokenizer& tokenizer = infer::require_tokenizer(model);
  text::UnknownCharacters unknown;
  const bool reads_source = model.model->spec().encoder.has_value();  // only the answer is printed then
  std::vector<text::TokenId> ids =
      reads_source ? infer::source_ids(tokenizer, text, &unknown) : infer::prompt_ids(tokenizer, text, &unknown);
  report_unknown("prompt", unknown);
  return {text, reads_source ? "" : text, std::move(ids), {}, {}};
}

Answer answer_to_ids(const GenerateArguments& arguments, const infer::LoadedModel& model, const std::string& given) {
  Answer answer{given, {}, parse_ids(given), {}, {}};
  if (model.model->spec().encoder) return answer;
  if (!model.tokenizer) {
    answer.shown = list_of(answer.ids);
    return answer;
  }
  infer::TextStream stream(*model.tokenizer, {}, arguments.show_special);
  for (const text::TokenId id : answer.ids) answer.shown += stream.push(id);
  answer.shown += stream.finish();
  return answer;
}

/// Collects all prompts. If none is given, reads standard input, or uses an empty text if there is a BOS token.
std::vector<Answer> collect_prompts(const GenerateArguments& arguments, const infer::LoadedModel& model) {
  std::vector<std::string> texts = arguments.prompts;
  for (const std::string& file : arguments.files) texts.push_back(read_input(file));
  if (texts.empty() && arguments.ids.empty()) {
    texts.push_back(::isatty(STDIN_FILENO) != 0 ? "" : read_stdin());
    if (texts[0].empty() && !infer::require_tokenizer(model).bos()) {
      throw UsageError(str("no prompt was given; add one, for example: lamina generate ", arguments.model,
                           " --prompt \"Once upon a time\" (or --prompt-file FILE, --ids 1,2,3, --interactive, or text "
                           "on standard input)"));
    }
  }
  std::vector<Answer> answers;
  answers.reserve(texts.size() + arguments.ids.size());
  std::optional<Retriever> retriever;
  if (!arguments.retrieval.index.empty()) {
    LAMINA_CHECK(arguments.ids.empty(), "--retrieve needs prompts as text; leave out --ids");
    retriever.emplace(arguments.retrieval.index, arguments.retrieval.options, model.model->device());
  }
  const int64_t context = arguments.options.context > 0 ? arguments.options.context : model.model->spec().context;
  const int64_t room = context - std::min(arguments.options.max_tokens, context / 2);
  for (const std::string& text : texts) {
    RetrievedPrompt prompt{text, {}};
    if (retriever) {
      prompt = retrieved_prompt(*retriever, arguments.retrieval, infer::require_tokenizer(model), text, room);
    }
    answers.push_back(answer_to_text(model, prompt.text));
    answers.back().sources = std::move(prompt.sources);
  }
  for (const std::string& ids : arguments.ids) answers.push_back(answer_to_ids(arguments, model, ids));
  return answers;
}

void show(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// A message if the context is full, otherwise empty.
std::string remark(const infer::Generation& generation, int64_t context) {
  if (generation.finish != infer::Finish::context) return {};
  return str("lamina: the context of ", context,
             " tokens is full; --context N allows more if the position encoding does\n");
}

/// Collects the text of each answer during generation. A single answer is printed as it is generated.
class Writer {
 public:
  Writer(const GenerateArguments& arguments, const infer::LoadedModel& model, std::vector<Answer>& answers,
         Moments& moments)
      : answers_(answers), moments_(moments), live_(arguments.stream && !arguments.json && answers.size() == 1) {
    if (!model.tokenizer) return;
    for (const Answer& answer : answers) {
      streams_.emplace_back(*model.tokenizer, arguments.stops, arguments.show_special);
      if (!model.model->spec().encoder) streams_.back().see_prompt(answer.ids);
    }
  }

  bool token(size_t row, text::TokenId id) {
    if (moments_.first_token == 0) moments_.first_token = since_start();
    if (streams_.empty()) {
      put(row, str(answers_[row].text.empty() ? "" : ",", id));
      return true;
    }
    put(row, streams_[row].push(id));
    return !streams_[row].stopped();
  }
  void finish(size_t row) {
    put(row, streams_.empty() ? "" : streams_[row].finish());
    if (live_) show("\n");
  }
  /// Prompt and answer as one text. If they are token ids, a comma separates them.
  std::string whole(size_t row) const {
    const Answer& answer = answers_[row];
    const bool separate = streams_.empty() && !answer.text.empty() && !answer.shown.empty();
    return answer.shown + (separate ? "," : "") + answer.text;
  }

 private:
  /// Prints the prompt only with the first piece of the answer, so that a rejected prompt prints nothing.
  void put(size_t row, const std::string& text) {
    answers_[row].text += text;
    if (!live_) return;
    show(begun_ ? text : whole(row));
    begun_ = true;
  }

  std::vector<Answer>& answers_;
  Moments& moments_;
  bool live_;
  bool begun_ = false;  ///< the prompt has been printed
  std::vector<infer::TextStream> streams_;
};

std::string finish_name(const Answer& answer) {
  return answer.generation.finish == infer::Finish::asked ? "stop_string"
                                                          : std::string(infer::name_of(answer.generation.finish));
}

void print_json(const std::vector<Answer>& answers, const Moments& moments) {
  nlohmann::ordered_json report;
  for (const Answer& answer : answers) {
    report["answers"].push_back({{"prompt", answer.prompt},
                                 {"text", answer.text},
                                 {"prompt_tokens", answer.ids.size()},
                                 {"ids", answer.generation.ids},
                                 {"finish", finish_name(answer)}});
    if (!answer.sources.empty()) report["answers"].back()["sources"] = answer.sources;
  }
  report["seconds"] = {{"load", moments.loaded}, {"first_token", moments.first_token}, {"done", moments.done}};
  std::printf("%s\n", report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

void print_times(const std::vector<Answer>& answers, const Moments& moments) {
  size_t prompt = 0;
  size_t tokens = 0;
  for (const Answer& answer : answers) {
    prompt += answer.ids.size();
    tokens += answer.generation.ids.size();
  }
  std::fprintf(stderr, "lamina: loaded after %.0f ms, first token after %.0f ms; %zu prompt tokens, %zu generated",
               moments.loaded * 1e3, moments.first_token * 1e3, prompt, tokens);
  if (tokens > answers.size() && moments.done > moments.first_token) {
    std::fprintf(stderr, ", %.1f tokens/s after the first",
                 static_cast<double>(tokens - answers.size()) / (moments.done - moments.first_token));
  }
  std::fputs("\n", stderr);
}

void run_prompts(const GenerateArguments& arguments, const infer::LoadedModel& model, Moments& moments) {
  std::vector<Answer> answers = collect_prompts(arguments, model);
  std::vector<std::vector<text::TokenId>> prompts;
  prompts.reserve(answers.size());
  for (const Answer& answer : answers) prompts.push_back(answer.ids);
  Writer writer(arguments, model, answers, moments);
  const auto on_token = [&](size_t row, text::TokenId id) { return writer.token(row, id); };
  std::vector<infer::Generation> generations;
  if (arguments.beams.count > 0) {
    generations = arguments.beams.search(*model.model, prompts, arguments.options);
    for (size_t row = 0; row < generations.size(); ++row) {
      for (const text::TokenId id : generations[row].ids) {
        if (!on_token(row, id)) break;
      }
    }
  } else {
    generations = infer::generate(*model.model, prompts, arguments.options, on_token);
  }
  moments.done = since_start();
  const int64_t context = arguments.options.context > 0 ? arguments.options.context : model.model->spec().context;
  for (size_t i = 0; i < answers.size(); ++i) {
    writer.finish(i);
    answers[i].generation = generations[i];
    if (arguments.json) continue;
    if (answers.size() > 1) std::printf("== prompt %zu\n", i + 1);
    if (answers.size() > 1 || !arguments.stream) show(writer.whole(i) + "\n");
    print_sources(answers[i].sources);
    std::fputs(remark(generations[i], context).c_str(), stderr);
  }
  if (arguments.json) print_json(answers, moments);
  if (arguments.time) print_times(answers, moments);
}

void run_interactive(const GenerateArguments& arguments, const infer::LoadedModel& model) {
  const text::Tokenizer& tokenizer = infer::require_tokenizer(model);
  LAMINA_CHECK(arguments.options.cache, "--interactive needs the KV cache; leave out --no-cache");
  infer::Session session(*model.model, arguments.options.context, arguments.options.cache_dtype,
                         arguments.options.draft_tokens, arguments.options.draft_model);
  const bool person = ::isatty(STDIN_FILENO) != 0;
  if (person)
    std::fputs("Enter a line; the model continues it. /clear empties the context, /quit or Ctrl-D ends.\n", stderr);
  std::string line;
  while (true) {
    if (person) std::fputs("> ", stderr);
    if (!std::getline(std::cin, line) || line == "/quit") return;
    if (line == "/clear") {
      session.clear();
      continue;
    }
    std::vector<text::TokenId> ids;
    if (session.length() == 0 && tokenizer.bos()) ids.push_back(*tokenizer.bos());
    text::UnknownCharacters unknown;
    tokenizer.encode(line, ids, /*special=*/false, &unknown);
    report_unknown("line", unknown);
    infer::TextStream stream(tokenizer, arguments.stops, arguments.show_special);
    stream.see_prompt(ids);
    try {
      const infer::Generation answer = session.turn(ids, arguments.options, [&](size_t /*row*/, text::TokenId id) {
        show(stream.push(id));
        return !stream.stopped();
      });
      show(stream.finish() + "\n");
      std::fputs(remark(answer, session.context()).c_str(), stderr);
    } catch (const Error& error) {
      std::fprintf(stderr, "lamina: %s\n", error.what());
    }
  }
}

/// Beam search supports neither turns nor constraints on the answer.
void check_beams(const GenerateArguments& arguments) {
  if (arguments.beams.count == 0) return;
  if (arguments.interactive) throw UsageError("--beams and --interactive were given; expected one of them");
  if (!arguments.neighbours.index.empty()) throw UsageError("--beams and --retrieval were given; expected one of them");
  if (arguments.no_cache) throw UsageError("--beams needs the KV cache; leave out --no-cache");
  if (!arguments.draft.model.empty()) throw UsageError("--beams and --draft were given; expected one of them");
  if (!arguments.knn.store.empty()) throw UsageError("--beams and --knn were given; expected one of them");
  if (arguments.grammar.open()) {
    throw UsageError(
        "--beams and a grammar (--json-schema, --json-object, --regex, --grammar) were given; expected one of them");
  }
}

/// All processes of a job must generate the same tokens, but only the first one could read standard input.
void check_shared(const GenerateArguments& arguments) {
  if (arguments.interactive) throw UsageError("--interactive works in one process only; give prompts with --prompt");
  if (arguments.prompts.empty() && arguments.files.empty() && arguments.ids.empty()) {
    throw UsageError("several processes need the prompt as --prompt, --prompt-file or --ids, not on standard input");
  }
}

void run(GenerateArguments& arguments) {
  check_beams(arguments);
  arguments.options.cache = !arguments.no_cache;
  const Device device = open_rank_device(arguments.device);
  const auto ranks = open_shared_model();
  if (ranks) check_shared(arguments);
  const auto parallel = ranks_on(ranks, device);
  const infer::LoadedModel model = infer::load_model(
      arguments.model, device,
      {arguments.tokenizer, nn::parse_weight_formats(arguments.weights), /*fingerprint=*/false, parallel});
  const arch::ArchSpec& spec = model.model->spec();
  LAMINA_CHECK(spec.encoder || arch::is_causal(spec), arguments.model,
               ": is an encoder, which generates no text; use lamina embed or lamina eval");
  LAMINA_CHECK(!spec.encoder || (arguments.draft.model.empty() && arguments.draft.tokens == 0), arguments.model,
               ": is an encoder–decoder, for which no tokens are drafted; leave out --draft and --draft-tokens");
  arguments.options.stop_tokens = model.stop_tokens;
  LAMINA_CHECK(arguments.stops.empty() || model.tokenizer, "--stop needs a tokenizer; give one with --tokenizer PATH");
  if (model.tokenizer && !arguments.sample_padding)
    arguments.options.sampler.vocab_size = model.tokenizer->vocab_size();
  arguments.options.mask = arguments.grammar.mask_for(model, arguments.model);
  LAMINA_CHECK(arguments.options.cache || !arguments.options.mask,
               "--json-schema, --json-object, --regex and --grammar need the KV cache; leave out --no-cache");
  arguments.options.knn = arguments.knn.open(*model.model);
  arguments.options.neighbours = arguments.neighbours.open(model, arguments.retrieval.options);
  const bool searches = !arguments.retrieval.index.empty() || arguments.options.knn || arguments.options.neighbours;
  LAMINA_CHECK(!arguments.interactive || !searches,
               "--interactive cannot use --retrieve, --retrieval or --knn; give the prompt with --prompt");
  LAMINA_CHECK(!arguments.interactive || !model.model->spec().encoder, arguments.model,
               ": is an encoder–decoder, which answers one text; leave out --interactive");
  infer::LoadedModel draft;
  arguments.options.draft_tokens = arguments.draft.tokens;
  if (!arguments.draft.model.empty()) {
    draft = arguments.draft.load(arguments.draft.model, model, arguments.weights, device);
    arguments.options.draft_model = draft.model.get();
  }
  Moments moments;
  moments.loaded = since_start();
  arguments.interactive ? run_interactive(arguments, model) : run_prompts(arguments, model, moments);
}

}  // namespace

void add_generate(CLI::App& program) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command =
      program.add_subcommand("generate", "Continue texts with a model, or answer them with an encoder–decoder");
  command
      ->add_option("model", arguments->model,
                   "A lamina or Hugging Face folder, a training run's folder, or a llama2.c .bin file")
      ->required();
  command->add_option("--prompt,-p", arguments->prompts, "A text to continue; may be given several times")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--prompt-file", arguments->files,
                   "A file or pipe with a text to continue, - for standard input; may be given several times")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--ids", arguments->ids, "A prompt as token numbers, 1,9038,2501: needs no tokenizer")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--tokens,-n", arguments->options.max_tokens, "Most tokens of an answer")
      ->capture_default_str()
      ->check(at_least(1));
  add_sampling(*command, arguments->options.sampler);
  arguments->beams.add_to(*command);
  command
      ->add_option("--logit-cap", arguments->options.logit_cap,
                   "Soft-cap of the final logits: C tanh(logit / C) (0: none beyond the model's own)")
      ->capture_default_str()
      ->check(between(0, std::numeric_limits<double>::max()));
  arguments->grammar.add_to(*command);
  command
      ->add_option("--stop", arguments->stops,
                   "A text that ends the answer and is not printed; may be given several times")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--context", arguments->options.context,
                   "Most tokens of prompt and answer (default: the model's context)")
      ->check(at_least(1));
  command->add_option("--tokenizer", arguments->tokenizer, "Tokenizer file or folder (default: next to the model)");
  command
      ->add_option("--weights", arguments->weights,
                   "f32, bf16, q8, q4 or as-stored; rules may follow: q4,head.=q8,layers.0.=f32")
      ->capture_default_str();
  add_cache_dtype(*command, arguments->options.cache_dtype);
  arguments->draft.add_to(*command);
  arguments->retrieval.add_to(*command);
  arguments->knn.add_to(*command);
  arguments->neighbours.add_to(*command);
  arguments->device.add_to(*command);
  command->add_flag("--stream,!--no-stream", arguments->stream, "Print a single answer as it comes (default)");
  command->add_flag("--interactive,-i", arguments->interactive,
                    "Read lines and continue each, with all earlier lines as context");
  command->add_flag("--show-special", arguments->show_special,
                    "Print special tokens by name, and ids beyond the tokenizer's vocabulary as <ID>");
  command->add_flag("--sample-padding", arguments->sample_padding,
                    "Also sample ids beyond the tokenizer's vocabulary, which models with padded vocabularies have");
  command->add_flag("--no-cache", arguments->no_cache,
                    "Recompute all tokens for every new one, without a KV cache: slow, for comparison");
  command->add_flag("--json", arguments->json, "Print answers, token numbers and times as JSON");
  command->add_flag("--time", arguments->time, "Print times to standard error");
  command->footer("Example: lamina generate runs/quickstart --prompt \"ROMEO:\" --tokens 200 --temperature 0.8");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
