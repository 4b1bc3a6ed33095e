#include <cstdio>
#include <filesystem>
#include <memory>

#include "lamina/arch/count.h"
#include "lamina/arch/plan.h"
#include "lamina/cli/amounts.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/progress_line.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/io/hf.h"
#include "lamina/io/model_file.h"

namespace lamina::cli {
namespace {

struct ConvertArguments {
  std::string source;
  std::string target;
  std::string to = "hf";
  std::string dtype;
  std::string max_shard_size = "5GB";
  std::string family;
  bool force = false;
};

void run(const ConvertArguments& arguments) {
  LAMINA_CHECK(arguments.to == "hf" || arguments.to == "lamina", "--to ", arguments.to, ": expected hf or lamina");
  std::optional<DType> dtype;
  if (!arguments.dtype.empty()) {
    dtype = dtype_from_name(arguments.dtype);
    LAMINA_CHECK(dtype && is_floating(*dtype), "--dtype ", arguments.dtype, ": expected f32, bf16, f16 or f64");
  }
  const int64_t max_shard_bytes = bytes_from(arguments.max_shard_size, "--max-shard-size");
  LAMINA_CHECK(arguments.force || !std::filesystem::exists(arguments.target), arguments.target,
               ": is there already; choose another name or give --force");
  catch_stop_signals("\nstopping: temporary files are removed; once more stops at once\n");
  const io::Checkpoint checkpoint =
      io::read_model(arguments.source, Device::cpu(), {dtype, progress_of("reading", arch::short_bytes)});
  std::string as = "lamina's own format";
  if (arguments.to == "hf") {
    as = "model_type " +
         io::write_hf(
             arguments.target, checkpoint,
             {arguments.family, {}, max_shard_bytes, arguments.force, progress_of("writing", arch::short_bytes)});
  } else {
    io::write_native(arguments.target, checkpoint, arguments.force, progress_of("writing", arch::short_bytes));
  }
  std::printf("%s: %s parameters, %s\n", arguments.target.c_str(),
              arch::with_commas(arch::count_parameters(checkpoint.spec).total).c_str(), as.c_str());
}

}  // namespace

void add_convert(CLI::App& program) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command = program.add_subcommand(
      "convert", "A model from one format to another: Hugging Face folders, lamina's own, llama2.c files (read only)");
  command->add_option("source", arguments->source, "A Hugging Face or lamina folder, or a llama2.c .bin file")
      ->required();
  command->add_option("target", arguments->target, "The folder to make")->required();
  command->add_option("--to", arguments->to, "hf or lamina")->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "Type of the weights: f32, bf16, f16 or f64 (default: as they are)");
  command->add_option("--max-shard-size", arguments->max_shard_size, "Split the weights of an hf folder beyond this")
      ->capture_default_str();
  command->add_option("--family", arguments->family,
                      "The model_type of an hf folder (default: the source's, or the first whose structure fits)");
  command->add_flag("--force", arguments->force, "Replace the target if it is there");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
