// A complete language model in one file, to read from top to bottom.
//
// This is the design of most current models: token embedding, RMS norm, rotary position embedding (RoPE), grouped-query
// attention (GQA), a gated feed-forward (SwiGLU) and residual connections. It also trains: the gradient of every step
// is written out by hand, and AdamW updates the weights. It uses only the C++ standard library, writes every matrix
// product as a loop, and explains why each step is there. The library computes the same values much faster; a test
// compares the two.
//
//   one_file_model                              random weights: prints the model's size, its loss and generated tokens
//   one_file_model train TEXT [STEPS]           trains on the characters of a text file, then writes
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
#include <iterator>
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

// ---------------------------------------------------------------------------------------------------------------------
// 6. Training: the gradient of the loss, by hand
// ---------------------------------------------------------------------------------------------------------------------
//
// The chain rule, from the loss back to the embedding. For y = f(x) and a given dy = ∂loss/∂y, each backward function
// adds ∂loss/∂x to dx and ∂loss/∂weight to dweight. They add (+=) instead of assigning, because a value that is used
// twice, such as the residual stream, receives a gradient from each use.

// y = W x:  dW = dy xᵀ,  dx = Wᵀ dy.
void multiply_backward(const Floats& weight, const Floats& x, const Floats& dy, Floats& dweight, Floats& dx) {
  const size_t in = x.size();
  for (size_t o = 0; o < dy.size(); ++o) {
    for (size_t i = 0; i < in; ++i) {
      dweight[o * in + i] += dy[o] * x[i];
      dx[i] += weight[o * in + i] * dy[o];
    }
  }
}

// y_i = x_i s w_i with s = 1/√(mean(x²) + eps). Every x_j also changes s: ∂s/∂x_j = −s³ x_j / n.
void rms_norm_backward(const Floats& x, const Floats& weight, float eps, const Floats& dy, Floats& dweight,
                       Floats& dx) {
  const auto n = static_cast<float>(x.size());
  float square = 0;
  float along = 0;  // Σ dy_i w_i x_i: how much the loss changes with s
  for (size_t i = 0; i < x.size(); ++i) {
    square += x[i] * x[i];
    along += dy[i] * weight[i] * x[i];
  }
  const float s = 1 / std::sqrt(square / n + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    dweight[i] += dy[i] * x[i] * s;
    dx[i] += dy[i] * weight[i] * s - along * s * s * s * x[i] / n;
  }
}

// silu'(x) = σ(x) (1 + x (1 − σ(x))).
float silu_slope(float x) {
  const float sigmoid = 1 / (1 + std::exp(-x));
  return sigmoid * (1 + x * (1 - sigmoid));
}

// Values of one position in one layer that backward needs.
struct Trace {
  Floats x;                     // [d_model] residual stream before attention
  Floats normed;                // [d_model]
  Floats query;                 // [n_heads · head_dim], after RoPE
  std::vector<Floats> weights;  // per head [position + 1], after softmax
  Floats mixed;                 // [n_heads · head_dim]
  Floats middle;                // [d_model] residual stream between attention and feed-forward
  Floats middle_normed;         // [d_model]
  Floats gate, up, hidden;      // [d_ff]
};

// The forward pass of section 3, for one layer and all positions, keeping a trace. `stream` [positions][d_model] is the
// residual stream; keys and values are [positions, n_kv_heads · head_dim].
std::vector<Trace> trace_layer(const Layer& layer, const Config& config, std::vector<Floats>& stream, Floats& keys,
                               Floats& values) {
  const int dim = config.head_dim();
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  std::vector<Trace> traces(stream.size());
  for (size_t t = 0; t < stream.size(); ++t) {
    Trace& trace = traces[t];
    const int position = static_cast<int>(t);
    trace.x = stream[t];
    trace.normed = rms_norm(trace.x, layer.attention_norm, config.norm_eps);
    trace.query = multiply(layer.q, trace.normed);
    Floats key = multiply(layer.k, trace.normed);
    const Floats value = multiply(layer.v, trace.normed);
    for (int h = 0; h < config.n_heads; ++h) rotate(trace.query.data() + h * dim, dim, position, config.theta);
    for (int h = 0; h < config.n_kv_heads; ++h) rotate(key.data() + h * dim, dim, position, config.theta);
    keys.insert(keys.end(), key.begin(), key.end());
    values.insert(values.end(), value.begin(), value.end());
    trace.mixed.assign(static_cast<size_t>(config.n_heads * dim), 0.0F);
    for (int h = 0; h < config.n_heads; ++h) {
      const int shared = h / (config.n_heads / config.n_kv_heads) * dim;
      Floats weights(t + 1);
      for (size_t past = 0; past <= t; ++past) {
        const float* k = keys.data() + static_cast<int>(past) * config.kv_width() + shared;
        for (int i = 0; i < dim; ++i) weights[past] += trace.query[static_cast<size_t>(h * dim + i)] * k[i] * scale;
      }
      softmax(weights);
      for (size_t past = 0; past <= t; ++past) {
        const float* v = values.data() + static_cast<int>(past) * config.kv_width() + shared;
        for (int i = 0; i < dim; ++i) trace.mixed[static_cast<size_t>(h * dim + i)] += weights[past] * v[i];
      }
      trace.weights.push_back(std::move(weights));
    }
    trace.middle = trace.x;
    const Floats attended = multiply(layer.o, trace.mixed);
    for (size_t i = 0; i < attended.size(); ++i) trace.middle[i] += attended[i];
    trace.middle_normed = rms_norm(trace.middle, layer.ffn_norm, config.norm_eps);
    trace.gate = multiply(layer.gate, trace.middle_normed);
    trace.up = multiply(layer.up, trace.middle_normed);
    trace.hidden = trace.up;
    for (size_t i = 0; i < trace.hidden.size(); ++i) trace.hidden[i] *= silu(trace.gate[i]);
    stream[t] = trace.middle;
    const Floats thought = multiply(layer.down, trace.hidden);
    for (size_t i = 0; i < thought.size(); ++i) stream[t][i] += thought[i];
  }
  return traces;
}

// Feed-forward of one position. dstream arrives as the gradient of the layer's output and leaves as that of the stream
// between attention and feed-forward: the residual path passes it on unchanged, the sublayer adds its part.
void feed_forward_backward(const Trace& trace, const Layer& layer, const Config& config, Layer& grad, Floats& dstream) {
  Floats dhidden(trace.hidden.size());
  multiply_backward(layer.down, trace.hidden, dstream, grad.down, dhidden);
  Floats dgate(dhidden.size());
  Floats dup(dhidden.size());
  for (size_t i = 0; i < dhidden.size(); ++i) {
    dup[i] = dhidden[i] * silu(trace.gate[i]);
    dgate[i] = dhidden[i] * trace.up[i] * silu_slope(trace.gate[i]);
  }
  Floats dnormed(trace.middle.size());
  multiply_backward(layer.gate, trace.middle_normed, dgate, grad.gate, dnormed);
  multiply_backward(layer.up, trace.middle_normed, dup, grad.up, dnormed);
  rms_norm_backward(trace.middle, layer.ffn_norm, config.norm_eps, dnormed, grad.ffn_norm, dstream);
}

// Attention of one position: adds to the gradients of all keys and values that it looked at, and returns that of its
// query before RoPE. For weights p = softmax(scores): dscore = p (dp − Σ p dp).
Floats attention_backward(const Trace& trace, const Config& config, const Floats& keys, const Floats& values,
                          const Floats& dmixed, int position, Floats& dkeys, Floats& dvalues) {
  const int dim = config.head_dim();
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  Floats dquery(trace.query.size());
  for (int h = 0; h < config.n_heads; ++h) {
    const int shared = h / (config.n_heads / config.n_kv_heads) * dim;
    const Floats& p = trace.weights[static_cast<size_t>(h)];
    Floats dp(p.size());
    float mean = 0;  // Σ p dp
    for (size_t past = 0; past < p.size(); ++past) {
      const size_t row = past * static_cast<size_t>(config.kv_width()) + static_cast<size_t>(shared);
      for (int i = 0; i < dim; ++i) {
        const float d = dmixed[static_cast<size_t>(h * dim + i)];
        dp[past] += d * values[row + static_cast<size_t>(i)];
        dvalues[row + static_cast<size_t>(i)] += p[past] * d;
      }
      mean += p[past] * dp[past];
    }
    for (size_t past = 0; past < p.size(); ++past) {
      const size_t row = past * static_cast<size_t>(config.kv_width()) + static_cast<size_t>(shared);
      const float dscore = p[past] * (dp[past] - mean) * scale;
      for (int i = 0; i < dim; ++i) {
        dquery[static_cast<size_t>(h * dim + i)] += dscore * keys[row + static_cast<size_t>(i)];
        dkeys[row + static_cast<size_t>(i)] += dscore * trace.query[static_cast<size_t>(h * dim + i)];
      }
    }
    // The gradient of a rotation is the rotation by the opposite angle.
    rotate(dquery.data() + h * dim, dim, -position, config.theta);
  }
  return dquery;
}

// One layer and all positions. Positions go from last to first: when a position is reached, every later one that looked
// at its key and value has added its part.
void layer_backward(const std::vector<Trace>& traces, const Layer& layer, const Config& config, const Floats& keys,
                    const Floats& values, Layer& grad, std::vector<Floats>& dstream) {
  const int dim = config.head_dim();
  const int width = config.kv_width();
  Floats dkeys(keys.size());
  Floats dvalues(values.size());
  for (size_t t = traces.size(); t-- > 0;) {
    const Trace& trace = traces[t];
    const int position = static_cast<int>(t);
    feed_forward_backward(trace, layer, config, grad, dstream[t]);
    Floats dmixed(trace.mixed.size());
    multiply_backward(layer.o, trace.mixed, dstream[t], grad.o, dmixed);
    const Floats dquery = attention_backward(trace, config, keys, values, dmixed, position, dkeys, dvalues);
    Floats dkey(dkeys.begin() + position * width, dkeys.begin() + (position + 1) * width);
    const Floats dvalue(dvalues.begin() + position * width, dvalues.begin() + (position + 1) * width);
    for (int h = 0; h < config.n_kv_heads; ++h) rotate(dkey.data() + h * dim, dim, -position, config.theta);
    Floats dnormed(trace.x.size());
    multiply_backward(layer.q, trace.normed, dquery, grad.q, dnormed);
    multiply_backward(layer.k, trace.normed, dkey, grad.k, dnormed);
    multiply_backward(layer.v, trace.normed, dvalue, grad.v, dnormed);
    rms_norm_backward(trace.x, layer.attention_norm, config.norm_eps, dnormed, grad.attention_norm, dstream[t]);
  }
}

// All weights of a model, in a fixed order. Matrices decay, norm weights do not.
struct Weight {
  Floats* values;
  bool decays;
};
std::vector<Weight> weights_of(Model& model) {
  std::vector<Weight> all{{&model.embedding, true}, {&model.final_norm, false}, {&model.head, true}};
  for (Layer& layer : model.layers) {
    for (Floats* norm : {&layer.attention_norm, &layer.ffn_norm}) all.push_back({norm, false});
    for (Floats* matrix : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      all.push_back({matrix, true});
    }
  }
  return all;
}

// A model of the same sizes whose weights are all 0: for gradients and for the moments of AdamW.
Model zeros_like(Model model) {
  for (const Weight& weight : weights_of(model)) std::fill(weight.values->begin(), weight.values->end(), 0.0F);
  return model;
}

// Returns the loss of section 4 and adds its gradient to `gradients`.
double loss_backward(const Model& model, const std::vector<int>& tokens, Model& gradients) {
  const Config& config = model.config;
  const auto d = static_cast<std::ptrdiff_t>(config.d_model);
  const size_t count = tokens.size() - 1;  // positions with a next token
  std::vector<Floats> stream;
  for (size_t t = 0; t < count; ++t) {
    const auto row = model.embedding.begin() + tokens[t] * d;
    stream.emplace_back(row, row + d);
  }
  std::vector<std::vector<Trace>> traces;
  std::vector<Floats> keys(model.layers.size());
  std::vector<Floats> values(model.layers.size());
  for (size_t l = 0; l < model.layers.size(); ++l) {
    traces.push_back(trace_layer(model.layers[l], config, stream, keys[l], values[l]));
  }
  double total = 0;
  std::vector<Floats> dstream(count, Floats(static_cast<size_t>(config.d_model)));
  for (size_t t = 0; t < count; ++t) {
    const Floats normed = rms_norm(stream[t], model.final_norm, config.norm_eps);
    Floats dlogits = multiply(model.head, normed);
    softmax(dlogits);
    const auto target = static_cast<size_t>(tokens[t + 1]);
    total -= std::log(static_cast<double>(dlogits[target]));
    // ∂(−log p_target)/∂logit = p − [is the target]; the loss is the mean over positions.
    dlogits[target] -= 1;
    for (float& value : dlogits) value /= static_cast<float>(count);
    Floats dnormed(normed.size());
    multiply_backward(model.head, normed, dlogits, gradients.head, dnormed);
    rms_norm_backward(stream[t], model.final_norm, config.norm_eps, dnormed, gradients.final_norm, dstream[t]);
  }
  for (size_t l = model.layers.size(); l-- > 0;) {
    layer_backward(traces[l], model.layers[l], config, keys[l], values[l], gradients.layers[l], dstream);
  }
  for (size_t t = 0; t < count; ++t) {
    for (std::ptrdiff_t i = 0; i < d; ++i) {
      gradients.embedding[static_cast<size_t>(tokens[t] * d + i)] += dstream[t][static_cast<size_t>(i)];
    }
  }
  return total / static_cast<double>(count);
}

// AdamW: each weight moves by its mean gradient m divided by the root of its mean squared gradient v, so that all
// weights move at about the same speed. Both means start at 0; dividing by 1 − βᵗ corrects for that. Weight decay pulls
// matrices towards 0.
struct AdamW {
  Model m;
  Model v;
  float lr = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.99F;
  float eps = 1e-8F;
  float weight_decay = 0.1F;
  int step = 0;

  explicit AdamW(const Model& model) : m(zeros_like(model)), v(zeros_like(model)) {}

  void update(Model& model, Model& gradients) {
    ++step;
    const float m_correction = 1 - std::pow(beta1, static_cast<float>(step));
    const float v_correction = 1 - std::pow(beta2, static_cast<float>(step));
    const std::vector<Weight> weights = weights_of(model);
    const std::vector<Weight> grads = weights_of(gradients);
    const std::vector<Weight> means = weights_of(m);
    const std::vector<Weight> squares = weights_of(v);
    for (size_t w = 0; w < weights.size(); ++w) {
      for (size_t i = 0; i < weights[w].values->size(); ++i) {
        float& weight = (*weights[w].values)[i];
        float& mean = (*means[w].values)[i];
        float& square = (*squares[w].values)[i];
        const float gradient = (*grads[w].values)[i];
        if (weights[w].decays) weight *= 1 - lr * weight_decay;
        mean = beta1 * mean + (1 - beta1) * gradient;
        square = beta2 * square + (1 - beta2) * gradient * gradient;
        weight -= lr / m_correction * mean / (std::sqrt(square / v_correction) + eps);
      }
    }
  }
};

// Trains on the bytes of a text, a random piece per step, and writes some text at the end.
void train_on(const std::string& path, int steps) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.size() < 2) throw std::runtime_error(path + " is empty or cannot be opened; give a text file");
  std::string alphabet = text;
  std::sort(alphabet.begin(), alphabet.end());
  alphabet.erase(std::unique(alphabet.begin(), alphabet.end()), alphabet.end());
  Config config;
  config.vocab_size = static_cast<int>(alphabet.size());
  Model model = random_model(config, 1);
  AdamW optimizer(model);
  std::mt19937 random(1);
  const size_t length = std::min(text.size(), static_cast<size_t>(config.context));
  for (int step = 1; step <= steps; ++step) {
    const size_t start = random() % (text.size() - length + 1);
    std::vector<int> tokens;
    for (const char c : text.substr(start, length)) tokens.push_back(static_cast<int>(alphabet.find(c)));
    Model gradients = zeros_like(model);
    const double value = loss_backward(model, tokens, gradients);
    optimizer.update(model, gradients);
    if (step == 1 || step % 50 == 0 || step == steps) std::printf("step %d  loss %.3f\n", step, value);
  }
  for (const int token : generate(model, {0}, config.context, 0.8F, 7)) {
    std::putchar(alphabet[static_cast<size_t>(token)]);
  }
  std::printf("\n");
}

}  // namespace one_file

#ifndef ONE_FILE_MODEL_IS_INCLUDED
int main(int argc, char** argv) {
  try {
    if (argc > 2 && std::string(argv[1]) == "train") {
      one_file::train_on(argv[2], argc > 3 ? std::atoi(argv[3]) : 500);
      return 0;
    }
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
