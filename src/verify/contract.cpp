// The plan against its contract: every chunk of the model runs once for every sample, every trainable parameter is
// updated once wherever it is held, is saved once, and gradients are complete where they are used (gradients.cpp).
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/check.h"
#include "verify/coverage.h"
#include "verify/rules.h"

namespace piper::verify {

namespace {

using plan::Instruction;
using plan::Opcode;
using plan::ParamHome;
using plan::Plan;
using plan::Program;
using support::Code;

void check_tables(const Plan& plan, Findings& findings) {
  if (plan.contract.microbatches != plan.microbatches) {
    findings.add(Code::E0607, -1, -1, fmt::format("the contract has {} microbatches, the plan {}", plan.contract.microbatches, plan.microbatches));
  }
  bool same = plan.contract.loss_weights.size() == plan.loss.size();
  for (size_t i = 0; same && i < plan.loss.size(); i++) same = plan.contract.loss_weights[i] == plan.loss[i].weight;
  if (!same) findings.add(Code::E0607, -1, -1, "the weights of the loss differ from the contract's");
}

// Each chunk of the contract is computed for every sample of every microbatch, as often as the contract has chunks with
// its hash (equal layers may share their kernels).
void check_chunks(const Plan& plan, const std::vector<Samples>& microbatches, Findings& findings) {
  // Without hashes there is nothing to compare.
  if (std::none_of(plan.chunks.begin(), plan.chunks.end(), [](const plan::Chunk& chunk) { return chunk.hash != 0; })) return;
  std::map<uint64_t, int> wanted;
  for (uint64_t hash : plan.contract.chunk_hashes) wanted[hash]++;
  std::map<uint64_t, std::vector<Coverage>> done;
  std::set<uint64_t> sampled;  // those whose sizes depend on samples somewhere
  for (size_t r = 0; r < plan.ranks.size(); r++) {
    for (const Instruction& instruction : plan.programs[plan.ranks[r].program].instructions) {
      if (instruction.opcode != Opcode::kCompute) continue;
      auto it = wanted.find(plan.chunks[instruction.chunk].hash);
      if (it == wanted.end()) continue;
      std::vector<Coverage>& coverage = done[it->first];
      coverage.resize(static_cast<size_t>(plan.microbatches));
      if (instruction.share < 0) continue;
      sampled.insert(it->first);
      const plan::Share& share = plan.ranks[r].shares[instruction.share][instruction.microbatch];
      coverage[instruction.microbatch].add({share.start, share.start + share.count});
    }
  }
  for (size_t c = 0; c < plan.contract.chunk_hashes.size(); c++) {
    uint64_t hash = plan.contract.chunk_hashes[c];
    const std::string& name = plan.contract.chunk_names[c];
    if (!done.count(hash)) {
      findings.add(Code::E0607, -1, -1, fmt::format("chunk `{}` of the model is never computed", name));
      continue;
    }
    if (!sampled.count(hash)) continue;
    for (size_t m = 0; m < microbatches.size(); m++) {
      std::string wrong = done[hash][m].differs(microbatches[m], wanted[hash]);
      if (wrong.empty()) continue;
      findings.add(Code::E0607, -1, -1, fmt::format("chunk `{}` of the model: microbatch {} has {}", name, m, wrong));
      break;
    }
  }
}

void check_params(const Plan& plan, Findings& findings) {
  std::vector<int> homes(plan.params.size(), 0), owners(plan.params.size(), 0);
  for (size_t p = 0; p < plan.programs.size(); p++) {
    const bool runs = std::any_of(plan.ranks.begin(), plan.ranks.end(),
                                  [&](const plan::RankEntry& rank) { return static_cast<size_t>(rank.program) == p; });
    if (!runs) continue;
    for (const ParamHome& home : plan.programs[p].params) {
      homes[home.param]++;
      owners[home.param] += home.owner ? 1 : 0;
    }
  }
  for (size_t i = 0; i < plan.params.size(); i++) {
    bool contributes = std::any_of(plan.contract.contributions.begin(), plan.contract.contributions.end(),
                                   [&](const plan::Contribution& c) { return c.param == static_cast<int32_t>(i); });
    if (homes[i] == 0 && contributes) findings.add(Code::E0607, -1, -1, fmt::format("parameter `{}` is held by no program", plan.params[i].name));
    if (homes[i] > 0 && owners[i] != 1) {
      findings.add(Code::E0607, -1, -1, fmt::format("parameter `{}` is saved by {} programs instead of one", plan.params[i].name, owners[i]));
    }
  }
}

}  // namespace

std::vector<Samples> microbatches_of(const Plan& plan) {
  std::vector<Samples> hulls(static_cast<size_t>(plan.microbatches), {plan.batch, 0});
  for (const plan::RankEntry& rank : plan.ranks) {
    for (const std::vector<plan::Share>& shares : rank.shares) {
      for (size_t m = 0; m < shares.size(); m++) {
        if (shares[m].count == 0) continue;
        hulls[m].begin = std::min(hulls[m].begin, shares[m].start);
        hulls[m].end = std::max(hulls[m].end, shares[m].start + shares[m].count);
      }
    }
  }
  return hulls;
}

void check_contract(const Plan& plan, const Matches& matches, Effects& effects, Findings& findings) {
  check_tables(plan, findings);
  std::vector<Samples> microbatches = microbatches_of(plan);
  int64_t at = 0;
  bool any = std::any_of(microbatches.begin(), microbatches.end(), [](Samples s) { return s.begin < s.end; });
  for (size_t m = 0; any && m < microbatches.size(); m++) {
    if (microbatches[m].begin != at) {
      findings.add(Code::E0607, -1, -1, fmt::format("microbatch {} does not begin where the one before it ends", m));
      return;
    }
    at = microbatches[m].end;
  }
  if (any && at != plan.batch) {
    findings.add(Code::E0607, -1, -1, fmt::format("the microbatches have {} samples, the batch {}", at, plan.batch));
    return;
  }
  check_chunks(plan, microbatches, findings);
  check_params(plan, findings);
  check_gradients(plan, matches, effects, findings);
}

}  // namespace piper::verify
