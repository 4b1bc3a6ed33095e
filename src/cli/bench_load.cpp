#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/seconds_of.h"
#include "lamina/io/hf.h"
#include "lamina/io/model_file.h"
#include "lamina/nn/model.h"

namespace lamina::cli {
namespace {

namespace fs = std::filesystem;

struct LoadArguments {
  std::string model;
  std::string preset;
};

/// Resident memory of this process in bytes.
double resident() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t pages = 0;
  file >> size >> pages;
  return static_cast<double>(pages * ::sysconf(_SC_PAGESIZE));
}

std::vector<fs::path> weight_files(const std::string& model) {
  if (!folder_exists(model)) return {model};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(model)) {
    if (entry.path().extension() == ".safetensors" && entry.path().filename().string().starts_with("model")) {
      files.push_back(entry.path());
    }
  }
  return files;
}

/// Reads all files once.
int64_t read_through(const std::vector<fs::path>& files) {
  std::vector<char> piece(size_t{4} << 20);
  int64_t bytes = 0;
  for (const fs::path& path : files) {
    std::ifstream file(path, std::ios::binary);
    do {
      file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      bytes += file.gcount();
    } while (file);
  }
  return bytes;
}

/// Touches every page of a tensor whose last or second-to-last dimension is contiguous.
unsigned touch(const Tensor& tensor) {
  constexpr int64_t kPage = 4096;
  const bool turned = tensor.rank() == 2 && tensor.strides()[1] != 1;
  const Tensor rows = (turned ? tensor.transpose(0, 1) : tensor).detach();
  const int64_t count = rows.is_contiguous() ? 1 : rows.dim(0);
  const int64_t bytes = rows.nbytes() / count;
  const int64_t apart = count == 1 ? 0 : rows.strides()[0] * static_cast<int64_t>(size_of(rows.dtype()));
  unsigned sum = 0;
  for (int64_t row = 0; row < count; ++row) {
    const auto* data = static_cast<const unsigned char*>(rows.raw()) + row * apart;
    for (int64_t i = 0; i < bytes; i += kPage) sum += data[i];
    sum += data[bytes - 1];
  }
  return sum;
}

unsigned touch(const nn::Model& model) {
  unsigned sum = 0;
  for (const auto& [name, tensor] : model.state_dict()) sum += touch(tensor);
  return sum;
}

void measure(const std::string& path) {
  constexpr int kRounds = 5;
  const std::vector<fs::path> files = weight_files(path);
  LAMINA_CHECK(!files.empty(), path, ": has no file of weights (model*.safetensors)");
  const auto bytes = static_cast<double>(read_through(files));
  double reading = 1e30;
  double loading = 1e30;
  double memory = 0;
  unsigned seen = 0;
  for (int round = 0; round < kRounds; ++round) {
    reading = std::min(reading, seconds_of([&] { read_through(files); }));
    const double before = resident();
    std::unique_ptr<nn::Model> model;
    loading = std::min(loading, seconds_of([&] {
                         const io::Checkpoint checkpoint = io::read_model(path, Device::cpu());
                         model = std::make_unique<nn::Model>(checkpoint.spec, Device::meta());
                         model->adopt_state_dict(checkpoint.tensors);
                         seen += touch(*model);
                       }));
    memory = std::max(memory, resident() - before);
  }
  std::printf("%s: %.1f MB of weights (best of %d rounds; check %u)\n", path.c_str(), bytes / 1e6, kRounds,
              seen % 1000);
  std::printf("  reading the files   %8.1f ms\n", reading * 1e3);
  std::printf("  loading the model   %8.1f ms, %.2f of that\n", loading * 1e3, loading / reading);
  std::printf("  memory taken        %8.1f MB, %.2f of the files\n", memory / 1e6, memory / bytes);
}

void run(const LoadArguments& arguments) {
  LAMINA_CHECK(arguments.model.empty() != arguments.preset.empty(), "give either a model or --preset");
  if (!arguments.model.empty()) return measure(arguments.model);
  const fs::path folder = fs::temp_directory_path() / str("lamina-bench-load-", ::getpid());
  struct Removed {
    fs::path path;
    ~Removed() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  } const removed{folder};
  {
    const nn::Model model(arch::resolve(arch::load_preset(arguments.preset)), Device::cpu());
    io::write_hf(folder.string(), {model.spec(), model.state_dict(), {}, {}});
  }
  measure(folder.string());
}

}  // namespace

void add_bench_load(CLI::App& bench) {
  auto arguments = std::make_shared<LoadArguments>();
  CLI::App* command = bench.add_subcommand(
      "load", "Time and memory to load a checkpoint and read every weight, compared with reading its files");
  command->add_option("model", arguments->model, "A Hugging Face or lamina folder, or a llama2.c .bin file");
  command->add_option("--preset", arguments->preset,
                      "Instead: write a Hugging Face folder with random weights of this preset, load it, remove it");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lamina::cli
