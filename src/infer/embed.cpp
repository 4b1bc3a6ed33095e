#include "lamina/infer/embed.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lamina/base/error.h"

namespace lamina::infer {
namespace {

/// Pools hidden states [seq, width] to one vector [width]. Accumulates in double.
std::vector<float> pooled(std::span<const float> hidden, int64_t seq, int64_t width, const EmbedOptions& options) {
  const auto columns = static_cast<size_t>(width);
  std::vector<double> sum(columns);
  const int64_t from = options.pooling == Pooling::last ? seq - 1 : 0;
  const int64_t to = options.pooling == Pooling::first ? 1 : seq;
  for (int64_t t = from; t < to; ++t) {
    for (size_t i = 0; i < columns; ++i) sum[i] += static_cast<double>(hidden[static_cast<size_t>(t) * columns + i]);
  }
  double square = 0;
  for (double& value : sum) {
    value /= static_cast<double>(to - from);
    square += value * value;
  }
  const double scale = options.normalize && square > 0 ? 1 / std::sqrt(square) : 1;
  std::vector<float> result;
  result.reserve(columns);
  for (const double value : sum) result.push_back(static_cast<float>(value * scale));
  return result;
}

}  // namespace

Pooling pooling_named(const std::string& name) {
  if (name == "mean") return Pooling::mean;
  if (name == "first") return Pooling::first;
  if (name == "last") return Pooling::last;
  throw Error(str("pooling \"", name, "\": expected mean, first or last"));
}

Tensor text_states(nn::Model& model, const Tensor& ids) {
  if (!model.spec().encoder) return model.hidden(ids);
  nn::RunOptions run;
  run.source = ids;
  return model.encoded(run);
}

std::vector<text::TokenId> embedding_ids(const text::Tokenizer& tokenizer, const std::string& text, int64_t context,
                                         text::UnknownCharacters* unknown) {
  std::vector<text::TokenId> ids;
  if (tokenizer.bos()) ids.push_back(*tokenizer.bos());
  tokenizer.encode(text, ids, /*special=*/false, unknown);
  const int64_t room = std::max<int64_t>(context - (tokenizer.appends_eos() ? 1 : 0), 1);
  if (static_cast<int64_t>(ids.size()) > room) ids.resize(static_cast<size_t>(room));
  if (tokenizer.appends_eos() && static_cast<int64_t>(ids.size()) < context) ids.push_back(*tokenizer.eos());
  return ids;
}

std::vector<std::vector<float>> embed(nn::Model& model, const std::vector<std::vector<text::TokenId>>& texts,
                                      const EmbedOptions& options) {
  LAMINA_CHECK(options.batch > 0, "embed: batches of ", options.batch, " texts; expected at least 1");
  std::map<size_t, std::vector<size_t>> by_length;
  int64_t total = 0;
  int64_t done = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    LAMINA_CHECK(!texts[i].empty(), "embed: text ", i + 1, " has no tokens; leave it out");
    for (const text::TokenId id : texts[i]) {
      LAMINA_CHECK(id >= 0 && id < model.spec().vocab_size, "embed: text ", i + 1, " holds token ", id,
                   ", the model has ", model.spec().vocab_size, "; give the tokenizer that it was trained with");
    }
    by_length[texts[i].size()].push_back(i);
    total += static_cast<int64_t>(texts[i].size());
  }
  std::vector<std::vector<float>> vectors(texts.size());
  for (const auto& [length, members] : by_length) {
    for (size_t begin = 0; begin < members.size(); begin += static_cast<size_t>(options.batch)) {
      const size_t rows = std::min(members.size() - begin, static_cast<size_t>(options.batch));
      std::vector<int64_t> ids;
      for (size_t r = 0; r < rows; ++r) {
        const std::vector<text::TokenId>& text = texts[members[begin + r]];
        ids.insert(ids.end(), text.begin(), text.end());
      }
      const Tensor hidden = text_states(
          model, Tensor::from(ids, {static_cast<int64_t>(rows), static_cast<int64_t>(length)}, model.device()));
      const int64_t width = hidden.dim(2);
      const std::vector<float> values = hidden.to(DType::f32).to_vector<float>();
      const size_t size = length * static_cast<size_t>(width);
      for (size_t r = 0; r < rows; ++r) {
        vectors[members[begin + r]] =
            pooled(std::span(values).subspan(r * size, size), static_cast<int64_t>(length), width, options);
      }
      done += static_cast<int64_t>(rows * length);
      if (options.progress) options.progress(done, total);
    }
  }
  return vectors;
}

std::string npy_of(const std::vector<std::vector<float>>& vectors, int64_t width) {
  std::string header = str("{'descr': '<f4', 'fortran_order': False, 'shape': (", vectors.size(), ", ", width, "), }");
  constexpr size_t kPrelude = 10;  // magic (6 bytes), version (2), header length (2)
  header.append(63 - (kPrelude + header.size()) % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  for (const std::vector<float>& vector : vectors) {
    file.append(reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float));
  }
  return file;
}

}  // namespace lamina::infer
