#include "lamina/infer/embed.h"

#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "lamina/base/files.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/device_option.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/text_input.h"
#include "lamina/cli/usage.h"
#include "lamina/infer/load.h"

namespace lamina::cli {
namespace {

struct EmbedArguments {
  std::string model;
  std::string data;
  std::string text_key = "text";
  std::string tokenizer;
  std::string pooling;
  bool normalize = false;
  bool no_normalize = false;
  std::string prompt_name;
  std::optional<std::string> prompt;
  std::string out;
  infer::EmbedOptions options;
  int64_t context = 0;
  bool json_lines = false;
  DeviceChoice device;
};

/// The texts to embed: one per line or, for JSON lines, the text under the key. Skips empty lines.
std::vector<std::string> texts_of(const EmbedArguments& arguments) {
  std::vector<std::string> texts;
  const std::string all = read_input(arguments.data);
  const bool json = arguments.json_lines || arguments.data.ends_with(".jsonl");
  size_t number = 0;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    std::string line = all.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    if (json) {
      const auto node = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      LAMINA_CHECK(node.is_object() && node.contains(arguments.text_key) && node[arguments.text_key].is_string(),
                   arguments.data, ": line ", number, " is not a JSON object with a text under the key \"",
                   arguments.text_key, '"');
      line = node[arguments.text_key].get<std::string>();
    }
    texts.push_back(std::move(line));
  }
  LAMINA_CHECK(!texts.empty(), arguments.data, ": is empty; expected one text per line");
  return texts;
}

void print_lines(const std::vector<std::vector<text::TokenId>>& ids, const std::vector<std::vector<float>>& vectors) {
  for (size_t i = 0; i < vectors.size(); ++i) {
    const nlohmann::ordered_json line{{"index", i}, {"tokens", ids[i].size()}, {"embedding", vectors[i]}};
    std::printf("%s\n", line.dump().c_str());
  }
}

/// Takes the model's recipe, changed by the options.
infer::TextReader prepare(EmbedArguments& arguments, const infer::LoadedModel& model) {
  io::VectorRecipe& recipe = arguments.options.recipe;
  recipe = infer::vector_recipe(model);
  if (!arguments.pooling.empty()) recipe.pooling = infer::pooling_named(arguments.pooling);
  recipe.normalize = arguments.normalize || (recipe.normalize && !arguments.no_normalize);
  const int64_t limit = model.model->spec().context;
  if (arguments.context > 0) recipe.max_tokens.reset();
  std::string prompt = infer::prompt_for(recipe, infer::TextRole::any);
  if (!arguments.prompt_name.empty()) prompt = infer::prompt_named(recipe, arguments.prompt_name);
  return {infer::require_tokenizer(model), recipe, arguments.context > 0 ? arguments.context : limit,
          arguments.prompt.value_or(prompt)};
}

void run(EmbedArguments& arguments) {
  if (!arguments.out.empty() && !arguments.out.ends_with(".npy")) {
    throw UsageError(str("--out ", arguments.out, ": expected a name that ends in .npy"));
  }
  const std::vector<std::string> texts = texts_of(arguments);
  const infer::LoadedModel model =
      infer::load_model(arguments.model, arguments.device.open(), {arguments.tokenizer, {}});
  const infer::TextReader reader = prepare(arguments, model);
  text::UnknownCharacters unknown;
  std::vector<std::vector<text::TokenId>> ids;
  int64_t cut = 0;
  for (const std::string& text : texts) ids.push_back(reader.ids(text, &unknown, &cut));
  report_unknown("text", unknown);
  if (cut > 0) {
    std::fprintf(stderr, "lamina: %lld of %zu texts have more than %lld tokens; the rest of them was cut off\n",
                 static_cast<long long>(cut), texts.size(), static_cast<long long>(reader.context()));
  }
  arguments.options.progress = progress_of("embedding", count_of_tokens);
  const auto vectors = infer::embed(*model.model, ids, arguments.options);
  if (arguments.out.empty()) {
    print_lines(ids, vectors);
    return;
  }
  const auto width = static_cast<int64_t>(vectors.at(0).size());
  write_text(arguments.out, infer::npy_of(vectors, width));
  std::fprintf(stderr, "lamina: %s: %zu vectors of %lld numbers\n", arguments.out.c_str(), vectors.size(),
               static_cast<long long>(width));
}

}  // namespace

void add_embed(CLI::App& program) {
  auto arguments = std::make_shared<EmbedArguments>();
  CLI::App* command = program.add_subcommand("embed", "Compute vectors of texts: pooled hidden states of a model");
  command
      ->add_option("model", arguments->model,
                   "A lamina or Hugging Face folder, a training run's folder, or a llama2.c .bin file")
      ->required();
  command->add_option("--data", arguments->data, "A file or pipe with a text per line, .jsonl, or - for standard input")
      ->required();
  command->add_option("--text-key", arguments->text_key, "In JSON lines: the key of the text")->capture_default_str();
  command->add_flag("--jsonl", arguments->json_lines, "The data are JSON lines, whatever their name");
  command
      ->add_option(
          "--pooling", arguments->pooling,
          "mean of all tokens, first token, last token, or max of each dimension (default: the model's, else mean)")
      ->check(CLI::IsMember({"mean", "first", "last", "max"}));
  CLI::Option* normalize =
      command->add_flag("--normalize", arguments->normalize,
                        "Divide each vector by its Euclidean norm (default: as the model says, else no)");
  command->add_flag("--no-normalize", arguments->no_normalize, "Do not divide by the norm, whatever the model says")
      ->excludes(normalize);
  CLI::Option* name =
      command->add_option("--prompt-name", arguments->prompt_name,
                          "Put this prompt of the model before each text (default: its default prompt)");
  command->add_option("--prompt", arguments->prompt, "Put this text before each text; \"\": none")->excludes(name);
  command->add_option("--out", arguments->out,
                      "A .npy file [texts, numbers] of f32 (default: JSON lines to standard output)");
  command->add_option("--batch", arguments->options.batch, "Most texts in a forward pass")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--context", arguments->context,
                   "Most tokens of a text with its prompt; the rest is cut off (default: the model's)")
      ->check(at_least(1));
  command->add_option("--tokenizer", arguments->tokenizer, "Tokenizer file or folder (default: next to the model)");
  arguments->device.add_to(*command);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
