#include "lamina/arch/presets.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lamina/arch/count.h"
#include "lamina/arch/edit.h"
#include "lamina/arch/resolve.h"
#include "support/error_of.h"

namespace lamina::arch {
namespace {

TEST(Presets, everyOneResolvesAndSurvivesARoundTrip) {
  for (const std::string& name : preset_names()) {
    SCOPED_TRACE(name);
    const ArchSpec spec = load_preset(name);
    EXPECT_FALSE(spec.about.empty());
    ArchSpec resolved;
    ASSERT_NO_THROW(resolved = resolve(spec, name));
    EXPECT_EQ(resolve(resolved, name), resolved) << "resolving twice";
    for (const ArchSpec& version : {spec, resolved}) {
      EXPECT_EQ(read_spec(write_spec(version, Defaults::omit), name), version);
      EXPECT_EQ(read_spec(write_spec(version, Defaults::write), name), version);
    }
    EXPECT_TRUE(diff(spec, read_arch(write_spec(spec), name)).empty());
  }
}

int64_t pooler(int64_t d) { return d * d + d; }
/// A dense layer, a layer norm, and the bias of the tied logits.
int64_t masked_lm_head(int64_t d, int64_t vocab) { return d * d + d + 2 * d + vocab; }

/// Parameter counts of the published checkpoints.
TEST(Presets, parametersAreThePublishedNumbers) {
  const std::map<std::string, int64_t> published = {
      {"gpt2", 124439808},
      {"gpt2-medium", 354823168},
      {"gpt2-large", 774030080},
      {"gpt2-xl", 1557611200},
      {"llama-7b", 6738415616},
      {"llama-2-7b", 6738415616},
      {"llama-2-70b", 68976648192},
      {"llama-3-8b", 8030261248},
      {"llama-3.1-8b", 8030261248},
      {"llama-3.2-1b", 1235814400},
      {"code-llama-7b", 6738546688},
      {"bloom-560m", 559214592},
      {"bloom-7b1", 7069016064},
      {"falcon-7b", 6921720704},
      {"falcon-40b", 41303293952},
      {"falcon-rw-1b", 1311625216},
      {"gpt-j-6b", 6050882784},
      {"codegen-350m", 356712448},
      {"gpt-neox-20b", 20554567680},
      {"pythia-70m", 70426624},
      {"pythia-160m", 162322944},
      {"pythia-410m", 405334016},
      {"pythia-1b", 1011781632},
      {"pythia-1.4b", 1414647808},
      {"pythia-2.8b", 2775208960},
      {"pythia-6.9b", 6857302016},
      {"bert-base", 109514298},
      {"bert-large", 335174458},
      {"roberta-base", 124697433},
      {"roberta-large", 355412057},
      {"xlm-roberta-base", 278295186},
      {"xlm-roberta-large", 560142482},
      {"camembert-base", 110655493},
      {"minilm-l6", 22713216 - (384 * 384 + 384)},  // transformers counts a pooler
      {"distilbert-base", 66985530},
      {"t5-small", 60506624},
      {"t5-base", 222903552},
      {"t5-large", 737668096},
      {"t5-3b", 2851598336},
      {"t5-11b", 11307321344},
      {"flan-t5-small", 76961152},
      {"flan-t5-base", 247577856},
      {"flan-t5-large", 783150080},
      {"flan-t5-xl", 2849757184},
      {"flan-t5-xxl", 11135332352},
      {"mt5-small", 300176768},
      {"mt5-base", 582401280},
      {"mt5-large", 1229581312},
      {"mt5-xl", 3742619648},
      {"mt5-xxl", 12921057280},
      {"switch-base-8", 619339008},
      {"switch-base-128", 7415217408},
      {"modernbert-base", 149655232},
      {"modernbert-large", 395881664},
      // transformers counts the model with a pooler and without the masked-LM head
      {"longformer-base", 148659456 - pooler(768) + masked_lm_head(768, 50265)},
      {"longformer-large", 434600960 - pooler(1024) + masked_lm_head(1024, 50265)},
      {"bigbird-base", 127468800 - pooler(768) + masked_lm_head(768, 50358)},
      {"bart-base", 139420416 + 50265},   // transformers does not count the bias of the logits, a buffer
      {"bart-large", 406291456 + 50265},  // the same buffer
      {"chatglm3-6b", 6243584000},
      {"pythia-12b", 11846072320},
      {"mistral-7b", 7241732096},
      {"mixtral-8x7b", 46702792704},
      {"gemma-2b", 2506172416},
      {"gemma-7b", 8537680896},
      {"gemma-2-2b", 2614341888},
      {"gemma-2-9b", 9241705984},
      {"gemma-3-1b", 999885952},
      {"olmo-1b", 1176764416},
      {"olmo-7b", 6888095744},
      {"olmo-2-7b", 7298617344},
      {"olmo-2-1b", 1484916736},
      {"command-r", 34980831232},
      {"command-r7b", 8028033024},
      {"command-a", 111057580032},
      {"qwen2-0.5b", 494032768},
      {"qwen2-7b", 7615616512},
      {"qwen3-0.6b", 596049920},
      {"qwen3-8b", 8190735360},
      {"qwen3-30b-a3b", 30532122624},
      {"starcoder", 15517456384},
      {"starcoder2-3b", 3030371328},
      {"opt-125m", 125239296},
      {"opt-350m", 331196416},
      {"opt-6.7b", 6658473984},
      {"phi-2", 2779683840},
      {"phi-3-mini", 3821079552},
      {"stablelm-2-1.6b", 1644515328},
      {"stablelm-3b", 2795443200},
      {"mpt-7b", 6649286656},
      {"glm-4-9b", 9399951360},
      {"smollm3-3b", 3075098624},
      {"deepseek-v3", 671026419200},
      {"gpt-oss-20b", 20914757184},
      {"gpt-oss-120b", 116829156672},
      {"mamba-130m", 129135360},
      {"mamba-2.8b", 2768345600},
      {"mamba2-130m", 128989632},
      {"mamba2-2.7b", 2702599680},
      {"minitron-4b", 4190509056},
      {"granite-3.0-2b", 2533531648},
      {"palm-8b", 8632012800},
      {"minimax-text-01", 456089655296},
      {"qwen3-next-80b-a3b", 79674391296},
      {"rwkv-4-169m", 169342464},
      {"rwkv-4-430m", 430397440},
      {"rwkv-4-1.5b", 1515106304},
      {"rwkv-4-3b", 2984627200},
      {"rwkv-4-7b", 7392649216},
      {"rwkv-4-14b", 14148597760},
  };
  for (const auto& [name, total] : published) {
    EXPECT_EQ(count_parameters(resolve(load_preset(name))).total, total) << name;
  }
}

TEST(Presets, aDerivedFileSaysWhatIsWrongWithIt) {
  const auto message = [](const std::string& text) { return testing::error_of([&] { read_arch(text, "mine"); }); };
  EXPECT_NE(message(R"({"base": "gpt3"})").find("did you mean gpt2?"), std::string::npos);
  EXPECT_NE(message(R"({"base": 3})").find("expected the name of a preset"), std::string::npos);
  const std::string both = message(R"({"base": "gpt2", "set": {"d_mode": 3, "positio.theta": 1}, "d_model": 4})");
  EXPECT_NE(both.find("3 problems"), std::string::npos) << both;
  EXPECT_NE(both.find("did you mean d_model?"), std::string::npos) << both;
  EXPECT_NE(both.find("did you mean position?"), std::string::npos) << both;
  EXPECT_NE(message(R"({"base": "gpt2", "set": 7})").find("path: value"), std::string::npos);
}

TEST(Presets, namesAreSortedAndUnknownOnesGetASuggestion) {
  const std::vector<std::string> names = preset_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  testing::expect_error([] { load_arch("lama-7b"); }, "did you mean llama-7b?");
  EXPECT_THROW(load_arch("no/such/file.json"), Error);
  EXPECT_THROW(load_arch("/"), Error);
}

}  // namespace
}  // namespace lamina::arch
