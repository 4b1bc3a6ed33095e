#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "lamina/arch/plan.h"
#include "lamina/base/error.h"
#include "lamina/base/suggest.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/cli/usage.h"
#include "lamina/data/corpora.h"
#include "lamina/data/prepare.h"
#include "lamina/data/tasks/task.h"
#include "lamina/data/token_file.h"

namespace lamina::cli {
namespace {

struct DataArguments {
  data::PrepareOptions prepare;
  std::string split = "tail";
  data::GetOptions get;
  std::vector<std::string> files;
  bool verify = false;
};

struct TaskArguments {
  std::string name;
  int64_t length = 40;
  int64_t examples = 4;
  uint64_t seed = 0;
};

void show_part(const std::string& folder, const char* file, const data::PreparedPart& part) {
  std::printf("%-40s %14lld tokens  %8lld document%s  %.3f bytes per token\n",
              (std::filesystem::path(folder) / file).string().c_str(), static_cast<long long>(part.tokens),
              static_cast<long long>(part.documents), part.documents == 1 ? " " : "s",
              static_cast<double>(part.bytes) / static_cast<double>(part.tokens));
}

void prepare(const DataArguments& arguments) {
  data::PrepareOptions options = arguments.prepare;
  options.split = data::split_of(arguments.split);
  options.reading.input = &std::cin;
  options.watch = progress_of_preparation();
  // Ctrl-C must also interrupt a blocking read of standard input.
  catch_stop_signals("\nstopping: temporary files are removed; press Ctrl-C again to stop immediately\n",
                     WaitingReads::fail);
  const data::Prepared prepared = data::prepare(options);
  show_part(options.folder, "train.bin", prepared.train);
  if (prepared.validation.tokens > 0) show_part(options.folder, "validation.bin", prepared.validation);
  std::printf("%-40s %14lld in the vocabulary (%s)\n",
              (std::filesystem::path(options.folder) / "tokenizer.json").string().c_str(),
              static_cast<long long>(prepared.vocab_size), options.tokenizer.c_str());
}

/// Expands folders to the token files in them.
std::vector<std::string> token_files(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const size_t before = files.size();
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
      if (data::is_token_file(entry.path().string())) files.push_back(entry.path().string());
    }
    LAMINA_CHECK(!error, path, ": cannot be listed: ", error.message(), "; check the permissions");
    LAMINA_CHECK(files.size() > before, path,
                 ": has no token file (.bin, .tokens); make some with `lamina data prepare TEXT --out FOLDER`");
    std::sort(files.begin() + static_cast<ptrdiff_t>(before), files.end());
  }
  return files;
}

void info(const DataArguments& arguments) {
  for (const std::string& path : token_files(arguments.files)) {
    const data::TokenFile file = data::TokenFile::open(path);
    std::printf("%s\n  format       %s, %d bytes a token\n  tokens       %lld\n", path.c_str(), file.format(),
                file.width(), static_cast<long long>(file.size()));
    if (file.vocab_size() > 0) std::printf("  vocabulary   %lld\n", static_cast<long long>(file.vocab_size()));
    std::printf("  documents    %lld\n", static_cast<long long>(file.document_count()));
    if (file.tokenizer_hash() != 0) {
      std::printf("  tokenizer    %016llx\n", static_cast<unsigned long long>(file.tokenizer_hash()));
    }
    if (!arguments.verify) continue;
    file.verify();
    std::printf("  every token read; %s\n",
                file.vocab_size() > 0 ? "the checksum is right" : "the format has no checksum");
  }
}

void get(DataArguments& arguments) {
  data::GetOptions& options = arguments.get;
  if (options.name.empty()) {
    for (const data::Corpus& corpus : data::corpora()) std::printf("%-16s %s\n", corpus.name, corpus.about);
    std::printf("%-16s %s\n", "synthetic", "A play generated from a small grammar (--bytes, --seed)");
    return;
  }
  if (options.folder.empty()) {
    options.folder = "data/" + options.name;
    std::filesystem::create_directories("data");
  }
  for (const std::string& path : data::get_corpus(options)) {
    std::printf("%s  %s\n", path.c_str(),
                arch::short_bytes(static_cast<double>(std::filesystem::file_size(path))).c_str());
  }
  std::printf("next: lamina data prepare %s --out %s-tokens\n", options.folder.c_str(), options.folder.c_str());
}

void list_tasks() {
  for (const data::Task& task : data::all_tasks()) {
    std::printf("%-16s %s\n", std::string(data::task_name(task)).c_str(), std::string(data::task_about(task)).c_str());
  }
  std::printf("learn one: lamina train task --set data.task=NAME; see one: lamina data tasks NAME\n");
}

data::Task task_named(const std::string& name) {
  std::vector<std::string> known;
  for (const data::Task& task : data::all_tasks()) {
    if (data::task_name(task) == name) return task;
    known.emplace_back(data::task_name(task));
  }
  const std::string hint = did_you_mean(name, known);
  throw Error(str("no task \"", name, "\"; ", hint.empty() ? "`lamina data tasks` lists them" : hint));
}

/// Prints examples as words, with the scored tokens in brackets.
void show_tasks(const TaskArguments& arguments) {
  if (arguments.name.empty()) return list_tasks();
  const data::Task task = task_named(arguments.name);
  data::check_task(task, arguments.length);
  for (int64_t i = 0; i < arguments.examples; ++i) {
    const data::Example example =
        data::make_example(task, {arguments.seed, static_cast<uint64_t>(i)}, arguments.length);
    std::string line;
    for (size_t at = 0; at < example.tokens.size(); ++at) {
      const std::string word = data::spelled(task, example.tokens[at]);
      line += (at == 0 ? "" : " ") + (example.scored[at] ? "«" + word + "»" : word);
    }
    std::printf("%s\n", line.c_str());
  }
  std::printf("%lld tokens in the vocabulary; chance accuracy %.1f %%\n",
              static_cast<long long>(data::task_vocab_size(task)), 100 * data::chance_accuracy(task));
}

void add_prepare(CLI::App& command, const std::shared_ptr<DataArguments>& arguments) {
  data::PrepareOptions& options = arguments->prepare;
  command
      .add_option("sources", options.sources,
                  "Text files, .jsonl files, folders of them, pipes, or - for standard input")
      ->required();
  command.add_option("--out", options.folder, "A new folder for train.bin, validation.bin and tokenizer.json")
      ->required();
  command
      .add_option(
          "--tokenizer", options.tokenizer,
          "char: each character; char+bytes: the same, with bytes for characters the text does not have; byte: each "
          "byte; bpe:N: pairs learned from the text up to a vocabulary of N; or the path of a tokenizer's file or "
          "folder")
      ->capture_default_str();
  command
      .add_option("--val-fraction", options.validation_fraction, "The part of the text kept for validation; 0: none")
      ->capture_default_str();
  command
      .add_option(
          "--split", arguments->split,
          "Which part: tail, the end of all text; each, the end of every document; documents, whole ones at random")
      ->capture_default_str();
  command.add_option("--text-key", options.reading.text_key, "In .jsonl files: the key of the text")
      ->capture_default_str();
  command.add_flag("--jsonl", options.reading.json_lines, "All sources are JSON lines, standard input too");
  command.add_flag("--force", options.replace, "Replace data prepared there before");
  command.callback([arguments] { prepare(*arguments); });
}

void add_get(CLI::App& command, const std::shared_ptr<DataArguments>& arguments) {
  data::GetOptions& options = arguments->get;
  command.add_option("name", options.name, "The corpus; without one, all are listed");
  command.add_option("--out", options.folder, "A new folder for it; data/NAME unless given");
  command.add_option("--from", options.from, "A file or address to take it from, instead of the package registry");
  command.add_option("--bytes", options.synthetic_bytes, "Size of the synthetic text in bytes")
      ->capture_default_str()
      ->check(at_least(1));
  command.add_option("--seed", options.seed, "Seed of the synthetic text")->capture_default_str()->check(at_least(0));
  command.callback([arguments] { get(*arguments); });
}

void add_tasks(CLI::App& command) {
  auto arguments = std::make_shared<TaskArguments>();
  command.add_option("name", arguments->name, "The task; without one, all are listed");
  command.add_option("--length", arguments->length, "Tokens of a row")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command.add_option("--examples", arguments->examples, "Rows to show")->capture_default_str()->check(at_least(1));
  command.add_option("--seed", arguments->seed, "Another seed gives other rows")
      ->capture_default_str()
      ->check(at_least(0));
  command.callback([arguments] { show_tasks(*arguments); });
}

}  // namespace

void add_data(CLI::App& program) {
  auto arguments = std::make_shared<DataArguments>();
  CLI::App* command =
      program.add_subcommand("data", "Corpora, token files and synthetic tasks: get, prepare, info, tasks");
  command->require_subcommand(1);
  add_prepare(*command->add_subcommand("prepare", "Make token files for training from text"), arguments);
  add_get(*command->add_subcommand("get", "Fetch a corpus by name and verify its hash, or generate a synthetic one"),
          arguments);
  CLI::App* shown = command->add_subcommand("info", "Describe token files (lamina, llm.c and nanoGPT formats)");
  shown->add_option("files", arguments->files, "Token files, or folders of them")->required();
  shown->add_flag("--verify", arguments->verify, "Read everything and compare the checksum");
  shown->callback([arguments] { info(*arguments); });
  add_tasks(
      *command->add_subcommand("tasks", "List synthetic tasks, or print examples of one (docs/reference/tasks.md)"));
}

}  // namespace lamina::cli
