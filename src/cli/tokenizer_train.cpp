#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/usage.h"
#include "lamina/data/prepare.h"
#include "lamina/text/load.h"

namespace lamina::cli {
namespace {

namespace fs = std::filesystem;

struct TrainTokenizerArguments {
  std::vector<std::string> sources;
  data::SourceOptions reading;
  std::string kind = "bpe";
  int64_t vocab_size = 8192;
  std::string pattern = "gpt2";
  std::vector<std::string> specials;
  bool no_special = false;
  std::string unknown;
  bool byte_fallback = false;
  bool cased = false;
  int64_t sentinels = 0;
  std::string out;
  bool force = false;
};

std::unique_ptr<text::Tokenizer> train(const TrainTokenizerArguments& arguments) {
  std::vector<std::string> specials = arguments.specials;
  for (int64_t i = 0; i < arguments.sentinels; ++i) specials.push_back(str("<extra_id_", i, ">"));
  if (specials.empty() && !arguments.no_special && arguments.kind == "bpe") specials = {"<|endoftext|>"};
  if (arguments.kind == "byte") return text::byte_tokenizer(specials);
  const data::Sources sources(arguments.sources, arguments.reading);
  if (arguments.kind == "char") {
    return data::learn_characters(sources, {arguments.unknown, specials, arguments.byte_fallback});
  }
  if (sources.bytes() > data::kPairSample) {
    std::fprintf(stderr, "lamina: learning from the first %lld MiB of the text\n",
                 static_cast<long long>(data::kPairSample >> 20U));
  }
  const auto progress = progress_of("learning", count_of_tokens);
  if (arguments.kind == "wordpiece") {
    text::WordPieceOptions options{.vocab_size = arguments.vocab_size, .lowercase = !arguments.cased};
    options.specials = specials;
    options.progress = progress;
    return data::learn_wordpieces(sources, options);
  }
  if (arguments.kind == "unigram") {
    text::UnigramOptions options{.vocab_size = arguments.vocab_size, .byte_fallback = arguments.byte_fallback};
    options.specials = specials;
    options.progress = progress;
    return data::learn_unigrams(sources, options);
  }
  return data::learn_pairs(sources, {arguments.vocab_size, arguments.pattern, specials, progress});
}

/// Saves a tokenizer. `out` is a file if it ends in .json, otherwise a folder for tokenizer.json and
/// tokenizer_config.json.
void save(const text::Tokenizer& tokenizer, const std::string& out, bool force) {
  const bool file = fs::path(out).extension() == ".json";
  const std::string target = file ? out : (fs::path(out) / "tokenizer.json").string();
  LAMINA_CHECK(force || !path_exists(target), target,
               ": already exists; choose another name, or replace it with --force");
  if (file) {
    write_text(out, tokenizer.to_json());
    return;
  }
  std::error_code error;
  fs::create_directories(out, error);
  LAMINA_CHECK(!error, out, ": the folder cannot be created: ", error.message(), "; check the permissions");
  text::save_tokenizer(tokenizer, out);
}

void check_options(const TrainTokenizerArguments& arguments) {
  const std::string& kind = arguments.kind;
  const bool characters = kind == "char";
  if (!characters && kind != "bpe" && kind != "byte" && kind != "wordpiece" && kind != "unigram") {
    throw UsageError(str("--kind ", kind, ": expected bpe, wordpiece, unigram, char or byte"));
  }
  if (arguments.sources.empty() && arguments.kind != "byte") {
    throw UsageError(
        "no text to learn from was given; add files or folders, for example: lamina tokenizer train "
        "input.txt --out tokenizer.json");
  }
  if (!characters && !arguments.unknown.empty()) throw UsageError("--unknown needs --kind char");
  if (!characters && kind != "unigram" && arguments.byte_fallback) {
    throw UsageError("--byte-fallback needs --kind char or unigram; bpe and byte read any bytes without it");
  }
  if (arguments.cased && kind != "wordpiece") throw UsageError("--cased needs --kind wordpiece");
}

void run(TrainTokenizerArguments& arguments) {
  check_options(arguments);
  arguments.reading.input = &std::cin;
  const auto tokenizer = train(arguments);
  save(*tokenizer, arguments.out, arguments.force);
  std::printf("%s: %lld tokens, %s\n", arguments.out.c_str(), static_cast<long long>(tokenizer->vocab_size()),
              tokenizer->describe().kind.c_str());
  if (arguments.kind == "bpe" && tokenizer->vocab_size() < arguments.vocab_size) {
    std::printf("fewer than the %lld of --vocab-size: no other pair of tokens occurs twice in the text\n",
                static_cast<long long>(arguments.vocab_size));
  }
}

}  // namespace

void add_tokenizer_train(CLI::App& tokenizer) {
  auto arguments = std::make_shared<TrainTokenizerArguments>();
  CLI::App* command = tokenizer.add_subcommand("train", "Learn a vocabulary from text");
  command->add_option("sources", arguments->sources,
                      "Text files, .jsonl files, folders of them, pipes, or - for standard input");
  command->add_option("--text-key", arguments->reading.text_key, "In .jsonl files: the key of the text")
      ->capture_default_str();
  command->add_flag("--jsonl", arguments->reading.json_lines, "All sources are JSON lines, standard input too");
  command
      ->add_option("--kind", arguments->kind,
                   "bpe: byte-level byte pair encoding; wordpiece: as BERT; unigram: as T5; char: characters; "
                   "byte: bytes")
      ->capture_default_str();
  command
      ->add_option("--vocab-size", arguments->vocab_size, "Tokens of a bpe, wordpiece or unigram, with special tokens")
      ->capture_default_str()
      ->check(at_least(257));
  command->add_option("--pattern", arguments->pattern, "How a bpe cuts text: gpt2, cl100k, one-digit or o200k")
      ->capture_default_str();
  command->add_option("--special", arguments->specials,
                      "Special tokens, which get the last ids (default: <|endoftext|> for a bpe, none otherwise)");
  command->add_flag("--no-special", arguments->no_special, "No special tokens");
  command->add_option("--unknown", arguments->unknown,
                      "With --kind char: a token for characters that are not in the text, such as <unk>");
  command->add_flag(
      "--byte-fallback", arguments->byte_fallback,
      "With --kind char or unigram: 256 more tokens, so that characters that are not in the text become bytes");
  command->add_flag("--cased", arguments->cased, "With --kind wordpiece: keep upper case and accents");
  command
      ->add_option("--sentinels", arguments->sentinels,
                   "Special tokens <extra_id_0> … <extra_id_N-1>, for the objective span")
      ->check(CLI::Range(int64_t{0}, int64_t{100000}));
  command->add_option("--out", arguments->out, "A folder, or a file that ends in .json")->required();
  command->add_flag("--force", arguments->force, "Replace an existing tokenizer");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
