// SPDX-License-Identifier: Apache-2.0
// Maps a file's tensors to those of a module: renames, slices and joins them.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "framework/autograd/grad_mode.h"
#include "framework/io/files/printable.h"
#include "framework/ops/ops.h"
#include "layers/module/save.h"

namespace halfstep {
namespace {

// A tensor of the file with its name in the module.
struct FileTensor {
  std::string name;
  Tensor tensor;
  const UnreadTensor* unread = nullptr;  // set for a tensor of a dtype that halfstep lacks
};

class StateMapper {
 public:
  StateMapper(const Module& module, const WeightFile& file, const LoadOptions& options)
      : own_(module.state_tensors()), file_(file), options_(options) {
    for (const NamedTensor& n : own_) names_.insert(n.name);
    const bool meta = !own_.empty() && own_[0].tensor.device().is_meta();
    device_ = meta ? Device::meta : Device::cpu;
    out_.others = file.others;
  }

  StateForModule map() {
    const NoGrad off;
    bool found = file_.tensors.empty() && file_.unread.empty();
    for (const WeightFile::Entry& entry : file_.tensors) found |= take(entry.name, entry.tensor, nullptr);
    for (const UnreadTensor& entry : file_.unread)
      found |= take(entry.name, Tensor::empty(entry.shape, {.device = Device::meta}), &entry);
    check<ValueError>(found || !options_.strict, "load", "no name in ", file_.files.empty() ? "the file" : file_.files[0].string(),
                      " begins with \"", options_.prefix, '"');
    if (options_.join) join_by_rules();
    if (options_.join_attention) join_attention();
    join_weight_norm();
    for (const FileTensor& item : items_) {
      if (item.unread && names_.contains(item.name)) fail<DataError>("weights", item.unread->fault);
      if (item.unread && !item.unread->is_tensor)
        ++out_.others;
      else
        out_.state.push_back({item.name, item.tensor});
    }
    keep_skipped();
    return std::move(out_);
  }

 private:
  // Takes the tensor if its name has the prefix. Returns whether it has.
  bool take(const std::string& name, const Tensor& tensor, const UnreadTensor* unread) {
    if (!name.starts_with(options_.prefix)) return false;
    const std::string rest = name.substr(options_.prefix.size()), own = options_.rename ? options_.rename(rest) : rest;
    if (options_.skip && (options_.skip(rest) || options_.skip(own))) {
      left_out_.insert(own);
      return true;
    }
    FileTensor item{own, tensor, unread};
    if (!unread) {
      const bool turned = options_.transpose && (options_.transpose(rest) || options_.transpose(own));
      check<ValueError>(!turned || tensor.dim() == 2, "load", rest, " must be a matrix to be transposed, got ", tensor.shape());
      if (turned) item.tensor = tensor.t();
      auto part = options_.part ? options_.part(rest) : std::nullopt;
      if (!part && options_.part) part = options_.part(own);
      if (part) item.tensor = part_of(rest, item.tensor, *part);
    }
    items_.push_back(std::move(item));
    return true;
  }

  // Returns the slice of t. Throws ValueError if it lies outside.
  static Tensor part_of(const std::string& name, const Tensor& t, const TensorPart& p) {
    check<ValueError>(p.dim >= -t.dim() && p.dim < t.dim(), "load", name, " must have the dimension of which a part is taken, ",
                      p.dim, ", got ", t.shape());
    const int64_t size = t.size(p.dim), end = p.end.value_or(size);
    const std::string to = p.end ? " to " + std::to_string(*p.end) : "";
    check<ValueError>(p.start >= 0 && p.start < end && end <= size, "load", name, " must have a part from ", p.start, to,
                      " along dimension ", p.dim, ", got ", t.shape());
    return t.slice(p.dim, p.start, end);
  }

  // Joins the tensors that options_.join names.
  void join_by_rules() {
    struct JoinedTensor {
      std::vector<const FileTensor*> parts;
      JoinedPart rule;
    };
    std::map<std::string, JoinedTensor> all;
    std::vector<std::string> order;
    std::vector<FileTensor> left;
    std::vector<FileTensor> parts;
    parts.swap(items_);
    for (const FileTensor& item : parts) {
      const auto part = options_.join(item.name);
      if (!part) {
        left.push_back(item);
        continue;
      }
      const auto [whole, fresh] = all.try_emplace(part->name);
      if (fresh) order.push_back(part->name), whole->second = {std::vector<const FileTensor*>(size_t(part->of)), *part};
      const bool fits = part->place >= 0 && part->place < std::ssize(whole->second.parts);
      check<ValueError>(fits && !whole->second.parts[size_t(part->place)], "load", "\"join\" must give each part of ", part->name,
                        " a place of its own, got ", item.name, " for place ", part->place, ", which is taken or does not exist");
      whole->second.parts[size_t(part->place)] = &item;
    }
    items_ = std::move(left);
    for (const std::string& name : order) {
      const JoinedTensor& wanted = all.at(name);
      std::string found_names;
      size_t absent = 0;
      for (const FileTensor* part : wanted.parts)
        part ? void(found_names += (found_names.empty() ? "" : ", ") + part->name) : void(++absent);
      check<ValueError>(absent == 0, "load", name, " must be joined of ", wanted.parts.size(), " tensors, but the file has only ",
                        found_names);
      add_joined(name, wanted.parts, wanted.rule.add, wanted.rule.dim);
    }
  }

  void add_joined(const std::string& name, const std::vector<const FileTensor*>& parts, bool add, int64_t dim) {
    std::string part_names;
    Tensors tensors;
    for (const FileTensor* part : parts) {
      if (part->unread && names_.contains(name)) fail<DataError>("weights", part->unread->fault);
      const Tensor& t = part->tensor;
      const DType dtype = add && is_half(t.dtype()) ? DType::f32 : t.dtype();
      const bool meta = device_.is_meta() || part->unread;
      tensors.push_back(meta ? Tensor::empty(t.shape(), {.dtype = dtype, .device = Device::meta}) : t.to(dtype));
      part_names += (part_names.empty() ? "" : ", ") + part->name;
    }
    try {
      Tensor sum = tensors[0];
      for (size_t i = 1; add && i < tensors.size(); ++i) sum = sum + tensors[i];
      items_.push_back({name, add ? sum : cat(tensors, dim)});
    } catch (const Error& e) {
      fail<ValueError>("load", name, " must be joined of tensors that fit: ", part_names, ": ", e.what());
    }
    out_.joined.push_back(name + " of " + part_names);
  }

  // Names of the matrices of queries, keys and values, and numbers of three items.
  using QkvNames = std::array<const char*, 3>;
  using QkvItems = std::array<size_t, 3>;

  // Returns the items with these names, after `before`, whose rows are together those of `whole`, the module's matrix (kind
  // "weight") or bias of all three; nothing if one is missing or does not fit.
  std::optional<QkvItems> parts_of_projection(const NamedTensor& whole, const std::string& before, const std::string& kind,
                                              const QkvNames& names, const std::map<std::string, size_t>& places) const {
    QkvItems at{};
    int64_t rows = 0;
    for (size_t i = 0; i < 3; ++i) {
      const std::string name = joined(before, names[i], '.', kind);
      const auto place = places.find(name);
      if (place == places.end() || names_.contains(name)) return {};
      at[i] = place->second;
      const Shape& shape = items_[at[i]].tensor.shape();
      if (shape.size() != whole.tensor.dim() || (shape.size() >= 2 && shape[1] != whole.tensor.size(1))) return {};
      rows += shape.empty() ? 0 : shape[0];
    }
    return rows == whole.tensor.size(0) ? std::optional(at) : std::nullopt;
  }

  // Joins the parts of in_proj_weight and in_proj_bias of MultiheadAttention.
  void join_attention() {
    constexpr std::array kNames{QkvNames{"q_proj", "k_proj", "v_proj"},
                                QkvNames{"query", "key", "value"},
                                QkvNames{"q", "k", "v"},
                                QkvNames{"q_lin", "k_lin", "v_lin"},
                                QkvNames{"wq", "wk", "wv"},
                                QkvNames{"to_q", "to_k", "to_v"},
                                QkvNames{"query_proj", "key_proj", "value_proj"}};
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < items_.size(); ++i) places[items_[i].name] = i;
    std::set<size_t> used;
    std::vector<std::pair<std::string, QkvItems>> wholes;
    for (const NamedTensor& n : own_) {
      for (const std::string kind : {"weight", "bias"}) {
        const std::string end = "in_proj_" + kind;
        if (!n.name.ends_with(end) || places.contains(n.name)) continue;
        const std::string before = n.name.substr(0, n.name.size() - end.size());
        for (const QkvNames& names : kNames) {
          const std::optional<QkvItems> parts = parts_of_projection(n, before, kind, names, places);
          if (!parts) continue;
          wholes.emplace_back(n.name, *parts);
          used.insert(parts->begin(), parts->end());
          break;
        }
      }
    }
    if (wholes.empty()) return;
    const std::vector<FileTensor> items = std::move(items_);
    items_.clear();
    for (size_t i = 0; i < items.size(); ++i)
      if (!used.contains(i)) items_.push_back(items[i]);
    for (const auto& [name, at] : wholes) add_joined(name, {&items[at[0]], &items[at[1]], &items[at[2]]}, false, 0);
  }

  // Returns whether the length fits the direction, and the direction the weight.
  static bool fits_weight_norm(const Shape& length, const Shape& direction, const Shape& weight) {
    bool fits = direction == weight && (length.empty() || length.size() == direction.size());
    for (int d = 0; fits && d < length.size(); ++d) fits = length[d] == 1 || length[d] == direction[d];
    return fits;
  }

  // Returns g v / |v|: the norms are along the dimensions in which g has one element.
  Tensor of_weight_norm(const Tensor& length, const Tensor& direction) const {
    if (device_.is_meta()) return Tensor::empty(direction.shape(), {.dtype = direction.dtype(), .device = Device::meta});
    const Tensor g = is_half(length.dtype()) ? length.to(DType::f32) : length;
    const Tensor v = is_half(direction.dtype()) ? direction.to(DType::f32) : direction;
    Dims along;
    for (int64_t d = 0; d < v.dim(); ++d)
      if (g.dim() == 0 || g.size(d) == 1) along.push_back(d);
    return v * (g / sqrt(sum(square(v), along, /*keepdim=*/true)));
  }

  // Puts the length and the direction of a weight together where the module has only the weight.
  void join_weight_norm() {
    std::map<std::string, size_t> places;
    for (size_t i = 0; i < items_.size(); ++i) places[items_[i].name] = i;
    std::set<size_t> used;
    std::vector<FileTensor> wholes;
    for (const NamedTensor& n : own_) {
      if (places.contains(n.name)) continue;
      const size_t dot = n.name.rfind('.') + 1;  // 0 if there is none
      const std::string parametrized = joined(n.name.substr(0, dot), "parametrizations.", n.name.substr(dot), ".original");
      for (const auto& [g, v] : {std::pair(parametrized + '0', parametrized + '1'), std::pair(n.name + "_g", n.name + "_v")}) {
        const auto length = places.find(g), direction = places.find(v);
        if (length == places.end() || direction == places.end() || names_.contains(g) || names_.contains(v)) continue;
        const FileTensor &g_item = items_[length->second], &v_item = items_[direction->second];
        if (g_item.unread || v_item.unread) continue;
        if (!fits_weight_norm(g_item.tensor.shape(), v_item.tensor.shape(), n.tensor.shape())) continue;
        wholes.push_back({n.name, of_weight_norm(g_item.tensor, v_item.tensor)});
        out_.joined.push_back(joined(n.name, " of ", g, ", ", v));
        used.insert({length->second, direction->second});
        break;
      }
    }
    if (wholes.empty()) return;
    std::vector<FileTensor> left;
    for (size_t i = 0; i < items_.size(); ++i)
      if (!used.contains(i)) left.push_back(std::move(items_[i]));
    items_ = std::move(left);
    items_.insert(items_.end(), wholes.begin(), wholes.end());
  }

  // Lists the module's tensors that keep their values.
  void keep_skipped() {
    if (!options_.skip) return;
    for (const NamedTensor& n : own_) {
      if (!options_.skip(n.name) && !left_out_.contains(n.name)) continue;
      out_.skipped.push_back(n.name);
      out_.state.push_back(n);
    }
  }

  const StateDict own_;
  const WeightFile& file_;
  const LoadOptions& options_;
  std::set<std::string> names_;     // of the module
  std::set<std::string> left_out_;  // names in the module
  Device device_ = Device::cpu;
  std::vector<FileTensor> items_;
  StateForModule out_;
};

}  // namespace

StateForModule state_for(const Module& module, const WeightFile& file, const LoadOptions& options) {
  return StateMapper(module, file, options).map();
}

}  // namespace halfstep
