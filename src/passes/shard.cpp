// shard: experts are divided over an axis, and rows change devices on the way to them and back.
//
//   shard all() over ep as experts                                    3 experts on 2 devices
//   chunk 1 in=(rows f32[32B, 8], counts i64[3]) out=(y) params=1     W f32[3, 8, 8]
//   ->
//   chunk 1 in=(rows' f32[256, 8], counts' i64[2, 2]) out=(y') …      divided W f32[2, 8, 8] of f32[3, 8, 8] over ep
//   exchange counts i64[2, 2] -> counts' over ep, rows -> rows', y' -> y, dy -> dy', drows' -> drows
//
// The chunk's operations stay what they are: GroupedLinear takes a table of counts, a row of it from each device, and of
// weights those that the device has. Rows that came are packed, by sender and then expert, so that a device sums over
// them in the order of the samples. Their room is fixed: as many as there can be, or `max_load` times the mean; operations
// take numbers of rows from the counts, and the rest is zero. After place, which knows the devices; before recompute, which
// keeps what a chunk is given and so exchanges nothing again. The exchanges become nodes in communicate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "ir/shares.h"
#include "passes/pipeline.h"
#include "support/error.h"

namespace piper::passes {

using ir::Chunk;
using ir::ChunkId;
using ir::Dim;
using ir::Node;
using ir::Op;
using ir::OpId;
using ir::ParamId;
using ir::Shape;
using ir::TensorType;
using ir::ValueId;
using support::Code;

namespace {

// The part of a region's parameters that a device has, and values of their shapes.
bool reads_weights(const Op& op, size_t input) { return op.kind == "GroupedLinear" && (input == 1 || input == 3); }
bool makes_weights(const Op& op) { return op.kind == "GroupedLinearGradWeight" || op.kind == "GroupedLinearGradBias"; }

class RegionSharder {
 public:
  RegionSharder(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics, size_t region)
      : dag_(dag), model_(dag.model), strategy_(strategy), diagnostics_(diagnostics), region_(dag.regions[region]),
        directive_(strategy.shard_experts[static_cast<size_t>(region_.shard)]),
        devices_(dag.mesh.axes[static_cast<size_t>(directive_.axis)].size),
        experts_(model_.op(region_.route).attrs.i("experts")), each_((experts_ + devices_ - 1) / devices_) {
    for (size_t c = 0; c < dag.chunks.size(); ++c) {
      const auto tag = dag.chunks[c].tags.find(ir::kExpertTag);
      if (tag != dag.chunks[c].tags.end() && tag->second == static_cast<int64_t>(region)) chunks_.push_back(ChunkId(static_cast<int64_t>(c)));
    }
  }

  void run() {
    if (chunks_.size() != 1) return refuse("their rows come from several parts of the model, one after another");
    if (!check_places()) return;
    find_rows();
    find_weights();
    if (diagnostics_.has_errors()) return;
    share_counts();
    exchange_values();
    divide_weights();
    retype();
    chunk().samples = samples_;
  }

 private:
  Chunk& chunk() { return dag_.chunk(chunks_.front()); }

  void refuse(const std::string& why) {
    diagnostics_.report(Code::E0520, directive_.span, fmt::format("the experts of `{}` cannot be divided: {}", region_.path, why));
  }

  // The experts and what gives them rows stand on the same devices, which differ along the axis.
  bool check_places() {
    const std::string& axis = dag_.mesh.axes[static_cast<size_t>(directive_.axis)].name;
    for (const Node& node : dag_.nodes) {
      if (node.kind != ir::NodeKind::kCompute || node.chunk != chunks_.front()) continue;
      const ir::Placement& placement = dag_.placements[node.placement.index()];
      const std::vector<int> axes = ir::spanned_axes(dag_.mesh, placement);
      if (std::find(axes.begin(), axes.end(), directive_.axis) == axes.end()) {
        refuse(fmt::format("they are placed on {}, which is one coordinate of axis `{}`", placement.name, axis));
        return false;
      }
      for (ir::NodeId in : node.inputs) {
        if (dag_.node(in).pass == ir::Pass::kCount || dag_.node(in).placement == node.placement) continue;
        refuse(fmt::format("their rows come from {}, they are on {}", dag_.placements[dag_.node(in).placement.index()].name, placement.name));
        return false;
      }
      const auto shares = ir::cut_shares(strategy_.train.batch, dag_.microbatches, ir::data_degree(dag_.mesh, placement));
      for (const auto& row : shares) {
        for (const ir::Interval& share : row) most_samples_ = std::max(most_samples_, share.count);
      }
    }
    return true;
  }

  void find_rows() {
    counts_ = model_.op(region_.route).outputs[1];
    for (ValueId v : chunk().inputs) {
      if (v == counts_) continue;
      PIPER_CHECK(model_.op(model_.value(v).producer).kind == "MoEDispatch", "experts read something else than rows and counts");
      rows_ = model_.value(v).type.shape[0];
    }
    PIPER_CHECK(rows_.constant == 0 && rows_.batch > 0, "the number of rows is none of the samples");
    // Everybody's rows may come to one device. The mean is what a device sends.
    samples_ = devices_ * most_samples_;
    if (directive_.max_load) {
      samples_ = std::min(samples_, static_cast<int64_t>(std::ceil(*directive_.max_load * static_cast<double>(most_samples_))));
    }
  }

  // Parameters of experts, what is made of them alone, and gradients of both.
  void find_weights() {
    for (size_t i = chunk().forward.size(); i-- > 0;) {
      const Op& op = model_.op(chunk().forward[i]);
      for (size_t k = 0; k < op.inputs.size(); ++k) {
        const bool whole = op.outputs.size() == 1 && weights_.count(op.outputs[0]) > 0;
        if (op.inputs[k].valid() && (whole || reads_weights(op, k))) weights_.insert(op.inputs[k]);
      }
    }
    for (OpId id : chunk().backward) {
      const Op& op = model_.op(id);
      const bool of_rows = op.kind == "GroupedLinear";
      const bool of_weights = std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId v) { return v.valid() && weights_.count(v) > 0; });
      if (makes_weights(op) || (of_weights && !of_rows)) weights_.insert(op.outputs.begin(), op.outputs.end());
    }
    for (ValueId v : weights_) {
      const ir::Value& value = model_.value(v);
      const bool stacked = !value.type.shape.empty() && value.type.shape[0] == Dim(experts_);
      if (!stacked) refuse(fmt::format("`{}` is {}, not a matrix or vector an expert", value.name, to_string(value.type)));
      if (value.kind == ir::ValueKind::kParameter) check_parameter(value.param);
      if (value.kind == ir::ValueKind::kConstant) refuse(fmt::format("`{}` is a constant", value.name));
    }
  }

  void check_parameter(ParamId p) {
    const ir::Parameter& param = model_.params[p.index()];
    if (param.is_buffer || param.type.dtype != ir::DType::kF32) refuse(fmt::format("`{}` is no trained f32 parameter", param.name));
    for (size_t c = 0; c < dag_.chunks.size(); ++c) {
      const auto& params = dag_.chunks[c].params;
      if (ChunkId(static_cast<int64_t>(c)) != chunks_.front() && std::find(params.begin(), params.end(), p) != params.end()) {
        refuse(fmt::format("`{}` is read by {{{}}} as well", param.name, ir::to_string(dag_.chunks[c].tags)));
      }
    }
  }

  // The route says how many rows each device gets of each of its experts.
  void share_counts() {
    Op& route = model_.ops[region_.route.index()];
    route.attrs.set("owners", devices_);
    model_.value(counts_).type.shape = {devices_, each_};
  }

  void exchange(ValueId from, ValueId to, bool counted, bool back) {
    ir::Exchange e{from, to, ValueId(), ValueId(), directive_.axis, 0, directive_.a2a_stream, "", directive_.span};
    e.what = model_.value(back ? to : from).name;
    if (counted) {
      e.sent = back ? local_counts_ : counts_;
      e.received = back ? counts_ : local_counts_;
    } else {
      e.what = fmt::format("rows of {}", region_.path);
      e.limit = samples_ * rows_.batch;
    }
    dag_.exchanges.push_back(std::move(e));
  }

  // What crosses the border of the chunk gets a twin inside, of its own type.
  void exchange_values() {
    std::map<ValueId, ValueId> inside;
    const auto cross = [&](ValueId v, bool back) {
      const auto [it, fresh] = inside.try_emplace(v);
      if (!fresh) return it->second;
      it->second = model_.add_value(model_.value(v).name + " at experts", model_.value(v).type, ir::ValueKind::kComputed);
      if (back) exchange(it->second, v, true, true);
      else exchange(v, it->second, v != counts_, false);
      return it->second;
    };
    local_counts_ = cross(counts_, false);
    Chunk& c = chunk();
    for (ValueId& v : c.inputs) v = cross(v, false);
    for (ValueId& v : c.outputs) v = cross(v, true);
    std::sort(c.outputs.begin(), c.outputs.end());
    for (ir::GradientIn& g : c.gradients_in) g = {inside.at(g.value), g.consumer, cross(g.gradient, false)};
    for (auto& [v, g] : c.gradients_out) {
      v = inside.at(v);
      g = cross(g, true);
    }
    for (const std::vector<OpId>* ops : {&c.forward, &c.backward}) {
      for (OpId id : *ops) move_inside(id, inside);
    }
  }

  void move_inside(OpId id, const std::map<ValueId, ValueId>& inside) {
    for (ValueId& v : model_.ops[id.index()].inputs) {
      if (const auto it = inside.find(v); it != inside.end()) v = it->second;
    }
    for (ValueId& v : model_.ops[id.index()].outputs) {
      const auto it = inside.find(v);
      if (it == inside.end()) continue;
      model_.value(v).producer = OpId();  // an exchange makes it now
      v = it->second;
      model_.value(v).producer = id;
    }
  }

  void divide_weights() {
    for (ValueId v : weights_) {
      TensorType& type = model_.value(v).type;
      const ParamId param = model_.value(v).kind == ir::ValueKind::kParameter ? model_.value(v).param : ParamId();
      if (param.valid()) dag_.divided[param] = {type, directive_.axis};
      type.shape[0] = Dim(each_);
      if (param.valid()) model_.params[param.index()].type = type;
    }
  }

  Dim local(Dim d) const {
    if (d.is_static()) return d;
    PIPER_CHECK(d.constant == 0 && d.batch % rows_.batch == 0, "experts have a dim that is no multiple of their rows");
    return Dim(d.batch * samples_);
  }

  // Sizes inside are those of the rows that a device may get, whatever its share of the samples.
  void retype() {
    std::set<ValueId> values(chunk().inputs.begin(), chunk().inputs.end());
    for (const ir::GradientIn& g : chunk().gradients_in) values.insert(g.gradient);
    for (const std::vector<OpId>* ops : {&chunk().forward, &chunk().backward}) {
      for (OpId id : *ops) {
        Op& op = model_.ops[id.index()];
        values.insert(op.outputs.begin(), op.outputs.end());
        const bool of_weights = weights_.count(op.outputs[0]) > 0;
        for (const auto& [name, value] : std::map<std::string, ir::AttrValue>(op.attrs.map())) {
          const Shape* shape = std::get_if<Shape>(&value);
          if (!shape) continue;
          Shape now = *shape;
          if (of_weights && !now.empty() && now[0] == Dim(experts_)) now[0] = Dim(each_);
          for (Dim& d : now) d = local(d);
          op.attrs.set(name, std::move(now));
        }
      }
    }
    for (ValueId v : values) {
      for (Dim& d : model_.value(v).type.shape) d = local(d);
    }
  }

  TrainingDag& dag_;
  ir::Model& model_;
  const Strategy& strategy_;
  Diagnostics& diagnostics_;
  const ir::ExpertRegion& region_;
  const ir::ShardExperts& directive_;
  const int64_t devices_, experts_, each_;  // experts of a device, but for the last ones
  std::vector<ChunkId> chunks_;
  int64_t most_samples_ = 0;  // of a device, in one microbatch
  int64_t samples_ = 0;       // whose rows a device has room for
  Dim rows_;
  ValueId counts_, local_counts_;
  std::set<ValueId> weights_;
};

// Counts have one form: all that read them are divided alike.
void check_routes(const TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  const auto consumers = dag.model.consumers();
  for (const ir::ExpertRegion& region : dag.regions) {
    const ir::ShardExperts& directive = strategy.shard_experts[static_cast<size_t>(region.shard)];
    for (OpId reader : consumers[dag.model.op(region.route).outputs[1].index()]) {
      if (dag.op_tags.size() <= reader.index()) continue;  // of a backward
      const auto tag = dag.op_tags[reader.index()].find(ir::kExpertTag);
      int axis = -1;
      if (tag != dag.op_tags[reader.index()].end()) {
        axis = strategy.shard_experts[static_cast<size_t>(dag.regions[static_cast<size_t>(tag->second)].shard)].axis;
      }
      if (axis == directive.axis) continue;
      diagnostics.report(Code::E0520, directive.span,
                         fmt::format("the experts of `{}` cannot be divided: others of the same route are not, or over another axis", region.path));
      return;
    }
  }
}

}  // namespace

void shard(TrainingDag& dag, const Strategy& strategy, Diagnostics& diagnostics) {
  check_routes(dag, strategy, diagnostics);
  for (size_t r = 0; r < dag.regions.size() && !diagnostics.has_errors(); ++r) RegionSharder(dag, strategy, diagnostics, r).run();
}

}  // namespace piper::passes
