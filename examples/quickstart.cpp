// A first look at the library: a small decoder-only Transformer learns to sort digits, in under a minute on a laptop.
//   quickstart [--steps N] [--threads N] [--svg FILE]
// This file has all steps: parameters, forward, loss, backward, gradient clipping, AdamW, and generation.
#include <lamina/lamina.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numbers>
#include <random>
#include <string>
#include <vector>

namespace {

using lamina::Device;
using lamina::DType;
using lamina::Shape;
using lamina::Tape;
using lamina::Tensor;
namespace ops = lamina::ops;

// The task: ten digits, a separator, then the same digits sorted. The loss covers only the tokens after the separator.
constexpr int64_t kDigits = 10;
constexpr int64_t kMark = 10;
constexpr int64_t kVocab = 11;
constexpr int64_t kSeq = 2 * kDigits;

constexpr int64_t kLayers = 2;
constexpr int64_t kModel = 64;
constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kHeadDim = kModel / kHeads;
constexpr int64_t kFeedForward = 176;
constexpr int64_t kBatch = 64;
constexpr double kLearningRate = 3e-3;

struct Layer {
  Tensor attention_norm, qkv, out;  // [d], [(heads + 2·kv_heads)·head_dim, d], [d, d]
  Tensor ffn_norm, gate_up, down;   // [d], [2·ff, d], [d, ff]
};

struct Model {
  Tensor embedding;  // [vocab, d]; also the output head (tied weights)
  std::vector<Layer> layers;
  Tensor final_norm;
  ops::RotaryTables rotary;

  explicit Model(const Device& device) {
    uint64_t seed = 1;
    const auto matrix = [&](int64_t rows, int64_t columns, double deviation) {
      Tensor values = Tensor::empty({rows, columns}, DType::f32, device);
      lamina::nn::init_normal(values, 0.0, deviation, seed++);
      return values;
    };
    const auto ones = [&] { return Tensor::full({kModel}, 1.0, DType::f32, device); };
    embedding = matrix(kVocab, kModel, 0.02);
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.push_back({ones(), matrix((kHeads + 2 * kKvHeads) * kHeadDim, kModel, 0.08), matrix(kModel, kModel, 0.04),
                        ones(), matrix(2 * kFeedForward, kModel, 0.08), matrix(kModel, kFeedForward, 0.04)});
    }
    final_norm = ones();
    rotary = ops::rotary_tables(kSeq, kHeadDim, {}, device);
  }

  lamina::NamedTensors parameters() {
    lamina::NamedTensors all{{"embedding", embedding}, {"final_norm", final_norm}};
    for (size_t i = 0; i < layers.size(); ++i) {
      const std::string prefix = "layers." + std::to_string(i) + ".";
      Layer& l = layers[i];
      all.insert(all.end(), {{prefix + "attention_norm", l.attention_norm},
                             {prefix + "qkv", l.qkv},
                             {prefix + "out", l.out},
                             {prefix + "ffn_norm", l.ffn_norm},
                             {prefix + "gate_up", l.gate_up},
                             {prefix + "down", l.down}});
    }
    return all;
  }

  /// ids [batch, seq] → hidden states [batch·seq, d]; multiply by the output head to get logits.
  Tensor forward(const Tensor& ids) const {
    const int64_t batch = ids.dim(0);
    const int64_t seq = ids.dim(1);
    Tensor h = ops::embedding(embedding, ids);  // [batch, seq, d]
    Tensor x = ops::rms_norm(h, layers[0].attention_norm);
    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& l = layers[i];
      const Tensor qkv = ops::linear(x, l.qkv).reshape({batch, seq, kHeads + 2 * kKvHeads, kHeadDim});
      const Tensor q = ops::rotary(qkv.slice(2, 0, kHeads), rotary.cos, rotary.sin);
      const Tensor k = ops::rotary(qkv.slice(2, kHeads, kKvHeads), rotary.cos, rotary.sin);
      const Tensor v = qkv.slice(2, kHeads + kKvHeads, kKvHeads);
      const Tensor mixed = ops::attention(q, k, v, {.causal = true}).reshape({batch, seq, kModel});
      // One fused operator adds to the residual stream and normalizes it for the next sublayer.
      auto stream = ops::add_rms_norm(ops::linear(mixed, l.out), h, l.ffn_norm);
      const Tensor hidden = ops::gated_activation(ops::linear(stream.y, l.gate_up), ops::Gate::swiglu);
      const Tensor& next_norm = i + 1 < layers.size() ? layers[i + 1].attention_norm : final_norm;
      stream = ops::add_rms_norm(ops::linear(hidden, l.down), stream.h, next_norm);
      h = stream.h;
      x = stream.y;
    }
    return x.reshape({batch * seq, kModel});
  }
};

struct Batch {
  Tensor ids;      // [batch, seq]
  Tensor targets;  // [batch·seq]; −100 (ignored by the loss) before the separator
};

Batch make_batch(std::mt19937& random, int64_t batch, const Device& device) {
  std::vector<int64_t> ids;
  std::vector<int64_t> targets;
  for (int64_t row = 0; row < batch; ++row) {
    std::vector<int64_t> digits(kDigits);
    for (int64_t& digit : digits) digit = static_cast<int64_t>(random() % 10);
    std::vector<int64_t> line = digits;
    line.push_back(kMark);
    std::sort(digits.begin(), digits.end());
    line.insert(line.end(), digits.begin(), digits.end());
    ids.insert(ids.end(), line.begin(), line.end() - 1);
    for (int64_t i = 0; i < kSeq; ++i) targets.push_back(i < kDigits ? -100 : line[static_cast<size_t>(i) + 1]);
  }
  return {Tensor::from(ids, {batch, kSeq}, device), Tensor::from(targets, {batch * kSeq}, device)};
}

/// Completes lines one token at a time; returns how many of `count` lines were sorted correctly.
int sort_with(const Model& model, std::mt19937& random, int count, const Device& device) {
  int right = 0;
  for (int example = 0; example < count; ++example) {
    const std::vector<int64_t> line = make_batch(random, 1, device).ids.to_vector<int64_t>();
    std::vector<int64_t> ids(line.begin(), line.begin() + kDigits + 1);
    std::vector<int64_t> expected(ids.begin(), ids.end() - 1);
    std::sort(expected.begin(), expected.end());
    std::vector<int64_t> answer;
    while (static_cast<int64_t>(answer.size()) < kDigits) {
      const auto length = static_cast<int64_t>(ids.size());
      const Tensor hidden = model.forward(Tensor::from(ids, {1, length}, device));
      const auto logits = ops::linear(hidden.slice(0, length - 1, 1), model.embedding).to_vector<float>();
      answer.push_back(std::max_element(logits.begin(), logits.end()) - logits.begin());
      ids.push_back(answer.back());
    }
    right += answer == expected ? 1 : 0;
    if (example >= 3) continue;
    const auto text = [](const std::vector<int64_t>& digits) {
      std::string out;
      for (const int64_t digit : digits) out += static_cast<char>('0' + digit);
      return out;
    };
    std::printf("  %s -> %s %s\n", text({line.begin(), line.begin() + kDigits}).c_str(), text(answer).c_str(),
                answer == expected ? "" : "(wrong)");
  }
  return right;
}

void draw_in_terminal(const std::vector<double>& losses) {
  constexpr int kColumns = 72;
  constexpr int kRows = 12;
  const double top = *std::max_element(losses.begin(), losses.end());
  std::vector<std::string> canvas(kRows, std::string(kColumns, ' '));
  for (int column = 0; column < kColumns; ++column) {
    const size_t begin = losses.size() * static_cast<size_t>(column) / kColumns;
    const size_t end = std::max(begin + 1, losses.size() * static_cast<size_t>(column + 1) / kColumns);
    double mean = 0;
    for (size_t i = begin; i < end; ++i) mean += losses[i] / static_cast<double>(end - begin);
    const int row = std::clamp(static_cast<int>((1 - mean / top) * kRows), 0, kRows - 1);
    canvas[static_cast<size_t>(row)][static_cast<size_t>(column)] = '*';
  }
  for (int row = 0; row < kRows; ++row) {
    std::printf("%6.2f |%s\n", top * (kRows - row) / kRows, canvas[static_cast<size_t>(row)].c_str());
  }
  std::printf("  loss +%s\n        0%*zu steps\n", std::string(kColumns, '-').c_str(), kColumns - 7, losses.size());
}

bool draw_svg(const std::string& path, const std::vector<double>& losses) {
  constexpr double kWidth = 640;
  constexpr double kHeight = 320;
  constexpr double kMargin = 48;
  const double top = *std::max_element(losses.begin(), losses.end());
  std::ofstream svg(path);
  svg << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " << kWidth << ' ' << kHeight
      << "' font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n"
      << "<text x='" << kWidth / 2 << "' y='20' text-anchor='middle'>Sorting digits: training loss</text>\n";
  const auto y_of = [&](double loss) { return kHeight - kMargin - loss / top * (kHeight - 2 * kMargin); };
  for (int line = 0; line <= 4; ++line) {
    const double loss = top * line / 4;
    svg << "<path d='M" << kMargin << ' ' << y_of(loss) << 'H' << kWidth - 16 << "' stroke='#ddd'/><text x='"
        << kMargin - 6 << "' y='" << y_of(loss) + 4 << "' text-anchor='end'>" << std::round(loss * 100) / 100
        << "</text>\n";
  }
  svg << "<text x='" << kWidth - 16 << "' y='" << kHeight - kMargin + 20 << "' text-anchor='end'>step " << losses.size()
      << "</text>\n<polyline fill='none' stroke='#0a6' stroke-width='1.5' points='";
  for (size_t i = 0; i < losses.size(); ++i) {
    svg << kMargin + (kWidth - 16 - kMargin) * static_cast<double>(i) / static_cast<double>(losses.size()) << ','
        << y_of(losses[i]) << ' ';
  }
  svg << "'/>\n</svg>\n";
  return svg.good();
}

struct Options {
  int steps = 800;
  int threads = 0;
  std::string svg = "quickstart-loss.svg";
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const bool has_value = i + 1 < argc;
    if (has_value && std::strcmp(argv[i], "--steps") == 0) {
      options.steps = std::atoi(argv[i + 1]);
    } else if (has_value && std::strcmp(argv[i], "--threads") == 0) {
      options.threads = std::atoi(argv[i + 1]);
    } else if (has_value && std::strcmp(argv[i], "--svg") == 0) {
      options.svg = argv[i + 1];
    } else {
      throw lamina::Error(lamina::str("unknown argument ", argv[i],
                                      "; usage: quickstart [--steps N] [--threads N] "
                                      "[--svg FILE]"));
    }
  }
  LAMINA_CHECK(options.steps > 0, "--steps wants a positive number");
  return options;
}

std::vector<double> train(Model& model, Tape& tape, const Options& options, const Device& device) {
  auto parameters = model.parameters();
  for (auto& parameter : parameters) tape.watch(parameter.tensor);
  lamina::train::AdamW optimizer({{.params = parameters, .lr = kLearningRate, .weight_decay = 0.01}});
  std::mt19937 random(7);
  std::vector<double> losses;
  double smooth = 0;
  const bool live = isatty(STDOUT_FILENO) != 0;
  const auto start = std::chrono::steady_clock::now();
  for (int step = 1; step <= options.steps; ++step) {
    const double progress = static_cast<double>(step) / options.steps;
    optimizer.set_lr(0, kLearningRate * std::min(1.0, step / 50.0) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
    const Batch batch = make_batch(random, kBatch, device);
    const Tensor loss = ops::linear_cross_entropy(model.forward(batch.ids), model.embedding, batch.targets);
    tape.backward(loss);
    ops::clip_grad_norm_(optimizer.gradients(tape), {.max_norm = 1.0});
    optimizer.step(tape);
    tape.zero_grad();

    losses.push_back(loss.item());
    smooth = step == 1 ? losses.back() : 0.95 * smooth + 0.05 * losses.back();
    if (!live && step % std::max(1, options.steps / 10) != 0) continue;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%sstep %4d/%d  loss %.4f  smoothed %.4f  %6.0f tokens/s  %3.0f s left%s", live ? "\r" : "", step,
                options.steps, losses.back(), smooth, static_cast<double>(step * kBatch * kSeq) / seconds,
                seconds / step * (options.steps - step), live ? " " : "\n");
    std::fflush(stdout);
  }
  if (live) std::printf("\n");
  return losses;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Device device = Device::cpu(options.threads);
  Model model(device);
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.tensor.numel();
  std::printf(
      "A Transformer of %lld parameters (RMSNorm, RoPE, grouped-query attention, SwiGLU) learns to sort %lld "
      "digits on %d threads.\n\n",
      static_cast<long long>(count), static_cast<long long>(kDigits), device.threads().count());
  Tape tape;
  const std::vector<double> losses = train(model, tape, options, device);
  std::printf("\n");
  draw_in_terminal(losses);
  LAMINA_CHECK(draw_svg(options.svg, losses), "cannot write ", options.svg, "; give another place with --svg");

  std::printf("\nWhat it does with digits it has not seen:\n");
  const lamina::NoGrad inference(tape);
  std::mt19937 unseen(12345);
  const int right = sort_with(model, unseen, 100, device);
  std::printf(
      "%d of 100 lines sorted without a mistake.\n\nThe curve is in %s. Next: read examples/quickstart.cpp, try "
      "--steps 200, run `make bench`.\n",
      right, options.svg.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quickstart: %s\n", error.what());
    return 1;
  }
}
