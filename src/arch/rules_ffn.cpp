#include "lamina/arch/layers.h"
#include "lamina/arch/rules.h"

namespace lamina::arch {
namespace {

template <class F>
void for_experts(const ArchSpec& spec, F&& fn) {
  for (const WrittenBlock& written : written_blocks(spec)) {
    if (const auto* moe = std::get_if<Moe>(&written.block->ffn)) fn(*moe, written.path + ".ffn");
  }
}

void top_k_fits(const ArchSpec& spec, Findings& findings) {
  for_experts(spec, [&](const Moe& f, const std::string& path) {
    if (f.top_k > f.experts) findings.note(path + ".top_k", str(f.top_k, " of ", f.experts, " experts"));
  });
}

void expert_groups_fit(const ArchSpec& spec, Findings& findings) {
  for_experts(spec, [&](const Moe& f, const std::string& path) {
    if (f.groups <= 0 || f.experts <= 0) return;
    const int64_t size = f.experts / f.groups;
    const double left = static_cast<double>(f.top_groups) * static_cast<double>(size);
    if (f.experts % f.groups != 0) {
      findings.note(path + ".groups", str(f.groups, " does not divide the ", f.experts, " experts"));
    } else if (f.top_groups > f.groups) {
      findings.note(path + ".top_groups", str(f.top_groups, " of ", f.groups, " groups"));
    } else if (f.groups > 1 && static_cast<double>(f.top_k) > left) {
      findings.note(path + ".top_k", str(f.top_k, ", but the ", f.top_groups, " chosen groups have ", left));
    } else if (f.groups > 1 && f.group_best > size) {
      findings.note(path + ".group_best", str(f.group_best, ", but a group has ", size, " experts"));
    }
  });
}

void shared_width_used(const ArchSpec& spec, Findings& findings) {
  for_experts(spec, [&](const Moe& f, const std::string& path) {
    if (f.shared_experts == 0 && f.shared_d_ff) {
      findings.note(path + ".shared_d_ff", str(*f.shared_d_ff, ", but shared_experts is 0"));
    }
  });
}

void shared_gate_used(const ArchSpec& spec, Findings& findings) {
  for_experts(spec, [&](const Moe& f, const std::string& path) {
    if (f.shared_experts == 0 && f.shared_gate) findings.note(path + ".shared_gate", "true, but shared_experts is 0");
  });
}

void experts_share_no_activation(const ArchSpec& spec, Findings& findings) {
  for_experts(spec, [&](const Moe& f, const std::string& path) {
    const auto* plain = std::get_if<PlainFfn>(&f.expert);
    if (plain != nullptr && plain->xielu) findings.note(path + ".expert.xielu", "experts have no learned activation");
  });
}

/// Rule: if experts are chosen one after the other, their weights do not come from one set of scores, so options of
/// such scores must be unset.
void near_experts_plain(const ArchSpec& spec, Findings& findings) {
  for_experts(spec, [&](const Moe& f, const std::string& path) {
    if (f.score != RouterScore::softmax_of_near) return;
    if (f.groups > 1) findings.note(path + ".groups", str(f.groups, " with score softmax_of_near"));
    if (f.selection_bias) findings.note(path + ".selection_bias", "true with score softmax_of_near");
    if (f.renormalise) findings.note(path + ".renormalise", "true with score softmax_of_near");
  });
}

}  // namespace

std::vector<Rule> ffn_rules() {
  return {
      {"top_k_fits", "a token does not choose more experts than there are", "lower top_k or add experts", top_k_fits},
      {"expert_groups_fit", "groups divide the experts and leave enough to choose from",
       "choose groups, top_groups and group_best that fit", expert_groups_fit},
      {"shared_width_used", "shared_d_ff is set only with shared experts", "set shared_experts=1 or remove shared_d_ff",
       shared_width_used},
      {"shared_gate_used", "shared_gate is set only with shared experts", "set shared_experts=1 or remove shared_gate",
       shared_gate_used},
      {"experts_share_no_activation", "xielu is an activation of plain feed-forwards without experts",
       "remove expert.xielu", experts_share_no_activation},
      {"near_experts_plain", "softmax_of_near has no groups, selection bias or renormalised weights",
       "remove them, or use another score", near_experts_plain},
  };
}

}  // namespace lamina::arch
