#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lamina/base/version.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/stop_signal.h"

namespace {

/// Runs the command and returns its exit code.
int run(CLI::App& program, int argc, char** argv) {
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return program.exit(error);
  } catch (const lamina::cli::Stopped& stopped) {
    return stopped.exit_code;
  } catch (const nlohmann::json::exception& error) {
    constexpr int kNotUtf8 = 316;
    std::cerr << (error.id == kNotUtf8 ? "lamina: a name or text that was given is not UTF-8; use UTF-8\n"
                                       : "lamina: a JSON value has an unexpected type (internal error, report it)\n");
    return 1;
  } catch (const std::filesystem::filesystem_error& error) {
    std::cerr << "lamina: " << error.path1().string() << ": " << error.code().message()
              << "; check the name and the permissions\n";
    return 1;
  } catch (const std::exception& error) {
    std::cerr << "lamina: " << error.what() << '\n';
    return 1;
  }
  return 0;
}

/// False if something that the command printed was lost, as on a full disk. stdio remembers every failed write.
bool flush_output() {
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  return flushed && std::ferror(stdout) == 0 && std::cout.good();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App program("Transformer language models in which every architecture choice is a switch", "lamina");
  program.set_version_flag("--version", std::string(lamina::kVersion));
  program.require_subcommand(1);
  lamina::cli::add_advise(program);
  lamina::cli::add_bench(program);
  lamina::cli::add_check(program);
  lamina::cli::add_compare(program);
  lamina::cli::add_convert(program);
  lamina::cli::add_data(program);
  lamina::cli::add_eval(program);
  lamina::cli::add_generate(program);
  lamina::cli::add_info(program);
  lamina::cli::add_ops(program);
  lamina::cli::add_plan(program);
  lamina::cli::add_plot(program);
  lamina::cli::add_presets(program);
  lamina::cli::add_report(program);
  lamina::cli::add_stretch(program);
  lamina::cli::add_tokenizer(program);
  lamina::cli::add_train(program);
  const int code = run(program, argc, argv);
  if (flush_output()) return code;
  std::cerr << "lamina: standard output cannot be written completely; check that its disk is not full\n";
  return code == 0 ? 1 : code;
}
