#include <gtest/gtest.h>

#include <set>

#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/presets.h"
#include "lamina/arch/resolve.h"
#include "support/hf_folder.h"

namespace lamina::testing {
namespace {

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(LAMINA_GOLDEN_DIR "/hf")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string spec_path(const std::string& name) { return LAMINA_SOURCE_DIR "/tests/arch/specs/" + name + ".json"; }

std::vector<std::string> names_with_spec() {
  std::vector<std::string> names = golden_names();
  std::erase_if(names, [](const std::string& name) { return !std::filesystem::exists(spec_path(name)); });
  return names;
}

/// Whether a file may hold the tensor although it follows from the configuration: the decay tables of lightning
/// attention. They are not read, and not written.
bool is_decay_table(const std::string& name) {
  for (const char* end : {".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

/// The tensors of all of a folder's files that are not derived.
Contents stored_in(const std::string& folder) {
  Contents all;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) all.merge(contents_of(entry.path().string()));
  }
  std::erase_if(all, [](const auto& tensor) { return is_decay_table(tensor.first); });
  return all;
}

/// Without those that are unset: an absent one is written as null.
io::Metadata set_tokens(io::Metadata tokens) {
  std::erase_if(tokens, [](const auto& token) { return token.second == "null"; });
  return tokens;
}

class HfGolden : public ::testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return std::string(LAMINA_GOLDEN_DIR "/hf/") + GetParam(); }
};

TEST(HfGoldens, AreAllThere) { EXPECT_GE(golden_names().size(), 58U); }

TEST_P(HfGolden, HasEveryWeightOnce) {
  const io::Checkpoint checkpoint = io::read_hf(folder(), Device::cpu(1));
  int64_t elements = 0;
  std::set<std::string> names;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    EXPECT_TRUE(names.insert(name).second) << name;
    elements += tensor.numel();
  }
  EXPECT_NO_THROW(io::check_weights(checkpoint, GetParam()));
  int64_t stored = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    const auto file = io::SafetensorsFile::open(entry.path().string(), Device::cpu(1));
    for (const std::string& tensor : file.names()) {
      if (is_decay_table(tensor)) continue;
      if (file.shape(tensor).rank() > 0) stored += file.shape(tensor).numel();  // rank 0: a constant of the family
    }
  }
  EXPECT_EQ(elements, stored);
  EXPECT_EQ(arch::count_parameters(checkpoint.spec).total, stored);
}

/// tests/arch/specs were written by hand from the configurations of some.
class HfSpec : public HfGolden {};

TEST_P(HfSpec, MeansTheSpecWrittenByHand) {
  arch::ArchSpec read = io::read_hf_config(read_all(folder() + "/config.json"), GetParam());
  const std::string path = spec_path(GetParam());
  const arch::ArchSpec written = arch::resolve(arch::load_arch(path), path);
  const std::string config = read_all(folder() + "/config.json");
  if (config.find("max_position") == std::string::npos && config.find("n_positions") == std::string::npos) {
    read.context = written.context;  // the family does not say
  }
  for (const arch::Difference& row : arch::diff(io::hf::canonical(read), io::hf::canonical(written))) {
    ADD_FAILURE() << row.path << ": read " << row.a << ", by hand " << row.b;
  }
}

TEST_P(HfGolden, GoesRoundWithoutALostBit) {
  const TemporaryFolder temporary;
  const io::Checkpoint checkpoint = io::read_hf(folder(), Device::cpu(1));
  EXPECT_EQ(io::write_hf(temporary / "out", checkpoint), checkpoint.family);
  EXPECT_EQ(stored_in(folder()), stored_in(temporary / "out"));
  const io::Checkpoint again = io::read_hf(temporary / "out", Device::cpu(1));
  EXPECT_TRUE(io::hf::canonical(again.spec) == io::hf::canonical(checkpoint.spec));
  EXPECT_EQ(set_tokens(again.tokens), set_tokens(checkpoint.tokens));
  io::write_native(temporary / "own", again);
  EXPECT_EQ(contents_of(io::read_native(temporary / "own", Device::cpu(1)).tensors), contents_of(checkpoint.tensors));
}

INSTANTIATE_TEST_SUITE_P(All, HfGolden, ::testing::ValuesIn(golden_names()),
                         [](const auto& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(All, HfSpec, ::testing::ValuesIn(names_with_spec()),
                         [](const auto& test) { return test.param; });

TEST(HfViews, RowsThatLieTogetherAreNotCopied) {
  const auto glm = io::read_hf(LAMINA_GOLDEN_DIR "/hf/glm", Device::cpu(1));
  const Tensor gate = tensor_of(glm, "layers.0.ffn.gate.weight");
  const Tensor up = tensor_of(glm, "layers.0.ffn.up.weight");
  EXPECT_TRUE(gate.shares_memory_with(up));
  EXPECT_EQ(gate.data<float>() + gate.numel(), up.data<float>());
  const auto bigcode = io::read_hf(LAMINA_GOLDEN_DIR "/hf/gpt_bigcode", Device::cpu(1));
  EXPECT_TRUE(
      tensor_of(bigcode, "layers.1.mixer.q.weight").shares_memory_with(tensor_of(bigcode, "layers.1.mixer.v.weight")));
}

}  // namespace
}  // namespace lamina::testing
