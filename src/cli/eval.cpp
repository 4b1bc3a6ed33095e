#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "lamina/arch/plan.h"
#include "lamina/base/files.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/eval_objective.h"
#include "lamina/cli/job.h"
#include "lamina/cli/knn_option.h"
#include "lamina/cli/neighbours_option.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/text_input.h"
#include "lamina/cli/usage.h"
#include "lamina/data/token_file.h"
#include "lamina/data/tokenizer_identity.h"
#include "lamina/infer/evaluate.h"
#include "lamina/infer/load.h"
#include "lamina/train/run_tokens.h"

namespace lamina::cli {
namespace {

struct EvalArguments {
  std::vector<std::string> models;
  std::string data;
  std::string tokenizer;
  std::vector<std::string> weights;
  infer::EvaluateOptions options;
  std::vector<int64_t> lengths;
  int64_t tokens = 0;
  KnnChoice knn;
  NeighboursChoice neighbours;
  RetrieverOptions retriever;
  ObjectiveChoice objective;
  DeviceChoice device;
  bool json = false;
};

/// The text, encoded by one model's tokenizer.
struct Reading {
  std::vector<text::TokenId> ids;
  int64_t bytes = 0;  ///< size of the predicted text; 0 if unknown
  text::UnknownCharacters unknown;
};

struct Row {
  std::string model;
  std::string weights;
  infer::Evaluation result;
  int64_t bytes = 0;
  int64_t unknown = 0;                  ///< number of characters that are not in the vocabulary
  std::string objective = {};           ///< objective of an encoder or encoder–decoder; empty: next token
  std::optional<double> accuracy = {};  ///< only for an objective
};

/// Size of all tokens except the first, in bytes of text. Padding ids beyond the tokenizer's vocabulary count as 0.
int64_t predicted_bytes(const text::Tokenizer& tokenizer, std::vector<text::TokenId> ids) {
  if (ids.empty()) return 0;
  ids.erase(ids.begin());
  std::erase_if(ids, [&](text::TokenId id) { return id >= tokenizer.vocab_size(); });
  return static_cast<int64_t>(tokenizer.decode(ids).size());
}

Reading read_tokens(const EvalArguments& arguments, const infer::LoadedModel& model) {
  const data::TokenFile file = data::TokenFile::open(arguments.data);
  if (model.tokenizer) data::check_tokens_of_model(file, model.path, *model.tokenizer, model.tokenizer_path);
  std::vector<int64_t> ids(
      static_cast<size_t>(arguments.tokens > 0 ? std::min(arguments.tokens, file.size()) : file.size()));
  file.read(0, ids);
  Reading reading;
  reading.ids.assign(ids.begin(), ids.end());
  if (model.tokenizer) reading.bytes = predicted_bytes(*model.tokenizer, reading.ids);
  return reading;
}

/// Reads the data. `text` is the content of --data; empty if that is a token file.
Reading read_data(const EvalArguments& arguments, const std::optional<std::string>& text,
                  const infer::LoadedModel& model) {
  if (!text) return read_tokens(arguments, model);
  const text::Tokenizer& tokenizer = infer::require_tokenizer(model);
  Reading reading;
  reading.ids = infer::prompt_ids(tokenizer, *text, &reading.unknown);
  LAMINA_CHECK(!reading.ids.empty(), arguments.data, ": has no character of the vocabulary; give another text");
  if (arguments.tokens > 0 && static_cast<int64_t>(reading.ids.size()) > arguments.tokens) {
    reading.ids.resize(static_cast<size_t>(arguments.tokens));
  }
  reading.bytes = predicted_bytes(tokenizer, reading.ids);
  return reading;
}

bool is_json_lines(const std::string& path) { return path.ends_with(".jsonl") || path.ends_with(".ndjson"); }

/// Bounds of buckets by context length: the given ones, or 0, 16, 64, 256, … below the context.
std::vector<int64_t> bounds_of(const EvalArguments& arguments, int64_t context) {
  std::vector<int64_t> bounds = arguments.lengths;
  for (int64_t bound = 16; bounds.size() < 64 && arguments.lengths.empty() && bound < context; bound *= 4) {
    bounds.push_back(bound);
  }
  bounds.insert(bounds.begin(), 0);
  if (bounds.back() <= context) bounds.push_back(context + 1);
  return bounds;
}

Row evaluate_by_objective(const EvalArguments& arguments, const std::optional<std::string>& text,
                          const std::string& path, const std::string& weights, const infer::LoadedModel& model) {
  LAMINA_CHECK(arguments.knn.store.empty() && arguments.neighbours.index.empty() && arguments.options.stride == 0, path,
               ": is an encoder or encoder–decoder; leave out --stride, --knn and --retrieval");
  ObjectiveChoice choice = arguments.objective;
  choice.context = arguments.options.context;
  const bool pairs = text && model.model->spec().encoder && is_json_lines(arguments.data);
  LAMINA_CHECK(!pairs || (arguments.tokens == 0 && choice.context == 0), arguments.data,
               ": pairs of source and target are measured whole; leave out --tokens and --context");
  choice.progress = progress_of(str(path, " ", weights), pairs ? arch::short_bytes : count_of_tokens);
  Reading reading;
  ObjectiveResult measured;
  if (pairs) {
    measured = evaluate_pairs(choice, model, *text, arguments.data);
  } else {
    reading = read_data(arguments, text, model);
    report_unknown(arguments.data, reading.unknown);
    measured = evaluate_objective(choice, path, model, reading.ids);
  }
  return {path, weights, measured.loss, measured.bytes, reading.unknown.total(), measured.objective, measured.accuracy};
}

Row evaluate(const EvalArguments& arguments, const std::optional<std::string>& text, const std::string& path,
             const std::string& weights, const Device& device,
             const std::shared_ptr<const nn::TensorParallel>& parallel) {
  const infer::LoadedModel model = infer::load_model(
      path, device, {arguments.tokenizer, nn::parse_weight_formats(weights), /*fingerprint=*/false, parallel});
  if (needs_objective(model.model->spec())) return evaluate_by_objective(arguments, text, path, weights, model);
  LAMINA_CHECK(arguments.objective.objective.empty(), path,
               ": is a decoder, which predicts the next token; leave out --objective");
  const Reading reading = read_data(arguments, text, model);
  report_unknown(arguments.data, reading.unknown);
  infer::EvaluateOptions options = arguments.options;
  options.lengths = bounds_of(arguments, options.context > 0 ? options.context : model.model->spec().context);
  options.knn = arguments.knn.open(*model.model);
  options.neighbours = arguments.neighbours.open(model, arguments.retriever);
  options.progress = progress_of(str(path, " ", weights), count_of_tokens);
  return {path, weights, infer::evaluate(*model.model, reading.ids, options), reading.bytes, reading.unknown.total()};
}

nlohmann::ordered_json as_json(const Row& row) {
  nlohmann::ordered_json json{{"model", row.model},
                              {"weights", row.weights},
                              {"tokens", row.result.tokens},
                              {"loss", row.result.loss()},
                              {"perplexity", row.result.perplexity()}};
  if (row.bytes > 0) {
    json["bytes"] = row.bytes;
    json["bits_per_byte"] = row.result.bits_per_byte(row.bytes);
  }
  if (!row.objective.empty()) json["objective"] = row.objective;
  if (row.accuracy) json["accuracy"] = *row.accuracy;
  if (row.unknown > 0) json["unknown_characters"] = row.unknown;
  for (const infer::LengthLoss& bucket : row.result.by_length) {
    json["by_length"].push_back(
        {{"begin", bucket.begin}, {"end", bucket.end}, {"tokens", bucket.tokens}, {"loss", bucket.loss}});
  }
  return json;
}

void print_table(const std::vector<Row>& rows) {
  std::printf("%-40s %-10s %9s %9s %10s %9s %9s\n", "model", "weights", "tokens", "loss", "perplexity", "bits/byte",
              "to first");
  for (const Row& row : rows) {
    std::printf("%-40s %-10s %9lld %9.4f %10.3f ", row.model.c_str(), row.weights.c_str(),
                static_cast<long long>(row.result.tokens), row.result.loss(), row.result.perplexity());
    row.bytes > 0 ? std::printf("%9.4f ", row.result.bits_per_byte(row.bytes)) : std::printf("%9s ", "-");
    std::printf("%+8.2f%%\n", (row.result.perplexity() / rows[0].result.perplexity() - 1) * 100);
  }
}

void print_lengths(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    if (row.accuracy) {
      std::printf("\n%s %s: predicts %s; %.1f %% of the predicted tokens are ranked first\n", row.model.c_str(),
                  row.weights.c_str(), row.objective.c_str(), 100 * *row.accuracy);
      continue;
    }
    std::printf("\n%s %s: loss by tokens before the predicted one\n", row.model.c_str(), row.weights.c_str());
    for (const infer::LengthLoss& bucket : row.result.by_length) {
      if (bucket.tokens == 0) continue;
      std::printf("  %7lld … %-7lld %9lld tokens %9.4f\n", static_cast<long long>(bucket.begin),
                  static_cast<long long>(bucket.end - 1), static_cast<long long>(bucket.tokens), bucket.loss);
    }
  }
}

/// The validation file in a folder of `lamina data prepare`. Any other path is returned unchanged.
std::string validation_tokens_of(const std::string& data) {
  if (!folder_exists(data)) return data;
  const std::string tokens = data + "/" + train::kValidationTokens;
  LAMINA_CHECK(file_exists(tokens), data,
               ": is a folder without validation.bin; give a text, a token file, or a folder ",
               "that `lamina data prepare` made with a validation part");
  return tokens;
}

void run(EvalArguments& arguments) {
  const Device device = open_rank_device(arguments.device);
  const auto parallel = ranks_on(open_shared_model(), device);
  if (arguments.weights.empty() || arguments.weights.front() != "as-stored") {
    arguments.weights.insert(arguments.weights.begin(), "as-stored");
  }
  for (const std::string& model : arguments.models) {  // check all models before anything is measured
    LAMINA_CHECK(path_exists(model), model, ": does not exist; give a model's folder, a run's, or a llama2.c file");
  }
  arguments.data = validation_tokens_of(arguments.data);
  std::optional<std::string> text;  // read only once, because a pipe cannot be read again
  if (!data::is_token_file(arguments.data)) {
    text = read_input(arguments.data);
    LAMINA_CHECK(!text->empty(), arguments.data, ": is empty; give a text");
  }
  std::vector<Row> rows;
  for (const std::string& model : arguments.models) {
    for (const std::string& weights : arguments.weights) {
      rows.push_back(evaluate(arguments, text, model, weights, device, parallel));
    }
  }
  if (!arguments.json) {
    print_table(rows);
    print_lengths(rows);
    return;
  }
  nlohmann::ordered_json report{{"data", arguments.data}};
  for (const Row& row : rows) report["rows"].push_back(as_json(row));
  std::printf("%s\n", report.dump(2).c_str());
}

}  // namespace

void add_eval(CLI::App& program) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command =
      program.add_subcommand("eval", "Measure how well models predict a text: loss, perplexity, bits per byte");
  command->add_option("models", arguments->models, "Models as in generate; each becomes a row of the table")
      ->required();
  command
      ->add_option("--data", arguments->data,
                   "A text file or pipe, - for standard input, a token file (.bin, .tokens), or the validation part of "
                   "a folder made by `lamina data prepare`")
      ->required();
  command->add_option("--tokenizer", arguments->tokenizer, "Tokenizer file or folder (default: next to each model)");
  command
      ->add_option("--weights", arguments->weights,
                   "Formats to compare with the weights as stored: q8, q4, bf16, or with rules; several times")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--context", arguments->options.context, "Tokens of a window (default: the model's context)")
      ->check(at_least(1));
  command
      ->add_option("--stride", arguments->options.stride,
                   "Distance of windows; below the context they overlap (default: no overlap)")
      ->check(at_least(1));
  command->add_option("--lengths", arguments->lengths, "Bounds of the table by context length: 16,64,256")
      ->delimiter(',')
      ->check(at_least(1));
  command->add_option("--tokens", arguments->tokens, "Only the first N tokens of the data")->check(at_least(1));
  arguments->knn.add_to(*command);
  arguments->neighbours.add_to(*command);
  arguments->retriever.add_to(*command);
  arguments->objective.add_to(*command);
  arguments->device.add_to(*command);
  command->add_flag("--json", arguments->json, "Print the figures as JSON");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
