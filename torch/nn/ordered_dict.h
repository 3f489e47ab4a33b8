// SPDX-License-Identifier: Apache-2.0
// A map that keeps the order of insertion.
#pragma once

#include "torch/base/error.h"

namespace torch {

std::string demangle(const char* name);

template <class K, class V>
class OrderedDict {
 public:
  class Item {
   public:
    Item(K key, V value) : pair_(std::move(key), std::move(value)) {}
    V& operator*() { return value(); }
    const V& operator*() const { return value(); }
    V* operator->() { return &value(); }
    const V* operator->() const { return &value(); }
    const K& key() const noexcept { return pair_.first; }
    V& value() noexcept { return pair_.second; }
    const V& value() const noexcept { return pair_.second; }
    const std::pair<K, V>& pair() const noexcept { return pair_; }
    template <size_t i>
    decltype(auto) get() const {
      if constexpr (i == 0)
        return (pair_.first);
      else
        return (pair_.second);
    }

   private:
    std::pair<K, V> pair_;
  };
  using Iterator = typename std::vector<Item>::iterator;
  using ConstIterator = typename std::vector<Item>::const_iterator;

  explicit OrderedDict(std::string key_description = "Key") : key_description_(std::move(key_description)) {}
  OrderedDict(std::initializer_list<Item> items) : OrderedDict("Key") {
    for (const Item& i : items) insert(i.key(), i.value());
  }
  const std::string& key_description() const noexcept { return key_description_; }
  Item& front() {
    TORCH_CHECK(!items_.empty(), "Called front() on an empty OrderedDict");
    return items_.front();
  }
  const Item& front() const {
    TORCH_CHECK(!items_.empty(), "Called front() on an empty OrderedDict");
    return items_.front();
  }
  Item& back() {
    TORCH_CHECK(!items_.empty(), "Called back() on an empty OrderedDict");
    return items_.back();
  }
  const Item& back() const {
    TORCH_CHECK(!items_.empty(), "Called back() on an empty OrderedDict");
    return items_.back();
  }
  Item& operator[](size_t i) {
    TORCH_CHECK(i < items_.size(), "Index ", i, " is out of bounds");
    return items_[i];
  }
  const Item& operator[](size_t i) const {
    TORCH_CHECK(i < items_.size(), "Index ", i, " is out of bounds");
    return items_[i];
  }
  V& operator[](const K& key) {
    if (V* v = find(key)) return *v;
    detail::fail(key_description_, " '", key, "' is not defined");
  }
  const V& operator[](const K& key) const { return const_cast<OrderedDict&>(*this)[key]; }
  V* find(const K& key) noexcept {
    const auto at = index_.find(key);
    return at == index_.end() ? nullptr : &items_[at->second].value();
  }
  const V* find(const K& key) const noexcept { return const_cast<OrderedDict&>(*this).find(key); }
  bool contains(const K& key) const noexcept { return find(key) != nullptr; }
  Iterator begin() { return items_.begin(); }
  Iterator end() { return items_.end(); }
  ConstIterator begin() const { return items_.begin(); }
  ConstIterator end() const { return items_.end(); }
  size_t size() const noexcept { return items_.size(); }
  bool is_empty() const noexcept { return items_.empty(); }
  void reserve(size_t n) { items_.reserve(n); }
  template <class K2, class V2>
  V& insert(K2&& key, V2&& value) {
    K k(std::forward<K2>(key));
    TORCH_CHECK(!index_.count(k), key_description_, " '", k, "' already defined");
    items_.emplace_back(k, V(std::forward<V2>(value)));
    index_.emplace(std::move(k), items_.size() - 1);
    return items_.back().value();
  }
  V& insert(K key, V&& value) { return insert<K, V>(std::move(key), std::move(value)); }
  void update(OrderedDict&& other) {
    for (auto& i : other) insert(i.key(), std::move(i.value()));
  }
  void update(const OrderedDict& other) {
    for (const auto& i : other) insert(i.key(), i.value());
  }
  void erase(const K& key) {
    const auto at = index_.find(key);
    TORCH_CHECK(at != index_.end(), key_description_, " '", key, "' is not defined");
    const size_t where = at->second;
    index_.erase(at);
    items_.erase(items_.begin() + std::ptrdiff_t(where));
    for (auto& [k, i] : index_)
      if (i > where) --i;
  }
  void clear() {
    items_.clear();
    index_.clear();
  }
  const std::vector<Item>& items() const noexcept { return items_; }
  std::vector<K> keys() const {
    std::vector<K> out;
    for (const Item& i : items_) out.push_back(i.key());
    return out;
  }
  std::vector<V> values() const {
    std::vector<V> out;
    for (const Item& i : items_) out.push_back(i.value());
    return out;
  }
  std::vector<std::pair<K, V>> pairs() const {
    std::vector<std::pair<K, V>> out;
    for (const Item& i : items_) out.push_back(i.pair());
    return out;
  }

 private:
  std::unordered_map<K, size_t> index_;
  std::vector<Item> items_;
  std::string key_description_ = "Key";
};

}  // namespace torch
