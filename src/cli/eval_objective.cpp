#include "lamina/cli/eval_objective.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lamina/arch/layers.h"
#include "lamina/base/files.h"
#include "lamina/base/json.h"
#include "lamina/train/evaluation.h"
#include "lamina/train/recipe.h"

namespace lamina::cli {
namespace {

/// Number of tokens in a batch, unless the run's recipe gives its rows.
constexpr int64_t kBatchTokens = 2048;

/// Ids as a token file in memory, in the 32-bit format of llm.c.
data::TokenFile in_memory(std::span<const text::TokenId> ids, const std::string& name) {
  constexpr size_t kHeaderNumbers = 256;
  auto numbers = std::make_shared<std::vector<int32_t>>(kHeaderNumbers);
  (*numbers)[0] = 20240801;
  (*numbers)[1] = 7;
  (*numbers)[2] = static_cast<int32_t>(ids.size());
  numbers->insert(numbers->end(), ids.begin(), ids.end());
  return data::TokenFile::parse({std::as_writable_bytes(std::span(*numbers)), numbers}, name);
}

/// The recipe of a run, if the model is one of its checkpoints or its folder.
std::optional<train::Recipe> recipe_of(const std::string& path) {
  const std::filesystem::path given(path);
  for (const auto& folder : {given, given.parent_path()}) {
    const std::string file = (folder / "recipe.json").string();
    if (file_exists(file)) return train::read_run_recipe(read_text(file), file);
  }
  return {};
}

/// The usual training objective for this kind of model, with the tokenizer's special tokens.
data::Objective usual_objective(const arch::ArchSpec& spec, const text::Tokenizer& tokenizer) {
  if (!spec.encoder) {
    data::MaskedObjective masked;
    if (!tokenizer.id_of(masked.mask_token)) masked.mask_token = "<mask>";
    return masked;
  }
  data::SpanObjective span;
  span.sentinels = 0;
  while (span.sentinels < 100 && tokenizer.id_of(str("<extra_id_", span.sentinels, ">"))) ++span.sentinels;
  if (span.sentinels > 0) return span;
  return data::DenoiseObjective();
}

data::Objective parse_objective(const std::string& text) {
  return train::read_recipe(R"({"architecture": "llama-tiny", "steps": 1})", "--objective", {"objective=" + text})
      .objective;
}

void add_to_result(const train::Tally& tally, ObjectiveResult& result) {
  const train::Measured measured = tally.result();
  result.loss.tokens = static_cast<int64_t>(tally.numbers()[1]);
  result.loss.total = tally.numbers()[0];
  if (measured.accuracy) result.accuracy = measured.accuracy->tokens;
}

}  // namespace

void ObjectiveChoice::add_to(CLI::App& command) {
  command.add_option("--objective", objective,
                     "Of an encoder or encoder–decoder: masked, span, denoise, or JSON as in a recipe (default: the "
                     "run's; else masked for encoders, span or denoise for encoder–decoders)");
  command.add_option("--source-key", source_key, "Key of an encoder–decoder's source in JSON lines")
      ->capture_default_str();
  command.add_option("--target-key", target_key, "Key of its target in JSON lines")->capture_default_str();
}

bool needs_objective(const arch::ArchSpec& spec) { return spec.encoder.has_value() || !arch::is_causal(spec); }

ObjectiveResult evaluate_objective(const ObjectiveChoice& choice, const std::string& path,
                                   const infer::LoadedModel& model, std::span<const text::TokenId> ids) {
  const arch::ArchSpec& spec = model.model->spec();
  const text::Tokenizer& tokenizer = infer::require_tokenizer(model);
  const std::optional<train::Recipe> recipe = recipe_of(path);
  const bool of_run = recipe && !recipe->data.task && choice.objective.empty();
  const data::Objective objective = of_run                     ? recipe->objective
                                    : choice.objective.empty() ? usual_objective(spec, tokenizer)
                                                               : parse_objective(choice.objective);
  const std::string name(data::objective_name(objective));
  LAMINA_CHECK(spec.encoder ? data::has_source(objective) : name == "masked", path, ": the objective ", name,
               " does not fit; expected ",
               spec.encoder ? "span or denoise for an encoder–decoder" : "masked for an encoder");
  int64_t length = choice.context > 0 ? choice.context : of_run ? recipe->length : spec.context;
  length = std::min(length, static_cast<int64_t>(ids.size()) - 1);
  data::check_objective(objective, length);
  const int64_t rows = of_run && choice.context == 0 ? recipe->eval_batch : std::max<int64_t>(1, kBatchTokens / length);
  std::optional<int64_t> start_token;
  if (spec.encoder) start_token = spec.encoder->start_token;
  const train::EvaluationData data = train::evaluation_of(in_memory(ids, "the data"), rows, length, objective,
                                                          data::vocabulary_for(objective, tokenizer), start_token);
  ObjectiveResult result{.objective = name};
  train::Tally tally;
  for (int64_t i = 0; i < data.batches; ++i) {
    tally.add(*model.model, data.at(i), /*accuracy=*/true);
    if (choice.progress) choice.progress((i + 1) * rows * length, data.batches * rows * length);
  }
  add_to_result(tally, result);
  return result;
}

ObjectiveResult evaluate_pairs(const ObjectiveChoice& choice, const infer::LoadedModel& model, const std::string& lines,
                               const std::string& name) {
  const text::Tokenizer& tokenizer = infer::require_tokenizer(model);
  ObjectiveResult result{.objective = "targets"};
  train::Tally tally;
  std::istringstream input(lines);
  std::string line;
  int64_t read = 0;
  for (int64_t number = 1; std::getline(input, line); ++number) {
    read = std::min(read + static_cast<int64_t>(line.size()) + 1, static_cast<int64_t>(lines.size()));
    if (line.empty()) continue;
    const std::string place = str(name, ": line ", number);
    const auto json = parse_json<nlohmann::json>(line, place);
    const auto text_of = [&](const std::string& key) {
      LAMINA_CHECK(json.is_object() && json.contains(key) && json[key].is_string(), place, ": has no text \"", key,
                   "\"; name the keys with --source-key and --target-key");
      return json[key].get<std::string>();
    };
    const std::vector<text::TokenId> source = infer::source_ids(tokenizer, text_of(choice.source_key));
    const std::string target = text_of(choice.target_key);
    std::vector<text::TokenId> wanted;
    tokenizer.encode(target, wanted, /*special=*/true);
    if (tokenizer.eos()) wanted.push_back(*tokenizer.eos());
    LAMINA_CHECK(!source.empty() && !wanted.empty(), place, ": the source or the target has no tokens; leave it out");
    data::Batch batch{.rows = 1, .length = static_cast<int64_t>(wanted.size())};
    batch.ids = {model.model->spec().encoder->start_token};
    batch.ids.insert(batch.ids.end(), wanted.begin(), wanted.end() - 1);
    batch.targets.assign(wanted.begin(), wanted.end());
    batch.source.assign(source.begin(), source.end());
    batch.source_length = static_cast<int64_t>(source.size());
    tally.add(*model.model, batch, /*accuracy=*/true);
    result.bytes += static_cast<int64_t>(target.size());
    if (choice.progress) choice.progress(read, static_cast<int64_t>(lines.size()));
  }
  LAMINA_CHECK(tally.numbers()[1] > 0, name, ": has no lines; give JSON lines with a source and a target each");
  add_to_result(tally, result);
  return result;
}

}  // namespace lamina::cli
