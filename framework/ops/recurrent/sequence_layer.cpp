// SPDX-License-Identifier: Apache-2.0
// One product for the inputs of all steps; then for each step one product of the states and one pass over the gates. The backward
// visits the steps in reverse order, with one pass and one product each, and then computes one product for each weight and for the
// inputs, over all steps.
#include "framework/ops/recurrent/sequence_layer.h"

#include <algorithm>
#include <optional>

#include "framework/ops/core/promotion.h"
#include "framework/ops/linalg/products.h"
#include "framework/ops/ops.h"

namespace halfstep {
namespace {

constexpr OpInfo kInfo[4] = {
    {.name = "lstm", .policy = CastPolicy::low, .doc = "x, [h c], parameters -> y h' c': LSTM layers over a sequence"},
    {.name = "gru", .policy = CastPolicy::low, .doc = "x h, parameters -> y h': GRU layers over a sequence"},
    {.name = "rnn_tanh", .policy = CastPolicy::low, .doc = "x h, parameters -> y h': layers of rnn_tanh_cell over a sequence"},
    {.name = "rnn_relu", .policy = CastPolicy::low, .doc = "x h, parameters -> y h': layers of rnn_relu_cell over a sequence"}};

// Returns n rows of t, from row `from` on.
TensorView rows(const Tensor& t, int64_t from, int64_t n) {
  TensorView view = t.view();
  if (view.data) view.data = static_cast<char*>(view.data) + from * view.strides[0] * int64_t(size_of(view.dtype));
  view.shape[0] = n;
  return view;
}
// Returns the same, or an empty view if t is undefined.
TensorView rows_or_none(const Tensor& t, int64_t from, int64_t n) { return t.defined() ? rows(t, from, n) : TensorView{}; }

// Copies `from` to `to`, or writes zeros if it is undefined.
void copy_or_zero(Backend& backend, const Tensor& from, const Tensor& to) {
  if (from.defined())
    backend.copy(from.view(), to.view());
  else
    backend.fill(to.view(), 0);
}

// The steps of a layer in processing order. The step at time t has sizes[t] rows, from offsets[t] on; `reverse`: the last comes
// first.
struct StepOrder {
  bool reverse;
  int64_t batch;  // number of rows of the states
  const std::vector<int64_t>& sizes;
  std::vector<int64_t> offsets = {};
  int64_t total = 0;

  StepOrder(bool reversed, int64_t states, const std::vector<int64_t>& batch_sizes)
      : reverse(reversed), batch(states), sizes(batch_sizes) {
    for (int64_t n : sizes) {
      offsets.push_back(total);
      total += n;
    }
  }
  int64_t steps() const { return int64_t(sizes.size()); }
  size_t at(int64_t k) const { return size_t(reverse ? steps() - 1 - k : k); }  // time of the k-th step
  int64_t size(int64_t k) const { return sizes[at(k)]; }
  int64_t offset(int64_t k) const { return offsets[at(k)]; }
  // Returns whether all steps have all rows.
  bool is_uniform() const { return steps() == 0 || sizes.back() == batch; }
};

// Rows [from, to) of the batch.
struct RowRange {
  int64_t from, to;
  int64_t size() const { return to - from; }
};

// The second factor of many products, packed once if the device has a layout for that. The rows of the first factors are states of
// independent sequences, so parts of the batch run through their steps in parallel.
struct PackedFactor {
  Tensor matrix, packed;
  int64_t parts = 1;

  PackedFactor(const Tensor& b, const StepOrder& order) {
    Backend& backend = backend_for(b.device());
    const bool has_many_uses = order.steps() > 2;
    const AuxLayout layout = has_many_uses ? backend.packed_layout(b.size(0), b.size(1), b.dtype()) : AuxLayout{};
    const int64_t chunks =
        layout.shape.empty() ? 0 : backend.parallel_chunks(order.batch, order.steps() * b.size(0) * b.size(1), b.dtype());
    if (chunks > 0) {
      parts = chunks;
      packed = Tensor::empty(layout.shape, {.dtype = layout.dtype, .device = b.device()});
      backend.pack(b.view(), packed.view());
      matrix = b;
    } else {  // otherwise every step would transpose it again; a product of a single row needs no transposition
      matrix = has_many_uses && order.batch > 1 && b.strides()[1] != 1 ? b.contiguous() : gemm_ready(b);
    }
  }
  void multiply(Backend& backend, GemmArgs args) const {
    args.b = matrix.view();
    if (packed.defined()) args.packed = packed.view();
    backend.gemm(args);
  }
  // Calls f(k, r) for the steps k of the order, first to last or last to first, with the rows r of each part in that step. Parts
  // run in parallel.
  template <class F>
  void each_step(Backend& backend, const StepOrder& order, bool backwards, const F& f) const {
    backend.run_side_by_side(parts, [&](int64_t part) {
      const RowRange of_part{order.batch * part / parts, order.batch * (part + 1) / parts};
      for (int64_t i = 0; i < order.steps(); ++i) {
        const int64_t k = backwards ? order.steps() - 1 - i : i, n = order.size(k);
        const RowRange r{std::min(of_part.from, n), std::min(of_part.to, n)};
        if (r.size() > 0) f(k, r);
      }
    });
  }
};

// The initial states and those after each step, in one matrix [total + batch, width]: in the order of time, so that if all steps
// have all rows, the states that steps read are the same matrix, one step earlier.
class States {
 public:
  States(const StepOrder& order, const Tensor& all) : order_(order), all_(all), device_(backend_for(all.device())) {}
  States(const StepOrder& order, int64_t width, DType dtype, Device device, const Tensor& first)
      : States(order, Tensor::empty({order.total + order.batch, width}, {.dtype = dtype, .device = device})) {
    const TensorView to = rows(all_, first_row(), order.batch);
    if (first.defined())
      device_.copy(first.view(), to);
    else
      device_.fill(to, 0);
  }

  const Tensor& all() const { return all_; }
  // Returns the states after each step, in the order of time: [total, width].
  Tensor outputs() const { return part(order_.reverse ? 0 : order_.batch, order_.total); }
  TensorView after(int64_t k, RowRange r) const { return rows(all_, row(k) + r.from, r.size()); }
  // Returns the states that rows r of step k read. `joined`: memory for rows of which some began earlier and some begin here.
  TensorView before(int64_t k, RowRange r, Tensor& joined) const {
    const int64_t begun = k == 0 ? 0 : order_.size(k - 1);  // rows from here on begin in this step
    if (r.from >= begun) return rows(all_, first_row() + r.from, r.size());
    if (r.to <= begun) return rows(all_, row(k - 1) + r.from, r.size());
    joined = Tensor::empty({r.size(), all_.size(1)}, {.dtype = all_.dtype(), .device = all_.device()});
    copy_before(k, r, joined, 0);
    return joined.view();
  }
  // Returns the states that all steps read, in the order of their rows.
  Tensor all_before() const {
    if (order_.is_uniform()) return part(order_.reverse ? order_.batch : 0, order_.total);
    const Tensor out = Tensor::empty({order_.total, all_.size(1)}, {.dtype = all_.dtype(), .device = all_.device()});
    for (int64_t k = 0; k < order_.steps(); ++k) copy_before(k, {0, order_.size(k)}, out, order_.offset(k));
    return out;
  }
  // Returns the state of each row of the batch after its last step.
  Tensor last() const {
    const Tensor out = Tensor::empty({order_.batch, all_.size(1)}, {.dtype = all_.dtype(), .device = all_.device()});
    int64_t done = order_.batch;  // rows from here on are done
    const auto take = [&](int64_t from, int64_t begin) {
      if (begin < done) device_.copy(rows(all_, from + begin, done - begin), rows(out, begin, done - begin));
      done = std::min(done, begin);
    };
    const int64_t steps = order_.steps(), longest = steps == 0 ? 0 : order_.sizes[0];
    take(first_row(), longest);
    if (order_.reverse) {
      take(steps == 0 ? 0 : row(steps - 1), 0);
    } else {
      for (int64_t k = 0; k < steps; ++k) take(row(k), k + 1 == steps ? 0 : order_.size(k + 1));
    }
    return out;
  }

 private:
  // Return the first row of the initial states, and of those after step k.
  int64_t first_row() const { return order_.reverse ? order_.total : 0; }
  int64_t row(int64_t k) const { return order_.offset(k) + (order_.reverse ? 0 : order_.batch); }
  Tensor part(int64_t from, int64_t n) const { return all_.alias({n, all_.size(1)}, all_.strides(), from * all_.size(1)); }
  // Copies the states that rows r of step k read to `to`, from row `at` on.
  void copy_before(int64_t k, RowRange r, const Tensor& to, int64_t at) const {
    const int64_t old = std::clamp<int64_t>(k == 0 ? 0 : order_.size(k - 1), r.from, r.to);
    if (old > r.from) device_.copy(rows(all_, row(k - 1) + r.from, old - r.from), rows(to, at, old - r.from));
    if (r.to > old) device_.copy(rows(all_, first_row() + old, r.to - old), rows(to, at + old - r.from, r.to - old));
  }

  const StepOrder& order_;
  Tensor all_;
  Backend& device_;
};

// A layer in one direction.
struct Layer {
  enum Saved : size_t { kStates = kLayerInputs, kCells, kActivated, kUnprojected };  // saved in addition to the inputs
  using Attr = LayerSteps;
  static const OpInfo& info_of(const Attr& attr) { return halfstep::info_of(attr.cell); }

  static Attributes describe(const Attr& attr) {
    return {{"reverse", attr.reverse},
            {"batch", attr.batch},
            {"steps", attr.sizes.size()},
            {"uniform", attr.sizes.empty() || attr.sizes.back() == attr.batch}};
  }
  static Tensors forward(OpContext& ctx, const Attr& attr, const Tensors& in) {
    const StepOrder order(attr.reverse, attr.batch, attr.sizes);
    const DType dtype = in[kX].dtype(), wide = widened(dtype);
    const Device device = in[kX].device();
    const int64_t units = in[kWhh].size(0) / gates_of(attr.cell), width = in[kWhh].size(1);
    const bool gru = attr.cell == Cell::gru, lstm = attr.cell == Cell::lstm, gated = gru || lstm, records = ctx.recording();
    Backend& backend = backend_for(device);
    const auto make = [&](int64_t n, int64_t columns, DType t) {
      return Tensor::empty({n, columns}, {.dtype = t, .device = device});
    };

    // A GRU's gates of x and h meet only in the pass over them, so each has its own bias.
    const Tensor h_bias = gru && in[kBhh].defined() ? dense(in[kBhh].to(wide)) : Tensor();
    const Tensor bias = gru || !in[kBih].defined() ? dense(in[kBih]) : in[kBih].to(wide) + in[kBhh].to(wide);
    const Tensor gates = product(in[kX], in[kWih].t(), wide, {.bias = bias});
    // The product of one step stays in the cache; the gates of x are read from memory once.
    const Tensor h_gates = gated ? make(attr.batch, gates_of(attr.cell) * units, wide) : Tensor();
    const PackedFactor w(in[kWhh].t(), order);
    const Tensor w_hr = in[kWhr].defined() ? gemm_ready(in[kWhr].t()) : Tensor();

    const States h(order, width, dtype, device, in[kH]);
    // Without a backward only the newest c is needed. It is wide: not rounded between steps.
    std::optional<States> c;
    Tensor newest_c;
    if (lstm && records) c.emplace(order, units, wide, device, in[kC]);
    if (lstm && !records) {
      newest_c = make(attr.batch, units, wide);
      copy_or_zero(backend, in[kC], newest_c);
    }
    Tensor activated;  // 4 parts for each unit, also of a GRU (kernels.def); in the memory of `gates` if the dtype is the same
    if (records && gated) activated = lstm && dtype == wide ? gates : make(order.total, 4 * units, dtype);
    const Tensor unprojected = w_hr.defined() ? make(records ? order.total : attr.batch, units, dtype) : Tensor();

    w.each_step(backend, order, false, [&](int64_t k, RowRange r) {
      Tensor joined, joined_c;
      const int64_t n = r.size(), at = order.offset(k) + r.from;
      const TensorView before = h.before(k, r, joined), after = h.after(k, r), x_rows = rows(gates, at, n),
                       activated_rows = rows_or_none(activated, at, n), h_rows = gated ? rows(h_gates, r.from, n) : x_rows;
      w.multiply(backend, {.a = before, .c = h_rows, .bias = view_of(h_bias), .accumulate = !gated});
      if (lstm) {
        const TensorView made = w_hr.defined() ? rows(unprojected, records ? at : r.from, n) : after;
        const TensorView c_before = c ? c->before(k, r, joined_c) : rows(newest_c, r.from, n);
        backend.lstm_cell(x_rows, h_rows, c_before, made, c ? c->after(k, r) : c_before, activated_rows);
        if (w_hr.defined()) backend.gemm({.a = made, .b = w_hr.view(), .c = after});
      } else if (gru) {
        backend.gru_cell(x_rows, h_rows, before, after, activated_rows);
      } else {
        backend.unary(attr.cell == Cell::rnn_tanh ? Unary::tanh : Unary::relu, x_rows, after);
      }
    });

    for (const Tensor& t : in) ctx.save(t);
    for (const Tensor& t : {h.all(), c ? c->all() : Tensor(), activated, unprojected}) ctx.save(t);
    Tensors out{h.outputs(), h.last()};
    if (lstm) out.push_back((c ? c->last() : newest_c).to(dtype));
    return out;
  }

  static Tensors backward(const BackwardContext& ctx, const Attr& attr, const Tensors& grads) {
    const StepOrder order(attr.reverse, attr.batch, attr.sizes);
    const Tensor w_hh = gemm_ready(ctx.saved(kWhh)), w_hr = dense(ctx.saved(kWhr)), activated = ctx.saved(kActivated);
    const DType dtype = w_hh.dtype(), wide = widened(dtype);
    const Device device = w_hh.device();
    const int64_t units = w_hh.size(0) / gates_of(attr.cell), width = w_hh.size(1);
    const bool gru = attr.cell == Cell::gru, lstm = attr.cell == Cell::lstm;
    Backend& backend = backend_for(device);
    const auto make = [&](int64_t n, int64_t columns, DType t) {
      return Tensor::empty({n, columns}, {.dtype = t, .device = device});
    };
    // Returns the gradient of a state between two steps, [batch, columns], which begins as that of the last state. Rows whose last
    // step is still to come keep it.
    const auto running = [&](const Tensor& last, int64_t columns) {
      const Tensor out = make(attr.batch, columns, wide);
      copy_or_zero(backend, last, out);
      return out;
    };
    const Tensor dy = dense(grads[0]), dh = running(grads[1], width), dc = lstm ? running(grads[2], units) : Tensor();

    const States h(order, ctx.saved(kStates));
    std::optional<States> c;
    if (lstm) c.emplace(order, ctx.saved(kCells));
    const Tensor dgates = make(order.total, w_hh.size(0), dtype), dx_gates = gru ? make(order.total, 3 * units, dtype) : dgates;
    const Tensor dprojected = w_hr.defined() ? make(order.total, width, dtype) : Tensor();
    const Tensor dmade = w_hr.defined() ? make(attr.batch, units, wide) : Tensor();
    const PackedFactor w(w_hh, order);

    w.each_step(backend, order, true, [&](int64_t k, RowRange r) {
      Tensor joined;
      const int64_t n = r.size(), at = order.offset(k) + r.from;
      const TensorView dh_rows = rows(dh, r.from, n), dgates_rows = rows(dgates, at, n),
                       activated_rows = rows_or_none(activated, at, n), dy_rows = rows_or_none(dy, at, n);
      if (lstm) {
        const TensorView dc_rows = rows(dc, r.from, n), none;
        if (w_hr.defined()) {
          const TensorView dh_total = rows(dprojected, at, n);
          dy_rows ? backend.binary(Binary::add, dy_rows, dh_rows, dh_total) : backend.copy(dh_rows, dh_total);
          backend.gemm({.a = dh_total, .b = w_hr.view(), .c = rows(dmade, r.from, n)});
        }
        backend.lstm_cell_backward(w_hr.defined() ? rows(dmade, r.from, n) : dy_rows, w_hr.defined() ? none : dh_rows, dc_rows,
                                   activated_rows, c->before(k, r, joined), c->after(k, r), dgates_rows, dc_rows);
      } else if (gru) {
        backend.gru_cell_backward(dy_rows, dh_rows, activated_rows, h.before(k, r, joined), rows(dx_gates, at, n), dgates_rows,
                                  dh_rows);
      } else {
        if (dy_rows) backend.binary(Binary::add, dy_rows, dh_rows, dh_rows);
        backend.unary_backward(attr.cell == Cell::rnn_tanh ? Unary::tanh : Unary::relu, dh_rows, h.after(k, r), dgates_rows);
      }
      if (k > 0 || ctx.needs(kH)) w.multiply(backend, {.a = dgates_rows, .c = dh_rows, .accumulate = gru});
    });

    Tensors result = weight_gradients(ctx, dx_gates, dgates, h.all_before());
    if (ctx.needs(kH)) result[kH] = dh.to(ctx.grad_dtype(kH));
    if (lstm && ctx.needs(kC)) result[kC] = dc.to(ctx.grad_dtype(kC));
    if (ctx.needs(kX)) result[kX] = product(dx_gates, ctx.saved(kWih), ctx.grad_dtype(kX));
    if (ctx.needs(kWhr)) result[kWhr] = product(dprojected.t(), ctx.saved(kUnprojected), ctx.grad_dtype(kWhr));
    return result;
  }

  // Computes the gradients of the weights and biases of x and h from those of their gates. h_before: the h that each step read.
  static Tensors weight_gradients(const BackwardContext& ctx, const Tensor& dx_gates, const Tensor& dh_gates,
                                  const Tensor& h_before) {
    Tensors result(kLayerInputs);
    const auto weight = [&](const Tensor& g, size_t place, size_t bias, const Tensor& input) {
      if (ctx.needs(place))
        result[place] = product(g.t(), input, ctx.grad_dtype(place),
                                {.a_row_sum = {ctx.needs(bias) ? &result[bias] : nullptr, ctx.grad_dtype(bias)}});
      else if (ctx.needs(bias))
        result[bias] = column_sums(g, ctx.grad_dtype(bias));
    };
    weight(dx_gates, kWih, kBih, ctx.saved(kX));
    weight(dh_gates, kWhh, kBhh, h_before);
    return result;
  }

  // Computes the layer from differentiable ops, for second derivatives. Parts of the gates: i f g o of an LSTM, r z n of a GRU.
  static Tensors composite(const Attr& attr, const Tensors& given) {
    const StepOrder order(attr.reverse, attr.batch, attr.sizes);
    const DType dtype = given[kX].dtype(), wide = widened(dtype);
    Tensors in;
    for (const Tensor& t : given) in.push_back(t.defined() ? t.to(wide) : t);
    const int64_t units = in[kWhh].size(0) / gates_of(attr.cell);
    const auto first = [&](size_t i, int64_t columns) {
      return in[i].defined() ? in[i] : zeros({attr.batch, columns}, {.dtype = wide, .device = in[kX].device()});
    };
    const Tensor gates = linear(in[kX], in[kWih], in[kBih]);
    Tensor h = first(kH, in[kWhh].size(1)), c = attr.cell == Cell::lstm ? first(kC, units) : Tensor();
    Tensors outputs(attr.sizes.size());
    for (int64_t k = 0; k < order.steps(); ++k) {
      const int64_t n = order.size(k);
      const auto part = [&](const Tensor& t, int64_t i) { return t.narrow(1, i * units, units); };
      const auto replaced = [&](const Tensor& made, const Tensor& state) {
        return n == attr.batch ? made : cat({made, state.narrow(0, n, attr.batch - n)});
      };
      const Tensor x = gates.narrow(0, order.offset(k), n), own = h.narrow(0, 0, n), r = linear(own, in[kWhh], in[kBhh]);
      Tensor made;
      if (attr.cell == Cell::lstm) {
        const Tensor all = x + r;
        const Tensor next = sigmoid(part(all, 1)) * c.narrow(0, 0, n) + sigmoid(part(all, 0)) * tanh(part(all, 2));
        made = sigmoid(part(all, 3)) * tanh(next);
        if (in[kWhr].defined()) made = linear(made, in[kWhr]);
        c = replaced(next, c);
      } else if (attr.cell == Cell::gru) {
        const Tensor z = sigmoid(part(x, 1) + part(r, 1)), reset = sigmoid(part(x, 0) + part(r, 0));
        made = (1 - z) * tanh(part(x, 2) + reset * part(r, 2)) + z * own;
      } else {
        made = attr.cell == Cell::rnn_tanh ? tanh(x + r) : relu(x + r);
      }
      outputs[order.at(k)] = made;
      h = replaced(made, h);
    }
    const Tensor y = outputs.empty() ? zeros({0, h.size(1)}, {.dtype = wide, .device = h.device()}) : cat(outputs);
    Tensors out{y.to(dtype), h.to(dtype)};
    if (c.defined()) out.push_back(c.to(dtype));
    return out;
  }
};

}  // namespace

const OpInfo& info_of(Cell cell) { return kInfo[size_t(cell)]; }

Tensors sequence_layer(const Tensors& in, LayerSteps steps) { return call<Layer>(in, std::move(steps)); }

}  // namespace halfstep
