#include <cstdio>
#include <filesystem>
#include <memory>

#include "lamina/base/error.h"
#include "lamina/base/files.h"
#include "lamina/base/mapped_file.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/progress_line.h"
#include "lamina/text/load.h"
#include "lamina/text/simple.h"
#include "lamina/text/train_bpe.h"

namespace lamina::cli {
namespace {

namespace fs = std::filesystem;

struct TrainTokenizerArguments {
  std::vector<std::string> files;
  std::string kind = "bpe";
  int64_t vocab_size = 8192;
  std::string pattern = "gpt2";
  std::vector<std::string> specials;
  bool no_special = false;
  std::string unknown;
  std::string out;
  bool force = false;
};

std::unique_ptr<text::Tokenizer> train(const TrainTokenizerArguments& arguments,
                                       const std::vector<std::string_view>& corpora) {
  std::vector<std::string> specials = arguments.specials;
  if (specials.empty() && !arguments.no_special && arguments.kind == "bpe") specials = {"<|endoftext|>"};
  if (arguments.kind == "byte") return text::byte_tokenizer(specials);
  if (arguments.kind == "char") return text::character_tokenizer(corpora, {arguments.unknown, specials});
  LAMINA_CHECK(arguments.kind == "bpe", "--kind ", arguments.kind, ": expected bpe, char or byte");
  return text::train_bpe(corpora,
                         {arguments.vocab_size, arguments.pattern, specials, progress_of("learning", count_of_tokens)});
}

/// A name that ends in .json is that file, another a folder for tokenizer.json and tokenizer_config.json.
void save(const text::Tokenizer& tokenizer, const std::string& out, bool force) {
  const bool file = fs::path(out).extension() == ".json";
  const std::string target = file ? out : (fs::path(out) / "tokenizer.json").string();
  LAMINA_CHECK(force || !path_exists(target), target, ": is there already; choose another name or give --force");
  if (file) {
    write_text(out, tokenizer.to_json());
    return;
  }
  std::error_code error;
  fs::create_directories(out, error);
  LAMINA_CHECK(!error, out, ": the folder cannot be made: ", error.message());
  text::save_tokenizer(tokenizer, out);
}

void run(const TrainTokenizerArguments& arguments) {
  LAMINA_CHECK(!arguments.files.empty() || arguments.kind == "byte", "no text was given to learn from; name files");
  LAMINA_CHECK(arguments.unknown.empty() || arguments.kind == "char", "--unknown is for --kind char");
  std::vector<MappedFile> maps;
  std::vector<std::string_view> corpora;
  for (const std::string& path : arguments.files) {
    maps.push_back(map_file(path, "a text"));
    corpora.emplace_back(reinterpret_cast<const char*>(maps.back().bytes.data()), maps.back().bytes.size());
  }
  const auto tokenizer = train(arguments, corpora);
  save(*tokenizer, arguments.out, arguments.force);
  std::printf("%s: %lld tokens, %s\n", arguments.out.c_str(), static_cast<long long>(tokenizer->vocab_size()),
              tokenizer->describe().kind.c_str());
  if (arguments.kind == "bpe" && tokenizer->vocab_size() < arguments.vocab_size) {
    std::printf("fewer than the %lld asked for: no further pair of tokens occurs twice in the text\n",
                static_cast<long long>(arguments.vocab_size));
  }
}

}  // namespace

void add_tokenizer_train(CLI::App& tokenizer) {
  auto arguments = std::make_shared<TrainTokenizerArguments>();
  CLI::App* command = tokenizer.add_subcommand("train", "Learns a vocabulary from text");
  command->add_option("files", arguments->files, "The texts, UTF-8");
  command->add_option("--kind", arguments->kind, "bpe: byte-level byte pair encoding; char: characters; byte: bytes")
      ->capture_default_str();
  command->add_option("--vocab-size", arguments->vocab_size, "Tokens of a bpe, with bytes and special tokens")
      ->capture_default_str();
  command->add_option("--pattern", arguments->pattern, "How a bpe cuts text: gpt2, cl100k, one-digit or o200k")
      ->capture_default_str();
  command->add_option("--special", arguments->specials,
                      "Special tokens, which get the last ids (default: <|endoftext|> for a bpe, none otherwise)");
  command->add_flag("--no-special", arguments->no_special, "No special tokens");
  command->add_option("--unknown", arguments->unknown, "A token for characters that the text has not, such as <unk>");
  command->add_option("--out", arguments->out, "A folder, or a file that ends in .json")->required();
  command->add_flag("--force", arguments->force, "Replace a tokenizer that is there");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
