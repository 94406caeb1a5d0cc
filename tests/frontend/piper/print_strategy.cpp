#include "tests/frontend/piper/print_strategy.h"

#include <fmt/format.h>

#include <map>

namespace piper::test {

namespace {

using fmt::format;

std::string devices(const ir::Strategy& s, const ir::DeviceSet& set) {
  std::string text;
  for (const auto& [axis, at] : set.fixed) text += format("{}{} = {}", text.empty() ? "" : ", ", s.mesh.axes[static_cast<size_t>(axis)].name, at);
  return s.mesh.name + (text.empty() ? "" : "[" + text + "]");
}

std::string axis(const ir::Strategy& s, int index) { return s.mesh.axes[static_cast<size_t>(index)].name; }

std::string elements(const ir::Order& order) {
  std::string text;
  for (const ir::OrderElement& e : order.elements) {
    text += text.empty() ? "" : ", ";
    for (size_t i = 0; i < e.selectors.size(); i++) text += (i > 0 ? " | " : "") + to_string(e.selectors[i]);
  }
  return text;
}

std::string train(const ir::Train& t) {
  std::string text;
  constexpr const char* kLoss[] = {"cross_entropy", "mse", "mean"};
  constexpr const char* kOptimizer[] = {"sgd", "adam", "adamw"};
  constexpr const char* kSchedule[] = {"constant", "linear", "cosine"};
  constexpr const char* kInit[] = {"normal", "uniform", "constant"};
  for (const ir::LossTerm& l : t.loss) {
    text += format("loss {} * {}({}, {}) ignore {} smooth {}\n", l.weight, kLoss[static_cast<int>(l.kind)], l.output, l.target, l.ignore_index, l.label_smoothing);
  }
  const ir::Optimizer& o = t.optimizer;
  text += format("optimizer {} lr {} betas {} {} eps {} decay {} momentum {}{}\n", kOptimizer[static_cast<int>(o.kind)], o.lr, o.beta1, o.beta2, o.eps,
                 o.weight_decay, o.momentum, o.nesterov ? " nesterov" : "");
  text += format("schedule {} warmup {} total {} floor {}\n", kSchedule[static_cast<int>(t.schedule.kind)], t.schedule.warmup, t.schedule.total, t.schedule.floor);
  for (const std::string& glob : t.no_decay) text += format("no_decay {}\n", glob);
  for (const ir::InitRule& r : t.init) text += format("init {} {} {} {}\n", r.glob, kInit[static_cast<int>(r.kind)], r.a, r.b);
  text += format("batch {} seed {} precision {} clip {} on_nonfinite {} coupled {}{}\n", t.batch, t.seed,
                 ir::dtype_name(t.precision), t.clip_norm ? format("{}", *t.clip_norm) : "-",
                 t.skip_nonfinite ? "skip" : "stop", t.coupled_groups,
                 t.batch_norm == ir::Train::BatchNorm::kUnsaid     ? ""
                 : t.batch_norm == ir::Train::BatchNorm::kTraining ? " batch_norm training"
                                                                   : " batch_norm as_exported");
  return text;
}

}  // namespace

std::string print(const ir::Strategy& s) {
  std::string text = "mesh " + s.mesh.name;
  for (const ir::Axis& a : s.mesh.axes) text += format(" {}={}", a.name, a.size);
  text += "\n";
  for (const auto& [name, size] : s.dims) text += format("dim {} = {}\n", name, size);
  constexpr const char* kKind[] = {"parameter", "buffer", "constant"};
  for (const ir::Treat& t : s.treats) text += format("treat {} as {}\n", t.glob, kKind[static_cast<int>(t.kind)]);
  for (const ir::TagRule& rule : s.tags) {
    text += "tag " + rule.name + ":";
    for (const auto& [op, value] : rule.ops) text += format(" {}={}", op.value, value);
    text += "\n";
  }
  for (const ir::Place& p : s.places) text += format("place {} on {} stream {}\n", to_string(p.selector), devices(s, p.devices), p.p2p_stream);
  for (const ir::Replicate& r : s.replicates) {
    text += format("replicate {} over {} zero {} bucket {} streams {} {} dtype {} prefetch {}\n", to_string(r.selector), axis(s, r.axis), r.zero, r.bucket_bytes,
                   r.reduce_stream, r.gather_stream, r.reduce_dtype ? ir::dtype_name(*r.reduce_dtype) : "-", r.prefetch.value_or(1));
  }
  for (const ir::ShardExperts& e : s.shard_experts) {
    text += format("shard {} over {} stream {} load {}\n", to_string(e.selector), axis(s, e.axis), e.a2a_stream, e.max_load ? format("{}", *e.max_load) : "-");
  }
  for (const ir::ShardParam& p : s.shard_params) text += format("shard param {} dim {} over {}\n", p.glob, p.dim, axis(s, p.axis));
  if (s.split) text += format("split {} as {}\n", s.split->count, s.split->dim);
  for (const ir::Order& o : s.orders) text += "order " + elements(o) + "\n";
  for (const ir::Recompute& r : s.recomputes) text += "recompute " + to_string(r.selector) + "\n";
  for (const ir::StreamProperties& p : s.streams) text += format("stream {}{}{}\n", p.name, p.high_priority ? " high" : "", p.sms ? format(" sms {}", *p.sms) : "");
  for (const ir::Freeze& f : s.freezes) text += "freeze " + f.glob + "\n";
  for (const ir::Tie& t : s.ties) text += format("tie {} {}{}\n", t.a, t.b, t.transposed ? " transposed" : "");
  return text + train(s.train);
}

}  // namespace piper::test
