// A whole language model in one file, to read from top to bottom.
//
// This is the design most models of today share: token embedding, RMS norm, rotary positions (RoPE), grouped-query
// attention (GQA), a gated feed-forward (SwiGLU), residual connections. Only the C++ standard library is used, every
// product is a loop, and every step says why it is there. The library computes the same numbers many times faster;
// a test holds both against each other.
//
//   one_file_model                              random weights: shows shapes, loss and generation at work
//   one_file_model MODEL.bin [STEPS [TOKEN …]]  a model in llama2.c's format, continued from the given token ids
//
// Shapes are written beside every array, outermost dimension first: [seq, d_model] means that the d_model numbers of
// one position lie one behind the other in memory.
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
// 1. What must be decided before there is a model
// ---------------------------------------------------------------------------------------------------------------------

struct Config {
  int vocab_size = 64;     // how many different tokens there are
  int d_model = 32;        // numbers that describe one position: the width of the "residual stream"
  int n_layers = 2;        // blocks, one behind the other
  int n_heads = 4;         // attention looks at the past in this many ways at once
  int n_kv_heads = 2;      // … but only this many sets of keys and values exist; query heads share them (GQA)
  int d_ff = 96;           // inner width of the feed-forward
  int context = 64;        // longest sequence
  float theta = 10000;     // RoPE: how slowly the slowest pair of numbers turns
  float norm_eps = 1e-5F;  // keeps the norm from dividing by zero

  int head_dim() const { return d_model / n_heads; }
  int kv_width() const { return n_kv_heads * head_dim(); }
};

// The numbers that training finds. A matrix is [out, in]: row o holds the factors that make output number o.
struct Layer {
  Floats attention_norm;  // [d_model]
  Floats q;               // [n_heads · head_dim, d_model]     what am I looking for?
  Floats k;               // [n_kv_heads · head_dim, d_model]  what do I offer?
  Floats v;               // [n_kv_heads · head_dim, d_model]  what do I hand over when chosen?
  Floats o;               // [d_model, n_heads · head_dim]     what the heads found, mixed together
  Floats ffn_norm;        // [d_model]
  Floats gate;            // [d_ff, d_model]
  Floats up;              // [d_ff, d_model]
  Floats down;            // [d_model, d_ff]
};

struct Model {
  Config config;
  Floats embedding;  // [vocab_size, d_model]  a row per token
  std::vector<Layer> layers;
  Floats final_norm;  // [d_model]
  Floats head;        // [vocab_size, d_model]  often the same numbers as the embedding ("tied")
};

// ---------------------------------------------------------------------------------------------------------------------
// 2. The pieces
// ---------------------------------------------------------------------------------------------------------------------

// y = W x: nearly all of a model's work is this.
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

// RMS norm: divide by the root of the mean square, then scale each number by a learned factor. After many additions the
// residual stream has grown; each sublayer gets an input of known size. LayerNorm also subtracts the mean and adds a
// bias, and measurements say that this buys little.
Floats rms_norm(const Floats& x, const Floats& weight, float eps) {
  float square = 0;
  for (const float value : x) square += value * value;
  const float scale = 1 / std::sqrt(square / static_cast<float>(x.size()) + eps);
  Floats y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

// RoPE: attention itself does not know the order of its inputs. Number i and number i + head_dim/2 of a head are taken
// as a point in the plane and turned by position · theta^(-2i/head_dim): fast for small i, slowly for large. The
// product of a turned query with a turned key depends only on the difference of their angles, that is on the distance
// of the two positions.
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

// From any numbers to probabilities: positive, sum 1, the largest wins most. The largest is subtracted first, which
// changes nothing but keeps exp() finite.
void softmax(Floats& scores) {
  const float largest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score - largest);
  for (float& score : scores) score /= sum;
}

// Swish, the gate's function: about 0 for negative numbers, about x for positive ones, smooth between.
float silu(float x) { return x / (1 + std::exp(-x)); }

// ---------------------------------------------------------------------------------------------------------------------
// 3. The two sublayers
// ---------------------------------------------------------------------------------------------------------------------

// Keys and values of the positions already seen, one entry per layer. A model that writes text adds one position at a
// time; the past does not change, so it is kept instead of computed again. This is the "KV cache", and sharing key and
// value heads (GQA) is what makes it small.
struct Cache {
  std::vector<Floats> keys;    // per layer [positions, n_kv_heads · head_dim], already turned
  std::vector<Floats> values;  // per layer [positions, n_kv_heads · head_dim]
  int positions = 0;
  explicit Cache(const Config& config)
      : keys(static_cast<size_t>(config.n_layers)), values(static_cast<size_t>(config.n_layers)) {}
};

// Attention for one position x [d_model]: every head compares its query with the keys of all positions up to this one,
// and takes the average of their values, weighted by how well the keys fit. Later positions are not in the cache yet:
// that is the causal mask.
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

  // Without this factor the sum of head_dim products would grow with head_dim and the softmax would see one key only.
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  const int heads_per_kv = config.n_heads / config.n_kv_heads;
  Floats mixed(static_cast<size_t>(config.n_heads * dim), 0.0F);
  for (int h = 0; h < config.n_heads; ++h) {
    const int shared = h / heads_per_kv * dim;  // where this head's key and value lie in a position's row
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

// SwiGLU: two projections up, one of them through silu as a gate on the other, then back down. Each position for
// itself: attention moves information between positions, the feed-forward works on what arrived.
Floats feed_forward(const Floats& x, const Layer& layer) {
  const Floats gate = multiply(layer.gate, x);  // [d_ff]
  Floats hidden = multiply(layer.up, x);        // [d_ff]
  for (size_t i = 0; i < hidden.size(); ++i) hidden[i] *= silu(gate[i]);
  return multiply(layer.down, hidden);
}

// ---------------------------------------------------------------------------------------------------------------------
// 4. The model: one token in, a score for every possible next token out
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

  // The token's row of the table. From here on x is the residual stream: sublayers read it through a norm and add to
  // it, so a gradient finds a straight way from the loss down to the embedding.
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

// How surprised the model is, on average, by each next token: -log of the probability it gave to what really came.
// log(vocab_size) is what guessing costs; training makes it smaller. exp(loss) is the perplexity.
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

// Writing: read the prompt, then again and again take a next token and feed it back. Temperature 0 takes the likeliest;
// higher temperatures flatten the probabilities before drawing.
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
// 5. Where the numbers come from
// ---------------------------------------------------------------------------------------------------------------------

// Before training: small random matrices, norms that do nothing.
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

// llama2.c's file: seven integers, then all weights, kind by kind. Its rotary pairs are neighbours (x0,x1), (x2,x3), …;
// moving the rows of q and k once puts them half a head apart, as rotate() has them, and changes no score.
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
  read(config.context, config.head_dim());  // tables of cosines and sines, which rotate() computes
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
      if (tokens.empty()) tokens.push_back(1);  // "begin of text" in that format's vocabulary
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
