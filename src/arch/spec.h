#pragma once

#include "lamina/arch/attention.h"
#include "lamina/arch/ffn.h"
#include "lamina/arch/heads.h"
#include "lamina/arch/hybrid_mixer.h"
#include "lamina/arch/linear_attention.h"
#include "lamina/arch/ssm.h"

namespace lamina::arch {

/// Version of the file format. Raised if old files would be read differently.
inline constexpr int64_t kSchema = 1;

struct NoMixer {
  static constexpr std::string_view kKind = "none";
  static constexpr std::string_view kDoc = "no mixer: the block is only a feed-forward";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const NoMixer&) const = default;
};

/// A layer that moves information between positions.
using Mixer = std::variant<Attention, Mla, Mamba, Mamba2, S4d, ShortConv, RgLru, AttentionMamba2, Lightning, Wkv,
                           ChannelMix, GatedDelta, NoMixer>;

struct SerialWiring {
  static constexpr std::string_view kKind = "serial";
  static constexpr std::string_view kDoc = "the mixer, then the feed-forward, each with a residual connection";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const SerialWiring&) const = default;
};

struct ParallelWiring {
  static constexpr std::string_view kKind = "parallel";
  static constexpr std::string_view kDoc = "x + mixer(norm(x)) + ffn(norm(x))";
  bool shared_norm = true;
  static void visit_fields(auto& self, auto&& field) {
    field("shared_norm", self.shared_norm, "one norm before both branches, else one each");
  }
  bool operator==(const ParallelWiring&) const = default;
};

/// How the mixer and the feed-forward of a block are connected.
using Wiring = std::variant<SerialWiring, ParallelWiring>;

/// One layer: mixer, cross-attention and feed-forward, with their norms.
struct Block {
  int64_t repeat = 1;
  Mixer mixer;
  std::optional<CrossAttention> cross;
  Ffn ffn;
  Wiring wiring;
  Placement placement = Placement::pre;
  bool mixer_norm = true;
  std::optional<Norm> norm;
  double residual_scale = 1.0;
  double skip_scale = 1.0;
  static void visit_fields(auto& self, auto&& field) {
    field("repeat", self.repeat, "how often this block is repeated within the pattern");
    field("mixer", self.mixer, "moves information between positions: attention or a state space");
    field("cross", self.cross,
          "attention to the encoder's output or to retrieved neighbours, between mixer and feed-forward; default none");
    field("ffn", self.ffn, "feed-forward, applied to each position separately");
    field("wiring", self.wiring, "how mixer and feed-forward are connected");
    field("placement", self.placement,
          "norm placement of a sublayer f: pre x + f(norm(x)), post norm(x + f(x)), sandwich x + norm(f(norm(x))), "
          "branch_post x + norm(f(x)), residual_after_norm n + f(n) with n = norm(x)");
    field("mixer_norm", self.mixer_norm, "false: no norm before the mixer, for a first block after a normed embedding");
    field("norm", self.norm, "norm of this block; default the model's");
    field("residual_scale", self.residual_scale, "factor on each branch before it is added");
    field("skip_scale", self.skip_scale, "factor on the residual stream before a branch is added");
  }
  bool operator==(const Block&) const = default;
};

/// A pattern of blocks, repeated `repeat` times.
struct LayerGroup {
  int64_t repeat = 1;
  std::vector<Block> pattern;
  static void visit_fields(auto& self, auto&& field) {
    field("repeat", self.repeat, "how often the pattern is repeated");
    field("pattern", self.pattern, "blocks, in order");
  }
  bool operator==(const LayerGroup&) const = default;
};

/// A factor that may depend on d_model. resolve() turns every scale into a constant.
struct NoScale {
  static constexpr std::string_view kKind = "none";
  static constexpr std::string_view kDoc = "1";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const NoScale&) const = default;
};
struct ConstantScale {
  static constexpr std::string_view kKind = "constant";
  static constexpr std::string_view kDoc = "a fixed factor";
  double value = 1.0;
  static void visit_fields(auto& self, auto&& field) { field("value", self.value, "the factor"); }
  bool operator==(const ConstantScale&) const = default;
};
struct SqrtWidthScale {
  static constexpr std::string_view kKind = "sqrt_d_model";
  static constexpr std::string_view kDoc = "sqrt(d_model)";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const SqrtWidthScale&) const = default;
};
struct InverseSqrtWidthScale {
  static constexpr std::string_view kKind = "inverse_sqrt_d_model";
  static constexpr std::string_view kDoc = "1/sqrt(d_model)";
  static void visit_fields(auto& /*self*/, auto&& /*field*/) {}
  bool operator==(const InverseSqrtWidthScale&) const = default;
};
/// A factor on embeddings or logits.
using Scale = std::variant<NoScale, ConstantScale, SqrtWidthScale, InverseSqrtWidthScale>;

/// The token embedding.
struct Embedding {
  std::optional<int64_t> d_embed;
  Scale scale;
  std::optional<Norm> norm;
  std::optional<int64_t> padding_token;
  std::optional<int64_t> segments;
  static void visit_fields(auto& self, auto&& field) {
    field("d_embed", self.d_embed, "width of the table; default d_model. Other widths add two projections");
    field("scale", self.scale, "factor on the token's embedding, before positions are added");
    field("norm", self.norm, "norm after the embedding; default none");
    field("padding_token", self.padding_token,
          "token whose row gets no gradient from lookups (a tied head still gives one); default none", kCount);
    field("segments", self.segments,
          "rows of a second table, added by the segment of each token (token types); default none");
  }
  bool operator==(const Embedding&) const = default;
};

/// The output head.
struct Head {
  bool tied = false;
  bool bias = false;
  Scale scale;
  std::optional<double> soft_cap;
  std::optional<HeadTransform> transform;
  static void visit_fields(auto& self, auto&& field) {
    field("tied", self.tied, "the output projection uses the embedding table");
    field("bias", self.bias, "a bias per token of the vocabulary");
    field("scale", self.scale, "factor on the logits");
    field("soft_cap", self.soft_cap, "c·tanh(logit/c), after the scale; default none");
    field("transform", self.transform,
          "dense layer, activation and norm before the output projection, for masked language models; default none");
  }
  bool operator==(const Head&) const = default;
};

/// The encoder of an encoder–decoder model: a second stack that reads the source. It is not causal. Width, vocabulary
/// and embedding settings are those of the model.
struct Encoder {
  bool shared_embedding = true;
  std::optional<Position> position;
  std::vector<LayerGroup> layers;
  std::optional<bool> final_norm;
  int64_t start_token = 0;
  static void visit_fields(auto& self, auto&& field) {
    field("shared_embedding", self.shared_embedding, "the encoder uses the model's token table, else one of its own");
    field("position", self.position, "where position information comes from; default as the model's, with own tables");
    field("layers", self.layers, "groups of blocks, in order; required");
    field("final_norm", self.final_norm, "a norm after the last layer; default true unless that layer is post-norm");
    field("start_token", self.start_token, "id of the token that the decoder starts with", kCount);
  }
  bool operator==(const Encoder&) const = default;
};

/// The decoder layers that get chunked cross-attention: first, first + every, …
struct CrossLayers {
  int64_t first = 1;
  int64_t every = 1;
  CrossAttention cross;
  static void visit_fields(auto& self, auto&& field) {
    field("first", self.first, "number of the first layer with it, counted from 1");
    field("every", self.every, "distance between two layers with it");
    field("cross", self.cross, "their cross-attention; n_heads defaults to the layer's");
  }
  bool operator==(const CrossLayers&) const = default;
};

/// Retrieval by chunks (RETRO, arXiv:2112.04426). The sequence is divided into chunks of `chunk` tokens. For each
/// chunk, a database provides `neighbours` texts of `length` tokens. An encoder reads these texts. Decoder layers with
/// `cross` attend to them from the chunk's last token on, so that no token depends on a later one.
struct Retrieval {
  int64_t chunk = 64;
  int64_t neighbours = 2;
  int64_t length = 128;
  int64_t padding_token = 0;
  std::optional<CrossLayers> at;
  std::optional<int64_t> d_model;
  std::optional<bool> shared_embedding;
  std::optional<Position> position;
  std::vector<LayerGroup> layers;
  std::optional<bool> final_norm;
  static void visit_fields(auto& self, auto&& field) {
    field("chunk", self.chunk, "tokens of a chunk (m)");
    field("neighbours", self.neighbours, "neighbours of a chunk (k)", Limits{1, 1024});
    field("length", self.length, "tokens of a neighbour and its continuation (r)");
    field("padding_token", self.padding_token, "id that fills neighbours shorter than length", kCount);
    field("at", self.at, "decoder layers that get this cross-attention; default: those whose block has cross");
    field("d_model", self.d_model, "width of the neighbour encoder; default the model's");
    field("shared_embedding", self.shared_embedding,
          "the neighbour encoder uses the model's token table, else one of its own; default true if widths are equal");
    field("position", self.position, "positions of the neighbour encoder; default as the model's, with own tables");
    field("layers", self.layers,
          "the neighbour encoder's groups of blocks; cross in a block attends to the decoder's states of the chunk; "
          "default two blocks like the decoder's first, with cross in the first");
    field("final_norm", self.final_norm, "a norm after the last layer; default true unless that layer is post-norm");
  }
  bool operator==(const Retrieval&) const = default;
};

/// A model: one stack of layers, which is a decoder if it is causal and an encoder otherwise; or a decoder that attends
/// to an encoder. resolve() fills unset fields; it is the only place for defaults.
struct ArchSpec {
  int64_t schema = kSchema;
  std::string about;
  int64_t vocab_size = 0;
  int64_t d_model = 0;
  int64_t context = 2048;
  bool causal = true;
  Embedding embedding;
  Position position;
  Norm norm;
  std::vector<LayerGroup> layers;
  std::optional<bool> final_norm;
  std::optional<Encoder> encoder;
  std::optional<Retrieval> retrieval;
  Head head;
  std::optional<Pooling> pooling;
  std::optional<Classifier> classifier;
  static void visit_fields(auto& self, auto&& field) {
    field("schema", self.schema, "version of this format");
    field("about", self.about, "a one-line description; has no effect");
    field("vocab_size", self.vocab_size, "rows of the embedding table; required");
    field("d_model", self.d_model, "width of the residual stream; required");
    field("context", self.context, "longest sequence the model is designed for");
    field("causal", self.causal, "whether attention sees only earlier positions; false: an encoder");
    field("embedding", self.embedding, "token embedding");
    field("position", self.position, "where position information comes from");
    field("norm", self.norm, "default norm of the blocks and the final norm");
    field("layers", self.layers, "groups of blocks, in order; required");
    field("final_norm", self.final_norm, "a norm before the head; default true unless the last block is post-norm");
    field("encoder", self.encoder, "a stack that reads a source, for layers with cross-attention; default none");
    field("retrieval", self.retrieval, "neighbours from a database, for layers with cross-attention; default none");
    field("head", self.head, "output head");
    field("pooling", self.pooling, "one vector per sequence, for embeddings and classifiers; default none");
    field("classifier", self.classifier, "one logit per class from the pooled vector; default none");
  }
  bool operator==(const ArchSpec&) const = default;
};

}  // namespace lamina::arch
