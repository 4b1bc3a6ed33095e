// A complete language model in one file, to read from top to bottom.
//
// This is the design of most current models: token embedding, RMS norm, rotary position embedding (RoPE), grouped-query
// attention (GQA), a gated feed-forward (SwiGLU) and residual connections. It uses only the C++ standard library,
// writes every matrix product as a loop, and explains why each step is there. The library computes the same values much
// faster; a test compares the two.
//
//   one_file_model                              random weights: prints the model's size, its loss and generated tokens
//   one_file_model MODEL.bin [STEPS [TOKEN …]]  loads a model in llama2.c's format and continues the given token ids
//
// Comments give the shape of every array, outermost dimension first. [seq, d_model] is row-major: the d_model numbers
// of one position are adjacent in memory.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace one_file {

using Floats = std::vector<float>;

// ---------------------------------------------------------------------------------------------------------------------
// 1. Configuration and weights
// ---------------------------------------------------------------------------------------------------------------------

struct Config {
  int vocab_size = 64;     // number of different tokens
  int d_model = 32;        // width of the residual stream: how many numbers represent one position
  int n_layers = 2;        // number of blocks, applied one after the other
  int n_heads = 4;         // number of attention heads; each computes its own attention weights
  int n_kv_heads = 2;      // number of key/value heads; n_heads / n_kv_heads query heads share each one (GQA)
  int d_ff = 96;           // hidden width of the feed-forward
  int context = 64;        // maximum sequence length
  float theta = 10000;     // base of the RoPE frequencies; a larger value means slower rotation
  float norm_eps = 1e-5F;  // avoids division by zero in the norm

  int head_dim() const { return d_model / n_heads; }
  int kv_width() const { return n_kv_heads * head_dim(); }
};

// The weights that training learns. A matrix is [out, in]: output o is the dot product of row o with the input.
struct Layer {
  Floats attention_norm;  // [d_model]
  Floats q;               // [n_heads · head_dim, d_model]     query: what this position looks for
  Floats k;               // [n_kv_heads · head_dim, d_model]  key: what this position offers to be found by
  Floats v;               // [n_kv_heads · head_dim, d_model]  value: what it passes on when attended to
  Floats o;               // [d_model, n_heads · head_dim]     output projection: combines the heads
  Floats ffn_norm;        // [d_model]
  Floats gate;            // [d_ff, d_model]
  Floats up;              // [d_ff, d_model]
  Floats down;            // [d_model, d_ff]
};

struct Model {
  Config config;
  Floats embedding;  // [vocab_size, d_model]  one row per token
  std::vector<Layer> layers;
  Floats final_norm;  // [d_model]
  Floats head;        // [vocab_size, d_model]  often equal to the embedding ("tied weights")
};

// ---------------------------------------------------------------------------------------------------------------------
// 2. Building blocks
// ---------------------------------------------------------------------------------------------------------------------

// y = W x. Nearly all of a model's computation is matrix products.
Floats multiply(const Floats& weight, const Floats& x) {
  const size_t in = x.size();
  const size_t out = weight.size() / in;
  Floats y(out);
  for (size_t o = 0; o < out; ++o) {
    float sum = 0;
    for (size_t i = 0; i < in; ++i) sum += weight[o * in + i] * x[i];
    y[o] = sum;
  }
  return y;
}

// RMS norm: divides x by its root mean square, then multiplies each element by a learned weight. The residual stream
// grows as layers add to it; the norm gives each sublayer an input of fixed scale. LayerNorm also subtracts the mean
// and adds a bias; in practice that helps little.
Floats rms_norm(const Floats& x, const Floats& weight, float eps) {
  float square = 0;
  for (const float value : x) square += value * value;
  const float scale = 1 / std::sqrt(square / static_cast<float>(x.size()) + eps);
  Floats y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

// RoPE: attention by itself ignores the order of its inputs. RoPE treats elements i and i + head_dim/2 of a head as a
// 2-D point and rotates it by the angle position · theta^(-2i/head_dim): fast for small i, slow for large i. The dot
// product of a rotated query and a rotated key then depends only on the distance between their positions.
void rotate(float* head, int head_dim, int position, float theta) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; ++i) {
    const double speed = std::pow(static_cast<double>(theta), -2.0 * i / head_dim);
    const auto cosine = static_cast<float>(std::cos(position * speed));
    const auto sine = static_cast<float>(std::sin(position * speed));
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cosine - b * sine;
    head[i + half] = b * cosine + a * sine;
  }
}

// Softmax turns scores into probabilities: positive, with sum 1, larger for larger scores. Subtracting the maximum
// first does not change the result, but keeps exp() from overflowing.
void softmax(Floats& scores) {
  const float largest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score - largest);
  for (float& score : scores) score /= sum;
}

// SiLU (Swish), the gate's activation: close to 0 for very negative x, close to x for large x, smooth in between.
float silu(float x) { return x / (1 + std::exp(-x)); }

// ---------------------------------------------------------------------------------------------------------------------
// 3. The two sublayers
// ---------------------------------------------------------------------------------------------------------------------

// KV cache: keys and values of all earlier positions, per layer. Generation adds one position at a time. Keys and
// values of earlier positions do not change, so they are stored instead of computed again. GQA makes the cache smaller.
struct Cache {
  std::vector<Floats> keys;    // per layer [positions, n_kv_heads · head_dim], after RoPE
  std::vector<Floats> values;  // per layer [positions, n_kv_heads · head_dim]
  int positions = 0;
  explicit Cache(const Config& config)
      : keys(static_cast<size_t>(config.n_layers)), values(static_cast<size_t>(config.n_layers)) {}
};

// Attention for one position x [d_model]. Each head computes the dot products of its query with the keys of all
// positions up to this one. Softmax turns them into weights, and the output is the weighted sum of the values. Later
// positions are not in the cache yet, which has the effect of a causal mask.
Floats attention(const Floats& x, const Layer& layer, const Config& config, Floats& keys, Floats& values,
                 int position) {
  const int dim = config.head_dim();
  Floats query = multiply(layer.q, x);  // [n_heads · head_dim]
  Floats key = multiply(layer.k, x);    // [n_kv_heads · head_dim]
  const Floats value = multiply(layer.v, x);
  for (int h = 0; h < config.n_heads; ++h) rotate(query.data() + h * dim, dim, position, config.theta);
  for (int h = 0; h < config.n_kv_heads; ++h) rotate(key.data() + h * dim, dim, position, config.theta);
  keys.insert(keys.end(), key.begin(), key.end());
  values.insert(values.end(), value.begin(), value.end());

  // A dot product of head_dim terms grows with head_dim. Unscaled, softmax would put nearly all weight on one key.
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  const int heads_per_kv = config.n_heads / config.n_kv_heads;
  Floats mixed(static_cast<size_t>(config.n_heads * dim), 0.0F);
  for (int h = 0; h < config.n_heads; ++h) {
    const int shared = h / heads_per_kv * dim;  // offset of this head's KV head within a position's row
    Floats weights(static_cast<size_t>(position + 1));
    for (int past = 0; past <= position; ++past) {
      const float* k = keys.data() + past * config.kv_width() + shared;
      float product = 0;
      for (int i = 0; i < dim; ++i) product += query[static_cast<size_t>(h * dim + i)] * k[i];
      weights[static_cast<size_t>(past)] = product * scale;
    }
    softmax(weights);
    for (int past = 0; past <= position; ++past) {
      const float* v = values.data() + past * config.kv_width() + shared;
      for (int i = 0; i < dim; ++i)
        mixed[static_cast<size_t>(h * dim + i)] += weights[static_cast<size_t>(past)] * v[i];
    }
  }
  return multiply(layer.o, mixed);
}

// SwiGLU: projects up twice, multiplies one result by silu of the other (the gate), and projects down. It treats each
// position separately: attention moves information between positions, the feed-forward processes it.
Floats feed_forward(const Floats& x, const Layer& layer) {
  const Floats gate = multiply(layer.gate, x);  // [d_ff]
  Floats hidden = multiply(layer.up, x);        // [d_ff]
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] *= silu(gate[i]);
  return multiply(layer.down, hidden);
}

// ---------------------------------------------------------------------------------------------------------------------
// 4. The model: takes one token, returns a score (logit) for every possible next token
// ---------------------------------------------------------------------------------------------------------------------

Floats forward(const Model& model, Cache& cache, int token) {
  const Config& config = model.config;
  if (token < 0 || token >= config.vocab_size) {
    throw std::runtime_error("token " + std::to_string(token) + " is not below the vocabulary size " +
                             std::to_string(config.vocab_size));
  }
  if (cache.positions >= config.context) {
    throw std::runtime_error("the context of " + std::to_string(config.context) + " positions is full");
  }
  const int position = cache.positions++;

  // x starts as the token's embedding and becomes the residual stream: each sublayer reads it through a norm and adds
  // its output. The additions give gradients a direct path from the loss to the embedding.
  const auto row = model.embedding.begin() + static_cast<std::ptrdiff_t>(token) * config.d_model;
  Floats x(row, row + config.d_model);
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const Layer& layer = model.layers[l];
    const Floats attended = attention(rms_norm(x, layer.attention_norm, config.norm_eps), layer, config, cache.keys[l],
                                      cache.values[l], position);
    for (size_t i = 0; i < x.size(); ++i) x[i] += attended[i];
    const Floats thought = feed_forward(rms_norm(x, layer.ffn_norm, config.norm_eps), layer);
    for (size_t i = 0; i < x.size(); ++i) x[i] += thought[i];
  }
  return multiply(model.head, rms_norm(x, model.final_norm, config.norm_eps));  // logits, [vocab_size]
}

// Cross-entropy loss: the average of -log(probability that the model gave to the actual next token). A uniform guess
// has a loss of log(vocab_size); training lowers it. exp(loss) is the perplexity.
double loss(const Model& model, const std::vector<int>& tokens) {
  Cache cache(model.config);
  double total = 0;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    Floats probabilities = forward(model, cache, tokens[i]);
    softmax(probabilities);
    total -= std::log(static_cast<double>(probabilities.at(static_cast<size_t>(tokens[i + 1]))));
  }
  return total / static_cast<double>(tokens.size() - 1);
}

// Generation: feeds in the prompt, then repeatedly chooses the next token and feeds it back. Temperature 0 takes the
// most likely token (greedy); otherwise it samples, and a higher temperature flattens the distribution.
std::vector<int> generate(const Model& model, std::vector<int> tokens, int count, float temperature, unsigned seed) {
  Cache cache(model.config);
  std::mt19937 random(seed);
  Floats logits;
  for (const int token : tokens) logits = forward(model, cache, token);
  for (int step = 0; step < count; ++step) {
    int next = static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    if (temperature > 0) {
      for (float& logit : logits) logit /= temperature;
      softmax(logits);
      next = std::discrete_distribution<int>(logits.begin(), logits.end())(random);
    }
    tokens.push_back(next);
    if (step + 1 < count) logits = forward(model, cache, next);
  }
  return tokens;
}

// ---------------------------------------------------------------------------------------------------------------------
// 5. Initialization and loading
// ---------------------------------------------------------------------------------------------------------------------

// An untrained model: small random matrices, and norm weights of 1.
Model random_model(const Config& config, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  const auto matrix = [&](int rows, int columns) {
    Floats values(static_cast<size_t>(rows) * static_cast<size_t>(columns));
    for (float& value : values) value = normal(random);
    return values;
  };
  const auto ones = [&] { return Floats(static_cast<size_t>(config.d_model), 1.0F); };
  const int d = config.d_model;
  Model model{config, matrix(config.vocab_size, d), {}, ones(), {}};
  for (int l = 0; l < config.n_layers; ++l) {
    model.layers.push_back({ones(), matrix(d, d), matrix(config.kv_width(), d), matrix(config.kv_width(), d),
                            matrix(d, d), ones(), matrix(config.d_ff, d), matrix(config.d_ff, d),
                            matrix(d, config.d_ff)});
  }
  model.head = model.embedding;
  return model;
}

// llama2.c's format: a header of seven integers, then all weights of all layers, one kind after the other. It rotates
// adjacent pairs (x0,x1), (x2,x3), …; rotate() pairs elements half a head apart. Permuting the rows of q and k converts
// between the two and leaves every attention score unchanged.
Model read_llama2c(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  int32_t header[7];
  if (!file.read(reinterpret_cast<char*>(header), sizeof(header))) {  // NOLINT: the format is raw memory
    throw std::runtime_error(path + " is shorter than llama2.c's header of 28 bytes, or cannot be opened");
  }
  Config config;
  config.d_model = header[0];
  config.d_ff = header[1];
  config.n_layers = header[2];
  config.n_heads = header[3];
  config.n_kv_heads = header[4];
  config.vocab_size = std::abs(header[5]);
  config.context = header[6];
  for (const int32_t size : {header[0], header[1], header[2], header[3], header[4], config.vocab_size, header[6]}) {
    if (size <= 0 || size > (1 << 24))
      throw std::runtime_error(path + " is not a llama2.c model: a size is " + std::to_string(size));
  }
  if (config.d_model % config.n_heads != 0 || config.n_heads % config.n_kv_heads != 0 || config.head_dim() % 2 != 0) {
    throw std::runtime_error(path + " is not a llama2.c model: the heads do not divide the width");
  }
  const auto read = [&](int rows, int columns) {
    Floats values(static_cast<size_t>(rows) * static_cast<size_t>(columns));
    if (!file.read(reinterpret_cast<char*>(values.data()),
                   static_cast<std::streamsize>(values.size() * 4))) {  // NOLINT
      throw std::runtime_error(path + " ends early: it is truncated, or not a llama2.c model");
    }
    return values;
  };
  const auto halves = [&](const Floats& from) {
    Floats to(from.size());
    const auto dim = static_cast<size_t>(config.head_dim());
    const auto width = static_cast<size_t>(config.d_model);
    for (size_t row = 0; row < from.size() / width; ++row) {
      const size_t in_head = row % dim;
      const size_t target = row - in_head + in_head / 2 + (in_head % 2) * (dim / 2);
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(row * width), width,
                  to.begin() + static_cast<std::ptrdiff_t>(target * width));
    }
    return to;
  };
  Model model;
  model.config = config;
  model.layers.resize(static_cast<size_t>(config.n_layers));
  const int d = config.d_model;
  model.embedding = read(config.vocab_size, d);
  for (Layer& layer : model.layers) layer.attention_norm = read(1, d);
  for (Layer& layer : model.layers) layer.q = halves(read(d, d));
  for (Layer& layer : model.layers) layer.k = halves(read(config.kv_width(), d));
  for (Layer& layer : model.layers) layer.v = read(config.kv_width(), d);
  for (Layer& layer : model.layers) layer.o = read(d, d);
  for (Layer& layer : model.layers) layer.ffn_norm = read(1, d);
  for (Layer& layer : model.layers) layer.gate = read(config.d_ff, d);
  for (Layer& layer : model.layers) layer.down = read(d, config.d_ff);
  for (Layer& layer : model.layers) layer.up = read(config.d_ff, d);
  model.final_norm = read(1, d);
  read(config.context, config.head_dim());  // skip the cos/sin tables: rotate() computes them
  model.head = header[5] < 0 ? read(config.vocab_size, d) : model.embedding;
  return model;
}

}  // namespace one_file

#ifndef ONE_FILE_MODEL_IS_INCLUDED
int main(int argc, char** argv) {
  try {
    if (argc > 1) {
      const one_file::Model model = one_file::read_llama2c(argv[1]);
      std::vector<int> tokens;
      for (int i = 3; i < argc; ++i) tokens.push_back(std::atoi(argv[i]));
      if (tokens.empty()) tokens.push_back(1);  // begin-of-sequence token of llama2.c's vocabulary
      const int steps = argc > 2 ? std::atoi(argv[2]) : 32;
      for (const int token : one_file::generate(model, tokens, steps, 0.0F, 0)) std::printf("%d ", token);
      std::printf("\n");
      return 0;
    }
    const one_file::Config config;
    const one_file::Model model = one_file::random_model(config, 1);
    const std::vector<int> text{3, 14, 15, 9, 2, 6, 5, 35, 8, 9, 7, 9};
    std::printf("A model of %d layers, width %d, %d heads over %d key/value heads, vocabulary %d.\n", config.n_layers,
                config.d_model, config.n_heads, config.n_kv_heads, config.vocab_size);
    std::printf("Untrained, its loss is %.3f; guessing costs log(%d) = %.3f.\n", one_file::loss(model, text),
                config.vocab_size, std::log(static_cast<double>(config.vocab_size)));
    std::printf("It goes on with:");
    for (const int token : one_file::generate(model, {3, 14, 15}, 12, 1.0F, 7)) std::printf(" %d", token);
    std::printf("\n");
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "one_file_model: %s\n", error.what());
    return 1;
  }
}
#endif
