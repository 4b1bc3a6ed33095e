#include "lamina/train/run_data.h"

#include <algorithm>
#include <filesystem>

#include "lamina/arch/plan.h"
#include "lamina/arch/reach.h"
#include "lamina/base/files.h"
#include "lamina/text/load.h"
#include "lamina/train/run_tokens.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;

bool is_run(const std::string& folder) { return path_exists(fs::path(folder) / "recipe.json"); }

void check_target(const std::string& folder, bool force) {
  if (!path_exists(folder)) return;
  const bool run = is_run(folder);
  LAMINA_CHECK(run || (folder_exists(folder) && fs::is_empty(folder)), folder,
               ": exists and is not a run; choose another folder (--run)");
  LAMINA_CHECK(force || !run, folder, ": a run already exists here; resume it (--resume ", folder,
               "), choose another folder (--run), or replace it (--force)");
}

data::TokenFile open_tokens(const std::string& path, const char* key) {
  LAMINA_CHECK(path_exists(path), path, ": the run's ", key,
               " does not exist; put it back, or start a run with another");
  return data::TokenFile::open(path);
}

/// Makes paths absolute, so that the run can resume from any folder. Resolves a folder of `lamina data prepare` to its
/// files.
void settle_names(Recipe& recipe) {
  for (std::string* path : {&recipe.data.train, &recipe.data.validation, &recipe.from}) {
    if (!path->empty()) *path = fs::absolute(*path).lexically_normal().string();
  }
  if (recipe.data.train.empty()) return;
  const fs::path prepared = recipe.data.train;
  if (!path_exists(prepared / kTrainTokens)) return;
  recipe.data.train = (prepared / kTrainTokens).string();
  if (recipe.data.validation.empty() && path_exists(prepared / kValidationTokens)) {
    recipe.data.validation = (prepared / kValidationTokens).string();
  }
}

/// The first token of a new encoder–decoder model's decoder: that of the objective, otherwise padding, as in T5.
int64_t start_token_of(const Recipe& recipe, const text::Tokenizer* tokenizer) {
  if (recipe.data.task) return data::kAgain;
  const data::ObjectiveVocabulary vocabulary = data::vocabulary_for(recipe.objective, *tokenizer);
  if (std::holds_alternative<data::DenoiseObjective>(recipe.objective)) return vocabulary.tokens.back();
  return tokenizer->id_of("<pad>").value_or(vocabulary.padding);
}

/// The special tokens of the run's tokenizer that the recipe's objective uses. Empty for causal and prefix.
data::ObjectiveVocabulary run_vocabulary(const std::string& run_folder, const Recipe& recipe) {
  if (data::objective_tokens(recipe.objective).empty()) return {};
  const std::string file = text::tokenizer_file(run_folder);
  LAMINA_CHECK(!file.empty(), run_folder, ": the objective ", data::objective_name(recipe.objective),
               " needs the run's tokenizer, and there is none; put tokenizer.json back");
  return data::vocabulary_for(recipe.objective, *text::load_tokenizer(file));
}

/// Throws an Error if a new run with retrieval lacks the neighbours of its training tokens.
void check_neighbours(const Recipe& recipe) {
  if (!recipe.architecture.retrieval || !recipe.data.neighbours || recipe.data.task) return;
  LAMINA_CHECK(data::is_token_file(recipe.data.train), recipe.data.train,
               ": is a text, whose neighbours are not known; prepare it (lamina data prepare), find its neighbours "
               "(lamina index neighbours), and train on the prepared folder, or set data.neighbours=false");
  const data::NeighbourSizes sizes = neighbour_sizes(recipe.architecture);
  data::Neighbours::open(open_tokens(recipe.data.train, "data.train"), sizes, 0);
}

/// Adds neighbours to the batches of a recipe with retrieval.
void add_neighbours(const Recipe& recipe, RunData& data) {
  if (!recipe.architecture.retrieval || !recipe.data.neighbours) return;
  const data::NeighbourSizes sizes = neighbour_sizes(recipe.architecture);
  const int64_t padding = recipe.architecture.retrieval->padding_token;
  const auto with = [&](const data::TokenFile& tokens, auto batch_at) {
    return [batch_at, neighbours = data::Neighbours::open(tokens, sizes, padding)](int64_t index) {
      data::Batch batch = batch_at(index);
      neighbours.add_to(batch);
      return batch;
    };
  };
  data.train_neighbours = data::Neighbours::open(*data.train_tokens, sizes, padding).file();
  data.batch_at = with(*data.train_tokens, data.batch_at);
  if (data.validation) data.validation->at = with(*data.validation_tokens, data.validation->at);
  data.about += str(", ", sizes.count, " neighbours for each chunk of ", sizes.chunk);
}

RunData of_tokens(const std::string& run_folder, const Recipe& recipe, data::TokenFile train,
                  std::optional<data::TokenFile> validation) {
  const data::BatchOptions options{.batch = recipe.batch,
                                   .length = recipe.length,
                                   .order = recipe.data.order,
                                   .seed = static_cast<uint64_t>(recipe.seed),
                                   .align = recipe.architecture.retrieval ? recipe.architecture.retrieval->chunk : 1};
  RunData data;
  data::ObjectiveVocabulary vocabulary;
  std::optional<int64_t> start_token;
  if (recipe.architecture.encoder) start_token = recipe.architecture.encoder->start_token;
  if (data::is_causal(recipe.objective)) {
    data.batch_at = [batches = data::Batches(train, options)](int64_t pass) { return batches.at(pass); };
  } else {
    vocabulary = run_vocabulary(run_folder, recipe);
    const data::ObjectiveBatches batches(train, options, recipe.objective, vocabulary, start_token);
    data.batch_at = [batches](int64_t pass) { return batches.at(pass); };
  }
  data.about = arch::with_commas(train.size()) + " tokens to learn from";
  if (validation) {
    data.validation = data::is_causal(recipe.objective) ? evaluation_of(*validation, recipe.eval_batch, recipe.length)
                                                        : evaluation_of(*validation, recipe.eval_batch, recipe.length,
                                                                        recipe.objective, vocabulary, start_token);
    data.about += ", " + arch::with_commas(validation->size()) + " to measure on";
  }
  data.train_tokens = std::move(train);
  data.validation_tokens = std::move(validation);
  add_neighbours(recipe, data);
  return data;
}

RunData of_task(const Recipe& recipe) {
  const data::Task& task = *recipe.data.task;
  const bool with_source = recipe.architecture.encoder.has_value();
  RunData data;
  data.batch_at = [task, with_source, rows = recipe.batch, length = recipe.length,
                   seed = static_cast<uint64_t>(recipe.seed)](int64_t pass) {
    return task_batch(task, data::TaskPart::train, seed, pass * rows, rows, length, with_source);
  };
  const int64_t examples = recipe.data.examples;
  data.validation = evaluation_of(task, data::TaskPart::validation, examples, std::min(recipe.eval_batch, examples),
                                  recipe.length, with_source);
  data.about = str("the task ", data::task_name(task), ", ", examples, " examples to measure on");
  if (recipe.data.longer == 1) return data;
  const int64_t length = recipe.length * recipe.data.longer;
  const std::optional<int64_t> longest = arch::longest_sequence(recipe.architecture);
  if (longest && *longest < length) {
    data.about += str(", none of ", length, " tokens: the learned positions end at ", *longest);
    return data;
  }
  // Fewer rows than in the validation, so that a batch has as many tokens.
  const int64_t rows = std::clamp<int64_t>(recipe.eval_batch / recipe.data.longer, 1, examples);
  data.longer = evaluation_of(task, data::TaskPart::longer, examples, rows, length, with_source);
  data.about += str(", as many of ", length, " tokens");
  return data;
}

}  // namespace

RunData open_run_data(const std::string& run_folder, const Recipe& recipe) {
  if (recipe.data.task) return of_task(recipe);
  const fs::path made = fs::path(run_folder) / "data";
  std::optional<data::TokenFile> validation;
  if (path_exists(made)) {
    if (path_exists(made / kValidationTokens)) validation = data::TokenFile::open((made / kValidationTokens).string());
    return of_tokens(run_folder, recipe, open_tokens((made / kTrainTokens).string(), "training data"),
                     std::move(validation));
  }
  if (!recipe.data.validation.empty()) validation = open_tokens(recipe.data.validation, "data.validation");
  return of_tokens(run_folder, recipe, open_tokens(recipe.data.train, "data.train"), std::move(validation));
}

Recipe with_token_files(Recipe recipe, const std::string& folder, const data::PrepareWatch& watch) {
  settle_names(recipe);
  if (recipe.data.task || data::is_token_file(recipe.data.train)) return recipe;
  const fs::path place = fs::absolute(folder).lexically_normal();
  if (!path_exists(place)) {
    NewFolder made(place.string(), /*replace=*/false);
    tokens_of_text(recipe, made.path("data"), watch);
    made.publish();
  }
  const fs::path files = place / "data";
  recipe.data.train = (files / kTrainTokens).string();
  recipe.data.validation = path_exists(files / kValidationTokens) ? (files / kValidationTokens).string() : "";
  return recipe;
}

RunLock start_run(const std::string& folder, const Recipe& recipe, const StartOptions& options) {
  restore_replaced_run(folder);  // a process may have been killed before its first update
  check_target(folder, options.force);
  const RunLock old = is_run(folder) ? RunLock(folder) : RunLock();
  Recipe settled = recipe;
  settle_names(settled);
  // Validate everything that does not need the data first, with a placeholder vocabulary size.
  resolve_recipe(settled, settled.architecture.vocab_size == 0 ? settled.layout.tp : 0, "recipe");
  check_neighbours(settled);
  const fs::path parent = fs::path(folder).parent_path();
  std::error_code unmade;  // ignored, because creating the new folder reports the error
  if (!parent.empty()) fs::create_directories(parent, unmade);
  NewFolder target(folder, /*replace=*/true);
  const RunTokens tokens = settled.data.task ? RunTokens{data::task_vocab_size(*settled.data.task), nullptr}
                           : data::is_token_file(settled.data.train)
                               ? tokens_of_files(settled)
                               : tokens_of_text(settled, target.path("data"), options.watch);
  Recipe resolved = resolve_recipe(settled, tokens.vocab_size, "recipe");
  if (!data::objective_tokens(resolved.objective).empty()) {
    LAMINA_CHECK(tokens.tokenizer, "the objective ", data::objective_name(resolved.objective),
                 " needs a tokenizer with its special tokens, and there is none next to the token file; name it "
                 "(--set data.tokenizer=PATH), or give the text itself");
    data::vocabulary_for(resolved.objective, *tokens.tokenizer);
  }
  if (resolved.architecture.encoder && resolved.from.empty()) {
    resolved.architecture.encoder->start_token = start_token_of(resolved, tokens.tokenizer.get());
  }
  if (options.approve) options.approve(resolved);
  if (tokens.tokenizer) text::save_tokenizer(*tokens.tokenizer, target.path(""));
  write_text(target.path("recipe.json"), write_recipe(resolved));
  RunLock lock(target.path(""));
  if (old.held()) set_run_aside(folder);
  try {
    target.publish();
  } catch (...) {
    restore_replaced_run(folder);
    throw;
  }
  return lock;
}

}  // namespace lamina::train
