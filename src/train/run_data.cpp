#include "lamina/train/run_data.h"

#include <algorithm>
#include <filesystem>

#include "lamina/arch/plan.h"
#include "lamina/arch/reach.h"
#include "lamina/base/files.h"
#include "lamina/io/model_file.h"
#include "lamina/text/load.h"
#include "lamina/train/run_folder.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain = "train.bin";
constexpr const char* kValidation = "validation.bin";

void check_target(const std::string& folder, bool force) {
  if (!fs::exists(folder)) return;
  const bool run = fs::exists(fs::path(folder) / "recipe.json");
  LAMINA_CHECK(run || (fs::is_directory(folder) && fs::is_empty(folder)), folder,
               ": is there and is no run; choose another folder (--run)");
  LAMINA_CHECK(force || !run, folder, ": a run is there already; go on with it (--resume ", folder,
               "), choose another folder (--run), or replace it (--force)");
}

data::TokenFile open_tokens(const std::string& path, const char* key) {
  LAMINA_CHECK(fs::exists(path), path, ": the run's ", key, " is not there; put it back, or start a run with another");
  return data::TokenFile::open(path);
}

/// Where a run's tokens and their meaning come from.
struct Tokens {
  int64_t vocab_size = 0;  ///< 0: unknown
  std::string tokenizer;   ///< tokenizer.json's text; may be empty
};

/// Names become absolute, so that the run goes on from anywhere; what `lamina data prepare` made becomes its files.
void settle_names(Recipe& recipe) {
  for (std::string* path : {&recipe.data.train, &recipe.data.validation, &recipe.from}) {
    if (!path->empty()) *path = fs::absolute(*path).lexically_normal().string();
  }
  if (recipe.data.train.empty()) return;
  const fs::path prepared = recipe.data.train;
  if (!fs::exists(prepared / kTrain)) return;
  recipe.data.train = (prepared / kTrain).string();
  if (recipe.data.validation.empty() && fs::exists(prepared / kValidation)) {
    recipe.data.validation = (prepared / kValidation).string();
  }
}

/// The recipe's tokenizer, or, where it names none, that of the model trained further.
std::string tokenizer_name(const Recipe& recipe) {
  if (!recipe.data.tokenizer.empty()) return recipe.data.tokenizer;
  const fs::path beside = fs::path(recipe.from.empty() ? "" : io::model_place(recipe.from)) / kTokenizerFile;
  return !recipe.from.empty() && fs::exists(beside) ? beside.string() : "char";
}

/// Says how a text becomes tokens, which has been done where there is a token file.
bool is_kind(const std::string& tokenizer) {
  return tokenizer == "char" || tokenizer == "byte" || tokenizer.starts_with("bpe:");
}

Tokens from_token_files(const Recipe& recipe) {
  Tokens tokens;
  tokens.vocab_size = open_tokens(recipe.data.train, "data.train").vocab_size();
  if (!recipe.data.validation.empty()) {
    LAMINA_CHECK(data::is_token_file(recipe.data.validation), recipe.data.validation,
                 ": data.train is a token file, so this must be one too (.bin, .tokens)");
    const data::TokenFile validation = open_tokens(recipe.data.validation, "data.validation");
    tokens.vocab_size = std::max(tokens.vocab_size, validation.vocab_size());
  }
  const fs::path beside = fs::path(recipe.data.train).parent_path() / kTokenizerFile;
  if (!recipe.data.tokenizer.empty() && !is_kind(recipe.data.tokenizer)) {
    tokens.tokenizer = text::load_tokenizer(recipe.data.tokenizer)->to_json();
  } else if (fs::exists(beside)) {
    tokens.tokenizer = read_text(beside.string());
  }
  return tokens;
}

/// Makes the token files in `folder`, which is not there yet.
Tokens from_text(const Recipe& recipe, const std::string& folder, const data::PrepareWatch& watch) {
  const bool own_validation = !recipe.data.validation.empty();
  data::PrepareOptions options;
  options.sources = {recipe.data.train};
  options.folder = folder;
  options.tokenizer = tokenizer_name(recipe);
  options.validation_fraction = own_validation ? 0.0 : recipe.data.validation_share;
  options.watch = watch;
  const data::Prepared prepared = data::prepare(options);
  const fs::path place(folder);
  Tokens tokens{prepared.vocab_size, read_text((place / kTokenizerFile).string())};
  if (own_validation) {
    const auto tokenizer = text::parse_tokenizer(tokens.tokenizer, kTokenizerFile);
    const std::string nothing = (place / "nothing.bin").string();
    data::encode_sources(data::Sources({recipe.data.validation}), *tokenizer, (place / kValidation).string(), nothing,
                         0.0, data::Split::tail, watch);
    fs::remove(nothing);
  } else if (prepared.validation.tokens == 0) {
    fs::remove(place / kValidation);
  }
  return tokens;
}

RunData of_tokens(const Recipe& recipe, data::TokenFile train, std::optional<data::TokenFile> validation) {
  const data::Batches batches(train, {.batch = recipe.batch,
                                      .length = recipe.length,
                                      .order = recipe.data.order,
                                      .seed = static_cast<uint64_t>(recipe.seed)});
  RunData data;
  data.batch_at = [batches](int64_t pass) { return batches.at(pass); };
  data.about = arch::with_commas(train.size()) + " tokens to learn from";
  if (validation) {
    data.validation = evaluation_of(*validation, recipe.eval_batch, recipe.length);
    data.about += ", " + arch::with_commas(validation->size()) + " to measure on";
  }
  data.train_tokens = std::move(train);
  data.validation_tokens = std::move(validation);
  return data;
}

RunData of_task(const Recipe& recipe) {
  const data::Task& task = *recipe.data.task;
  RunData data;
  data.batch_at = [task, rows = recipe.batch, length = recipe.length,
                   seed = static_cast<uint64_t>(recipe.seed)](int64_t pass) {
    return data::task_batch(task, data::TaskPart::train, seed, pass * rows, rows, length);
  };
  const int64_t examples = recipe.data.examples;
  data.validation =
      evaluation_of(task, data::TaskPart::validation, examples, std::min(recipe.eval_batch, examples), recipe.length);
  data.about = str("the task ", data::task_name(task), ", ", examples, " examples to measure on");
  if (recipe.data.longer == 1) return data;
  const int64_t length = recipe.length * recipe.data.longer;
  const std::optional<int64_t> longest = arch::longest_sequence(recipe.architecture);
  if (longest && *longest < length) {
    data.about += str(", none of ", length, " tokens: the learned positions end at ", *longest);
    return data;
  }
  // As many tokens in a pass.
  const int64_t rows = std::clamp<int64_t>(recipe.eval_batch / recipe.data.longer, 1, examples);
  data.longer = evaluation_of(task, data::TaskPart::longer, examples, rows, length);
  data.about += str(", as many of ", length, " tokens");
  return data;
}

}  // namespace

RunData open_run_data(const std::string& run_folder, const Recipe& recipe) {
  if (recipe.data.task) return of_task(recipe);
  const fs::path made = fs::path(run_folder) / "data";
  std::optional<data::TokenFile> validation;
  if (fs::exists(made)) {
    if (fs::exists(made / kValidation)) validation = data::TokenFile::open((made / kValidation).string());
    return of_tokens(recipe, open_tokens((made / kTrain).string(), "training data"), std::move(validation));
  }
  if (!recipe.data.validation.empty()) validation = open_tokens(recipe.data.validation, "data.validation");
  return of_tokens(recipe, open_tokens(recipe.data.train, "data.train"), std::move(validation));
}

Recipe with_token_files(Recipe recipe, const std::string& folder, const data::PrepareWatch& watch) {
  settle_names(recipe);
  if (recipe.data.task || data::is_token_file(recipe.data.train)) return recipe;
  const fs::path place = fs::absolute(folder).lexically_normal();
  if (!fs::exists(place)) {
    NewFolder made(place.string(), /*replace=*/false);
    from_text(recipe, made.path("data"), watch);
    made.publish();
  }
  const fs::path files = place / "data";
  recipe.data.train = (files / kTrain).string();
  recipe.data.validation = fs::exists(files / kValidation) ? (files / kValidation).string() : "";
  return recipe;
}

void start_run(const std::string& folder, const Recipe& recipe, const StartOptions& options) {
  check_target(folder, options.force);
  Recipe settled = recipe;
  settle_names(settled);
  // Before anything is read or encoded, everything that can be wrong without it; any vocabulary will do for that.
  resolve_recipe(settled, settled.architecture.vocab_size == 0 ? 1 : 0, "recipe");
  const fs::path parent = fs::path(folder).parent_path();
  std::error_code unmade;  // the new folder says what is missing
  if (!parent.empty()) fs::create_directories(parent, unmade);
  NewFolder target(folder, /*replace=*/true);
  const Tokens tokens = settled.data.task ? Tokens{data::task_vocab_size(*settled.data.task), ""}
                        : data::is_token_file(settled.data.train)
                            ? from_token_files(settled)
                            : from_text(settled, target.path("data"), options.watch);
  const Recipe resolved = resolve_recipe(settled, tokens.vocab_size, "recipe");
  if (options.approve) options.approve(resolved);
  if (!tokens.tokenizer.empty()) write_text(target.path(kTokenizerFile), tokens.tokenizer);
  write_text(target.path("recipe.json"), write_recipe(resolved));
  target.publish();
}

}  // namespace lamina::train
