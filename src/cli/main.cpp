#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lamina/base/version.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/stop_signal.h"
#include "lamina/cli/usage.h"
#include "lamina/comm/transport.h"

namespace {

using lamina::cli::ExitCode;

/// Runs the command and returns its exit code.
int run(CLI::App& program, int argc, char** argv) {
  try {
    lamina::cli::check_command(program, {argv + 1, argv + argc});
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);
    std::cerr << "lamina: " << lamina::cli::message_of(program, error) << '\n';
    return ExitCode::kUsage;
  } catch (const lamina::cli::UsageError& error) {
    std::cerr << "lamina: " << error.what() << '\n';
    return ExitCode::kUsage;
  } catch (const lamina::cli::Stopped& stopped) {
    return stopped.exit_code;
  } catch (const lamina::comm::CommError& error) {
    std::cerr << "lamina: " << error.what() << '\n';
    return ExitCode::kRestart;
  } catch (const nlohmann::json::exception& error) {
    constexpr int kNotUtf8 = 316;
    std::cerr << (error.id == kNotUtf8 ? "lamina: a name or text that was given is not UTF-8; use UTF-8\n"
                                       : "lamina: a JSON value has an unexpected type (internal error, report it)\n");
    return ExitCode::kFailure;
  } catch (const std::filesystem::filesystem_error& error) {
    std::cerr << "lamina: " << error.path1().string() << ": " << error.code().message()
              << "; check the name and the permissions\n";
    return ExitCode::kFailure;
  } catch (const std::bad_alloc&) {
    std::cerr << "lamina: out of memory; give smaller sizes (such as batch, length or context) or free memory\n";
    return ExitCode::kFailure;
  } catch (const std::length_error&) {
    std::cerr << "lamina: a size is too large for any memory; give smaller numbers\n";
    return ExitCode::kFailure;
  } catch (const std::exception& error) {
    std::cerr << "lamina: " << error.what() << '\n';
    return ExitCode::kFailure;
  }
  return ExitCode::kSuccess;
}

/// Returns false if any output of the command was lost, for example on a full disk. stdio remembers failed writes.
bool flush_output() {
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  return flushed && std::ferror(stdout) == 0 && std::cout.good();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lamina::cli;
  CLI::App program("Transformer language models in which every architecture choice is a switch", "lamina");
  program.set_version_flag("--version", std::string(lamina::kVersion));
  program.require_subcommand(1);
  add_advise(program);
  add_bench(program);
  add_check(program);
  add_compare(program);
  add_convert(program);
  add_data(program);
  add_draw(program);
  add_embed(program);
  add_eval(program);
  add_generate(program);
  add_help(program);
  add_index(program);
  add_info(program);
  add_launch(program);
  add_ops(program);
  add_plan(program);
  add_plot(program);
  add_presets(program);
  add_report(program);
  add_search(program);
  add_serve(program);
  add_stretch(program);
  add_tokenizer(program);
  add_train(program);
  int code = kSuccess;
  if (argc <= 1) {
    std::cout << program.help();
  } else {
    code = run(program, argc, argv);
  }
  if (flush_output()) return code;
  std::cerr << "lamina: standard output cannot be written completely; check that its disk is not full\n";
  return code == kSuccess ? kFailure : code;
}
