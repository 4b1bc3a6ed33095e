#include <unistd.h>

#include <cstdio>
#include <memory>

#include "lamina/arch/edit.h"
#include "lamina/arch/layers.h"
#include "lamina/arch/picture.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "lamina/base/files.h"
#include "lamina/base/suggest.h"
#include "lamina/cli/commands.h"
#include "lamina/cli/usage.h"
#include "lamina/lab/draw/figures.h"

namespace lamina::cli {
namespace {

struct DrawArguments {
  std::string svg;
  std::string architecture;
  std::vector<std::string> overrides;
  int64_t length = 16;
  int64_t tiled_length = 2048;
  int64_t tile = 128;
  int64_t tiled_width = 64;
  int64_t window = 0;
  bool both_ways = false;
  int64_t heads = 8;
  int64_t kv_heads = 2;
  int64_t head = 0;
  int64_t head_dim = 128;
  std::vector<double> thetas = {1e4, 5e5};
  int64_t distance = 512;
  std::vector<std::string> functions = {"relu", "gelu", "silu", "elu"};
  std::vector<double> caps = {30};
  int64_t count = 9;
  int64_t width = 128;
};

/// Writes an SVG file if --svg is given, otherwise draws in the terminal.
void show(const lab::Drawing& drawing, const DrawArguments& arguments) {
  if (!arguments.svg.empty()) return write_text(arguments.svg, lab::drawing_svg(drawing));
  std::fputs(lab::drawing_text(drawing, ::isatty(STDOUT_FILENO) != 0).c_str(), stdout);
}

arch::ArchSpec architecture_of(const DrawArguments& arguments) {
  return arch::resolve(arch::with_overrides(arch::load_arch(arguments.architecture), arguments.overrides),
                       arguments.architecture);
}

/// Whether queries attend only to earlier keys: set by --both-ways, or by the architecture of --arch.
bool is_causal(const DrawArguments& arguments) {
  return !arguments.both_ways && (arguments.architecture.empty() || architecture_of(arguments).causal);
}

/// The attention pattern: that of the first attention layer of --arch, or the one of --window, or full attention.
arch::Pattern pattern_of(const DrawArguments& arguments) {
  if (arguments.architecture.empty()) {
    if (arguments.window == 0) return arch::FullPattern{};
    return arch::WindowPattern{.size = arguments.window};
  }
  const arch::ArchSpec spec = architecture_of(arguments);
  for (const arch::Block* block : arch::layer_blocks(spec)) {
    if (const auto* attention = arch::attention_of(block->mixer)) return attention->pattern;
  }
  throw Error(arguments.architecture + " has no attention layer; draw another architecture's mask");
}

std::vector<Activation> activations_of(const std::vector<std::string>& names) {
  constexpr auto kNames = names_of(Activation{});
  std::vector<Activation> functions;
  for (const std::string& name : names) {
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) {
      const std::string nearest = nearest_of(name.substr(0, 64), {kNames.begin(), kNames.end()});
      throw Error(
          str("no activation \"", name, "\"; ",
              nearest.empty() ? "`lamina draw activation --help` lists them" : "did you mean " + nearest + "?"));
    }
    functions.push_back(static_cast<Activation>(found - kNames.begin()));
  }
  return functions;
}

class DrawCommands {
 public:
  explicit DrawCommands(CLI::App& draw) : draw_(draw), arguments_(std::make_shared<DrawArguments>()) {}

  CLI::App& add(const char* name, const char* about, lab::Drawing (*figure)(const DrawArguments&)) {
    CLI::App& command = add_plain(name, about);
    command.callback([arguments = arguments_, figure] { show(figure(*arguments), *arguments); });
    return command;
  }
  CLI::App& add_plain(const char* name, const char* about) {
    CLI::App& command = *draw_.add_subcommand(name, about);
    command.add_option("--svg", arguments_->svg, "Write an SVG file instead of drawing in the terminal");
    return command;
  }
  void add_pattern(CLI::App& command) {
    command.add_option("--arch", arguments_->architecture,
                       "Take the pattern of the first attention layer of this preset or file");
    command.add_option("--set", arguments_->overrides, "Change the architecture: path=value; repeatable")
        ->allow_extra_args(false)
        ->take_all();
    command.add_option("--window", arguments_->window, "Sliding window of this many tokens")->check(at_least(1));
    command.add_flag("--both-ways", arguments_->both_ways,
                     "Not causal: queries also see later keys; default: as --arch");
  }
  std::shared_ptr<DrawArguments> arguments() const { return arguments_; }

 private:
  CLI::App& draw_;
  std::shared_ptr<DrawArguments> arguments_;
};

void add_attention_figures(DrawCommands& commands) {
  DrawArguments& a = *commands.arguments();
  CLI::App& mask = commands.add("mask", "Which keys each query sees", [](const DrawArguments& d) {
    return lab::draw_mask(pattern_of(d), is_causal(d), d.length);
  });
  mask.add_option("--length", a.length, "Tokens")->capture_default_str()->check(at_least(1));
  commands.add_pattern(mask);
  CLI::App& flash = commands.add("flash", "Tiles that tiled attention computes and skips", [](const DrawArguments& d) {
    return lab::draw_tiles(pattern_of(d), is_causal(d), d.tiled_length, d.tile);
  });
  flash.add_option("--length", a.tiled_length, "Tokens")->capture_default_str()->check(at_least(1));
  flash.add_option("--tile", a.tile, "Tokens per tile")->capture_default_str()->check(at_least(1));
  commands.add_pattern(flash);
  CLI::App& memory = commands.add(
      "memory", "What tiled attention keeps on chip and in device memory",
      [](const DrawArguments& d) { return lab::draw_memory(!d.both_ways, d.tiled_length, d.tiled_width, d.tile); });
  memory.add_option("--length", a.tiled_length, "Tokens")->capture_default_str()->check(at_least(1));
  memory.add_option("--tile", a.tile, "Tokens per tile")->capture_default_str()->check(at_least(1));
  memory.add_option("--head-dim", a.tiled_width, "Width of a head")->capture_default_str()->check(at_least(1));
  memory.add_flag("--both-ways", a.both_ways, "Not causal: queries also see later keys");
  CLI::App& heads = commands.add("heads", "Which key/value head each query head reads",
                                 [](const DrawArguments& d) { return lab::draw_heads(d.heads, d.kv_heads); });
  heads.add_option("--heads", a.heads, "Query heads")->capture_default_str();
  heads.add_option("--kv-heads", a.kv_heads, "Key/value heads")->capture_default_str();
}

void add_position_figures(DrawCommands& commands) {
  DrawArguments& a = *commands.arguments();
  CLI::App& alibi = commands.add("alibi", "Bias that ALiBi adds to the scores of a head",
                                 [](const DrawArguments& d) { return lab::draw_alibi(d.heads, d.head, d.length); });
  alibi.add_option("--heads", a.heads, "Number of heads")->capture_default_str();
  alibi.add_option("--head", a.head, "The head, counted from 0")->capture_default_str();
  alibi.add_option("--length", a.length, "Tokens")->capture_default_str();
  CLI::App& rope = commands.add("rope", "How RoPE scores decay with distance", [](const DrawArguments& d) {
    return lab::draw_rope(d.head_dim, d.thetas, d.distance);
  });
  rope.add_option("--head-dim", a.head_dim, "Width of a head")->capture_default_str();
  rope.add_option("--theta", a.thetas, "Bases of the frequencies, one or several: 1e4,5e5")->delimiter(',');
  rope.add_option("--distance", a.distance, "Largest distance")->capture_default_str();
}

void add_function_figures(DrawCommands& commands) {
  DrawArguments& a = *commands.arguments();
  std::string known;
  for (const std::string_view name : names_of(Activation{})) known += str(known.empty() ? "" : ", ", name);
  CLI::App& activation = commands.add("activation", "Activation functions", [](const DrawArguments& d) {
    return lab::draw_activations(activations_of(d.functions));
  });
  activation.add_option("functions", a.functions, "Any of " + known);
  CLI::App& cap = commands.add("softcap", "Soft caps of logits: c · tanh(z / c)",
                               [](const DrawArguments& d) { return lab::draw_soft_caps(d.caps); });
  cap.add_option("--cap", a.caps, "Caps, one or several: 30,50")->delimiter(',');
  CLI::App& norm = commands.add("norm", "Layer norm and RMS norm of 1 … N",
                                [](const DrawArguments& d) { return lab::draw_norms(d.count); });
  norm.add_option("--count", a.count, "N")->capture_default_str();
  CLI::App& variance = commands.add("scores", "Why scores are scaled by 1/√d: variance of q · k by width",
                                    [](const DrawArguments& d) { return lab::draw_score_variance(d.width); });
  variance.add_option("--width", a.width, "Largest width")->capture_default_str();
}

void add_block_figure(DrawCommands& commands) {
  CLI::App& block = commands.add_plain("block", "Block diagram of an architecture");
  const std::shared_ptr<DrawArguments> arguments = commands.arguments();
  block.add_option("architecture", arguments->architecture, "A preset or a file")->required();
  block.add_option("--set", arguments->overrides, "Change the architecture: path=value; repeatable")
      ->allow_extra_args(false)
      ->take_all();
  block.callback([arguments] {
    const arch::ArchSpec spec = architecture_of(*arguments);
    if (!arguments->svg.empty()) return write_text(arguments->svg, arch::draw(spec, arguments->architecture));
    std::fputs(arch::draw_text(spec, arguments->architecture).c_str(), stdout);
  });
}

}  // namespace

void add_draw(CLI::App& program) {
  CLI::App* draw =
      program.add_subcommand("draw", "Draw a mask, a bias, a function or a block, with the library's numbers");
  draw->require_subcommand(1);
  DrawCommands commands(*draw);
  add_attention_figures(commands);
  add_position_figures(commands);
  add_function_figures(commands);
  add_block_figure(commands);
}

}  // namespace lamina::cli
