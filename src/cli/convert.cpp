#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "lamina/arch/count.h"
#include "lamina/arch/plan.h"
#include "lamina/base/files.h"
#include "lamina/cli/amounts.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/io/hf.h"
#include "lamina/io/hf/sentence_transformers.h"
#include "lamina/io/model_file.h"
#include "lamina/io/piece_set.h"
#include "lamina/text/load.h"
#include "lamina/train/run_folder.h"

namespace lamina::cli {
namespace {

namespace fs = std::filesystem;

struct ConvertArguments {
  std::string source;
  std::string target;
  std::string to = "hf";
  std::string dtype;
  std::string max_shard_size = "5GB";
  std::string family;
  std::string tokenizer;
  bool force = false;
  bool with_state = false;
};

/// Files that accompany the weights: tokenizer, chat template, generation settings, and how texts become vectors.
class Companions {
 public:
  /// `place` is the folder of the model `source`. `tokenizer` replaces its tokenizer; empty: keep it.
  Companions(const std::string& source, const std::string& place, const std::string& tokenizer)
      : place_(place), file_(tokenizer) {
    if (io::is_sentence_transformer(source)) recipe_ = io::vector_recipe_files(source);
    if (folder_exists(place)) {
      for (const auto& entry : fs::directory_iterator(place)) {
        const std::string name = entry.path().filename().string();
        if (io::is_companion_file(name) && file_exists(entry.path())) files_.insert(name);
      }
    }
    if (!tokenizer.empty()) {
      tokenizer_ = text::load_tokenizer(tokenizer);
      std::erase_if(files_, [](const std::string& name) {
        return name != "generation_config.json" && !name.starts_with("chat_template");
      });
    } else if (!files_.contains(kTokenizerConfig) && !is_hf()) {
      load();
    }
  }

  /// Adds missing BOS and EOS ids to the checkpoint. `given`: the user named the tokenizer, so it must fit.
  void complete(io::Checkpoint& checkpoint, bool given) {
    if (!tokenizer_) return warn_if_too_large(checkpoint.spec.vocab_size);
    if (tokenizer_->vocab_size() > checkpoint.spec.vocab_size) {
      const std::string why =
          str(file_, " has ", tokenizer_->vocab_size(), " tokens, the model ", checkpoint.spec.vocab_size);
      LAMINA_CHECK(!given, "--tokenizer: ", why, "; give the tokenizer that the model was trained with");
      note(why);
      tokenizer_.reset();
      return;
    }
    const auto fill = [&](const char* key, const std::optional<text::TokenId>& id) {
      if (id) checkpoint.tokens.emplace(key, str(*id));
    };
    fill("bos_token_id", tokenizer_->bos());
    fill("eos_token_id", tokenizer_->eos());
  }

  void write(const std::string& folder) const {
    for (const std::string& name : files_) {
      write_text((fs::path(folder) / name).string(), read_text((fs::path(place_) / name).string()));
    }
    for (const io::RecipeFile& file : recipe_) {
      const fs::path target = fs::path(folder) / file.name;
      fs::create_directories(target.parent_path());
      file.source.empty() ? write_text(target.string(), file.text)
                          : static_cast<void>(fs::copy_file(file.source, target));
    }
    if (!tokenizer_) return;
    if (files_.contains("tokenizer.json")) {
      text::save_tokenizer_config(*tokenizer_, folder);
    } else {
      text::save_tokenizer(*tokenizer_, folder);
    }
  }

  bool has_recipe() const { return !recipe_.empty(); }
  bool has_tokenizer() const { return tokenizer_ || (folder_exists(place_) && !text::tokenizer_file(place_).empty()); }

 private:
  static constexpr const char* kTokenizerConfig = "tokenizer_config.json";

  /// A Hugging Face folder has its own tokenizer files. Lamina may be unable to load them, so they are copied
  /// unchanged.
  bool is_hf() const { return file_exists(fs::path(place_) / "config.json"); }

  void warn_if_too_large(int64_t vocab_size) const {
    if (!folder_exists(place_) || text::tokenizer_file(place_).empty()) return;
    int64_t tokens = 0;
    try {
      tokens = text::load_tokenizer(place_)->vocab_size();
    } catch (const Error&) {
      return;  // `lamina generate` tells why it cannot be loaded
    }
    if (tokens <= vocab_size) return;
    std::fprintf(stderr,
                 "note: the tokenizer has %lld tokens, the model %lld, so `lamina generate` will refuse it; give the "
                 "model's own with --tokenizer PATH\n",
                 static_cast<long long>(tokens), static_cast<long long>(vocab_size));
  }

  void load() {
    file_ = text::tokenizer_of_model(place_);
    if (file_.empty()) return;
    try {
      tokenizer_ = text::load_tokenizer(file_);
    } catch (const Error& error) {
      note(error.what());
    }
  }
  static void note(const std::string& why) {
    std::fprintf(stderr, "note: the tokenizer is not converted: %s\n", why.c_str());
  }

  std::string place_;
  std::set<std::string> files_;         ///< files in the source folder to copy unchanged
  std::vector<io::RecipeFile> recipe_;  ///< files of the pooling recipe (sentence-transformers)
  std::string file_;
  std::unique_ptr<text::Tokenizer> tokenizer_;  ///< written as tokenizer.json and tokenizer_config.json; may be null
};

/// Reads the training state in `source`, of any layout, and writes it as that of a single-device run.
void write_state(const fs::path& source, const fs::path& folder) {
  const Device host = Device::cpu();
  const io::PieceSet state =
      io::is_sharded(source.string())
          ? io::PieceSet::open(source.string(), io::read_manifest(source.string()), io::kTrainingGroup, host)
          : io::PieceSet::open_file((source / train::kTrainingFile).string(), host);
  NamedTensors tensors;
  for (const std::string& name : state.names()) tensors.push_back({name, state.tensor(name)});
  io::write_safetensors((folder / train::kTrainingFile).string(), tensors);
  write_text((folder / "state.json").string(), read_text((source / "state.json").string()));
}

/// The folder to read. If the training state is wanted from a run, its last checkpoint: the best one has none.
std::string source_of(const ConvertArguments& arguments) {
  if (!arguments.with_state) return arguments.source;
  LAMINA_CHECK(arguments.to == "lamina", "--with-state needs --to lamina: other formats have no training state");
  LAMINA_CHECK(arguments.dtype.empty(), "--with-state keeps all types; leave out --dtype");
  const fs::path last = fs::path(arguments.source) / "last";
  const std::string place = folder_exists(last) ? last.string() : arguments.source;
  LAMINA_CHECK(path_exists(fs::path(place) / "state.json"), place,
               ": has no training state; --with-state is for a run, or for its folder last");
  return place;
}

void run(const ConvertArguments& arguments) {
  LAMINA_CHECK(arguments.to == "hf" || arguments.to == "lamina", "--to ", arguments.to, ": expected hf or lamina");
  std::optional<DType> dtype;
  if (!arguments.dtype.empty()) {
    dtype = dtype_from_name(arguments.dtype);
    LAMINA_CHECK(dtype && is_floating(*dtype), "--dtype ", arguments.dtype, ": expected f32, bf16, f16 or f64");
  }
  const int64_t max_shard_bytes = bytes_from(arguments.max_shard_size, "--max-shard-size");
  io::CheckpointFolder::check_target(arguments.target, arguments.force);
  catch_stop_signals("\nstopping: temporary files are removed; press Ctrl-C again to stop immediately\n");
  const std::string source = source_of(arguments);
  io::Checkpoint checkpoint = io::read_model(source, Device::cpu(), {dtype, progress_of("reading", arch::short_bytes)});
  // throws if it is invalid
  if (io::is_sentence_transformer(source)) io::read_vector_recipe(source, checkpoint.spec.d_model);
  Companions companions(source, io::model_place(source), arguments.tokenizer);
  companions.complete(checkpoint, !arguments.tokenizer.empty());
  const auto add_files = [&](const std::string& folder) {
    companions.write(folder);
    if (arguments.with_state) write_state(source, folder);
    throw_if_stopped();
  };
  const io::Progress progress = progress_of("writing", arch::short_bytes);
  std::string as = "lamina's own format";
  if (arguments.to == "hf") {
    as = "model_type " + io::write_hf(arguments.target, checkpoint,
                                      {arguments.family, {}, max_shard_bytes, arguments.force, progress, add_files});
  } else {
    io::write_native(arguments.target, checkpoint, arguments.force, progress, add_files);
  }
  std::printf("%s: %s parameters, %s%s%s\n", arguments.target.c_str(),
              arch::with_commas(arch::count_parameters(checkpoint.spec).total).c_str(), as.c_str(),
              companions.has_tokenizer() ? ", with its tokenizer" : "",
              companions.has_recipe() ? ", with its pooling and prompts" : "");
}

}  // namespace

void add_convert(CLI::App& program) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command = program.add_subcommand(
      "convert", "Convert a model between formats: Hugging Face folders, lamina's own, llama2.c files (read only)");
  command->add_option("source", arguments->source, "A Hugging Face or lamina folder, or a llama2.c .bin file")
      ->required();
  command->add_option("target", arguments->target, "The folder to make")->required();
  command->add_option("--to", arguments->to, "hf or lamina")->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "Type of the weights: f32, bf16, f16 or f64 (default: as they are)");
  command->add_option("--max-shard-size", arguments->max_shard_size, "Largest weight file of an hf folder")
      ->capture_default_str();
  command->add_option("--family", arguments->family,
                      "The model_type of an hf folder (default: the source's, or the first whose structure fits)");
  command->add_option("--tokenizer", arguments->tokenizer,
                      "Tokenizer file or folder to store with the weights (default: the source's)");
  command->add_flag("--with-state", arguments->with_state,
                    "Also write a run's training state, as one file for any layout (--to lamina)");
  command->add_flag("--force", arguments->force, "Replace the target if it is a checkpoint that lamina wrote");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
