// SPDX-License-Identifier: Apache-2.0
#include "tests/emulators/ptx/builder.h"

#include <bit>

#include "tests/emulators/ptx/operands.h"

namespace halfstep::ptx {
namespace {

class Builder : Operands {
 public:
  Builder(Program& program, const Module& module, Kernel::Code& code) : Operands(program, module, code) {}

  void kernel(const Function& f) {
    size_t at = 0;
    for (const Variable& p : f.parameters) {
      at = aligned(at, p.align);
      arguments_[p.name] = at;
      code_.arguments.emplace_back(at, p.bytes);
      at += p.bytes;
    }
    code_.argument_bytes = at;
    code_.lane_bytes = 16;
    wanted_.push_back(f.name);
    places_[f.name] = {};
    while (!wanted_.empty()) {
      const std::string name = wanted_.front();
      wanted_.pop_front();
      function(module_.functions.at(name));
    }
    for (auto& [call, name] : calls_) code_.calls[size_t(call)].target = places_.at(name).begin;
    // Dynamic shared memory lies behind all else.
    dynamic_ = aligned(code_.static_shared, 16);
    for (size_t k : dynamic_users_) code_.instructions[k].offset += int64_t(dynamic_);
    code_.static_shared = dynamic_users_.empty() ? code_.static_shared : dynamic_;
  }

  // After all functions are built.
  void finish_calls() {
    for (size_t k = 0; k < code_.calls.size(); ++k) {
      const auto& p = pending_arguments_[k];
      const Function& f = module_.functions.at(p.callee);
      const Place& place = places_.at(p.callee);
      for (size_t a = 0; a < p.arguments.size(); ++a)
        code_.calls[k].arguments.push_back({p.arguments[a], place.parameters.at(a), f.parameters[a].bytes});
      for (size_t r = 0; r < p.results.size(); ++r)
        code_.calls[k].results.push_back({place.results.at(r), p.results[r], f.results[r].bytes});
    }
  }

 private:
  struct Place {
    int begin = -1;
    std::vector<size_t> parameters, results;  // in the lane's memory
  };

  void function(const Function& f) {
    f_ = &f;
    names_.clear();
    predicates_.clear();
    lane_.clear();
    own_shared_.clear();
    Place& place = places_[f.name];
    place.begin = int(code_.instructions.size());
    if (!f.entry) {
      for (const Variable& p : f.parameters) place.parameters.push_back(lane_[p.name] = lane_space(p));
      for (const Variable& p : f.results) place.results.push_back(lane_[p.name] = lane_space(p));
    }
    for (const Variable& v : f.variables) {
      if (v.space == "shared")
        shared(v, own_shared_);
      else if (v.space == "local" || v.space == "param")
        lane_[v.name] = lane_space(v);
      else
        throw Fault("a variable of ." + v.space + " in " + f.name);
    }
    std::map<size_t, size_t> at_statement;  // where its instruction is
    const size_t first = code_.instructions.size();
    for (const Statement& s : f.body) {
      s_ = &s;
      code_.instructions.push_back(instruction(s));
    }
    // A thread that runs past the end returns.
    Instruction end;
    end.flow = Flow::ret;
    code_.instructions.push_back(end);
    for (size_t k = first; k < code_.instructions.size(); ++k) {
      Instruction& i = code_.instructions[k];
      if (i.flow == Flow::branch) i.target = label(f, branch_labels_.at(k), first);
      if (i.flow == Flow::table) {
        code_.tables.emplace_back();
        for (const std::string& name : f.tables.at(branch_labels_.at(k))) code_.tables.back().push_back(label(f, name, first));
        i.target = int(code_.tables.size()) - 1;
      }
    }
    branch_labels_.clear();
  }
  int label(const Function& f, const std::string& name, size_t first) const {
    const auto it = f.labels.find(name);
    if (it == f.labels.end()) throw Fault("no label " + name + " in " + f.name);
    return int(first + it->second);
  }

  Instruction instruction(const Statement& s) {
    Instruction i;
    i.line = s.line;
    if (!s.guard.empty()) {
      i.guard = predicate(s.guard);
      i.guard_negated = s.guard_negated;
    }
    const std::vector<std::string>& op = s.op;
    const std::vector<Operand>& o = s.operands;
    const std::string &name = op[0], &type = op.back();
    const auto has = [&](const char* w) { return std::find(op.begin(), op.end(), w) != op.end(); };

    if (name == "bra") {
      i.flow = Flow::branch;
      branch_labels_[code_.instructions.size()] = o.at(0).name;
      return i;
    }
    if (name == "brx") {
      i.flow = Flow::table;
      i.a = source(o.at(0), "u32");
      branch_labels_[code_.instructions.size()] = o.at(1).name;
      return i;
    }
    if (name == "ret" || name == "exit") {
      i.flow = name == "ret" ? Flow::ret : Flow::exit;
      return i;
    }
    if (name == "trap" || name == "brkpt") {
      i.run = [](Context& x, const Instruction& of, uint32_t lanes) { fault(x, of, std::countr_zero(lanes), "trap"); };
      return i;
    }
    if (name == "nanosleep") {
      i.flow = Flow::sleep;
      return i;
    }
    if (name == "call") return call(s, i);
    if (name == "bar" || name == "barrier") {
      if (has("warp")) {
        i.flow = Flow::warp;
        i.mode = 0;
        i.b = source(o.at(0), "b32");
        return i;
      }
      i.flow = Flow::barrier;
      if (has("red")) {
        const bool counts = has("popc");
        i.vote = counts ? Vote::count : has("and") ? Vote::all : Vote::any;
        if (counts)
          i.d = result(o.at(0), i);
        else
          i.q = predicate(o.at(0).name);
        predicate_source(o.back(), i);
        if (o.size() != 3) fail("a barrier of some threads");
      } else if (!has("sync") || o.size() != 1) {
        fail("a barrier that is not known");
      }
      const Operand& id = has("red") ? o[1] : o[0];
      if (id.kind != Kind::immediate || id.bits != 0) fail("a barrier other than 0");
      return i;
    }
    if (name == "shfl") {  // shfl.sync.bfly.b32 d|p, a, b, c, mask
      if (op[1] != "sync") fail("without .sync");
      i.flow = Flow::warp;
      i.mode = op[2] == "up" ? 1 : op[2] == "down" ? 2 : op[2] == "bfly" ? 3 : 4;
      if (o.at(0).kind == Kind::pair) {
        i.d = o[0].items[0].kind == Kind::sink ? -1 : result(o[0].items[0], i);
        i.q = o[0].items[1].kind == Kind::sink ? -1 : predicate(o[0].items[1].name);
      } else {
        i.d = result(o[0], i);
      }
      i.a = source(o.at(1), "b32");
      i.list = source(o.at(2), "b32");
      i.c = source(o.at(3), "b32");
      i.b = source(o.at(4), "b32");
      return i;
    }
    if (name == "vote") {  // vote.sync.ballot.b32 d, p, mask
      if (op[1] != "sync") fail("without .sync");
      i.flow = Flow::warp;
      i.mode = op[2] == "ballot" ? 5 : op[2] == "any" ? 6 : op[2] == "all" ? 7 : 0;
      if (!i.mode) fail("a vote that is not known");
      if (i.mode == 5)
        i.d = result(o.at(0), i);
      else
        i.q = predicate(o.at(0).name);
      predicate_source(o.at(1), i);
      i.b = source(o.at(2), "b32");
      return i;
    }
    if (name == "activemask") {
      i.d = result(o.at(0), i);
      i.run = [](Context& x, const Instruction& of, uint32_t lanes) { each(lanes, [&](int l) { x.out(of.d)[l] = lanes; }); };
      return i;
    }

    i.space = space_of(op);
    if (name == "ld" || name == "ldu") {
      memory(o.at(1), i);
      list_of(o.at(0), type, true, i);
    } else if (name == "st") {
      memory(o.at(0), i);
      list_of(o.at(1), type, false, i);
    } else if (name == "atom") {
      i.d = o.at(0).kind == Kind::sink ? -1 : result(o[0], i);
      memory(o.at(1), i);
      i.b = source(o.at(2), type);
      if (o.size() > 3) i.c = source(o[3], type);
    } else if (name == "red") {
      memory(o.at(0), i);
      i.b = source(o.at(1), type);
    } else if (name == "setp") {
      predicate_results(o.at(0), i);
      i.a = source(o.at(1), type);
      i.b = source(o.at(2), type);
      if (o.size() > 3) predicate_source(o[3], i);
    } else if (name == "testp") {
      predicate_results(o.at(0), i);
      i.a = i.b = source(o.at(1), type);
    } else if (name == "selp") {
      i.d = result(o.at(0), i);
      i.a = source(o.at(1), type);
      i.b = source(o.at(2), type);
      predicate_source(o.at(3), i);
    } else if (type == "pred") {
      predicate_results(o.at(0), i);
      predicate_source(o.at(1), i);
      if (o.size() > 2) {
        if (o[2].kind != Kind::reg) fail("a number as a predicate");
        i.r = predicate(o[2].name);
        i.mode = o[2].negated;
      }
      // r is a source here: predicate_results never sets it but for a pair.
    } else if (name == "mov" && o.at(0).kind == Kind::list) {
      i.target = 1;
      list_of(o[0], type, true, i);
      i.a = source(o.at(1), type);
      i.mode = uint8_t(bytes_of(type) / i.count);
    } else if (name == "mov" && o.at(1).kind == Kind::list) {
      i.target = 2;
      i.d = result(o[0], i);
      list_of(o[1], type, false, i);
      i.mode = uint8_t(bytes_of(type) / i.count);
    } else if (name == "mov" && o[1].kind == Kind::symbol && !is_register(o[1])) {
      i.d = result(o[0], i);
      name_base(o[1].name, o[1].offset, i);
    } else if (name == "cvta" && o.at(1).kind == Kind::symbol && !is_register(o[1])) {
      fail("cvta of a name");
    } else if (name == "lop3") {
      i.d = result(o.at(0), i);
      i.a = source(o.at(1), type);
      i.b = source(o.at(2), type);
      i.c = source(o.at(3), type);
      i.offset = int64_t(o.at(4).bits);
    } else if (name == "bfi") {
      i.d = result(o.at(0), i);
      i.a = source(o.at(1), type);
      i.b = source(o.at(2), type);
      i.c = source(o.at(3), "u32");
      i.list = source(o.at(4), "u32");
    } else if (name == "shl" || name == "shr" || name == "bfe") {
      i.d = result(o.at(0), i);
      i.a = source(o.at(1), type);
      i.b = source(o.at(2), "u32");
      if (o.size() > 3) i.c = source(o[3], "u32");
    } else if (name != "membar" && name != "fence" && name != "prefetch" && name != "prefetchu") {
      const std::string wide = type == "u16" ? "u32" : type == "s16" ? "s32" : type == "u32" ? "u64" : "s64";
      i.d = result(o.at(0), i);
      if (o.size() > 1) i.a = source(o[1], type);
      if (o.size() > 2) i.b = source(o[2], type);
      if (o.size() > 3) i.c = source(o[3], has("wide") ? wide : type);
      if (o.size() > 4) fail("many operands");
    }
    const int8_t base_mode = int8_t(i.mode);
    if (!choose(i, op)) fail("an instruction that is not known");
    if (i.target > 0 || type == "pred") i.mode = uint8_t(base_mode);
    return i;
  }

  Instruction call(const Statement& s, Instruction i) {
    i.flow = Flow::call;
    size_t k = 0;
    std::vector<Operand> results, arguments;
    if (s.operands.at(0).kind == Kind::list) results = s.operands[k++].items;
    const std::string callee = s.operands.at(k++).name;
    if (k < s.operands.size() && s.operands[k].kind == Kind::list) arguments = s.operands[k].items;
    const auto it = module_.functions.find(callee);
    if (it == module_.functions.end() || !it->second.defined) fail("a call of what is not here: " + callee);
    if (!places_.contains(callee)) {
      places_[callee] = {};
      wanted_.push_back(callee);
    }
    // The callee's places are given when it is built; what is copied is known by then.
    Call made;
    made.target = -1;
    pending_arguments_.push_back({callee, {}, {}});
    for (const Operand& a : arguments) pending_arguments_.back().arguments.push_back(lane_.at(a.name));
    for (const Operand& r : results) pending_arguments_.back().results.push_back(lane_.at(r.name));
    i.target = int(code_.calls.size());
    code_.calls.push_back(made);
    calls_.emplace_back(i.target, callee);
    return i;
  }

  struct Pending {
    std::string callee;
    std::vector<size_t> arguments, results;
  };

  std::map<size_t, std::string> branch_labels_;
  std::map<std::string, Place> places_;
  std::deque<std::string> wanted_;
  std::vector<std::pair<int, std::string>> calls_;
  std::vector<Pending> pending_arguments_;
  size_t dynamic_ = 0;
};

}  // namespace

void build(Program& program, const Function& entry, Kernel::Code& code) {
  Builder builder(program, program.module(), code);
  builder.kernel(entry);
  builder.finish_calls();
}

}  // namespace halfstep::ptx
