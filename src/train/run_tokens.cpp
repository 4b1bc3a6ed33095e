#include "lamina/train/run_tokens.h"

#include <algorithm>
#include <filesystem>

#include "lamina/data/prepare.h"
#include "lamina/data/token_file.h"
#include "lamina/data/tokenizer_identity.h"
#include "lamina/io/model_file.h"
#include "lamina/text/load.h"
#include "lamina/text/simple.h"

namespace lamina::train {
namespace {

namespace fs = std::filesystem;
using data::TokenizerUse;

bool learns_vocabulary(const std::string& tokenizer) {
  return data::is_tokenizer_kind(tokenizer) && tokenizer != "byte";
}

/// A tokenizer and the path it was read from. Both are empty if there is none.
struct LoadedTokenizer {
  std::string path;
  std::unique_ptr<text::Tokenizer> tokenizer;
  TokenizerUse use(const std::string& what) const {
    return {what, tokenizer ? data::identity_of(*tokenizer, path) : data::TokenizerIdentity{}};
  }
};

LoadedTokenizer load(const std::string& path) {
  if (path.empty()) return {};
  return {path, text::load_tokenizer(path)};
}

/// The tokenizer of the base model (`from`).
LoadedTokenizer model_tokenizer(const Recipe& recipe) {
  if (recipe.from.empty()) return {};
  return load(text::tokenizer_of_model(io::model_place(recipe.from)));
}

std::string prepare_with(const std::string& tokenizer) {
  return str(
      "give the text itself, or prepare it with that tokenizer: lamina data prepare TEXT --out FOLDER "
      "--tokenizer ",
      tokenizer);
}

/// The tokenizer for the text: in fine-tuning that of the base model, otherwise data.tokenizer.
std::string tokenizer_for_text(const Recipe& recipe) {
  const std::string& given = recipe.data.tokenizer;
  if (recipe.from.empty()) return given.empty() ? "char" : given;
  const LoadedTokenizer model = model_tokenizer(recipe);
  const std::string leave_out = "leave data.tokenizer empty (--set data.tokenizer=) to use the model's";
  if (given.empty()) {
    LAMINA_CHECK(model.tokenizer, recipe.from,
                 ": has no tokenizer next to it; name the one it was trained with (--set data.tokenizer=PATH)");
    return model.path;
  }
  LAMINA_CHECK(!learns_vocabulary(given), "data.tokenizer: ", given, " learns a new vocabulary from the text, but the ",
               "model ", recipe.from, " knows only that of its tokenizer",
               model.tokenizer ? " " + model.use("").tokenizer.about : "", "; ", leave_out);
  const LoadedTokenizer other = given == "byte" ? LoadedTokenizer{"byte", text::byte_tokenizer()}
                                                : LoadedTokenizer{given, text::load_tokenizer(given)};
  data::check_same_tokenizer(other.use("data.tokenizer"), model.use("the model " + recipe.from), leave_out);
  return given;
}

}  // namespace

RunTokens tokens_of_files(const Recipe& recipe) {
  const data::TokenFile train = data::TokenFile::open(recipe.data.train);
  const TokenizerUse of_train{recipe.data.train, data::identity_of(train)};
  RunTokens tokens;
  tokens.vocab_size = train.vocab_size();
  if (!recipe.data.validation.empty()) {
    LAMINA_CHECK(data::is_token_file(recipe.data.validation), recipe.data.validation,
                 ": data.train is a token file, so this must be one too (.bin, .tokens)");
    const data::TokenFile validation = data::TokenFile::open(recipe.data.validation);
    data::check_same_tokenizer({recipe.data.validation, data::identity_of(validation)}, of_train,
                               "prepare both with one tokenizer (lamina data prepare --tokenizer PATH)");
    tokens.vocab_size = std::max(tokens.vocab_size, validation.vocab_size());
  }
  const bool named = !recipe.data.tokenizer.empty() && !data::is_tokenizer_kind(recipe.data.tokenizer);
  const fs::path beside = fs::path(recipe.data.train).parent_path() / "tokenizer.json";
  LoadedTokenizer own = load(named ? recipe.data.tokenizer : fs::exists(beside) ? beside.string() : "");
  data::check_same_tokenizer(of_train, own.use(named ? "data.tokenizer" : "the tokenizer next to it"),
                             "name the tokenizer that made the tokens (--set data.tokenizer=PATH)");
  LoadedTokenizer model = model_tokenizer(recipe);
  if (model.tokenizer) {
    const TokenizerUse of_model = model.use("the model " + recipe.from);
    data::check_same_tokenizer(of_train, of_model, prepare_with(model.path));
    data::check_same_tokenizer(own.use(own.path), of_model, prepare_with(model.path));
    if (!own.tokenizer) own = std::move(model);
  }
  tokens.tokenizer = std::move(own.tokenizer);
  return tokens;
}

RunTokens tokens_of_text(const Recipe& recipe, const std::string& folder, const data::PrepareWatch& watch) {
  const bool own_validation = !recipe.data.validation.empty();
  data::PrepareOptions options;
  options.sources = {recipe.data.train};
  options.folder = folder;
  options.tokenizer = tokenizer_for_text(recipe);
  options.validation_fraction = own_validation ? 0.0 : recipe.data.validation_share;
  options.specials = data::objective_tokens(recipe.objective);
  options.watch = watch;
  const data::Prepared prepared = data::prepare(options);
  const fs::path place(folder);
  RunTokens tokens{prepared.vocab_size, text::load_tokenizer(folder)};
  if (own_validation) {
    LAMINA_CHECK(!data::is_token_file(recipe.data.validation), recipe.data.validation,
                 ": is a token file, but data.train is text; give text for both, or token files for both");
    const std::string nothing = (place / "nothing.bin").string();
    data::encode_sources(data::Sources({recipe.data.validation}), *tokens.tokenizer,
                         (place / kValidationTokens).string(), nothing, 0.0, data::Split::tail, watch);
    fs::remove(nothing);
  } else if (prepared.validation.tokens == 0) {
    fs::remove(place / kValidationTokens);
  }
  return tokens;
}

}  // namespace lamina::train
